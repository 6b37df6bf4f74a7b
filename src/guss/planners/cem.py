"""The cross-entropy method (Chua 2018): a distribution over action sequences, refitted to its best samples.

Continuous actions: a truncated normal per step and dimension. Discrete actions: a categorical per step and dimension.
"""

from __future__ import annotations

from abc import abstractmethod

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from guss import risk
from guss.errors import GussError
from guss.planners import register_planner
from guss.planners.distributions import (
    Distribution,
    SequenceState,
    centre,
    draw,
    equal_parts,
    keep_best,
    nothing_yet,
    ranking,
    refit,
    shifted,
    uniform,
)
from guss.types import Planner, Scores, setting


class CrossEntropyPlanner(Planner):
    """Samples, refits to the `num_elites` best, repeats; acts with the mean. What is best is left to `judged`."""

    iterations: int = setting(5, "refits; the budget is divided among them")
    num_elites: int = setting(10, "samples that the distribution is refitted to")
    smoothing: float = setting(0.1, "weight of the old distribution in a refit")
    initial_std: float = setting(1.0, "first standard deviation, in half-widths of the action bounds")
    warm_start: bool = setting(False, "start from the last plan's distribution mean, shifted by one step")
    guard: bool = setting(True, "act with the best sample where the mean is predicted to be less safe or not at all")

    def __check_init__(self) -> None:
        if self.iterations < 1 or self.num_elites < 1:
            raise GussError(
                f"iterations and num_elites must be at least 1, got {self.iterations} and {self.num_elites}"
            )
        smallest = self.budget // self.iterations
        if self.budget > 0 and smallest < self.num_elites:
            raise GussError(
                f"a budget of {self.budget} plans in {self.iterations} iterations gives {smallest} samples each, fewer "
                f"than the {self.num_elites} elites; raise the budget or lower num_elites or iterations"
            )
        if not (0.0 <= self.smoothing < 1.0 and self.initial_std > 0.0):
            raise GussError(
                f"smoothing must be in [0, 1) and initial_std positive, got {self.smoothing} and {self.initial_std}"
            )

    @abstractmethod
    def judged(self, scores: Scores) -> Scores:
        """The scores by which samples are ranked."""

    @abstractmethod
    def counts(self, scores: Scores) -> Bool[Array, "N"]:
        """Which samples may count as elites if they rank high enough."""

    def schedule(self, budget: int) -> tuple[int, ...]:
        """Equal populations; what does not divide goes to the first iterations."""
        return equal_parts(budget, self.iterations)

    def first_memory(self) -> Distribution:
        """The distribution of a first plan."""
        return uniform(self.interface.actions, self.horizon, self.initial_std)

    def memory(self, state: SequenceState) -> Distribution:
        """The next plan's first distribution: fresh, or centred on what is left of this plan (`warm_start`)."""
        first = self.first_memory()
        return shifted(state.dist, first) if self.warm_start else first

    def init(self, key: PRNGKeyArray, obs: Float[Array, "D"], memory: PyTree) -> SequenceState:
        """Start from the remembered distribution."""
        return nothing_yet(memory, self.interface.actions)

    def ask(self, state: SequenceState, key: PRNGKeyArray, num: int) -> Shaped[Array, "N H ..."]:
        """Samples of the distribution."""
        return draw(state.dist, self.interface.actions, key, num)

    def act(self, candidate: Shaped[Array, "H ..."], obs: Float[Array, "D"], t: Int[Array, ""]) -> Shaped[Array, "..."]:
        """The sequence's action at step t, whatever the observation."""
        return candidate[t]

    def tell(self, state: SequenceState, candidates: Shaped[Array, "N H ..."], scores: Scores) -> SequenceState:
        """Refit to the elites, and keep the best sample."""
        scores = self.judged(scores)
        rows = ranking(scores)[: self.num_elites]
        weight = self.counts(scores)[rows].astype(jnp.float32)
        dist = refit(state.dist, self.interface.actions, candidates[rows], weight, self.smoothing)
        top = jax.tree.map(lambda x: x[rows[0]], scores)
        return keep_best(state._replace(dist=dist), candidates[rows[0]], top)

    def best(self, state: SequenceState) -> Shaped[Array, "H ..."]:
        """The mean sequence."""
        return centre(state.dist, self.interface.actions)

    def reserve(self, state: SequenceState) -> Shaped[Array, "H ..."] | None:
        """The best sample: what lies between good samples need not be good itself."""
        return state.sample if self.guard else None


@register_planner("cem", paper="Sec. 5.1, baseline CEM")
class CrossEntropy(CrossEntropyPlanner):
    """Cross-entropy method: refits a distribution over action sequences to the highest rewards, cost ignored."""

    judges = "reward"

    def judged(self, scores: Scores) -> Scores:
        """Reward alone."""
        return risk.reward_only(scores)

    def counts(self, scores: Scores) -> Bool[Array, "N"]:
        """Those whose predictions are finite."""
        return scores.finite
