"""Episodes on Gymnasium environments: one compiled call chooses all actions, and Python steps the environments."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from guss import keys as streams
from guss.collect.compiled import EPISODES, Collected, Failures, OnStep
from guss.collect.exploration import explore
from guss.collect.host_envs import HostEnvs
from guss.collect.trajectories import check_finite
from guss.collect.vector_envs import VectorEnvs
from guss.collect.worker_envs import WorkerEnvs
from guss.compilation import AT_ONCE, QUICKLY, Ahead
from guss.envs import EnvSpec
from guss.envs.lookup import as_maker
from guss.envs.process_worker import ProcessWorker
from guss.envs.thread_worker import Worker
from guss.method import Method
from guss.task import Task
from guss.types import Actions, Trajectory

Actor = Callable[[PyTree, np.ndarray, np.int32], tuple[Any, PyTree, PyTree]]
"""Maps carries [S, E, …], observations [S, E, D] and the step number to actions, new carries and aux, [S, E, …] each.

The results may be JAX arrays that are still being computed.
"""


@jax.jit
def act_all(
    method: Method,
    states: PyTree,
    keys: Key[Array, "S E"],
    carries: PyTree,
    obs: Float[Array, "S E D"],
    t: Int[Array, ""],
) -> tuple[Array, PyTree, PyTree]:
    """Actions, carries and aux of all seeds and episodes, [S, E, …], at step `t`; `keys`: as `begin_all` returns them.

    In the usual case of one episode for each seed, the computation has a single batch axis, which is faster.
    """
    keys_act = jax.vmap(jax.vmap(streams.act, in_axes=(0, None)), in_axes=(0, None))(keys, t)
    if keys.shape[1] > 1:
        return jax.vmap(jax.vmap(method.act, in_axes=(None, 0, 0, 0)))(states, carries, obs, keys_act)
    first = jax.tree.map(lambda x: x[:, 0], (carries, obs, keys_act))
    return jax.tree.map(lambda x: x[:, None], jax.vmap(method.act)(states, *first))


@partial(jax.jit, compiler_options=AT_ONCE)
def begin_all(method: Method, states: PyTree, keys: Key[Array, "S E"]) -> tuple[Key[Array, "S E"], PyTree]:
    """For each episode, the key from which the keys of its steps are derived, and the method's carry before step 0."""
    carries = jax.vmap(jax.vmap(method.begin, in_axes=(None, 0)))(states, keys)
    return jax.vmap(jax.vmap(streams.steps))(keys), carries


@partial(jax.jit, static_argnums=(0, 1, 3), compiler_options=QUICKLY)
def _random_actions(actions: Actions, steps: int, keys: Key[Array, "N"], how: str) -> Array:
    return jax.vmap(lambda key: explore(actions, streams.exploration(key)[1], steps, how))(keys)


def exploring(task: Task, keys: Key[Array, "S E"], how: str) -> Actor:
    """An actor with random actions; `how`: the setting `explore`."""
    actions = np.asarray(_random_actions(task.actions, task.episode_length, keys.reshape(-1), how))
    return lambda carries, obs, t: (actions[:, t], carries, ())


