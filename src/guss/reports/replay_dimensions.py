"""An episode by dimensions of its observations: the course of each, where plans lead it, limits, and the actions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from guss.envs.thresholds import Threshold, find_thresholds
from guss.errors import UnknownNameError
from guss.reports.escapes import plot_text
from guss.reports.style import folded, new_canvas
from guss.runs.replay import Replay, Scene

SAFE, RISKY, CHOSEN, ZONE, DOT = "#7fb0d3", "#d6604d", "#08306b", "#f6c9c4", "#b2182b"
PAST = 20
MOST_DIMS = 8
"""Dimensions that are drawn unless others are asked for."""


def find_dims(labels: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """The dimensions of these names or numbers, each once."""
    found = []
    for name in wanted:
        if name in labels:
            found.append(labels.index(name))
        elif name.isdecimal() and int(name) < len(labels):
            found.append(int(name))
        else:
            raise UnknownNameError("dimension of the observation", name, labels)
    return list(dict.fromkeys(found))


def drawn_dims(labels: Sequence[str], wanted: Sequence[str], limited: Sequence[int]) -> list[int]:
    """Those wanted; by default all, or of many those with a limit and the first others."""
    if wanted:
        return find_dims(labels, wanted)
    if len(labels) <= MOST_DIMS:
        return list(range(len(labels)))
    return sorted(list(dict.fromkeys([*limited, *range(len(labels))]))[:MOST_DIMS])


class DimPanels:
    """The axes of a replay: for each dimension its course and the plans from now, below them the actions."""

    def __init__(self, replay: Replay, dims: Sequence[str], dpi: int) -> None:
        self.replay, self.task = replay, replay.task
        self.mine = replay.traces[replay.row]
        self.path = np.concatenate([self.mine.obs, self.mine.next_obs[-1:]]).astype(float)  # [T + 1, D]
        self.action = np.asarray(self.mine.action, float).reshape(len(self.mine.action), -1)
        self.thresholds = find_thresholds(self.task, np.concatenate([t.obs for t in replay.traces]),
                                          np.concatenate([t.action for t in replay.traces]))  # fmt: skip
        labels = self.task.observations.labels
        self.dims = drawn_dims(labels, dims, [t.dim for t in self.thresholds])
        self.note = "" if dims or len(self.dims) == len(labels) else f"{len(self.dims)} of {len(labels)} dimensions"
        rows = len(self.dims) + min(self.action.shape[1], MOST_DIMS)
        self.figure = new_canvas(11.2, 1.3 + 1.25 * max(rows, 3), dpi)
        self.axes: Any = self.figure.subplots(rows, 2, squeeze=False, sharex="col", sharey="row", width_ratios=(1.5, 1))
        for (left, right), dim in zip(self.axes, self.dims, strict=False):
            self._prepare_dim(left, right, dim)
        for k, (left, right) in enumerate(self.axes[len(self.dims) :]):
            self._prepare_action(left, right, k)
        self._prepare_ends()

    def draw(self, scene: Scene, scenes: list[Scene]) -> Iterable[Any]:
        """What changes from step to step."""
        first = max(scene.step - PAST, 0)
        ago = np.arange(first - scene.step, 1)
        for (left, right), dim in zip(self.axes, self.dims, strict=False):
            past = self._broken(self.path[: scene.step + 1, dim])
            reached = np.flatnonzero(self._unsafe(dim)[: scene.step]) + 1
            yield from left.plot(past, color="black", lw=1.4)
            yield left.axvline(scene.step, color=CHOSEN, lw=1.0)
            yield from left.plot(reached, self.path[reached, dim], "o", color=DOT, ms=3.5)
            yield from self._plans(right, scene, dim)
            yield from right.plot(ago, past[first:], color="black", lw=1.6)
            yield from right.plot([0], [self.path[scene.step, dim]], "o", color="black", ms=4)
        for k, (left, right) in enumerate(self.axes[len(self.dims) :]):
            taken = np.append(self.action[: scene.step, k], self.action[max(scene.step - 1, 0), k])
            taken = taken if scene.step else np.full(1, np.nan)
            yield from left.plot(taken, drawstyle="steps-post", color="black", lw=1.4)
            yield left.axvline(scene.step, color=CHOSEN, lw=1.0)
            yield from right.plot(ago, taken[first:], drawstyle="steps-post", color="black", lw=1.6)
            yield from self._planned(right, scene, k)

    # ----------------------------------------------------------------------------------------------- what stays

    def _prepare_dim(self, left: Any, right: Any, dim: int) -> None:
        course = self.path[:, dim]
        limits = [t for t in self.thresholds if t.dim == dim]
        low, high = _shown(course, [end for t in limits for end in t.limits])
        for axes in (left, right):
            for threshold in limits:
                _zones(axes, threshold, low, high)
            axes.set_ylim(low, high)
        left.plot(self._broken(course), color="#bbbbbb", lw=1.0)
        left.set_ylabel(folded(self.task.observations.labels[dim], 16), fontsize=8)
        hidden = [t for t in limits if not any(low < end < high for end in t.limits)]
        if hidden:
            text = "; ".join(f"{t.constraint}: {t.text()} (not in view)" for t in hidden)
            left.text(0.005, 0.9, plot_text(text), transform=left.transAxes, fontsize=7, color=DOT)
        for threshold in limits:
            for end in [end for end in threshold.limits if low < end < high]:
                upper = end == threshold.high
                left.annotate(plot_text(f"{threshold.constraint}: at {'most' if upper else 'least'} {end:.4g}"),
                              (0, end), (3, 2 if upper else -8), textcoords="offset points", fontsize=7, color=DOT,
                              clip_on=True)  # fmt: skip

    def _prepare_action(self, left: Any, right: Any, k: int) -> None:
        how: Any = {"drawstyle": "steps-post", "color": "#bbbbbb", "lw": 1.0}
        left.plot(np.append(self.action[:, k], self.action[-1:, k]), **how)
        left.set_ylabel(folded(f"action: {self.task.actions.labels[k]}".replace("action: action", "action"), 16),
                        fontsize=8)  # fmt: skip
        left.set_ylim(*_shown(self.action[:, k], ()))

    def _prepare_ends(self) -> None:
        """The titles and what is below."""
        count, replay = len(self.action), self.replay
        (first, second), (left, right) = self.axes[0], self.axes[-1]
        first.set_title("the episode (red dots: states that an unsafe step led to)", fontsize=9)
        second.set_title("where the plans lead from here" if replay.thinks else "the last steps", fontsize=9)
        left.set(xlim=(0, count), xlabel="step of the episode, from 0")
        right.set(xlim=(-PAST, replay.config.horizon if replay.thinks else 1), xlabel="steps from now")
        kinds = [("so far", "black"), ("safe plans", SAFE), ("unsafe plans", RISKY), ("the chosen one", CHOSEN)]
        for name, colour in kinds[: 4 if replay.thinks else 1]:
            second.plot([], [], color=colour, lw=2, label=name)
        self.figure.legend(loc="upper right", fontsize=8, ncols=4, frameon=False)
        for axes in self.axes.ravel():
            axes.tick_params(labelsize=7)

    # --------------------------------------------------------------------------------------------- what changes

    def _unsafe(self, dim: int) -> np.ndarray:
        """The steps to be marked on a dimension, [T]: by limits on it, and by constraints that are no limits."""
        if self.mine.cost is None:
            return np.zeros(len(self.action), bool)
        where = {t.constraint: t.dim for t in self.thresholds}
        mine = [where.get(c.name, dim) == dim for c in self.task.constraints]
        return np.asarray((np.asarray(self.mine.cost)[:, mine] > 0).any(axis=1))

    def _broken(self, course: np.ndarray) -> np.ndarray:
        """No line to where the system was moved by hand."""
        jumps = np.flatnonzero(~np.asarray(self.mine.learnable, bool)) + 1
        course = course.copy()
        course[jumps[jumps < len(course)]] = np.nan
        return course

    def _plans(self, axes: Any, scene: Scene, dim: int) -> Iterable[Any]:
        from matplotlib.collections import LineCollection

        if scene.thought is None:
            return
        looked, now = scene.thought.looked, scene.obs[dim]
        steps = np.arange(looked.paths.shape[1] + 1)
        for mask, colour in ((looked.usable & ~looked.safe, RISKY), (looked.usable & looked.safe, SAFE)):
            lines = [np.stack([steps, np.append(now, path)], axis=1) for path in looked.paths[mask][..., dim]]
            yield axes.add_collection(LineCollection(lines, colors=colour, lw=0.7, alpha=0.6), autolim=False)
        yield axes.plot(steps, np.append(now, scene.thought.chosen[:, dim]), color=CHOSEN, lw=2.2)[0]

    def _planned(self, axes: Any, scene: Scene, k: int) -> Iterable[Any]:
        if scene.thought is not None:
            coming = scene.thought.planned.reshape(len(scene.thought.planned), -1)[:, k]
            how: Any = {"drawstyle": "steps-post", "color": CHOSEN, "lw": 2.2}
            yield axes.plot(np.arange(len(coming) + 1), np.append(coming, coming[-1]), **how)[0]


def _shown(course: np.ndarray, limits: Sequence[float]) -> tuple[float, float]:
    """From where to where a number is drawn: its course, and limits that are not far from it."""
    low, high = float(np.nanmin(course)), float(np.nanmax(course))
    span = max(high - low, 1e-3 * max(abs(low), abs(high)), 1e-6)
    near = [end for end in limits if low - 1.5 * span <= end <= high + 1.5 * span]
    low, high = min([low, *near]), max([high, *near])
    edge = 0.15 * max(high - low, span)
    return low - edge, high + edge


def _zones(axes: Any, threshold: Threshold, low: float, high: float) -> None:
    """What is beyond a limit."""
    for end, beyond in ((threshold.high, high), (threshold.low, low)):
        if low < end < high:
            axes.axhspan(*sorted((end, beyond)), color=ZONE, lw=0)
            axes.axhline(end, color=DOT, lw=0.8, ls="--")
