"""What planners of action sequences share: a sequence acts whatever is seen; samples are judged in one of two ways."""

from __future__ import annotations

from abc import abstractmethod

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from guss import risk
from guss.planners.distributions import SequenceState, centre
from guss.types import Planner, Scores, setting
from guss.validation import check_ranges


class SequencePlanner(Planner):
    """Candidates are action sequences; which samples are good is left to `ranking_scores` and `counts`."""

    @abstractmethod
    def ranking_scores(self, scores: Scores) -> Scores:
        """The scores by which samples are ranked."""

    @abstractmethod
    def counts(self, scores: Scores) -> Bool[Array, "N"]:
        """Which samples may have a say."""

    def act(self, candidate: Shaped[Array, "H ..."], obs: Float[Array, "D"], t: Int[Array, ""]) -> Shaped[Array, "..."]:
        """The sequence's action at step t, whatever the observation."""
        return candidate[t]


class MeanSequencePlanner(SequencePlanner):
    """Acts with the centre of its distribution, or with the best sample where that is safer."""

    guard: bool = setting(True, "act with the best sample where the mean is predicted to be less safe or not at all")

    def best(self, state: SequenceState) -> Shaped[Array, "H ..."]:
        """The mean sequence, or the likeliest one."""
        return centre(state.dist, self.interface.actions)

    def reserve(self, state: SequenceState) -> Shaped[Array, "H ..."] | None:
        """The best sample: what lies between good samples need not be good itself."""
        return state.sample if self.guard else None


class RewardAlone(SequencePlanner):
    """Cost is ignored."""

    objective = "reward"

    def ranking_scores(self, scores: Scores) -> Scores:
        return risk.reward_only(scores)

    def counts(self, scores: Scores) -> Bool[Array, "N"]:
        """Those whose predictions are finite."""
        return scores.finite


class FeasibleFirst(SequencePlanner):
    """Feasible samples come first, rewarding ones second (Liu 2020)."""

    objective = "cost"

    minimal_elites: int = setting(5, "feasible samples needed before reward counts")

    def __check_init__(self) -> None:
        check_ranges(self, "method", minimal_elites="[1, inf)")

    def ranking_scores(self, scores: Scores) -> Scores:
        """Hard violations, then cost, then reward: feasible samples come first, by reward."""
        return scores

    def counts(self, scores: Scores) -> Bool[Array, "N"]:
        """The feasible ones if there are `minimal_elites` of them, otherwise those of lowest cost."""
        return jnp.where(jnp.sum(scores.safe) >= self.minimal_elites, scores.safe, scores.finite)
