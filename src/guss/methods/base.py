"""What every baseline is: a policy that learns from whole episodes. All that a run needs to know of it."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray, PyTree, Shaped

from guss.errors import GussError
from guss.limits import MAX_BATCH, MAX_WEIGHTS
from guss.task import Task


class Experience(NamedTuple):
    """Episodes of one seed: E that were played at once, T steps each. Runs add a leading axis S, one for each seed."""

    obs: Float[Array, "*lead E T D"]
    action: Shaped[Array, "..."]
    reward: Float[Array, "*lead E T"]
    cost: Float[Array, "*lead E T C"]
    next_obs: Float[Array, "*lead E T D"]
    happened: Bool[Array, "*lead E T"]
    """False after an episode's end."""
    use: Bool[Array, "*lead E T"]
    """To learn dynamics from; a step that happened may be none of the system's own, as a goal that jumps."""
    ended: Bool[Array, "*lead E T"]
    """The system ended the episode here, not the clock: nothing is earned after."""
    note: PyTree
    """What `act` returned beside the action, [E, T, …]; () where actions were random."""

    @property
    def unsafe(self) -> Float[Array, "*lead E T"]:
        """1 where any constraint is violated: the cost that baselines know of."""
        return jnp.any(self.cost > 0.0, axis=-1).astype(jnp.float32)


class Baseline(eqx.Module):
    """A method that learns a policy. Written for one seed, but for `learn`, which may treat all at once.

    What is learned is a state, a pytree of arrays. Settings are static fields made by `setting`.
    """

    task: Task
    capacity: int = eqx.field(static=True, kw_only=True)
    """Steps that a seed will take in the whole run; buffers of this length grow by zeros when a run is extended."""

    random_first: ClassVar[bool] = False
    """Whether the first episodes of a run have random actions."""
    continuous_only: ClassVar[bool] = False
    safe: ClassVar[bool] = False
    """Whether it looks at cost; otherwise at reward alone."""
    seed_by_seed: ClassVar[bool] = False
    """Whether seeds learn one after another, in one program: nets of 2 × 256 of six seeds at once leave the cache."""
    model_based: ClassVar[bool] = False
    """Whether it learns a model: then it has fields `model`, `net` and `fit`."""
    defaults: ClassVar[dict[str, Any]] = {"episodes": 1024}
    """Of a run, where neither a preset nor the user says: `episodes`, `initial_episodes`, a table `model`."""

    def __check_init__(self) -> None:
        if self.continuous_only and self.task.actions.dtype != jnp.float32:
            raise GussError(
                f"{type(self).name} is for continuous actions, and those of {self.task.name!r} are discrete; "
                f"ppo-lagrangian and cpo take both"
            )

        for name in ("hidden", "batch"):
            check_size(f"{type(self).name}: {name}", getattr(self, name, 1))

    name: ClassVar[str]

    @property
    def at_once(self) -> int:
        """E: episodes that a seed plays between two updates."""
        return 1

    @abstractmethod
    def init(self, key: PRNGKeyArray) -> PyTree:
        """The state before anything was learned."""

    @abstractmethod
    def act(self, state: PyTree, obs: Float[Array, "D"], key: PRNGKeyArray) -> tuple[Shaped[Array, "..."], PyTree]:
        """What to do while learning, and what to note for `update`."""

    @abstractmethod
    def best_action(self, state: PyTree, obs: Float[Array, "D"], key: PRNGKeyArray) -> Shaped[Array, "..."]:
        """What to do once learning is over."""

    @abstractmethod
    def update(self, state: PyTree, seen: Experience, key: PRNGKeyArray) -> tuple[PyTree, dict[str, Array]]:
        """The state after the episodes, and what to log."""

    def learn(
        self, states: PyTree, seen: Experience, keys: Key[Array, "S"], episode: int
    ) -> tuple[PyTree, dict[str, Any]]:
        """`update` for every seed; `episode` is the number of the first of them."""
        return _update_all(self, states, seen, keys)


def check_size(what: str, value: int | tuple[int, ...]) -> None:
    """Refuse layers and batches without any units, or with more than memory is meant for."""
    layers = value if isinstance(value, tuple) else (value,)
    if min(layers, default=1) < 1:
        raise GussError(f"{what} must be at least 1, got {list(value) if isinstance(value, tuple) else value}")
    if isinstance(value, tuple):
        MAX_WEIGHTS.check(what, sum(a * b for a, b in pairwise((1, *value, 1))))
    else:
        MAX_BATCH.check(what, value)


def check_ranges(method: Baseline, **ranges: tuple[float, float]) -> None:
    """Refuse settings beyond their range; the ends are allowed."""
    for name, (low, high) in ranges.items():
        value = getattr(method, name)
        if not low <= value <= high:
            wanted = f"at least {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
            raise GussError(f"{type(method).name}: {name} must be {wanted}, got {value}")


def check_positive(method: Baseline, *names: str) -> None:
    """Refuse settings that are not more than 0."""
    for name in names:
        if not getattr(method, name) > 0.0:
            raise GussError(f"{type(method).name}: {name} must be more than 0, got {getattr(method, name)}")


@jax.jit
def _update_all(
    method: Baseline, states: PyTree, seen: Experience, keys: Key[Array, "S"]
) -> tuple[PyTree, dict[str, Array]]:
    return for_all_seeds(method, method.update, states, seen, keys)


def for_all_seeds(method: Baseline, do: Callable[..., Any], *arguments: PyTree) -> Any:
    """What one seed does, for all: at once, or one after another if that is quicker."""
    if method.seed_by_seed:
        return jax.lax.map(lambda mine: do(*mine), arguments)
    return jax.vmap(do)(*arguments)
