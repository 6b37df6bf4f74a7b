"""The cases: the same systems, model sizes, budgets and horizons for guss and every peer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from guss.constraint import Constraint
from guss.envs import make_task
from guss.models.factory import ModelSettings, make_model
from guss.planners import make_planner
from guss.task import Grid, Task
from guss.types import ContinuousActions, Observations, Rollout


@dataclass(frozen=True)
class Case:
    """A plan."""

    name: str
    task: str
    method: str
    model: str
    horizon: int
    budget: int
    settings: dict[str, Any]


@dataclass(frozen=True)
class Fit:
    """A fit: gradient steps of a model on transitions."""

    name: str
    model: str
    task: str
    rows: int
    batch: int
    steps: int = 1800


PLANS = {
    case.name: case
    for case in (
        Case("pendulum", "safe-pendulum", "guss", "darmdn", 10, 100, {"num_initial": 25, "num_new": 5}),
        Case("acrobot", "safe-acrobot", "guss", "darmdn", 10, 100, {"policy_hidden": (5, 5)}),
        Case("car", "car-sized", "guss", "dmdn", 30, 525, {"num_initial": 25, "num_new": 25, "policy_hidden": (3,)}),
        Case("pendulum-cem", "safe-pendulum", "cem", "darmdn", 10, 100, {"iterations": 5, "num_elites": 10}),
        Case("rs-3000x30", "safe-pendulum", "rs", "darmdn", 30, 3000, {}),
        Case("cem-3000x30", "safe-pendulum", "cem", "darmdn", 30, 3000, {"iterations": 5, "num_elites": 60}),
    )
}


FITS = {
    fit.name: fit
    for fit in (
        Fit("fit-dmdn-2k", "dmdn", "car-sized", 2_000, 50),
        Fit("fit-dmdn-20k", "dmdn", "car-sized", 20_000, 50),
        Fit("fit-dmdn-100k", "dmdn", "car-sized", 100_000, 50),
        Fit("fit-dmdn-2k-batch-256", "dmdn", "car-sized", 2_000, 256),
        Fit("fit-darmdn-2k", "darmdn", "safe-pendulum", 2_000, 50),
        Fit("fit-darmdn-20k", "darmdn", "safe-pendulum", 20_000, 50),
        Fit("fit-darmdn-100k", "darmdn", "safe-pendulum", 100_000, 50),
        Fit("fit-darmdn-2k-batch-256", "darmdn", "safe-pendulum", 2_000, 256),
    )
}


def label(name: str, seeds: int) -> str:
    """A case's name in the results."""
    return name if seeds == 1 else f"{name} × {seeds} seeds"


def car_sized() -> Task:
    """A stand-in with the sizes of SafeCar-Goal: 22 observations, two continuous actions, a 50 × 50 grid."""

    def near(obs: Any, action: Any, next_obs: Any) -> Any:
        return jnp.any(next_obs[6:] > 0.9)  # a maximum of few numbers is slow in XLA 0.10: docs/performance.md

    def progress(obs: Any, action: Any, next_obs: Any) -> Any:
        return obs[0] - next_obs[0]

    def place(rollout: Rollout) -> Any:
        return rollout.next_obs[-1, :2]

    return Task(
        name="car-sized",
        observations=Observations(low=(-np.inf,) * 22, high=(np.inf,) * 22),
        actions=ContinuousActions(low=(-1.0, -1.0), high=(1.0, 1.0)),
        reward=progress,
        constraints=(Constraint("near", near),),
        descriptor=place,
        grid=Grid(low=(-3.0, -3.0), high=(3.0, 3.0), cells=(50, 50)),
        episode_length=1000,
        learns_end=False,
    )


def task_of(case: Case | Fit) -> Task:
    """The case's task."""
    return car_sized() if case.task == "car-sized" else make_task(case.task)


def model_of(case: Case | Fit, task: Task, seed: int = 0) -> Any:
    """The case's model with random weights, the same for all libraries."""
    net = make_model(case.model, task, jax.random.key(seed), ModelSettings(hidden=(50, 50), activation="silu"))
    return jax.jit(lambda x: x)(net)


def planner_of(case: Case, task: Task) -> Any:
    """The case's planner."""
    return make_planner(case.method, task, horizon=case.horizon, budget=case.budget, **case.settings)


def start_of(task: Task) -> np.ndarray:
    """The state that plans start from."""
    if task.reset is None:
        return np.random.default_rng(0).normal(size=task.observations.size).astype(np.float32)
    return np.asarray(task.reset(jax.random.key(1)))


def transitions_of(fit: Fit) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random transitions of the task's sizes; the time of a fit does not depend on their values."""
    task, rng = task_of(fit), np.random.default_rng(0)
    size, width = task.observations.size, task.actions.num_outputs
    obs = rng.normal(size=(fit.rows, size)).astype(np.float32)
    actions = rng.uniform(-1.0, 1.0, (fit.rows, width)).astype(np.float32)
    return obs, actions, obs + 0.1 * rng.normal(size=obs.shape).astype(np.float32)
