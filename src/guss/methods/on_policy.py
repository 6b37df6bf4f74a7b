"""What PPO, TRPO and their constrained forms share: advantages, value functions, scaling. (Schulman 2016; Ray 2019)

Two value functions, of reward and of cost, are learned by regression on λ-returns. Deviations from Safety Gym's starter
agents: observations are standardised by what was seen so far; value targets too, with the net's last layer corrected so
that its predictions stay as they are (van Hasselt 2016), since returns here are in the hundreds; value functions learn
from mini-batches.
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
    """V of reward and of cost: two nets side by side, and the scale of what they predict."""

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
        """Another scale, the same predictions."""
        last = self.nets[-1]
        weight = last.weight * (self.std / std)[:, None, None]
        bias = (last.bias * self.std[:, None] + (self.mean - mean)[:, None]) / std[:, None]
        return Critics((*self.nets[:-1], last._replace(weight=weight, bias=bias)), mean, std)


class OnPolicyState(NamedTuple):
    """What an on-policy method has learned."""

    policy: Policy
    critics: Critics
    scale: Running
    policy_optimiser: Any
    critics_optimiser: Any
    multiplier: Float[Array, ""]
    """Before softplus; of PPO-Lagrangian alone."""
    multiplier_optimiser: Any


class Rows(NamedTuple):
    """All steps of an iteration, N = E·T, ready for the update."""

    obs: Float[Array, "N D"]  # standardised
    raw: Shaped[Array, "N A"]
    log_prob: Float[Array, "N"]  # under the policy that acted
    advantage: Float[Array, "N"]  # mean 0, variance 1
    cost_advantage: Float[Array, "N"]  # mean 0
    targets: Float[Array, "N 2"]
    weight: Float[Array, "N"]  # 1 where it happened, else 0


def advantages(delta: Float[Array, "E T"], going: Bool[Array, "E T"], decay: float) -> Float[Array, "E T"]:
    """Σ_k (γλ)^k δ_{t+k}, up to the end of each episode (Schulman 2016, eq. 16). `going`: not the last step."""

    def step(after: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        value = now[0] + decay * jnp.where(now[1], after, 0.0)
        return value, value

    _, found = jax.lax.scan(step, jnp.zeros(len(delta)), (delta.T, going.T), reverse=True)
    return found.T


def mean_of(values: Float[Array, "N"], weight: Float[Array, "N"]) -> Float[Array, ""]:
    """The mean over steps that happened."""
    return jnp.sum(values * weight) / jnp.sum(weight)


class OnPolicy(PolicyMethod):
    """A policy that learns from its own last episodes only."""

    num_envs: int = setting(16, "Episodes that a seed plays at once between two updates.")
    hidden: tuple[int, ...] = setting((64, 64), "Layers of the policy and of both value functions, tanh.")
    gamma: float = setting(0.99, "Discount of reward and of cost.")
    lam: float = setting(0.97, "λ of the advantages.")
    target_kl: float = setting(0.01, "How far a policy may move in one update.")
    value_rate: float = setting(1e-3, "Learning rate of the value functions.")
    epochs: int = setting(10, "Passes over the episodes for the value functions (and PPO's policy).")
    batch: int = setting(400, "Steps in a mini-batch.")
    first_log_std: float = setting(-0.5, "Log of the policy's first standard deviation; bounds of actions are ±1.")
    normalise: bool = setting(True, "Standardise observations by what was seen so far.")

    def __check_init__(self) -> None:
        most = "[1, 10000]"  # episodes at once, and passes over them: all are in memory
        self.check_ranges(num_envs=most, epochs=most, gamma="[0, 1]", lam="[0, 1]")
        self.check_ranges(first_log_std="[-20, 5]", target_kl="(0, inf)", value_rate="(0, inf)")

    def init(self, key: PRNGKeyArray) -> OnPolicyState:
        """Untrained nets; observations scaled as the task says."""
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
        """A draw from the policy, and the draw before it is clipped.

        Once learning is over too: the constraint was learned for the policy as it acts, not for its likeliest action.
        """
        raw = state.policy.sample(state.scale.standardised(obs), key)
        return state.policy.executed(raw), carry, raw

    def rows(self, state: OnPolicyState, trajectory: Trajectory) -> tuple[Rows, dict[str, Array]]:
        """What the episodes say, step by step, and the error of the value functions before they learn from it."""
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
        """Observations of these episodes, too, decide how the next ones are scaled."""
        if not self.normalise:
            return state
        rows = trajectory.obs.reshape(-1, trajectory.obs.shape[-1])
        return state._replace(scale=state.scale.add(rows, trajectory.valid.reshape(-1).astype(jnp.float32)))

    def rescale_values(self, state: OnPolicyState, rows: Rows) -> OnPolicyState:
        """The scale of value targets is that of these episodes; predictions stay as they were."""
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
        """Mini-batches of row numbers for all epochs, [epochs, steps, batch]: every row about once an epoch.

        Where episodes were over early there are fewer rows than room, and each is drawn more often instead.
        """
        room = weight.shape[0]
        size = min(self.batch, room)
        each = room // size
        lots = jax.vmap(lambda k: jax.random.permutation(k, room))(jax.random.split(key, self.epochs))
        rows = jnp.floor(lots.astype(jnp.float32) * (jnp.sum(weight) / room)).astype(jnp.int32)
        found = jnp.argsort(weight == 0.0, stable=True)[jnp.minimum(rows, jnp.sum(weight).astype(jnp.int32) - 1)]
        return found[:, : each * size].reshape(self.epochs, each, size)


def episode_cost(trajectory: Trajectory) -> Float[Array, ""]:
    """J_C: unsafe steps of an episode, on average."""
    return jnp.mean(jnp.sum(jnp.where(trajectory.valid, unsafe_of(trajectory), 0.0), axis=1))


class Constrained(OnPolicy):
    """With a limit on the cost of an episode."""

    safe = True
    cost_limit: float = setting(25.0, "Unsafe steps allowed per 1,000, on average.")

    def __check_init__(self) -> None:
        self.check_ranges(cost_limit="[0, inf)")

    @property
    def limit(self) -> float:
        """d: unsafe steps allowed in an episode."""
        return self.cost_limit * self.task.episode_length / 1000.0
