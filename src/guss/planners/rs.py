"""Random shooting (Nagabandi 2018): the best of many random action sequences."""

from jaxtyping import Array, Int

from guss import risk
from guss.planners import register_planner
from guss.planners.shooting import ShootingPlanner
from guss.types import Scores


@register_planner("rs", paper="Sec. 5.3, baseline RS")
class RandomShooting(ShootingPlanner):
    """Random shooting: the random action sequence with the highest reward, cost ignored."""

    objective = "reward"

    def choose(self, scores: Scores) -> Int[Array, ""]:
        """Highest reward; in a tie the first."""
        return risk.best_index(risk.reward_only(scores))
