"""The improved cross-entropy method (Pinneri 2020, Alg. 1): CEM with temporally correlated noise and kept elites.

Differences from the paper: the budget is fixed and divided by its shrinking law, without its minimum of twice the
elites; the mean replaces a sample in the last iteration; elites kept within a plan are not rolled out again (all plans
of a search have the same noise, so their scores stay valid); discrete actions have a categorical per step.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from guss import risk
from guss.errors import GussError
from guss.planners import register_planner
from guss.planners.distributions import (
    Distribution,
    SequenceState,
    centre,
    keep_best,
    nothing_yet,
    perturb,
    ranking,
    refit,
    shifted,
    shrinking_parts,
    uniform,
)
from guss.planners.noise import colouring
from guss.planners.sequences import FeasibleFirst, RewardAlone, SequencePlanner
from guss.types import Scores, setting
from guss.validation import check_ranges


class Memory(NamedTuple):
    """Input of the next plan: the distribution, shifted by one step, and E elites, not yet shifted."""

    dist: Distribution
    elites: Shaped[Array, "E H ..."]
    known: Bool[Array, "E"]


class IcemState(NamedTuple):
    """The distribution with the best sample; K elites, best first; and the number of the next generation."""

    search: SequenceState
    elites: Shaped[Array, "K H ..."]
    scores: Scores  # of the elites, [K]
    known: Bool[Array, "E"]  # before the first generation: which of the first elites come from the last plan
    generation: Int[Array, ""]


class ImprovedCrossEntropyPlanner(SequencePlanner):
    """CEM with coloured noise, kept elites and shrinking populations; acts with the best sample."""

    iterations: int = setting(3, "refits; the budget is divided among them")
    num_elites: int = setting(10, "K: samples that the distribution is refitted to")
    kept_share: float = setting(0.3, "ξ: share of the elites kept for the next iteration, and for the next plan")
    shrink: float = setting(1.25, "γ: each iteration's population is smaller than the previous one by this factor")
    noise_exponent: float = setting(2.0, "β: 0 is white noise, 1 pink, 2 brown; higher values: slower changes")
    smoothing: float = setting(0.1, "α: weight of the old distribution in a refit")
    initial_std: float = setting(0.5, "initial standard deviation, in half-widths of the action bounds")
    warm_start: bool = setting(True, "start from the last plan's mean and elites, shifted by one step")

    def __check_init__(self) -> None:
        check_ranges(self, "method", iterations="[1, inf)", num_elites="[1, inf)", kept_share="[0, 1]")
        check_ranges(self, "method", shrink="[1, inf)", noise_exponent="[0, inf)")
        check_ranges(self, "method", smoothing="[0, 1)", initial_std="(0, inf)")
        if 0 < self.budget < self.iterations:
            raise GussError(
                f"a budget of {self.budget} plans is too small for {self.iterations} iterations, which need at least "
                f"one plan each"
            )
        sizes = self.schedule(self.budget) if self.budget > 0 else ()
        if sizes and (len(sizes) < self.iterations or sizes[-1] < self.num_elites):
            raise GussError(
                f"a budget of {self.budget} plans in {self.iterations} iterations gives populations {sizes}, the last "
                f"smaller than the {self.num_elites} elites; raise the budget or lower num_elites or iterations"
            )

    @property
    def num_kept(self) -> int:
        """E: elites that are kept."""
        return round(self.kept_share * self.num_elites)

    def schedule(self, budget: int) -> tuple[int, ...]:
        return shrinking_parts(budget, max(self.iterations, 1), max(self.shrink, 1.0))

    def first_memory(self) -> Memory:
        """The initial distribution of an episode's first plan, and no elites."""
        actions = self.interface.actions
        elites = jnp.zeros((self.num_kept, self.horizon, *actions.shape), actions.dtype)
        return Memory(uniform(actions, self.horizon, self.initial_std), elites, jnp.zeros((self.num_kept,), bool))

    def memory(self, state: IcemState) -> Memory:
        """This plan's mean and best elites (`warm_start`); the spread is reset."""
        first = self.first_memory()
        if not self.warm_start:
            return first
        kept = slice(0, self.num_kept)
        return Memory(shifted(state.search.dist, first.dist), state.elites[kept], state.scores.finite[kept])

    def init(self, key: PRNGKeyArray, obs: Float[Array, "D"], memory: Memory) -> IcemState:
        """Start from the memory; the elites' old scores are not valid for the new state."""
        search = nothing_yet(memory.dist, self.interface.actions)
        missing = jnp.zeros((self.num_elites - self.num_kept, *memory.elites.shape[1:]), memory.elites.dtype)
        unknown = jax.tree.map(lambda x: jnp.broadcast_to(x[None], (self.num_elites,)), risk.no_scores())
        elites = jnp.concatenate([memory.elites, missing])
        return IcemState(search, elites, unknown, memory.known, jnp.zeros((), jnp.int32))

    def ask(self, state: IcemState, key: PRNGKeyArray, num: int) -> Shaped[Array, "N H ..."]:
        """Coloured samples; the first iteration includes the last plan's elites, the last iteration the mean."""
        actions, dist = self.interface.actions, state.search.dist
        size = jax.tree.leaves(dist)[0].shape[1]
        colours = jnp.asarray(colouring(self.horizon, self.noise_exponent))
        white = jax.random.normal(key, (num, self.horizon, size))
        samples = perturb(dist, actions, jnp.einsum("tk,nka->nta", colours, white))
        # Shifted by a step; the new last action is the random one of the sample.
        kept = self.num_kept
        shifted_elites = jnp.concatenate([state.elites[:kept, 1:], samples[:kept, -1:]], axis=1)
        known = ((state.generation == 0) & state.known).reshape((kept,) + (1,) * (samples.ndim - 1))
        samples = samples.at[:kept].set(jnp.where(known, shifted_elites, samples[:kept]))
        at_last = state.generation == len(self.schedule(self.budget)) - 1
        return samples.at[-1].set(jnp.where(at_last, centre(dist, actions), samples[-1]))

    def tell(self, state: IcemState, candidates: Shaped[Array, "N H ..."], scores: Scores) -> IcemState:
        """Refit to the best of the samples and the kept elites, which become the new elites."""
        scores = self.ranking_scores(scores)
        kept = jax.tree.map(lambda x: x[: self.num_kept], (state.elites, state.scores))
        pool, pool_scores = jax.tree.map(lambda old, new: jnp.concatenate([old, new]), kept, (candidates, scores))
        rows = ranking(pool_scores)[: self.num_elites]
        weight = self.counts(pool_scores)[rows].astype(jnp.float32)
        elites, elite_scores = jax.tree.map(lambda x: x[rows], (pool, pool_scores))
        dist = refit(state.search.dist, self.interface.actions, elites, weight, self.smoothing)
        search = keep_best(state.search._replace(dist=dist), elites[0], jax.tree.map(lambda x: x[0], elite_scores))
        return IcemState(search, elites, elite_scores, state.known, state.generation + 1)

    def best(self, state: IcemState) -> Shaped[Array, "H ..."]:
        return state.search.sample

    def best_scores(self, state: IcemState) -> Scores | None:
        """The stored scores; None if `ranking_scores` removed the cost."""
        return state.search.scores if self.objective == "cost" else None


@register_planner("icem", paper="–")
class ImprovedCrossEntropy(RewardAlone, ImprovedCrossEntropyPlanner):
    """Improved cross-entropy method: temporally correlated noise, elites kept from plan to plan, cost ignored."""


@register_planner("s-icem", paper="–")
class SafeImprovedCrossEntropy(FeasibleFirst, ImprovedCrossEntropyPlanner):
    """Safe improved cross-entropy method: elites are ranked by feasibility, then by reward, as in RCEM."""
