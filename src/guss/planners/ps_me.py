"""Pareto Safe MAP-Elites: GuSS with a Pareto front of reward and cost in every cell.

The paper's source only names the method, so the choice of parents is our interpretation. With parents only from safe
elites, as in GuSS, the front would have no effect: a cell's safe elite is the same in both.
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
    """Pareto Safe MAP-Elites: evolves policies, keeps a Pareto front of cost and reward in every behaviour cell."""

    objective = "cost"

    parents: Literal["safe-first", "front"] = setting(
        "front", "parents are drawn from all plans on fronts (front), or from safe ones before unsafe ones (safe-first)"
    )

    def ranking_scores(self, scores: Scores) -> Scores:
        """Unchanged: fronts compare hard violations, then cost and reward without an order."""
        return scores

    def tell(self, state: Archive, candidates: Float[Array, "N params"], scores: Scores) -> Archive:
        """STORE, with a front in every cell."""
        return archives.store(state, candidates, self.ranking_scores(scores), fronts_of_cells)

    def select(
        self, state: Archive, lots: Float[Array, "M"], num: int
    ) -> tuple[Float[Array, "N params"], Bool[Array, "N"]]:
        """SELECT from all members of all fronts, uniformly, without replacement."""
        if self.parents == "safe-first":
            lots = jnp.where(state.scores.safe, lots + 2.0, lots)  # above the lots of unsafe elites
        return archives.select(state, lots, num, eligible=state.elite)

    def occupancy(self, state: Archive) -> Int[Array, ""]:
        """Filled cells, whatever the size of their fronts."""
        return filled_cells(state)
