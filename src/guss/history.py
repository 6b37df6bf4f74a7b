"""Finished episodes of an agent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import PyTree

from guss.collect.episode_metrics import EpisodeMetrics
from guss.collect.trajectories import from_steps
from guss.envs.adapters import Adapted
from guss.methods.settings import AgentSettings
from guss.models.evaluation import FitReport, plain
from guss.progress import EpisodeSummary
from guss.task import Task
from guss.types import Trajectory, Transition


@dataclass(frozen=True)
class Episode:
    """What one episode amounts to."""

    episode: int
    phase: str
    """random, initial_policy, plan or policy."""
    steps: int
    mean_reward: float
    unsafe_pct: float
    """Share of steps with any soft constraint violated."""
    hard_stop: bool = False
    """Whether it ended because a hard limit was violated."""
    seed: int | None = None
    """Of a run; an agent has only one."""
    unsafe_by_cost: dict[str, float] = field(default_factory=dict)
    """Share of steps that violate each constraint [%]; empty where it was not stored."""
    model: dict[str, Any] = field(default_factory=dict)
    """How good the model was on held-out data: nll, r2, ks; r2_horizon on this very episode."""
    fit_seconds: float = 0.0
    plan_seconds: float = 0.0

    @classmethod
    def of(cls, metrics: EpisodeMetrics, **about: Any) -> Episode:
        """From the measures of an episode."""
        return cls(
            steps=metrics.steps,
            mean_reward=metrics.mean_reward,
            unsafe_pct=metrics.unsafe_pct,
            hard_stop=metrics.hard_stop,
            unsafe_by_cost=metrics.unsafe_pct_by_cost,
            **about,
        )

    @property
    def episode_return(self) -> float:
        """Sum of the rewards: what compares episodes of different length."""
        return self.mean_reward * self.steps

    def summary(self, number: int, length: int, ends_early: bool) -> EpisodeSummary:
        """For display, as episode `number`; `length`: steps of a whole one."""
        r2 = self.model.get("r2")
        return EpisodeSummary(
            episode=number,
            phase=self.phase,
            mean_reward=self.mean_reward,
            mean_return=self.episode_return,
            ends_early=ends_early,
            unsafe_pct=self.unsafe_pct,
            unsafe_by_cost=self.unsafe_by_cost,
            model_r2=None if r2 is None else float(np.mean([math.nan if x is None else x for x in r2])),
            seconds_fit=self.fit_seconds,
            seconds_plan=self.plan_seconds,
            seconds_compile=math.nan,
            steps=None if self.steps == length else float(self.steps),
            trouble=("a hard limit was violated",) if self.hard_stop else (),
        )


@dataclass
class OpenEpisode:
    """The steps of an episode under way, and what they took."""

    steps: list[Transition] = field(default_factory=list)
    learnable: list[bool] = field(default_factory=list)
    aux: list[PyTree] = field(default_factory=list)
    """What the method noted, where it acts as a policy."""
    acts: int = 0
    terminated: bool = False
    fit_seconds: float = 0.0
    plan_seconds: float = 0.0

    def add(self, transition: Transition, learnable: bool, terminated: bool) -> None:
        """One more step."""
        self.steps.append(transition)
        self.learnable.append(learnable)
        self.terminated = terminated

    def trajectory(self, task: Task) -> Trajectory:
        """The episode as if it were over now, [1, 1, T, …]."""
        return from_steps(self.steps, self.learnable, self.terminated, task, self.aux)


def is_initial(history: Sequence[Episode], settings: AgentSettings, task: Task, env: Adapted | None) -> bool:
    """Whether the next episode is an initial one, with random actions or those of the user's controller."""
    limit = None if env is None else env.episode_length
    length = task.episode_length if limit is None else min(task.episode_length, limit)
    acted = any(episode.phase in ("plan", "policy") for episode in history)
    return not acted and settings.is_random(len(history), sum(episode.steps for episode in history), length)


def model_record(report: FitReport, r2_horizon: np.ndarray | None) -> dict[str, Any]:
    """How good the model was that planned an episode: on held-out data, and at the horizon on the episode itself."""
    record = {name: getattr(report, name) for name in ("nll", "r2", "ks")}
    record |= {} if r2_horizon is None else {"r2_horizon": r2_horizon}
    record |= {} if report.outcome is None else report.outcome._asdict()
    return {name: plain(value) for name, value in record.items()}
