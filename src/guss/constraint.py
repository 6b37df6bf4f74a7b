"""Constraints (named costs), and functions whose parameters can change without recompilation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from guss.errors import GussError, UnknownNameError
from guss.validation import received


class Function(eqx.Module):
    """A function with named array parameters, which can change without recompilation. Created by `with_params`."""

    fn: Callable[..., Any] = eqx.field(static=True)
    params: dict[str, Any]

    def __call__(self, *args: Any) -> Any:
        return self.fn(*args, **self.params)


def with_params(fn: Callable[..., Any], **params: Any) -> Function:
    """Bind named parameters to a task function: `with_params(too_hot, limit=27.0)` calls `too_hot(..., limit=…)`.

    `fn`: a module-level function of jax.numpy operations. `params`: numbers or arrays, which can change between plans
    without recompilation. Returns a function to pass to `Task` or `Constraint`. Raises GussError if a parameter is not
    numeric.

    Example:
        >>> def too_hot(obs, action, next_obs, limit):
        ...     return next_obs[0] > limit
        >>> bool(guss.with_params(too_hot, limit=27.0)(None, None, jnp.array([30.0])))
        True
    """
    return Function(fn, {name: _array(name, value) for name, value in params.items()})


def _array(name: str, value: Any) -> Array:
    """A parameter as a float32, int32 or bool array."""
    if isinstance(value, jax.Array):
        return value
    array = np.asarray(value)
    kinds = {"f": jnp.float32, "i": jnp.int32, "u": jnp.int32, "b": jnp.bool_}
    if array.dtype.kind not in kinds:
        raise GussError(f"parameter {name!r} must be a number or an array of numbers, got {value!r}")
    return jnp.asarray(array, kinds[array.dtype.kind])


def changed_parameter(function: str, name: str, value: Any, old: Mapping[str, Array]) -> Array:
    """A new value of a parameter, with the shape and dtype of the old value."""
    if name not in old:
        raise UnknownNameError(f"parameter of {function!r}", name, old)
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "fiub" or np.isnan(np.asarray(array, float)).any():
        raise GussError(f"parameter {name!r} of {function!r} must be a number, got {received(value)}")
    if array.shape != old[name].shape:
        raise GussError(f"parameter {name!r} of {function!r} must keep its shape {old[name].shape}, got {array.shape}")
    return jnp.asarray(array, old[name].dtype)


def as_function(fn: Any) -> Function:
    """`fn` as a Function; a plain function has no parameters."""
    if isinstance(fn, Function):
        return fn
    if not callable(fn):
        raise GussError(f"a task function must be callable, got {fn!r}")
    return Function(fn, {})


def at_least(probability: Array, threshold: Array) -> Array:
    """A learned cost: unsafe if its probability reaches the threshold."""
    return probability >= threshold


class Constraint(eqx.Module):
    """A named cost, `cost(obs, action, next_obs) -> number`: 1 if the step is unsafe, else 0.

    Without a cost function, the cost is learned from reported costs: a predicted step is unsafe if its probability of
    being unsafe is `threshold` or more; a planning margin lowers the threshold. By default, a cost is learned if it has
    no function; `learned` overrides this.

    A soft constraint allows a plan `bound` unsafe steps at no cost. A violation of a `hard` constraint ranks worse than
    any soft cost and ends the real episode (an emergency stop). Raises GussError if `name` is empty, `bound` is
    negative, or `stricter` names an unknown parameter.

    Example:
        >>> def too_far(obs, action, next_obs, limit):
        ...     return next_obs[0] > limit
        >>> far = guss.Constraint("too_far", guss.with_params(too_far, limit=2.0), stricter={"limit": -1.0})
        >>> float(far.with_margin(0.5).cost.params["limit"])
        1.5
    """

    name: str = eqx.field(static=True)
    cost: Function
    bound: Float[Array, ""]
    hard: bool = eqx.field(static=True)
    stricter: tuple[tuple[str, float], ...] = eqx.field(static=True)
    learned: bool = eqx.field(static=True)

    def __init__(
        self,
        name: str,
        cost: Callable[..., Any] | None = None,
        *,
        bound: float | Array = 0.0,
        hard: bool = False,
        stricter: Mapping[str, float] | Sequence[tuple[str, float]] = (),
        threshold: float = 0.1,
        learned: bool | None = None,
    ) -> None:
        """`stricter`: the parameters of the cost that a planning margin changes, and by how much for a margin of 1.

        With `stricter={"limit": -1.0}` and a margin of 0.5, plans are scored with a limit lower by 0.5.
        """
        self.name = name
        self.learned = cost is None if learned is None else learned
        if cost is None:
            cost, stricter = with_params(at_least, threshold=threshold), {"threshold": -1.0}
        self.cost = as_function(cost)
        self.bound = jnp.asarray(bound, jnp.float32)
        self.hard = hard
        self.stricter = tuple((k, float(v)) for k, v in dict(stricter).items())
        self.check_parameters({"threshold": threshold})

    def __check_init__(self) -> None:
        if not self.name or not isinstance(self.name, str):
            raise GussError(f"a constraint needs a name, got {self.name!r}")
        if self.bound.shape != () or not 0.0 <= float(self.bound) < math.inf:
            raise GussError(
                f"constraint {self.name!r}: the bound must be a number of steps, 0 or more, got {self.bound}"
            )
        if self.hard and float(self.bound) != 0.0:
            raise GussError(f"constraint {self.name!r}: a hard constraint has no bound, got {float(self.bound)}")
        for name, _ in self.stricter:
            if name not in self.cost.params:
                raise UnknownNameError(f"parameter of constraint {self.name!r}", name, self.cost.params)

    def check_parameters(self, values: Mapping[str, Any]) -> None:
        """Check that the threshold of a learned cost is a probability and `low` is not above `high`."""
        if self.learned and not 0.0 < float(values.get("threshold", 0.5)) < 1.0:
            raise GussError(
                f"constraint {self.name!r}: the threshold must be a probability, 0 < p < 1, got {values['threshold']}"
            )
        if {"low", "high"} <= set(values) and np.any(np.asarray(values["low"]) > np.asarray(values["high"])):
            raise GussError(
                f"constraint {self.name!r}: low must not be above high, got {values['low']} and {values['high']}"
            )

    def with_margin(self, margin: float) -> Constraint:
        """A copy that is stricter by a margin."""
        if not 0.0 <= margin < math.inf:
            raise GussError(f"constraint {self.name!r}: a planning margin must be 0 or more, got {margin}")
        if not self.stricter and margin > 0.0:
            raise GussError(
                f"constraint {self.name!r} does not specify which of its parameters a planning margin changes; declare "
                f"it, for example: Constraint({self.name!r}, with_params(…, limit=…), stricter={{'limit': -1.0}})"
            )
        moved = {name: self.cost.params[name] + jnp.float32(margin * by) for name, by in self.stricter}
        if self.learned and float(moved["threshold"]) <= 0.0:
            raise GussError(
                f"constraint {self.name!r} is learned: the planning margin is subtracted from its probability "
                f"threshold ({float(self.cost.params['threshold']):g}), so the margin must be smaller than the "
                f"threshold, got {margin:g}"
            )
        return eqx.tree_at(lambda c: c.cost.params, self, {**self.cost.params, **moved})
