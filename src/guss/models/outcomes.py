"""Learned outcomes, if a Task does not define them: reward, costs, end of an episode, behaviour descriptor.

Small networks ("nets"), separate from the model of the dynamics, have the inputs (s, a, s'). One predicts the reward as
a Gaussian density; the others are classifiers of every unknown cost and of the end of an episode. Unsafe steps are
rare, so they have a larger weight in the training of a classifier. The predicted probabilities are then corrected for
this weight and calibrated on held-out rows. The behaviour descriptor is the last state of a plan, projected on the
first principal components of the observed states.
"""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from guss import keys as streams
from guss.models.layers import ACTIVATIONS, Activation, Layer, encoded, softplus
from guss.models.scaling import Scaling
from guss.models.support import Support
from guss.models.training import Data, FitSettings, Pace, in_order, split_rows, train_network
from guss.task import Task
from guss.types import Actions, Model, Outcomes, Rollout

LOG_STD = (-5.0, 1.0)  # of standardised rewards
OUTCOME_MEMBERS = 3
"""Sets of nets if the dynamics are no ensemble: they disagree where the boundary of the unsafe states is uncertain."""
MOST_WEIGHT = 100.0
"""Maximum weight of an unsafe row relative to a safe one."""
BEYOND = 1.25
"""The factor by which the grid of a learned descriptor is larger than the range of the observed states."""


class OutcomeReport(NamedTuple):
    """Quality of the learned reward and costs on held-out rows; NaN if no row can be evaluated."""

    reward_r2: Float[Array, ""]
    cost_error: Float[Array, "C"]
    """Mean log loss of each classifier."""
    cost_calibration: Float[Array, "C"]
    """Expected calibration error: difference between predicted probabilities and observed shares, 10 bins."""
    cost_recall: Float[Array, "C"]
    """Share of the true events with a predicted probability of at least one half."""
    cost_share: Float[Array, "C"]
    """Share of rows with the event."""


class OutcomeNets(eqx.Module):
    """L stacked nets: one for the reward, if it is unknown, and one for every event (costs, the end)."""

    layers: list[Layer]
    obs_scaling: Scaling
    reward_scaling: Scaling  # of a scalar
    reward_range: Float[Array, "2"]  # predicted rewards are clipped to it
    slope: Float[Array, "C"]  # calibrated log odds: slope · log odds + offset
    offset: Float[Array, "C"]
    actions: Actions = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)
    rewarded: bool = eqx.field(static=True)
    """Whether the first net predicts the reward."""

    def inputs(
        self, obs: Float[Array, "D"], action: Shaped[Array, "..."], next_obs: Float[Array, "D"]
    ) -> Float[Array, "F"]:
        """Inputs of the nets: standardised states and the encoded action."""
        return jnp.concatenate([self.obs_scaling(obs), encoded(self.actions, action), self.obs_scaling(next_obs)])

    def outputs(self, inputs: Float[Array, "B F"], noise: Float[Array, "B D"] | None = None) -> Float[Array, "L B 2"]:
        """Mean and raw log spread of the reward; log odds of events, in the first column.

        `noise` is only for events. It shifts both standardised observations equally: an unshifted one would reveal the
        other.
        """
        count = self.layers[0].bias.shape[0]
        hidden = jnp.broadcast_to(inputs[None], (count, *inputs.shape))
        if noise is not None:
            between = jnp.zeros((inputs.shape[0], inputs.shape[1] - 2 * noise.shape[1]))  # no noise on the action
            blurred = jnp.concatenate([noise, between, noise], axis=1)
            of_events = (jnp.arange(count) >= int(self.rewarded)).astype(jnp.float32)
            hidden = hidden + of_events[:, None, None] * blurred[None]
        for i, layer in enumerate(self.layers):
            hidden = ACTIVATIONS[self.activation](hidden) if i else hidden
            hidden = jnp.matmul(hidden, layer.weight) + layer.bias[:, None]
        return hidden

    def reward(self, outputs: Float[Array, "L B 2"]) -> tuple[Float[Array, "B"], Float[Array, "B"]]:
        """Mean and log standard deviation of the standardised reward."""
        low, high = LOG_STD
        spread = high - softplus(high - outputs[0, :, 1])
        return outputs[0, :, 0], low + softplus(spread - low)

    def log_odds(self, outputs: Float[Array, "L B 2"]) -> Float[Array, "C B"]:
        """Log odds of every event, not calibrated."""
        return outputs[int(self.rewarded) :, :, 0]

    def probabilities(self, outputs: Float[Array, "L B 2"]) -> Float[Array, "C B"]:
        return jax.nn.sigmoid(self.slope[:, None] * self.log_odds(outputs) + self.offset[:, None])


