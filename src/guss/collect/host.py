"""Episodes on Gymnasium environments: actions for all of them in one compiled call, steps by the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from guss import keys as streams
from guss.collect.exploration import explore
from guss.collect.host_envs import HostEnvs, make_envs
from guss.collect.trajectories import hard_violations, over_episodes
from guss.compilation import AT_ONCE, QUICKLY, Ahead
from guss.envs import EnvSpec
from guss.method import Method
from guss.task import Task
from guss.types import Actions, Trajectory, Transition

PLAN = "planner"
"""Name of the program where it is compiled ahead."""
Failures = dict[tuple[int, int], str]
"""By seed and episode, as rows: what went wrong with the environment."""
Actor = Callable[[np.ndarray, int], tuple[Any, PyTree]]
"""Observations [N, D] and the step to actions [N, …] and aux; they may still be under way when it returns."""


@jax.jit
def act_all(
    method: Method,
    states: PyTree,
    carries: PyTree,
    obs: Float[Array, "S E D"],
    keys: Key[Array, "S E"],
    t: Int[Array, ""],
) -> tuple[Array, PyTree, PyTree]:
    """Actions, carries and aux of all seeds and episodes, [S, E, …], at step `t`; `keys`: of the episodes' steps."""
    keys_act = jax.vmap(jax.vmap(streams.act, in_axes=(0, None)), in_axes=(0, None))(keys, t)
    return over_episodes(method.act, states, carries, obs, keys_act)


@partial(jax.jit, compiler_options=AT_ONCE)
def begin_all(method: Method, states: PyTree, keys: Key[Array, "S E"]) -> tuple[Key[Array, "S E"], PyTree]:
    """Keys of the episodes' steps, and the method's carries before the first."""

    def one(state: PyTree, key: Array) -> Any:
        return streams.steps(key), method.begin(state, key)

    return over_episodes(one, states, keys)


def lower_acting(method: Method, states: PyTree, task: Task, keys: Key[Array, "S E"]) -> Any:
    """What `acting` calls with such arguments, to be compiled."""
    obs = np.zeros((*keys.shape, task.observations.size), np.float32)
    keys_steps, carries = jax.eval_shape(begin_all, method, states, keys)
    return act_all.lower(method, states, carries, obs, keys_steps, np.int32(0))


def acting(method: Method, states: PyTree, keys: Key[Array, "S E"]) -> Actor:
    """The method acts; `keys`: of the episodes."""
    keys_steps, carries = begin_all(method, states, keys)

    def act(obs: np.ndarray, t: int) -> tuple[Any, PyTree]:
        nonlocal carries
        rows = obs.reshape(*keys.shape, -1)
        action, carries, aux = act_all(method, states, carries, rows, keys_steps, np.int32(t))
        return action, aux

    return act


@partial(jax.jit, static_argnums=(0, 1, 3), compiler_options=QUICKLY)
def _random_actions(actions: Actions, steps: int, keys: Key[Array, "N"], how: str) -> Array:
    return jax.vmap(lambda key: explore(actions, streams.exploration(key)[1], steps, how))(keys)


def exploring(task: Task, keys: Key[Array, "S E"], how: str) -> Actor:
    """Actions are random."""
    actions = np.asarray(_random_actions(task.actions, task.episode_length, keys.reshape(-1), how))
    return lambda _, t: (actions[:, t], ())


