"""Common base of planners of action sequences, which are open-loop, and two ways to rank samples."""

from __future__ import annotations

from abc import abstractmethod

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from guss import risk
from guss.planners.distributions import SequenceState, centre
from guss.types import Planner, Scores, setting
from guss.validation import check_ranges


class SequencePlanner(Planner):
    """Candidates are action sequences; `ranking_scores` and `counts` define which samples are good."""

    @abstractmethod
    def ranking_scores(self, scores: Scores) -> Scores:
        """The scores by which samples are ranked."""

    @abstractmethod
    def counts(self, scores: Scores) -> Bool[Array, "N"]:
        """Which samples may change the distribution."""

    def act(self, candidate: Shaped[Array, "H ..."], obs: Float[Array, "D"], t: Int[Array, ""]) -> Shaped[Array, "..."]:
        """The sequence's action at step t, whatever the observation."""
        return candidate[t]


class MeanSequencePlanner(SequencePlanner):
    """Acts with the centre of its distribution, or with the best sample if that is safer."""

    guard: bool = setting(True, "act with the best sample if the mean is less safe or its prediction is not finite")

    def best(self, state: SequenceState) -> Shaped[Array, "H ..."]:
        """The mean sequence, or the most likely one."""
        return centre(state.dist, self.interface.actions)

    def reserve(self, state: SequenceState) -> Shaped[Array, "H ..."] | None:
        """The best sample: the mean of good samples need not be good."""
        return state.sample if self.guard else None


class RewardAlone(SequencePlanner):
    """Cost is ignored."""

    objective = "reward"

    def ranking_scores(self, scores: Scores) -> Scores:
        return risk.reward_only(scores)

    def counts(self, scores: Scores) -> Bool[Array, "N"]:
        """Samples with finite predictions."""
        return scores.finite


class FeasibleFirst(SequencePlanner):
    """Samples are ranked by feasibility, then by reward (Liu 2020)."""

    objective = "cost"

    minimal_elites: int = setting(5, "feasible samples needed to refit only to feasible ones")

    def __check_init__(self) -> None:
        check_ranges(self, "method", minimal_elites="[1, inf)")

    def ranking_scores(self, scores: Scores) -> Scores:
        """Hard violations, then cost, then reward: feasible samples come first, by reward."""
        return scores

    def counts(self, scores: Scores) -> Bool[Array, "N"]:
        """The feasible samples if there are `minimal_elites` of them, otherwise all: `ranking_scores` ranks by cost."""
        return jnp.where(jnp.sum(scores.safe) >= self.minimal_elites, scores.safe, scores.finite)
