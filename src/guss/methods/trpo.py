"""TRPO, trust-region policy optimisation (Schulman 2015): one step per iteration, within KL ≤ δ.

The step is found by conjugate gradients on products with the Fisher matrix H (trust_region.py); backtracking accepts
the first of x, 0.8 x, … that keeps KL ≤ δ and improves the objective. As in Safety Gym's starter agents, 0.1 times the
identity is added to H; on_policy.py lists the deviations from them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from guss.method import Learned
from guss.methods import register_method
from guss.methods.nets import Policy
from guss.methods.on_policy import OnPolicy, OnPolicyState, episode_cost, mean_of
from guss.methods.trust_region import Product, Vector, backtrack, trpo_step
from guss.types import Trajectory, setting

Proposal = tuple[Vector, Callable[[Vector], Bool[Array, ""]], dict[str, Array]]
"""A step x of the policy's weights, a test whether weights along it are acceptable, and metrics."""


@register_method("trpo", paper="–")
class Trpo(OnPolicy):
    """Trust-region policy optimisation: maximises the reward, ignores cost."""

    name = "trpo"
    cg_steps: int = setting(10, "Steps of conjugate gradients.")
    damping: float = setting(0.1, "Multiple of the identity that is added to the Fisher matrix.")
    shrink: float = setting(0.8, "Factor by which a rejected step is shortened.")
    tries: int = setting(10, "Maximum number of steps that are tried.")

    def __check_init__(self) -> None:
        self.check_ranges(cg_steps="[1, inf)", tries="[1, inf)", damping="[0, inf)", shrink="(0, 1)")

    def update(self, state: OnPolicyState, trajectory: Trajectory, key: PRNGKeyArray) -> Learned:
        """One iteration: update the policy, then the value functions."""
        rows, errors = self.rows(state, trajectory)
        flat, unravel = ravel_pytree(state.policy)
        before = state.policy.choice(rows.obs)

        def surrogate(weights: Vector, advantage: Float[Array, "N"]) -> Float[Array, ""]:
            """E ρ A."""
            policy: Policy = unravel(weights)
            ratio = jnp.exp(policy.log_prob(policy.choice(rows.obs), rows.raw) - rows.log_prob)
            return mean_of(ratio * advantage, rows.weight)

        def divergence(weights: Vector) -> Float[Array, ""]:
            """Mean KL(old ‖ new)."""
            policy: Policy = unravel(weights)
            return mean_of(policy.kl(before, policy.choice(rows.obs)), rows.weight)

        def product(x: Vector) -> Vector:
            """Hx: the Hessian of KL at the old policy is the Fisher matrix."""
            return jax.jvp(jax.grad(divergence), (flat,), (x,))[1] + self.damping * x

        cost = episode_cost(trajectory)
        gain = lambda w: surrogate(w, rows.advantage)  # noqa: E731
        loss = lambda w: surrogate(w, rows.cost_advantage)  # noqa: E731
        x, improves, metrics = self.step(flat, product, gain, loss, cost)
        near = lambda w: divergence(w) <= self.target_kl  # noqa: E731
        moved, share = backtrack(lambda w: near(w) & improves(w), flat, x, self.shrink, self.tries)
        policy: Policy = unravel(moved)
        state = self.rescale_values(state._replace(policy=policy), rows)

        def learn(state: OnPolicyState, draw: Array) -> tuple[OnPolicyState, None]:
            return self.learn_values(state, jax.tree.map(lambda x: x[draw], rows)), None

        draws = self.draws(rows.weight, key)
        state, _ = jax.lax.scan(learn, state, draws.reshape(-1, draws.shape[-1]))
        metrics |= {
            "step_share": share,
            "episode_cost": cost,
            "kl": divergence(moved),
            "entropy": mean_of(policy.entropy(policy.choice(rows.obs)), rows.weight),
        }
        return self.learn_scale(state, trajectory), metrics | errors

    def step(self, flat: Vector, product: Product, gain: Any, loss: Any, cost: Float[Array, ""]) -> Proposal:
        """The proposed step, to be shortened if it is not acceptable."""
        now = gain(flat)
        x = trpo_step(product, jax.grad(gain)(flat), self.target_kl, self.cg_steps)
        return x, lambda there: gain(there) >= now, {}
