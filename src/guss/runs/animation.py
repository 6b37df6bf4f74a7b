"""An episode as an animation: the data that the figure, the packed file and the report page all draw.

Animation, Frame       the data: `runs/animator.py` makes them of a stored episode
pack_animation(…)      the same as plain data for JSON: numbers rounded to what can be drawn, plans and steps thinned
read_animation(home)   RUN/animation.json.gz, or the film.json.gz of an earlier guss; None if there is neither
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from guss.errors import GussError
from guss.runs.store import read_packed

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
        return wrap_distance(self.kind, self.limits)


@dataclass(frozen=True)
class Behaviour:
    """The plane of two descriptor dimensions in which plans are laid out, divided into cells."""

    labels: tuple[str, str]
    extent: tuple[float, float, float, float]
    shape: tuple[int, ...]


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
    behaviour: Behaviour | None
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
    def course_limits(self) -> tuple[float, float]:
        """From where to where the course is drawn."""
        return course_limits(self.axes.kind, self.axes.limits, self.course)

    @property
    def titles(self) -> dict[str, str]:
        """Of the panels."""
        return panel_titles(self.phase == "plan", self.keeps_archive)

    @property
    def legend(self) -> list[tuple[str, str]]:
        """The lines of the plans' panel: the name of a colour, and what is drawn in it."""
        zones = any(track.bounds for track in self.tracks) if self.tracks else len(self.axes.unsafe) > 0
        return line_names(self.phase == "plan", zones)


class Frame(NamedTuple):
    """One step."""

    step: int
    shapes: Sequence[Sequence[Any]]
    """The system (`guss.envs.shapes`)."""
    now: np.ndarray
    safe: Lines
    unsafe: Lines
    chosen: np.ndarray
    """Empty if nothing was planned, or its prediction is not finite."""
    cells: np.ndarray
    """Behaviour cells with safe plans, [K, 3]: i, j, and the best reward in it, 0 the lowest of them, 1 the highest."""
    risky: np.ndarray
    """Those with unsafe plans only, [K, 2]."""
    ring: np.ndarray | None
    """The behaviour of the chosen plan."""
    progress: str
    """Reward and unsafe steps so far."""
    text: str
    """The plans in words."""
    tracks: tuple[TrackPlans, ...] = ()


# ------------------------------------------------------------------------------------------------- texts and limits


def wrap_distance(kind: str, limits: Sequence[Sequence[float]]) -> float | None:
    """Half the range of a number; places do not wrap."""
    return 0.5 * (limits[0][1] - limits[0][0]) if kind == "time" else None


def course_limits(kind: str, limits: Sequence[Sequence[float]], values: Any) -> tuple[float, float]:
    """Those of the axes' number; of rewards, their range with a margin."""
    if kind == "time":
        return limits[0][0], limits[0][1]
    low, high = float(np.min(values)), float(np.max(values))
    margin = 0.08 * (high - low) or 0.5
    return low - margin, high + margin


def panel_titles(plans: bool, keeps_archive: bool) -> dict[str, str]:
    """By panel."""
    return {
        "system": "System (shaded: unsafe)",
        "plans": "Predicted trajectories" if plans else "Trajectory so far",
        "archive": "Archive: best plan per cell" if keeps_archive else "Best plan per behaviour cell",
        "course": "Episode (red dots: unsafe steps)",
    }


def line_names(plans: bool, zones: bool) -> list[tuple[str, str]]:
    """The legend of trajectories."""
    names = [("past", "so far")]
    if plans:
        names += [("safe", "safe plans"), ("unsafe", "unsafe plans"), ("chosen", "chosen plan")]
    return names + ([("zone", "unsafe zone")] if zones else [])


def count_unsafe(count: int) -> str:
    """In words."""
    return "no unsafe step" if count == 0 else f"{count} unsafe step{'s' if count > 1 else ''}"


