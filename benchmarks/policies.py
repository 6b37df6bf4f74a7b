"""PPO-Lagrangian in guss and in OmniSafe on Safe Pendulum: the same budget and seeds, one thread, one after another.

    python benchmarks/policies.py --peer .venv-omnisafe/bin/python --seeds 3

`benchmarks/peers/omnisafe_pendulum.py` explains how to set this up. Without `--peer`, only guss is measured.
Also measures PPO with 16 environments and one seed (`--seeds 0`: only this). Writes `benchmarks/policies.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from guss.runs.provenance import provenance
from guss.runs.store import read_lines

HERE = Path(__file__).resolve().parent
STEPS, AT_ONCE = 200, 16
EPISODES = 1008  # 201,600 steps


def ours(method: str, seed: int, threads: int, episodes: int) -> dict[str, Any]:
    """A run of guss: its speed, and the measures of the last tenth of its episodes."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["run", "--env", "safe-pendulum", "--method", method, "--seeds", "1", "--seed", str(seed), "--quiet"]
        more = ["--episodes", str(episodes), "--out", folder, "--no-figures"]
        environment = os.environ | {"NPROC": str(threads)}
        subprocess.run([sys.executable, "-m", "guss", *words, *more], check=True, env=environment)
        (home,) = Path(folder).iterdir()
        rows, turns = read_lines(home / "episodes.jsonl"), read_lines(home / "timings.jsonl")
    seconds = [t["fit_seconds"] + t["plan_seconds"] for t in turns]
    compiling = sum(t["compile_seconds"] for t in turns)
    last = rows[-round(0.1 * len(rows)) :]
    return {
        "method": method,
        "seed": seed,
        "threads": threads,
        "steps": STEPS * len(rows),
        "seconds": round(sum(seconds), 2),
        "compile_seconds": round(compiling, 2),
        "steps_per_second": round(STEPS * len(rows) / sum(seconds), 1),
        "steps_per_second_once_compiled": round(STEPS * AT_ONCE / float(np.median(seconds[2:])), 1),
        "last_reward_per_step": round(float(np.mean([row["mean_reward"] for row in last])), 4),
        "last_unsafe_percent": round(float(np.mean([row["unsafe_pct"] for row in last])), 3),
        "all_unsafe_percent": round(float(np.mean([row["unsafe_pct"] for row in rows])), 3),
    }


def theirs(python: str, seed: int) -> dict[str, Any]:
    """The same in OmniSafe."""
    script = str(HERE / "peers" / "omnisafe_pendulum.py")
    done = subprocess.run(
        [python, script, "--seed", str(seed), "--steps", str(EPISODES * STEPS)],
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", help="the Python interpreter of an environment with OmniSafe")
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    origin = {"provenance": provenance(shlex.join(["python", "benchmarks/policies.py", *sys.argv[1:]]))}
    file = HERE / "policies.json"
    record: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    record["ppo"] = origin | {"rows": [ours("ppo", 0, threads, 640) for threads in (1, 2)]}
    print(json.dumps(record["ppo"]["rows"]), flush=True)
    pairs = []
    for seed in range(chosen.seeds):
        pair = {"guss": ours("ppo-lagrangian", seed, 1, EPISODES)}
        if chosen.peer:
            pair["omnisafe"] = theirs(chosen.peer, seed)
            pair["ratio"] = round(pair["omnisafe"]["seconds"] / pair["guss"]["seconds"], 1)
        pairs.append(pair)
        print(json.dumps(pair), flush=True)
    if pairs:
        record["ppo_lagrangian"] = origin | {"rows": pairs}
    file.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
