"""Model predictive path integral control (Williams 2017): a sequence moved to the weighted mean of its perturbations.

Each sample weighs exp(reward / temperature), as in the information-theoretic form; the reward is minus a path's cost.
Differences: the temperature is in standard deviations of the rewards (`relative`), so that it means the same for every
task; samples are clipped to the action bounds before they are averaged; the weights have no term for the control effort
of a perturbation; a plan may have several iterations; discrete actions have a categorical per step.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree, Shaped

from guss import risk
from guss.errors import GussError
from guss.planners import register_planner
from guss.planners.distributions import (
    Distribution,
    Normal,
    SequenceState,
    equal_parts,
    keep_best,
    nothing_yet,
    perturb,
    refit,
    shifted,
    uniform,
)
from guss.planners.sequences import MeanSequencePlanner, RewardAlone
from guss.types import Scores, setting
from guss.validation import check_ranges


def weights(
    reward: Float[Array, "N"], counts: Bool[Array, "N"], temperature: float, relative: bool
) -> Float[Array, "N"]:
    """softmax(reward / λ) over the samples in `counts`, 0 for the rest; λ: temperature (× reward std if `relative`)."""
    scale = jnp.asarray(temperature, jnp.float32)
    if relative:
        total = jnp.maximum(jnp.sum(counts, dtype=jnp.float32), 1.0)
        mean = jnp.sum(jnp.where(counts, reward / total, 0.0))
        scale = temperature * jnp.sqrt(jnp.sum(jnp.where(counts, (reward - mean) ** 2, 0.0)) / total)
    logits = reward / jnp.where(scale > 0.0, scale, 1.0)  # no spread: all weights are equal, whatever the scale
    top = jnp.max(jnp.where(counts, logits, -jnp.inf))
    weight = jnp.where(counts, jnp.exp(logits - top), 0.0)
    return weight / jnp.maximum(jnp.sum(weight), 1.0)  # the best sample has weight 1


class PathIntegralPlanner(MeanSequencePlanner):
    """Perturbs a sequence, replaces it by the weighted mean of the samples in `counts`, and repeats."""

    iterations: int = setting(1, "rounds of perturbing and averaging; the budget is divided among them")
    temperature: float = setting(0.2, "softmax temperature: lower values give the best samples more weight")
    relative: bool = setting(True, "the temperature is in standard deviations of the rewards, not in rewards")
    noise_std: float = setting(0.5, "standard deviation of the perturbations, in half-widths of the action bounds")
    mixing: float = setting(0.1, "discrete actions: share of draws that are uniform over all values")
    warm_start: bool = setting(True, "start from the last plan's sequence, shifted by one step")

    def __check_init__(self) -> None:
        check_ranges(self, "method", iterations="[1, inf)", mixing="(0, 1]")
        check_ranges(self, "method", temperature="(0, inf)", noise_std="(0, inf)")
        if 0 < self.budget < self.iterations:
            raise GussError(
                f"a budget of {self.budget} plans is too small for {self.iterations} iterations, which need at least "
                f"one plan each"
            )

    def schedule(self, budget: int) -> tuple[int, ...]:
        """Equal populations; the remainder goes to the first iterations."""
        return equal_parts(budget, self.iterations)

    def first_memory(self) -> Distribution:
        """The middle of the bounds, or equal probabilities of all values."""
        return uniform(self.interface.actions, self.horizon, self.noise_std)

    def memory(self, state: SequenceState) -> Distribution:
        """The sequence, shifted by one step (`warm_start`); its new last step is that of a first plan."""
        first = self.first_memory()
        return shifted(state.dist, first, fresh=0.0) if self.warm_start else first

    def init(self, key: PRNGKeyArray, obs: Float[Array, "D"], memory: PyTree) -> SequenceState:
        """Start from the remembered sequence."""
        return nothing_yet(memory, self.interface.actions)

    def ask(self, state: SequenceState, key: PRNGKeyArray, num: int) -> Shaped[Array, "N H ..."]:
        actions, dist = self.interface.actions, state.dist
        if not isinstance(dist, Normal):
            mix = lambda probs, alike: (1.0 - self.mixing) * probs + self.mixing * alike  # noqa: E731
            dist = jax.tree.map(mix, dist, self.first_memory())
        shape = jax.tree.leaves(dist)[0].shape[:2]
        return perturb(dist, actions, jax.random.normal(key, (num, *shape)))

    def tell(self, state: SequenceState, candidates: Shaped[Array, "N H ..."], scores: Scores) -> SequenceState:
        """Move to the weighted mean, and keep the best sample. The noise is unchanged."""
        weight = weights(scores.reward, self.counts(scores), self.temperature, self.relative)
        dist = refit(state.dist, self.interface.actions, candidates, weight, 0.0)
        if isinstance(dist, Normal) and isinstance(state.dist, Normal):
            dist = Normal(dist.mean, state.dist.std)
        scores = self.ranking_scores(scores)
        row = risk.best_index(scores)
        return keep_best(state._replace(dist=dist), candidates[row], jax.tree.map(lambda x: x[row], scores))


@register_planner("mppi", paper="–")
class PathIntegral(RewardAlone, PathIntegralPlanner):
    """Model predictive path integral: replaces a sequence by the mean of its perturbations, weighted by reward."""


@register_planner("s-mppi", paper="–")
class SafePathIntegral(PathIntegralPlanner):
    """Safe path integral: only samples without cost have a weight, or the least costly if there are none."""

    objective = "cost"

    def ranking_scores(self, scores: Scores) -> Scores:
        """Hard violations, then cost, then reward."""
        return scores

    def counts(self, scores: Scores) -> Bool[Array, "N"]:
        """Samples with the fewest hard violations, and of these the lowest cost: the feasible ones, if any."""
        left = scores.finite
        left &= scores.hard == jnp.min(jnp.where(left, scores.hard, jnp.inf))
        return left & (scores.cost == jnp.min(jnp.where(left, scores.cost, jnp.inf)))
