"""Finished episodes of an agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from jaxtyping import PyTree

from guss.envs.adapters import Adapted
from guss.methods.settings import AgentSettings
from guss.task import Task
from guss.types import Transition

OnEpisode = Callable[["Episode"], Any] | None
"""Called after every episode."""


@dataclass(frozen=True)
class Episode:
    """Summary of one episode.

    `episode`: its number, from 0. `steps`, `mean_reward` per step; `fit_seconds` and `plan_seconds`: time of fits and
    plans. The other fields are described below.

    Example:
        >>> guss.Episode(episode=0, phase="plan", steps=200, mean_reward=-1.5, unsafe_pct=0.5).episode_return
        -300.0
    """

    episode: int
    phase: str
    """random, initial_policy, plan or policy."""
    steps: int
    mean_reward: float
    unsafe_pct: float
    """Share of steps with any soft constraint violated."""
    jitter: float | None = None
    """Mean change of the action from step to step, as a share of its range; None: not stored, or a single step."""
    hard_stop: bool = False
    """Whether it ended because a hard limit was violated."""
    seed: int | None = None
    """The seed in a run; None for an agent, which has only one."""
    unsafe_by_cost: dict[str, float] = field(default_factory=dict)
    """Share of steps that violate each constraint [%]; empty if not stored."""
    model: dict[str, Any] = field(default_factory=dict)
    """Measures of the model on held-out data: nll, r2, ks; r2_horizon: on this episode."""
    fit_seconds: float = 0.0
    plan_seconds: float = 0.0

    @classmethod
    def of(cls, measures: Mapping[str, Any], **about: Any) -> Episode:
        """From the measures of an episode by name, as in `EpisodeMetrics` and episodes.jsonl; others are left out."""
        named = {**measures, "unsafe_by_cost": measures.get("unsafe_pct_by_cost") or {}, **about}
        names = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in named.items() if name in names and value is not None})

    @property
    def episode_return(self) -> float:
        """Sum of the rewards, to compare episodes of different length."""
        return self.mean_reward * self.steps


@dataclass
class OpenEpisode:
    """The steps of the current episode, and the time of its fits and plans."""

    steps: list[Transition] = field(default_factory=list)
    learnable: list[bool] = field(default_factory=list)
    aux: list[PyTree] = field(default_factory=list)
    """`aux` of the method's actions, if it is a policy."""
    acts: int = 0
    terminated: bool = False
    fit_seconds: float = 0.0
    plan_seconds: float = 0.0

    def add(self, transition: Transition, learnable: bool, terminated: bool) -> None:
        self.steps.append(transition)
        self.learnable.append(learnable)
        self.terminated = terminated


def is_initial(history: Sequence[Episode], settings: AgentSettings, task: Task, env: Adapted | None) -> bool:
    """Whether the next episode is an initial one, with random actions or those of the user's controller."""
    limit = None if env is None else env.episode_length
    length = task.episode_length if limit is None else min(task.episode_length, limit)
    acted = any(episode.phase in ("plan", "policy") for episode in history)
    return not acted and settings.is_random(len(history), sum(episode.steps for episode in history), length)
