"""Pareto Safe MAP-Elites: GuSS with a front of reward and cost in every cell.

The paper's source names the method and says nothing more of it, so how parents are chosen is our own reading. With
parents from safe elites alone, as in GuSS, the front would have no say: a cell's safe elite is the same either way.
"""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from guss.planners import archive as archives
from guss.planners import register_planner
from guss.planners.archive import Archive
from guss.planners.elites import ElitePlanner
from guss.planners.fronts import filled_cells, fronts_of_cells
from guss.types import Scores, setting


@register_planner("ps-me", paper="only named (PS-ME)")
class ParetoSafeMapElites(ElitePlanner):
    """Pareto Safe MAP-Elites: evolves policies, a front of cost and reward in every behaviour cell."""

    objective = "cost"

    parents: Literal["safe-first", "front"] = setting(
        "front", "who may be a parent: all of the fronts alike (front), or safe ones before the others (safe-first)"
    )

    def ranking_scores(self, scores: Scores) -> Scores:
        """Hard violations, then cost and reward side by side."""
        return scores

    def tell(self, state: Archive, candidates: Float[Array, "N params"], scores: Scores) -> Archive:
        """STORE, with a front in every cell."""
        return archives.store(state, candidates, self.ranking_scores(scores), fronts_of_cells)

    def select(
        self, state: Archive, lots: Float[Array, "M"], num: int
    ) -> tuple[Float[Array, "N params"], Bool[Array, "N"]]:
        """SELECT from all members of all fronts, uniformly, without replacement."""
        if self.parents == "safe-first":
            lots = jnp.where(state.scores.safe, lots + 2.0, lots)  # above every lot of the others
        return archives.select(state, lots, num, eligible=state.elite)

    def occupancy(self, state: Archive) -> Int[Array, ""]:
        """Filled cells, however many plans their fronts have."""
        return filled_cells(state)
