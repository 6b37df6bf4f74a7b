"""An episode as an animation: the data that the figure, the packed file and the report page all draw.

Animation, Frame       the data: `runs/animator.py` makes them of a stored episode
pack_animation(…)      the same as plain data for JSON: numbers rounded to what can be drawn, plans and steps thinned
read_animation(home)   RUN/animation.json.gz; None if there is none
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from guss.errors import GussError
from guss.runs.store import read_packed
from guss.runs.views import BehaviourMap

NAME, EARLIER_NAME, SCHEMA = "animation.json.gz", "film.json.gz", 2
FIELDS = (
    *("env", "method", "seed", "episode", "phase", "steps", "mean_reward", "return", "unsafe_steps", "verdict"),
    *("world", "axes", "behaviour", "course", "path", "frames"),
)
MOST_FRAMES = 60
MOST_PLANS, MOST_POINTS = {"time": 40, "place": 24}, {"time": 13, "place": 7}  # a place is two numbers
FINENESS, PLAN_FINENESS = 1000, 500
PAST = 20
"""Steps of the past that are drawn beside a plan's horizon."""
OnStep = Callable[[int, int], Any] | None  # steps done, and how many there are
Lines = np.ndarray
"""Trajectories by what they are drawn by: numbers [N, H + 1], or places [N, H + 1, 2]."""
Zones = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Axes:
    """What trajectories are drawn by: a number over time, or a place."""

    kind: Literal["time", "place"]
    labels: tuple[str, ...]
    limits: tuple[tuple[float, float], ...]
    unsafe: Zones
    """Intervals (from, to) of the number, or rectangles (x from, x to, y from, y to)."""
    horizon: int
    """Steps of a plan; 1 if nothing is planned."""

    @property
    def wraps(self) -> float | None:
        """Neighbouring numbers further apart than this are not joined: an angle wraps around at its limits."""
        return 0.5 * (self.limits[0][1] - self.limits[0][0]) if self.kind == "time" else None

    def course_limits(self, course: Any) -> tuple[float, float]:
        """From where to where a course is drawn: the limits of the number; of rewards, their range with a margin."""
        if self.kind == "time":
            return self.limits[0]
        low, high = float(np.min(course)), float(np.max(course))
        margin = 0.08 * (high - low) or 0.5
        return low - margin, high + margin


@dataclass(frozen=True)
class Track:
    """One dimension of the observations, or of the actions, over the episode."""

    label: str
    limits: tuple[float, float]
    values: np.ndarray
    """[T + 1]; NaN after a jump."""
    unsafe: np.ndarray
    """Indices of the values that an unsafe step led to."""
    bounds: tuple[tuple[float, float, str], ...] = ()
    """Limits within view: the limit, the end of the unsafe zone beyond it, a text."""
    note: str = ""
    """Limits that are not in view."""
    held: bool = False
    """An action: it is held until the next step."""


class TrackPlans(NamedTuple):
    """Where plans lead one track from now, [N, H + 1]; of an action, the chosen plan's."""

    safe: Lines
    unsafe: Lines
    chosen: np.ndarray


@dataclass(frozen=True)
class Animation:
    """What is the same in all frames."""

    env: str
    method: str
    seed: int
    episode: int
    phase: Literal["random", "plan", "policy"]
    rewards: np.ndarray
    unsafe: np.ndarray
    """Whether each step was unsafe, [T]."""
    axes: Axes
    behaviour: BehaviourMap | None
    """None: nothing was planned."""
    keeps_archive: bool
    world: tuple[float, float] | None
    """The system's shapes lie in the square [low, high]²; None: there are none."""
    path: np.ndarray
    """By the axes: the state before each step, [T] or [T, 2]; NaN after a jump."""
    course: np.ndarray
    """The episode as one curve, [T]: the number that the axes have after each step, or of places the reward."""
    course_label: str
    tracks: tuple[Track, ...] = ()
    note: str = ""
    """Which dimensions the tracks leave out."""

    @property
    def steps(self) -> int:
        """T."""
        return len(self.rewards)

    @property
    def titles(self) -> dict[str, str]:
        """Of the panels."""
        return {
            "system": "System (shaded: unsafe)",
            "plans": "Predicted trajectories" if self.phase == "plan" else "Trajectory so far",
            "archive": "Archive: best plan per cell" if self.keeps_archive else "Best plan per behaviour cell",
            "course": "Episode (red dots: unsafe steps)",
        }

    @property
    def legend(self) -> list[tuple[str, str]]:
        """The lines of the plans' panel: the name of a colour, and what is drawn in it."""
        names = [("past", "so far")]
        if self.phase == "plan":
            names += [("safe", "safe plans"), ("unsafe", "unsafe plans"), ("chosen", "chosen plan")]
        zones = any(track.bounds for track in self.tracks) if self.tracks else len(self.axes.unsafe) > 0
        return names + ([("zone", "unsafe zone")] if zones else [])


