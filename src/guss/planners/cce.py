"""Constrained cross-entropy by a penalty: CEM on the reward less a price for every unit of cost.

Wen and Topcu's method of that name (2018) ranks by cost until enough samples are feasible, as `rcem` does here. This
one trades: a plan with cost is taken where its reward pays for it. The cost is the mean over the model's particles, as
in the constrained planners of safe-RL libraries, where `rcem` takes the worst. Hard violations are not for sale.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool

from guss.errors import GussError
from guss.planners import register_planner
from guss.planners.cem import CrossEntropyPlanner
from guss.types import WORST, Scores, setting


@register_planner("cce", paper="not in it")
class PenalisedCrossEntropy(CrossEntropyPlanner):
    """Cross-entropy method with a price on cost: refits to the highest reward − penalty × mean cost."""

    objective = "penalty"
    over_particles = "mean"

    penalty: float = setting(1000.0, "reward that one unit of cost (a step over a bound) subtracts")

    def __check_init__(self) -> None:
        if not 0.0 <= self.penalty < WORST:
            raise GussError(f"penalty must be a finite number and not negative, got {self.penalty}")

    def ranking_scores(self, scores: Scores) -> Scores:
        """Hard violations, then reward − penalty · cost."""
        paid = jnp.maximum(scores.reward - self.penalty * scores.cost, -WORST)
        worst = jnp.where(scores.finite, 0.0, WORST)
        return scores._replace(cost=worst, reward=jnp.where(scores.finite, paid, -WORST))

    def counts(self, scores: Scores) -> Bool[Array, "N"]:
        """Those whose predictions are finite."""
        return scores.finite
