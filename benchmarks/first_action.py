"""Time to the first planned action on a custom environment, compared with an earlier commit.

python benchmarks/first_action.py --against 4b72517 --repeats 3

Both commits run `guss run --env examples/six_values.py:make_env` (one seed, three random episodes, then a plan), in
turn, each with an empty compilation cache (cold) and again with the filled cache (warm). Then an agent is stored,
and the time from the start of a new process to its third `act` is measured, warm. Writes
benchmarks/first_action.json. Run it on an idle machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TIMED = """
import sys, time
sys.path.insert(0, {examples!r})
from six_values import Lap, Spec

class Timed(Lap):
    resets = 0
    def reset(self, *, seed=None, options=None):
        Timed.resets += 1
        return super().reset(seed=seed, options=options)
    def step(self, action):
        if Timed.resets == 5 and self.t == 0:  # described once, three random episodes, the first planned one
            print("FIRST", time.time(), file=sys.stderr)
        return super().step(action)

def make_env():
    env = Timed()
    env.spec = Spec()
    return env
"""
STORE = """
import guss
from timed import make_env
agent = guss.Agent(make_env(), seed=0)
agent.learn(4)
agent.save("agent.ckpt")
"""
STEADY = """
import time
import guss, jax
from timed import make_env
compiled = []
jax.monitoring.register_event_duration_secs_listener(lambda event, _, **__: compiled.append(event))
agent = guss.Agent.load("agent.ckpt", make_env())
obs = [1.0, 0.0, 0.3]
agent.act(obs)
compiled.clear()
for _ in range(2):
    agent.act(obs)
print("STEADY", time.time(), sum("backend_compile" in event for event in compiled))
"""


def run(words, tree, cache, folder):
    """Run Python with the sources of a commit; returns its start time and its output."""
    env = os.environ | {"PYTHONPATH": f"{tree / 'src'}:{folder}", "GUSS_CACHE_DIR": str(cache), "NPROC": "1"}
    started = time.time()
    done = subprocess.run([sys.executable, *words], env=env, cwd=folder, capture_output=True, text=True, check=True)
    return started, done.stdout + done.stderr


def word(text, name):
    """The numbers of a printed line."""
    return [float(x) for line in text.splitlines() if line.startswith(name) for x in line.split()[1:]]


def main():
    """Measure, print, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", required=True, metavar="COMMIT")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        base, folder = Path(name) / "base", Path(name) / "work"
        subprocess.run(["git", "worktree", "add", "--detach", base, args.against], cwd=ROOT, check=True)
        try:
            record = measure({"before": base, "now": ROOT}, folder, args.repeats)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", base], cwd=ROOT, check=True)
    from guss.runs.provenance import provenance

    command = f"python benchmarks/first_action.py --against {args.against} --repeats {args.repeats}"
    record = {"provenance": provenance(command), "against": args.against} | record
    (ROOT / "benchmarks" / "first_action.json").write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record, indent=2))


def measure(trees, folder, repeats):
    """Seconds of every repetition, and medians with ratios."""
    seconds = {which: {"cold": [], "warm": []} for which in trees}
    steady = []
    for number in range(repeats):
        for which, tree in trees.items():
            here = folder / f"{which}{number}"
            here.mkdir(parents=True)
            (here / "timed.py").write_text(TIMED.format(examples=str(tree / "examples")))
            words = [
                "-m",
                "guss",
                "run",
                "--env",
                "timed.py:make_env",
                "--seeds",
                "1",
                "--episodes",
                "4",
                "--no-figures",
            ]
            for how in ("cold", "warm"):
                started, text = run([*words, "--out", how], tree, here / "cache", here)
                seconds[which][how].append(word(text, "FIRST")[0] - started)
        run(["-c", STORE], trees["now"], here / "cache", here)
        run(["-c", STEADY], trees["now"], here / "cache", here)  # fills the cache
        started, text = run(["-c", STEADY], trees["now"], here / "cache", here)
        ended, compiled = word(text, "STEADY")
        steady.append({"seconds": ended - started, "compiled_after_first_act": int(compiled)})
    median = lambda which, how: statistics.median(seconds[which][how])  # noqa: E731
    return {
        "seconds_to_first_planned_action": seconds,
        "ratio": {how: round(median("now", how) / median("before", how), 3) for how in ("cold", "warm")},
        "load_to_third_act_warm": steady,
    }


if __name__ == "__main__":
    main()
