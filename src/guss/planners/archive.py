"""The archive of MAP-Elites: the best candidate of every behaviour cell.

A whole generation is stored at once; the result is the same as if its candidates were stored one by one. The archive
has one row per plan of the budget, in the order in which plans are evaluated, and a mask of the current elites. Its
size depends on the budget, not on the number of cells. A row that is no longer the best of its cell stays in place and
is removed from the mask, so a generation is stored as one contiguous block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from guss import risk
from guss.types import Scores

PAIRWISE_LIMIT = 2**22
"""Up to this many pairs (new candidates × rows), all pairs are compared; above it, the new candidates are sorted."""


class Archive(NamedTuple):
    """M rows, the first `size` of them filled."""

    candidates: PyTree  # [M, …]
    scores: Scores  # [M]
    elite: Bool[Array, "M"]
    size: Int[Array, ""]

    @property
    def occupancy(self) -> Int[Array, ""]:
        return jnp.sum(self.elite, dtype=jnp.int32)


def empty(candidate: PyTree, capacity: int, descriptor_size: int | None = None) -> Archive:
    """An empty archive for `capacity` candidates with the shape of `candidate`; None: it stores no descriptors."""
    zeros = jnp.zeros((capacity,), jnp.float32)
    no = jnp.zeros((capacity,), bool)
    descriptors = None if descriptor_size is None else jnp.zeros((capacity, descriptor_size), jnp.float32)
    return Archive(
        candidates=jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape), x.dtype), candidate),
        scores=Scores(zeros, zeros, zeros, jnp.zeros((capacity,), jnp.int32), no, no, descriptors),
        elite=no,
        size=jnp.zeros((), jnp.int32),
    )


Rule = Callable[[Archive, Scores], Bool[Array, "M"]]
"""Returns which rows are elites after the new candidates, with these scores, were written."""


def best_of_cells(archive: Archive, new: Scores) -> Bool[Array, "M"]:
    """STORE of Alg. 5: an empty cell accepts any plan, a filled cell only a better one."""
    few = new.reward.shape[0] * archive.elite.shape[0] <= PAIRWISE_LIMIT
    return _elites_by_pairs(archive, new) if few else _elites_by_sorting(archive, new)


def store(archive: Archive, candidates: PyTree, scores: Scores, rule: Rule = best_of_cells) -> Archive:
    """STORE (Alg. 5) for a whole generation; `rule` determines which rows are elites.

    Plans with non-finite predictions never become elites. In a tie, the earlier candidate is kept, also within a
    generation. The result is therefore the same as if the candidates were stored one by one, in the order of the rows.
    """
    return Archive(
        candidates=jax.tree.map(lambda rows, new: write(rows, new, archive.size), archive.candidates, candidates),
        scores=jax.tree.map(lambda rows, new: write(rows, new, archive.size), archive.scores, scores),
        elite=rule(archive, scores),
        size=archive.size + scores.reward.shape[0],
    )


def write(rows: Array, new: Array, start: Int[Array, ""]) -> Array:
    """Write a generation's block at row `start`."""
    return jax.lax.dynamic_update_slice_in_dim(rows, new, start, axis=0)


def _elites_by_pairs(archive: Archive, new: Scores) -> Bool[Array, "M"]:
    """Compare every new candidate with every elite and every other new candidate: O(N·M), few large operations."""
    rows: Scores = jax.tree.map(lambda x: x[:, None], new)  # new candidates along axis 0
    old: Scores = jax.tree.map(lambda x: x[None, :], archive.scores)
    other: Scores = jax.tree.map(lambda x: x[None, :], new)

    rivals = (rows.cell == old.cell) & archive.elite[None, :]
    beats_old = rivals & rows.finite & risk.better(rows, old)
    kept_out = rivals & ~beats_old  # in a tie, the elite is kept, because it is earlier

    order = jnp.arange(new.reward.shape[0])
    earlier = order[None, :] < order[:, None]
    loses = risk.better(other, rows) | (earlier & ~risk.better(rows, other))
    beaten = (rows.cell == other.cell) & other.finite & loses & (order[None, :] != order[:, None])

    wins = new.finite & ~jnp.any(kept_out, axis=1) & ~jnp.any(beaten, axis=1)
    return write(archive.elite & ~jnp.any(beats_old, axis=0), wins, archive.size)


def _elites_by_sorting(archive: Archive, new: Scores) -> Bool[Array, "M"]:
    """Sort the new candidates by cell, then from best to worst; compare each elite with the first (leader) of its cell.

    O(N log N + M log N): only the new candidates are sorted, because all elites are in different cells.
    """
    num = new.reward.shape[0]
    nowhere = jnp.iinfo(jnp.int32).max
    order = jnp.arange(num, dtype=jnp.int32)
    keys = (jnp.where(new.finite, new.cell, nowhere), new.hard, new.cost, -new.reward, order)
    cell, *_, order = jax.lax.sort(keys, num_keys=4)  # stable: equal scores stay in order of arrival
    leads = (cell != nowhere) & jnp.concatenate([jnp.ones((1,), bool), cell[1:] != cell[:-1]])

    place = jnp.minimum(
        jnp.searchsorted(cell, archive.scores.cell), num - 1
    )  # where a leader of the row's cell would be
    leader: Scores = jax.tree.map(lambda x: x[order[place]], new)
    rivals = archive.elite & (cell[place] == archive.scores.cell)
    beaten = rivals & risk.better(leader, archive.scores)
    kept_out = jnp.zeros((num,), bool).at[jnp.where(rivals & ~beaten, place, num)].set(True, mode="drop")
    wins = jnp.zeros((num,), bool).at[order].set(leads & ~kept_out, unique_indices=True)
    return write(archive.elite & ~beaten, wins, archive.size)


def select(
    archive: Archive, lots: Float[Array, "M"], num: int, eligible: Bool[Array, "M"] | None = None
) -> tuple[PyTree, Bool[Array, "N"]]:
    """SELECT (Alg. 6, line 3): `num` elites without cost (or `eligible` rows), uniformly, without replacement.

    `lots` are independent random numbers, uniform in (−1, 1); the eligible rows with the largest numbers are selected.
    Returns `num` candidates and a mask of the valid ones. If fewer than `num` rows are eligible, the remaining
    candidates are invalid, and the caller must replace them.
    """
    eligible = archive.elite & archive.scores.safe if eligible is None else eligible
    drawn, rows = jax.lax.top_k(jnp.where(eligible, lots, -1.0), num)
    return jax.tree.map(lambda x: x[rows], archive.candidates), drawn > -1.0


def best(archive: Archive) -> tuple[PyTree, Scores]:
    """The elite with the lowest cost, then the highest reward (Alg. 4, lines 16–17), and its scores."""
    row = risk.best_index(archive.scores, among=archive.elite)
    return jax.tree.map(lambda x: x[row], (archive.candidates, archive.scores))
