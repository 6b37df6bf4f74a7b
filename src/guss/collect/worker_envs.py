"""Environments that each run in a thread or a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from guss.collect.host_envs import HostEnvs, Step, costs_of, needed_costs
from guss.envs.thread_worker import AnyWorker, Failure
from guss.errors import GussError
from guss.task import Task
from guss.types import Transition

MOST_FAILURES = 3
"""Consecutive failed episodes of an environment that end the run."""
NewWorker = Callable[[], AnyWorker]


class WorkerEnvs(HostEnvs):
    """Any environments, each in its own thread or process, so that one that raises or hangs does not affect others."""

    def __init__(self, task: Task, new_worker: NewWorker, seeds: Sequence[int], timeout: float, num_envs: int) -> None:
        super().__init__(task, seeds, num_envs)
        self.new_worker, self.timeout = new_worker, timeout
        self.workers = [new_worker() for _ in self.seeds]
        self.in_a_row = [0] * len(self.seeds)
        """Consecutive failed episodes of each environment."""
        self.failed: set[int] = set()
        """Rows that failed in the current episode."""

    def reset(self, episode: int) -> Float[np.ndarray, "N D"]:
        """Reset each by its worker. One that cannot be reset even after it is recreated ends the run."""
        self.in_a_row = [count if row in self.failed else 0 for row, count in enumerate(self.in_a_row)]
        self.failed = set()
        resets = self.resets(episode)
        found = self._all("reset", {i: (seed,) for i, seed in enumerate(resets)})
        for row, failure in [(i, x) for i, x in found.items() if isinstance(x, Failure)]:
            self.workers[row] = self.new_worker()
            again = self._all("reset", {row: (resets[row],)})[row]
            if isinstance(again, Failure):
                raise GussError(
                    f"the environment {self.task.name!r} cannot be reset for episode {episode}, seed "
                    f"{self.seeds[row]}: {failure}; after recreating it: {again}. Earlier episodes are kept."
                )
            found[row] = again
        return self._start(np.stack([found[i][0] for i in range(len(self.seeds))]), episode)

    def step(self, obs: np.ndarray, actions: np.ndarray, running: np.ndarray, episode: int, t: int) -> Step:
        """Step all running environments at the same time."""
        found = self._all("step", {int(i): (actions[i],) for i in np.flatnonzero(running)})
        count, failed = len(self.seeds), dict[int, str]()
        next_obs, reward = np.array(obs), np.zeros(count, np.float32)
        cost = np.zeros((count, len(self.task.constraints)), np.float32)
        skip, terminated, truncated = (np.zeros(count, bool) for _ in range(3))
        valid = running.copy()
        for i, result in found.items():
            if isinstance(result, Failure):
                failed[i], valid[i] = self._failure(i, result, episode, t), False
                continue
            next_obs[i], reward[i], terminated[i], truncated[i], info = result
            skip[i] = bool(info.get("skip", False))
            with self._naming(episode, t, i):
                reported = needed_costs(self.task, info, self.task.name)
            if reported is None:
                reported = np.asarray(costs_of(self.task, obs[i : i + 1], actions[i : i + 1], next_obs[i : i + 1]))[0]
            cost[i] = reported
        transition = Transition(obs, actions, reward, cost, next_obs)
        return self._taken(transition, (terminated, truncated), skip, valid, t), failed

    def _failure(self, row: int, failure: Failure, episode: int, t: int) -> str:
        """Recreate a failed environment for the next episode, or raise GussError after repeated failures."""
        self.failed.add(row)
        self.in_a_row[row] += 1
        if t == 0 or self.in_a_row[row] >= MOST_FAILURES:
            often = "on the first step" if t == 0 else f"in {self.in_a_row[row]} consecutive episodes"
            raise GussError(
                f"the environment {self.task.name!r} fails {often} (episode {episode}, step {t}, seed "
                f"{self.seeds[row]}): {failure}. Earlier episodes are kept; `guss check-env` helps to find the cause."
            )
        self.workers[row] = self.new_worker()
        return str(failure)

    def _all(self, method: str, calls: dict[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Call several environments at the same time; a Failure replaces a result if the call raised or timed out."""
        for row, args in calls.items():
            self.workers[row].ask(method, args)
        return {row: self.workers[row].answer(self.timeout) for row in calls}
