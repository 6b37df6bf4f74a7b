"""Finds constraints that are thresholds on a single dimension of the observation, and their limits.

A cost is any function, so it is probed: visited states are changed in one dimension at a time. A cost that depends on
only one dimension, in the same way in every state, is a threshold on it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from guss.task import Task

STATES, POINTS, REFINEMENTS = 8, 1025, 4
"""Number of probed states, of values per dimension, and of refinements of a limit."""
REACHES = (1.0, 10.0)
"""How far beyond the states limits are searched, in multiples of their range: near first."""


class Threshold(NamedTuple):
    """A constraint that is satisfied if a dimension is between `low` and `high`; an infinite end has no limit."""

    constraint: str
    dim: int
    low: float
    high: float

    @property
    def limits(self) -> tuple[float, ...]:
        """The finite ends."""
        return tuple(end for end in (self.low, self.high) if np.isfinite(end))

    def text(self) -> str:
        """The limits as text, such as "at most 75"."""
        if np.isfinite(self.low) and np.isfinite(self.high):
            return f"{self.low:.4g} to {self.high:.4g}"
        return f"at most {self.high:.4g}" if np.isfinite(self.high) else f"at least {self.low:.4g}"


def find_thresholds(task: Task, obs: np.ndarray, action: np.ndarray) -> list[Threshold]:
    """The thresholds among a task's constraints, probed around observed states [N, D] and actions [N, …].

    Costs that are learned, that depend on several dimensions or on the action, or whose limits are far from all of
    these states have none.
    """
    rows = np.unique(np.linspace(0, len(obs) - 1, STATES).round().astype(int))
    found = []
    for constraint in task.constraints:
        if not constraint.learned:
            params = [float(x) for x in map(np.asarray, constraint.cost.params.values()) if x.ndim == 0]
            probe = partial(_unsafe, constraint.cost, np.asarray(obs[rows], np.float32), np.asarray(action[rows]))
            tries = (_threshold(probe, _ranges(task, obs, params, reach)) for reach in REACHES)
            limits = next((each for each in tries if each is not None), None)
            found += [] if limits is None else [Threshold(constraint.name, *limits)]
    return found


def _ranges(task: Task, obs: np.ndarray, params: list[float], reach: float) -> np.ndarray:
    """The probed range of each dimension, [D, 2]: observed values, a margin on both sides, parameters."""
    low, high = np.asarray(obs, float).min(axis=0), np.asarray(obs, float).max(axis=0)
    span = np.maximum(high - low, 1e-3 * np.maximum(np.abs(low), np.abs(high)) + 1e-6)
    ends = np.stack([low - reach * span, high + reach * span], axis=1)
    for value in params:  # a limit is likely to be one of them, or its negative
        ends[:, 0] = np.minimum(ends[:, 0], -abs(value) - 0.05 * span)
        ends[:, 1] = np.maximum(ends[:, 1], abs(value) + 0.05 * span)
    bounds = np.asarray([task.observations.low, task.observations.high], float).T
    return np.stack([np.maximum(ends[:, 0], bounds[:, 0]), np.minimum(ends[:, 1], bounds[:, 1])], axis=1)


Probe = Callable[[int, np.ndarray], np.ndarray]
"""Maps a dimension and G values of it to a mask [K, G] of unsafe states with these values."""


def _unsafe(cost: Any, obs: np.ndarray, action: np.ndarray, dim: int, values: np.ndarray) -> np.ndarray:
    return np.asarray(_unsafe_with(cost, obs, action, np.int32(dim), np.asarray(values, np.float32)))


@jax.jit
def _unsafe_with(cost: Any, obs: Any, action: Any, dim: Any, values: Any) -> Any:
    def one(obs: Any, action: Any, value: Any) -> Any:
        changed = obs.at[dim].set(value)
        return jnp.asarray(cost(changed, action, changed), jnp.float32) > 0

    return jax.vmap(lambda o, a: jax.vmap(lambda value: one(o, a, value))(values))(obs, action)


def _threshold(probe: Probe, ranges: np.ndarray) -> tuple[int, float, float] | None:
    """The dimension that a cost depends on, and the ends between which it is 0; None if it is no threshold."""
    answers: list[tuple[int, np.ndarray, np.ndarray]] = []
    for dim, (low, high) in enumerate(ranges):
        values = np.linspace(low, high, POINTS)
        unsafe = probe(dim, values)
        if (unsafe != unsafe[:, :1]).any():
            answers.append((dim, values, unsafe))
    if len(answers) != 1:
        return None
    dim, values, unsafe = answers[0]
    safe = ~unsafe[0]
    edges = np.flatnonzero(safe[1:] != safe[:-1])
    one_piece = len(edges) == 1 or (len(edges) == 2 and not safe[0])
    if (unsafe != unsafe[:1]).any() or not one_piece:
        return None
    ends = [_edge(probe, dim, float(values[i]), float(values[i + 1])) for i in edges]
    if len(ends) == 2:
        return dim, ends[0], ends[1]
    return (dim, -np.inf, ends[0]) if safe[0] else (dim, ends[0], np.inf)


def _edge(probe: Probe, dim: int, low: float, high: float) -> float:
    """The limit between two values: the last float32 that is still safe."""
    for _ in range(REFINEMENTS):
        values = np.linspace(low, high, POINTS).astype(np.float32)
        unsafe = probe(dim, values)[0]
        at = int(np.argmax(unsafe[1:] != unsafe[:-1]))
        low, high = float(values[at]), float(values[at + 1])
    return high if unsafe[at] else low
