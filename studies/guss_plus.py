"""Compares guss-plus with the safe planners in the true dynamics, over budgets, and without each of its parts.

    python studies/guss_plus.py                            # results/guss-plus/summary.json and budgets.png
    python studies/guss_plus.py --seed 1000 --out tuning   # the seeds that settings were chosen on

One episode of each seed: 96 for comparisons and for variants of guss-plus, 24 for the curves over budgets, 10 for the
smallest budget in the toy world. Settings of the other planners are those of the presets; guss-plus has its defaults on
every task. Finished entries are kept: an interrupted study continues.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
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
    """A task with the horizon and the budget of its plans, the number of seeds, and the margin of its limits."""

    env: str
    horizon: int
    budget: int
    seeds: int = 96
    margin: float = 0.0


TASKS = (
    Case("safe-acrobot", 15, 100),
    Case("safe-pendulum", 20, 100),
    Case("safe-toy", 50, 125),
    Case("examples/cooling_plant.py:known", 12, 100, margin=0.25),
)
BUDGETS = tuple(Case("safe-acrobot", 15, budget, 24) for budget in (25, 50, 200, 500, 1000))
TOY_BUDGETS = tuple(Case("safe-toy", 50, budget, 10) for budget in (30, 40, 50, 60, 80, 100, 125, 200, 300, 500))
VARIANTS: dict[str, dict[str, Any]] = {
    "only policies": {"candidates": "policy"},
    "only sequences": {"candidates": "sequence"},
    "as many policies as sequences": {"policy_share": 0.5},
    "weights with a standard deviation of 1": {"policy_std": 1.0},
    "no elites carried over": {"num_carried": 0},
    "8 elites carried over": {"num_carried": 8},
    "only random parents": {"greedy_share": 0.0},
    "only the best parents": {"greedy_share": 1.0},
    "random parents without cost": {"parents": "safe"},
    "white noise": {"noise_exponent": 0.0},
    "brown noise": {"noise_exponent": 2.0},
    "generations of 5": {"num_new": 5},
    "generations of 25": {"num_new": 25},
    "steps along lines, 0.3": {"line_std": 0.3},
}
"""guss-plus with one change."""
DIVERSITY: dict[str, dict[str, Any]] = {
    "novelty, descriptor of the task": {"diversity": "novelty"},
    "novelty, principal components": {"diversity": "novelty", "descriptor": "pca"},
}
"""guss-plus without a grid."""
NEAR_GUSS: dict[str, Any] = {
    "candidates": "policy", "policy_std": 1.0, "num_carried": 1, "num_new": 5, "greedy_share": 0.0, "parents": "safe",
}  # fmt: skip
"""guss-plus with the settings of GuSS."""
ALONE: dict[str, dict[str, Any]] = {
    "none of them": {},
    "mixed candidates": {"candidates": "mixed"},
    "smaller weights": {"policy_std": 0.7},
    "4 elites carried over": {"num_carried": 4},
    "half of the parents are the best": {"greedy_share": 0.5},
    "random parents from all elites": {"parents": "all"},
    "generations of 15": {"num_new": 15},
}
"""Each idea alone."""


def entries() -> Iterator[tuple[str, Case, str, dict[str, Any]]]:
    """Name, case, method and settings of everything that is run."""
    for case in TASKS:
        yield from comparison(case, (*METHODS, "random"))
        for name, settings in (VARIANTS | DIVERSITY).items():
            yield f"{key_of(case)} guss-plus: {name}", case, "guss-plus", settings
        for name, settings in ALONE.items():
            yield f"{key_of(case)} alone: {name}", case, "guss-plus", NEAR_GUSS | settings
    for case in (*TOY_BUDGETS, *BUDGETS):
        yield from comparison(case, METHODS)


def key_of(case: Case) -> str:
    """The beginning of the names of a case's entries."""
    return f"{case.env} {case.budget}" if case.seeds > 10 else f"{case.seeds} seeds of {case.env} {case.budget}"


def comparison(case: Case, methods: Sequence[str]) -> Iterator[tuple[str, Case, str, dict[str, Any]]]:
    """All methods on one case."""
    for method in methods:
        yield f"{key_of(case)} {method}", case, method, {}


def measure(case: Case, method: str, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """Mean reward and unsafe steps of each seed; on the toy world, also whether the goal was reached."""
    if case.env == "safe-toy":
        settings = TOY_ELITES.get(method, {}) | settings
    about: dict[str, Any] = {} if method == "random" else {
        "model": "oracle", "initial_episodes": 0, "horizon": case.horizon, "budget": case.budget,
        "planning_margin": case.margin, "method_settings": settings,
    }  # fmt: skip
    config = guss.make_config(case.env, method, seeds=range(seed, seed + case.seeds), episodes=1, **about)
    with tempfile.TemporaryDirectory() as folder:
        run = guss.run(config, folder)
        found = {"reward": run.metrics.mar.tolist(), "unsafe_pct": run.metrics.unsafe_pct.tolist()}
        if case.env == "safe-toy":
            goal, radius = np.asarray([45.0, 45.0]), 3.0
            traces = sorted((run.path / "traces").iterdir())
            paths = [np.asarray(guss.read_traces([path]).trajectory.next_obs) for path in traces]
            found["reached"] = [bool((np.linalg.norm(path - goal, axis=-1) <= radius).any()) for path in paths]
    return found


def measure_or_error(case: Case, method: str, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """The measures, or the error of a method that cannot run, such as one with a budget that is too small for it."""
    try:
        return measure(case, method, settings, seed)
    except guss.GussError as error:
        return {"error": str(error)}


def draw(rows: dict[str, Any], out: Path) -> None:
    """Reward against budget."""
    figure, axes = new_figure(1, 1, 6.4, 4.0)
    for method in METHODS:
        points = sorted(
            (case.budget, np.asarray(rows[f"{key_of(case)} {method}"]["reward"]))
            for case in (TASKS[0], *BUDGETS)
            if "reward" in rows[f"{key_of(case)} {method}"]
        )
        budgets, means = [budget for budget, _ in points], [values.mean() for _, values in points]
        errors = [values.std(ddof=1) / np.sqrt(values.size) for _, values in points]
        axes.errorbar(budgets, means, yerr=errors, lw=1.4, capsize=2, **style_of(method))
    axes.set_ylim(1.4, 1.95)  # RCEM and CCE with 50 plans are below: their ten elites are all samples of an iteration
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
    parser.add_argument("--workers", type=int, default=1, help="number of processes")
    args, console = parser.parse_args(), make_console(stderr=True)
    path = args.out / "summary.json"
    origin = provenance(shlex.join(["python", "studies/guss_plus.py", *sys.argv[1:]]))
    rows = json.loads(path.read_text())["entries"] if path.exists() else {}
    args.out.mkdir(parents=True, exist_ok=True)
    missing = [entry for entry in entries() if entry[0] not in rows]
    with ProcessPoolExecutor(args.workers, get_context("spawn")) as pool:  # a fork of a process with JAX would hang
        running = {pool.submit(measure_or_error, *entry[1:], args.seed): entry[0] for entry in missing}
        for done in as_completed(running):
            name = running[done]
            rows[name] = done.result()
            console.print(name, np.mean(rows[name].get("reward", np.nan)).round(3), soft_wrap=True)
            in_order = {entry[0]: rows[entry[0]] for entry in entries() if entry[0] in rows}
            write_json(path, {"provenance": origin, "first_seed": args.seed, "entries": in_order})
    draw(rows, args.out)


if __name__ == "__main__":
    main()
