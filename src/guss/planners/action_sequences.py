"""Action sequences as candidates: open-loop plans with temporally correlated noise."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from guss.planners.candidates import Candidates
from guss.planners.noise import colouring


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
