"""Distributions over action sequences, with sampling and refitting, shared by CEM, MPPI and iCEM.

Continuous actions: a normal per step and dimension. Discrete actions: a categorical per step and dimension.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from guss import risk
from guss.types import Actions, ContinuousActions, DiscreteActions, Scores


class Normal(NamedTuple):
    """Per step and action dimension, on actions scaled to [−1, 1]."""

    mean: Float[Array, "H A"]
    std: Float[Array, "H A"]


class Categorical(NamedTuple):
    """Per step and action dimension, over at most K values."""

    probs: Float[Array, "H A K"]


Distribution = Normal | Categorical


def uniform(actions: Actions, horizon: int, std: float) -> Distribution:
    """The first distribution: centred with the given spread, or all values equally likely."""
    if isinstance(actions, ContinuousActions):
        shape = (horizon, len(actions.low))
        return Normal(jnp.zeros(shape), jnp.full(shape, std, jnp.float32))
    most = max(actions.num_values)
    probs = jnp.asarray([[1.0 / n if k < n else 0.0 for k in range(most)] for n in actions.num_values])
    return Categorical(jnp.broadcast_to(probs, (horizon, *probs.shape)))


def draw(dist: Distribution, actions: Actions, key: PRNGKeyArray, num: int) -> Shaped[Array, "N H ..."]:
    if isinstance(dist, Normal):
        low, high = ((bound - dist.mean) / dist.std for bound in (-1.0, 1.0))
        unit = jax.random.truncated_normal(key, low[None], high[None], (num, *dist.mean.shape))
        return _from_unit(actions, jnp.clip(dist.mean[None] + dist.std[None] * unit, -1.0, 1.0))
    return _pick(dist, actions, jax.random.uniform(key, (num, *dist.probs.shape[:-1], 1)))


def perturb(dist: Distribution, actions: Actions, noise: Float[Array, "N H A"]) -> Shaped[Array, "N H ..."]:
    """Action sequences from standard normal noise, which may be correlated over time (unlike in `draw`).

    Continuous: mean + std · noise, clipped to the bounds (not truncated, so a bound itself is drawn often).
    Discrete: the inverse CDF of the categorical, at the normal CDF of the noise.
    """
    if isinstance(dist, Normal):
        return _from_unit(actions, jnp.clip(dist.mean[None] + dist.std[None] * noise, -1.0, 1.0))
    return _pick(dist, actions, jax.scipy.special.ndtr(noise)[..., None])


def _pick(dist: Categorical, actions: Actions, lots: Float[Array, "N H A 1"]) -> Int[Array, "N H ..."]:
    """Inverse transform sampling."""
    assert isinstance(actions, DiscreteActions)
    below = jnp.cumsum(dist.probs, axis=-1)[None]
    # Values beyond the last possible one have probability 0, so they are never drawn.
    return actions.from_indices(jnp.sum(lots * below[..., -1:] >= below[..., :-1], axis=-1, dtype=jnp.int32))


def refit(
    dist: Distribution, actions: Actions, elites: Shaped[Array, "E H ..."], weight: Float[Array, "E"], smoothing: float
) -> Distribution:
    """smoothing · old + (1 − smoothing) · elites; elites of weight 0 are ignored, and if all are, nothing changes."""
    total = jnp.sum(weight)
    share = (weight / jnp.maximum(total, 1.0))[:, None, None]
    if isinstance(dist, Normal):
        unit = _to_unit(actions, elites)
        mean = jnp.sum(share * unit, axis=0)
        std = jnp.sqrt(jnp.sum(share * (unit - mean[None]) ** 2, axis=0))
        new: Distribution = Normal(mean, jnp.maximum(std, 1e-4))
    else:
        assert isinstance(actions, DiscreteActions)
        hits = jax.nn.one_hot(actions.to_indices(elites), dist.probs.shape[-1])
        new = Categorical(jnp.sum(share[..., None] * hits, axis=0))
    blend = lambda old, fit: jnp.where(total > 0.0, smoothing * old + (1.0 - smoothing) * fit, old)  # noqa: E731
    return jax.tree.map(blend, dist, new)


def centre(dist: Distribution, actions: Actions) -> Shaped[Array, "H ..."]:
    """The mean sequence, or the most likely one of discrete actions."""
    if isinstance(dist, Normal):
        return _from_unit(actions, dist.mean)
    assert isinstance(actions, DiscreteActions)
    return actions.from_indices(jnp.argmax(dist.probs, axis=-1))


def shifted(dist: Distribution, first: Distribution, fresh: float = 0.5) -> Distribution:
    """The next plan's initial distribution: that of this plan, shifted by one step, with the spread of `first`.

    A categorical has no separate spread: it is mixed with `first`, whose weight is `fresh`.
    """
    shift = lambda now, start: jnp.concatenate([now[1:], start[-1:]])  # noqa: E731
    if isinstance(dist, Normal) and isinstance(first, Normal):
        return Normal(shift(dist.mean, first.mean), first.std)
    return jax.tree.map(lambda now, start: (1.0 - fresh) * shift(now, start) + fresh * start, dist, first)


def _from_unit(actions: Actions, unit: Array) -> Array:
    assert isinstance(actions, ContinuousActions)
    low, high = (b.reshape((1,) * (unit.ndim - 1) + b.shape) for b in actions.bounds())
    return jnp.clip(low + (unit + 1.0) * 0.5 * (high - low), low, high)


def _to_unit(actions: Actions, sequence: Array) -> Array:
    assert isinstance(actions, ContinuousActions)
    low, high = (b.reshape((1,) * (sequence.ndim - 1) + b.shape) for b in actions.bounds())
    return 2.0 * (sequence - low) / (high - low) - 1.0


def equal_parts(budget: int, parts: int) -> tuple[int, ...]:
    """Equal populations; the remainder goes to the first ones."""
    each, rest = divmod(budget, max(parts, 1))
    return tuple(each + (i < rest) for i in range(parts) if each + (i < rest) > 0)


def shrinking_parts(budget: int, parts: int, factor: float) -> tuple[int, ...]:
    """Populations that shrink by `factor`, and sum to the budget; the remainder of rounding goes to the first ones."""
    shares = [factor**-i for i in range(parts)]
    total = sum(shares)
    sizes = [int(budget * share / total) for share in shares]
    rest = budget - sum(sizes)
    return tuple(size + (i < rest) for i, size in enumerate(sizes) if size + (i < rest) > 0)


class SequenceState(NamedTuple):
    """The distribution, and the best sample so far with its scores."""

    dist: Distribution
    sample: Shaped[Array, "H ..."]
    scores: Scores


def ranking(scores: Scores) -> Int[Array, "N"]:
    """Positions from best to worst: hard violations, cost, reward, arrival."""
    order = jnp.arange(scores.reward.shape[0], dtype=jnp.int32)
    return jax.lax.sort((scores.hard, scores.cost, -scores.reward, order), num_keys=3)[-1]


def keep_best(state: SequenceState, candidate: Shaped[Array, "H ..."], scores: Scores) -> SequenceState:
    """Replace the best sample so far by the best of a generation, if that is strictly better."""
    improved = risk.better(scores, state.scores)
    pair = ((candidate, scores), (state.sample, state.scores))
    return SequenceState(state.dist, *jax.tree.map(lambda new, old: jnp.where(improved, new, old), *pair))


def nothing_yet(dist: Distribution, actions: Actions) -> SequenceState:
    """The state before the first generation: a distribution and no sample."""
    horizon = jax.tree.leaves(dist)[0].shape[0]
    return SequenceState(dist, jnp.zeros((horizon, *actions.shape), actions.dtype), risk.no_scores())
