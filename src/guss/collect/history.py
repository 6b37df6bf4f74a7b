"""Finished episodes of an agent: what each came to, and its transitions as a learner takes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from guss.collect.host import Played, hard_violations
from guss.envs.adapters import Adapted
from guss.methods.learner import Batch, told_of
from guss.methods.settings import AgentSettings
from guss.models.evaluation import FitReport, plain
from guss.progress import EpisodeNews
from guss.task import Task
from guss.types import Transition

Steps = Sequence[tuple[Transition, bool]]
"""Transitions in order, and whether to learn from each."""


@dataclass(frozen=True)
class Episode:
    """What one episode came to."""

    episode: int
    phase: str
    """random, initial_policy or plan."""
    steps: int
    mean_reward: float
    unsafe_pct: float
    """Share of steps with any soft constraint violated."""
    hard_stop: bool = False
    """Whether it ended because a hard limit was violated."""
    unsafe_by_cost: dict[str, float] = field(default_factory=dict)
    """Share of steps that violate each constraint [%]; of episodes stored by an earlier guss it is not known."""
    model: dict[str, Any] = field(default_factory=dict)
    """How good the model was on held-out data: nll, r2, ks; r2_horizon on this very episode."""
    fit_seconds: float = 0.0
    plan_seconds: float = 0.0

    @property
    def episode_return(self) -> float:
        """Sum of the rewards: what compares episodes of different length."""
        return self.mean_reward * self.steps

    def news(self, number: int, length: int, ends_early: bool) -> EpisodeNews:
        """For display, as episode `number`; `length`: steps of a whole one."""
        r2 = self.model.get("r2")
        return EpisodeNews(
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


def is_initial(history: Sequence[Episode], settings: AgentSettings, task: Task, env: Adapted | None) -> bool:
    """Whether the next episode is an initial one, with random actions or those of the user's controller."""
    limit = None if env is None else env.episode_length
    length = task.episode_length if limit is None else min(task.episode_length, limit)
    planned = any(episode.phase == "plan" for episode in history)
    return not planned and settings.is_random(len(history), sum(episode.steps for episode in history), length)


def steps_of(task: Task, moves: Transition) -> list[tuple[Transition, bool]]:
    """An episode of a compiled task [T, 1, …] step by step, up to a violated hard limit."""
    length = int(Played.whole(task, moves).length[0])
    alone = [np.asarray(x)[:length, 0] for x in moves]
    return [(Transition(*(x[t] for x in alone)), True) for t in range(length)]


def _stacked(steps: Steps, name: str) -> np.ndarray:
    return np.stack([getattr(move, name) for move, _ in steps])


def batch_of_steps(steps: Steps, terminated: bool) -> Batch:
    """A finished episode as a learner takes it, one seed; `terminated`: the system ended it itself."""
    parts = {name: _stacked(steps, name) for name in Transition._fields}
    last = len(steps) - 1 if terminated else -1
    told = told_of(parts["reward"], parts["cost"], np.arange(len(steps)) == last)
    use = np.asarray([use for _, use in steps], bool)
    return Batch(*(x[None] for x in (parts["obs"], parts["action"], parts["next_obs"], use, told)))


def model_measures(report: FitReport, ahead: np.ndarray | None) -> dict[str, Any]:
    """How good the model was that planned an episode: on held-out data, and at the horizon on the episode itself."""
    measures = {name: getattr(report, name) for name in ("nll", "r2", "ks")}
    measures |= {} if ahead is None else {"r2_horizon": ahead[0]}
    measures |= {} if report.outcome is None else report.outcome._asdict()
    return {name: plain(value) for name, value in measures.items()}


def episode_of(
    task: Task, steps: Steps, number: int, phase: str, model: dict[str, Any], fit_seconds: float, plan_seconds: float
) -> Episode:
    """What an episode came to."""
    reward, cost = _stacked(steps, "reward"), _stacked(steps, "cost")
    return Episode(
        episode=number,
        phase=phase,
        steps=len(steps),
        mean_reward=float(reward.mean(dtype=np.float64)),
        unsafe_pct=100.0 * float(np.any(cost[:, np.asarray(task.soft, bool)] > 0, axis=1).mean()),
        hard_stop=bool(hard_violations(task, cost).any()),
        unsafe_by_cost={c.name: 100.0 * float((cost[:, k] > 0).mean()) for k, c in enumerate(task.constraints)},
        model=model,
        fit_seconds=fit_seconds,
        plan_seconds=plan_seconds,
    )
