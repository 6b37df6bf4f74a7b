"""Dominated novelty search: a population of fixed size whose members differ in behaviour, without cells or bounds.

The survivors of a generation are the candidates that are far, in descriptor space, from all fitter ones (Bahlous-Boldi
et al., 2025, arXiv:2502.00593). "Fitter" is the order of `risk.better`; of two equal candidates the earlier is fitter.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from guss import risk
from guss.planners.archive import Archive, write
from guss.types import Scores

LARGEST = 1e15
"""Numbers of descriptors are limited to this: their squares and sums are finite."""
VARIES = 1e-6
"""A dimension varies if its standard deviation is more than this share of its largest value; less may be rounding."""


def most_novel(archive: Archive, new: Scores, *, population: int, nearest: int) -> Bool[Array, "M"]:
    """The survivors among the population and the newcomers: those with the highest competition fitness.

    With `population` and `nearest` (k) fixed, this is a `Rule` of an archive that stores descriptors. Distances are
    standardised over all candidates of the plan so far. The cost of a generation does not depend on the budget.
    """
    capacity, num = archive.elite.shape[0], new.reward.shape[0]
    scores: Scores = jax.tree.map(lambda rows, block: write(rows, block, archive.size), archive.scores, new)
    evaluated = scores.finite & (jnp.arange(capacity) < archive.size + num)
    assert scores.descriptor is not None
    _, scale = centre_and_scale(scores.descriptor, evaluated)

    members, old = jax.lax.top_k(archive.elite.astype(jnp.int32), min(population, capacity))
    rows = jnp.concatenate([old, archive.size + jnp.arange(num, dtype=old.dtype)])  # in order of arrival
    candidates: Scores = jax.tree.map(lambda x: x[rows], scores)
    alive = jnp.concatenate([members > 0, new.finite])
    fitness = competition_fitness(candidates, scale, alive, nearest)

    best, places = jax.lax.top_k(fitness, min(population, rows.shape[0]))  # in a tie, the earlier survives
    kept = jnp.where(best > -jnp.inf, rows[places], capacity)
    return jnp.zeros((capacity,), bool).at[kept].set(True, mode="drop")


def competition_fitness(
    scores: Scores, scale: Float[Array, "F"], alive: Bool[Array, "N"], nearest: int
) -> Float[Array, "N"]:
    """Mean distance to the `nearest` nearest fitter candidates; ∞ for the best, −∞ for candidates that are not alive.

    Candidates are in order of arrival. If there are fewer fitter ones, the mean is over those.
    """
    one: Scores = jax.tree.map(lambda x: x[:, None], scores)
    other: Scores = jax.tree.map(lambda x: x[None, :], scores)
    order = jnp.arange(alive.shape[0])
    earlier = order[None, :] < order[:, None]
    fitter = alive[None, :] & (risk.better(other, one) | (earlier & ~risk.better(one, other)))

    difference = jnp.clip(one.descriptor, -LARGEST, LARGEST) - jnp.clip(other.descriptor, -LARGEST, LARGEST)
    distance = jnp.sqrt(jnp.sum((difference / scale[None, None]) ** 2, axis=-1))
    closest = -jax.lax.top_k(jnp.where(fitter, -distance, -jnp.inf), min(nearest, alive.shape[0]))[0]
    there = jnp.isfinite(closest)
    total, count = jnp.sum(jnp.where(there, closest, 0.0), axis=1), jnp.sum(there, axis=1)
    mean = jnp.where(count > 0, total / jnp.maximum(count, 1).astype(jnp.float32), jnp.inf)
    return jnp.where(alive, mean, -jnp.inf)


def centre_and_scale(
    values: Float[Array, "N *steps F"], among: Bool[Array, "N"]
) -> tuple[Float[Array, "*steps F"], Float[Array, "F"]]:
    """Mean of the rows `among`, and their standard deviation in each dimension of the last axis; ∞ if it is constant.

    Axes in between, such as the steps of a trajectory, have means of their own, and the scale in common.
    """
    values = jnp.clip(values, -LARGEST, LARGEST)
    among = among.reshape((-1,) + (1,) * (values.ndim - 1))
    count = jnp.maximum(jnp.sum(among), 1).astype(jnp.float32)
    centre = jnp.sum(jnp.where(among, values, 0.0), axis=0) / count
    axes = tuple(range(values.ndim - 1))
    steps = values[0, ..., 0].size
    square = jnp.sum(jnp.where(among, (values - centre[None]) ** 2, 0.0), axis=axes) / (count * steps)
    largest = jnp.max(jnp.where(among, jnp.abs(values), 0.0), axis=axes)
    scale = jnp.sqrt(square)
    return centre, jnp.where(scale > VARIES * largest, scale, jnp.inf)
