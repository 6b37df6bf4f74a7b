"""Gymnasium environments of several seeds and episodes, stepped together by the host."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from guss.collect.trajectories import hard_violations
from guss.envs.values import cost_value, no_cost_error
from guss.errors import GussError
from guss.task import Task
from guss.types import Trajectory, Transition

Step = tuple[Trajectory, dict[int, str]]
"""One step [N, …] of every environment, and failures by row; a failed row took no step."""


class HostEnvs:
    """Environments of several seeds, stepped together: `num_envs` for each seed, N = S·E in all."""

    def __init__(self, task: Task, seeds: Sequence[int], num_envs: int) -> None:
        self.task, self.num_envs = task, num_envs
        self.seeds = tuple(seed for seed in seeds for _ in range(num_envs))
        """The seed of each environment."""

    def resets(self, episode: int) -> list[int]:
        """The reset seed of each environment; environments of one run seed have consecutive episodes."""
        return [derived_seed(seed, episode + row % self.num_envs) for row, seed in enumerate(self.seeds)]

    @abstractmethod
    def reset(self, episode: int) -> Float[np.ndarray, "N D"]:
        """First observations: each environment gets a seed derived from (seed, episode)."""

    @abstractmethod
    def step(self, obs: np.ndarray, actions: np.ndarray, running: np.ndarray, episode: int, t: int) -> Step:
        """One step of the environments that are `running`."""

    def _start(self, obs: np.ndarray, episode: int) -> Float[np.ndarray, "N D"]:
        wrong = np.argwhere(~np.isfinite(obs))
        if len(wrong):
            row, *rest = wrong[0].tolist()
            which = "".join(f", {self.task.observations.labels[d]}" for d in rest[:1])
            raise GussError(
                f"the first observation of task {self.task.name!r} is not finite in episode {episode}, seed "
                f"{self.seeds[row]}{which}: {obs[tuple(wrong[0])]}. Earlier episodes are kept."
            )
        return obs

    def _taken(self, transition: Transition, ends: Sequence[np.ndarray], skip: Any, valid: Any, t: int) -> Trajectory:
        """The step with its flags; `ends`: the environments' flags terminated and truncated."""
        terminated, truncated = ends
        stopped = valid & hard_violations(self.task, transition.cost)  # a hard limit
        over = truncated | stopped | (t + 1 == self.task.episode_length)
        return Trajectory(
            *transition,
            terminated=valid & terminated,
            truncated=valid & over & ~terminated,
            stopped=stopped,
            valid=valid,
            learnable=valid & ~skip,
        )

    @contextmanager
    def _naming(self, episode: int, t: int, row: int) -> Iterator[None]:
        """Add task, episode, step and seed to errors."""
        try:
            yield
        except GussError as error:
            where = f"task {self.task.name!r}, episode {episode}, step {t}, seed {self.seeds[row]}"
            raise GussError(f"{where}: {error}. Earlier episodes are kept.") from error


def derived_seed(seed: int, episode: int) -> int:
    """The seed of an environment's reset for an episode."""
    return int(np.random.SeedSequence([seed, episode]).generate_state(1)[0])


def cost_vector(task: Task, info: dict[str, Any]) -> np.ndarray | None:
    """The costs that an environment reports, [C]; None if it reports none that fit the task.

    A cost that is not a finite number raises GussError: it must not be taken as safe.
    """
    names = [constraint.name for constraint in task.constraints]
    reported = info.get("costs")
    if isinstance(reported, dict) and set(names) <= set(reported):  # several by name
        return np.asarray([cost_value(reported[name], f'info["costs"][{name!r}]') for name in names], np.float32)
    return np.asarray([cost_value(info["cost"])], np.float32) if len(names) == 1 and "cost" in info else None


def needed_costs(task: Task, info: dict[str, Any], name: str) -> np.ndarray | None:
    """As `cost_vector`; raises GussError if costs that must be learned are missing. `name`: of the environment."""
    costs = cost_vector(task, info)
    if costs is None and any(c.learned for c in task.constraints):
        raise no_cost_error(name, info)
    return costs


@jax.jit
def costs_of(task: Task, obs: Array, actions: Array, next_obs: Array) -> Array:
    return jax.vmap(task.costs)(obs, actions, next_obs)
