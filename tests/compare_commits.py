"""Whether two commits compute the same bits: short runs of every method on every bundled environment.

    python tests/compare_commits.py --old 3615b08 --work ~/compare             the working tree against a commit
    python tests/compare_commits.py --old 3615b08 --new abc1234 --work DIR     one commit against another
    python tests/compare_commits.py … --only pendulum --only agent             cases whose name contains a word

Both sides run on this machine with the same interpreter, versions and flags of XLA, each with the commands that its own
copy of this file lists: commits differ in the flags of `guss`. Compared are the bytes of
`episodes.jsonl` (the fields that both sides record), the arrays of all traces, and the arrays of everything learned
after the last episode, whatever the files and leaves are called. Outcomes of a side are kept in
WORK/<commit>/<flags>/outcomes.json, so that an interrupted comparison continues, and the old side runs only once. Exit
code 1 if anything differs.

XLA rewrites and fuses operations depending on what surrounds them, so that two programs of the same operations may
round differently. `--flags literal`, the default, turns both off: equal operations give equal bits. `--flags quick`
are the flags of the tests, `--flags default` those of a user.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
PLANNERS = ("random", "rs", "s-rs", "cem", "rcem", "map-elites", "guss")
PLANNERS += ("cce", "icem", "s-icem", "mppi", "s-mppi", "ps-me")
POLICIES = ("sac", "safe-mbpo", "ppo", "ppo-lagrangian", "trpo", "cpo")
SMALL = ["--seeds", "2", "--horizon", "4", "--budget", "40", "--fit.max-steps", "60", "--fit.warm-steps", "30"]
LEARNING = {
    "sac": ["--method.hidden", "16", "16"],
    "safe-mbpo": ["--method.hidden", "16", "16", "--fit.max-steps", "60", "--fit.warm-steps", "30"],
}
FEW_ELITES = {name: ["--method.num-elites", "4"] for name in ("cem", "rcem", "cce")}
QUICK = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
FLAGS = {"literal": f"{QUICK} --xla_disable_hlo_passes=fusion,algsimp", "quick": QUICK, "default": ""}
ON_POLICY = ["--method.num-envs", "2", "--method.hidden", "16", "16"]
AGENT = """
import sys, gymnasium, guss
kind = sys.argv[1]
settings = dict(horizon=4, budget=40, fit={"max_steps": 60, "warm_steps": 30}, seed=3)
if kind == "compiled":
    agent = guss.Agent("safe-pendulum", **settings)
    agent.learn(3)
elif kind == "host":
    import guss.envs
    agent = guss.Agent(gymnasium.make("guss/SafePendulum-v0"), **settings)
    agent.learn(3)
else:
    from six_values import make_env
    agent = guss.Agent(make_env(), initial_episodes=2, **settings)
    agent.learn(3)
agent.fit()
agent.save("agent.ckpt")
for episode in agent.history:
    print(episode.episode, episode.phase, episode.steps, repr(episode.mean_reward), repr(episode.unsafe_pct))
"""


def cases() -> dict[str, list[str]]:
    """Names of runs and the words of their commands."""
    found: dict[str, list[str]] = {}
    for env, policies in (("safe-pendulum", POLICIES), ("safe-acrobot", POLICIES[2:]), ("safe-car-goal", POLICIES)):
        for method in PLANNERS:
            small = SMALL[:2] if method == "random" else SMALL
            words = ["--env", env, "--method", method, *small, "--episodes", "3"]
            found[f"{env}/{method}"] = [*words, *FEW_ELITES.get(method, [])]
        for method in policies:
            own = LEARNING.get(method)
            words = ["--env", env, "--method", method, "--seeds", "2", *(own or ON_POLICY)]
            found[f"{env}/{method}"] = [*words, "--episodes", "3" if own else "4"]
    small = [*SMALL, "--episodes", "3", "--initial-episodes", "1", "--initial-steps", "0"]
    found["safe-pendulum/ensemble"] = ["--env", "safe-pendulum", *SMALL, "--episodes", "3", "--model", "dmdn"]
    found["safe-pendulum/ensemble"] += [
        "--model.ensemble",
        "3",
        "--model.components",
        "2",
        "--model.no-deterministic",
        "--model.particles",
        "2",
    ]
    found["safe-pendulum/oracle"] = ["--env", "safe-pendulum", *SMALL[:6], "--episodes", "2", "--model", "oracle"]
    found["safe-pendulum/learned"] = ["--env", "safe-pendulum", *small, "--learned", "reward", "cost", "behaviour"]
    for name, file in (("six", "examples/six_values.py:make_env"), ("cooling", "examples/cooling_plant.py:make_env")):
        found[f"own/{name}"] = ["--env", file, *small, "--episode-length", "30"]
    found["own/six-process"] = ["--env", "examples/six_values.py:make_env", *small, "--env-process"]
    found["own/six-ppo"] = ["--env", "examples/six_values.py:make_env", "--method", "ppo", "--seeds", "2", *ON_POLICY]
    found["own/six-ppo"] += ["--episodes", "4"]
    found["own/cartpole"] = ["--env", "examples/cartpole.py:known", *SMALL, "--episodes", "14"]
    found["own/known"] = ["--env", "examples/project/known.py:make_env", *small, "--overlap"]
    for agent in ("compiled", "host", "six"):
        found[f"agent/{agent}"] = [agent]
    return found


def script_of(tree: Path) -> Any:
    """This file as a module, from the tree of a commit."""
    spec = importlib.util.spec_from_file_location("compared", tree / "tests" / "compare_commits.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def digest(array: np.ndarray) -> str:
    """Tells arrays apart by type, shape and bytes."""
    about = f"{array.dtype}{array.shape}".encode()
    return hashlib.sha256(about + np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint or an NPZ file."""
    content = path.read_bytes()
    if path.suffix == ".ckpt":
        content = content.partition(b"\n")[2]
    with np.load(io.BytesIO(content)) as held:
        return {name: held[name] for name in held.files}


