"""CPO, constrained policy optimisation (Achiam 2017): TRPO with a limit on cost.

One step per iteration, within a trust region KL ≤ δ. Gain and cost of the next policy are predicted by the surrogates

    E ρ A    and    J_C + T · E ρ A_C    (eqs. 10 and 11; T steps per episode, undiscounted as the limit is)

whose gradients g and b, and the Fisher matrix H, define the problem of trust_region.py. With c = (J_C − d) / T it is
solved in closed form (eqs. 12 and 13, the whole case analysis of app. 10.2), by conjugate gradients on products with H;
if no step is feasible, the step only reduces the cost (eq. 14). Backtracking accepts the first of x, 0.8 x, … that

    keeps KL ≤ δ,    improves E ρ A (unless it is a recovery),    and has E ρ A_C ≤ max(−c, 0).

Deviations from Safety Gym's starter agents: see on_policy.py. As in these, 0.1 times the identity is added to H.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from guss.methods import register_method
from guss.methods.on_policy import Constrained
from guss.methods.trpo import Proposal, Trpo
from guss.methods.trust_region import Product, Vector, cpo_step


@register_method("cpo", paper="Sec. 5.2, app. C")
class Cpo(Trpo, Constrained):
    """Constrained policy optimisation: TRPO whose steps are constrained to the limit on expected cost."""

    name = "cpo"

    def step(self, flat: Vector, product: Product, gain: Any, loss: Any, cost: Float[Array, ""]) -> Proposal:
        """Eqs. 12 to 14."""
        c = (cost - self.limit) / self.task.episode_length
        found = cpo_step(product, jax.grad(gain)(flat), jax.grad(loss)(flat), c, self.target_kl, self.cg_steps)
        now, costs = gain(flat), loss(flat)
        recovering = found.case <= 1.0

        def improves(there: Vector) -> Bool[Array, ""]:
            return (recovering | (gain(there) >= now)) & (loss(there) - costs <= jnp.maximum(-c, 0.0))

        metrics = {"case": found.case, "lambda": found.lam, "nu": found.nu, "cost_limit": jnp.asarray(self.limit)}
        return found.x, improves, metrics
