"""Pareto fronts in an archive: every cell keeps all plans that no other plan of the cell dominates.

A plan dominates another if it has fewer hard violations, or as many, no more cost and no less reward (`risk.covers`).
Of two equal plans the first arrival stays. The archive has a row per evaluated plan, so a front may have any size.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from guss import risk
from guss.planners.archive import PAIRWISE_LIMIT, Archive, write
from guss.types import Scores

NOWHERE = jnp.iinfo(jnp.int32).max
"""Cell of rows that are on no front; it sorts behind all other cells."""


def fronts_of_cells(archive: Archive, new: Scores) -> Bool[Array, "M"]:
    """The rows on a front once the newcomers are written: pair by pair, or by sorting if there are too many pairs."""
    few = new.reward.shape[0] * archive.elite.shape[0] <= PAIRWISE_LIMIT
    return _fronts_by_pairs(archive, new) if few else _fronts_by_sorting(archive, new)


def _fronts_by_pairs(archive: Archive, new: Scores) -> Bool[Array, "M"]:
    """Compare every newcomer with every row of a front and with every other newcomer: O(N·M).

    Dominance is transitive, so rows that are no longer on a front need not be compared.
    """
    rows: Scores = jax.tree.map(lambda x: x[:, None], new)  # newcomers along axis 0
    old: Scores = jax.tree.map(lambda x: x[None, :], archive.scores)
    other: Scores = jax.tree.map(lambda x: x[None, :], new)

    rivals = (rows.cell == old.cell) & archive.elite[None, :]
    kept_out = rivals & risk.covers(old, rows)  # in a tie the first arrival stays
    beaten_old = rivals & rows.finite & risk.covers(rows, old) & ~kept_out

    order = jnp.arange(new.reward.shape[0])
    earlier = order[None, :] < order[:, None]
    beaten = risk.covers(other, rows) & (earlier | ~risk.covers(rows, other))
    beaten &= (rows.cell == other.cell) & other.finite

    wins = new.finite & ~jnp.any(kept_out, axis=1) & ~jnp.any(beaten, axis=1)
    return write(archive.elite & ~jnp.any(beaten_old, axis=0), wins, archive.size)


def _fronts_by_sorting(archive: Archive, new: Scores) -> Bool[Array, "M"]:
    """Sort by cell, hard violations, cost, reward; a row is on the front if its reward beats all before it in its cell.

    O(M log M) time and O(M) memory. Only rows with the fewest hard violations of their cell can be on the front.
    """
    marked = write(archive.elite, new.finite, archive.size)
    scores: Scores = jax.tree.map(lambda rows, block: write(rows, block, archive.size), archive.scores, new)
    row = jnp.arange(marked.shape[0], dtype=jnp.int32)
    keys = (jnp.where(marked, scores.cell, NOWHERE), scores.hard, scores.cost, -scores.reward, row)
    cell, hard, _, loss, row = jax.lax.sort(keys, num_keys=4)  # stable: equal scores stay in order of arrival
    opens = jnp.concatenate([jnp.ones((1,), bool), cell[1:] != cell[:-1]])

    def join(a: tuple[Array, Array, Array], b: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        """Join adjacent segments: whether a cell starts in them, and the lowest loss and first `hard` since then."""
        opens = a[0] | b[0]
        return opens, jnp.where(b[0], b[1], jnp.minimum(a[1], b[1])), jnp.where(b[0], b[2], a[2])

    _, lowest, fewest = jax.lax.associative_scan(join, (opens, loss, hard))
    before = jnp.concatenate([lowest[:1], lowest[:-1]])
    on_front = (cell != NOWHERE) & (hard == fewest) & (opens | (loss < before))
    return jnp.zeros_like(marked).at[row].set(on_front, unique_indices=True)


def filled_cells(archive: Archive) -> Int[Array, ""]:
    """How many cells have a front."""
    cells = jnp.sort(jnp.where(archive.elite, archive.scores.cell, NOWHERE))
    opens = jnp.concatenate([jnp.ones((1,), bool), cells[1:] != cells[:-1]])
    return jnp.sum(opens & (cells != NOWHERE), dtype=jnp.int32)
