"""PPO (Schulman 2017) and PPO-Lagrangian (Ray, Achiam and Amodei 2019, sec. 4.1 of "Benchmarking safe exploration").

PPO maximises the clipped objective, eq. 7:

    L(θ) = E min(ρ A, clip(ρ, 1 − ε, 1 + ε) A),    ρ = π_θ(a|s) / π_old(a|s)

PPO-Lagrangian adds a Lagrange multiplier λ of the cost: (L(θ) − λ E ρ A_C) / (1 + λ). After every iteration, a step of
Adam on J_C − d changes λ before softplus: up if episodes cost more than the limit d, down if less.

Deviations from Safety Gym's starter agents: about 80 steps on mini-batches of 400 rather than 80 on all steps, which
takes a tenth of the time on batches this small (the policy stops when KL exceeds 1.5 times the target, checked after
every pass, not every step); for others see on_policy.py.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from guss.method import Learned
from guss.methods import register_method
from guss.methods.nets import Policy, adam_step
from guss.methods.on_policy import Constrained, OnPolicy, OnPolicyState, Rows, episode_cost, mean_of
from guss.types import Trajectory, setting

STOP = 1.5  # times the target KL


class _Going(NamedTuple):
    """An update in progress."""

    state: OnPolicyState
    moving: Array
    """False once KL exceeds its limit."""
    passes: Array


@register_method("ppo", paper="–")
class Ppo(OnPolicy):
    """Proximal policy optimisation: maximises the reward, ignores cost."""

    name = "ppo"
    clip: float = setting(0.2, "ε: likelihood ratios are clipped to 1 ± ε.")
    policy_rate: float = setting(3e-4, "Learning rate of the policy.")

    def __check_init__(self) -> None:
        self.check_ranges(clip="(0, inf)", policy_rate="(0, inf)")

    def multiplier(self, state: OnPolicyState) -> Float[Array, ""]:
        """λ, the Lagrange multiplier: reward per unit of cost."""
        return jnp.zeros(())

    def update(self, state: OnPolicyState, trajectory: Trajectory, key: PRNGKeyArray) -> Learned:
        """One iteration."""
        cost = episode_cost(trajectory)
        state, metrics = self.update_multiplier(state, cost)
        rows, errors = self.rows(state, trajectory)
        multiplier = self.multiplier(state)
        state = self.rescale_values(state, rows)
        before = state.policy.choice(rows.obs)

        def objective(policy: Policy, part: Rows) -> Float[Array, ""]:
            """Eq. 7, with the Lagrangian term of the cost."""
            ratio = jnp.exp(policy.log_prob(policy.choice(part.obs), part.raw) - part.log_prob)
            near = jnp.clip(ratio, 1.0 - self.clip, 1.0 + self.clip)
            gain = jnp.minimum(ratio * part.advantage, near * part.advantage)
            return mean_of((gain - multiplier * ratio * part.cost_advantage) / (1.0 + multiplier), part.weight)

        def step(going: _Going, draw: Array) -> tuple[_Going, None]:
            part, old = jax.tree.map(lambda x: x[draw], rows), (going.state.policy, going.state.policy_optimiser)
            uphill = jax.grad(lambda p: -objective(p, part))(going.state.policy)
            moved = adam_step(going.state.policy, uphill, going.state.policy_optimiser, self.policy_rate)
            policy, optimiser = jax.tree.map(lambda new, old: jnp.where(going.moving, new, old), moved, old)
            state = self.learn_values(going.state, part)
            return going._replace(state=state._replace(policy=policy, policy_optimiser=optimiser)), None

        def one_pass(going: _Going, draws: Array) -> tuple[_Going, Array]:
            going, _ = jax.lax.scan(step, going, draws)
            policy = going.state.policy
            kl = mean_of(policy.kl(before, policy.choice(rows.obs)), rows.weight)
            passes = going.passes + going.moving.astype(jnp.float32)
            return going._replace(moving=going.moving & (kl <= STOP * self.target_kl), passes=passes), kl

        start = _Going(state, jnp.asarray(True), jnp.zeros(()))
        done, kls = jax.lax.scan(one_pass, start, self.draws(rows.weight, key))
        policy = done.state.policy
        choice = policy.choice(rows.obs)
        ratio = jnp.exp(policy.log_prob(choice, rows.raw) - rows.log_prob)
        far = (jnp.abs(ratio - 1.0) > self.clip).astype(jnp.float32)
        metrics |= {
            "episode_cost": cost,
            "kl": kls[-1],
            "entropy": mean_of(policy.entropy(choice), rows.weight),
            "clipped": mean_of(far, rows.weight),
            "passes": done.passes,
        }
        return self.learn_scale(done.state, trajectory), metrics | errors

    def update_multiplier(self, state: OnPolicyState, cost: Float[Array, ""]) -> tuple[OnPolicyState, dict[str, Array]]:
        """The update of the Lagrange multiplier by an iteration's cost: none without a constraint."""
        return state, {}


@register_method("ppo-lagrangian", paper="Sec. 5.2, app. C")
class PpoLagrangian(Ppo, Constrained):
    """PPO with a Lagrange multiplier of the cost, which rises while episodes cost more than allowed."""

    name = "ppo-lagrangian"
    price_rate: float = setting(0.05, "Learning rate of the Lagrange multiplier, before softplus.")
    first_price: float = setting(1.0, "Initial Lagrange multiplier λ.")

    def __check_init__(self) -> None:
        self.check_ranges(price_rate="(0, inf)", first_price="(0, inf)")

    def init(self, key: PRNGKeyArray) -> OnPolicyState:
        """The initial state of PPO, with the initial Lagrange multiplier."""
        first = jnp.log(jnp.expm1(jnp.asarray(self.first_price, jnp.float32)))
        return super().init(key)._replace(multiplier=first)

    def multiplier(self, state: OnPolicyState) -> Float[Array, ""]:
        """λ = softplus(ν)."""
        return jax.nn.softplus(state.multiplier)

    def update_multiplier(self, state: OnPolicyState, cost: Float[Array, ""]) -> tuple[OnPolicyState, dict[str, Array]]:
        """A step of Adam on ν, by J_C − d."""
        multiplier, optimiser = adam_step(
            state.multiplier, self.limit - cost, state.multiplier_optimiser, self.price_rate
        )
        state = state._replace(multiplier=multiplier, multiplier_optimiser=optimiser)
        return state, {"price": self.multiplier(state), "cost_limit": jnp.asarray(self.limit)}
