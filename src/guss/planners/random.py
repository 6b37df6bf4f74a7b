"""Random actions: the baseline of all methods (the dashed line of Fig. 3)."""

import jax.numpy as jnp
from jaxtyping import Array, Int

from guss.planners import register_planner
from guss.planners.shooting import ShootingPlanner
from guss.types import Scores


@register_planner("random", paper="Fig. 3, dashed line")
class RandomPlanner(ShootingPlanner):
    """Uniform random actions; plans are evaluated for comparison, but the first is executed, whatever its scores."""

    objective = "nothing"

    def choose(self, scores: Scores) -> Int[Array, ""]:
        """The first, whatever its scores."""
        return jnp.zeros((), jnp.int32)
