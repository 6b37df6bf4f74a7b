"""Compares guss-plus with the safe planners in the true dynamics, over budgets, and without each of its parts.

    python studies/guss_plus.py                            # results/guss-plus/summary.json and budgets.png
    python studies/guss_plus.py --seed 1000 --out tuning   # the seeds that settings were chosen on

One episode of each seed: 96 for comparisons and for variants of guss-plus, 24 for the curves over budgets. Settings of
the other planners are those of the presets; guss-plus has its defaults on every task. Finished entries are kept: an
interrupted study continues.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import guss
from guss.progress import make_console
from guss.reports.style import new_figure, style_of
from guss.runs.provenance import provenance
from guss.runs.store import write_json

ROOT = Path(__file__).resolve().parents[1]
METHODS = ("guss-plus", "guss", "ps-me", "s-rs", "rcem", "s-icem", "s-mppi", "cce")
"""All safe planners of `guss list`."""
TOY_ELITES = {"rcem": {"num_elites": 25, "guard": False}, "cce": {"num_elites": 25}}
"""Settings of experiments/toy.toml; the toy world has no preset of `guss run`."""


class Case(NamedTuple):
    """A task with the horizon and the budget of its plans, and the number of seeds."""

    env: str
    horizon: int
    budget: int
    seeds: int = 96


TASKS = (Case("safe-acrobot", 15, 100), Case("safe-pendulum", 20, 100), Case("safe-toy", 50, 125))
ABLATION = (TASKS[0], TASKS[2])
"""Not the pendulum, on which all planners are equal."""
BUDGETS = tuple(Case("safe-acrobot", 15, budget, 24) for budget in (25, 50, 200, 500, 1000))
VARIANTS: dict[str, dict[str, Any]] = {
    "only policies": {"candidates": "policy"},
    "only sequences": {"candidates": "sequence"},
    "no elites carried over": {"num_carried": 0},
    "only random safe parents": {"greedy_share": 0.0},
    "only the best parents": {"greedy_share": 1.0},
    "white noise": {"noise_exponent": 0.0},
    "brown noise": {"noise_exponent": 2.0},
    "generations of 5": {"num_new": 5},
    "generations of 25": {"num_new": 25},
    "steps along lines, 0.3": {"line_std": 0.3},
}


def entries() -> Iterator[tuple[str, Case, str, dict[str, Any]]]:
    """Name, case, method and settings of everything that is run."""
    for case in TASKS:
        yield from comparison(case)
    for case in ABLATION:
        for name, settings in VARIANTS.items():
            yield f"{case.env} {case.budget} guss-plus: {name}", case, "guss-plus", settings
    for case in BUDGETS:
        yield from comparison(case)


def comparison(case: Case) -> Iterator[tuple[str, Case, str, dict[str, Any]]]:
    """All methods on one case."""
    for method in METHODS:
        yield f"{case.env} {case.budget} {method}", case, method, {}


def measure(case: Case, method: str, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """Mean reward and unsafe steps of each seed; on the toy world, also whether the goal was reached."""
    if case.env == "safe-toy":
        settings = TOY_ELITES.get(method, {}) | settings
    config = guss.make_config(
        case.env, method, seeds=range(seed, seed + case.seeds), model="oracle", episodes=1, initial_episodes=0,
        horizon=case.horizon, budget=case.budget, method_settings=settings,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        run = guss.run(config, folder)
        found = {"reward": run.metrics.mar.tolist(), "unsafe_pct": run.metrics.unsafe_pct.tolist()}
        if case.env == "safe-toy":
            goal, radius = np.asarray([45.0, 45.0]), 3.0
            traces = sorted((run.path / "traces").iterdir())
            paths = [np.asarray(guss.read_traces([path]).trajectory.next_obs) for path in traces]
            found["reached"] = [bool((np.linalg.norm(path - goal, axis=-1) <= radius).any()) for path in paths]
    return found


def draw(rows: dict[str, Any], out: Path) -> None:
    """Reward against budget."""
    figure, axes = new_figure(1, 1, 6.4, 4.0)
    for method in METHODS:
        points = sorted(
            (case.budget, np.asarray(rows[f"{case.env} {case.budget} {method}"]["reward"]))
            for case in (TASKS[0], *BUDGETS)
            if "reward" in rows[f"{case.env} {case.budget} {method}"]
        )
        budgets, means = [budget for budget, _ in points], [values.mean() for _, values in points]
        errors = [values.std(ddof=1) / np.sqrt(values.size) for _, values in points]
        axes.errorbar(budgets, means, yerr=errors, lw=1.4, capsize=2, **style_of(method))
    axes.set(xscale="log", xlabel="plans evaluated per step (budget)", ylabel="mean reward per step")
    axes.set_title("Safe Acrobot, true dynamics, horizon 15 (± standard error)", fontsize=10)
    axes.set_xticks([25, 50, 100, 200, 500, 1000], ["25", "50", "100", "200", "500", "1000"])
    axes.minorticks_off()
    axes.legend(fontsize=8, frameon=False)
    figure.savefig(out / "budgets.png", dpi=150, metadata={"Software": None})


def main() -> None:
    """Run what is missing, then draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "guss-plus")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    args, console = parser.parse_args(), make_console(stderr=True)
    path = args.out / "summary.json"
    origin = provenance(shlex.join(["python", "studies/guss_plus.py", *sys.argv[1:]]))
    rows = json.loads(path.read_text())["entries"] if path.exists() else {}
    args.out.mkdir(parents=True, exist_ok=True)
    for name, case, method, settings in entries():
        if name not in rows:
            try:
                rows[name] = measure(case, method, settings, args.seed)
            except guss.GussError as error:  # a budget too small for the method
                rows[name] = {"error": str(error)}
            console.print(name, np.mean(rows[name].get("reward", np.nan)).round(3), soft_wrap=True)
            write_json(path, {"provenance": origin, "first_seed": args.seed, "entries": rows})
    draw(rows, args.out)


if __name__ == "__main__":
    main()
