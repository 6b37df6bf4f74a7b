"""MAP-Elites as a planner, without any notion of safety (Sec. 3.3, Alg. 2–3)."""

from guss import risk
from guss.planners import register_planner
from guss.planners.elites import ElitePlanner
from guss.types import Scores


@register_planner("map-elites", paper="Sec. 3.3, Alg. 2–3")
class MapElites(ElitePlanner):
    """Vanilla MAP-Elites: evolves policies, best reward in every behaviour cell, cost ignored."""

    objective = "reward"

    def ranking_scores(self, scores: Scores) -> Scores:
        """Reward alone: to this planner every plan is free of cost."""
        return risk.reward_only(scores)
