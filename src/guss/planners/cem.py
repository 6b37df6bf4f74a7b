"""The cross-entropy method (Chua 2018): a distribution over action sequences, refitted to its best samples.

Continuous actions: a truncated normal per step and dimension. Discrete actions: a categorical per step and dimension.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Shaped

from guss.errors import GussError
from guss.planners import register_planner
from guss.planners.distributions import (
    Distribution,
    SequenceState,
    draw,
    equal_parts,
    keep_best,
    nothing_yet,
    ranking,
    refit,
    shifted,
    uniform,
)
from guss.planners.sequences import MeanSequencePlanner, RewardAlone
from guss.types import Scores, setting
from guss.validation import check_ranges


class CrossEntropyPlanner(MeanSequencePlanner):
    """Samples, refits to the `num_elites` best by `ranking_scores`, and repeats; acts with the mean."""

    iterations: int = setting(5, "refits; the budget is divided among them")
    num_elites: int = setting(10, "samples that the distribution is refitted to")
    smoothing: float = setting(0.1, "weight of the old distribution in a refit")
    initial_std: float = setting(1.0, "initial standard deviation, in half-widths of the action bounds")
    warm_start: bool = setting(False, "start from the last plan's distribution mean, shifted by one step")

    def __check_init__(self) -> None:
        check_ranges(self, "method", iterations="[1, inf)", num_elites="[1, inf)")
        check_ranges(self, "method", smoothing="[0, 1)", initial_std="(0, inf)")
        smallest = self.budget // self.iterations
        if self.budget > 0 and smallest < self.num_elites:
            raise GussError(
                f"a budget of {self.budget} plans in {self.iterations} iterations gives {smallest} samples each, fewer "
                f"than the {self.num_elites} elites; raise the budget or lower num_elites or iterations"
            )

    def schedule(self, budget: int) -> tuple[int, ...]:
        """Equal populations; the remainder goes to the first iterations."""
        return equal_parts(budget, self.iterations)

    def first_memory(self) -> Distribution:
        """The initial distribution of an episode's first plan."""
        return uniform(self.interface.actions, self.horizon, self.initial_std)

    def memory(self, state: SequenceState) -> Distribution:
        """The next plan's initial distribution: reset, or centred on the rest of this plan (`warm_start`)."""
        first = self.first_memory()
        return shifted(state.dist, first) if self.warm_start else first

    def init(self, key: PRNGKeyArray, obs: Float[Array, "D"], memory: PyTree) -> SequenceState:
        """Start from the remembered distribution."""
        return nothing_yet(memory, self.interface.actions)

    def ask(self, state: SequenceState, key: PRNGKeyArray, num: int) -> Shaped[Array, "N H ..."]:
        return draw(state.dist, self.interface.actions, key, num)

    def tell(self, state: SequenceState, candidates: Shaped[Array, "N H ..."], scores: Scores) -> SequenceState:
        """Refit to the elites, and keep the best sample."""
        scores = self.ranking_scores(scores)
        rows = ranking(scores)[: self.num_elites]
        weight = self.counts(scores)[rows].astype(jnp.float32)
        dist = refit(state.dist, self.interface.actions, candidates[rows], weight, self.smoothing)
        top = jax.tree.map(lambda x: x[rows[0]], scores)
        return keep_best(state._replace(dist=dist), candidates[rows[0]], top)


@register_planner("cem", paper="Sec. 5.1, baseline CEM")
class CrossEntropy(RewardAlone, CrossEntropyPlanner):
    """Cross-entropy method: refits a distribution over action sequences to the highest rewards, cost ignored."""