class Behaviour(eqx.Module):
    """Principal components of the observed states, scaled so that the states lie within [−1, 1]."""

    shift: Float[Array, "D"]
    axes: Float[Array, "D B"]

    @classmethod
    def of(cls, obs: Float[Array, "rows D"], use: Bool[Array, "rows"], dims: int) -> Behaviour:
        """The `dims` directions along which standardised observations vary most."""
        scaling = Scaling.of(obs, use)
        rows = jnp.where(use[:, None], jax.vmap(scaling)(obs), 0.0)  # standardised, so zero is the mean
        covariance = jnp.matmul(rows.T, rows) / jnp.maximum(jnp.sum(use), 1).astype(jnp.float32)
        directions = jnp.linalg.eigh(covariance)[1][:, ::-1][:, :dims]
        reach = BEYOND * jnp.maximum(jnp.max(jnp.abs(jnp.matmul(rows, directions)), axis=0), 1e-3)
        return cls(scaling.mean, directions / scaling.std[:, None] / reach[None])

    def __call__(self, rollout: Rollout) -> Float[Array, "B"]:
        return (rollout.next_obs[-1] - self.shift) @ self.axes


class ModelWithOutcomes(Model):
    """A model of the dynamics with learned outcomes, if the Task does not define them."""

    dynamics: Model
    nets: OutcomeNets | None  # an ensemble: arrays have a leading axis of members; None: nothing to learn
    behaviour: Behaviour | None
    support: Support

    @property
    def num_particles(self) -> int:
        return self.dynamics.num_particles

    @property
    def plain_state(self) -> bool:
        return self.dynamics.plain_state

    def encode(self, obs: Float[Array, "D"]) -> PyTree:
        return self.dynamics.encode(obs)

    def decode(self, state: PyTree) -> Float[Array, "D"]:
        return self.dynamics.decode(state)

    def predict(
        self, state: PyTree, action: Shaped[Array, "..."], key: PRNGKeyArray, particle: Int[Array, ""]
    ) -> PyTree:
        return self.dynamics.predict(state, action, key, particle)

    def policy_inputs(self) -> tuple[Float[Array, "D"], Float[Array, "D"]] | None:
        return self.dynamics.policy_inputs()

    def unfamiliar(self, obs: Float[Array, "D"]) -> Float[Array, ""]:
        """1 if the state is far from the training data, otherwise 0."""
        return self.support.unfamiliar(obs)

    def mean_model(self) -> ModelWithOutcomes:
        """The model with the mean model of its dynamics."""
        return dataclasses.replace(self, dynamics=self.dynamics.mean_model())

    def prepare(self) -> tuple[Model, Literal[0] | None]:
        """The model with its dynamics prepared for planning.

        If the arrays of the dynamics have a leading axis of particles, every particle gets one set of outcome nets; if
        the number of particles is not a multiple of the number of sets, every particle gets all sets.
        """
        dynamics, axis = self.dynamics.prepare()
        nets, rest, count = self.nets, (self.behaviour, self.support), self.num_particles
        if axis == 0:
            same = lambda x: jnp.broadcast_to(x[None], (count, *x.shape))  # noqa: E731
            each = lambda x: jnp.concatenate([x] * (count // x.shape[0]))[:, None]  # noqa: E731
            match = nets is not None and count % nets.slope.shape[0] == 0
            nets, rest = jax.tree.map(each if match else same, nets), jax.tree.map(same, rest)
        return ModelWithOutcomes(dynamics, nets, *rest), axis

    def outcomes(self, task: Task, rollout: Rollout) -> Outcomes:
        """The Task's outcomes if it defines them, else the learned outcomes; none count after a predicted end."""
        reward = None if task.reward is None else jax.vmap(task.reward_of)(*rollout)
        events = None
        if self.nets is not None:
            learned, events = self._predict_outcomes(self.nets, rollout)
            reward = learned if reward is None else reward
        assert reward is not None  # the Task defines it, or there are nets
        columns, used = [], 0
        for constraint in task.constraints:
            if constraint.learned:
                assert events is not None
                columns.append(constraint.cost(events[used]).astype(jnp.float32))
                used += 1
            else:
                columns.append(jax.vmap(lambda *step, c=constraint: jnp.asarray(c.cost(*step), jnp.float32))(*rollout))
        cost = jnp.stack(columns, axis=1) if columns else jnp.zeros((reward.shape[0], 0))
        if task.learns_end:
            assert events is not None
            before = lambda x: jnp.concatenate([jnp.ones(1), jnp.cumprod(x)[:-1]])  # noqa: E731  the terminal step counts
            # A reward is weighted by the probability that the episode lasts until its step. Costs count up to the first
            # step that is likely terminal (p ≥ 0.5): a small chance to continue must not make a plan unsafe.
            reward = reward * before(1.0 - events[used])
            cost = cost * before((events[used] < 0.5).astype(jnp.float32))[:, None]
        descriptor = task.descriptor if self.behaviour is None else self.behaviour
        assert descriptor is not None
        return Outcomes(reward, cost, descriptor(rollout))

    def _predict_outcomes(
        self, nets: OutcomeNets, rollout: Rollout
    ) -> tuple[Float[Array, "H"] | None, Float[Array, "C H"]]:
        """The reward (if it is learned) as the mean over members, probabilities of events as their maximum."""

        def one(nets: OutcomeNets) -> tuple[Array | None, Array]:
            outputs = nets.outputs(jax.vmap(nets.inputs)(*rollout))
            mean = nets.reward(outputs)[0][:, None] if nets.rewarded else None
            reward = None if mean is None else jax.vmap(nets.reward_scaling.undo)(mean)[:, 0]
            reward = None if reward is None else jnp.clip(reward, nets.reward_range[0], nets.reward_range[1])
            return reward, nets.probabilities(outputs)

        reward, chance = jax.vmap(one)(nets)
        return None if reward is None else jnp.mean(reward, axis=0), jnp.max(chance, axis=0)


# ------------------------------------------------------------------------------------------------------- construction


def learns_outcomes(task: Task) -> bool:
    """Whether a model of the task learns more than the dynamics: outcomes, or where the training data lie."""
    return bool(task.unknown) or task.unknown_unsafe


def num_outcomes(task: Task) -> int:
    """How many numbers each step stores to learn outcomes (reward, costs, end); 0 if none of them is learned."""
    learned = task.reward is None or any(c.learned for c in task.constraints) or bool(task.learns_end)
    return 2 + len(task.constraints) if learned else 0


def make_outcome_nets(
    task: Task, key: PRNGKeyArray, hidden: tuple[int, ...], activation: Activation
) -> OutcomeNets | None:
    """Untrained nets for outcomes that a task does not define; None if it defines reward, costs and end."""
    events = sum(c.learned for c in task.constraints) + bool(task.learns_end)
    count = events + (task.reward is None)
    if count == 0:
        return None
    size, actions = task.observations.size, task.actions
    action = jax.ShapeDtypeStruct(actions.shape, actions.dtype)
    widths = (2 * size + jax.eval_shape(lambda a: encoded(actions, a), action).shape[0], *hidden, 2)
    keys = jax.random.split(key, len(widths))
    layers = [
        Layer(jax.random.normal(keys[i], (count, a, b)) / jnp.sqrt(float(a)), jnp.zeros((count, b)))
        for i, (a, b) in enumerate(pairwise(widths))
    ]
    scalings = Scaling.identity(size), Scaling.identity(1)
    about = (*scalings, jnp.asarray([-jnp.inf, jnp.inf]), jnp.ones(events), jnp.zeros(events))
    return OutcomeNets(layers, *about, actions, activation, task.reward is None)


def make_model_with_outcomes(
    dynamics: Model, task: Task, key: PRNGKeyArray, count: int, hidden: tuple[int, ...], activation: Activation
) -> ModelWithOutcomes:
    """The dynamics with an ensemble of `count` sets of nets for outcomes that the task does not define."""
    nets = jax.vmap(lambda k: make_outcome_nets(task, k, hidden, activation))(jax.random.split(key, count))
    size, dims = task.observations.size, len(task.grid.cells)
    behaviour = None if task.descriptor is not None else Behaviour(jnp.zeros(size), jnp.eye(size, dims))
    return ModelWithOutcomes(dynamics, nets, behaviour, Support.empty(size))


# ------------------------------------------------------------------------------------------------------------ fitting


def train_outcomes(
    nets: OutcomeNets,
    fresh: OutcomeNets,
    targets: Float[Array, "rows O"],
    data: Data,
    key: PRNGKeyArray,
    settings: FitSettings,
    pace: Pace,
) -> OutcomeNets:
    """Train one set of nets on `targets`, the columns of `data.outcomes` that `outcome_targets` selects."""
    training, held_out = split_rows(data, settings)
    num_training, num_held_out = (jnp.sum(rows, dtype=jnp.int32) for rows in (training, held_out))
    nets = nets if settings.warm_start else fresh
    rewarded = int(nets.rewarded)
    rewards, events = targets[:, :rewarded], (targets[:, rewarded:] > 0.0).astype(jnp.float32)
    nets = eqx.tree_at(lambda n: n.obs_scaling, nets, Scaling.of(data.obs, training))
    if rewarded:
        limits = _widened(rewards[:, 0], training | held_out, settings.reward_margin)
        parts = (Scaling.of(rewards, training), limits)
        nets = eqx.tree_at(lambda n: (n.reward_scaling, n.reward_range), nets, parts)
        rewards = jax.vmap(nets.reward_scaling)(rewards)
    weight = event_weight(events, training)
    order = in_order(training, held_out)
    inputs = jax.vmap(nets.inputs)(data.obs, data.action, data.next_obs)[order]
    truth, happened = rewards[order], events[order]
    still, size = blur(data, key, settings), data.obs.shape[1]
    split = lambda n: n.layers  # noqa: E731

    def losses(beta: float) -> Any:
        def each(weights: Any, rows: Int[Array, "N"], normals: Array | None = None) -> Float[Array, "N"]:
            net: OutcomeNets = eqx.tree_at(split, nets, weights)
            noise = still[order[rows]] if normals is None else settings.cost_blur * normals
            outputs = net.outputs(inputs[rows], noise)
            odds, hit = net.log_odds(outputs), happened[rows].T
            total = jnp.sum(weight[:, None] * hit * softplus(-odds) + (1.0 - hit) * softplus(odds), axis=0)
            if rewarded:
                mean, log_std = net.reward(outputs)
                error = (truth[rows, 0] - mean) ** 2
                # beta_nll, as for the dynamics; beta 0 means the squared error, which evaluates the held-out rows.
                likelihood = 0.5 * error * jnp.exp(-2.0 * log_std) + log_std
                total = total + (
                    error if beta == 0.0 else likelihood * jax.lax.stop_gradient(jnp.exp(2 * beta * log_std))
                )
            return total

        return each

    done = train_network(split(nets), losses(0.5), losses(0.0), num_training, num_held_out, key, settings, pace, size)
    return eqx.tree_at(split, nets, done.best_weights)


def event_weight(events: Float[Array, "rows C"], training: Bool[Array, "rows"]) -> Float[Array, "C"]:
    """Weight of each event in training: the rarer the event, the larger its weight."""
    often = jnp.sum(jnp.where(training[:, None], events, 0.0), axis=0)
    count = jnp.sum(training, dtype=jnp.int32).astype(jnp.float32)
    return jnp.clip((count - often) / jnp.maximum(often, 1.0), 1.0, MOST_WEIGHT)


def blur(data: Data, key: PRNGKeyArray, settings: FitSettings) -> Float[Array, "rows D"]:
    """Noise on states, the same in every evaluation.

    Plans evaluate predicted states, which are inexact. Training the classifiers on noisy states makes their
    probabilities rise before the boundary of the unsafe region instead of at it.
    """
    return settings.cost_blur * jax.random.normal(jax.random.fold_in(key, streams.BLUR), data.obs.shape)


def _widened(rewards: Float[Array, "rows"], use: Bool[Array, "rows"], margin: float) -> Float[Array, "2"]:
    """The range of the rewards in use, widened by `margin` times its width on both sides."""
    low = jnp.min(jnp.where(use, rewards, jnp.inf))
    high = jnp.max(jnp.where(use, rewards, -jnp.inf))
    return jnp.stack([low - margin * (high - low), high + margin * (high - low)])


def outcome_targets(task: Task, outcomes: Any) -> Any:
    """The columns of `outcomes` (reward, costs, the end) that are learned."""
    which = [*[0] * (task.reward is None), *(1 + i for i, c in enumerate(task.constraints) if c.learned)]
    return outcomes[:, np.asarray([*which, *[-1] * bool(task.learns_end)], np.int32)]
