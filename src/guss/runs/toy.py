"""The exploration experiment of Sec. 5.1: every planner, one episode per seed, a perfect model. Stores only records.

    DIR/toy/config.json              settings, layout, provenance
    DIR/toy/records/<method>.npz     trajectories and measures, arrays [T, S, …]

An interrupted experiment resumes: methods with a stored record are not run again.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from guss import keys as streams
from guss.checkpoint import write_atomically
from guss.collect.compiled import OnStep
from guss.collect.tables import write_columns
from guss.envs.toy import CELLS, PAPER_LAYOUT, ToyLayout, toy_task
from guss.errors import GussError
from guss.files import check_folder, writing
from guss.limits import MAX_DATA, read_npz, reading
from guss.methods.planning import run_episodes
from guss.models.oracle import Oracle
from guss.planners import make_planner
from guss.planners.engine import Monitor
from guss.runs.compile_clock import CompileClock
from guss.runs.description import read_json, write_stored
from guss.runs.trainer import ignore
from guss.types import Planner, Rollout, Scores
from guss.validation import build, check_fields, convert, received

SCHEMA = 1


@dataclass(frozen=True)
class ToyConfig:
    """All settings that determine the outcome."""

    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    steps: int
    horizon: int
    budget: int
    settings: dict[str, dict[str, Any]]
    layout: ToyLayout = PAPER_LAYOUT

    def __post_init__(self) -> None:
        check_fields(self, "toy")
        for name in ("methods", "seeds"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise GussError(f"the toy experiment needs distinct {name}, got {list(values)}")
        if self.steps < 1:
            raise GussError(f"an episode needs at least 1 step, got {self.steps}")

    def to_json(self) -> dict[str, Any]:
        return json.loads(json.dumps(dataclasses.asdict(self)))


# ------------------------------------------------------------------------------------------------------ coverage


def cell_rows(positions: Array, size: Array) -> Array:
    """The cells of positions in the 50 × 50 coverage grid; the upper walls belong to the last cells."""
    index = jnp.clip(jnp.floor(positions * CELLS[0] / size), 0, CELLS[0] - 1).astype(jnp.int32)
    return index[..., 0] * CELLS[1] + index[..., 1]


def safe_cells(layout: ToyLayout) -> np.ndarray:
    """Whether each cell of the coverage grid contains a safe position reachable in unit steps from the start."""
    steps = np.arange(-np.ceil(layout.size), np.ceil(layout.size) + 1)
    axes = [np.unique(np.clip(layout.start[i] + steps, 0, layout.size)) for i in (0, 1)]
    points = jnp.asarray(np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2), jnp.float32)
    cost, stay = toy_task(layout).constraints[0].cost, jnp.zeros(2, jnp.int32)
    unsafe = jax.vmap(lambda point: cost(point, stay, point))(points)
    safe = np.zeros(CELLS[0] * CELLS[1], bool)
    safe[np.asarray(cell_rows(points[~unsafe], jnp.float32(layout.size)))] = True
    return safe


class CoverageMonitor(Monitor):
    """Marks the cells visited by the safe plans of one step."""

    size: Array

    def init(self) -> Bool[Array, "cells"]:
        return jnp.zeros((CELLS[0] * CELLS[1],), bool)

    def update(self, aux: Bool[Array, "cells"], rollouts: Rollout, scores: Scores) -> Bool[Array, "cells"]:
        """Mark the cells of this generation's safe plans."""
        cells = cell_rows(rollouts.next_obs[:, 0], self.size)  # [N, H]
        nowhere = CELLS[0] * CELLS[1]
        cells = jnp.where(scores.safe[:, None], cells, nowhere)
        return aux.at[cells.ravel()].set(True, mode="drop")


# ------------------------------------------------------------------------------------------------------ the run


def toy_planner(config: ToyConfig, method: str) -> Planner:
    """A method's planner with the experiment's settings."""
    size = {"horizon": config.horizon, "budget": config.budget}
    return make_planner(method, toy_task(config.layout), **size, **config.settings.get(method, {}))


