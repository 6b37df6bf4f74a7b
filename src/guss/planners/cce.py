"""Penalised cross-entropy method: CEM on reward − penalty × cost.

The constrained cross-entropy method of Wen and Topcu (2018) ranks by cost until enough samples are feasible, as `rcem`
does here. This planner trades off: a plan with cost is chosen if its reward outweighs the penalty. The cost is the mean
over the model's particles, as in the constrained planners of safe-RL libraries; `rcem` uses the maximum. Hard
violations are not traded off.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool

from guss.errors import GussError
from guss.planners import register_planner
from guss.planners.cem import CrossEntropyPlanner
from guss.types import WORST, Scores, setting


@register_planner("cce", paper="–")
class PenalisedCrossEntropy(CrossEntropyPlanner):
    """Cross-entropy method with a cost penalty: refits to the highest reward − penalty × mean cost."""

    objective = "penalty"
    over_particles = "mean"

    penalty: float = setting(1000.0, "subtracted from the reward for each unit of cost (an unsafe step)")

    def __check_init__(self) -> None:
        if not 0.0 <= self.penalty < WORST:
            raise GussError(f"penalty must be a finite number and not negative, got {self.penalty}")

    def ranking_scores(self, scores: Scores) -> Scores:
        """Hard violations, then reward − penalty · cost."""
        penalised = jnp.maximum(scores.reward - self.penalty * scores.cost, -WORST)
        worst = jnp.where(scores.finite, 0.0, WORST)
        return scores._replace(cost=worst, reward=jnp.where(scores.finite, penalised, -WORST))

    def counts(self, scores: Scores) -> Bool[Array, "N"]:
        """Samples with finite predictions."""
        return scores.finite