def learned(run: Path) -> list[str]:
    """Digests of everything learned after the last episode: floating-point arrays, in any order.

    A final model, where it has its own file, takes the place of the one in the last checkpoint.
    """
    last = arrays_of(max((run / "checkpoints").glob("ep*.ckpt")))
    if (run / "final.ckpt").exists():
        last |= arrays_of(run / "final.ckpt")
    return sorted(digest(array) for array in last.values() if array.dtype.kind == "f" and array.ndim > 1)


class Side:
    """One of the two commits: its tree, and what its cases gave."""

    def __init__(self, commit: str | None, work: Path, flags: str) -> None:
        named = commit or "HEAD"
        rev = subprocess.run(
            ["git", "rev-parse", "--short", named], cwd=ROOT, capture_output=True, text=True, check=True
        )
        self.name = rev.stdout.strip() if commit else "worktree"
        self.home = (work / self.name / flags).resolve()
        self.home.mkdir(parents=True, exist_ok=True)
        self.tree = ROOT
        if commit:
            self.tree = self.home.parent / "tree"
            if not self.tree.exists():
                subprocess.run(["git", "worktree", "add", "--detach", self.tree, commit], cwd=ROOT, check=True)
        self.script = script_of(self.tree)
        self.file = self.home / "outcomes.json"
        self.outcomes: dict[str, Any] = json.loads(self.file.read_text()) if commit and self.file.exists() else {}
        path = f"{self.tree / 'src'}:{self.tree / 'examples'}"
        cache = str(work.resolve() / "cache")
        self.env = os.environ | {"PYTHONPATH": path, "XLA_FLAGS": FLAGS[flags], "GUSS_CACHE_DIR": cache, "NPROC": "1"}

    def python(self, *words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run Python with this side's sources."""
        folder = self.tree if folder is None else folder
        return subprocess.run([sys.executable, *words], cwd=folder, env=self.env, capture_output=True, text=True)

    def outcome(self, name: str) -> Any:
        """The outcome of a case: stored by an earlier run of this script, or computed now."""
        if name not in self.outcomes:
            started, words = time.perf_counter(), self.script.cases()[name]
            self.outcomes[name] = self.agent(name, words) if name.startswith("agent/") else self.run(name, words)
            self.file.write_text(json.dumps(self.outcomes, indent=1))
            print(f"  {self.name} {name}: {time.perf_counter() - started:.0f} s", flush=True)
        return self.outcomes[name]

    def agent(self, name: str, words: list[str]) -> Any:
        """An agent in Python: its history, and the arrays of its file."""
        folder = self.home / "runs" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        done = self.python("-c", self.script.AGENT, *words, folder=folder)
        if done.returncode:
            return {"error": done.stderr[-2000:]}
        arrays = arrays_of(folder / "agent.ckpt").values()
        return {
            "history": done.stdout,
            "learned": sorted(digest(x) for x in arrays if x.dtype.kind == "f" and x.ndim > 1),
        }

    def run(self, name: str, words: list[str]) -> Any:
        """A run; the one on the pendulum by GuSS and PPO also killed and resumed, evaluated, fitted and replayed."""
        out = self.home / "runs" / name
        shutil.rmtree(out, ignore_errors=True)
        command = ["-m", "guss", "run", *words, "--no-figures", "--quiet", "--out", str(out)]
        done = self.python(*command)
        if done.returncode:
            return {"error": done.stderr[-2000:]}
        [run] = [path for path in out.iterdir() if path.is_dir()]
        found = records(run)
        if name in ("safe-pendulum/guss", "safe-pendulum/ppo", "own/six", "safe-car-goal/guss"):
            found["resumed"] = self.resumed(command, out)
            found["eval"] = self.printed("eval", str(run), "--episodes", "2", "--json")
        if name in ("safe-pendulum/guss", "own/six"):
            found["replay"] = self.verdict(run)
            fitted = self.python("-m", "guss", "fit", "--data", str(run), "--quiet", "--out", str(out / "models"))
            files = sorted((out / "models").rglob("*.ckpt"))
            arrays = [x for file in files for x in arrays_of(file).values() if x.dtype.kind == "f" and x.ndim > 1]
            found["fit"] = fitted.stderr[-500:] if fitted.returncode else sorted(map(digest, arrays))
        return found

    def resumed(self, command: list[str], out: Path) -> Any:
        """The same run, killed after its first episode and resumed."""
        again = out.with_name(f"{out.name}-killed")
        shutil.rmtree(again, ignore_errors=True)
        words = [sys.executable, *command[:-1], str(again)]
        process = subprocess.Popen(words, cwd=self.tree, env=self.env, stderr=subprocess.DEVNULL)
        while process.poll() is None and not any(again.glob("*/checkpoints/ep*.ckpt")):
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        [run] = list(again.iterdir())
        done = self.python("-m", "guss", "run", "--resume", str(run), "--no-figures", "--quiet")
        return records(run) if done.returncode == 0 else {"error": done.stderr[-2000:]}

    def printed(self, *words: str) -> Any:
        """The numbers that a command prints as JSON; where it was run and when do not count."""
        done = self.python("-m", "guss", *words)
        return json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr[-2000:]}

    def verdict(self, run: Path) -> str:
        """What a replay says of its plans: whether they are those of the run."""
        done = self.python("-m", "guss", "replay", str(run), "--step", "3", "--out", str(run / "step.png"))
        text = " ".join((done.stdout + done.stderr).split())
        found = re.search(r"(every action is|all actions match|\d+ of \d+ actions)", text)
        words = found.group() if found else text[-500:]
        return "all" if words.startswith(("every", "all")) else words  # older versions: "every action is the one …"


