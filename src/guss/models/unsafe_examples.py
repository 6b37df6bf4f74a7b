"""Checks of the data of a learned cost: the number of unsafe examples, their range, and unexplored sides.

A classifier trained without unsafe examples predicts that every state is safe. Its error does not show this: on data
without an unsafe row, the error is zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from guss.spaces import Observations
from guss.task import Task

FEW = 10
"""Minimum number of unsafe examples to learn a cost from."""
SEPARATED = 0.99
"""One dimension separates unsafe from safe states if this share of all pairs is in the same order."""
MOST_SEEDS = 6
"""A warning lists at most this many seeds."""
NEAR = 0.05
"""States within this share of the observed range from a bound of their space have reached it."""


@dataclass(frozen=True)
class Examples:
    """Unsafe examples of one learned cost among N observed states."""

    name: str
    unsafe: int
    total: int
    low: tuple[float, ...]
    """Smallest value in each dimension of the unsafe states; empty if there are none."""
    high: tuple[float, ...]
    one_sided: tuple[tuple[int, str, float], ...]
    """Dimensions in which all unsafe states lie on one side ("low" or "high") while the other was not explored, and the
    end of the data on the other side."""
    names: tuple[str, ...] | None = None
    """Names of the dimensions."""

    def _label(self, dim: int) -> str:
        return f"obs[{dim}]" if self.names is None else self.names[dim]

    @property
    def kind(self) -> str:
        """The problem: "none", "one-sided" or "few" unsafe examples; "" if there are enough."""
        if self.unsafe == 0:
            return "none"
        return "one-sided" if self.one_sided else "few" if self.unsafe < FEW else ""

    @property
    def warning(self) -> str | None:
        """Why plans may be unsafe; None if the examples are sufficient."""
        if self.kind == "none":
            return (
                f"cost {self.name!r}: none of {self.total} observed states is unsafe, so the cost cannot be learned. "
                f"Describe the cost in a Task, add data with unsafe examples, or plan with --unknown-unsafe"
            )
        if self.kind == "one-sided":
            return "; ".join(self._side(*each) for each in self.one_sided)
        if self.kind == "few":
            return f"cost {self.name!r}: only {self.unsafe} of {self.total} observed states are unsafe; {self.region}"
        return None

    def _side(self, dim: int, where: str, reached: float) -> str:
        there = f"≤ {self.high[dim]:.3g}" if where == "low" else f"≥ {self.low[dim]:.3g}"
        beyond = "above" if where == "low" else "below"
        return (
            f"cost {self.name!r}: all {self.unsafe} unsafe states have {self._label(dim)} {there}, and no state "
            f"{beyond} {reached:.3g} was observed: plans treat that side as safe"
        )

    @property
    def region(self) -> str:
        """Range of the unsafe examples in every dimension."""
        if not self.unsafe:
            return "no unsafe example"
        ends = enumerate(zip(self.low, self.high, strict=True))
        ranges = [f"{self._label(i)} {a:.3g} to {b:.3g}" for i, (a, b) in ends]
        more = f" and {len(ranges) - 6} more dimensions" if len(ranges) > 6 else ""
        return f"they lie at {', '.join(ranges[:6])}{more}"

    def to_json(self) -> dict[str, Any]:
        return {
            "unsafe": self.unsafe,
            "total": self.total,
            "low": [round(x, 5) for x in self.low],
            "high": [round(x, 5) for x in self.high],
            "text": f"cost {self.name!r}: {self.unsafe} of {self.total} observed states are unsafe; {self.region}",
            "warning": self.warning,
        }


def examples_of(name: str, obs: np.ndarray, event: np.ndarray, space: Observations | None = None) -> Examples:
    """The Examples among states `obs` [N, D]; `event` [N]: whether each is unsafe.

    A side on which the states come close to the bound of their space is explored: there is nothing beyond it.
    """
    unsafe, safe = obs[event], obs[~event]
    if not len(unsafe):
        return Examples(name, 0, len(obs), (), (), ())
    low, high = unsafe.min(axis=0), unsafe.max(axis=0)
    ends = (-np.inf, np.inf) if space is None else (np.asarray(space.low), np.asarray(space.high))
    lowest, highest = (np.broadcast_to(end, low.shape) for end in ends)
    sides: list[tuple[int, str, float]] = []
    for dim in range(obs.shape[1]) if len(safe) else ():
        above = _share_above(unsafe[:, dim], safe[:, dim])
        middle = float(np.median(safe[:, dim]))
        # The other side is explored if safe states were observed there, as far from the middle as the unsafe ones.
        least, most = float(obs[:, dim].min()), float(obs[:, dim].max())
        near = NEAR * (most - least)
        floor, ceiling = _ends(least, most, float(lowest[dim]), float(highest[dim]), near)
        if above >= SEPARATED and least > max(2.0 * middle - low[dim], floor + near):
            sides.append((dim, "high", least))
        elif above <= 1.0 - SEPARATED and most < min(2.0 * middle - high[dim], ceiling - near):
            sides.append((dim, "low", most))
    names = None if space is None else space.names
    return Examples(name, len(unsafe), len(obs), tuple(low.tolist()), tuple(high.tolist()), tuple(sides), names)


def _ends(least: float, most: float, lowest: float, highest: float, near: float) -> tuple[float, float]:
    """The ends of a dimension: the bounds of its space; without a bound, zero if its values stop there.

    A concentration or a pressure is never negative, even if its space has no bounds.
    """
    floor = 0.0 if np.isinf(lowest) and 0.0 <= least <= near else lowest
    ceiling = 0.0 if np.isinf(highest) and -near <= most <= 0.0 else highest
    return floor, ceiling


def _share_above(these: np.ndarray, those: np.ndarray) -> float:
    """The share of pairs in which one of `these` is above one of `those`; ties count half."""
    ordered = np.sort(those)
    below = np.searchsorted(ordered, these, "left") + np.searchsorted(ordered, these, "right")
    return float(below.mean() / (2 * len(those)))


class Knowledge:
    """Filters repeated warnings: each is given once, and again if its problem recurs."""

    def __init__(self) -> None:
        self._kinds: dict[str, set[str]] = {}

    def news(self, examples: Sequence[Sequence[Examples]], seeds: Sequence[int] = ()) -> list[str]:
        """Warnings about `examples` [S][costs] that the last call did not give; `seeds`: numbers of the seeds.

        Seeds with the same problem share one warning, with the figures of the first of them.
        """
        found = []
        for each in zip(*examples, strict=True):
            name, kinds = each[0].name, {one.kind for one in each} - {""}
            for kind in sorted(kinds - self._kinds.get(name, set())):
                mine = [i for i, one in enumerate(each) if one.kind == kind]
                who = _seeds_text([(seeds or range(len(each)))[i] for i in mine], len(each))
                found.append(f"{who}{each[mine[0]].warning}")
            self._kinds[name] = kinds
        return found


def _seeds_text(seeds: Sequence[int], total: int) -> str:
    """The prefix of a warning: the seeds that it is about; empty if there is only one seed."""
    if total == 1:
        return ""
    count = f"{len(seeds)} of {total} seeds"
    if len(seeds) == 1:
        return f"seed {seeds[0]} ({count}): "
    shown = ", ".join(map(str, seeds[:MOST_SEEDS])) + ", …" * (len(seeds) > MOST_SEEDS)
    return f"seeds {shown} ({count}; the figures are those of seed {seeds[0]}): "


def learned_examples(task: Task, obs: np.ndarray, outcomes: np.ndarray) -> list[Examples]:
    """The Examples of every learned cost of a task; `obs` [N, D]: states that steps led to, `outcomes` [N, 2 + C]."""
    return [
        examples_of(constraint.name, obs, outcomes[:, 1 + i] > 0.0, task.observations)
        for i, constraint in enumerate(task.constraints)
        if constraint.learned
    ]
