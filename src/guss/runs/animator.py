"""Contents of the animation of a stored episode, for figures, packed files and the report page.

Animator(replay)        the animation: properties of the whole episode, and its frames
make_animation(home)    the animation as packed data
write_animation(home)   packed data written to RUN/animation.json.gz
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from guss.collect.episode_metrics import unsafe_steps
from guss.runs.animation import MOST_FRAMES, NAME, OnStep, evenly, pack_animation
from guss.runs.replay import PlanSnapshot, Replay, ReplayStep
from guss.runs.store import write_packed
from guss.runs.tracks import TrackPlans, Tracks
from guss.runs.views import BehaviourMap

Lines = np.ndarray
"""Trajectories as drawn: numbers over time [N, H + 1], or points in the plane [N, H + 1, 2]."""


def make_animation(
    home: Path, episode: int | None = None, seed: int | None = None, on_step: OnStep = None
) -> dict[str, Any]:
    """An episode of a run as packed data; by default the last episode with a trace, of the first seed."""
    replay = Replay(home, episode, seed)
    count = len(replay)
    animator = Animator(replay)
    frames = animator.frames(evenly(count, MOST_FRAMES).tolist(), on_step and (lambda done: on_step(done, count)))
    return pack_animation(animator, frames)


def write_animation(home: Path) -> dict[str, Any]:
    """Recompute the plans of the last episode and write its animation to the run folder."""
    animation = make_animation(home)
    write_packed(home / NAME, animation)
    return animation


class Frame(NamedTuple):
    """One step; the plans are empty if the action was not planned."""

    step: int
    shapes: Sequence[Sequence[Any]]
    """The system (`guss.envs.shapes`)."""
    now: np.ndarray
    progress: str
    """Reward and unsafe steps so far."""
    safe: Lines = np.zeros((0, 1))
    unsafe: Lines = np.zeros((0, 1))
    chosen: np.ndarray = np.zeros(0)
    """Also empty if its prediction is not finite."""
    cells: np.ndarray = np.zeros((0, 3))
    """Behaviour cells with safe plans, [K, 3]: i, j, and the cell's best reward, scaled from 0 (lowest) to 1."""
    risky: np.ndarray = np.zeros((0, 2), int)
    """Behaviour cells with unsafe plans only, [K, 2]."""
    ring: np.ndarray | None = None
    """The behaviour of the chosen plan."""
    text: str = ""
    """A summary of the plans."""
    tracks: tuple[TrackPlans, ...] = ()


def _short_label(label: str) -> str:
    """The first word and the unit of an axis label: "angle [°]" of "angle from upright [°]"."""
    return re.sub(r"^(\S+)\s.*?(\s\[[^][]*\])?$", r"\1\2", label)


