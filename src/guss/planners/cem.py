"""The cross-entropy method (Chua 2018): a distribution over action sequences, refitted to its best samples.

Continuous actions: a truncated normal per step and dimension. Discrete actions: a categorical per step and dimension.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from guss import risk
from guss.errors import GussError
from guss.planners import register_planner
from guss.types import Actions, ContinuousActions, DiscreteActions, Planner, Scores, setting


class Normal(NamedTuple):
    """Per step and action dimension, on actions scaled to [−1, 1]."""

    mean: Float[Array, "H A"]
    std: Float[Array, "H A"]


class Categorical(NamedTuple):
    """Per step and action dimension, over at most K values."""

    probs: Float[Array, "H A K"]


Distribution = Normal | Categorical


class CemState(NamedTuple):
    """The distribution, and the best sample so far with its scores."""

    dist: Distribution
    sample: Shaped[Array, "H ..."]
    scores: Scores


def uniform(actions: Actions, horizon: int, std: float) -> Distribution:
    """The first distribution: centred with the given spread, or all values equally likely."""
    if isinstance(actions, ContinuousActions):
        shape = (horizon, len(actions.low))
        return Normal(jnp.zeros(shape), jnp.full(shape, std))
    most = max(actions.num_values)
    probs = jnp.asarray([[1.0 / n if k < n else 0.0 for k in range(most)] for n in actions.num_values])
    return Categorical(jnp.broadcast_to(probs, (horizon, *probs.shape)))


def draw(dist: Distribution, actions: Actions, key: PRNGKeyArray, num: int) -> Shaped[Array, "N H ..."]:
    """`num` action sequences."""
    if isinstance(dist, Normal):
        low, high = ((bound - dist.mean) / dist.std for bound in (-1.0, 1.0))
        unit = jax.random.truncated_normal(key, low[None], high[None], (num, *dist.mean.shape))
        return _from_unit(actions, jnp.clip(dist.mean[None] + dist.std[None] * unit, -1.0, 1.0))
    assert isinstance(actions, DiscreteActions)
    below = jnp.cumsum(dist.probs, axis=-1)[None]  # inverse of the cumulative distribution
    lots = jax.random.uniform(key, (num, *dist.probs.shape[:-1], 1)) * below[..., -1:]
    # Values beyond the last possible one have no width, so they are never drawn.
    return actions.from_indices(jnp.sum(lots >= below[..., :-1], axis=-1, dtype=jnp.int32))


def refit(
    dist: Distribution, actions: Actions, elites: Shaped[Array, "E H ..."], weight: Float[Array, "E"], smoothing: float
) -> Distribution:
    """smoothing · old + (1 − smoothing) · elites; elites of weight 0 do not count, and without any nothing changes."""
    total = jnp.sum(weight)
    share = (weight / jnp.maximum(total, 1.0))[:, None, None]
    if isinstance(dist, Normal):
        unit = _to_unit(actions, elites)
        mean = jnp.sum(share * unit, axis=0)
        std = jnp.sqrt(jnp.sum(share * (unit - mean[None]) ** 2, axis=0))
        new: Distribution = Normal(mean, jnp.maximum(std, 1e-4))
    else:
        assert isinstance(actions, DiscreteActions)
        hits = jax.nn.one_hot(actions.to_indices(elites), dist.probs.shape[-1])
        new = Categorical(jnp.sum(share[..., None] * hits, axis=0))
    blend = lambda old, fit: jnp.where(total > 0.0, smoothing * old + (1.0 - smoothing) * fit, old)  # noqa: E731
    return jax.tree.map(blend, dist, new)


def centre(dist: Distribution, actions: Actions) -> Shaped[Array, "H ..."]:
    """The mean sequence, or the likeliest one of discrete actions."""
    if isinstance(dist, Normal):
        return _from_unit(actions, dist.mean)
    assert isinstance(actions, DiscreteActions)
    return actions.from_indices(jnp.argmax(dist.probs, axis=-1))


def _from_unit(actions: Actions, unit: Array) -> Array:
    assert isinstance(actions, ContinuousActions)
    low, high = (b.reshape((1,) * (unit.ndim - 1) + b.shape) for b in actions.bounds())
    return jnp.clip(low + (unit + 1.0) * 0.5 * (high - low), low, high)


def _to_unit(actions: Actions, sequence: Array) -> Array:
    assert isinstance(actions, ContinuousActions)
    low, high = (b.reshape((1,) * (sequence.ndim - 1) + b.shape) for b in actions.bounds())
    return 2.0 * (sequence - low) / (high - low) - 1.0


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
        each, rest = divmod(budget, max(self.iterations, 1))
        return tuple(each + (i < rest) for i in range(self.iterations) if each + (i < rest) > 0)

    def first_memory(self) -> Distribution:
        """The distribution of a first plan."""
        return uniform(self.interface.actions, self.horizon, self.initial_std)

    def memory(self, state: CemState) -> Distribution:
        """The next plan's first distribution: fresh, or centred on what is left of this plan (`warm_start`)."""
        first = self.first_memory()
        if not self.warm_start:
            return first
        shift = lambda now, start: jnp.concatenate([now[1:], start[-1:]])  # noqa: E731
        if isinstance(state.dist, Normal) and isinstance(first, Normal):
            return Normal(shift(state.dist.mean, first.mean), first.std)
        # A categorical has no spread of its own: half of the weight goes back to all values.
        return jax.tree.map(lambda now, start: 0.5 * shift(now, start) + 0.5 * start, state.dist, first)

    def init(self, key: PRNGKeyArray, obs: Float[Array, "D"], memory: PyTree) -> CemState:
        """Start from the remembered distribution."""
        actions = self.interface.actions
        return CemState(memory, jnp.zeros((self.horizon, *actions.shape), actions.dtype), risk.no_scores())

    def ask(self, state: CemState, key: PRNGKeyArray, num: int) -> Shaped[Array, "N H ..."]:
        """Samples of the distribution."""
        return draw(state.dist, self.interface.actions, key, num)

    def act(self, candidate: Shaped[Array, "H ..."], obs: Float[Array, "D"], t: Int[Array, ""]) -> Shaped[Array, "..."]:
        """The sequence's action at step t, whatever the observation."""
        return candidate[t]

    def tell(self, state: CemState, candidates: Shaped[Array, "N H ..."], scores: Scores) -> CemState:
        """Refit to the elites, and keep the best sample."""
        scores = self.judged(scores)
        rows = ranking(scores)[: self.num_elites]
        weight = self.counts(scores)[rows].astype(jnp.float32)
        dist = refit(state.dist, self.interface.actions, candidates[rows], weight, self.smoothing)
        top = (candidates[rows[0]], jax.tree.map(lambda x: x[rows[0]], scores))
        improved = risk.better(top[1], state.scores)
        kept = jax.tree.map(lambda new, old: jnp.where(improved, new, old), top, (state.sample, state.scores))
        return CemState(dist, *kept)

    def best(self, state: CemState) -> Shaped[Array, "H ..."]:
        """The mean sequence."""
        return centre(state.dist, self.interface.actions)

    def reserve(self, state: CemState) -> Shaped[Array, "H ..."] | None:
        """The best sample: what lies between good samples need not be good itself."""
        return state.sample if self.guard else None


def ranking(scores: Scores) -> Int[Array, "N"]:
    """Positions from best to worst: hard violations, cost, reward, arrival."""
    order = jnp.arange(scores.reward.shape[0], dtype=jnp.int32)
    return jax.lax.sort((scores.hard, scores.cost, -scores.reward, order), num_keys=3)[-1]


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
