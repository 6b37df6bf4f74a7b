"""Common base of methods that learn a policy, and checks of their settings."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from guss.errors import GussError
from guss.limits import MAX_BATCH, MAX_WEIGHTS
from guss.method import Method
from guss.models.training import check_buffer
from guss.types import Trajectory
from guss.validation import check_ranges


class PolicyMethod(Method):
    """A method that learns a policy network. Settings are static fields declared with `setting`."""

    name: ClassVar[str]
    continuous_only: ClassVar[bool] = False
    defaults: ClassVar[dict[str, Any]] = {"episodes": 1024}
    greedy: bool = eqx.field(static=True, kw_only=True, default=False)
    """Act as after learning."""

    def __check_init__(self) -> None:
        if self.continuous_only and self.task.actions.dtype != jnp.float32:
            raise GussError(
                f"{self.name} supports only continuous actions, but task {self.task.name!r} has discrete actions; "
                f"ppo-lagrangian and cpo support both"
            )
        self.check_ranges(**{name: "[1, inf)" for name in ("hidden", "batch") if hasattr(self, name)})
        widths = (1, *getattr(self, "hidden", ()), 1)
        MAX_WEIGHTS.check(f"methods.{self.name}.hidden", sum(a * b for a, b in pairwise(widths)))
        MAX_BATCH.check(f"methods.{self.name}.batch", getattr(self, "batch", 1))

    def check_ranges(self, **ranges: str) -> None:
        """Raise if a setting is outside of its interval, such as `gamma="[0, 1]"`."""
        check_ranges(self, f"methods.{self.name}", **ranges)

    def deployed(self) -> Method:
        """The same policy, as it acts after learning."""
        return dataclasses.replace(self, greedy=True)


def unsafe_of(trajectory: Trajectory) -> Float[Array, "*lead"]:
    """1 for steps that violate any constraint, otherwise 0: the cost that policies are trained with."""
    return jnp.any(trajectory.cost > 0.0, axis=-1).astype(jnp.float32)


def ended_of(trajectory: Trajectory) -> Bool[Array, "*lead"]:
    """Steps at which the system or a hard limit, not a time limit, ended the episode: the value after them is 0."""
    return trajectory.terminated | trajectory.stopped


def with_room(method: Method, states: PyTree, steps: int) -> tuple[Method, PyTree]:
    """The method and its states `[S, …]`, with buffers for `steps` steps of a seed; buffers are padded with zeros."""
    capacity = method.capacity
    while capacity < steps:
        capacity *= 2
    if capacity == method.capacity:
        return method, states
    check_buffer("an agent's steps", method.task, capacity)
    larger = dataclasses.replace(method, capacity=capacity)
    count = len(jax.tree.leaves(states)[0]) if jax.tree.leaves(states) else 1
    like = jax.eval_shape(jax.vmap(larger.init), jax.random.split(jax.random.key(0), count))

    def padded(x: Any, wanted: Any) -> Any:
        more = [(0, b - a) for a, b in zip(x.shape, wanted.shape, strict=True)]
        return jnp.pad(x, more) if x.shape != wanted.shape else x

    return larger, jax.tree.map(padded, states, like)
