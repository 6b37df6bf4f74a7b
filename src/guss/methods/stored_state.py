"""States of methods in checkpoints, those that earlier versions wrote, and those whose buffers must grow."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from guss.checkpoint import Stored
from guss.errors import GussError
from guss.method import Method
from guss.models.training import check_buffer

T = TypeVar("T")
COUNTS = ("fits", "filled", "capacity")


def restore_state(stored: Stored, like: T, *, grow: bool = False) -> T:
    """The state of a checkpoint, in the structure of `like`. `grow`: buffers may be longer there."""
    return as_current(stored, like).restore(like, grow=grow)


def with_room(method: Method, states: T, steps: int) -> tuple[Method, T]:
    """The method with buffers for so many steps of a seed, and its states, `[S, …]`; zeros are added to buffers."""
    capacity = method.capacity
    while capacity < steps:
        capacity *= 2
    if capacity == method.capacity:
        return method, states
    check_buffer("an agent's steps", method.task, capacity)
    larger = replace(method, capacity=capacity)
    count = len(jax.tree.leaves(states)[0]) if jax.tree.leaves(states) else 1
    like = jax.eval_shape(jax.vmap(larger.init), jax.random.split(jax.random.key(0), count))

    def padded(x: Any, wanted: Any) -> Any:
        more = [(0, b - a) for a, b in zip(x.shape, wanted.shape, strict=True)]
        return jnp.pad(x, more) if x.shape != wanted.shape else x

    return larger, jax.tree.map(padded, states, like)


def as_current(stored: Stored, like: Any) -> Stored:
    """A checkpoint with the arrays that states have now.

    Version 0.1 named parts of a planning state as those of a dict, and kept its counts in `meta.learner`. Its models
    were those that had planned the last episode, not yet fitted to it, unless `meta` says how they were fitted.
    """
    if not any(name.startswith("['data']") for name in stored.arrays):
        return stored
    arrays = {re.sub(r"^\['(models|data)'\]", r".\1", name): x for name, x in stored.arrays.items()}
    about = check_counts(stored)
    seeds = len(next(iter(arrays.values())))
    fitted = stored.meta.get("fitted_rows", about["filled"] if "report" in stored.meta else -1)
    if (np.asarray(arrays[".data.filled"]) != about["filled"]).any():
        raise GussError(
            f"{stored.path}: meta.learner.filled is {about['filled']}, but the data have {arrays['.data.filled']} rows"
        )
    arrays |= {".fits": np.full(seeds, about["fits"], np.int32), ".fitted": np.full(seeds, fitted, np.int32)}
    for path, leaf in jax.tree_util.tree_flatten_with_path(like)[0]:
        if (name := jax.tree_util.keystr(path)).startswith(".fresh"):
            arrays[name] = np.asarray(leaf)
    return replace(stored, arrays=arrays)


def check_counts(stored: Stored) -> dict[str, int]:
    """Counts that version 0.1 kept beside a state; refused if it cannot have written them."""
    counts = stored.meta.get("learner", {})
    if not all(counts.get(name, -1) >= 0 for name in COUNTS) or counts["filled"] > counts["capacity"]:
        raise GussError(
            f"{stored.path}: meta.learner must have {', '.join(COUNTS)}, with filled ≤ capacity and none below 0; got "
            f"{counts}"
        )
    return counts