def summary_text(animation: dict[str, Any]) -> str:
    """The outcome of a packed episode."""
    how = {"plan": "", "policy": " (a learned policy acts)", "random": " (random actions)"}[animation["phase"]]
    return (
        f"Episode {animation['episode']} of seed {animation['seed']}{how}: mean reward {animation['mean_reward']:.3f}, "
        f"return {animation['return']:.4g}, {animation['unsafe_steps'] or 'none'} of {animation['steps']} steps unsafe."
    )


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
    packed = [_packed_frame(animation, frame, points) for frame in frames]
    unsafe = np.flatnonzero(animation.unsafe)
    low, high = axes.limits[0] if axes.kind == "time" else (animation.course.min(), animation.course.max())
    jumped = np.isnan(animation.path.reshape(animation.steps, -1)).any(axis=1)
    path = _rounded(axes, np.nan_to_num(animation.path))
    return _with_texts(
        {
            "schema": SCHEMA,
            "env": animation.env,
            "method": animation.method,
            "seed": animation.seed,
            "episode": animation.episode,
            "phase": animation.phase,
            "steps": animation.steps,
            "mean_reward": round(float(animation.rewards.mean()), 4),
            "return": round(float(animation.rewards.sum()), 4),
            "unsafe_steps": len(unsafe),
            "verdict": verdict(),
            "world": None if animation.world is None else list(animation.world),
            "axes": {
                "kind": axes.kind,
                "labels": list(axes.labels),
                "limits": [list(limits) for limits in axes.limits],
                "unsafe": [list(zone) for zone in axes.unsafe],
                "horizon": axes.horizon,
                "points": points.tolist(),
            },
            "behaviour": behaviour
            and {
                "labels": list(behaviour.labels),
                "extent": [round(float(edge), 6) for edge in behaviour.extent],
                "shape": list(behaviour.shape),
                "kept": animation.keeps_archive,
            },
            "course": {
                "label": animation.course_label,
                "values": rounded(animation.course, float(high - low)),
                "unsafe": unsafe.tolist(),
            },
            "path": [None if jump else place for jump, place in zip(jumped, path, strict=True)],
            "frames": packed,
        }
    )


def _packed_frame(animation: Animation, frame: Frame, points: np.ndarray) -> dict[str, Any]:
    axes, plane = animation.axes, animation.behaviour
    low, high = animation.world or (0.0, 1.0)
    number = lambda x: x if isinstance(x, str) else rounded(x, min(high - low, 1.0))  # noqa: E731
    safe, unsafe = thinned(frame.safe, frame.unsafe, MOST_PLANS[axes.kind])
    plans = {"safe": safe, "unsafe": unsafe, "chosen": frame.chosen[None] if len(frame.chosen) else safe[:0]}
    lines = {name: [_rounded(axes, line[points], PLAN_FINENESS) for line in each] for name, each in plans.items()}
    ring = None
    if frame.ring is not None and plane is not None:
        x0, x1, y0, y1 = plane.extent
        ring = [rounded(frame.ring[0], float(x1 - x0)), rounded(frame.ring[1], float(y1 - y0))]
    return {
        "step": frame.step,
        "shapes": [[number(x) for x in shape] for shape in frame.shapes],
        "now": _rounded(axes, frame.now),
        "safe": lines["safe"],
        "unsafe": lines["unsafe"],
        "chosen": lines["chosen"][0] if lines["chosen"] else [],
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


def _with_texts(packed: dict[str, Any]) -> dict[str, Any]:
    """Complete packed data by what follows from it, so that a page needs no rules of its own."""
    axes, course, plans = packed["axes"], packed["course"], packed["phase"] == "plan"
    kept = bool(packed["behaviour"] and packed["behaviour"]["kept"])
    return packed | {
        "titles": panel_titles(plans, kept),
        "legend": [list(name) for name in line_names(plans, len(axes["unsafe"]) > 0)],
        "summary": summary_text(packed),
        "axes": axes | {"past": PAST, "wraps": wrap_distance(axes["kind"], axes["limits"])},
        "course": course | {"limits": list(course_limits(axes["kind"], axes["limits"], course["values"]))},
    }


# ----------------------------------------------------------------------------------------------------------- files


def read_animation(home: Path) -> dict[str, Any] | None:
    """The animation that is stored with a run, in the current schema; None if there is none."""
    path = next((home / name for name in (NAME, EARLIER_NAME) if (home / name).exists()), None)
    if path is None:
        return None
    data = read_packed(path, "the animation of a run", (1, SCHEMA), FIELDS)
    try:
        return _from_schema_1(data) if data["schema"] == 1 else data
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise GussError(f"{path} is not the animation of a run: {type(error).__name__}: {error}") from error


def _from_schema_1(data: dict[str, Any]) -> dict[str, Any]:
    """Files of earlier versions had neither texts nor, of numbers, the path."""
    frames = [
        frame | {"progress": f"{count_unsafe(sum(step <= frame['step'] for step in data['course']['unsafe']))} so far"}
        for frame in data["frames"]
    ]
    path = data["path"] if data["path"] is not None else [frames[0]["now"], *data["course"]["values"][:-1]]
    return _with_texts(data | {"schema": SCHEMA, "path": path, "frames": frames})
