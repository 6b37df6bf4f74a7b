"""Builds trajectories from columns, logged transitions and single steps, and checks them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from guss.errors import GussError
from guss.task import Task
from guss.types import Trajectory, Transition


def hard_violations(task: Task, cost: Any) -> np.ndarray:
    """Mask of steps that violate a hard limit, from costs [..., C]."""
    return np.asarray(np.any(np.asarray(cost)[..., ~np.asarray(task.soft, bool)] > 0, axis=-1))


def from_columns(task: Task, transitions: Transition, aux: PyTree = ()) -> Trajectory:
    """Whole episodes [..., T] of a compiled task; one that violates a hard limit ends there."""
    violated = hard_violations(task, transitions.cost)
    stopped = violated & (np.cumsum(violated, axis=-1) == 1)
    valid = np.cumsum(stopped, axis=-1) - stopped == 0
    last = stopped.copy()
    last[..., -1] |= ~violated.any(axis=-1)
    none = np.zeros_like(last)
    return Trajectory(*transitions, none, last, stopped, valid, valid, aux)


def logged(
    obs: Any,
    action: Any,
    next_obs: Any,
    reward: Any = None,
    cost: Any = None,
    *,
    learnable: Any = None,
    end: Any = None,
    terminated: Any = None,
) -> Trajectory:
    """Logged transitions [N, …] as a trajectory. `end`: the last steps of episodes, by default the last of all."""
    count = len(obs)
    every = np.ones(count, bool)
    terminated = ~every if terminated is None else np.asarray(terminated, bool)
    end = np.arange(count) == count - 1 if end is None else np.asarray(end, bool)
    learnable = every if learnable is None else np.asarray(learnable, bool)
    return Trajectory(obs, action, reward, cost, next_obs, terminated, end & ~terminated, ~every, every, learnable)


def from_steps(
    steps: Sequence[Transition], learnable: Sequence[bool], terminated: bool, task: Task, aux: Sequence[PyTree] = ()
) -> Trajectory:
    """One finished episode of one seed, [1, 1, T, …]. `terminated`: by the system itself. `aux`: of every step."""
    obs, action, reward, cost, next_obs = (np.stack(x) for x in zip(*steps, strict=True))
    last = np.arange(len(steps)) == len(steps) - 1
    found = logged(obs, action, next_obs, reward, cost, learnable=learnable, terminated=last & terminated)
    found = found._replace(stopped=last & hard_violations(task, cost))
    noted = jax.tree.map(lambda *x: np.stack(x, axis=2), *aux) if aux else ()
    return jax.tree.map(lambda x: x[None, None], found)._replace(aux=noted)


def check_finite(task: Task, trajectory: Trajectory, first: int, seeds: Sequence[int], start: int = 0) -> None:
    """Raise GussError if a valid step is not finite; it names episode, step, seed and dimension.

    `first` and `start`: the numbers of the first episode and of the first step of the trajectory.
    """
    labels = {"next_obs": task.observations.labels, "cost": [f"constraint {c.name!r}" for c in task.constraints]}
    for name in ("next_obs", "reward", "cost"):
        values = np.asarray(getattr(trajectory, name))
        wrong = ~np.isfinite(values) & trajectory.valid.reshape(*trajectory.valid.shape, *[1] * (values.ndim - 3))
        if wrong.any():
            row, number, t, *rest = np.argwhere(wrong)[0].tolist()
            which = "".join(f", {labels[name][i]}" for i in rest)
            raise GussError(
                f"{name} of task {task.name!r} is not finite in episode {first + number}, step {start + t}, "
                f"seed {seeds[row]}{which}: {values[(row, number, t, *rest)]}. Earlier episodes are kept."
            )


def one_episode(trajectory: Trajectory, seed: int, number: int) -> Trajectory:
    """One episode of one seed without padding, [T, …]."""
    steps = int(trajectory.valid[seed, number].sum())
    return jax.tree.map(lambda x: np.asarray(x)[seed, number, :steps], trajectory)