class _Episodes:
    """Episodes of one group of environments under way, one for each."""

    def __init__(self, envs: HostEnvs, act: Actor, number: int) -> None:
        self.envs, self.act, self.number, self.t = envs, act, number, 0
        count = len(envs.seeds)
        self.running = np.ones(count, bool)
        self.status = dict[int, str]()
        self.steps: list[Transition] = []
        self.flags: list[np.ndarray] = []  # terminated, truncated, stopped, valid, learnable: [5, N] of each step
        self.aux: list[PyTree] = []
        self.obs = envs.reset(number)
        self.choose()

    def choose(self) -> None:
        """Begin to choose the next actions."""
        self.actions, aux = self.act(self.obs, self.t)
        self.aux.append(aux)

    def step(self) -> None:
        """Take the actions that were chosen."""
        actions = np.asarray(self.actions)
        actions = actions.reshape(len(self.running), *self.envs.task.actions.shape)
        result = self.envs.step(self.obs, actions, self.running, self.number, self.t)
        failed = np.isin(np.arange(len(self.running)), list(result.failed))
        self.status |= result.failed
        if self.flags:  # the step did not happen: an episode that fails ended with the step before
            self.flags[-1][1] |= self.running & failed
        valid = self.running & ~failed
        self.t += 1
        stopped = valid & hard_violations(self.envs.task, result.transition.cost)  # the red button
        terminated = valid & result.terminated
        over = result.over | stopped | (self.t == self.envs.task.episode_length)
        truncated = valid & over & ~terminated
        self.steps.append(result.transition)
        self.flags.append(np.stack([terminated, truncated, stopped, valid, valid & ~result.skip]))
        self.running = valid & ~over
        self.obs = np.asarray(result.transition.next_obs)

    def trajectory(self) -> Trajectory:
        """All of it, padded to whole episodes: [S, E, T, …]."""
        missing = self.envs.task.episode_length - self.t

        def whole(*x: Any) -> np.ndarray:
            rows = np.pad(np.stack(x), [(0, missing), *[(0, 0)] * np.ndim(x[0])])
            return np.moveaxis(rows, 0, 1)

        each = self.envs.num_envs
        apart = lambda x: x.reshape(len(x) // each, each, *x.shape[1:])  # noqa: E731
        columns = [apart(whole(*x)) for x in zip(*self.steps, strict=True)]
        flags = [apart(whole(*(each[i] for each in self.flags))) for i in range(5)]
        flat = lambda x: np.asarray(x).reshape(len(self.envs.seeds), *np.shape(x)[2:])  # noqa: E731
        aux = jax.tree.map(lambda *x: apart(whole(*map(flat, x))), *self.aux)
        return Trajectory(*columns, *flags, aux)  # type: ignore[call-arg]

    def failures(self) -> Failures:
        """Which of the episodes failed."""
        return {divmod(row, self.envs.num_envs): why for row, why in self.status.items()}


def play(
    groups: Sequence[tuple[HostEnvs, Actor]], number: int, on_step: Callable[[int], Any] | None = None
) -> tuple[Trajectory, Failures]:
    """One episode in every environment. Actions of one group are planned while the environments of another step."""
    episodes = [_Episodes(envs, act, number) for envs, act in groups]
    for t in range(groups[0][0].task.episode_length):
        running = [each for each in episodes if each.running.any()]
        if not running:
            break
        for each in running:
            each.step()
            if each.running.any():
                each.choose()
        if on_step is not None:
            on_step(t + 1)
    failures, first = Failures(), 0
    for each in episodes:
        failures |= {(first + row, number): why for (row, number), why in each.failures().items()}
        first += len(each.envs.seeds) // each.envs.num_envs
    return jax.tree.map(lambda *x: np.concatenate(x), *(each.trajectory() for each in episodes)), failures


class HostCollector:
    """Episodes on the environments of all seeds, which the host steps."""

    def __init__(
        self,
        task: Task,
        spec: EnvSpec,
        seeds: Sequence[int],
        num_envs: int,
        *,
        timeout: float,
        process: str | None = None,
        overlap: bool = False,
    ) -> None:
        """`num_envs`: for each seed. `process`, `timeout`: see `make_envs`. `overlap`: in two groups (see `play`)."""
        self.task = task
        half = -(-len(seeds) // (1 + overlap))
        parts = [seeds[i : i + half] for i in range(0, len(seeds), half)]
        self.env_groups = [make_envs(task, spec, part, timeout, num_envs, process) for part in parts]

    def _rows(self) -> Iterator[tuple[HostEnvs, slice]]:
        """Each group, and which seeds it has."""
        first = 0
        for envs in self.env_groups:
            rows = slice(first, first + len(envs.seeds) // envs.num_envs)
            first = rows.stop
            yield envs, rows

    def collect(
        self, method: Method, states: PyTree, keys: Key[Array, "S E"], number: int, on_step: Any = None
    ) -> tuple[Trajectory, Failures]:
        """Episodes in which the method acts, numbered from `number`; `states`: as `Method.acting` returns them."""
        alone = len(self.env_groups) == 1
        mine = lambda rows: states if alone else jax.tree.map(lambda x: x[rows], states)  # noqa: E731
        return play([(envs, acting(method, mine(rows), keys[rows])) for envs, rows in self._rows()], number, on_step)

    def explore(
        self, keys: Key[Array, "S E"], how: str, number: int, on_step: Any = None
    ) -> tuple[Trajectory, Failures]:
        """Episodes with random actions."""
        return play([(envs, exploring(self.task, keys[rows], how)) for envs, rows in self._rows()], number, on_step)

    def compile_ahead(self, ahead: Ahead, method: Method, states: PyTree, keys: Key[Array, "S E"]) -> None:
        """Begin to compile what `collect` runs; not for several groups, which have states of another size."""
        if len(self.env_groups) == 1:
            ahead.start(PLAN, lambda: lower_acting(method, states, self.task, keys))
