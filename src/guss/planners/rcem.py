"""The robust cross-entropy method (Liu 2020): elites are feasible first, rewarding second."""

from __future__ import annotations

from jaxtyping import Array, Bool

from guss.errors import GussError
from guss.planners import register_planner
from guss.planners.cem import CrossEntropyPlanner
from guss.planners.distributions import feasible_if_enough
from guss.types import Scores, setting


@register_planner("rcem", paper="Sec. 5.1, baseline RCEM")
class RobustCrossEntropy(CrossEntropyPlanner):
    """Robust cross-entropy method: refits to the best feasible samples, or to the least costly if few are feasible."""

    judges = "cost"

    minimal_elites: int = setting(5, "feasible samples needed before reward counts")

    def __check_init__(self) -> None:
        if self.minimal_elites < 1:
            raise GussError(f"minimal_elites must be at least 1, got {self.minimal_elites}")

    def judged(self, scores: Scores) -> Scores:
        """Hard violations, then cost, then reward: feasible samples come first, by reward."""
        return scores

    def counts(self, scores: Scores) -> Bool[Array, "N"]:
        """The feasible ones if there are `minimal_elites` of them, otherwise those of lowest cost."""
        return feasible_if_enough(scores, self.minimal_elites)
