"""Representations of plans: what an archive of elites evolves.

A candidate is a vector of numbers. `Policies` reads them as the weights of a small network, `ActionSequences` as one
action per step, `MixedCandidates` as either. A representation defines how candidates are sampled, varied, executed, and
carried over to the next plan; archives and selection do not depend on it.
"""

from __future__ import annotations

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from guss.planners import policy
from guss.planners.noise import colouring
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


class ActionSequences(Candidates):
    """An output per step and action dimension, which the action space converts to actions (tanh, argmax, rounding)."""

    horizon: int = eqx.field(static=True)
    noise_exponent: float = eqx.field(static=True)
    sample_std: float = eqx.field(static=True)
    mutation_std: float = eqx.field(static=True)

    @property
    def size(self) -> int:
        return self.horizon * self.interface.actions.num_outputs

    def sample(self, noise: Float[Array, "N size"]) -> Float[Array, "N size"]:
        return self.sample_std * self._coloured(noise)

    def mutation(self, noise: Float[Array, "N size"], parents: Float[Array, "N size"]) -> Float[Array, "N size"]:
        return self.mutation_std * self._coloured(noise)

    def _coloured(self, noise: Float[Array, "N size"]) -> Float[Array, "N size"]:
        """Noise that is correlated over the steps of a plan."""
        colours = jnp.asarray(colouring(self.horizon, self.noise_exponent))  # [H, H]
        steps = noise.reshape(noise.shape[0], self.horizon, -1)
        return jnp.einsum("tk,nka->nta", colours, steps).reshape(noise.shape)

    def act(self, candidate: Float[Array, "size"], obs: Float[Array, "D"], t: Int[Array, ""]) -> Shaped[Array, "..."]:
        """The action of step t, whatever the observation."""
        return self.interface.actions.from_outputs(candidate.reshape(self.horizon, -1)[t])

    def next_step(self, candidates: Float[Array, "N size"]) -> Float[Array, "N size"]:
        """Without the first action; the last one is repeated."""
        width = self.interface.actions.num_outputs
        return jnp.concatenate([candidates[:, width:], candidates[:, -width:]], axis=1)


class MixedCandidates(Candidates):
    """Each candidate is either a policy or an action sequence; its children are of the same kind.

    The first number is 1 for a policy and 0 for a sequence.
    """

    policies: Policies
    sequences: ActionSequences

    @property
    def size(self) -> int:
        return 1 + max(self.policies.size, self.sequences.size)

    def _parts(self, numbers: Float[Array, "... size"]) -> tuple[Array, Array, Array]:
        """Whether it is a policy, and the numbers as a policy and as a sequence."""
        is_policy = numbers[..., 0] > 0.5
        return is_policy, numbers[..., 1 : 1 + self.policies.size], numbers[..., 1 : 1 + self.sequences.size]

    def _joined(
        self, is_policy: Bool[Array, "N"], policies: Float[Array, "N P"], sequences: Float[Array, "N Q"]
    ) -> Float[Array, "N size"]:
        """Numbers of the right kind, padded with zeros."""
        fill = lambda x: jnp.pad(x, ((0, 0), (0, self.size - 1 - x.shape[1])))  # noqa: E731
        return jnp.where(is_policy[:, None], fill(policies), fill(sequences))

    def sample(self, noise: Float[Array, "N size"]) -> Float[Array, "N size"]:
        """Policies and sequences in turn."""
        _, policies, sequences = self._parts(noise)
        is_policy = jnp.arange(noise.shape[0]) % 2 == 0
        numbers = self._joined(is_policy, self.policies.sample(policies), self.sequences.sample(sequences))
        return jnp.concatenate([is_policy[:, None].astype(numbers.dtype), numbers], axis=1)

    def mutation(self, noise: Float[Array, "N size"], parents: Float[Array, "N size"]) -> Float[Array, "N size"]:
        is_policy, policies, sequences = self._parts(parents)
        _, first, second = self._parts(noise)
        change = self._joined(
            is_policy, self.policies.mutation(first, policies), self.sequences.mutation(second, sequences)
        )
        return jnp.concatenate([jnp.zeros_like(change[:, :1]), change], axis=1)

    def act(self, candidate: Float[Array, "size"], obs: Float[Array, "D"], t: Int[Array, ""]) -> Shaped[Array, "..."]:
        is_policy, weights, sequence = self._parts(candidate)
        return jnp.where(is_policy, self.policies.act(weights, obs, t), self.sequences.act(sequence, obs, t))

    def next_step(self, candidates: Float[Array, "N size"]) -> Float[Array, "N size"]:
        is_policy, policies, sequences = self._parts(candidates)
        numbers = self._joined(is_policy, self.policies.next_step(policies), self.sequences.next_step(sequences))
        return jnp.concatenate([candidates[:, :1], numbers], axis=1)

    def comparable(self, a: Float[Array, "N size"], b: Float[Array, "N size"]) -> Bool[Array, "N"]:
        return a[:, 0] == b[:, 0]
