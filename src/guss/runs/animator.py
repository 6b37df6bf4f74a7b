"""Animations of stored episodes: a `Replay` as an `Animation` and its frames.

Animator(replay)        the animation in full, frame by frame, as figures draw it
make_animation(home)    the same as packed data
write_animation(home)   packed data to RUN/animation.json.gz
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from guss.collect.trajectories import unsafe_steps
from guss.runs.animation import MOST_FRAMES, NAME, Animation, Axes, Frame, Lines, OnStep, evenly, pack_animation
from guss.runs.replay import PlanSnapshot, Replay, ReplayStep
from guss.runs.store import write_packed
from guss.runs.tracks import Tracks
from guss.runs.views import BehaviourMap


def make_animation(
    home: Path, episode: int | None = None, seed: int | None = None, on_step: OnStep = None
) -> dict[str, Any]:
    """An episode of a run as packed data, by default the last whose steps are stored, of the first seed."""
    replay = Replay(home, episode, seed)
    count = len(replay)
    animator = Animator(replay)
    frames = animator.frames(evenly(count, MOST_FRAMES).tolist(), on_step and (lambda done: on_step(done, count)))
    return pack_animation(animator.animation, frames, replay.verdict)


def write_animation(
    home: Path, episode: int | None = None, seed: int | None = None, on_step: OnStep = None
) -> dict[str, Any]:
    """Recompute an episode and keep its animation in the run's folder."""
    animation = make_animation(home, episode, seed, on_step)
    write_packed(home / NAME, animation)
    return animation


class Animator:
    """The animation of a replay; `dims`: with tracks of these dimensions of the observations, () for the default."""

    def __init__(self, replay: Replay, dims: Sequence[str] | None = None) -> None:
        self.replay, self.view = replay, replay.view
        mine = replay.traces[replay.row]
        assert mine.reward is not None
        place = len(self.view.labels) == 2
        self._map = BehaviourMap(replay.grid, self.view) if replay.replans else None
        self._tracks = None if dims is None else Tracks(replay, dims)
        rewards = np.asarray(mine.reward, float)
        path = np.asarray(self.view.shown(mine.obs), float).copy()
        path[np.flatnonzero(~np.asarray(mine.learnable[:-1], bool)) + 1] = np.nan
        self.animation = Animation(
            env=replay.config.env,
            method=replay.config.method,
            seed=replay.seed,
            episode=replay.episode,
            phase="random" if replay.random else "plan" if replay.replans else "policy",
            rewards=rewards,
            unsafe=np.asarray(unsafe_steps(replay.task, mine.cost), bool),
            axes=Axes(
                kind="place" if place else "time",
                labels=self.view.labels,
                limits=self.view.limits,
                unsafe=self.view.unsafe,
                horizon=replay.config.horizon if replay.replans else 1,
            ),
            behaviour=self._map,
            keeps_archive=replay.keeps_archive,
            world=None if self.view.sketch is None else self.view.world,
            path=path,
            course=rewards if place else np.asarray(self.view.shown(mine.next_obs), float),
            course_label="reward" if place else self.view.labels[0].partition(" ")[0],
            tracks=() if self._tracks is None else self._tracks.tracks,
            note="" if self._tracks is None else self._tracks.note,
        )

    def frames(self, wanted: Collection[int], on_step: Callable[[int], Any] | None = None) -> Iterator[Frame]:
        """Those of these steps; the steps between them are planned too, since plans build on earlier ones."""
        for step in self.replay.steps():
            if step.step in wanted:
                yield self._frame(step)
            if on_step is not None:
                on_step(step.step + 1)
            if step.step == max(wanted):
                break

    def _frame(self, step: ReplayStep) -> Frame:
        unsafe = int(self.animation.unsafe[: step.step + 1].sum())
        rewards = self.animation.rewards[: step.step + 1]
        earned = f"return {rewards.sum():.4g}, mean reward {rewards.mean():.3f}"
        frame = Frame(
            step=step.step,
            shapes=[] if self.view.sketch is None else self.view.sketch(step.obs),
            now=np.asarray(self.view.shown(step.obs), float),
            progress=f"{earned}, {unsafe or 'no'} unsafe step{'s' * (unsafe > 1)} so far",
        )
        return frame if step.snapshot is None else self._planned(frame, step.obs, step.snapshot)

    def _planned(self, frame: Frame, obs: np.ndarray, snapshot: PlanSnapshot) -> Frame:
        """The same with the plans of this step."""
        assert self._map is not None
        candidates = snapshot.candidates
        lines = self._lines(obs, candidates.paths)
        chosen = self._lines(obs, snapshot.chosen[None])[0]
        rewards, risky = self._map.best(candidates)
        filled = np.argwhere(np.isfinite(rewards))
        values = rewards[tuple(filled.T)]
        span = float(np.ptp(values)) if len(values) else 0.0
        heights = (values - values.min()) / span if span > 0 else np.ones(len(values))
        ring = self._map.place_of(snapshot.behaviour)
        return frame._replace(
            safe=lines[candidates.finite & candidates.safe],
            unsafe=lines[candidates.finite & ~candidates.safe],
            chosen=chosen if np.isfinite(chosen).all() else frame.chosen,
            cells=np.column_stack([filled, heights]),
            risky=np.argwhere(risky),
            ring=ring if np.isfinite(ring).all() else None,
            text=snapshot.summary(),
            tracks=() if self._tracks is None else self._tracks.plans(obs, snapshot),
        )

    def _lines(self, obs: np.ndarray, paths: np.ndarray) -> Lines:
        """Trajectories [N, H, D] from this state on, as they are drawn."""
        start = np.broadcast_to(obs, (len(paths), 1, len(obs)))
        return np.asarray(self.view.shown(np.concatenate([start, paths], axis=1)), float)
