"""Mixture density nets (Sec. 4.1): DMDN, one net for the whole next state, and DARMDN, one net per dimension.

Both predict the change s' − s, standardised on the training data, as a mixture of K Gaussians. Net ℓ of a DARMDN has
the inputs (s, a, s'_0 … s'_{ℓ−1}): true values in training, its own predictions in rollouts. All nets are stacked, so
that one matrix product computes a layer of all nets.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from guss.models import register_model
from guss.models.evaluation import ks_from_uniform, r_squared
from guss.models.layers import ACTIVATIONS, Activation, Dense, Layer, encoded, softplus
from guss.models.mixtures import (
    Loss,
    Mixture,
    log_density,
    loss_of,
    mixture_cdf,
    mixture_mean,
    nll_of,
    squares_of,
)
from guss.models.scaling import Scaling
from guss.models.settings import ModelSettings
from guss.models.training import FitSettings, Losses, in_order, split_rows, train_network
from guss.task import Task
from guss.types import Actions, Data, FitReport, Model, Pace

LOG_STD_RANGE = (-7.0, 2.0)  # of standardised changes
LANES = 16  # numbers in a vector register


class MixtureNet(Model):
    """L stacked nets: L = 1 for a DMDN, L = D for a DARMDN."""

    Settings: ClassVar = ModelSettings
    autoregressive: ClassVar[bool]
    """Whether there is one net per dimension, with earlier dimensions as inputs."""

    layers: list[Layer]
    before: Float[Array, "L D width"]  # first-layer weights of the dimensions already predicted (DARMDN)
    obs_scaling: Scaling
    change_scaling: Scaling
    actions: Actions = eqx.field(static=True)
    components: int = eqx.field(static=True)
    deterministic: bool = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)
    particles: int = eqx.field(static=True)

    @classmethod
    def create(cls, task: Task, key: PRNGKeyArray, **settings: Any) -> MixtureNet:
        """Untrained nets for a task; `settings` are those of ModelSettings."""
        return cls.of_size(task.observations.size, task.actions, key, **settings)

    @classmethod
    def of_size(cls, size: int, actions: Actions, key: PRNGKeyArray, **settings: Any) -> MixtureNet:
        """Untrained nets for observations of `size` numbers."""
        chosen = ModelSettings(**settings)
        hidden, components = chosen.hidden, chosen.components
        nets = size if cls.autoregressive else 1
        outputs = 3 * components if cls.autoregressive else components * (1 + 2 * size)
        features = size + jax.eval_shape(actions.encode, jax.ShapeDtypeStruct(actions.shape, actions.dtype)).shape[0]
        widths = (features, *hidden, outputs)
        keys = jax.random.split(key, len(widths))

        def weights(key: PRNGKeyArray, count: int, fan_in: int, fan_out: int) -> Array:
            return jax.random.normal(key, (count, fan_in, fan_out)) / jnp.sqrt(float(fan_in))

        each = enumerate(pairwise(widths))
        layers = [Layer(weights(keys[i], nets, a, b), jnp.zeros((nets, b))) for i, (a, b) in each]
        before = weights(keys[-1], nets, size, hidden[0]) if cls.autoregressive else jnp.zeros((nets, 0, hidden[0]))
        return cls(
            layers=layers,
            before=before,
            obs_scaling=Scaling.identity(size),
            change_scaling=Scaling.identity(size),
            actions=actions,
            components=components,
            deterministic=chosen.deterministic,
            activation=chosen.activation,
            particles=chosen.particles,
        )

    @property
    def num_particles(self) -> int:
        """Samples per plan; 1 if deterministic."""
        return 1 if self.deterministic else self.particles

    @property
    def obs_size(self) -> int:
        return self.obs_scaling.mean.shape[-1]

    def mean_model(self) -> MixtureNet:
        """The same net, which predicts its mean."""
        return dataclasses.replace(self, deterministic=True)

    def policy_inputs(self) -> tuple[Float[Array, "D"], Float[Array, "D"]]:
        """The training data's mean and standard deviation."""
        return self.obs_scaling.mean, self.obs_scaling.std

    # ------------------------------------------------------------------------------------------------ the networks

    def inputs(self, obs: Float[Array, "D"], action: Shaped[Array, "..."]) -> Float[Array, "F"]:
        """Inputs of the nets: the standardised state and the encoded action."""
        return jnp.concatenate([self.obs_scaling(obs), encoded(self.actions, action)])

    def _heads(self) -> list[Layer]:
        """The last layer, split into three: weights of the components, means, spreads.

        Slicing the outputs instead would be slower: the gradient of a slice is padded with zeros, for every row.
        """
        last, k = self.layers[-1], self.components
        ends = (k, 2 * k) if self.autoregressive else (k, k + k * self.obs_size)
        return [Layer(*parts) for parts in zip(*(jnp.split(x, ends, axis=-1) for x in last), strict=True)]

    def _rest(self, hidden: Float[Array, "L B width"], rows: slice = slice(None)) -> Mixture:
        """All layers after the first, for the nets in `rows`: the mixtures of B transitions."""
        act = ACTIVATIONS[self.activation]

        def through(layer: Layer) -> Float[Array, "L B outputs"]:
            return jnp.matmul(act(hidden), layer.weight[rows]) + layer.bias[rows, None]

        for layer in self.layers[1:-1]:
            hidden = through(layer)
        weights, means, spreads = self._heads()
        # A single component has weight 1, whatever the net outputs.
        logits = through(weights) if self.components > 1 else jnp.zeros((*hidden.shape[:2], 1))
        return jax.vmap(self._mixture, in_axes=1)(logits, through(means), through(spreads))

    def _mixture(self, logits: Float[Array, "L K"], mean: Float[Array, "L m"], raw: Float[Array, "L m"]) -> Mixture:
        low, high = LOG_STD_RANGE
        if not self.autoregressive:
            logits = logits[0]
            mean, raw = (part.reshape(self.components, self.obs_size) for part in (mean, raw))
        log_std = high - softplus(high - raw)
        log_std = low + softplus(log_std - low)
        return Mixture(jax.nn.log_softmax(logits, axis=-1), mean, log_std)

    def densities(self, inputs: Float[Array, "B F"], change: Float[Array, "B D"]) -> Mixture:
        """The predicted mixtures of B standardised changes; net ℓ of a DARMDN has the true `change[:, :ℓ]` as input.

        Written for a batch, with nets as the first axis, so that a layer of all nets is one product without transposes.
        """
        weight = self.layers[0].weight
        if self.autoregressive:
            size = self.obs_size
            earlier = jnp.tril(jnp.ones((size, size)), -1)[:, :, None]  # s'_{≥ℓ} is no input of net ℓ
            inputs = jnp.concatenate([inputs, change], axis=1)
            weight = jnp.concatenate([weight, self.before * earlier], axis=1)
        each = jnp.broadcast_to(inputs[None], (weight.shape[0], *inputs.shape))
        hidden = jnp.matmul(each, weight) + self.layers[0].bias[:, None]
        return self._rest(hidden)

    def density(self, obs: Float[Array, "D"], action: Shaped[Array, "..."], change: Float[Array, "D"]) -> Mixture:
        """`densities` for one transition."""
        return _only(self.densities(self.inputs(obs, action)[None], change[None]))

    # -------------------------------------------------------------------------------------------------- predictions

    def standardised_change(self, obs: Float[Array, "D"], next_obs: Float[Array, "D"]) -> Float[Array, "D"]:
        """s' − s, standardised on the training data."""
        return self.change_scaling(next_obs - obs)

    def log_prob(
        self, obs: Float[Array, "D"], action: Shaped[Array, "..."], next_obs: Float[Array, "D"]
    ) -> Float[Array, ""]:
        """Log density of the next observation."""
        change = self.standardised_change(obs, next_obs)
        standard = log_density(self.density(obs, action, change), change)
        return standard - jnp.sum(jnp.log(self.change_scaling.std))

    def prepare(self) -> tuple[Model, None]:
        """The fast layout MeanNet, if only the mean of a single Gaussian is needed."""
        return (MeanNet.of(self) if self.deterministic and self.components == 1 else self), None

    def predict(
        self, obs: Float[Array, "D"], action: Shaped[Array, "..."], key: PRNGKeyArray, particle: Int[Array, ""]
    ) -> Float[Array, "D"]:
        """The mean (`deterministic`) or a sample of the next observation, dimension by dimension for a DARMDN."""
        if self.deterministic and self.components == 1:
            return MeanNet.of(self).predict(obs, action, key, particle)
        first = jnp.einsum("f,lfh->lh", self.inputs(obs, action), self.layers[0].weight) + self.layers[0].bias
        if not self.autoregressive:
            change = self._draw(_only(self._rest(first[:, None])), key)
        else:
            change = jnp.zeros((0,))
            for i in range(self.obs_size):
                hidden = first[i] + jnp.einsum("d,dh->h", change, self.before[i, :i])
                mixture = _only(self._rest(hidden[None, None], slice(i, i + 1)))
                change = jnp.concatenate([change, self._draw(mixture, jax.random.fold_in(key, i))])
        return obs + self.change_scaling.undo(change)

    def _draw(self, mixture: Mixture, key: PRNGKeyArray) -> Float[Array, "d"]:
        """Mean or sample of a mixture: [D] for a whole vector, [1] for one dimension (DARMDN)."""
        axis = 1 if self.autoregressive else 0
        weight = jnp.exp(mixture.log_weight)
        weight = weight if self.autoregressive else weight[:, None]
        if self.deterministic:
            return jnp.sum(weight * mixture.mean, axis=axis)
        key_component, key_noise = jax.random.split(key)
        chosen = jax.random.categorical(key_component, mixture.log_weight.reshape(-1))
        mean, log_std = (jnp.take(x, chosen, axis=axis) for x in (mixture.mean, mixture.log_std))
        return mean + jnp.exp(log_std) * jax.random.normal(key_noise, mean.shape)

    # ------------------------------------------------------------------------------------------------------ fitting

    def fit(
        self, fresh: Any, data: Data, key: PRNGKeyArray, settings: FitSettings, pace: Pace
    ) -> tuple[MixtureNet, FitReport]:
        """Gradient training of all nets on standardised changes."""
        training, held_out = split_rows(data, settings)
        num_training, num_held_out = (jnp.sum(rows, dtype=jnp.int32) for rows in (training, held_out))
        model: MixtureNet = eqx.tree_at(
            lambda m: (m.obs_scaling, m.change_scaling),
            self if settings.warm_start else fresh,
            (Scaling.of(data.obs, training), Scaling.of(data.next_obs - data.obs, training)),
        )
        # Inputs and targets are computed once for all steps: training rows first, then held-out rows.
        order = in_order(training, held_out)
        inputs = jax.vmap(model.inputs)(data.obs, data.action)[order]
        change = jax.vmap(model.standardised_change)(data.obs, data.next_obs)[order]
        split = lambda m: (m.layers, m.before)  # noqa: E731

        def losses(loss: Loss) -> Losses:
            def each(weights: Any, rows: Int[Array, "N"]) -> Float[Array, "N"]:
                net = eqx.tree_at(split, model, weights)
                return jax.vmap(loss)(net.densities(inputs[rows], change[rows]), change[rows])

            return each

        # The weights of beta_nll change in training, so its values cannot be compared between epochs.
        criterion = nll_of if settings.loss == "nll" or not model.deterministic else squares_of
        objective = losses(partial(loss_of, settings=settings))
        done = train_network(
            split(model), objective, losses(criterion), num_training, num_held_out, key, settings, pace
        )
        model = eqx.tree_at(split, model, done.best_weights)
        report = model.evaluate(data.obs, data.action, data.next_obs, held_out)
        diverged = (num_held_out > 0) & jnp.isinf(done.best_loss)
        return model, report._replace(train_loss=done.train_loss, best_epoch=done.best_epoch, diverged=diverged)

    def evaluate(self, obs: Array, action: Array, next_obs: Array, use: Bool[Array, "rows"]) -> FitReport:
        """NLL, R² per dimension and calibration of the density on the rows in use."""

        def one(obs: Array, action: Array, next_obs: Array) -> tuple[Array, Array, Array, Array]:
            change = self.standardised_change(obs, next_obs)
            mixture = self.density(obs, action, change)
            return self.log_prob(obs, action, next_obs), change, mixture_mean(mixture), mixture_cdf(mixture, change)

        log_prob, change, mean, cdf = jax.vmap(one)(obs, action, next_obs)
        count = jnp.sum(use).astype(jnp.float32)
        return FitReport(
            train_loss=jnp.zeros(()),
            nll=-jnp.sum(jnp.where(use, log_prob, 0.0)) / count,
            r2=r_squared(change, mean, use),
            ks=jnp.where(count > 0.0, jax.vmap(ks_from_uniform, (1, None))(cdf, use), jnp.nan),
            held_out=jnp.sum(use, dtype=jnp.int32),
            best_epoch=jnp.zeros((), jnp.int32),
            diverged=jnp.zeros((), bool),
        )


