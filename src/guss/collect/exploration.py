"""Random actions for the first data (π⁰ of Alg. 1), before there is a model to plan with."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, PRNGKeyArray, Shaped

from guss.compilation import QUICKLY
from guss.errors import UnknownNameError
from guss.task import Task
from guss.types import Actions, DiscreteActions, Transition

EXPLORE = ("smooth", "iid")
RHO, HOLD = 0.9, 4


def explore(actions: Actions, key: PRNGKeyArray, steps: int, how: str) -> Shaped[Array, "T ..."]:
    """π⁰ of Alg. 1: random actions for one episode. Every action is uniform; `how` sets their correlation.

    "iid": independent, as in the paper. "smooth": continuous actions are autoregressive (ρ = 0.9), discrete actions are
    repeated for a few steps. This moves the system further than independent actions, whose effects average out.
    """
    if how not in EXPLORE:
        raise UnknownNameError("exploration", how, EXPLORE)
    if how == "iid":
        return actions.sample(key, (steps,))
    if isinstance(actions, DiscreteActions):
        draws = actions.sample(key, (-(-steps // HOLD),))
        return jnp.repeat(draws, HOLD, axis=0)[:steps]
    noise = jax.random.normal(key, (steps, *actions.shape))

    def drift(now: Array, push: Array) -> tuple[Array, Array]:
        now = RHO * now + (1.0 - RHO**2) ** 0.5 * push
        return now, now

    _, path = jax.lax.scan(drift, noise[0], noise)
    low, high = actions.bounds()
    return jnp.clip(low[None] + (high - low)[None] * jax.scipy.stats.norm.cdf(path), low[None], high[None])


@partial(jax.jit, static_argnums=(0, 3, 4), compiler_options=QUICKLY)
def _explored(actions: Actions, key: PRNGKeyArray, block: Int[Array, ""], steps: int, how: str) -> Array:
    return explore(actions, jax.random.fold_in(key, block), steps, how)


def random_action(actions: Actions, key: PRNGKeyArray, step: int, length: int, how: str) -> np.ndarray:
    """The random action of one step of an episode, also beyond its usual length."""
    block, row = divmod(step, length)
    path = np.asarray(_explored(actions, key, np.int32(block), length, how))
    return np.asarray(path[row])


@partial(jax.jit, static_argnames=("steps", "how"))
def explore_episodes(task: Task, keys: Key[Array, "S"], steps: int, how: str) -> Transition:
    """One episode of random actions for every key; arrays [T, S, …]."""

    def one(key: PRNGKeyArray) -> Transition:
        assert task.reset is not None
        key_reset, key_actions, key_world = jax.random.split(key, 3)

        def step(obs: Array, now: tuple[Array, PRNGKeyArray]) -> tuple[Array, Transition]:
            action, key_step = now
            assert task.step is not None
            next_obs = task.step(obs, action, key_step)
            reward = task.reward_of(obs, action, next_obs)
            return next_obs, Transition(obs, action, reward, task.costs(obs, action, next_obs), next_obs)

        actions = explore(task.actions, key_actions, steps, how)
        return jax.lax.scan(step, task.reset(key_reset), (actions, jax.random.split(key_world, steps)))[1]

    # Time first, although the caller transposes back: without this transposition, last digits of actions change.
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), jax.vmap(one)(keys))