class Animator:
    """The animation of a replay; `dims`: with tracks of these dimensions of the observations, () for the default."""

    def __init__(self, replay: Replay, dims: Sequence[str] | None = None) -> None:
        self.replay, self.view = replay, replay.view
        mine = replay.traces[replay.row]
        assert mine.reward is not None
        self.place = len(self.view.labels) == 2
        """Whether trajectories are drawn in the plane; otherwise as a number over time."""
        self.phase = "random" if replay.random else "plan" if replay.replans else "policy"
        self.rewards = np.asarray(mine.reward, float)
        self.unsafe = np.asarray(unsafe_steps(replay.task, mine.cost), bool)
        """Whether each step was unsafe, [T]."""
        self.horizon = replay.config.horizon if replay.replans else 1
        """Steps of a plan; 1 if the episode was not planned."""
        self.behaviour = BehaviourMap(replay.grid, self.view) if replay.replans else None
        """None: the episode was not planned."""
        self.world = None if self.view.sketch is None else self.view.world
        """The system's shapes lie in the square [low, high]²; None: the system is not drawn."""
        self.path = np.asarray(self.view.shown(mine.obs), float).copy()
        """The state before each step, [T], or [T, 2] in the plane; NaN after a jump."""
        self.path[np.flatnonzero(~np.asarray(mine.learnable[:-1], bool)) + 1] = np.nan
        self.course = self.rewards if self.place else np.asarray(self.view.shown(mine.next_obs), float)
        """The episode as one curve, [T]: the number after each step; in the plane the reward."""
        self.course_label = "reward" if self.place else _short_label(self.view.labels[0])
        self.tracks = None if dims is None else Tracks(replay, dims)

    @property
    def wraps(self) -> float | None:
        """Successive numbers further apart than this are not joined, because angles wrap around at their limits."""
        return None if self.place else 0.5 * (self.view.limits[0][1] - self.view.limits[0][0])

    def course_limits(self, course: Any) -> tuple[float, float]:
        """The axis limits of the curve: the limits of the number; for rewards, their range with a margin."""
        if not self.place:
            return self.view.limits[0]
        low, high = float(np.min(course)), float(np.max(course))
        margin = 0.08 * (high - low) or 0.5
        return low - margin, high + margin

    @property
    def titles(self) -> dict[str, str]:
        kept = self.behaviour is not None and self.replay.keeps_archive
        return {
            "system": "System (shaded: unsafe)",
            "plans": "Predicted trajectories" if self.phase == "plan" else "Trajectory so far",
            "archive": "Archive: best plan per cell" if kept else "Best plan per behaviour cell",
            "course": "Episode (red dots: unsafe steps)",
        }

    @property
    def legend(self) -> list[tuple[str, str]]:
        """The legend of the plans' panel: pairs of a colour name and a label."""
        names = [("past", "past")]
        if self.phase == "plan":
            names += [("safe", "safe plans"), ("unsafe", "unsafe plans"), ("chosen", "chosen plan")]
        zones = self.view.unsafe if self.tracks is None else [each.bounds for each in self.tracks.tracks if each.bounds]
        return names + ([("zone", "unsafe zone")] if len(zones) else [])

    def frames(self, wanted: Collection[int], on_step: Callable[[int], Any] | None = None) -> Iterator[Frame]:
        """The frames of these steps; steps between them are planned too, because plans depend on earlier plans."""
        for step in self.replay.steps():
            if step.step in wanted:
                yield self._frame(step)
            if on_step is not None:
                on_step(step.step + 1)
            if step.step == max(wanted):
                break

    def _frame(self, step: ReplayStep) -> Frame:
        unsafe = int(self.unsafe[: step.step + 1].sum())
        rewards = self.rewards[: step.step + 1]
        earned = f"return {rewards.sum():.4g}, mean reward {rewards.mean():.3f}"
        frame = Frame(
            step=step.step,
            shapes=[] if self.view.sketch is None else self.view.sketch(step.obs),
            now=np.asarray(self.view.shown(step.obs), float),
            progress=f"{earned}, {unsafe or 'no'} unsafe step{'s' * (unsafe > 1)} so far",
        )
        return frame if step.snapshot is None else self._planned(frame, step.obs, step.snapshot)

    def _planned(self, frame: Frame, obs: np.ndarray, snapshot: PlanSnapshot) -> Frame:
        """The frame with the plans of this step."""
        assert self.behaviour is not None
        candidates = snapshot.candidates
        lines = self._lines(obs, candidates.paths)
        chosen = self._lines(obs, snapshot.chosen[None])[0]
        rewards, risky = self.behaviour.best(candidates)
        filled = np.argwhere(np.isfinite(rewards))
        values = rewards[tuple(filled.T)]
        span = float(np.ptp(values)) if len(values) else 0.0
        heights = (values - values.min()) / span if span > 0 else np.ones(len(values))
        ring = self.behaviour.place_of(snapshot.behaviour)
        return frame._replace(
            safe=lines[candidates.finite & candidates.safe],
            unsafe=lines[candidates.finite & ~candidates.safe],
            chosen=chosen if np.isfinite(chosen).all() else frame.chosen,
            cells=np.column_stack([filled, heights]),
            risky=np.argwhere(risky),
            ring=ring if np.isfinite(ring).all() else None,
            text=snapshot.summary(),
            tracks=() if self.tracks is None else self.tracks.plans(obs, snapshot),
        )

    def _lines(self, obs: np.ndarray, paths: np.ndarray) -> Lines:
        """Trajectories [N, H, D] starting in this state, as drawn."""
        start = np.broadcast_to(obs, (len(paths), 1, len(obs)))
        return np.asarray(self.view.shown(np.concatenate([start, paths], axis=1)), float)
