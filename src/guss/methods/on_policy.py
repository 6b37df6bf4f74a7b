"""Common base of PPO, TRPO and their constrained forms: advantages, value functions, scaling (Schulman 2016; Ray 2019).

Two value functions, of reward and of cost, are learned by regression on λ-returns. Deviations from Safety Gym's starter
agents: observations are standardised by running statistics; value targets are standardised, too, with the net's last
layer rescaled so that its predictions do not change (van Hasselt 2016), since returns here are in the hundreds; value
functions learn from mini-batches.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree, Shaped

from guss.method import Acted
from guss.methods.base import PolicyMethod, ended_of, unsafe_of
from guss.methods.nets import Net, Policy, Running, adam_step, apply_net, make_net
from guss.types import Trajectory, setting

REWARD, COST = 0, 1


class Critics(NamedTuple):
    """Value functions of reward and of cost: two stacked nets, and the scale of their predictions."""

    nets: Net  # every array with a leading axis 2
    mean: Float[Array, "2"]
    std: Float[Array, "2"]

    def __call__(self, obs: Float[Array, "N D"]) -> Float[Array, "2 N"]:
        """Values, in units of reward and cost."""
        return self.raw(obs) * self.std[:, None] + self.mean[:, None]

    def raw(self, obs: Float[Array, "N D"]) -> Float[Array, "2 N"]:
        """Values, standardised."""
        return jax.vmap(lambda net: apply_net(net, obs, jnp.tanh)[:, 0])(self.nets)

    def rescaled(self, mean: Float[Array, "2"], std: Float[Array, "2"]) -> Critics:
        """Change the scale, keep the predictions."""
        last = self.nets[-1]
        weight = last.weight * (self.std / std)[:, None, None]
        bias = (last.bias * self.std[:, None] + (self.mean - mean)[:, None]) / std[:, None]
        return Critics((*self.nets[:-1], last._replace(weight=weight, bias=bias)), mean, std)


class OnPolicyState(NamedTuple):
    """The learned state of an on-policy method."""

    policy: Policy
    critics: Critics
    scale: Running
    policy_optimiser: Any
    critics_optimiser: Any
    multiplier: Float[Array, ""]
    """Lagrange multiplier before softplus; only for PPO-Lagrangian."""
    multiplier_optimiser: Any


class Rows(NamedTuple):
    """All steps of an iteration, N = E·T, ready for the update."""

    obs: Float[Array, "N D"]  # standardised
    raw: Shaped[Array, "N A"]
    log_prob: Float[Array, "N"]  # under the policy that acted
    advantage: Float[Array, "N"]  # mean 0, variance 1
    cost_advantage: Float[Array, "N"]  # mean 0
    targets: Float[Array, "N 2"]
    weight: Float[Array, "N"]  # 1 for valid steps, else 0


def advantages(delta: Float[Array, "E T"], going: Bool[Array, "E T"], decay: float) -> Float[Array, "E T"]:
    """Σ_k (γλ)^k δ_{t+k}, up to the end of each episode (Schulman 2016, eq. 16). `going`: False at the last step."""

    def step(after: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        value = now[0] + decay * jnp.where(now[1], after, 0.0)
        return value, value

    _, found = jax.lax.scan(step, jnp.zeros(len(delta)), (delta.T, going.T), reverse=True)
    return found.T


def mean_of(values: Float[Array, "N"], weight: Float[Array, "N"]) -> Float[Array, ""]:
    """The mean over valid steps."""
    return jnp.sum(values * weight) / jnp.sum(weight)


class OnPolicy(PolicyMethod):
    """A method whose policy learns only from its latest episodes."""

    num_envs: int = setting(16, "Parallel episodes of a seed between two updates.")
    hidden: tuple[int, ...] = setting((64, 64), "Hidden layers (tanh) of the policy and of both value functions.")
    gamma: float = setting(0.99, "Discount of reward and of cost.")
    lam: float = setting(0.97, "λ of generalised advantage estimation (GAE).")
    target_kl: float = setting(0.01, "Target (PPO) or limit (TRPO, CPO) of the KL divergence of an update.")
    value_rate: float = setting(1e-3, "Learning rate of the value functions.")
    epochs: int = setting(10, "Passes over the episodes for the value functions (and PPO's policy).")
    batch: int = setting(400, "Steps in a mini-batch.")
    first_log_std: float = setting(-0.5, "Log of the policy's initial standard deviation, for action bounds of ±1.")
    normalise: bool = setting(True, "Standardise observations by their running mean and variance.")

    def __check_init__(self) -> None:
        most = "[1, 10000]"  # parallel episodes, and passes over them: all are in memory
        self.check_ranges(num_envs=most, epochs=most, gamma="[0, 1]", lam="[0, 1]")
        self.check_ranges(first_log_std="[-20, 5]", target_kl="(0, inf)", value_rate="(0, inf)")

    def init(self, key: PRNGKeyArray) -> OnPolicyState:
        """Untrained nets; observations scaled as the task specifies."""
        key_policy, key_critics = jax.random.split(key)
        ends = self.task.interface()
        policy = Policy.make(key_policy, ends.obs_size, ends.actions, self.hidden, self.first_log_std)
        nets = jax.vmap(lambda k: make_net(k, (ends.obs_size, *self.hidden, 1)))(jax.random.split(key_critics))
        critics = Critics(nets, jnp.zeros(2), jnp.ones(2))
        adam = optax.scale_by_adam()
        return OnPolicyState(
            policy=policy,
            critics=critics,
            scale=Running(jnp.zeros(()), ends.obs_shift, ends.obs_scale**2),
            policy_optimiser=adam.init(policy),
            critics_optimiser=adam.init(nets),
            multiplier=jnp.zeros(()),
            multiplier_optimiser=adam.init(jnp.zeros(())),
        )

    def act(self, state: OnPolicyState, carry: PyTree, obs: Float[Array, "D"], key: PRNGKeyArray) -> Acted:
        """A sample from the policy, and the sample before clipping.

        Actions are sampled after learning, too: the constraint was learned for the stochastic policy, not for its mode.
        """
        raw = state.policy.sample(state.scale.standardised(obs), key)
        return state.policy.executed(raw), carry, raw

    def rows(self, state: OnPolicyState, trajectory: Trajectory) -> tuple[Rows, dict[str, Array]]:
        """The steps of the episodes as Rows, and the error of the value functions before they learn from them."""
        episodes, steps = trajectory.reward.shape
        flat = lambda x: x.reshape(episodes * steps, *x.shape[2:])  # noqa: E731
        obs, next_obs = (state.scale.standardised(flat(x)) for x in (trajectory.obs, trajectory.next_obs))
        raw, weight = flat(trajectory.aux), flat(trajectory.valid).astype(jnp.float32)
        ahead = jnp.where(flat(ended_of(trajectory))[None], 0.0, state.critics(next_obs))
        values = state.critics(obs)
        outcomes = jnp.stack([flat(trajectory.reward), flat(unsafe_of(trajectory))])
        delta = (outcomes + self.gamma * ahead - values) * weight[None]
        last = jnp.concatenate([~trajectory.valid[:, 1:], jnp.ones((episodes, 1), bool)], axis=1)
        found = jax.vmap(lambda d: advantages(d.reshape(episodes, steps), ~last, self.gamma * self.lam))(delta)
        found = found.reshape(2, episodes * steps)
        targets = found + values
        centred = found - jax.vmap(mean_of, (0, None))(found, weight)[:, None]
        spread = jnp.sqrt(mean_of(centred[REWARD] ** 2, weight))
        log_prob = state.policy.log_prob(state.policy.choice(obs), raw)
        advantage, cost_advantage = centred[REWARD] / (spread + 1e-8), centred[COST]
        variance = jax.vmap(lambda t: mean_of((t - mean_of(t, weight)) ** 2, weight))(targets)
        errors = jax.vmap(lambda a: mean_of(a**2, weight))(found) / jnp.maximum(variance, 1e-6)
        metrics = {"value_error": errors[REWARD], "cost_value_error": errors[COST]}
        return Rows(obs, raw, log_prob, advantage, cost_advantage, targets.T, weight), metrics

    def learn_scale(self, state: OnPolicyState, trajectory: Trajectory) -> OnPolicyState:
        """Add the observations of these episodes to the running statistics."""
        if not self.normalise:
            return state
        rows = trajectory.obs.reshape(-1, trajectory.obs.shape[-1])
        return state._replace(scale=state.scale.add(rows, trajectory.valid.reshape(-1).astype(jnp.float32)))

    def rescale_values(self, state: OnPolicyState, rows: Rows) -> OnPolicyState:
        """Set the scale of value targets to that of these episodes, without changing predictions."""
        weight = rows.weight[:, None]
        mean = jnp.sum(rows.targets * weight, axis=0) / jnp.sum(weight)
        std = jnp.sqrt(jnp.sum((rows.targets - mean[None]) ** 2 * weight, axis=0) / jnp.sum(weight))
        return state._replace(critics=state.critics.rescaled(mean, jnp.maximum(std, 1e-2)))

    def learn_values(self, state: OnPolicyState, rows: Rows) -> OnPolicyState:
        """One step of Adam for the value functions, on the squared error of the standardised values."""
        critics = state.critics
        wanted = (rows.targets - critics.mean[None]) / critics.std[None]

        def loss(nets: Net) -> Float[Array, ""]:
            errors = critics._replace(nets=nets).raw(rows.obs) - wanted.T
            return 0.5 * jnp.sum(errors**2 * rows.weight[None]) / jnp.sum(rows.weight)

        nets, optimiser = adam_step(
            critics.nets, jax.grad(loss)(critics.nets), state.critics_optimiser, self.value_rate
        )
        return state._replace(critics=critics._replace(nets=nets), critics_optimiser=optimiser)

    def draws(self, weight: Float[Array, "N"], key: PRNGKeyArray) -> Array:
        """Mini-batches of row numbers for all epochs, [epochs, steps, batch]: every row about once per epoch.

        If episodes end early, there are fewer valid rows than places, and each row is drawn more often.
        """
        room = weight.shape[0]
        size = min(self.batch, room)
        each = room // size
        lots = jax.vmap(lambda k: jax.random.permutation(k, room))(jax.random.split(key, self.epochs))
        rows = jnp.floor(lots.astype(jnp.float32) * (jnp.sum(weight) / room)).astype(jnp.int32)
        found = jnp.argsort(weight == 0.0, stable=True)[jnp.minimum(rows, jnp.sum(weight).astype(jnp.int32) - 1)]
        return found[:, : each * size].reshape(self.epochs, each, size)


def episode_cost(trajectory: Trajectory) -> Float[Array, ""]:
    """J_C: mean number of unsafe steps per episode."""
    return jnp.mean(jnp.sum(jnp.where(trajectory.valid, unsafe_of(trajectory), 0.0), axis=1))


class Constrained(OnPolicy):
    """An on-policy method with a limit on the cost of an episode."""

    safe = True
    cost_limit: float = setting(25.0, "Unsafe steps allowed per 1,000, on average.")

    def __check_init__(self) -> None:
        self.check_ranges(cost_limit="[0, inf)")

    @property
    def limit(self) -> float:
        """d: unsafe steps allowed per episode."""
        return self.cost_limit * self.task.episode_length / 1000.0
