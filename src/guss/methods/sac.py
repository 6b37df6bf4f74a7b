"""SAC, soft actor-critic (Haarnoja 2018b, "Soft actor-critic algorithms and applications").

Two critics learn Q by the target of eqs. 3 and 5, r + γ (min_i Q̄_i(s', a') − α log π(a'|s')), the actor maximises
min_i Q_i(s, a) − α log π(a|s) (eq. 9), and α moves the entropy towards −dim(a) (eq. 18). Q̄ follow Q slowly (τ).

Deviation: after every whole episode there are as many updates as it had steps (times `updates`), instead of one update
after every step. Observations are standardised by running statistics, and rewards divided by their observed range,
since returns are in the hundreds and nets start near zero. Because α is learned, this scaling does not change the
optimal policy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from guss.errors import GussError
from guss.method import Acted, Learned
from guss.methods import register_method
from guss.methods.base import PolicyMethod, ended_of, unsafe_of
from guss.methods.nets import LOG_2PI, Net, Running, adam_step, apply_net, make_net
from guss.models.layers import encoded
from guss.models.training import Data, append, check_buffer, empty_data
from guss.types import Trajectory, setting
from guss.validation import MAX_INT

LOG_STD = (-5.0, 2.0)
LOG_2 = 0.6931471805599453


class SacNets(NamedTuple):
    """The nets of one seed."""

    actor: Net
    critics: Net  # every array with a leading axis 2
    targets: Net
    log_alpha: Float[Array, ""]
    actor_optimiser: Any
    critics_optimiser: Any
    alpha_optimiser: Any


class SacState(NamedTuple):
    """The nets of SAC, running statistics of observations, and the replay buffer."""

    nets: SacNets
    scale: Running
    data: Data  # with reward, costs and ends


class Rewards(NamedTuple):
    """The range of observed rewards."""

    low: Float[Array, ""]
    high: Float[Array, ""]

    @property
    def unit(self) -> Float[Array, ""]:
        """The nets learn rewards divided by this."""
        return jnp.maximum(self.high - self.low, 1e-6)


def squashed(outputs: Float[Array, "*lead M"], noise: Float[Array, "*lead A"]) -> tuple[Array, Array]:
    """A sample of tanh(N(mean, std)) in ±1, and its log density (app. C)."""
    mean, raw = jnp.split(outputs, 2, axis=-1)
    low, high = LOG_STD
    log_std = low + 0.5 * (high - low) * (jnp.tanh(raw) + 1.0)
    draw = mean + jnp.exp(log_std) * noise
    normal = -0.5 * (noise**2 + 2.0 * log_std + LOG_2PI)
    narrower = 2.0 * (LOG_2 - draw - jax.nn.softplus(-2.0 * draw))  # log(1 − tanh²)
    return jnp.tanh(draw), jnp.sum(normal - narrower, axis=-1)


def q_values(critics: Net, obs: Float[Array, "N D"], action: Float[Array, "N A"]) -> Float[Array, "2 N"]:
    both = jnp.concatenate([obs, action], axis=-1)
    return jax.vmap(lambda net: apply_net(net, both, jax.nn.relu)[:, 0])(critics)


def minibatch(obs: Any, action: Any, reward: Any, next_obs: Any, ended: Any, unsafe: Any, valid: Any) -> Trajectory:
    """Transitions [N, …] to learn from: observations standardised, actions in ±1, rewards in units of their range."""
    none = jnp.zeros_like(ended)
    cost = unsafe[:, None].astype(jnp.float32)
    return Trajectory(obs, action, reward, cost, next_obs, ended, none, none, valid, valid)


def target_of(
    batch: Trajectory, soft_value: Float[Array, "N"], gamma: float, violation_value: Float[Array, ""]
) -> Float[Array, "N"]:
    """The target of Q: r + γ V(s'), or `violation_value` for an unsafe transition, whatever follows."""
    ahead = jnp.where(batch.terminated, 0.0, soft_value)
    return jnp.where(unsafe_of(batch) > 0.0, violation_value, batch.reward + gamma * ahead)


@register_method("sac", paper="–")
class Sac(PolicyMethod):
    """Soft actor-critic: maximises the reward, ignores cost, learns from all transitions so far."""

    name = "sac"
    explores_first = True
    continuous_only = True
    seed_by_seed = True
    defaults = {"episodes": 50}  # noqa: RUF012

    hidden: tuple[int, ...] = setting((256, 256), "Hidden layers (ReLU) of the actor and of both critics.")
    rate: float = setting(3e-4, "Learning rate of the actor, both critics and α.")
    gamma: float = setting(0.99, "Discount.")
    tau: float = setting(0.005, "Share by which target critics move to the critics in an update.")
    batch: int = setting(256, "Transitions in an update.")
    updates: float = setting(1.0, "Updates per step.")

    def __check_init__(self) -> None:
        self.check_ranges(rate="(0, inf)", updates="(0, inf)", gamma="(0, 1)", tau="(0, 1]")
        if self.updates * self.task.episode_length > MAX_INT:
            raise GussError(
                f"{self.name}: updates per step × episode length must not exceed {MAX_INT}, got {self.updates} updates "
                f"per step"
            )
        check_buffer(f"the replay buffer of {self.name}", self.task, self.capacity)

    @property
    def num_updates(self) -> int:
        return max(1, round(self.updates * self.task.episode_length))

    # -------------------------------------------------------------------------------------------------- nets

    def first_nets(self, key: PRNGKeyArray) -> SacNets:
        size, width = self.task.observations.size, self.task.actions.shape[0]
        key_actor, key_critics = jax.random.split(key)
        actor = make_net(key_actor, (size, *self.hidden, 2 * width), last=0.1)
        make = lambda k: make_net(k, (size + width, *self.hidden, 1))  # noqa: E731
        critics = jax.vmap(make)(jax.random.split(key_critics))
        adam, log_alpha = optax.scale_by_adam(), jnp.log(jnp.asarray(0.1, jnp.float32))
        return SacNets(
            actor, critics, critics, log_alpha, adam.init(actor), adam.init(critics), adam.init(log_alpha)
        )  # fmt: skip

    def learn_from(self, nets: SacNets, batch: Trajectory, violation_value: Array, key: PRNGKeyArray) -> Learned:
        weight = batch.valid.astype(jnp.float32)
        alpha, total = jnp.exp(nets.log_alpha), jnp.sum(weight)
        noise = jax.random.normal(key, (2, *batch.action.shape))
        next_action, next_log = squashed(apply_net(nets.actor, batch.next_obs, jax.nn.relu), noise[0])
        ahead = jnp.min(q_values(nets.targets, batch.next_obs, next_action), axis=0) - alpha * next_log
        target = target_of(batch, ahead, self.gamma, violation_value)

        def critic_loss(critics: Net) -> Array:
            errors = q_values(critics, batch.obs, batch.action) - target[None]
            return 0.5 * jnp.sum(errors**2 * weight[None]) / total

        loss, gradient = jax.value_and_grad(critic_loss)(nets.critics)
        critics, critics_optimiser = adam_step(nets.critics, gradient, nets.critics_optimiser, self.rate)

        def actor_loss(actor: Net) -> tuple[Array, Array]:
            action, log_prob = squashed(apply_net(actor, batch.obs, jax.nn.relu), noise[1])
            value = jnp.min(q_values(critics, batch.obs, action), axis=0)
            return jnp.sum((alpha * log_prob - value) * weight) / total, jnp.sum(log_prob * weight) / total

        (_, log_prob), gradient = jax.value_and_grad(actor_loss, has_aux=True)(nets.actor)
        actor, actor_optimiser = adam_step(nets.actor, gradient, nets.actor_optimiser, self.rate)
        wanted = -jnp.asarray(batch.action.shape[1], jnp.float32)
        log_alpha, alpha_optimiser = adam_step(nets.log_alpha, -(log_prob + wanted), nets.alpha_optimiser, self.rate)
        follow = lambda slow, fast: slow + self.tau * (fast - slow)  # noqa: E731
        targets = jax.tree.map(follow, nets.targets, critics)
        metrics = {"critic_loss": loss, "entropy": -log_prob, "alpha": alpha, "q": jnp.sum(target * weight) / total}
        nets = SacNets(actor, critics, targets, log_alpha, actor_optimiser, critics_optimiser, alpha_optimiser)
        return nets, metrics

    # ------------------------------------------------------------------------------------------------ acting

    def draw(self, nets: SacNets, scale: Running, obs: Float[Array, "D"], noise: Float[Array, "A"]) -> Array:
        """The policy's action, with given noise."""
        outputs = apply_net(nets.actor, scale.standardised(obs), jax.nn.relu)
        return self.task.actions.from_unit(squashed(outputs, noise)[0])

    def acting(self, state: Any) -> Any:
        return state._replace(data=())

    def act(self, state: Any, carry: PyTree, obs: Float[Array, "D"], key: PRNGKeyArray) -> Acted:
        """A sample from the policy; its mean after learning, as in SAC's evaluation."""
        shape = self.task.actions.shape
        noise = jnp.zeros(shape) if self.greedy else jax.random.normal(key, shape)
        return self.draw(state.nets, state.scale, obs, noise), carry, ()

    # ---------------------------------------------------------------------------------------------- learning

    def init(self, key: PRNGKeyArray) -> SacState:
        ends, constraints = self.task.interface(), len(self.task.constraints)
        room = self.capacity + self.task.episode_length
        data = empty_data(ends.obs_size, ends.actions.shape, ends.actions.dtype, room, 2 + constraints)
        return SacState(self.first_nets(key), Running(jnp.zeros(()), ends.obs_shift, ends.obs_scale**2), data)

    def remember(self, state: Any, trajectory: Trajectory) -> Any:
        """Add the transitions of one episode to the replay buffer."""
        one: Trajectory = jax.tree.map(lambda x: x[0], trajectory._replace(aux=()))
        outcomes = jnp.concatenate([one.reward[:, None], one.cost, ended_of(one)[:, None].astype(jnp.float32)], axis=1)
        count = jnp.sum(one.valid, dtype=jnp.int32)
        more = Data(one.obs, one.action, one.next_obs, one.learnable, count, outcomes)
        scale = state.scale.add(one.obs, one.valid.astype(jnp.float32))
        return state._replace(data=append(state.data, more), scale=scale)

    def rewards(self, data: Data) -> Rewards:
        """The range of rewards observed so far."""
        assert data.outcomes is not None
        real, reward = jnp.arange(len(data.use)) < data.filled, data.outcomes[:, 0]
        return Rewards(jnp.min(jnp.where(real, reward, jnp.inf)), jnp.max(jnp.where(real, reward, -jnp.inf)))

    def real_batch(self, state: Any, rows: Array, unit: Float[Array, ""]) -> Trajectory:
        """Transitions of the real system."""
        data, outcomes = state.data, state.data.outcomes[rows]
        return minibatch(
            obs=state.scale.standardised(data.obs[rows]),
            action=jax.vmap(lambda a: encoded(self.task.actions, a))(data.action[rows]),
            reward=outcomes[:, 0] / unit,
            next_obs=state.scale.standardised(data.next_obs[rows]),
            ended=outcomes[:, -1] > 0.0,
            unsafe=jnp.any(outcomes[:, 1:-1] > 0.0, axis=1),
            valid=jnp.ones(len(rows), bool),
        )

    def update(self, state: SacState, trajectory: Trajectory, key: PRNGKeyArray) -> Learned:
        """Add the episode to the replay buffer, then learn from the buffer."""
        state = self.remember(state, trajectory)
        unit = self.rewards(state.data).unit

        def step(nets: SacNets, key: PRNGKeyArray) -> tuple[SacNets, dict[str, Array]]:
            key_rows, key_noise = jax.random.split(key)
            batch = self.real_batch(state, drawn(key_rows, self.batch, state.data.filled), unit)
            batch = batch._replace(cost=jnp.zeros_like(batch.cost))
            return self.learn_from(nets, batch, jnp.zeros(()), key_noise)

        nets, metrics = jax.lax.scan(step, state.nets, jax.random.split(key, self.num_updates))
        return state._replace(nets=nets), jax.tree.map(lambda x: jnp.mean(x), metrics)


def drawn(key: PRNGKeyArray, count: int, below: Array) -> Array:
    """`count` row numbers, with replacement."""
    rows = (jax.random.uniform(key, (count,)) * below.astype(jnp.float32)).astype(jnp.int32)
    return jnp.minimum(rows, below - 1)
