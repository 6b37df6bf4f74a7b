"""Episodes of a policy that learns: several of every seed at once, compiled where the task is, else by the host."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree

from guss.collect.host import Actor, Played
from guss.methods.base import Baseline, Experience
from guss.task import Task
from guss.types import Transition


@partial(jax.jit, static_argnames="best")
def play_compiled(
    method: Baseline, states: PyTree, task: Task, keys: Key[Array, "S E"], best: bool
) -> tuple[Transition, PyTree]:
    """A whole episode for every key, as one program: transitions [T, S·E, …], and what was noted, likewise."""

    def one(state: PyTree, key: PRNGKeyArray) -> tuple[Transition, PyTree]:
        assert task.reset is not None
        key_reset, key_steps = jax.random.split(key)

        def step(obs: Array, t: Array) -> tuple[Array, tuple[Transition, PyTree]]:
            assert task.step is not None
            key_act, key_world = jax.random.split(jax.random.fold_in(key_steps, t))
            action, note = _act(method, state, obs, key_act, best)
            next_obs = task.step(obs, action, key_world)
            reward, cost = task.reward_of(obs, action, next_obs), task.costs(obs, action, next_obs)
            return next_obs, (Transition(obs, action, reward, cost, next_obs), note)

        return jax.lax.scan(step, task.reset(key_reset), jnp.arange(task.episode_length, dtype=jnp.int32))[1]

    found = jax.vmap(lambda state, mine: jax.vmap(lambda key: one(state, key))(mine))(states, keys)  # [S, E, T, …]
    return jax.tree.map(lambda x: jnp.moveaxis(x.reshape(-1, *x.shape[2:]), 0, 1), found)


def _act(method: Baseline, state: PyTree, obs: Array, key: PRNGKeyArray, best: bool) -> tuple[Array, PyTree]:
    return (method.best_action(state, obs, key), ()) if best else method.act(state, obs, key)


@partial(jax.jit, static_argnames="best")
def _act_all(
    method: Baseline, states: PyTree, obs: Float[Array, "N D"], keys: Key[Array, "S E"], t: Int[Array, ""], best: bool
) -> tuple[Array, PyTree]:
    """What to do in every environment, [S·E]."""

    def one(state: PyTree, obs: Array, key: PRNGKeyArray) -> tuple[Array, PyTree]:
        key_steps = jax.random.split(key)[1]
        return _act(method, state, obs, jax.random.split(jax.random.fold_in(key_steps, t))[0], best)

    rows = obs.reshape(*keys.shape, -1)
    found = jax.vmap(lambda state, obs, mine: jax.vmap(lambda o, k: one(state, o, k))(obs, mine))(states, rows, keys)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), found)


def policy_actor(method: Baseline, states: PyTree, keys: Key[Array, "S E"], best: bool, notes: list[Any]) -> Actor:
    """Acts by the policies; what they note is added to `notes`, step by step."""

    def act(obs: np.ndarray, t: int) -> Any:
        actions, note = _act_all(method, states, obs, keys, np.int32(t), best)
        notes.append(note)
        return actions

    return act


def experience(played: Played, note: PyTree, at_once: int) -> Experience:
    """What was played, [T, S·E, …], as a baseline learns from it: [S, E, T, …]."""
    steps, columns = played.use.shape
    shape = (columns // at_once, at_once, steps)
    apart = lambda x: np.moveaxis(np.asarray(x), 0, 1).reshape(*shape, *np.shape(x)[2:])  # noqa: E731
    rows = np.arange(steps)[:, None]
    happened, last = rows < played.length[None], rows == played.length[None] - 1
    ended = last & (played.terminated | played.stopped)[None]
    moves: list[Any] = [apart(x) for x in played.moves]
    flags: list[Any] = [apart(x) for x in (happened, played.use, ended)]
    return Experience(*moves, *flags, jax.tree.map(apart, note))  # type: ignore[call-arg]


def stacked(notes: list[Any], steps: int) -> PyTree:
    """What was noted step by step as arrays [T, …], filled up to whole episodes."""
    fill = lambda *x: np.pad(np.stack(x), [(0, steps - len(x)), *[(0, 0)] * np.ndim(x[0])])  # noqa: E731
    return jax.tree.map(fill, *notes)


def one_by_one(played: Played, at_once: int) -> list[Played]:
    """Episodes that were played at once, [T, S·E], as if one after another: E times [T, S]."""
    parts = []
    for i in range(at_once):
        mine = slice(i, None, at_once)
        moves: list[Any] = [np.asarray(x)[:, mine] for x in played.moves]
        parts.append(
            Played(
                moves=Transition(*moves),
                use=played.use[:, mine],
                length=played.length[mine],
                terminated=played.terminated[mine],
                stopped=played.stopped[mine],
                status=played.status[mine],
            )
        )
    return parts
