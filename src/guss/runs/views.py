"""Default drawings: the view of an environment without a View, and the plane of behaviour cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from guss.envs import StateMap, View
from guss.envs.thresholds import find_thresholds
from guss.task import Grid, Task
from guss.types import Trajectory


def plain_view(task: Task, traces: Sequence[Trajectory]) -> View:
    """The default view: a dimension with a limit, else the first dimension, over time."""
    obs, action = (np.concatenate([getattr(trace, name) for trace in traces]) for name in ("obs", "action"))
    found = find_thresholds(task, obs, action)
    dim = found[0].dim if found else 0
    ends = [end for threshold in found if threshold.dim == dim for end in threshold.limits]
    low, high = _limits(np.append(obs[:, dim], ends))
    zones = [zone for t in found if t.dim == dim for zone in ((low, t.low), (t.high, high)) if np.isfinite(zone).all()]
    label = f"observation {dim}" if task.observations.names is None else task.observations.names[dim]
    return View(lambda obs: obs[..., dim], (label,), ((low, high),), unsafe=tuple(zones))


def plain_map(obs: np.ndarray, names: Sequence[str] | None = None) -> StateMap | None:
    """The default plane of states: the first two observations; None if there is only one."""
    if obs.shape[1] < 2:
        return None
    first, second = ("observation 0", "observation 1") if names is None or len(names) != obs.shape[1] else names[:2]
    return StateMap(lambda obs: obs[..., :2], (first, second), (_limits(obs[:, 0]), _limits(obs[:, 1])))


def _limits(values: np.ndarray) -> tuple[float, float]:
    edge = 0.05 * float(np.ptp(values)) + 1e-6
    return float(values.min()) - edge, float(values.max()) + edge


class BehaviourMap:
    """The plane of two descriptor dimensions on which plans are drawn."""

    def __init__(self, grid: Grid, view: View) -> None:
        self.cells, self.scale = grid.cells, view.behaviour_scale
        self.dims = [d for d in view.behaviour_dims if d < len(grid.cells)]
        self.labels = (view.behaviour[0], view.behaviour[1] if len(self.dims) > 1 else "")
        self.shape = (*(grid.cells[d] for d in self.dims), 1)[:2]
        low, high = (
            np.append(self.scale * np.asarray(x)[self.dims], e)[:2] for x, e in ((grid.low, 0), (grid.high, 1))
        )
        self.low, self.high = low, high
        self.extent = (low[0], high[0], low[1], high[1])

    def place_of(self, behaviour: np.ndarray) -> np.ndarray:
        """The position of a plan."""
        return np.clip(np.append(self.scale * behaviour[self.dims], 0.5)[:2], self.low, self.high)

    def best(self, candidates: Any) -> tuple[np.ndarray, np.ndarray]:
        """Per cell: the highest reward of safe plans (NaN if none), and whether all its plans are unsafe."""
        where = np.unravel_index(candidates.cell, self.cells)
        index = (*(where[d] for d in self.dims), np.zeros_like(where[0]))[:2]
        rewards, risky = np.full(self.shape, -np.inf), np.zeros(self.shape, bool)
        good, bad = candidates.finite & candidates.safe, candidates.finite & ~candidates.safe
        np.maximum.at(rewards, tuple(i[good] for i in index), candidates.reward[good])
        risky[tuple(i[bad] for i in index)] = True
        return np.where(np.isinf(rewards), np.nan, rewards), risky & np.isinf(rewards)
