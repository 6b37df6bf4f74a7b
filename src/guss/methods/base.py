"""What methods that learn a policy share, and checks of their settings."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from guss.errors import GussError
from guss.limits import MAX_BATCH, MAX_WEIGHTS
from guss.method import Method
from guss.types import Trajectory


class PolicyMethod(Method):
    """A method that learns a policy network. Settings are static fields made by `setting`."""

    name: ClassVar[str]
    continuous_only: ClassVar[bool] = False
    seed_by_seed: ClassVar[bool] = False
    """Whether seeds learn one after another, in one program: nets of 2 × 256 of six seeds at once leave the cache."""
    defaults: ClassVar[dict[str, Any]] = {"episodes": 1024}
    greedy: bool = eqx.field(static=True, kw_only=True, default=False)
    """Act as once learning is over."""

    def __check_init__(self) -> None:
        if self.continuous_only and self.task.actions.dtype != jnp.float32:
            raise GussError(
                f"{type(self).name} is for continuous actions, and those of {self.task.name!r} are discrete; "
                f"ppo-lagrangian and cpo take both"
            )
        for name in ("hidden", "batch"):
            check_size(f"{type(self).name}: {name}", getattr(self, name, 1))

    def deployed(self) -> Method:
        """The same policy, as it acts once learning is over."""
        return dataclasses.replace(self, greedy=True)

    def update_all(
        self, states: PyTree, trajectory: Trajectory, keys: Key[Array, "S"]
    ) -> tuple[PyTree, dict[str, Any]]:
        """`update` for every seed: at once, or one after another if that is faster."""
        return _update_all(self, states, trajectory, keys)


def unsafe_of(trajectory: Trajectory) -> Float[Array, "*lead"]:
    """1 where any constraint is violated: the cost that policies are learned with."""
    return jnp.any(trajectory.cost > 0.0, axis=-1).astype(jnp.float32)


def ended_of(trajectory: Trajectory) -> Bool[Array, "*lead"]:
    """Where the system or a hard limit ended the episode, not the clock: nothing is earned afterwards."""
    return trajectory.terminated | trajectory.stopped


def check_size(what: str, value: int | tuple[int, ...]) -> None:
    """Refuse layers and batches without any units, or with more than memory is meant for."""
    layers = value if isinstance(value, tuple) else (value,)
    if min(layers, default=1) < 1:
        raise GussError(f"{what} must be at least 1, got {list(value) if isinstance(value, tuple) else value}")
    if isinstance(value, tuple):
        MAX_WEIGHTS.check(what, sum(a * b for a, b in pairwise((1, *value, 1))))
    else:
        MAX_BATCH.check(what, value)


def check_ranges(method: PolicyMethod, **ranges: tuple[float, float]) -> None:
    """Refuse settings beyond their range; the ends are allowed."""
    for name, (low, high) in ranges.items():
        value = getattr(method, name)
        if not low <= value <= high:
            wanted = f"at least {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
            raise GussError(f"{type(method).name}: {name} must be {wanted}, got {value}")


def check_positive(method: PolicyMethod, *names: str) -> None:
    """Refuse settings that are not more than 0."""
    for name in names:
        if not getattr(method, name) > 0.0:
            raise GussError(f"{type(method).name}: {name} must be more than 0, got {getattr(method, name)}")


@jax.jit
def _update_all(
    method: PolicyMethod, states: PyTree, trajectory: Trajectory, keys: Key[Array, "S"]
) -> tuple[PyTree, dict[str, Array]]:
    return for_all_seeds(method, method.update, states, trajectory, keys)


def for_all_seeds(method: PolicyMethod, do: Callable[..., Any], *arguments: PyTree) -> Any:
    """What one seed does, for all: at once, or one after another if that is faster."""
    if method.seed_by_seed:
        return jax.lax.map(lambda mine: do(*mine), arguments)
    return jax.vmap(do)(*arguments)
