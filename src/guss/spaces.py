"""Observation and action spaces.

Bounds are given in double precision, actions are computed in float32: `float32_bounds` rounds bounds inwards, so that
an action within the rounded bounds is within the given bounds in either precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from guss.errors import GussError

TINY = float(np.finfo(np.float32).tiny)
"""Compiled programs may round anything smaller to 0."""
MOST = float(np.finfo(np.float32).max) / 2
"""The sum of two larger numbers may overflow."""


Names = tuple[str, ...] | None
"""Names of dimensions in messages, tables and figures. Spaces that differ only in names are equal."""


@dataclass(frozen=True)
class Observations:
    """Observations are vectors of D numbers between `low` and `high`, which may be infinite.

    `low`, `high`: D numbers each. `names`: one for each number, for messages, tables and figures.
    Raises GussError if lengths differ or a `low` is not below its `high`.

    Example:
        >>> guss.Observations(low=(-1.0, 0.0), high=(1.0, float("inf")), names=("angle", "level")).size
        2
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    names: Names = field(default=None, compare=False, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        _check_bounds("observation", self.low, self.high, finite=False)
        _check_names(self, "observation", self.size)

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of every dimension; "dimension 3" for one that has none."""
        return self.names or tuple(f"dimension {i}" for i in range(self.size))

    @property
    def size(self) -> int:
        return len(self.low)


@dataclass(frozen=True)
class ContinuousActions:
    """Actions are vectors of A numbers between `low` and `high`, as Gymnasium's Box.

    `low`, `high`: A finite numbers each. `names`: one for each number, for messages, tables and figures. Raises
    GussError if lengths differ, a `low` is not below its `high`, or one of them is not finite.

    Example:
        >>> actions = guss.ContinuousActions(low=(-2.0,), high=(2.0,), names=("torque",))
        >>> actions.shape, actions.outside(np.array([2.5])).tolist()
        ((1,), [True])
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    names: Names = field(default=None, compare=False, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        _check_bounds("action", self.low, self.high, finite=True)
        _check_names(self, "action", len(self.low))
        float32_bounds(self.low, self.high)

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of every number of an action."""
        return _action_labels(self.names, len(self.low))

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.low),)

    @property
    def dtype(self) -> Any:
        """Type of an action's numbers."""
        return jnp.float32

    @property
    def num_outputs(self) -> int:
        """How many outputs a policy network needs."""
        return len(self.low)

    def bounds(self) -> tuple[Float[Array, "A"], Float[Array, "A"]]:
        """`low` and `high` as arrays, rounded inwards."""
        low, high = float32_bounds(self.low, self.high)
        return jnp.asarray(low), jnp.asarray(high)

    def outside(self, actions: np.ndarray) -> np.ndarray:
        """Mask of numbers [..., A] beyond `low` or `high` by more than rounding: one float32 step plus a millionth of
        the range."""
        low, high = np.asarray(self.low, np.float64), np.asarray(self.high, np.float64)
        largest = np.maximum(np.abs(low), np.abs(high)).astype(np.float32)
        room = np.spacing(largest).astype(np.float64) + 1e-6 * (high - low)
        return np.asarray(~((actions >= low - room) & (actions <= high + room)))

    def rounded(self, actions: np.ndarray) -> np.ndarray:
        """Actions from numbers that are not `outside`, clipped to the bounds."""
        return np.clip(np.asarray(actions, np.float32), *float32_bounds(self.low, self.high))

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Float[Array, "... A"]:
        """Uniform actions, `shape` of them."""
        low, high = self.bounds()
        unit = jax.random.uniform(key, (*shape, *self.shape))
        return jnp.clip(_along(low, unit) + unit * _along(high - low, unit), _along(low, unit), _along(high, unit))

    def from_outputs(self, outputs: Float[Array, "A"]) -> Float[Array, "A"]:
        """The action for a policy network's outputs, squashed by tanh to the bounds."""
        return self.from_unit(jnp.tanh(outputs))

    def from_unit(self, unit: Float[Array, "A"]) -> Float[Array, "A"]:
        """The action for numbers scaled so that the bounds are ±1, clipped to the bounds."""
        low, high = self.bounds()
        return jnp.clip(0.5 * (low + high) + 0.5 * (high - low) * unit, low, high)

    def change(self, before: Any, after: Any) -> Any:
        """The difference of numbers [..., A] (JAX or NumPy), as a share of the width of their bounds: 0 to 1."""
        return abs(after - before) / np.subtract(self.high, self.low).astype(after.dtype)

    def limited(self, action: Float[Array, "A"], before: Float[Array, "A"], share: float) -> Float[Array, "A"]:
        """The nearest action whose `change` from `before` is at most `share` in every number."""
        low, high = self.bounds()
        return jnp.clip(action, before - share * (high - low), before + share * (high - low))

    def encode(self, action: Float[Array, "A"]) -> Float[Array, "A"]:
        """The action as model input."""
        return action

    def neutral(self) -> tuple[float, ...]:
        """Zero, or the nearest value within the bounds."""
        return tuple(np.clip(0.0, *float32_bounds(self.low, self.high)).tolist())


@dataclass(frozen=True)
class DiscreteActions:
    """Actions are A integers; number i is one of `start[i]`, …, `start[i] + num_values[i] - 1`.

    `scalar`: an action is a single integer, as in Gymnasium's Discrete; otherwise a vector, as in its MultiDiscrete.
    `ordered`: neighbouring values are similar actions, so a policy has one output per number, rounded to the nearest
    value; otherwise one output per value, and the largest wins. `names`: one for each number. Raises GussError if a
    dimension has no values or lengths differ.

    Example:
        >>> guss.DiscreteActions(num_values=(3,), scalar=True).sample(jax.random.key(0)).shape
        ()
    """

    num_values: tuple[int, ...]
    start: tuple[int, ...] | None = None
    scalar: bool = False
    ordered: bool = False
    names: Names = field(default=None, compare=False, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.start is None:
            object.__setattr__(self, "start", (0,) * len(self.num_values))
        if not self.num_values or min(self.num_values) < 1:
            raise GussError(f"discrete actions need at least one value in every dimension, got {self.num_values}")
        if len(self.first) != len(self.num_values):
            raise GussError(f"start {self.start} and num_values {self.num_values} must have the same length")
        if self.scalar and len(self.num_values) != 1:
            raise GussError(f"a scalar action has one dimension, got num_values {self.num_values}")
        _check_names(self, "action", len(self.num_values))

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of every number of an action."""
        return _action_labels(self.names, len(self.num_values))

    @property
    def first(self) -> tuple[int, ...]:
        """The smallest value of each dimension."""
        assert self.start is not None  # set in __post_init__
        return self.start

    @property
    def shape(self) -> tuple[int, ...]:
        return () if self.scalar else (len(self.num_values),)

    @property
    def dtype(self) -> Any:
        """Type of an action's numbers."""
        return jnp.int32

    @property
    def num_outputs(self) -> int:
        """How many outputs a policy network needs."""
        return len(self.num_values) if self.ordered else sum(self.num_values)

    def outside(self, actions: np.ndarray) -> np.ndarray:
        """Mask of numbers [..., A] ([...] for scalar actions) that are not among the values."""
        first = np.asarray(self.first).reshape(self.shape)
        last = first + np.asarray(self.num_values).reshape(self.shape) - 1
        return np.asarray(~((actions >= first) & (actions <= last) & (actions == np.round(actions))))

    def rounded(self, actions: np.ndarray) -> np.ndarray:
        """Actions from numbers that are not `outside`."""
        return np.asarray(actions, np.int32)

    def from_indices(self, indices: Int[Array, "... A"]) -> Int[Array, "..."]:
        """Actions from indices of their values, which start at 0."""
        actions = indices.astype(jnp.int32) + _along(jnp.asarray(self.first, jnp.int32), indices)
        return actions[..., 0] if self.scalar else actions

    def to_indices(self, actions: Int[Array, "..."]) -> Int[Array, "... A"]:
        """Indices of the actions' values, which start at 0."""
        vectors = actions[..., None] if self.scalar else actions
        return vectors - _along(jnp.asarray(self.first, jnp.int32), vectors)

    def sample(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Int[Array, "..."]:
        """Uniform actions, `shape` of them."""
        unit = jax.random.uniform(key, (*shape, len(self.num_values)))  # as good as randint here, and twice as fast
        counts = _along(jnp.asarray(self.num_values, jnp.float32), unit)
        return self.from_indices(jnp.minimum(jnp.floor(unit * counts), counts - 1.0).astype(jnp.int32))

    def from_outputs(self, outputs: Float[Array, "O"]) -> Int[Array, "..."]:
        """The action for a policy network's outputs: rounded if values are ordered, else the largest wins."""
        if self.ordered:
            top = jnp.asarray([n - 1 for n in self.num_values], jnp.float32)
            return self.from_indices(jnp.rint((jnp.clip(outputs, -1.0, 1.0) + 1.0) * 0.5 * top).astype(jnp.int32))
        splits = [sum(self.num_values[: i + 1]) for i in range(len(self.num_values) - 1)]
        return self.from_indices(jnp.stack([jnp.argmax(part) for part in jnp.split(outputs, splits)]))

    def change(self, before: Any, after: Any) -> Any:
        """Which numbers [..., A] ([...] for scalar actions) differ: 1 if they do, else 0."""
        return (after != before).astype(float)

    def encode(self, action: Int[Array, "..."]) -> Float[Array, "O"]:
        """The action as model input: ordered values scaled to [−1, 1], others one-hot."""
        indices = self.to_indices(action)
        if self.ordered:
            top = jnp.asarray([max(n - 1, 1) for n in self.num_values], jnp.float32)
            return 2.0 * indices.astype(jnp.float32) / top - 1.0
        return jnp.concatenate([jax.nn.one_hot(indices[i], n) for i, n in enumerate(self.num_values)])

    def neutral(self) -> tuple[int, ...]:
        """Zero, or the nearest of the values."""
        return tuple(min(max(0, s), s + n - 1) for s, n in zip(self.first, self.num_values, strict=True))


Actions = ContinuousActions | DiscreteActions


def _along(vector: Array, like: Array) -> Array:
    """`vector` with leading axes of size 1, so that it broadcasts along the last axis of `like`."""
    return vector.reshape((1,) * (like.ndim - 1) + vector.shape)


Space = TypeVar("Space", bound=Observations | ContinuousActions | DiscreteActions)


def named(space: Space, names: Any) -> Space:
    """The space with these names, unless it has names or their number differs from its dimensions.

    Names may come from an environment inside a wrapper that changes the dimensions.
    """
    if space.names is not None or names is None or len(names) != len(space.labels):
        return space
    return replace(space, names=tuple(names))


def _action_labels(names: Names, size: int) -> tuple[str, ...]:
    return names or (("action",) if size == 1 else tuple(f"action {i}" for i in range(size)))


def _check_names(space: Any, kind: str, size: int) -> None:
    """Check that names are distinct texts, one per dimension; a list becomes a tuple."""
    if space.names is None:
        return
    names = (space.names,) if isinstance(space.names, str) else tuple(space.names)
    if not all(isinstance(name, str) and name.strip() for name in names) or len(set(names)) != len(names):
        raise GussError(f"{kind} names must be distinct, non-empty texts, got {list(names)}")
    if len(names) != size:
        raise GussError(f"{kind} names: expected {size}, one for each dimension, got {len(names)}: {list(names)}")
    object.__setattr__(space, "names", names)


def _check_bounds(kind: str, low: tuple[float, ...], high: tuple[float, ...], finite: bool) -> None:
    if len(low) != len(high) or not low:
        raise GussError(f"{kind} bounds need the same positive length, got {len(low)} low and {len(high)} high")
    for i, (a, b) in enumerate(zip(low, high, strict=True)):
        if not a < b or (finite and not (abs(a) < float("inf") and abs(b) < float("inf"))):
            wanted = "finite with low < high" if finite else "low < high"
            raise GussError(f"{kind} bounds of dimension {i} must be {wanted}, got [{a}, {b}]")


def float32_bounds(low: Sequence[float], high: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """The smallest and the largest float32 within [low, high], in every dimension."""
    lowest, highest = np.asarray(low, np.float64), np.asarray(high, np.float64)
    far = np.maximum(np.abs(lowest), np.abs(highest)) > MOST
    if far.any():
        i = int(np.argmax(far))
        raise GussError(f"action bounds of dimension {i} must be within ±{MOST:.3g}, got [{low[i]}, {high[i]}]")
    least, greatest = _up(lowest), 0.0 - _up(-highest)  # never −0
    close = greatest - least < TINY
    if close.any():
        i = int(np.argmax(close))
        raise GussError(
            f"action bounds of dimension {i} are too close for float32, in which actions are computed: "
            f"[{low[i]!r}, {high[i]!r}]; shift or scale the action, so that its bounds are like [-1, 1]"
        )
    return least, greatest


def _up(exact: np.ndarray) -> np.ndarray:
    """The smallest float32 that is not below `exact`, and not between 0 and ±TINY."""
    normal = np.where(np.abs(exact) >= TINY, exact, np.where(exact > 0.0, TINY, 0.0))
    near = normal.astype(np.float32)
    return np.where(near < normal, np.nextafter(near, np.float32(np.inf)), near)


def check_smooth(task: str, actions: Actions, smoothness: float, max_change: float | None) -> None:
    """Raise unless these are a valid price and limit on the change of these actions."""
    if not 0.0 <= smoothness < float("inf"):
        raise GussError(f"task {task!r}: smoothness must be finite and at least 0, got {smoothness!r}")
    if max_change is None:
        return
    if not 0.0 < max_change <= 1.0:
        raise GussError(
            f"task {task!r}: max_change must be more than 0 and at most 1, a share of the width of the action bounds, "
            f"or None for no limit; got {max_change!r}"
        )
    if not isinstance(actions, ContinuousActions):
        raise GussError(
            f"task {task!r}: max_change needs continuous actions, got {actions}; smoothness, a price on changes, also "
            f"applies to discrete actions"
        )
