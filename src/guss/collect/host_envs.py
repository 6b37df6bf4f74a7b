"""Gymnasium environments of several seeds and episodes, stepped together by the host."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium.vector import AutoresetMode
from jaxtyping import Array, Float

from guss.collect.trajectories import hard_violations
from guss.envs import EnvSpec
from guss.envs.lookup import as_maker
from guss.envs.process_worker import ProcessWorker
from guss.envs.thread_worker import AnyWorker, Failure, Worker
from guss.envs.values import calling, cost_value, five_values, no_cost_error, reset_values
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


def _info_of(info: dict[str, Any], row: int, count: int, where: str = "info") -> dict[str, Any]:
    """What a vector environment reports of one of `count` members: `_cost` marks the members that reported a `cost`."""
    found: dict[str, Any] = {}
    for name, value in info.items():
        mark, here = np.asarray(info.get(f"_{name}", True)), f'{where}["{name}"]'
        if str(name).startswith("_") or not (mark if mark.ndim == 0 else mark[row]):
            continue
        if isinstance(value, dict):
            found[name] = _info_of(value, row, count, here)
        elif isinstance(value, np.ndarray | list | tuple) and len(value) == count:
            found[name] = value[row]
        else:
            raise GussError(f"{here} must have one number for each of the {count} environments, got {value!r}")
    return found


class VectorEnvs(HostEnvs):
    """Environments of a Gymnasium id that has a vector environment."""

    def __init__(self, task: Task, gym_id: str, seeds: Sequence[int], num_envs: int) -> None:
        super().__init__(task, seeds, num_envs)
        how: Any = {"vectorization_mode": "vector_entry_point", "autoreset_mode": AutoresetMode.DISABLED}
        make = partial(gymnasium.make_vec, gym_id, num_envs=len(self.seeds), **how)
        self.envs: Any = self._called("cannot be created", make)
        self.over = np.zeros(len(self.seeds), bool)

    def _called(self, failing: str, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call the environments in the main thread: their exceptions end the run, and Ctrl-C works."""
        who = f"the environments of task {self.task.name!r} {failing}"
        return calling(who, function, *args, after=". Earlier episodes are kept.", **options)

    def _reported(self, info: dict[str, Any], episode: int, t: int) -> np.ndarray | None:
        costs: dict[str, Any] = {name: info[name] for name in ("cost", "_cost", "costs", "_costs") if name in info}
        found = []
        for row in range(len(self.seeds)):
            with self._naming(episode, t, row):
                found.append(needed_costs(self.task, _info_of(costs, row, len(self.seeds)), self.task.name))
        known = [each for each in found if each is not None]
        return np.stack(known) if len(known) == len(found) else None

    def _numbers(self, what: str, values: Any, failing: str) -> np.ndarray:
        """A copy: environments may reuse their arrays."""
        try:
            return np.array(values, np.float32)
        except (TypeError, ValueError) as error:
            text = f"the environments of task {self.task.name!r} {failing}: {what} must be numbers, got {values!r}"
            raise GussError(f"{text}. Earlier episodes are kept.") from error

    def reset(self, episode: int) -> Float[np.ndarray, "N D"]:
        self.over = np.zeros(len(self.seeds), bool)
        failing = f"cannot be reset for episode {episode}"
        values = self._called(failing, self.envs.reset, seed=self.resets(episode))
        obs, _ = reset_values(values, repr(self.task.name))
        return self._start(self._numbers("observations", obs, failing), episode)

    def step(self, obs: np.ndarray, actions: np.ndarray, running: np.ndarray, episode: int, t: int) -> Step:
        """Step all at once; steps of an environment after its end are ignored."""
        failing = f"fail in episode {episode}, step {t}"
        if self.over.any():  # environments that ended must be reset before others can continue
            self._called(failing, self.envs.reset, options={"reset_mask": self.over})
        values = self._called(failing, self.envs.step, actions)
        next_obs, reward, terminated, truncated, info = five_values(values, f"{self.task.name!r}, as a vector,")
        flags = (terminated, truncated, info.get("skip", False))
        *ends, skip = (np.broadcast_to(np.asarray(flag, bool), self.over.shape) for flag in flags)
        self.over = ends[0] | ends[1]
        next_obs, reward = self._numbers("observations", next_obs, failing), self._numbers("rewards", reward, failing)
        cost = self._reported(info, episode, t)
        if cost is None:
            cost = np.asarray(_costs_of(self.task, obs, actions, next_obs), np.float32)
        return self._taken(Transition(obs, actions, reward, cost, next_obs), ends, skip, running, t), {}


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
                reported = np.asarray(_costs_of(self.task, obs[i : i + 1], actions[i : i + 1], next_obs[i : i + 1]))[0]
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


MOST_FAILURES = 3
"""Consecutive failed episodes of an environment that end the run."""


def make_envs(
    task: Task, spec: EnvSpec, seeds: Sequence[int], timeout: float, num_envs: int = 1, process: str | None = None
) -> HostEnvs:
    """The environments of a run: `num_envs` for each seed. `process`: a name by which child processes create them."""
    if process is not None:
        return WorkerEnvs(task, partial(ProcessWorker, process), seeds, timeout, num_envs)
    if spec.gym_id and gymnasium.spec(spec.gym_id).vector_entry_point is not None:
        return VectorEnvs(task, spec.gym_id, seeds, num_envs)
    return WorkerEnvs(task, partial(Worker, as_maker(spec)), seeds, timeout, num_envs)


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
def _costs_of(task: Task, obs: Array, actions: Array, next_obs: Array) -> Array:
    return jax.vmap(task.costs)(obs, actions, next_obs)
