"""Mixture density nets (Sec. 4.1): DMDN, one net for the whole next state, and DARMDN, one net per dimension.

Both predict the change s' − s, standardised on the training data, as a mixture of K Gaussians. A DARMDN's net ℓ is
fed (s, a, s'_0 … s'_{ℓ−1}): it is trained with the true values and rolled out with its own predictions. All nets are
stacked, so that a layer of all of them is one product.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from guss.errors import GussError
from guss.limits import MAX_WEIGHTS
from guss.models import register_model
from guss.models.scaling import Scaling
from guss.task import Task
from guss.types import Actions, ContinuousActions, Model
from guss.validation import check_fields, received


def silu(x: Array) -> Array:
    """x·σ(x), with the sigmoid as a tanh: a third quicker on a CPU than by its exponential, and equal to 1e-6."""
    return x * (0.5 + 0.5 * jnp.tanh(0.5 * x))


@jax.custom_jvp
def softplus(x: Array) -> Array:
    """log(1 + eˣ), with functions that a CPU is quick at, in the gradient too; equal to 1e-6."""
    return jnp.maximum(x, 0.0) + jnp.log(1.0 + jnp.exp(-jnp.abs(x)))


@softplus.defjvp
def _softplus_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return softplus(primals[0]), (0.5 + 0.5 * jnp.tanh(0.5 * primals[0])) * tangents[0]


ACTIVATIONS = {"silu": silu, "relu": jax.nn.relu, "tanh": jnp.tanh}
Activation = Literal["silu", "relu", "tanh"]
LOG_STD_RANGE = (-7.0, 2.0)  # of standardised changes
LANES = 16  # numbers in a vector register


class Mixture(NamedTuple):
    """K Gaussians with diagonal covariance. Leading axes: [K] weights of a whole vector, or [D, K] per dimension."""

    log_weight: Float[Array, "*lead K"]
    mean: Float[Array, "..."]  # [K, D], or [D, K] per dimension
    log_std: Float[Array, "..."]


class Layer(NamedTuple):
    """A layer of L nets side by side."""

    weight: Float[Array, "L fan_in fan_out"]
    bias: Float[Array, "L fan_out"]


def encoded(actions: Actions, action: Shaped[Array, "..."]) -> Float[Array, "A"]:
    """An action as nets are fed it: bounds to [−1, 1], choices one-hot."""
    numbers = actions.encode(action)
    if isinstance(actions, ContinuousActions):
        low, high = actions.bounds()
        numbers = 2.0 * (numbers - low) / (high - low) - 1.0
    return numbers


class MixtureNet(Model):
    """L stacked nets: L = 1 for a DMDN, L = D for a DARMDN."""

    layers: list[Layer]
    before: Float[Array, "L D width"]  # first-layer weights of the dimensions already predicted (DARMDN)
    obs_scaling: Scaling
    change_scaling: Scaling
    actions: Actions = eqx.field(static=True)
    autoregressive: bool = eqx.field(static=True)
    components: int = eqx.field(static=True)
    deterministic: bool = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)
    particles: int = eqx.field(static=True)

    @property
    def num_particles(self) -> int:
        """Samples per plan; 1 if deterministic."""
        return 1 if self.deterministic else self.particles

    @property
    def obs_size(self) -> int:
        """D."""
        return self.obs_scaling.mean.shape[-1]

    def by_the_mean(self) -> MixtureNet:
        """The same net, rolled out by its mean."""
        return dataclasses.replace(self, deterministic=True)

    def policy_inputs(self) -> tuple[Float[Array, "D"], Float[Array, "D"]]:
        """The training data's mean and standard deviation."""
        return self.obs_scaling.mean, self.obs_scaling.std

    # ------------------------------------------------------------------------------------------------ the networks

    def inputs(self, obs: Float[Array, "D"], action: Shaped[Array, "..."]) -> Float[Array, "F"]:
        """What the nets are fed: the standardised state and the encoded action."""
        return jnp.concatenate([self.obs_scaling(obs), encoded(self.actions, action)])

    def _heads(self) -> list[Layer]:
        """The last layer in three: weights of the components, means, spreads.

        Apart, since the gradient of a slice of all outputs is that slice filled up with zeros, for every row.
        """
        last, k = self.layers[-1], self.components
        ends = (k, 2 * k) if self.autoregressive else (k, k + k * self.obs_size)
        return [Layer(*parts) for parts in zip(*(jnp.split(x, ends, axis=-1) for x in last), strict=True)]

    def _rest(self, hidden: Float[Array, "L B width"], rows: slice = slice(None)) -> Mixture:
        """Everything after the first layer, for the nets in `rows`: the mixtures of B transitions."""
        act = ACTIVATIONS[self.activation]

        def through(layer: Layer) -> Float[Array, "L B outputs"]:
            return jnp.matmul(act(hidden), layer.weight[rows]) + layer.bias[rows, None]

        for layer in self.layers[1:-1]:
            hidden = through(layer)
        weights, means, spreads = self._heads()
        # A single component weighs 1, whatever the net says.
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
        """The predicted mixtures of B standardised changes; net ℓ of a DARMDN sees the true `change[:, :ℓ]`.

        Written for a batch, nets first, so that a layer of all nets is one product without any transposition.
        """
        weight = self.layers[0].weight
        if self.autoregressive:
            size = self.obs_size
            earlier = jnp.tril(jnp.ones((size, size)), -1)[:, :, None]  # net ℓ does not see s'_{≥ℓ}
            inputs = jnp.concatenate([inputs, change], axis=1)
            weight = jnp.concatenate([weight, self.before * earlier], axis=1)
        each = jnp.broadcast_to(inputs[None], (weight.shape[0], *inputs.shape))
        hidden = jnp.matmul(each, weight) + self.layers[0].bias[:, None]
        return self._rest(hidden)

    def density(self, obs: Float[Array, "D"], action: Shaped[Array, "..."], change: Float[Array, "D"]) -> Mixture:
        """`densities` for one transition."""
        return _only(self.densities(self.inputs(obs, action)[None], change[None]))

    # ------------------------------------------------------------------------------------------------- what it says

    def standardised_change(self, obs: Float[Array, "D"], next_obs: Float[Array, "D"]) -> Float[Array, "D"]:
        """(s' − s) in units of the training data."""
        return self.change_scaling(next_obs - obs)

    def log_prob(
        self, obs: Float[Array, "D"], action: Shaped[Array, "..."], next_obs: Float[Array, "D"]
    ) -> Float[Array, ""]:
        """Log density of the next observation."""
        change = self.standardised_change(obs, next_obs)
        standard = log_density(self.density(obs, action, change), change)
        return standard - jnp.sum(jnp.log(self.change_scaling.std))

    def for_plans(self) -> tuple[Model, None]:
        """The quick way through the nets, where the mean of a single Gaussian is all that is asked for."""
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
        """Mean or sample of a mixture: [D] from a whole vector's, [1] from one dimension's."""
        axis = 1 if self.autoregressive else 0
        weight = jnp.exp(mixture.log_weight)
        weight = weight if self.autoregressive else weight[:, None]
        if self.deterministic:
            return jnp.sum(weight * mixture.mean, axis=axis)
        key_component, key_noise = jax.random.split(key)
        chosen = jax.random.categorical(key_component, mixture.log_weight.reshape(-1))
        mean, log_std = (jnp.take(x, chosen, axis=axis) for x in (mixture.mean, mixture.log_std))
        return mean + jnp.exp(log_std) * jax.random.normal(key_noise, mean.shape)


