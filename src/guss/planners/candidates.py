"""Representations of plans: what an archive of elites evolves.

A candidate is a vector of numbers. `Policies` reads them as the weights of a small network, `ActionSequences`
(action_sequences.py) as an action per step, `MixedCandidates` (mixed_candidates.py) as either. A representation defines
how candidates are sampled, varied, executed, and carried over to the next plan. Archives do not depend on it.
"""

from __future__ import annotations

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from guss.planners import policy
from guss.types import Interface


class Candidates(eqx.Module):
    """A representation of plans as vectors of `size` numbers."""

    interface: Interface

    @property
    @abstractmethod
    def size(self) -> int:
        """Numbers of a candidate."""

    @abstractmethod
    def sample(self, noise: Float[Array, "N size"]) -> Float[Array, "N size"]:
        """New candidates; `noise` is standard normal."""

    @abstractmethod
    def mutation(self, noise: Float[Array, "N size"], parents: Float[Array, "N size"]) -> Float[Array, "N size"]:
        """What is added to each parent; `noise` is standard normal."""

    @abstractmethod
    def act(self, candidate: Float[Array, "size"], obs: Float[Array, "D"], t: Int[Array, ""]) -> Shaped[Array, "..."]:
        """The action of a candidate at step t of a plan."""

    @abstractmethod
    def next_step(self, candidates: Float[Array, "N size"]) -> Float[Array, "N size"]:
        """The candidates as they continue one step later."""

    def comparable(self, a: Float[Array, "N size"], b: Float[Array, "N size"]) -> Bool[Array, "N"]:
        """Whether the difference of two candidates is a direction in which either may be varied."""
        return jnp.ones((a.shape[0],), bool)


class Policies(Candidates):
    """Small neural networks that map an observation to an action (Sec. 4.2)."""

    hidden: tuple[int, ...] = eqx.field(static=True)
    sample_std: float = eqx.field(static=True)
    mutation_std: float = eqx.field(static=True)

    @property
    def layers(self) -> tuple[int, ...]:
        """Units per layer."""
        return policy.layer_sizes(self.interface, self.hidden)

    @property
    def size(self) -> int:
        return policy.num_parameters(self.layers)

    def sample(self, noise: Float[Array, "N size"]) -> Float[Array, "N size"]:
        return self.sample_std * noise

    def mutation(self, noise: Float[Array, "N size"], parents: Float[Array, "N size"]) -> Float[Array, "N size"]:
        return self.mutation_std * noise

    def act(self, candidate: Float[Array, "size"], obs: Float[Array, "D"], t: Int[Array, ""]) -> Shaped[Array, "..."]:
        return policy.act(candidate, obs, self.interface, self.layers)

    def next_step(self, candidates: Float[Array, "N size"]) -> Float[Array, "N size"]:
        """Unchanged: a policy is closed-loop."""
        return candidates
