"""Episodes on Gymnasium environments: actions for all of them in one compiled call, steps by the host."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from guss import keys as streams
from guss.collect.compiled import EPISODES
from guss.collect.exploration import explore
from guss.collect.host_envs import HostEnvs, make_envs
from guss.collect.trajectories import check_finite, over_episodes
from guss.compilation import AT_ONCE, QUICKLY, Ahead
from guss.envs import EnvSpec
from guss.method import Method
from guss.task import Task
from guss.types import Actions, Trajectory

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
        self.envs, self.act, self.number = envs, act, number
        self.running = np.ones(len(envs.seeds), bool)
        self.failed = dict[int, str]()
        self.steps: list[Trajectory] = []  # [N, …] each
        self.aux: list[PyTree] = []  # [S, E, …] each
        self.obs = envs.reset(number)
        self.choose()

    def choose(self) -> None:
        """Begin to choose the next actions."""
        self.actions, aux = self.act(self.obs, len(self.steps))
        self.aux.append(aux)

    def step(self) -> None:
        """Take the actions that were chosen."""
        task, t = self.envs.task, len(self.steps)
        actions = np.asarray(self.actions).reshape(len(self.running), *task.actions.shape)
        step, failed = self.envs.step(self.obs, actions, self.running, self.number, t)
        all_rows = self.apart(step._replace(valid=np.ones_like(step.valid)))
        seeds = self.envs.seeds[:: self.envs.num_envs]
        check_finite(task, jax.tree.map(lambda x: x[:, :, None], all_rows), self.number, seeds, t)
        if self.steps:  # an episode that fails ended with the step before
            self.steps[-1].truncated[list(failed)] = True
        self.failed |= failed
        self.steps.append(step)
        self.running = step.valid & ~step.done
        self.obs = step.next_obs

    def apart(self, rows: PyTree) -> PyTree:
        """Arrays of all environments, [N, …], by seed and episode: [S, E, …]."""
        return jax.tree.map(lambda x: x.reshape(-1, self.envs.num_envs, *x.shape[1:]), rows)

    def trajectory(self) -> Trajectory:
        """All of it, padded to whole episodes: [S, E, T, …]."""
        missing = self.envs.task.episode_length - len(self.steps)

        def whole(*x: Any) -> np.ndarray:
            rows = np.pad(np.stack(x), [(0, missing), *[(0, 0)] * np.ndim(x[0])])
            return np.moveaxis(rows, 0, 2)

        steps = [self.apart(step)._replace(aux=aux) for step, aux in zip(self.steps, self.aux, strict=True)]
        return jax.tree.map(whole, *steps)


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
        for row, why in each.failed.items():
            failures[divmod(first + row, each.envs.num_envs)] = why
        first += len(each.envs.seeds)
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
        self.rows = [slice(i, i + half) for i in range(0, len(seeds), half)]
        """Which seeds each group has."""
        self.env_groups = [make_envs(task, spec, seeds[rows], timeout, num_envs, process) for rows in self.rows]

    def collect(
        self, method: Method, states: PyTree, keys: Key[Array, "S E"], number: int, on_step: Any = None
    ) -> tuple[Trajectory, Failures]:
        """Episodes in which the method acts, numbered from `number`; `states`: as `Method.acting` returns them."""
        groups = []
        for envs, rows in zip(self.env_groups, self.rows, strict=True):
            mine = states if len(self.rows) == 1 else jax.tree.map(operator.itemgetter(rows), states)
            groups.append((envs, acting(method, mine, keys[rows])))
        return play(groups, number, on_step)

    def explore(
        self, keys: Key[Array, "S E"], how: str, number: int, on_step: Any = None
    ) -> tuple[Trajectory, Failures]:
        """Episodes with random actions."""
        actors = [exploring(self.task, keys[rows], how) for rows in self.rows]
        return play(list(zip(self.env_groups, actors, strict=True)), number, on_step)

    def compile_ahead(self, ahead: Ahead, method: Method, states: PyTree, keys: Key[Array, "S E"]) -> None:
        """Begin to compile what `collect` runs; not for several groups, which have states of another size."""
        if len(self.env_groups) == 1:
            ahead.start(EPISODES, lambda: lower_acting(method, states, self.task, keys))