class Dense(NamedTuple):
    """A layer of one net."""

    weight: Float[Array, "fan_in *fan_out"]
    bias: Float[Array, "*fan_out"]


class MeanNet(Model):
    """The mean of a MixtureNet's single Gaussian and nothing else, laid out for many predictions.

    Nets lie apart, since a slice of a stack is copied each time it is used; only their first layers are side by side,
    as one product. Hidden layers are filled up with idle units (zero in, zero out) to full vector registers.
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
        means = 1 if net.autoregressive else slice(1, 1 + size)  # of the outputs: weight, means, spreads
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
        changes: list[Float[Array, "..."]] = []  # one for each net: a number, or all D of them
        for i, hidden in enumerate(jnp.split(first, len(self.last))):
            for earlier, weight in zip(changes, self.before[i], strict=False):
                hidden = hidden + earlier * weight
            for layer in (*self.hidden[i], self.last[i]):
                hidden = act(hidden) @ layer.weight + layer.bias
            changes.append(hidden)
        return obs + self.net.change_scaling.undo(jnp.stack(changes) if self.net.autoregressive else changes[0])


def _fill(x: Array, axes: tuple[int, ...]) -> Array:
    """Zeros added along `axes` up to a multiple of LANES."""
    widths = [(0, -size % LANES if i - x.ndim in axes else 0) for i, size in enumerate(x.shape)]
    return jnp.pad(x, widths)


@register_model("dmdn", paper="Sec. 4.1")
def make_dmdn(task: Task, key: PRNGKeyArray, **settings: Any) -> MixtureNet:
    """Deep mixture density net: one net, a mixture over the whole next state."""
    return make_net(task, key, autoregressive=False, **settings)


@register_model("darmdn", paper="Sec. 4.1")
def make_darmdn(task: Task, key: PRNGKeyArray, **settings: Any) -> MixtureNet:
    """Autoregressive mixture density nets: one net per dimension, fed the dimensions before it."""
    return make_net(task, key, autoregressive=True, **settings)


def _only(mixtures: Mixture) -> Mixture:
    """The mixture of a batch of one."""
    return jax.tree.map(lambda x: x[0], mixtures)


def log_density(mixture: Mixture, change: Float[Array, "D"]) -> Float[Array, ""]:
    """Log density of a standardised change: log Σ_k w_k Π_d N, or Σ_d log Σ_k w_dk N per dimension."""
    per_dimension = mixture.log_weight.ndim == 2
    target = change[:, None] if per_dimension else change[None, :]
    z = (target - mixture.mean) * jnp.exp(-mixture.log_std)
    terms = -0.5 * z**2 - mixture.log_std - 0.5 * jnp.log(2 * jnp.pi)
    if not per_dimension:
        terms = jnp.sum(terms, axis=1)
    return jnp.sum(jax.scipy.special.logsumexp(mixture.log_weight + terms, axis=-1))


def mixture_mean(mixture: Mixture) -> Float[Array, "D"]:
    """Mean per dimension."""
    if mixture.log_weight.ndim == 2:
        return jnp.sum(jnp.exp(mixture.log_weight) * mixture.mean, axis=1)
    return jnp.sum(jnp.exp(mixture.log_weight)[:, None] * mixture.mean, axis=0)


def mixture_variance(mixture: Mixture) -> Float[Array, "D"]:
    """Variance per dimension: within components and between them."""
    second = mixture._replace(mean=jnp.exp(2.0 * mixture.log_std) + mixture.mean**2)
    return mixture_mean(second) - mixture_mean(mixture) ** 2


def mixture_cdf(mixture: Mixture, change: Float[Array, "D"]) -> Float[Array, "D"]:
    """Cumulative distribution per dimension: uniform if the model is calibrated."""
    target = change[:, None] if mixture.log_weight.ndim == 2 else change[None, :]
    z = (target - mixture.mean) * jnp.exp(-mixture.log_std)
    return mixture_mean(mixture._replace(mean=jax.scipy.stats.norm.cdf(z)))


@dataclass(frozen=True)
class NetSettings:
    """What the networks of a model look like."""

    hidden: tuple[int, ...] = (50, 50)
    """Units of the hidden layers."""
    activation: Activation = "silu"
    """silu, relu or tanh."""
    components: int = 1
    """K: Gaussians in the mixture."""
    deterministic: bool = True
    """Plan with the predicted mean; otherwise with samples."""
    particles: int = 1
    """Samples per plan, if not deterministic."""

    def __post_init__(self) -> None:
        check_fields(self, "model")
        if not self.hidden or min(self.hidden) < 1:
            raise GussError(f"a model needs hidden layers of at least 1 unit, got {self.hidden}")
        if self.components < 1 or self.particles < 1:
            raise GussError(f"components and particles must be at least 1, got {self.components} and {self.particles}")
        if self.particles > 1 and self.deterministic:
            raise GussError(
                f"particles={self.particles} are samples of the model, but plans use its mean (deterministic=true): "
                f"set deterministic=false too"
            )
        MAX_WEIGHTS.check(f"a model with hidden layers of {received(list(self.hidden))} units", self.num_weights)

    @property
    def num_weights(self) -> int:
        """Weights of a net for one number in and out: a lower bound of what it has."""
        return sum(a * b for a, b in pairwise((1, *self.hidden, self.components)))


def make_net(task: Task, key: PRNGKeyArray, *, autoregressive: bool, **settings: Any) -> MixtureNet:
    """An untrained net for a task; `settings` are those of NetSettings."""
    return net_of_size(task.observations.size, task.actions, key, autoregressive=autoregressive, **settings)


def net_of_size(size: int, actions: Actions, key: PRNGKeyArray, *, autoregressive: bool, **settings: Any) -> MixtureNet:
    """An untrained net for observations of `size` numbers; `settings` are those of NetSettings."""
    chosen = NetSettings(**settings)
    hidden, components = chosen.hidden, chosen.components
    nets = size if autoregressive else 1
    outputs = 3 * components if autoregressive else components * (1 + 2 * size)
    features = size + jax.eval_shape(actions.encode, jax.ShapeDtypeStruct(actions.shape, actions.dtype)).shape[0]
    widths = (features, *hidden, outputs)
    keys = jax.random.split(key, len(widths))

    def weights(key: PRNGKeyArray, count: int, fan_in: int, fan_out: int) -> Array:
        return jax.random.normal(key, (count, fan_in, fan_out)) / jnp.sqrt(float(fan_in))

    layers = [Layer(weights(keys[i], nets, a, b), jnp.zeros((nets, b))) for i, (a, b) in enumerate(pairwise(widths))]
    before = weights(keys[-1], nets, size, hidden[0]) if autoregressive else jnp.zeros((nets, 0, hidden[0]))
    return MixtureNet(
        layers=layers,
        before=before,
        obs_scaling=Scaling.identity(size),
        change_scaling=Scaling.identity(size),
        actions=actions,
        autoregressive=autoregressive,
        components=components,
        deterministic=chosen.deterministic,
        activation=chosen.activation,
        particles=chosen.particles,
    )
