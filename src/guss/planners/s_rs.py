"""Safe random shooting: random shooting that rejects unsafe plans (Sec. 5.1)."""

from jaxtyping import Array, Int

from guss import risk
from guss.planners import register_planner
from guss.planners.shooting import ShootingPlanner
from guss.types import Scores


@register_planner("s-rs", paper="Sec. 5.1, baseline S-RS")
class SafeRandomShooting(ShootingPlanner):
    """Safe random shooting: the random action sequence with the lowest cost, then the highest reward."""

    objective = "cost"

    def choose(self, scores: Scores) -> Int[Array, ""]:
        """Lowest cost, then highest reward; in a tie the first."""
        return risk.best_index(scores)
