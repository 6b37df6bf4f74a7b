"""Standardisation: shift and scale so that training data have mean 0 and standard deviation 1."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Scaling(eqx.Module):
    """Per dimension, standardised = (x − mean) / std."""

    mean: Float[Array, "D"]
    std: Float[Array, "D"]

    @classmethod
    def identity(cls, size: int) -> Scaling:
        """No change."""
        return cls(jnp.zeros(size), jnp.ones(size))

    @classmethod
    def of(cls, rows: Float[Array, "rows D"], use: Bool[Array, "rows"]) -> Scaling:
        """Of the rows in use; a dimension that does not vary keeps its scale."""
        weight = use[:, None].astype(jnp.float32)
        total = jnp.maximum(jnp.sum(weight), 1.0)
        mean = jnp.sum(rows * weight, axis=0) / total
        std = jnp.sqrt(jnp.sum((rows - mean[None]) ** 2 * weight, axis=0) / total)
        return cls(mean, jnp.where(std > 1e-6, std, 1.0))

    def __call__(self, x: Float[Array, "D"]) -> Float[Array, "D"]:
        """Standardise."""
        return (x - self.mean) / self.std

    def undo(self, x: Float[Array, "D"]) -> Float[Array, "D"]:
        """The inverse."""
        return x * self.std + self.mean
