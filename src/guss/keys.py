"""Every random stream, by name: all numbers that runs, agents and models draw follow from a seed and a place.

    seed ─┬─ episode(n) ─┬─ reset, steps ─┬─ act(t)     the method's choice at step t
          │              │                └─ world(t)   the system's own chance
          │              ├─ exploration: reset, actions, world
          │              └─ fit                         of the model that plans this episode
          ├─ first_state                                weights before anything was learned
          ├─ update(n)                                  what a policy draws after episode n
          └─ evaluation(n)                              episodes that nothing is learned from

A stream depends on its place alone, so resumed, reordered and batched runs draw the same numbers. Numbers that are
folded into a key besides episodes lie beyond any number of episodes.
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
"""Of a seed's first state: the untrained model of a policy."""
BLUR, OUTCOMES, SUPPORT = 2**18, 2**19, 2**19 + 1
"""Of a fit: noise on states, nets of reward and costs, the sample that shows where the data lie."""
FIRST_STATE, UPDATE = 2**20, 2**20 + 1
EVALUATION = 2**21
Number = int | Int[Array, ""]


def of_seeds(seeds: Sequence[int]) -> Key[Array, "S"]:
    """A key for each seed."""
    return jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.int32))


def derived(keys: Key[Array, "S"], number: int) -> Key[Array, "S"]:
    """For each of several keys, the stream of that number."""
    return jax.vmap(lambda key: jax.random.fold_in(key, number))(keys)


def episode(key: PRNGKeyArray, number: Number) -> PRNGKeyArray:
    """Of a seed's key: an episode."""
    return jax.random.fold_in(key, number)


def episodes(keys: Key[Array, "S"], first: int, count: int) -> Key[Array, "S E"]:
    """Of all seeds' keys: `count` episodes from the first on."""
    numbers = jnp.arange(first, first + count, dtype=jnp.int32)
    return jax.vmap(lambda key: jax.vmap(lambda number: episode(key, number))(numbers))(keys)


def reset(key: PRNGKeyArray) -> PRNGKeyArray:
    """Of an episode's key: its first state."""
    return jax.random.split(key)[0]


def steps(key: PRNGKeyArray) -> PRNGKeyArray:
    """Of an episode's key: all of its steps."""
    return jax.random.split(key)[1]


def step(key: PRNGKeyArray, t: Number) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """Of the key of an episode's steps: the method's choice at step `t`, and what the system does by chance."""
    act, world = jax.random.split(jax.random.fold_in(key, t))
    return act, world


def act(key: PRNGKeyArray, t: Number) -> PRNGKeyArray:
    """Of the key of an episode's steps: the method's choice at step `t`."""
    return step(key, t)[0]


def world(key: PRNGKeyArray, t: Number) -> PRNGKeyArray:
    """Of the key of an episode's steps: what the system does by chance at step `t`."""
    return step(key, t)[1]


def exploration(key: PRNGKeyArray) -> tuple[PRNGKeyArray, PRNGKeyArray, PRNGKeyArray]:
    """Of an episode's key, where actions are random: its first state, the actions, the system's chance."""
    first, actions, chance = jax.random.split(key, 3)
    return first, actions, chance


def fit(key: PRNGKeyArray) -> PRNGKeyArray:
    """Of an episode's key: the fit of the model that acts in it."""
    return jax.random.fold_in(key, FIT)


def fits(keys: Key[Array, "S"], number: int) -> Key[Array, "S"]:
    """Of all seeds' keys: the fits before an episode."""
    return jax.vmap(lambda key: fit(episode(key, number)))(keys)


def first_state(key: PRNGKeyArray) -> PRNGKeyArray:
    """Of a seed's key: what a method begins with, such as untrained weights."""
    return jax.random.fold_in(key, FIRST_STATE)


def updates(keys: Key[Array, "S"], number: int) -> Key[Array, "S"]:
    """Of all seeds' keys: the update after an iteration that began with this episode."""
    return derived(derived(keys, UPDATE), number)


def evaluations(keys: Key[Array, "S"], number: int) -> Key[Array, "S"]:
    """Of all seeds' keys: an episode of an evaluation; no start of it was a start of the run."""
    return derived(derived(keys, EVALUATION), number)


class EpisodeKeys(NamedTuple):
    """An episode, its reset, its steps, its random actions, and the fit before it."""

    episode: PRNGKeyArray
    reset: PRNGKeyArray
    steps: PRNGKeyArray
    actions: PRNGKeyArray
    fit: PRNGKeyArray


@partial(jax.jit, compiler_options=AT_ONCE)
def of_agent(key: PRNGKeyArray, number: Int[Array, ""]) -> EpisodeKeys:
    """Of an agent's key: those of an episode."""
    key = episode(key, number)
    return EpisodeKeys(key, reset(key), steps(key), exploration(key)[1], fit(key))
