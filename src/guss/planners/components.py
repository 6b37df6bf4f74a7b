"""Principal components of predicted trajectories: a descriptor of behaviour that nobody has to design.

The components are those of a plan's first generation. Power iteration on the matrix of its inner products finds them
in a fixed number of small products; LAPACK would run once for every seed of a batch.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from guss.planners.novelty import LARGEST, centre_and_scale

SQUARINGS = 6
"""The matrix of inner products is raised to the power 2^6: enough if the next component has 0.9 times the variance."""
LEAST_SHARE = 1e-5
"""Components with a smaller share of the variance are left out (0): they would be rounding errors."""

FARTHEST = 1e6
"""Limit of standardised observations, so that the projections of all trajectories are finite."""


class Components(NamedTuple):
    """A projection of trajectories [H, D] to C numbers."""

    centre: Float[Array, "H D"]
    scale: Float[Array, "D"]
    directions: Float[Array, "HD C"]  # orthonormal


def no_components(horizon: int, obs_size: int, num: int) -> Components:
    """Arrays of the right shapes, before there is a generation."""
    shape = (horizon, obs_size)
    return Components(jnp.zeros(shape), jnp.ones((obs_size,)), jnp.zeros((horizon * obs_size, num)))


def principal_components(paths: Float[Array, "N H D"], among: Bool[Array, "N"], num: int) -> Components:
    """The `num` directions in which the trajectories `among` differ most.

    Each observation is divided by its standard deviation around the mean trajectory, over all steps.
    """
    centre, scale = centre_and_scale(paths, among)
    left = jnp.where(among[:, None], _standardised(paths, centre, scale), 0.0)
    least = LEAST_SHARE * jnp.sum(left**2)

    def next_direction(left: Array, _: None) -> tuple[Array, Array]:
        direction = _first_direction(left, least)
        return left - jnp.outer(left @ direction, direction), direction

    _, directions = jax.lax.scan(next_direction, left, length=num)
    return Components(centre, scale, directions.T)


def project(components: Components, paths: Float[Array, "N H D"]) -> Float[Array, "N C"]:
    """The trajectories' coordinates along the components."""
    return _standardised(paths, components.centre, components.scale) @ components.directions


def _standardised(
    paths: Float[Array, "N H D"], centre: Float[Array, "H D"], scale: Float[Array, "D"]
) -> Float[Array, "N HD"]:
    offset = jnp.clip(paths, -LARGEST, LARGEST) - centre[None]
    return jnp.clip(offset / scale[None, None], -FARTHEST, FARTHEST).reshape(paths.shape[0], -1)


def _first_direction(rows: Float[Array, "N F"], least: Float[Array, ""]) -> Float[Array, "F"]:
    """The unit vector along which the rows vary most; 0 if they vary less than `least` along it."""

    def square(_: Array, products: Array) -> Array:
        products = products / jnp.maximum(jnp.trace(products), jnp.finfo(jnp.float32).tiny)
        return products @ products

    products = jax.lax.fori_loop(0, SQUARINGS, square, rows @ rows.T)
    direction = products[jnp.argmax(jnp.diagonal(products))] @ rows  # all its rows are nearly parallel
    unit = direction / jnp.maximum(jnp.linalg.norm(direction), jnp.finfo(jnp.float32).tiny)
    return jnp.where(jnp.sum((rows @ unit) ** 2) > least, unit, 0.0)
