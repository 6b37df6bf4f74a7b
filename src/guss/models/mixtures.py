"""Mixtures of Gaussians: density, moments, and the losses that fit them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from guss.models.training import FitSettings


class Mixture(NamedTuple):
    """K Gaussians with diagonal covariance; weights are [K] for whole vectors, or [D, K] per dimension."""

    log_weight: Float[Array, "*lead K"]
    mean: Float[Array, "..."]  # [K, D], or [D, K] per dimension
    log_std: Float[Array, "..."]


def log_density(mixture: Mixture, change: Float[Array, "D"]) -> Float[Array, ""]:
    """Log density of a standardised change: log Σ_k w_k Π_d N, or Σ_d log Σ_k w_dk N per dimension."""
    per_dimension = mixture.log_weight.ndim == 2
    target = change[:, None] if per_dimension else change[None, :]
    z = (target - mixture.mean) * jnp.exp(-mixture.log_std)
    terms = -0.5 * z**2 - mixture.log_std - 0.5 * jnp.log(2 * jnp.pi)
    if not per_dimension:
        terms = jnp.sum(terms, axis=1)
    return jnp.sum(jax.scipy.special.logsumexp(mixture.log_weight + terms, axis=-1))


def mixture_mean(mixture: Mixture) -> Float[Array, "D"]:
    if mixture.log_weight.ndim == 2:
        return jnp.sum(jnp.exp(mixture.log_weight) * mixture.mean, axis=1)
    return jnp.sum(jnp.exp(mixture.log_weight)[:, None] * mixture.mean, axis=0)


def mixture_variance(mixture: Mixture) -> Float[Array, "D"]:
    """Variance per dimension: within components and between them."""
    second = mixture._replace(mean=jnp.exp(2.0 * mixture.log_std) + mixture.mean**2)
    return mixture_mean(second) - mixture_mean(mixture) ** 2


def mixture_cdf(mixture: Mixture, change: Float[Array, "D"]) -> Float[Array, "D"]:
    """Cumulative distribution per dimension: uniform if the model is calibrated."""
    target = change[:, None] if mixture.log_weight.ndim == 2 else change[None, :]
    z = (target - mixture.mean) * jnp.exp(-mixture.log_std)
    return mixture_mean(mixture._replace(mean=jax.scipy.stats.norm.cdf(z)))


# ------------------------------------------------------------------------------------------------------------ losses


Loss = Callable[[Mixture, Array], Array]


def nll_of(mixture: Mixture, change: Float[Array, "D"]) -> Float[Array, ""]:
    return -log_density(mixture, change)


def squares_of(mixture: Mixture, change: Float[Array, "D"]) -> Float[Array, ""]:
    """Squared error of the mean."""
    return jnp.sum((mixture_mean(mixture) - change) ** 2)


def loss_of(mixture: Mixture, change: Float[Array, "D"], settings: FitSettings) -> Float[Array, ""]:
    """The loss of one standardised change under its predicted mixture."""
    if settings.loss == "nll":
        return nll_of(mixture, change)
    if settings.loss == "mse":
        still = mixture._replace(mean=jax.lax.stop_gradient(mixture.mean))  # the NLL trains only the spread
        return squares_of(mixture, change) + nll_of(still, change)
    variance = jax.lax.stop_gradient(mixture_variance(mixture)) ** settings.beta
    if mixture.log_weight.ndim == 2:  # per dimension (DARMDN)
        each = jax.vmap(lambda w, m, s, c: log_density(Mixture(w[None], m[None], s[None]), c[None]))
        return -jnp.sum(variance * each(*mixture, change))
    if mixture.log_weight.shape[0] == 1:  # one Gaussian: dimensions are independent
        split = Mixture(jnp.zeros((change.shape[0], 1)), mixture.mean.T, mixture.log_std.T)
        return loss_of(split, change, settings)
    return -jnp.mean(variance) * log_density(mixture, change)  # components couple the dimensions
