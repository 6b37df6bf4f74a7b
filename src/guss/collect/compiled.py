"""Closed-loop episodes on compiled tasks: whole episodes of all seeds in one program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray, PyTree

from guss import keys as streams
from guss.collect.exploration import explore_episodes
from guss.collect.trajectories import check_finite, from_columns
from guss.compilation import Ahead
from guss.errors import GussError
from guss.method import Method
from guss.task import Task
from guss.types import Trajectory, Transition

EPISODES = "planner"
"""Name of the program for compilation ahead."""
OnStep = Callable[[int], Any] | None
Failures = dict[tuple[int, int], str]
"""Failures of environments, by rows of seed and episode."""
Collected = tuple[Trajectory, Failures]


class EpisodeCarry(NamedTuple):
    """State of a running episode."""

    obs: Float[Array, "D"]
    carry: PyTree  # of the method
    key: PRNGKeyArray  # of the episode's steps


def _begin(method: Method, task: Task, state: PyTree, key: PRNGKeyArray) -> EpisodeCarry:
    assert task.reset is not None
    return EpisodeCarry(task.reset(streams.reset(key)), method.begin(state, key), streams.steps(key))


def _step(
    method: Method, task: Task, state: PyTree, now: EpisodeCarry, t: Array
) -> tuple[EpisodeCarry, tuple[Transition, PyTree]]:
    """Alg. 1, lines 13–15: choose an action, act on the real system, store the transition."""
    assert task.step is not None
    key_act, key_world = streams.step(now.key, t)
    action, carry, aux = method.act(state, now.carry, now.obs, key_act)
    next_obs = task.step(now.obs, action, key_world)
    reward, cost = task.reward_of(now.obs, action, next_obs), task.costs(now.obs, action, next_obs)
    transition = Transition(now.obs, action, reward, cost, next_obs)
    return EpisodeCarry(next_obs, carry, now.key), (transition, aux)


@jax.jit
def _begin_all(method: Method, task: Task, states: PyTree, keys: Key[Array, "S E"]) -> EpisodeCarry:
    return jax.vmap(jax.vmap(partial(_begin, method, task), in_axes=(None, 0)))(states, keys)


@partial(jax.jit, static_argnames="num_steps", donate_argnames="carries")
def _step_all(
    method: Method, task: Task, states: PyTree, carries: EpisodeCarry, start: Array, num_steps: int
) -> tuple[EpisodeCarry, tuple[Transition, PyTree]]:
    """Carries [S, E, …] after `num_steps` steps, and the steps [T, S, E, …].

    The usual case of one episode for each seed has a single batch axis, which is faster.
    """
    step: Any = partial(_step, method, task)
    several = carries.key.shape[1] > 1
    if several:
        step = jax.vmap(step, in_axes=(None, 0, None))
    else:
        carries = jax.tree.map(lambda x: x[:, 0], carries)
    step = jax.vmap(step, in_axes=(0, 0, None))
    times = start + jnp.arange(num_steps, dtype=jnp.int32)
    carries, steps = jax.lax.scan(partial(step, states), carries, times)
    if several:
        return carries, steps
    return jax.tree.map(lambda x: x[:, None], carries), jax.tree.map(lambda x: x[:, :, None], steps)


class CompiledCollector:
    """Episodes of a Task that has `step` and `reset`: whole episodes of all seeds as one compiled program."""

    def __init__(
        self, task: Task, seeds: Sequence[int] = (), *, steps: int | None = None, steps_per_call: int | None = None
    ) -> None:
        """`seeds`: of the rows of `keys`, for errors about non-finite numbers; without them nothing is checked.
        `steps`: of an episode, by default all of the Task's. With `steps_per_call` the program is called several
        times, so that progress can be shown and Ctrl-C works; it must divide the episode, and does not change
        results."""
        for name in ("step", "reset"):
            if getattr(task, name) is None:
                raise GussError(f"task {task.name!r} has no {name} function, so its episodes cannot be compiled")
        self.task, self.seeds = task, seeds
        self.steps = task.episode_length if steps is None else steps
        self.steps_per_call = self.steps if steps_per_call is None else steps_per_call
        if self.steps < 1 or self.steps_per_call < 1 or self.steps % self.steps_per_call:
            raise GussError(f"steps_per_call must divide an episode's {self.steps} steps, got {self.steps_per_call}")

    def collect(
        self, method: Method, states: PyTree, keys: Key[Array, "S E"], number: int = 0, on_step: OnStep = None
    ) -> Collected:
        """One episode for every key, [S, E, T, …], and no failures of environments.

        `states`: from `Method.acting`. `on_step` is called with the completed steps after each call of the program.
        """
        carries = _begin_all(method, self.task, states, keys)
        parts = []
        for start in range(0, self.steps, self.steps_per_call):
            first = jnp.asarray(start, jnp.int32)
            carries, part = _step_all(method, self.task, states, carries, first, self.steps_per_call)
            parts.append(jax.block_until_ready(part))
            if on_step is not None:
                on_step(start + self.steps_per_call)

        def whole(*x: Any) -> np.ndarray:
            return np.moveaxis(np.concatenate(x), 0, 2)

        return self._checked(number, *jax.tree.map(whole, *jax.device_get(parts)))

    def explore(self, keys: Key[Array, "S E"], how: str, number: int, on_step: OnStep = None) -> Collected:
        """Episodes with random actions."""
        columns = jax.device_get(explore_episodes(self.task, keys.reshape(-1), self.task.episode_length, how))
        apart = lambda x: np.moveaxis(x, 0, 1).reshape(*keys.shape, len(x), *x.shape[2:])  # noqa: E731
        return self._checked(number, jax.tree.map(apart, columns))

    def _checked(self, number: int, transitions: Transition, aux: PyTree = ()) -> Collected:
        found = from_columns(self.task, transitions, aux)
        if self.seeds:
            check_finite(self.task, found, number, self.seeds)
        return found, {}

    def compile_ahead(self, ahead: Ahead, method: Method, states: PyTree, keys: Key[Array, "S E"]) -> None:
        """Start compilation of the program of `collect`."""

        def lower() -> Any:
            carries = jax.eval_shape(_begin_all, method, self.task, states, keys)
            return _step_all.lower(method, self.task, states, carries, np.int32(0), self.steps_per_call)

        ahead.start(EPISODES, lower)
