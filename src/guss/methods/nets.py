"""Small networks, standardisation of their inputs, Adam steps, and Gaussian and categorical policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from guss.models.layers import Dense
from guss.types import Actions, ContinuousActions

Activation = Callable[[Array], Array]
Net = tuple[Dense, ...]
LOG_2PI = 1.8378770664093453
FURTHEST = 10.0  # standardised observations are clipped to ± this


def make_net(key: PRNGKeyArray, sizes: Sequence[int], last: float = 1.0) -> Net:
    """Layers of these sizes with Glorot uniform weights; `last` scales the weights of the last layer."""
    keys = jax.random.split(key, len(sizes) - 1)
    start = jax.nn.initializers.glorot_uniform()
    layers = [
        Dense(start(k, (fan_in, fan_out), jnp.float32), jnp.zeros(fan_out))
        for k, (fan_in, fan_out) in zip(keys, pairwise(sizes), strict=True)
    ]
    return (*layers[:-1], Dense(layers[-1].weight * last, layers[-1].bias))


def apply_net(net: Net, x: Float[Array, "*lead fan_in"], activation: Activation) -> Float[Array, "*lead fan_out"]:
    """The network's outputs for one input or a batch."""
    for i, layer in enumerate(net):
        x = x @ layer.weight
        x = x + layer.bias.reshape((1,) * (x.ndim - 1) + layer.bias.shape)
        if i < len(net) - 1:
            x = activation(x)
    return x


def adam_step(weights: Any, gradient: Any, optimiser: Any, rate: float) -> tuple[Any, Any]:
    with jax.numpy_dtype_promotion("standard"):  # optax raises a float to an integer power
        update, optimiser = optax.scale_by_adam().update(gradient, optimiser)
    return jax.tree.map(lambda w, u: w - rate * u, weights, update), optimiser


class Running(NamedTuple):
    """Running mean and variance of observations."""

    seen: Float[Array, ""]
    mean: Float[Array, "D"]
    variance: Float[Array, "D"]

    def add(self, rows: Float[Array, "N D"], weight: Float[Array, "N"]) -> Running:
        """Add rows; rows of weight 0 are ignored (Chan's formula)."""
        fresh = jnp.sum(weight)
        mean = jnp.sum(rows * weight[:, None], axis=0) / fresh
        variance = jnp.sum((rows - mean[None]) ** 2 * weight[:, None], axis=0) / fresh
        total = self.seen + fresh
        share = fresh / total
        apart = mean - self.mean
        spread = (1.0 - share) * self.variance + share * variance + share * (1.0 - share) * apart**2
        first = self.seen == 0.0  # then the initial scale is ignored, which may be huge
        return Running(total, jnp.where(first, mean, self.mean + share * apart), jnp.where(first, variance, spread))

    def standardised(self, rows: Float[Array, "*lead D"]) -> Float[Array, "*lead D"]:
        """Standard deviations from the mean, clipped to ±FURTHEST."""
        std = jnp.sqrt(self.variance + 1e-8)
        return jnp.clip((rows - _along(self.mean, rows)) / _along(std, rows), -FURTHEST, FURTHEST)


class Choice(NamedTuple):
    """A policy's distributions over actions, for a batch of observations."""

    outputs: Float[Array, "*lead O"]
    """Means of a Gaussian, or logits."""
    log_std: Float[Array, "A"] | None
    """Of a Gaussian; the same for all observations."""


