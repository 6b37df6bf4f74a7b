"""Layers, activations and the encoding of actions, shared by the networks of all models."""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from guss.types import Actions, ContinuousActions


def silu(x: Array) -> Array:
    """x·σ(x), with the sigmoid computed by tanh: a third faster on a CPU than by exp, and equal up to 1e-6."""
    return x * (0.5 + 0.5 * jnp.tanh(0.5 * x))


@jax.custom_jvp
def softplus(x: Array) -> Array:
    """log(1 + eˣ) and its gradient, by functions that are fast on a CPU; equal up to 1e-6."""
    return jnp.maximum(x, 0.0) + jnp.log(1.0 + jnp.exp(-jnp.abs(x)))


@softplus.defjvp
def _softplus_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return softplus(primals[0]), (0.5 + 0.5 * jnp.tanh(0.5 * primals[0])) * tangents[0]


ACTIVATIONS = {"silu": silu, "relu": jax.nn.relu, "tanh": jnp.tanh}
Activation = Literal["silu", "relu", "tanh"]


class Layer(NamedTuple):
    """One layer of L stacked nets."""

    weight: Float[Array, "L fan_in fan_out"]
    bias: Float[Array, "L fan_out"]


class Dense(NamedTuple):
    """One layer of a single net."""

    weight: Float[Array, "fan_in *fan_out"]
    bias: Float[Array, "*fan_out"]


def encoded(actions: Actions, action: Shaped[Array, "..."]) -> Float[Array, "A"]:
    """An action as model input: continuous values scaled from their bounds to [−1, 1], discrete choices one-hot.

    `actions`: the Task's actions. `action`: one action, of shape `actions.shape`. Returns a vector with one number per
    dimension, or per choice.

    Example:
        >>> guss.encoded(guss.DiscreteActions(num_values=(3,), scalar=True), jnp.int32(1)).tolist()
        [0.0, 1.0, 0.0]
    """
    numbers = actions.encode(action)
    if isinstance(actions, ContinuousActions):
        low, high = actions.bounds()
        numbers = 2.0 * (numbers - low) / (high - low) - 1.0
    return numbers
