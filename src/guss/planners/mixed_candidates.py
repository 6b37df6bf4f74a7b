"""Policies and action sequences in one archive."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from guss.planners.action_sequences import ActionSequences
from guss.planners.candidates import Candidates, Policies


class MixedCandidates(Candidates):
    """Each candidate is either a policy or an action sequence; its children are of the same kind.

    The first number is 1 for a policy and 0 for a sequence.
    """

    policies: Policies
    sequences: ActionSequences
    policy_share: float = eqx.field(static=True)

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
        """Policies and sequences, evenly interleaved."""
        _, policies, sequences = self._parts(noise)
        counts = np.ceil(np.arange(noise.shape[0] + 1) * self.policy_share - 1e-9)
        is_policy = jnp.asarray(counts[1:] > counts[:-1])
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
