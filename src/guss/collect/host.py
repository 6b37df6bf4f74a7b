"""Episodes on Gymnasium environments, one for each seed: plans of all seeds in one compiled call, steps by the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from guss.collect.compiled import with_model_inputs
from guss.collect.exploration import explore
from guss.collect.host_envs import Fleet
from guss.compilation import AT_ONCE, QUICKLY
from guss.methods.learner import Batch, told_of
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


@partial(jax.jit, static_argnums=(0, 1, 3), compiler_options=QUICKLY)
def _random_actions(actions: Actions, steps: int, keys: Key[Array, "S"], how: str) -> Array:
    return jax.vmap(lambda key: explore(actions, jax.random.split(key, 3)[1], steps, how))(keys)


Actor = Callable[[np.ndarray, int], Any]
"""Observations [S, D] and the step to actions [S, …]; they may still be under way when it returns."""


@partial(jax.jit, compiler_options=AT_ONCE)
def _start_plans(planner: Planner, keys: Key[Array, "S"]) -> tuple[Key[Array, "S"], PyTree]:
    """Keys of an episode's steps, and what planners remember before the first."""
    memory = jax.tree.map(lambda x: jnp.stack([x] * len(keys)).astype(x.dtype), planner.first_memory())
    return jax.vmap(lambda key: jax.random.split(key)[1])(keys), memory


def lower_plans(planner: Planner, models: Model, task: Task, keys: Key[Array, "S"], per_seed: bool) -> Any:
    """What a `planning_actor` with such arguments calls, to be compiled."""
    obs = np.zeros((len(keys), task.observations.size), np.float32)
    start = jax.eval_shape(_start_plans, planner, keys)
    return plan_all.lower(planner, models, task, obs, *start, np.int32(0), per_seed)


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
