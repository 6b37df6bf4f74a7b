"""An animation as packed data for the report page; `runs/animator.py` creates it from a stored episode.

pack_animation(…)      plain data for JSON: numbers rounded to drawing precision, plans and steps thinned
read_animation(home)   RUN/animation.json.gz; None if there is none
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from guss.runs.store import read_packed

if TYPE_CHECKING:
    from guss.runs.animator import Animator, Frame

NAME, SCHEMA = "animation.json.gz", 2
FIELDS = (
    *("env", "method", "seed", "episode", "phase", "steps", "mean_reward", "return", "unsafe_steps", "verdict"),
    *("world", "axes", "behaviour", "course", "path", "frames"),
)
MOST_FRAMES = 60
MOST_PLANS, MOST_POINTS = {"time": 40, "place": 24}, {"time": 13, "place": 7}  # a point in the plane is two numbers
FINENESS, PLAN_FINENESS = 1000, 500
PAST = 20
"""Past steps drawn in the panel of the plans."""
OnStep = Callable[[int, int], Any] | None  # steps done, number of steps


# ---------------------------------------------------------------------------------------------------------- packing


def evenly(count: int, most: int) -> np.ndarray:
    """At most `most` evenly spaced indices of 0 … count − 1, including the first and the last."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def thin_plans(safe: np.ndarray, unsafe: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """About `most` plans or fewer, evenly spaced, with safe and unsafe plans in their true proportion."""
    share = min(1.0, most / max(len(safe) + len(unsafe), 1))
    picked = []
    for lines in (safe, unsafe):
        count = max(round(share * len(lines)), min(len(lines), 1))
        picked.append(lines[evenly(len(lines), count)] if count else lines)
    return picked[0], picked[1]


def rounded(values: Any, span: float, fineness: int = FINENESS) -> Any:
    """Values rounded to the coarsest multiple of 1, 2 or 5 × 10ⁿ of which the span has `fineness` steps."""
    values = np.asarray(values, float)
    if span <= 0:
        return values.tolist()
    finest = span / fineness * (1 + 1e-9)
    decimals = -int(np.floor(np.log10(finest)))
    step = max(s for s in (1, 2, 5) if s * 10.0**-decimals <= finest) * 10.0**-decimals
    plain = (np.round(values / step) * step).round(decimals) + 0.0  # no −0
    return (plain if decimals > 0 else plain.astype(int)).tolist()


def pack_animation(animator: Animator, frames: Iterable[Frame]) -> dict[str, Any]:
    replay, view, behaviour = animator.replay, animator.view, animator.behaviour
    kind = "place" if animator.place else "time"
    points = np.zeros(1, int) if behaviour is None else evenly(animator.horizon + 1, MOST_POINTS[kind])
    packed_frames = [_packed_frame(animator, frame, points, MOST_PLANS[kind]) for frame in frames]
    unsafe = np.flatnonzero(animator.unsafe)
    course = rounded(animator.course, float(np.ptp(animator.course if animator.place else view.limits[0])))
    jumped = np.isnan(animator.path.reshape(len(replay), -1)).any(axis=1)
    path = _rounded(animator, np.nan_to_num(animator.path))
    packed: dict[str, Any] = {
        "schema": SCHEMA,
        "env": replay.config.env,
        "method": replay.config.method,
        "seed": replay.seed,
        "episode": replay.episode,
        "phase": animator.phase,
        "steps": len(replay),
        "mean_reward": round(float(animator.rewards.mean()), 4),
        "return": round(float(animator.rewards.sum()), 4),
        "unsafe_steps": len(unsafe),
        "verdict": replay.verdict(),  # valid after the last frame
        "world": animator.world,
        "axes": {
            "kind": kind,
            **{name: getattr(view, name) for name in ("labels", "limits", "unsafe")},
            "horizon": animator.horizon,
            "points": points.tolist(),
            "past": PAST,
            "wraps": animator.wraps,
        },
        "behaviour": behaviour
        and {
            "labels": behaviour.labels,
            "extent": [round(float(edge), 6) for edge in behaviour.extent],
            "shape": behaviour.shape,
            "kept": replay.keeps_archive,
        },
        "course": {
            "label": animator.course_label,
            "values": course,
            "unsafe": unsafe.tolist(),
            "limits": animator.course_limits(course),
        },
        "path": [None if jump else place for jump, place in zip(jumped, path, strict=True)],
        "frames": packed_frames,
        "titles": animator.titles,
        "legend": animator.legend,
    }
    how = {"plan": "", "policy": " (a learned policy acts)", "random": " (random actions)"}[animator.phase]
    packed["summary"] = (
        f"Episode {replay.episode} of seed {replay.seed}{how}: mean reward {packed['mean_reward']:.3f}, "
        f"return {packed['return']:.4g}, {len(unsafe) or 'none'} of {len(replay)} steps unsafe."
    )
    return json.loads(json.dumps(packed))


def _packed_frame(animator: Animator, frame: Frame, points: np.ndarray, most_plans: int) -> dict[str, Any]:
    low, high = animator.world or (0.0, 1.0)

    def number(value: Any) -> Any:
        return value if isinstance(value, str) else rounded(value, min(high - low, 1.0))

    def plan(line: np.ndarray) -> Any:
        return _rounded(animator, line[points], PLAN_FINENESS)

    safe, unsafe = thin_plans(frame.safe, frame.unsafe, most_plans)
    ring = None
    if frame.ring is not None and (plane := animator.behaviour) is not None:
        ring = [rounded(x, float(end - start)) for x, start, end in zip(frame.ring, plane.low, plane.high, strict=True)]
    return {
        "step": frame.step,
        "shapes": [[number(x) for x in shape] for shape in frame.shapes],
        "now": _rounded(animator, frame.now),
        "safe": [plan(line) for line in safe],
        "unsafe": [plan(line) for line in unsafe],
        "chosen": plan(frame.chosen) if len(frame.chosen) else [],
        "cells": [[int(i), int(j), round(float(value), 2)] for i, j, value in frame.cells],
        "risky": frame.risky.tolist(),
        "ring": ring,
        "progress": frame.progress,
        "text": frame.text,
    }


def _rounded(animator: Animator, values: np.ndarray, fineness: int = FINENESS) -> Any:
    """Numbers or points, rounded relative to their axis limits."""
    spans = [high - low for low, high in animator.view.limits]
    if not animator.place:
        return rounded(values, spans[0], fineness)
    x, y = (rounded(values[..., i], spans[i], fineness) for i in range(2))
    return [x, y] if values.ndim == 1 else [list(place) for place in zip(x, y, strict=True)]


# ----------------------------------------------------------------------------------------------------------- files


def read_animation(home: Path) -> dict[str, Any] | None:
    """The animation that is stored with a run; None if there is none."""
    path = home / NAME
    return read_packed(path, "the animation of a run", SCHEMA, FIELDS) if path.exists() else None
