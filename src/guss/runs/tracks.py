"""An episode by dimensions: each dimension of the observations over time with its limits, and the actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from guss.envs.thresholds import Threshold, find_thresholds
from guss.errors import UnknownNameError
from guss.runs.replay import PlanSnapshot, Replay

MOST_DIMS = 8
"""Maximum number of dimensions drawn by default."""


@dataclass(frozen=True)
class Track:
    """One dimension of the observations, or of the actions, over the episode."""

    label: str
    limits: tuple[float, float]
    values: np.ndarray
    """[T + 1]; NaN after a jump."""
    unsafe: np.ndarray
    """Indices of the values after unsafe steps."""
    bounds: tuple[tuple[float, float, str], ...] = ()
    """Limits within view: the limit, the end of the unsafe zone beyond it, a label."""
    note: str = ""
    """Limits that are not in view, as text."""
    held: bool = False
    """Whether values are held until the next step, as actions are."""


class TrackPlans(NamedTuple):
    """Predicted values of one track from now on, [N, H + 1]; of an action, only the chosen plan's."""

    safe: np.ndarray
    unsafe: np.ndarray
    chosen: np.ndarray


def find_dims(labels: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """The indices of dimensions given by name or number, without repetition."""
    known = {str(i): i for i in range(len(labels))} | {label: labels.index(label) for label in labels}
    if unknown := [name for name in wanted if name not in known]:
        raise UnknownNameError("dimension of the observation", unknown[0], labels)
    return list(dict.fromkeys(known[name] for name in wanted))


def drawn_dims(labels: Sequence[str], wanted: Sequence[str], limited: Sequence[int]) -> list[int]:
    """The `wanted` dimensions; by default at most MOST_DIMS, of which those with a limit come first."""
    if wanted:
        return find_dims(labels, wanted)
    return sorted(list(dict.fromkeys([*limited, *range(len(labels))]))[:MOST_DIMS])


class Tracks:
    """The tracks of a replay: dimensions of the observations, then the actions."""

    def __init__(self, replay: Replay, dims: Sequence[str]) -> None:
        task, mine = replay.task, replay.traces[replay.row]
        obs, action = (np.concatenate([getattr(trace, name) for trace in replay.traces]) for name in ("obs", "action"))
        thresholds = find_thresholds(task, obs, action)
        labels = task.observations.labels
        self.dims = drawn_dims(labels, dims, [threshold.dim for threshold in thresholds])
        self.note = "" if dims or len(self.dims) == len(labels) else f"{len(self.dims)} of {len(labels)} dimensions"
        path = np.concatenate([mine.obs, mine.next_obs[-1:]]).astype(float)  # [T + 1, D]
        jumps = np.flatnonzero(~np.asarray(mine.learnable, bool)) + 1
        cost = np.zeros((len(mine.obs), len(task.constraints))) if mine.cost is None else np.asarray(mine.cost)
        of_dim = {threshold.constraint: threshold.dim for threshold in thresholds}
        tracks = []
        for dim in self.dims:
            counted = [of_dim.get(c.name, dim) == dim for c in task.constraints]  # a constraint without limit: all dims
            unsafe = np.flatnonzero((cost[:, counted] > 0).any(axis=1)) + 1
            mine_here = [threshold for threshold in thresholds if threshold.dim == dim]
            tracks.append(_obs_track(labels[dim], path[:, dim], jumps, unsafe, mine_here))
        actions = np.asarray(mine.action, float).reshape(len(mine.action), -1)
        self.num_actions = min(actions.shape[1], MOST_DIMS)
        for k in range(self.num_actions):
            label = f"action: {task.actions.labels[k]}".replace("action: action", "action")
            values, none = np.append(actions[:, k], actions[-1:, k]), np.zeros(0, int)
            tracks.append(Track(label, view_limits(actions[:, k], ()), values, none, held=True))
        self.tracks = tuple(tracks)

    def plans(self, obs: np.ndarray, snapshot: PlanSnapshot) -> tuple[TrackPlans, ...]:
        """The predicted values of each track for the plans of one step."""
        candidates, actions = snapshot.candidates, snapshot.actions.reshape(len(snapshot.actions), -1)
        masks = candidates.finite & candidates.safe, candidates.finite & ~candidates.safe
        found = []
        for dim in self.dims:
            start = np.full((len(candidates.paths), 1), obs[dim])
            lines = np.concatenate([start, candidates.paths[..., dim]], axis=1)
            chosen = np.append(obs[dim], snapshot.chosen[:, dim])
            found.append(TrackPlans(lines[masks[0]], lines[masks[1]], chosen))
        none = np.zeros((0, len(actions) + 1))
        found += [TrackPlans(none, none, np.append(actions[:, k], actions[-1, k])) for k in range(self.num_actions)]
        return tuple(found)


def _obs_track(
    label: str, path: np.ndarray, jumps: np.ndarray, unsafe: np.ndarray, thresholds: Sequence[Threshold]
) -> Track:
    low, high = view_limits(path, [end for threshold in thresholds for end in threshold.limits])
    bounds, hidden = [], []
    for threshold in thresholds:
        inside = [end for end in threshold.limits if low < end < high]
        if not inside:
            hidden.append(f"{threshold.constraint}: {threshold.text()} (not in view)")
        for end in inside:
            upper = end == threshold.high
            text = f"{threshold.constraint}: at {'most' if upper else 'least'} {end:.4g}"
            bounds.append((end, high if upper else low, text))
    values = path.copy()
    values[jumps] = np.nan
    return Track(label, (low, high), values, unsafe, tuple(bounds), "; ".join(hidden))


def view_limits(course: np.ndarray, limits: Sequence[float]) -> tuple[float, float]:
    """The axis limits of a track: the range of its values, and limits close to it."""
    low, high = float(np.nanmin(course)), float(np.nanmax(course))
    span = max(high - low, 1e-3 * max(abs(low), abs(high)), 1e-6)
    near = [end for end in limits if low - 1.5 * span <= end <= high + 1.5 * span]
    low, high = min([low, *near]), max([high, *near])
    margin = 0.15 * max(high - low, span)
    return low - margin, high + margin
