"""GuSS: the safety-aware quality-diversity planner (Sec. 4.2, Alg. 4–6)."""

from guss.planners import register_planner
from guss.planners.elites import ElitePlanner
from guss.types import Scores


@register_planner("guss", paper="Sec. 4.2, Alg. 4–6")
class Guss(ElitePlanner):
    """Guided Safe Shooting: evolves policies from safe parents, ranks by cost, then reward in each behaviour cell."""

    objective = "cost"

    def ranking_scores(self, scores: Scores) -> Scores:
        """Hard violations, then cost, then reward."""
        return scores
