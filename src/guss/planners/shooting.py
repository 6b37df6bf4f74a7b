"""Common base of random-shooting planners: many random action sequences, one of which is chosen."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from guss import risk
from guss.types import Planner, Scores


class Shot(NamedTuple):
    """The chosen sequence and its scores."""

    sequence: Shaped[Array, "H ..."]
    scores: Scores


class ShootingPlanner(Planner):
    """M uniform random action sequences in one generation, of which `choose` selects one."""

    @abstractmethod
    def choose(self, scores: Scores) -> Int[Array, ""]:
        """Position of the sequence to act with."""

    def schedule(self, budget: int) -> tuple[int, ...]:
        return (budget,)

    def init(self, key: PRNGKeyArray, obs: Float[Array, "D"], memory: tuple[()]) -> Shot:
        actions = self.interface.actions
        return Shot(jnp.zeros((self.horizon, *actions.shape), actions.dtype), risk.no_scores())

    def ask(self, state: Shot, key: PRNGKeyArray, num: int) -> Shaped[Array, "N H ..."]:
        """Uniform actions, independent at every step."""
        return self.interface.actions.sample(key, (num, self.horizon))

    def act(self, candidate: Shaped[Array, "H ..."], obs: Float[Array, "D"], t: Int[Array, ""]) -> Shaped[Array, "..."]:
        """The sequence's action at step t, whatever the observation."""
        return candidate[t]

    def tell(self, state: Shot, candidates: Shaped[Array, "N H ..."], scores: Scores) -> Shot:
        row = self.choose(scores)
        return Shot(candidates[row], jax.tree.map(lambda x: x[row], scores))

    def best(self, state: Shot) -> Shaped[Array, "H ..."]:
        return state.sequence

    def best_scores(self, state: Shot) -> Scores:
        return state.scores
