"""Compares planners beyond the paper with GuSS and RCEM in the true dynamics: the toy world and Safe Pendulum.

    python studies/planners.py --out results/planners

Ten seeds from 100, none used to choose settings; settings of the presets. Writes summary.json, the table of
docs/planners.md.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from guss.runs.provenance import provenance
from guss.runs.store import write_json

METHODS = ("guss", "rcem", "ps-me", "s-mppi", "mppi", "s-icem", "icem", "cce")
SEEDS = ("--seeds", "10", "--seed", "100")
TOY = ("reproduce", "toy", *SEEDS, "--methods", *METHODS)
PENDULUM = ("run", "--env", "safe-pendulum", "--model", "oracle", *SEEDS, "--episodes", "3", "--initial-episodes", "0")


def guss(*words: str) -> str:
    """The standard output of a command."""
    command = [sys.executable, "-m", "guss", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def toy(folder: Path) -> dict[str, Any]:
    """Measures of all methods in the toy world."""
    guss(*TOY, "--quiet", "--out", str(folder))
    found = json.loads((folder / "toy" / "summary.json").read_text())["methods"]
    kept = ("seeds", "reached", "mean_reward", "safe_plan_share", "coverage")
    return {
        name: {key: m[key] for key in kept} | {"unsafe_steps": float(np.mean(m["cost_per_seed"]))}
        for name, m in found.items()
    }


def pendulum(method: str, folder: Path) -> dict[str, Any]:
    """Measures of a method on the pendulum, over all its episodes: [mean, half-width of the 90 % interval]."""
    words = (*PENDULUM, "--method", method, "--no-figures", "--quiet", "--out", str(folder))
    guss(*words)
    (home,) = folder.glob(f"safe-pendulum-{method}-????????")
    from guss.reports.inventory import read_record
    from guss.reports.run_summary import interval_pair

    record = read_record(home)
    measures = {name: record.values(name).mean(axis=1) for name in ("mean_reward", "unsafe_pct")}
    return {name: interval_pair(values) for name, values in measures.items()} | {"episodes": record.done}


def main() -> None:
    """Run everything, then write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/planners"))
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        in_toy = toy(Path(folder))
        rows = {name: {"toy": in_toy[name], "pendulum": pendulum(name, Path(folder))} for name in METHODS}
    commands = [shlex.join(["guss", *TOY]), shlex.join(["guss", *PENDULUM, "--method", "METHOD"])]
    origin = provenance(shlex.join(["python", "studies/planners.py", *sys.argv[1:]]))
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "summary.json", {"provenance": origin, "commands": commands, "methods": rows})


if __name__ == "__main__":
    main()
