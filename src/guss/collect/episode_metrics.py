"""Metrics of an episode: reward, unsafe steps, how it ended. Every metric is computed here, once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from guss.constraint import Constraint
from guss.progress import EpisodeSummary
from guss.task import Task
from guss.types import Actions, Trajectory


def unsafe_steps(task: Task, cost: Any) -> np.ndarray:
    """Mask of steps that violate any soft constraint, regardless of bounds, from costs [..., C]."""
    return np.any(np.asarray(cost)[..., np.asarray(task.soft, bool)] > 0, axis=-1)


class EpisodeMetrics(NamedTuple):
    """Metrics of one episode."""

    steps: int
    episode_return: float
    mean_reward: float
    unsafe_steps: int
    """Steps with any soft constraint violated."""
    unsafe_pct: float
    unsafe_pct_by_cost: dict[str, float]
    """Share of steps that violate each constraint, and those of the Task's measured costs."""
    costs: dict[str, float]
    """Sum of each constraint's cost."""
    jitter: float | None
    """Mean change of the action from step to step (`action_jitter`)."""
    terminated: bool
    """The system ended it."""
    hard_stop: bool
    """It ended because a hard limit was violated."""

    @property
    def ended_early(self) -> bool:
        """Whether the system or a hard limit ended it, not a failed environment or the time limit."""
        return self.terminated or self.hard_stop


def episode_metrics(task: Task, trajectory: Trajectory) -> list[list[EpisodeMetrics]]:
    """Metrics of every episode of every seed."""
    seeds, episodes = trajectory.valid.shape[:2]
    return [[_metrics(task, trajectory, s, e) for e in range(episodes)] for s in range(seeds)]


def _metrics(task: Task, trajectory: Trajectory, seed: int, episode: int) -> EpisodeMetrics:
    at: Any = (seed, episode)
    steps = int(trajectory.valid[at].sum())
    reward, cost = (np.asarray(x)[at][:steps] for x in (trajectory.reward, trajectory.cost))
    unsafe = unsafe_steps(task, cost)
    columns = [np.asarray(x)[at][:steps] for x in (trajectory.obs, trajectory.action, trajectory.next_obs)]
    names = [constraint.name for constraint in task.constraints]
    return EpisodeMetrics(
        steps=steps,
        episode_return=float(reward.sum(dtype=np.float64)),
        mean_reward=float(reward.mean(dtype=np.float64)),
        unsafe_steps=int(unsafe.sum()),
        unsafe_pct=100.0 * float(unsafe.mean()),
        unsafe_pct_by_cost={name: 100.0 * float((cost[:, k] > 0).mean()) for k, name in enumerate(names)}
        | {c.name: 100.0 * float((np.asarray(_costs(c, *columns)) > 0).mean()) for c in task.measured},
        costs={name: float(cost[:, k].sum()) for k, name in enumerate(names)},
        jitter=action_jitter(task.actions, columns[1]),
        terminated=bool(trajectory.terminated[at].any()),
        hard_stop=bool(trajectory.stopped[at].any()),
    )


def action_jitter(actions: Actions, taken: np.ndarray) -> float | None:
    """Mean change from one action to the next, over steps and dimensions, of the actions [T, …] of an episode.

    The change of a number is a share of the width of its bounds; that of a discrete action is 1 or 0. None if there
    are fewer than two actions.
    """
    exact = taken.astype(np.float64)
    return float(np.mean(actions.change(exact[:-1], exact[1:]))) if len(exact) > 1 else None


@jax.jit
def _costs(constraint: Constraint, obs: Any, action: Any, next_obs: Any) -> Any:
    """The cost of each step, [T]."""
    return jax.vmap(constraint.cost)(obs, action, next_obs)


def summarise(task: Task, episodes: Sequence[EpisodeMetrics], seconds: dict[str, Any], **about: Any) -> EpisodeSummary:
    """Summary of episodes that ran at once, for display; `seconds`: fit_seconds and so on, `about`: other fields."""
    length = np.asarray([one.steps for one in episodes])
    total = max(length.sum(), 1)
    fit, plan, compiling = (seconds.get(f"{name}_seconds", np.nan) for name in ("fit", "plan", "compile"))
    return EpisodeSummary(
        mean_reward=float(np.mean([one.mean_reward for one in episodes])),
        mean_return=float(np.mean([one.mean_reward * one.steps for one in episodes])),
        unsafe_pct=float(100 * sum(one.unsafe_steps for one in episodes) / total),
        unsafe_by_cost={
            c.name: float(sum(one.unsafe_pct_by_cost[c.name] * one.steps for one in episodes) / total)
            for c in task.constraints
        },
        seconds_fit=fit,
        seconds_plan=plan,
        seconds_compile=compiling,
        pace=float(length.sum() / max(fit + plan - np.nan_to_num(compiling), 1e-9)),
        steps=None if (length == task.episode_length).all() else float(length.mean()),
        **about,
    )