class _Episodes:
    """The current episodes of one group of environments, one per environment."""

    def __init__(self, envs: HostEnvs, act: Actor, carries: PyTree, number: int) -> None:
        self.envs, self.act, self.carries, self.number = envs, act, carries, number
        self.running = np.ones(len(envs.seeds), bool)
        self.failed = dict[int, str]()
        self.steps: list[Trajectory] = []  # [N, …] each
        self.actions: Any = None
        self.aux: list[PyTree] = []  # [S, E, …] each
        self.obs = envs.reset(number)

    def step(self) -> None:
        """Step the environments with the actions chosen last."""
        task, t = self.envs.task, len(self.steps)
        actions = np.asarray(self.actions).reshape(len(self.running), *task.actions.shape)
        step, failed = self.envs.step(self.obs, actions, self.running, self.number, t)
        all_rows = self.apart(step._replace(valid=np.ones_like(step.valid)))
        seeds = self.envs.seeds[:: self.envs.num_envs]
        check_finite(task, jax.tree.map(lambda x: x[:, :, None], all_rows), self.number, seeds, t)
        if self.steps:  # a failed episode ends with the previous step
            self.steps[-1].truncated[list(failed)] = True
        self.failed |= failed
        self.steps.append(step)
        self.running = step.valid & ~step.done
        self.obs = step.next_obs

    def apart(self, rows: PyTree) -> PyTree:
        """Reshape arrays of all environments, [N, …], to seeds and episodes, [S, E, …]."""
        each = self.envs.num_envs
        return jax.tree.map(lambda x: x.reshape(len(x) // each, each, *x.shape[1:]), rows)

    def trajectory(self) -> Trajectory:
        """The trajectory, padded to whole episodes: [S, E, T, …]."""
        missing = self.envs.task.episode_length - len(self.steps)

        def whole(*x: Any) -> np.ndarray:
            rows = np.pad(np.stack(x), [(0, missing), *[(0, 0)] * np.ndim(x[0])])
            return np.moveaxis(rows, 0, 2)

        steps = [self.apart(step)._replace(aux=aux) for step, aux in zip(self.steps, self.aux, strict=True)]
        return jax.tree.map(whole, *steps)


def play(groups: Sequence[tuple[HostEnvs, Actor, PyTree]], number: int, on_step: OnStep = None) -> Collected:
    """Run one episode in every environment; while one group plans its actions, the environments of other groups step.

    `groups`: the environments, the actor and the initial carries of each.
    """
    episodes = [_Episodes(*group, number) for group in groups]
    for t in range(groups[0][0].task.episode_length + 1):
        running = [each for each in episodes if each.running.any()]
        if not running:
            break
        for each in running:
            if t > 0:
                each.step()
            if each.running.any():  # start to choose the next actions
                each.actions, each.carries, aux = each.act(each.carries, each.apart(each.obs), np.int32(t))
                each.aux.append(aux)
        if t > 0 and on_step is not None:
            on_step(t)
    failures, first = Failures(), 0
    for each in episodes:
        for row, why in each.failed.items():
            failures[divmod(first + row, each.envs.num_envs)] = why
        first += len(each.envs.seeds)
    return jax.tree.map(lambda *x: np.concatenate(x), *(each.trajectory() for each in episodes)), failures


class HostCollector:
    """Runs episodes in the environments of all seeds, which Python steps on the host."""

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
        """`num_envs`: per seed. `process`, `timeout`: see `make_envs`. `overlap`: form two groups of seeds (`play`)."""
        self.task = task
        half = -(-len(seeds) // (1 + overlap))
        self.rows = [slice(i, i + half) for i in range(0, len(seeds), half)]
        """The seeds of each group."""
        self.env_groups = [make_envs(task, spec, seeds[rows], timeout, num_envs, process) for rows in self.rows]

    def collect(
        self, method: Method, states: PyTree, keys: Key[Array, "S E"], number: int, on_step: OnStep = None
    ) -> Collected:
        """Run episodes in which the method acts, numbered from `number`; `states`: as `Method.acting` returns them."""
        groups = []
        for envs, rows in zip(self.env_groups, self.rows, strict=True):
            mine = states if len(self.rows) == 1 else jax.tree.map(operator.itemgetter(rows), states)
            keys_steps, carries = begin_all(method, mine, keys[rows])
            groups.append((envs, partial(act_all, method, mine, keys_steps), carries))
        return play(groups, number, on_step)

    def explore(self, keys: Key[Array, "S E"], how: str, number: int, on_step: OnStep = None) -> Collected:
        """Run episodes with random actions."""
        pairs = zip(self.env_groups, self.rows, strict=True)
        return play([(envs, exploring(self.task, keys[rows], how), ()) for envs, rows in pairs], number, on_step)

    def compile_ahead(self, ahead: Ahead, method: Method, states: PyTree, keys: Key[Array, "S E"]) -> None:
        """Start to compile the program of `collect`, unless there are several groups: their sizes may differ."""

        def lower() -> Any:
            obs = np.zeros((*keys.shape, self.task.observations.size), np.float32)
            keys_steps, carries = jax.eval_shape(begin_all, method, states, keys)
            return act_all.lower(method, states, keys_steps, carries, obs, np.int32(0))

        if len(self.env_groups) == 1:
            ahead.start(EPISODES, lower)


def make_envs(
    task: Task, spec: EnvSpec, seeds: Sequence[int], timeout: float, num_envs: int = 1, process: str | None = None
) -> HostEnvs:
    """The environments of a run: `num_envs` for each seed. `process`: a name by which child processes create them."""
    if process is not None:
        return WorkerEnvs(task, partial(ProcessWorker, process), seeds, timeout, num_envs)
    if spec.gym_id and gymnasium.spec(spec.gym_id).vector_entry_point is not None:
        return VectorEnvs(task, spec.gym_id, seeds, num_envs)
    return WorkerEnvs(task, partial(Worker, as_maker(spec)), seeds, timeout, num_envs)
