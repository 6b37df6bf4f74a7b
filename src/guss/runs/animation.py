"""One episode of a run, to be seen: the system, its plans step by step, the archive; small enough to be shared.

make_film(home)     planned again by the run's own models, as `guss replay` does
write_film(home)    the same, to RUN/film.json.gz
read_film(home)     that file; None if it was not made, since that takes time

A film is plain data: numbers are rounded to a thousandth of what they are drawn by, plans to a five-hundredth; of many
plans and steps, some are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from guss.envs import View
from guss.runs.replay import Replay, Scene
from guss.runs.store import read_packed, write_packed
from guss.runs.views import BehaviourMap

NAME, SCHEMA = "film.json.gz", 1
FIELDS = (
    *("env", "method", "seed", "episode", "phase", "steps", "mean_reward", "return", "unsafe_steps", "verdict"),
    *("world", "axes", "behaviour", "course", "path", "frames"),
)
MOST_FRAMES = 60
MOST_PLANS, MOST_POINTS = {"time": 40, "place": 24}, {"time": 13, "place": 7}  # a place is two numbers
FINENESS, PLAN_FINENESS = 1000, 500
OnStep = Callable[[int, int], Any] | None  # steps done, and how many there are


def make_film(
    home: Path, episode: int | None = None, seed: int | None = None, on_step: OnStep = None
) -> dict[str, Any]:
    """An episode of a run, by default the last that was kept step by step, of the first seed."""
    replay = Replay(home, episode, seed)
    wanted = set(evenly(len(replay), MOST_FRAMES).tolist())
    camera = Camera(replay)
    scenes, frames = [], []
    for scene in replay.scenes():
        scenes.append(scene._replace(thought=None))
        if scene.step in wanted:
            frames.append(camera.frame(scene))
        if on_step is not None:
            on_step(scene.step + 1, len(replay))
    reward = np.asarray([scene.reward for scene in scenes])
    return {
        "schema": SCHEMA,
        "env": replay.config.env,
        "method": replay.config.method,
        "seed": replay.seed,
        "episode": replay.episode,
        "phase": "random" if replay.random else "plan" if replay.thinks else "policy",
        "steps": len(scenes),
        "mean_reward": round(float(reward.mean()), 4),
        "return": round(float(reward.sum()), 4),
        "unsafe_steps": sum(scene.unsafe for scene in scenes),
        "verdict": replay.verdict(),
        "world": None if camera.view.sketch is None else list(camera.view.world),
        "axes": camera.axes(),
        "behaviour": camera.behaviour(),
        "course": camera.course(scenes),
        "path": camera.path(scenes),
        "frames": frames,
    }


def write_film(
    home: Path, episode: int | None = None, seed: int | None = None, on_step: OnStep = None
) -> dict[str, Any]:
    """Make it and keep it in the run's folder."""
    film = make_film(home, episode, seed, on_step)
    write_packed(home / NAME, film)
    return film


def read_film(home: Path) -> dict[str, Any] | None:
    """The film that is kept with a run; None if there is none."""
    path = home / NAME
    return read_packed(path, "the film of a run", SCHEMA, FIELDS) if path.exists() else None


def evenly(count: int, most: int) -> np.ndarray:
    """At most so many of 0 … count − 1, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def some_plans(safe: np.ndarray, usable: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Which plans to keep: safe ones and unsafe ones in their true proportion, evenly over those looked at."""
    good, bad = np.flatnonzero(usable & safe), np.flatnonzero(usable & ~safe)
    share = min(1.0, most / max(len(good) + len(bad), 1))
    picked = []
    for mine in (good, bad):
        count = max(round(share * len(mine)), min(len(mine), 1))
        picked.append(mine[evenly(len(mine), count)] if count else mine)
    return picked[0], picked[1]