def records(run: Path) -> dict[str, Any]:
    """What a run stored, as digests."""
    traces = {path.name: arrays_of(path) for path in sorted((run / "traces").glob("*.npz"))}
    return {
        "episodes": (run / "episodes.jsonl").read_text(),
        "traces": {name: {key: digest(x) for key, x in held.items()} for name, held in traces.items()},
        "learned": learned(run),
    }


def common_fields(*texts: str) -> list[str]:
    """Texts of episodes.jsonl, each without the fields that the others lack: a later version may record more."""
    rows = [[json.loads(line) for line in text.splitlines()] for text in texts]
    shared = set.intersection(*(set(row) for each in rows for row in each))
    return ["\n".join(json.dumps({k: v for k, v in row.items() if k in shared}) for row in each) for each in rows]


def differences(old: Any, new: Any, where: str = "") -> list[str]:
    """Where two outcomes differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [each for name in sorted(old.keys() | new.keys())
                for each in differences(old.get(name), new.get(name), f"{where}.{name}".strip("."))]  # fmt: skip
    if where.endswith("learned") and isinstance(old, list) and isinstance(new, list):
        return [f"{where}: {len(set(old) - set(new))} of {len(old)} arrays"] if set(old) - set(new) else []
    if where.endswith("episodes") and old and new:
        old, new = common_fields(old, new)
    return [] if old == new else [f"{where}: {str(old)[:160]!r} became {str(new)[:160]!r}"]


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", required=True, metavar="COMMIT")
    parser.add_argument("--new", metavar="COMMIT", help="default: the working tree, run again every time")
    parser.add_argument("--work", type=Path, required=True, help="a folder for both sides' runs")
    parser.add_argument("--flags", choices=FLAGS, default="literal", help="how XLA compiles (default: literal)")
    parser.add_argument("--only", action="append", default=[], metavar="WORD")
    parser.add_argument("--out", type=Path, help="write a JSON record")
    given = parser.parse_args()
    sides = Side(given.old, given.work, given.flags), Side(given.new, given.work, given.flags)
    found = {}
    for name in (name for name in cases() if not given.only or any(word in name for word in given.only)):
        old, new = (side.outcome(name) for side in sides)
        found[name] = differences(old, new)
        state = "same" if not found[name] else "DIFFERENT: " + "; ".join(found[name][:4])
        print(f"{name}: {'error on both sides, ' * ('error' in old and 'error' in new)}{state}", flush=True)
    different = {name: rows for name, rows in found.items() if rows}
    print(f"{len(found)} cases, {len(different)} different")
    if given.out:
        record = {"old": sides[0].name, "new": sides[1].name, "flags": FLAGS[given.flags]}
        record |= {"cases": len(found), "different": different}
        given.out.write_text(json.dumps(record, indent=2) + "\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
