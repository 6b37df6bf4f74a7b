"""Named random streams: every random number of runs, agents and models follows from a seed and a position.

    seed ─┬─ episode(n) ─┬─ reset, steps ─┬─ act(t)     the method's action at step t
          │              │                └─ world(t)   randomness of the system
          │              ├─ exploration: reset, actions, world
          │              └─ fit                         of the model for this episode
          ├─ first_state                                untrained weights
          ├─ update(n)                                  a policy's update after episode n
          └─ evaluation(n)                              evaluation episodes

A stream depends only on its position, so resumed, reordered and batched runs draw the same numbers. Constants that
are folded into a seed's key are larger than any episode number.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PRNGKeyArray

from guss.compilation import AT_ONCE

FIT = 0
POLICY_MODEL = 2**18
"""From a seed's first state: the untrained model of a policy."""
BLUR, OUTCOMES, SUPPORT = 2**18, 2**19, 2**19 + 1
"""From a fit's key: noise on states, networks of reward and costs, the sample of the data's support."""
FIRST_STATE, UPDATE = 2**20, 2**20 + 1
EVALUATION = 2**21
Number = int | Int[Array, ""]


def of_seeds(seeds: Sequence[int]) -> Key[Array, "S"]:
    """A key for each seed."""
    return jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.int32))


def derived(keys: Key[Array, "S"], number: int) -> Key[Array, "S"]:
    """For each key, the stream of that number."""
    return jax.vmap(lambda key: jax.random.fold_in(key, number))(keys)


def episode(key: PRNGKeyArray, number: Number) -> PRNGKeyArray:
    """From a seed's key: an episode."""
    return jax.random.fold_in(key, number)


def episodes(keys: Key[Array, "S"], first: int, count: int) -> Key[Array, "S E"]:
    """From all seeds' keys: `count` episodes, starting at `first`."""
    numbers = jnp.arange(first, first + count, dtype=jnp.int32)
    return jax.vmap(lambda key: jax.vmap(lambda number: episode(key, number))(numbers))(keys)


def reset(key: PRNGKeyArray) -> PRNGKeyArray:
    """From an episode's key: its first state."""
    return jax.random.split(key)[0]


def steps(key: PRNGKeyArray) -> PRNGKeyArray:
    """From an episode's key: all of its steps."""
    return jax.random.split(key)[1]


def step(key: PRNGKeyArray, t: Number) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """From the key of an episode's steps: the method's action at step `t`, and randomness of the system."""
    act, world = jax.random.split(jax.random.fold_in(key, t))
    return act, world


def act(key: PRNGKeyArray, t: Number) -> PRNGKeyArray:
    """From the key of an episode's steps: the method's action at step `t`."""
    return step(key, t)[0]


def world(key: PRNGKeyArray, t: Number) -> PRNGKeyArray:
    """From the key of an episode's steps: randomness of the system at step `t`."""
    return step(key, t)[1]


def exploration(key: PRNGKeyArray) -> tuple[PRNGKeyArray, PRNGKeyArray, PRNGKeyArray]:
    """From the key of an episode with random actions: its first state, the actions, randomness of the system."""
    first, actions, chance = jax.random.split(key, 3)
    return first, actions, chance


def fit(key: PRNGKeyArray) -> PRNGKeyArray:
    """From an episode's key: the fit of the model that acts in it."""
    return jax.random.fold_in(key, FIT)


def fits(keys: Key[Array, "S"], number: int) -> Key[Array, "S"]:
    """From all seeds' keys: the fits before an episode."""
    return jax.vmap(lambda key: fit(episode(key, number)))(keys)


def first_state(key: PRNGKeyArray) -> PRNGKeyArray:
    """From a seed's key: a method's initial state, such as untrained weights."""
    return jax.random.fold_in(key, FIRST_STATE)


def updates(keys: Key[Array, "S"], number: int) -> Key[Array, "S"]:
    """From all seeds' keys: the update after an iteration that started with this episode."""
    return derived(derived(keys, UPDATE), number)


def evaluations(keys: Key[Array, "S"], number: int) -> Key[Array, "S"]:
    """From all seeds' keys: an episode of an evaluation, with starts that the run did not have."""
    return derived(derived(keys, EVALUATION), number)


class EpisodeKeys(NamedTuple):
    """Keys of an episode, its reset, its steps, its random actions, and the fit before it."""

    episode: PRNGKeyArray
    reset: PRNGKeyArray
    steps: PRNGKeyArray
    actions: PRNGKeyArray
    fit: PRNGKeyArray


@partial(jax.jit, compiler_options=AT_ONCE)
def of_agent(key: PRNGKeyArray, number: Int[Array, ""]) -> EpisodeKeys:
    """From an agent's key: the keys of an episode."""
    key = episode(key, number)
    return EpisodeKeys(key, reset(key), steps(key), exploration(key)[1], fit(key))