class Camera:
    """What is kept of an episode, rounded by what it is drawn by."""

    def __init__(self, replay: Replay) -> None:
        self.replay, self.view = replay, replay.view
        self.place = len(self.view.labels) == 2
        self.kind = "place" if self.place else "time"
        self.map = BehaviourMap(replay.task.grid, self.view) if replay.thinks else None
        self.points = evenly(replay.config.horizon + 1, MOST_POINTS[self.kind]) if replay.thinks else np.zeros(1, int)
        """The steps of a plan, from now on, of which its path is made."""

    def axes(self) -> dict[str, Any]:
        """By what plans are drawn, and where it is unsafe."""
        view: View = self.view
        return {
            "kind": self.kind,
            "labels": list(view.labels),
            "limits": [list(limits) for limits in view.limits],
            "unsafe": [list(zone) for zone in view.unsafe],
            "horizon": self.replay.config.horizon if self.replay.thinks else 1,
            "points": self.points.tolist(),
        }

    def behaviour(self) -> dict[str, Any] | None:
        """By what plans are laid out; None if nothing is planned."""
        if self.map is None:
            return None
        kept = self.replay.keeps_archive
        extent = [round(float(edge), 6) for edge in self.map.extent]
        return {"labels": list(self.map.labels), "extent": extent, "shape": list(self.map.shape), "kept": kept}

    def course(self, scenes: list[Scene]) -> dict[str, Any]:
        """The episode at a glance."""
        if self.place:
            reward = np.asarray([scene.reward for scene in scenes])
            label, values = "reward", rounded(reward, float(np.ptp(reward)))
        else:
            label, values = self.view.labels[0].partition(" ")[0], self._seen(np.stack([s.next_obs for s in scenes]))
        return {"label": label, "values": values, "unsafe": [scene.step for scene in scenes if scene.unsafe]}

    def path(self, scenes: list[Scene]) -> list[Any] | None:
        """Where it was, step by step; None after a jump."""
        if not self.place:
            return None
        places = self._seen(np.stack([scene.obs for scene in scenes]))
        jumped = [False, *(scene.jumped for scene in scenes[:-1])]
        return [None if jump else place for jump, place in zip(jumped, places, strict=True)]

    def frame(self, scene: Scene) -> dict[str, Any]:
        """One step."""
        shapes = [] if self.view.sketch is None else self.view.sketch(scene.obs)
        low, high = self.view.world
        round_to = lambda x: x if isinstance(x, str) else rounded(x, min(high - low, 1.0))  # noqa: E731
        still: dict[str, Any] = {
            "step": scene.step,
            "shapes": [[round_to(x) for x in shape] for shape in shapes],
            "now": self._seen(scene.obs),
        }
        return still | self._thought(scene)

    def _thought(self, scene: Scene) -> dict[str, Any]:
        """The plans of one step; nothing where it was not planned."""
        thought = scene.thought
        if thought is None or self.map is None:
            return {"safe": [], "unsafe": [], "chosen": [], "cells": [], "risky": [], "ring": None, "text": ""}
        looked = thought.looked
        good, bad = some_plans(looked.safe, looked.usable, MOST_PLANS[self.kind])
        rewards, risky = self.map.best(looked)
        filled = np.argwhere(np.isfinite(rewards))
        values = rewards[tuple(filled.T)]
        span = float(np.ptp(values)) if len(values) else 0.0
        heights = (values - values.min()) / span if span > 0 else np.ones(len(values))
        ring = self.map.place_of(thought.behaviour)
        return {
            "safe": [self._plan(scene, path) for path in looked.paths[good]],
            "unsafe": [self._plan(scene, path) for path in looked.paths[bad]],
            "chosen": self._plan(scene, thought.chosen) if np.isfinite(thought.chosen).all() else [],
            "cells": [[int(i), int(j), round(float(v), 2)] for (i, j), v in zip(filled, heights, strict=True)],
            "risky": np.argwhere(risky).tolist(),
            "ring": self._ring(ring) if np.isfinite(ring).all() else None,
            "text": thought.in_words(),
        }

    def _ring(self, place: np.ndarray) -> list[float]:
        assert self.map is not None
        return [rounded(x, float(h - low)) for x, low, h in zip(place, self.map.low, self.map.high, strict=True)]

    def _plan(self, scene: Scene, path: np.ndarray) -> Any:
        """Where a plan leads, from where it is now."""
        return self._seen(np.concatenate([scene.obs[None], path])[self.points], PLAN_FINENESS)

    def _seen(self, obs: np.ndarray, fineness: int = FINENESS) -> Any:
        """Observations as they are drawn: numbers or places."""
        values, spans = np.asarray(self.view.shown(obs), float), [high - low for low, high in self.view.limits]
        if not self.place:
            return rounded(values, spans[0], fineness)
        each = [rounded(values[..., i], spans[i], fineness) for i in range(2)]
        return list(each) if values.ndim == 1 else [list(place) for place in zip(*each, strict=True)]


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
