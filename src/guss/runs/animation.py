"""An animation as packed data, which the report page draws; `runs/animator.py` makes it of a stored episode.

pack_animation(…)      as plain data for JSON: numbers rounded to what can be drawn, plans and steps thinned
read_animation(home)   RUN/animation.json.gz; None if there is none
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from guss.errors import GussError
from guss.runs.store import read_packed

if TYPE_CHECKING:
    from guss.runs.animator import Animator, Axes, Frame

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


# ---------------------------------------------------------------------------------------------------------- packing


def evenly(count: int, most: int) -> np.ndarray:
    """At most so many of 0 … count − 1, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def thin_plans(safe: np.ndarray, unsafe: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
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


def pack_animation(animation: Animator, frames: Iterable[Frame]) -> dict[str, Any]:
    """As plain data."""
    replay = animation.replay
    axes, behaviour = animation.axes, animation.behaviour
    points = evenly(axes.horizon + 1, MOST_POINTS[axes.kind]) if behaviour is not None else np.zeros(1, int)
    packed_frames = [_packed_frame(animation, frame, points) for frame in frames]
    unsafe = np.flatnonzero(animation.unsafe)
    low, high = axes.limits[0] if axes.kind == "time" else (animation.course.min(), animation.course.max())
    course = rounded(animation.course, float(high - low))
    jumped = np.isnan(animation.path.reshape(len(replay), -1)).any(axis=1)
    path = _rounded(axes, np.nan_to_num(animation.path))
    packed = {
        "schema": SCHEMA,
        "env": replay.config.env,
        "method": replay.config.method,
        "seed": replay.seed,
        "episode": replay.episode,
        "phase": animation.phase,
        "steps": len(replay),
        "mean_reward": round(float(animation.rewards.mean()), 4),
        "return": round(float(animation.rewards.sum()), 4),
        "unsafe_steps": len(unsafe),
        "verdict": replay.verdict(),  # after the last frame
        "world": animation.world,
        "axes": asdict(axes) | {"points": points.tolist(), "past": PAST, "wraps": axes.wraps},
        "behaviour": behaviour
        and {
            "labels": behaviour.labels,
            "extent": [round(float(edge), 6) for edge in behaviour.extent],
            "shape": behaviour.shape,
            "kept": replay.keeps_archive,
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


def _packed_frame(animation: Animator, frame: Frame, points: np.ndarray) -> dict[str, Any]:
    axes, plane = animation.axes, animation.behaviour
    low, high = animation.world or (0.0, 1.0)

    def number(value: Any) -> Any:
        return value if isinstance(value, str) else rounded(value, min(high - low, 1.0))

    def plan(line: np.ndarray) -> Any:
        return _rounded(axes, line[points], PLAN_FINENESS)

    safe, unsafe = thin_plans(frame.safe, frame.unsafe, MOST_PLANS[axes.kind])
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
