"""MAP-Elites as a planner, which ignores cost (Sec. 3.3, Alg. 2–3)."""

from guss import risk
from guss.planners import register_planner
from guss.planners.elites import ElitePlanner
from guss.types import Scores


@register_planner("map-elites", paper="Sec. 3.3, Alg. 2–3")
class MapElites(ElitePlanner):
    """Vanilla MAP-Elites: evolves policies, keeps the highest reward of every behaviour cell, ignores cost."""

    objective = "reward"

    def ranking_scores(self, scores: Scores) -> Scores:
        """Only the reward: the cost of every plan is set to 0."""
        return risk.reward_only(scores)