class Policy(eqx.Module):
    """A stochastic policy π(a | s). Continuous actions are Gaussian, scaled so that their bounds are ±1, and clipped
    only when they are executed; each dimension of a discrete action is categorical."""

    net: Net
    log_std: Float[Array, "A"] | None
    actions: Actions = eqx.field(static=True)

    @classmethod
    def make(cls, key: PRNGKeyArray, obs_size: int, actions: Actions, hidden: Sequence[int], log_std: float) -> Policy:
        """An untrained policy, whose outputs are near 0."""
        continuous = isinstance(actions, ContinuousActions)
        outputs = len(actions.low) if isinstance(actions, ContinuousActions) else sum(actions.num_values)
        net = make_net(key, (obs_size, *hidden, outputs), last=0.01)
        return cls(net, jnp.full(outputs, log_std, jnp.float32) if continuous else None, actions)

    def choice(self, obs: Float[Array, "*lead D"]) -> Choice:
        return Choice(apply_net(self.net, obs, jnp.tanh), self.log_std)

    def sample(self, obs: Float[Array, "D"], key: PRNGKeyArray) -> Shaped[Array, "A"]:
        """One raw action: before clipping, or as indices of discrete values."""
        choice = self.choice(obs)
        if choice.log_std is not None:
            return choice.outputs + jnp.exp(choice.log_std) * jax.random.normal(key, choice.outputs.shape)
        keys = jax.random.split(key, len(self._parts()))
        picks = [jax.random.categorical(k, part) for k, part in zip(keys, self._split(choice.outputs), strict=True)]
        return jnp.stack(picks).astype(jnp.int32)

    def executed(self, raw: Shaped[Array, "A"]) -> Shaped[Array, "..."]:
        """A raw action as the system receives it."""
        if isinstance(self.actions, ContinuousActions):
            return self.actions.from_unit(raw)
        return self.actions.from_indices(raw)

    def log_prob(self, choice: Choice, raw: Shaped[Array, "*lead A"]) -> Float[Array, "*lead"]:
        """log π of raw actions."""
        if choice.log_std is not None:
            log_std = _along(choice.log_std, raw)
            return -0.5 * jnp.sum(((raw - choice.outputs) * jnp.exp(-log_std)) ** 2 + 2.0 * log_std + LOG_2PI, axis=-1)
        logs = [
            jnp.take_along_axis(jax.nn.log_softmax(part), raw[..., i : i + 1], axis=-1)
            for i, part in enumerate(self._split(choice.outputs))
        ]
        return jnp.sum(jnp.concatenate(logs, axis=-1), axis=-1)

    def kl(self, old: Choice, new: Choice) -> Float[Array, "*lead"]:
        """KL(old ‖ new) for every observation."""
        if old.log_std is not None and new.log_std is not None:
            before, after = (_along(x, old.outputs) for x in (old.log_std, new.log_std))
            apart = (jnp.exp(2.0 * before) + (old.outputs - new.outputs) ** 2) * jnp.exp(-2.0 * after)
            return jnp.sum(after - before + 0.5 * apart - 0.5, axis=-1)
        total = jnp.zeros(old.outputs.shape[:-1])
        for p, q in zip(self._split(old.outputs), self._split(new.outputs), strict=True):
            p, q = jax.nn.log_softmax(p), jax.nn.log_softmax(q)
            total = total + jnp.sum(jnp.exp(p) * (p - q), axis=-1)
        return total

    def entropy(self, choice: Choice) -> Float[Array, "*lead"]:
        """Entropy of the policy for every observation."""
        if choice.log_std is not None:
            one = jnp.sum(choice.log_std + 0.5 * (1.0 + LOG_2PI))
            return jnp.broadcast_to(one, choice.outputs.shape[:-1])
        logs = [jax.nn.log_softmax(part) for part in self._split(choice.outputs)]
        return -sum((jnp.sum(jnp.exp(p) * p, axis=-1) for p in logs), jnp.zeros(choice.outputs.shape[:-1]))

    def _parts(self) -> tuple[int, ...]:
        return () if isinstance(self.actions, ContinuousActions) else self.actions.num_values

    def _split(self, logits: Float[Array, "*lead O"]) -> list[Float[Array, "..."]]:
        parts = self._parts()
        return jnp.split(logits, [sum(parts[: i + 1]) for i in range(len(parts) - 1)], axis=-1)


def _along(vector: Array, like: Array) -> Array:
    return vector.reshape((1,) * (like.ndim - 1) + vector.shape)