class MeanNet(Model):
    """Predicts only the mean of a MixtureNet's single Gaussian, laid out for many predictions.

    Nets are separate arrays, since a slice of a stack is copied each time it is used; only their first layers are
    joined, as one product. Hidden layers are padded with idle units (zero in, zero out) to full vector registers.
    """

    first: Dense  # of all nets
    before: list[list[Float[Array, "width"]]]  # by net, then by the dimensions already predicted (DARMDN)
    hidden: list[list[Dense]]  # by net
    last: list[Dense]  # by net: means only
    net: MixtureNet  # scalings

    @classmethod
    def of(cls, net: MixtureNet) -> MeanNet:
        """From a net with one component."""
        count, size = net.layers[0].bias.shape[0], net.obs_size
        weights = [_fill(layer.weight, (-2, -1) if i else (-1,)) for i, layer in enumerate(net.layers[:-1])]
        biases = [_fill(layer.bias, (-1,)) for layer in net.layers[:-1]]
        before = _fill(net.before, (-1,))
        means = 1 if net.autoregressive else slice(1, 1 + size)  # among the outputs: weight, means, spreads
        last = _fill(net.layers[-1].weight, (-2,))[:, :, means]
        return cls(
            first=Dense(jnp.concatenate(list(weights[0]), axis=1), jnp.concatenate(list(biases[0]))),
            before=[[before[i, j] for j in range(i)] for i in range(count)],
            hidden=[[Dense(w[i], b[i]) for w, b in zip(weights[1:], biases[1:], strict=True)] for i in range(count)],
            last=[Dense(last[i], net.layers[-1].bias[i, means]) for i in range(count)],
            net=net,
        )

    def predict(
        self, obs: Float[Array, "D"], action: Shaped[Array, "..."], key: PRNGKeyArray, particle: Int[Array, ""]
    ) -> Float[Array, "D"]:
        """The mean of the next observation, dimension by dimension for a DARMDN."""
        act = ACTIVATIONS[self.net.activation]
        first = self.net.inputs(obs, action) @ self.first.weight + self.first.bias
        changes: list[Float[Array, "..."]] = []  # one for each net: a scalar (DARMDN), or all D dimensions
        for i, hidden in enumerate(jnp.split(first, len(self.last))):
            for earlier, weight in zip(changes, self.before[i], strict=False):
                hidden = hidden + earlier * weight
            for layer in (*self.hidden[i], self.last[i]):
                hidden = act(hidden) @ layer.weight + layer.bias
            changes.append(hidden)
        return obs + self.net.change_scaling.undo(jnp.stack(changes) if self.net.autoregressive else changes[0])


def _fill(x: Array, axes: tuple[int, ...]) -> Array:
    """Pad `axes` with zeros to a multiple of LANES."""
    widths = [(0, -size % LANES if i - x.ndim in axes else 0) for i, size in enumerate(x.shape)]
    return jnp.pad(x, widths)


@register_model("dmdn", paper="Sec. 4.1")
class DMDN(MixtureNet):
    """Deep mixture density network: one network predicts a mixture over the whole next state."""

    autoregressive: ClassVar[bool] = False


@register_model("darmdn", paper="Sec. 4.1")
class DARMDN(MixtureNet):
    """Autoregressive mixture density networks: one per dimension, with earlier dimensions as inputs."""

    autoregressive: ClassVar[bool] = True


def _only(mixtures: Mixture) -> Mixture:
    """The mixture of a batch of one."""
    return jax.tree.map(lambda x: x[0], mixtures)