class Frame(NamedTuple):
    """One step; the plans are empty where nothing was planned."""

    step: int
    shapes: Sequence[Sequence[Any]]
    """The system (`guss.envs.shapes`)."""
    now: np.ndarray
    progress: str
    """Reward and unsafe steps so far."""
    safe: Lines = np.zeros((0, 1))
    unsafe: Lines = np.zeros((0, 1))
    chosen: np.ndarray = np.zeros(0)
    """Empty if its prediction is not finite, too."""
    cells: np.ndarray = np.zeros((0, 3))
    """Behaviour cells with safe plans, [K, 3]: i, j, and the best reward in it, 0 the lowest of them, 1 the highest."""
    risky: np.ndarray = np.zeros((0, 2), int)
    """Those with unsafe plans only, [K, 2]."""
    ring: np.ndarray | None = None
    """The behaviour of the chosen plan."""
    text: str = ""
    """The plans in words."""
    tracks: tuple[TrackPlans, ...] = ()


# ---------------------------------------------------------------------------------------------------------- packing


def evenly(count: int, most: int) -> np.ndarray:
    """At most so many of 0 … count − 1, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def thinned(safe: Lines, unsafe: Lines, most: int) -> tuple[Lines, Lines]:
    """At most about so many plans, safe and unsafe ones in their true proportion, evenly over those evaluated."""
    share = min(1.0, most / max(len(safe) + len(unsafe), 1))
    picked = []
    for lines in (safe, unsafe):
        count = max(round(share * len(lines)), min(len(lines), 1))
        picked.append(lines[evenly(len(lines), count)] if count else lines)
    return picked[0], picked[1]


def rounded(values: Any, span: float, fineness: int = FINENESS) -> Any:
    """As plain numbers, to 1, 2 or 5 of a decimal place: the coarsest of which the span has `fineness` steps."""
    values = np.asarray(values, float)
    if span <= 0:
        return values.tolist()
    finest = span / fineness * (1 + 1e-9)
    decimals = -int(np.floor(np.log10(finest)))
    step = max(s for s in (1, 2, 5) if s * 10.0**-decimals <= finest) * 10.0**-decimals
    plain = (np.round(values / step) * step).round(decimals) + 0.0  # no −0
    return (plain if decimals > 0 else plain.astype(int)).tolist()


def pack_animation(animation: Animation, frames: Iterable[Frame], verdict: Callable[[], str]) -> dict[str, Any]:
    """As plain data; `verdict` is called after the last frame."""
    axes, behaviour = animation.axes, animation.behaviour
    points = evenly(axes.horizon + 1, MOST_POINTS[axes.kind]) if behaviour is not None else np.zeros(1, int)
    packed_frames = [_packed_frame(animation, frame, points) for frame in frames]
    unsafe = np.flatnonzero(animation.unsafe)
    low, high = axes.limits[0] if axes.kind == "time" else (animation.course.min(), animation.course.max())
    course = rounded(animation.course, float(high - low))
    jumped = np.isnan(animation.path.reshape(animation.steps, -1)).any(axis=1)
    path = _rounded(axes, np.nan_to_num(animation.path))
    packed = {
        "schema": SCHEMA,
        **{name: getattr(animation, name) for name in ("env", "method", "seed", "episode", "phase", "steps")},
        "mean_reward": round(float(animation.rewards.mean()), 4),
        "return": round(float(animation.rewards.sum()), 4),
        "unsafe_steps": len(unsafe),
        "verdict": verdict(),
        "world": animation.world,
        "axes": asdict(axes) | {"points": points.tolist(), "past": PAST, "wraps": axes.wraps},
        "behaviour": behaviour
        and {
            "labels": behaviour.labels,
            "extent": [round(float(edge), 6) for edge in behaviour.extent],
            "shape": behaviour.shape,
            "kept": animation.keeps_archive,
        },
        "course": {
            "label": animation.course_label,
            "values": course,
            "unsafe": unsafe.tolist(),
            "limits": axes.course_limits(course),
        },
        "path": [None if jump else place for jump, place in zip(jumped, path, strict=True)],
        "frames": packed_frames,
        "titles": animation.titles,
        "legend": animation.legend,
    }
    return json.loads(json.dumps(packed | {"summary": _summary(packed)}))


def _summary(packed: dict[str, Any]) -> str:
    """The outcome of the episode."""
    how = {"plan": "", "policy": " (a learned policy acts)", "random": " (random actions)"}[packed["phase"]]
    return (
        f"Episode {packed['episode']} of seed {packed['seed']}{how}: mean reward {packed['mean_reward']:.3f}, "
        f"return {packed['return']:.4g}, {packed['unsafe_steps'] or 'none'} of {packed['steps']} steps unsafe."
    )


def _packed_frame(animation: Animation, frame: Frame, points: np.ndarray) -> dict[str, Any]:
    axes, plane = animation.axes, animation.behaviour
    low, high = animation.world or (0.0, 1.0)

    def number(value: Any) -> Any:
        return value if isinstance(value, str) else rounded(value, min(high - low, 1.0))

    def plan(line: np.ndarray) -> Any:
        return _rounded(axes, line[points], PLAN_FINENESS)

    safe, unsafe = thinned(frame.safe, frame.unsafe, MOST_PLANS[axes.kind])
    ring = None
    if frame.ring is not None and plane is not None:
        ring = [rounded(x, float(end - start)) for x, start, end in zip(frame.ring, plane.low, plane.high, strict=True)]
    return {
        "step": frame.step,
        "shapes": [[number(x) for x in shape] for shape in frame.shapes],
        "now": _rounded(axes, frame.now),
        "safe": [plan(line) for line in safe],
        "unsafe": [plan(line) for line in unsafe],
        "chosen": plan(frame.chosen) if len(frame.chosen) else [],
        "cells": [[int(i), int(j), round(float(value), 2)] for i, j, value in frame.cells],
        "risky": frame.risky.tolist(),
        "ring": ring,
        "progress": frame.progress,
        "text": frame.text,
    }


def _rounded(axes: Axes, values: np.ndarray, fineness: int = FINENESS) -> Any:
    """Numbers or places, rounded by the range in which they are drawn."""
    spans = [high - low for low, high in axes.limits]
    if axes.kind == "time":
        return rounded(values, spans[0], fineness)
    x, y = (rounded(values[..., i], spans[i], fineness) for i in range(2))
    return [x, y] if values.ndim == 1 else [list(place) for place in zip(x, y, strict=True)]


# ----------------------------------------------------------------------------------------------------------- files


def read_animation(home: Path) -> dict[str, Any] | None:
    """The animation that is stored with a run; None if there is none."""
    if (home / NAME).exists():
        return read_packed(home / NAME, "the animation of a run", (SCHEMA,), FIELDS)
    if (home / EARLIER_NAME).exists():
        raise GussError(
            f"{home / EARLIER_NAME} is an animation of an earlier version of guss; this version reads {NAME}. Remove "
            f"the file: `guss pack` then makes a new animation, if the traces of the run are there"
        )
    return None
