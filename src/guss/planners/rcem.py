"""The robust cross-entropy method (Liu 2020): elites are feasible first, rewarding second."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from guss.errors import GussError
from guss.planners import register_planner
from guss.planners.cem import CrossEntropyPlanner, ranking
from guss.types import Scores, setting


@register_planner("rcem", paper="Sec. 5.1, baseline RCEM")
class RobustCrossEntropy(CrossEntropyPlanner):
    """Robust cross-entropy method: refits to the best feasible samples, or to the least costly if few are feasible."""

    judges = "cost"

    minimal_elites: int = setting(5, "feasible samples needed before reward counts")

    def __check_init__(self) -> None:
        if self.minimal_elites < 1:
            raise GussError(f"minimal_elites must be at least 1, got {self.minimal_elites}")

    def elites(self, scores: Scores) -> tuple[Int[Array, "E"], Bool[Array, "E"]]:
        """The best feasible samples by reward if there are `minimal_elites`, otherwise those of lowest cost."""
        rows = ranking(scores)[: self.num_elites]  # feasible ones come first, by reward
        enough = jnp.sum(scores.safe) >= self.minimal_elites
        return rows, jnp.where(enough, scores.safe[rows], scores.finite[rows])
