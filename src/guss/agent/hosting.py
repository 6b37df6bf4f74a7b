"""Episodes on Gymnasium environments, one for each seed: plans of all seeds in one compiled call, steps by the host."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from guss.agent.episodes import with_model_inputs
from guss.agent.exploration import explore
from guss.agent.learner import Batch, told_of
from guss.envs import EnvSpec
from guss.envs.adapting import as_maker, no_cost_error
from guss.envs.workers import Failure, Worker
from guss.envs.wrappers import cost_value
from guss.errors import GussError
from guss.planners.engine import Monitor, Plan, plan_one
from guss.task import Task
from guss.types import Actions, Model, Planner, Transition


class Played(NamedTuple):
    """One episode of every seed. Where one was over early, what follows is padding that nobody may look at."""

    moves: Transition  # [T, S, …]
    use: Bool[np.ndarray, "T S"]  # to be learned from
    length: Int[np.ndarray, "S"]
    terminated: Bool[np.ndarray, "S"]  # ended by the environment itself, not by the clock

    stopped: Bool[np.ndarray, "S"]  # by a hard limit
    status: tuple[str, ...]  # of each seed: "ok", or what went wrong with its environment

    @classmethod
    def whole(cls, task: Task, moves: Transition) -> Played:
        """Of a compiled task: every episode is as long as can be, unless it violates a hard limit."""
        steps, seeds = np.shape(moves.reward)
        violated = hard_violations(task, np.asarray(moves.cost))
        stopped = np.asarray(violated.any(axis=0))
        length = np.where(stopped, violated.argmax(axis=0) + 1, steps)
        use = np.arange(steps)[:, None] < length[None]
        return cls(moves, use, length, np.zeros(seeds, bool), stopped, ("ok",) * seeds)

    def batch(self) -> Batch:
        """As a learner takes it."""
        rows = np.arange(len(self.use))[:, None]
        reward, cost = np.asarray(self.moves.reward), np.asarray(self.moves.cost)
        told = told_of(reward, cost, (rows == self.length - 1) & self.terminated)
        parts = (self.moves.obs, self.moves.action, self.moves.next_obs, self.use, told)
        return Batch(*(np.swapaxes(x, 0, 1) for x in parts))


def hard_violations(task: Task, cost: np.ndarray) -> np.ndarray:
    """Where a hard limit is violated, from costs [..., C]."""
    return np.asarray(np.any(cost[..., ~np.asarray(task.soft, bool)] > 0, axis=-1))


class Stepped(NamedTuple):
    """What one step did to every environment of a fleet."""

    moves: Transition  # [S, …]
    skip: np.ndarray  # [S], not to be learned from
    terminated: np.ndarray  # [S]
    over: np.ndarray  # [S], terminated or truncated
    failed: dict[int, str]  # by row: what went wrong; the step did not happen


class Fleet:
    """Environments of several seeds, stepped together: one for each, or more for episodes that are played at once."""

    def __init__(self, task: Task, seeds: Sequence[int], at_once: int) -> None:
        self.task, self.seeds = task, tuple(seed for seed in seeds for _ in range(at_once))
        self.later = tuple(range(at_once)) * len(seeds)
        """How many episodes after the first an environment plays."""

    def resets(self, episode: int) -> list[int]:
        """What each environment is seeded with."""
        return [derived_seed(seed, episode + later) for seed, later in zip(self.seeds, self.later, strict=True)]

    @abstractmethod
    def reset(self, episode: int) -> Float[np.ndarray, "S D"]:
        """First observations: each environment gets a seed derived from (seed, episode)."""

    @abstractmethod
    def step(self, obs: np.ndarray, actions: np.ndarray, running: np.ndarray, episode: int, t: int) -> Stepped:
        """What the actions did to the environments that are `running`."""

    def _finite(
        self, what: str, values: Any, episode: int, t: int, among: np.ndarray | None = None
    ) -> Float[np.ndarray, "S *rest"]:
        """Observations [S, D], rewards [S] or costs [S, C]; the rows in `among` (default: all) must be finite."""
        array = np.array(values, np.float32)  # a copy: environments may reuse theirs
        wrong = ~np.isfinite(array)
        if among is not None:
            wrong &= among.reshape(-1, *[1] * (wrong.ndim - 1))
        if wrong.any():
            row, *rest = np.argwhere(wrong)[0].tolist()
            costs = [f"constraint {constraint.name!r}" for constraint in self.task.constraints]
            which = "".join(f", {(costs if what == 'cost' else self.task.observations.labels)[i]}" for i in rest)
            raise GussError(
                f"the {what} of task {self.task.name!r} is not finite in {self._where(episode, t, row)}{which}: "
                f"{array[(row, *rest)]}. Episodes before are kept."
            )
        return array

    def _where(self, episode: int, t: int, row: int) -> str:
        return f"episode {episode}, {'at its start' if t < 0 else f'step {t}'}, seed {self.seeds[row]}"

    def _costs(self, info: dict[str, Any], episode: int, t: int, row: int) -> np.ndarray | None:
        """The reported costs; one that is not a number, or that is missing and must be learned, ends the run here."""
        try:
            told = told_costs(self.task, info)
        except GussError as error:
            raise GussError(
                f"task {self.task.name!r}, {self._where(episode, t, row)}: {error}. Episodes before are kept."
            ) from error
        if told is None and any(c.learned for c in self.task.constraints):
            raise no_cost_error(f"{self.task.name} ({self._where(episode, t, row)})", info)
        return told


def _info_of(info: dict[str, Any], row: int) -> dict[str, Any]:
    """What a vector environment reports of one member: `_cost` marks the members that reported a `cost`."""
    found: dict[str, Any] = {}
    for name in ("cost", "costs"):
        marked = np.asarray(info.get(f"_{name}", True))
        if name in info and bool(marked if marked.ndim == 0 else marked[row]):
            value = info[name]
            found[name] = _info_of_all(value, row) if isinstance(value, dict) else value[row]
    return found


def _info_of_all(values: dict[str, Any], row: int) -> dict[str, Any]:
    marks = {name: np.asarray(values.get(f"_{name}", True)) for name in values if not name.startswith("_")}
    return {name: values[name][row] for name, mark in marks.items() if bool(mark if mark.ndim == 0 else mark[row])}


class VectorFleet(Fleet):
    """A Gymnasium id that has a vector environment of its own."""

    def __init__(self, task: Task, gym_id: str, seeds: Sequence[int], at_once: int = 1) -> None:
        super().__init__(task, seeds, at_once)
        self.envs: Any = gymnasium.make_vec(
            gym_id,
            num_envs=len(self.seeds),
            vectorization_mode="vector_entry_point",
            autoreset_mode=AutoresetMode.DISABLED,
        )
        self.over = np.zeros(len(self.seeds), bool)

    def _reported(self, infos: list[dict[str, Any]], episode: int, t: int) -> np.ndarray | None:
        told = [self._costs(info, episode, t, row) for row, info in enumerate(infos)]
        found = [each for each in told if each is not None]
        return np.stack(found) if len(found) == len(infos) else None

    def reset(self, episode: int) -> Float[np.ndarray, "S D"]:
        """All at once."""
        self.over = np.zeros(len(self.seeds), bool)
        return self._finite("observation", self.envs.reset(seed=self.resets(episode))[0], episode, -1)

    def step(self, obs: np.ndarray, actions: np.ndarray, running: np.ndarray, episode: int, t: int) -> Stepped:
        """All at once; what an environment does after its end does not count."""
        if self.over.any():  # those must be reset before the others can go on
            self.envs.reset(options={"reset_mask": self.over})
        next_obs, reward, terminated, truncated, info = self.envs.step(actions)
        self.over = terminated | truncated
        next_obs = self._finite("observation", next_obs, episode, t)
        cost = self._reported([_info_of(info, i) for i in range(len(self.seeds))], episode, t)
        if cost is None:
            cost = self._finite("cost", _costs_of(self.task, obs, actions, next_obs), episode, t)
        moves: Any = (obs, actions, self._finite("reward", reward, episode, t), cost, next_obs)
        skip = np.broadcast_to(np.asarray(info.get("skip", False), bool), terminated.shape)
        return Stepped(Transition(*moves), skip, terminated, self.over, {})


class HostFleet(Fleet):
    """Environments of anybody's making, each in a thread of its own: one that raises or hangs fails alone."""

    def __init__(
        self, task: Task, make: Callable[[], Any], seeds: Sequence[int], timeout: float = 60.0, at_once: int = 1
    ) -> None:
        super().__init__(task, seeds, at_once)
        self.make, self.timeout = make, timeout
        self.workers = [Worker(make) for _ in self.seeds]
        self.in_a_row = [0] * len(self.seeds)
        """Episodes that failed one after another, of each seed."""
        self.failed: set[int] = set()
        """Rows that failed in the episode under way."""

    def reset(self, episode: int) -> Float[np.ndarray, "S D"]:
        """Each in its thread. One that cannot even be reset, made anew, is told: there is no going on."""
        self.in_a_row = [count if row in self.failed else 0 for row, count in enumerate(self.in_a_row)]
        self.failed = set()
        resets = self.resets(episode)
        found = self._all("reset", {i: (seed,) for i, seed in enumerate(resets)})
        for row, failure in [(i, x) for i, x in found.items() if isinstance(x, Failure)]:
            self.workers[row] = Worker(self.make)
            again = self._all("reset", {row: (resets[row],)})[row]
            if isinstance(again, Failure):
                raise GussError(
                    f"the environment {self.task.name!r} cannot be reset for episode {episode}, seed "
                    f"{self.seeds[row]}: {failure}; made anew, {again}. Episodes before are kept."
                )
            found[row] = again
        return self._finite("observation", np.stack([found[i][0] for i in range(len(self.seeds))]), episode, -1)

    def step(self, obs: np.ndarray, actions: np.ndarray, running: np.ndarray, episode: int, t: int) -> Stepped:
        """All that are running, at the same time."""
        found = self._all("step", {int(i): (actions[i],) for i in np.flatnonzero(running)})
        count, failed = len(self.seeds), dict[int, str]()
        next_obs, reward = np.array(obs), np.zeros(count, np.float32)
        cost = np.zeros((count, len(self.task.constraints)), np.float32)
        skip, terminated, truncated = (np.zeros(count, bool) for _ in range(3))
        for i, result in found.items():
            if isinstance(result, Failure):
                failed[i] = self._failure(i, result, episode, t)
                continue
            next_obs[i], reward[i], terminated[i], truncated[i], info = result
            skip[i] = bool(info.get("skip", False))
            told = self._costs(info, episode, t, i)
            if told is None:
                told = np.asarray(_costs_of(self.task, obs[i : i + 1], actions[i : i + 1], next_obs[i : i + 1]))[0]
            cost[i] = told
        next_obs = self._finite("observation", next_obs, episode, t, running)
        reward, cost = self._finite("reward", reward, episode, t), self._finite("cost", cost, episode, t)
        moves: Any = (obs, actions, reward, cost, next_obs)
        return Stepped(Transition(*moves), skip, terminated, terminated | truncated, failed)

    def _failure(self, row: int, failure: Failure, episode: int, t: int) -> str:
        """One failed: it is made anew for the next episode, unless that has not helped before."""
        self.failed.add(row)
        self.in_a_row[row] += 1
        if t == 0 or self.in_a_row[row] >= MOST_FAILURES:
            often = "on the first step" if t == 0 else f"in {self.in_a_row[row]} episodes one after another"
            raise GussError(
                f"the environment {self.task.name!r} fails {often} (episode {episode}, step {t}, seed "
                f"{self.seeds[row]}): {failure}. Episodes before are kept; `guss check-env` helps to find out why."
            )
        self.workers[row] = Worker(self.make)
        return str(failure)

    def _all(self, method: str, calls: dict[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Call several environments at the same time; a Failure in place of what raised or took too long."""
        for row, args in calls.items():
            self.workers[row].ask(method, args)
        return {row: self.workers[row].answer(self.timeout) for row in calls}


MOST_FAILURES = 3
"""So many failed episodes of a seed, one after another, end the run."""


def make_fleet(task: Task, spec: EnvSpec, seeds: Sequence[int], timeout: float, at_once: int = 1) -> Fleet:
    """The environments of a run: `at_once` for each seed."""
    if spec.gym_id and gymnasium.spec(spec.gym_id).vector_entry_point is not None:
        return VectorFleet(task, spec.gym_id, seeds, at_once)
    return HostFleet(task, as_maker(spec), seeds, timeout, at_once)


def derived_seed(seed: int, episode: int) -> int:
    """The seed that an environment is reset with for an episode."""
    return int(np.random.SeedSequence([seed, episode]).generate_state(1)[0])


def told_costs(task: Task, info: dict[str, Any]) -> np.ndarray | None:
    """The costs that an environment reports, [C]; None if it reports none that fit the task.

    A cost that is not a finite number is an error: it must not count as safe.
    """
    names = [constraint.name for constraint in task.constraints]
    told = info.get("costs")
    if isinstance(told, dict) and set(names) <= set(told):  # several by name
        return np.asarray([cost_value(told[name], f'info["costs"][{name!r}]') for name in names], np.float32)
    return np.asarray([cost_value(info["cost"])], np.float32) if len(names) == 1 and "cost" in info else None


@jax.jit
def _costs_of(task: Task, obs: Array, actions: Array, next_obs: Array) -> Array:
    return jax.vmap(task.costs)(obs, actions, next_obs)


@partial(jax.jit, static_argnames="per_seed")
def plan_all(
    planner: Planner,
    models: Model,
    task: Task,
    obs: Float[Array, "S D"],
    keys: Key[Array, "S"],
    memory: PyTree,
    t: Int[Array, ""],
    per_seed: bool,
    monitor: Monitor | None = None,
) -> Plan:
    """A plan for every seed, with the random numbers of step `t` of an episode."""

    def one(model: Model, obs: Array, key: Array, memory: PyTree) -> Plan:
        key_plan = jax.random.split(jax.random.fold_in(key, t))[0]
        return plan_one(with_model_inputs(planner, model, task), model, task, obs, key_plan, memory, monitor)

    return jax.vmap(one, in_axes=(0 if per_seed else None, 0, 0, 0))(models, obs, keys, memory)


@partial(jax.jit, static_argnums=(0, 1, 3))
def _random_actions(actions: Actions, steps: int, keys: Key[Array, "S"], how: str) -> Array:
    return jax.vmap(lambda key: explore(actions, jax.random.split(key, 3)[1], steps, how))(keys)


Actor = Callable[[np.ndarray, int], Any]
"""Observations [S, D] and the step to actions [S, …]; they may still be under way when it returns."""


@jax.jit
def _start_plans(planner: Planner, keys: Key[Array, "S"]) -> tuple[Key[Array, "S"], PyTree]:
    """Keys of an episode's steps, and what planners remember before the first."""
    memory = jax.tree.map(lambda x: jnp.stack([x] * len(keys)).astype(x.dtype), planner.first_memory())
    return jax.vmap(lambda key: jax.random.split(key)[1])(keys), memory


def compile_plans(planner: Planner, models: Model, task: Task, keys: Key[Array, "S"], per_seed: bool) -> None:
    """Compile what a `planning_actor` with such arguments calls."""
    obs = np.zeros((len(keys), task.observations.size), np.float32)
    plan_all.lower(planner, models, task, obs, *_start_plans(planner, keys), np.int32(0), per_seed).compile()


def planning_actor(planner: Planner, models: Model, task: Task, keys: Key[Array, "S"], per_seed: bool) -> Actor:
    """Acts by plans; `task` as the planner is to see it, `keys` those of the episode."""
    keys_steps, memory = _start_plans(planner, keys)

    def act(obs: np.ndarray, t: int) -> Any:
        nonlocal memory
        plans = plan_all(planner, models, task, obs, keys_steps, memory, np.int32(t), per_seed)
        memory = plans.memory
        return plans.action

    return act


def random_actor(task: Task, keys: Key[Array, "S"], how: str) -> Actor:
    """Acts at random."""
    actions = np.asarray(_random_actions(task.actions, task.episode_length, keys, how))
    return lambda _, t: actions[:, t]


class _Episode:
    """An episode of one fleet under way."""

    def __init__(self, fleet: Fleet, act: Actor, number: int) -> None:
        self.fleet, self.act, self.number, self.t = fleet, act, number, 0
        count = len(fleet.seeds)
        self.length, self.terminated = np.full(count, fleet.task.episode_length), np.zeros(count, bool)
        self.running, self.stopped = np.ones(count, bool), np.zeros(count, bool)
        self.status = ["ok"] * count
        self.rows: list[Transition] = []
        self.skips: list[np.ndarray] = []
        self.obs = fleet.reset(number)
        self.actions = act(self.obs, 0)

    def step(self) -> None:
        """Do what was decided, and begin to decide what comes next."""
        done = self.fleet.step(self.obs, np.asarray(self.actions), self.running, self.number, self.t)
        failed = np.isin(np.arange(len(self.running)), list(done.failed))
        for row, why in done.failed.items():
            self.status[row] = why
        self.length[self.running & failed] = self.t  # the step did not happen
        self.running &= ~failed
        self.rows.append(done.moves)
        self.skips.append(done.skip | ~self.running)
        self.t += 1
        stop = hard_violations(self.fleet.task, np.asarray(done.moves.cost))  # the red button
        over = done.over | stop
        self.length[self.running & over] = self.t
        self.terminated |= self.running & done.terminated
        self.stopped |= self.running & stop
        self.running &= ~over
        self.obs = np.asarray(done.moves.next_obs)
        if self.running.any() and self.t < self.fleet.task.episode_length:
            self.actions = self.act(self.obs, self.t)

    def played(self) -> Played:
        """All of it, padded to a whole episode."""
        missing = self.fleet.task.episode_length - self.t
        fill = lambda *x: np.pad(np.stack(x), [(0, missing), *[(0, 0)] * np.ndim(x[0])])  # noqa: E731
        use = ~np.pad(np.stack(self.skips), [(0, missing), (0, 0)], constant_values=True)
        moves = jax.tree.map(fill, *self.rows)
        return Played(moves, use, self.length, self.terminated, self.stopped, tuple(self.status))


def play(crews: Sequence[tuple[Fleet, Actor]], number: int, on_step: Callable[[int], Any] | None = None) -> Played:
    """One episode of every seed. With several crews, plans for one are made while another's environments step."""
    episodes = [_Episode(fleet, act, number) for fleet, act in crews]
    for t in range(crews[0][0].task.episode_length):
        going = [episode for episode in episodes if episode.running.any()]
        if not going:
            break
        for episode in going:
            episode.step()
        if on_step is not None:
            on_step(t + 1)
    parts = [episode.played() for episode in episodes]
    moves: Any = jax.tree.map(lambda *x: np.concatenate(x, axis=1), *(part.moves for part in parts))
    use = np.concatenate([part.use for part in parts], axis=1)
    length, terminated, stopped = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("length", "terminated", "stopped")
    )
    return Played(moves, use, length, terminated, stopped, sum((part.status for part in parts), ()))
