"""Standardisation: shift and scale so that training data have mean 0 and standard deviation 1."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Scaling(eqx.Module):
    """Per dimension, standardised = (x − mean) / std.

    `mean`, `std`: D numbers each; `Scaling.of(rows, use)` computes them from data, `undo` is the inverse.

    Example:
        >>> scaling = guss.Scaling(mean=jnp.array([1.0]), std=jnp.array([2.0]))
        >>> scaling(jnp.array([5.0])).tolist(), scaling.undo(jnp.array([2.0])).tolist()
        ([2.0], [5.0])
    """

    mean: Float[Array, "D"]
    std: Float[Array, "D"]

    @classmethod
    def identity(cls, size: int) -> Scaling:
        return cls(jnp.zeros(size), jnp.ones(size))

    @classmethod
    def of(cls, rows: Float[Array, "rows D"], use: Bool[Array, "rows"]) -> Scaling:
        """The scaling of the rows in use; a constant dimension keeps its scale."""
        weight = use[:, None].astype(jnp.float32)
        total = jnp.maximum(jnp.sum(weight), 1.0)
        mean = jnp.sum(rows * weight, axis=0) / total
        std = jnp.sqrt(jnp.sum((rows - mean[None]) ** 2 * weight, axis=0) / total)
        return cls(mean, jnp.where(std > 1e-6, std, 1.0))

    def __call__(self, x: Float[Array, "D"]) -> Float[Array, "D"]:
        return (x - self.mean) / self.std

    def undo(self, x: Float[Array, "D"]) -> Float[Array, "D"]:
        return x * self.std + self.mean
