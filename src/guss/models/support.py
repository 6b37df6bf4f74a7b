"""The support of the training data: far from it, predictions are extrapolations, however certain the model is."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from guss.models.scaling import Scaling

NUM_POINTS = 256
"""States sampled from the training data."""
QUANTILE = 0.99
EDGE = 0.1
"""The observed range is widened by this share of its width."""
NOWHERE = 1e6
"""Coordinates of rows without a point, in standard deviations: never the nearest."""


class Support(eqx.Module):
    """A sample of the observed states, and their range in every dimension.

    A state is unfamiliar outside of this range, or if it is further than `radius` from the nearest point of the sample.
    """

    scaling: Scaling
    points: Float[Array, "K D"]  # standardised
    radius: Float[Array, ""]
    low: Float[Array, "D"]  # the observed range, a little wider
    high: Float[Array, "D"]

    @classmethod
    def empty(cls, size: int) -> Support:
        """No data: every state is unfamiliar."""
        return cls(
            Scaling.identity(size),
            jnp.full((NUM_POINTS, size), NOWHERE, jnp.float32),
            jnp.zeros(()),
            *[jnp.zeros(size)] * 2,
        )

    @classmethod
    def of(cls, obs: Float[Array, "rows D"], use: Bool[Array, "rows"], key: PRNGKeyArray, reach: float) -> Support:
        """The support of the rows in use.

        The radius is `reach` times the 0.99 quantile of the points' distances to their nearest neighbours: small for
        dense data, large for sparse data.
        """
        scaling = Scaling.of(obs, use)
        lots = jnp.where(use, jax.random.uniform(key, use.shape), -1.0)
        kept = min(NUM_POINTS, obs.shape[0])
        drawn, rows = jax.lax.top_k(lots, kept)
        there = jnp.pad(drawn >= 0.0, (0, NUM_POINTS - kept))
        points = jnp.pad(jax.vmap(scaling)(obs[rows]), ((0, NUM_POINTS - kept), (0, 0)))
        points = jnp.where(there[:, None], points, NOWHERE)
        apart = jax.vmap(lambda point: _squared_distances(points, point))(points)
        nearest = jnp.sqrt(jnp.min(apart + jnp.diag(jnp.full(NUM_POINTS, NOWHERE**2)), axis=1))
        count = jnp.sum(there, dtype=jnp.int32)
        rank = jnp.clip((QUANTILE * count.astype(jnp.float32)).astype(jnp.int32), 0, jnp.maximum(count - 1, 0))
        usual = jnp.sort(jnp.where(there, nearest, jnp.inf))[rank]
        low = jnp.min(jnp.where(use[:, None], obs, jnp.inf), axis=0)
        high = jnp.max(jnp.where(use[:, None], obs, -jnp.inf), axis=0)
        wider = EDGE * (high - low)
        return cls(scaling, points, jnp.where(count > 1, reach * usual, 0.0), low - wider, high + wider)

    def unfamiliar(self, obs: Float[Array, "D"]) -> Float[Array, ""]:
        """1 if a state is beyond the observed range of a dimension, or further from all points than the radius."""
        nearest = jnp.min(_squared_distances(self.points, self.scaling(obs)))
        inside = jnp.all((obs >= self.low) & (obs <= self.high))
        return (~((nearest <= self.radius**2) & inside)).astype(jnp.float32)  # also if it is not finite


def _squared_distances(points: Float[Array, "K D"], state: Float[Array, "D"]) -> Float[Array, "K"]:
    """Computed by one product, which is one large operation under `vmap`."""
    squares = jnp.sum(points**2, axis=1) + jnp.sum(state**2) - 2.0 * points @ state
    return jnp.maximum(squares, 0.0)