def run_method(config: ToyConfig, method: str, on_step: OnStep = None) -> dict[str, np.ndarray]:
    """One method, all seeds at once; arrays [T, S, …]."""
    task, size = toy_task(config.layout), jnp.asarray(config.layout.size, jnp.float32)
    keys = streams.derived(streams.of_seeds(config.seeds), 0)
    started = time.perf_counter()
    with CompileClock() as clock:
        found = run_episodes(
            toy_planner(config, method),
            Oracle.of(task),
            task,
            keys,
            steps=config.steps,
            monitor=CoverageMonitor(size),
            steps_per_call=next(n for n in range(max(1, config.steps // 10), 0, -1) if config.steps % n == 0),
            on_step=on_step,
        )
    seconds = time.perf_counter() - started
    safe = safe_cells(config.layout)
    found = jax.tree.map(lambda x: np.swapaxes(np.asarray(x)[:, 0], 0, 1), found)  # [T, S, …]
    visited, diagnostics = found.aux.monitored, found.aux.diagnostics
    return {
        "position": np.concatenate([found.obs[:1], found.next_obs]),  # [T + 1, S, 2]
        "reward": found.reward,
        "cost": found.cost.sum(-1),
        "safe_plan_share": diagnostics.safe_share,
        # "Total amount of the safe space explored" (Fig. 2c): by all steps so far, and by the plans of each step.
        "coverage": (np.logical_or.accumulate(visited, axis=0) & safe).sum(-1) / safe.sum(),
        "coverage_of_step": (visited & safe).sum(-1) / safe.sum(),
        "evaluated": diagnostics.evaluated,
        "occupancy": diagnostics.occupancy,
        "fallback": diagnostics.fallback,
        "seconds": np.asarray(seconds),
        "compile_seconds": np.asarray(clock.seconds),
    }


def run_toy(
    config: ToyConfig,
    folder: Path,
    origin: dict[str, Any],
    on_method: Callable[[str, bool], Any] = ignore,
    on_step: OnStep = None,
) -> Path:
    """Run all methods and store their records in `folder`/toy; returns that folder.

    `on_method(name, stored)` is called before each method, with whether its record is already stored.
    """
    home = folder / "toy"
    records, done = home / "records", home / "summary.json"
    check_folder(records)
    for method in config.methods:  # raise on wrong settings of any method before running the first
        toy_planner(config, method)
    before = _stored_as(home, config)
    resumes = before is not None and all(before.get(name) == origin[name] for name in ("commit", "versions"))
    if done.exists() or not resumes:
        with writing(records):
            for stale in (done, *records.glob("*.npz")):
                stale.unlink(missing_ok=True)
            records.mkdir(parents=True, exist_ok=True)
        write_stored(home, {"schema": SCHEMA, "config": config.to_json(), "provenance": origin})
    for method in config.methods:
        path = records / f"{method}.npz"
        stored = path.exists()
        on_method(method, stored)
        if not stored:
            write_atomically(path, write_columns(".npz", run_method(config, method, on_step)))
    return home


def is_finished(home: Path, config: ToyConfig) -> bool:
    """Whether a folder contains all records of an experiment with these settings."""
    records = [home / "records" / f"{method}.npz" for method in config.methods]
    return _stored_as(home, config) is not None and all(path.exists() for path in records)


def _stored_as(home: Path, config: ToyConfig) -> dict[str, Any] | None:
    """The provenance of the experiment in a folder; None unless it is readable and has these settings."""
    try:
        data = _read(home)
    except GussError:
        return None
    return data["provenance"] if data["config"] == config.to_json() else None


def _read(home: Path) -> dict[str, Any]:
    """The checked config.json of an experiment."""
    data, where = read_json(home), f"{home / 'config.json'}: "
    if data.get("schema") != SCHEMA:
        raise GussError(f"{where}expected a toy experiment of schema {SCHEMA}, got {received(data.get('schema'))}")
    config = build(ToyConfig, data.get("config"), f"{where}config")
    for method in config.methods:
        if Path(method).name != method:
            raise GussError(
                f"{where}the method name {method!r} must not contain a path separator, because it becomes a file name"
            )
    convert(data.get("provenance"), dict[str, Any], f"{where}provenance")
    return data


def load_toy(home: Path) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """The stored config and records of an experiment folder, in the order of the config's methods."""
    data, records = _read(home), {}
    for method in data["config"]["methods"]:
        what = f"the record of {method!r} in {home}"
        with reading(f"{what} cannot be read"), (home / "records" / f"{method}.npz").open("rb") as file:
            records[method] = read_npz(file, MAX_DATA.budget(what))
    return data, records
