"""Fit a model to transitions: Adam on minibatches, a validation split, rate cut on a plateau, best weights kept.

Data live in buffers of fixed size with a count of filled rows, so a growing data set compiles nothing anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from guss.errors import GussError, UnknownNameError
from guss.models.mdn import (
    Mixture,
    MixtureNet,
    log_density,
    mixture_cdf,
    mixture_mean,
    mixture_variance,
)
from guss.models.scaling import Scaling

LOSSES = ("nll", "beta_nll", "mse")
BLOCK = 256  # rows judged at once


class Data(NamedTuple):
    """Transitions in buffers of fixed size: the first `filled` rows hold something; rows not in `use` are skipped."""

    obs: Float[Array, "rows D"]
    action: Shaped[Array, "rows ..."]
    next_obs: Float[Array, "rows D"]
    use: Bool[Array, "rows"]
    filled: Int[Array, ""]


class FitReport(NamedTuple):
    """How good the fit is, on rows that were held out of training."""

    train_loss: Float[Array, ""]
    nll: Float[Array, ""]  # of observations, in nats
    r2: Float[Array, "D"]  # of the predicted change, per dimension
    ks: Float[Array, "D"]  # distance of the predicted cumulative distribution from uniform
    held_out: Int[Array, ""]
    best_epoch: Int[Array, ""]
    diverged: Bool[Array, ""]  # no epoch had a finite loss on the held-out rows: the weights are those before the fit


@dataclass(frozen=True)
class FitSettings:
    """How a model is trained."""

    loss: str = "beta_nll"
    """nll (the paper's), beta_nll (keeps the variance from starving the mean), mse (mean by squares, spread by nll)."""
    beta: float = 0.5
    """Exponent of the variance in beta_nll."""
    epochs: int = 300
    """Passes over the data (as many random batches as a pass has)."""
    max_steps: int = 0
    """At most this many gradient steps in all; 0: no limit."""
    batch: int = 50
    """Transitions per gradient step."""
    learning_rate: float = 1e-3
    """Adam's."""
    validation: float = 0.1
    """Share of the transitions held out."""
    patience: int = 25
    """Epochs without improvement on the held-out rows before the rate is cut by 10."""
    warm_start: bool = True
    """Go on from the last fit's weights; otherwise start anew."""

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise UnknownNameError("loss", self.loss, LOSSES)
        for name in ("epochs", "batch", "patience"):
            if getattr(self, name) < 1:
                raise GussError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0.0 < self.validation < 1.0 or not self.learning_rate > 0.0 or self.max_steps < 0:
            raise GussError(
                f"validation must be in (0, 1), learning_rate positive, max_steps not negative; "
                f"got {self.validation}, {self.learning_rate}, {self.max_steps}"
            )


def empty_data(obs_size: int, action_shape: tuple[int, ...], action_dtype: Any, capacity: int) -> Data:
    """Buffers for `capacity` transitions."""
    return Data(
        obs=jnp.zeros((capacity, obs_size)),
        action=jnp.zeros((capacity, *action_shape), action_dtype),
        next_obs=jnp.zeros((capacity, obs_size)),
        use=jnp.zeros((capacity,), bool),
        filled=jnp.zeros((), jnp.int32),
    )


def append(data: Data, obs: Array, action: Array, next_obs: Array, use: Array) -> Data:
    """The buffers with more rows; they must have room (the caller counts)."""
    write = lambda rows, new: jax.lax.dynamic_update_slice_in_dim(rows, new, data.filled, axis=0)  # noqa: E731
    return Data(
        write(data.obs, obs),
        write(data.action, action),
        write(data.next_obs, next_obs),
        write(data.use, use),
        data.filled + obs.shape[0],
    )


# ------------------------------------------------------------------------------------------------------------ losses


Loss = Callable[[Mixture, Array], Array]


def nll_of(mixture: Mixture, change: Float[Array, "D"]) -> Float[Array, ""]:
    """Negative log likelihood."""
    return -log_density(mixture, change)


def squares_of(mixture: Mixture, change: Float[Array, "D"]) -> Float[Array, ""]:
    """Squared error of the mean."""
    return jnp.sum((mixture_mean(mixture) - change) ** 2)


def loss_of(mixture: Mixture, change: Float[Array, "D"], settings: FitSettings) -> Float[Array, ""]:
    """The loss of one standardised change under its predicted mixture."""
    if settings.loss == "nll":
        return nll_of(mixture, change)
    if settings.loss == "mse":
        still = mixture._replace(
            mean=jax.lax.stop_gradient(mixture.mean)
        )  # the spread learns, and leaves the mean alone
        return squares_of(mixture, change) + nll_of(still, change)
    variance = jax.lax.stop_gradient(mixture_variance(mixture)) ** settings.beta
    if mixture.log_weight.ndim == 2:  # per dimension (DARMDN)
        each = jax.vmap(lambda w, m, s, c: log_density(Mixture(w[None], m[None], s[None]), c[None]))
        return -jnp.sum(variance * each(*mixture, change))
    if mixture.log_weight.shape[0] == 1:  # one Gaussian: dimensions are independent
        split = Mixture(jnp.zeros((change.shape[0], 1)), mixture.mean.T, mixture.log_std.T)
        return loss_of(split, change, settings)
    return -jnp.mean(variance) * log_density(mixture, change)  # components tie the dimensions together


# --------------------------------------------------------------------------------------------------------------- fit


class _Training(NamedTuple):
    weights: Any
    optimiser: Any
    rate: Float[Array, ""]
    waited: Int[Array, ""]
    best_loss: Float[Array, ""]
    best_weights: Any
    best_epoch: Int[Array, ""]
    train_loss: Float[Array, ""]


def fit(
    model: MixtureNet, fresh: MixtureNet, data: Data, key: PRNGKeyArray, settings: FitSettings
) -> tuple[MixtureNet, FitReport]:
    """TRAIN(p̂, D) of Alg. 1. `fresh` gives the weights to start from if there is no warm start.

    Rows are held out by a draw that depends on the row alone, so what was held out once stays held out.
    """
    capacity = data.use.shape[0]
    filled = data.use & (jnp.arange(capacity) < data.filled)
    held_out = filled & (jax.random.uniform(jax.random.key(0), (capacity,)) < settings.validation)
    training = filled & ~held_out
    model = model if settings.warm_start else fresh
    model = eqx.tree_at(
        lambda m: (m.obs_scaling, m.change_scaling),
        model,
        (Scaling.of(data.obs, training), Scaling.of(data.next_obs - data.obs, training)),
    )
    order = jnp.argsort(~training, stable=True)  # training rows first
    num_training = jnp.sum(training, dtype=jnp.int32)
    steps = (num_training + settings.batch - 1) // settings.batch
    epochs = jnp.asarray(settings.epochs, jnp.int32)
    if settings.max_steps:
        epochs = jnp.clip(settings.max_steps // jnp.maximum(steps, 1), 1, settings.epochs)
    split = lambda m: (m.layers, m.before)  # noqa: E731
    adam = optax.scale_by_adam()
    objective = partial(loss_of, settings=settings)

    # The weights of beta_nll change as it learns, so its own values do not compare from epoch to epoch.
    criterion = nll_of if settings.loss == "nll" or not model.deterministic else squares_of

    def losses(weights: Any, loss: Loss, obs: Array, action: Array, next_obs: Array) -> Float[Array, "rows"]:
        net = eqx.tree_at(split, model, weights)
        change = jax.vmap(net.standardised_change)(obs, next_obs)
        return jax.vmap(loss)(net.densities(obs, action, change), change)

    held_out_rows = jnp.concatenate([jnp.argsort(~held_out, stable=True), jnp.zeros((BLOCK,), jnp.int32)])
    num_held_out = jnp.sum(held_out, dtype=jnp.int32)

    def held_out_loss(weights: Any) -> Float[Array, ""]:
        """Mean over the held-out rows, block by block: only as many as there are."""

        def block(i: Array, total: Array) -> Array:
            rows = jax.lax.dynamic_slice_in_dim(held_out_rows, i * BLOCK, BLOCK)
            real = i * BLOCK + jnp.arange(BLOCK) < num_held_out
            each = losses(weights, criterion, data.obs[rows], data.action[rows], data.next_obs[rows])
            return total + jnp.sum(jnp.where(real, each, 0.0))

        blocks = (num_held_out + BLOCK - 1) // BLOCK
        total = jax.lax.fori_loop(0, blocks, block, jnp.zeros(()))
        return total / jnp.maximum(num_held_out, 1).astype(jnp.float32)

    def step(i: Array, carry: tuple[_Training, PRNGKeyArray]) -> tuple[_Training, PRNGKeyArray]:
        state, key_epoch = carry
        lots = jax.random.uniform(jax.random.fold_in(key_epoch, i), (settings.batch,))
        picks = (lots * num_training.astype(jnp.float32)).astype(jnp.int32)
        rows = order[jnp.minimum(picks, num_training - 1)]
        batch = (data.obs[rows], data.action[rows], data.next_obs[rows])
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean(losses(w, objective, *batch)))(state.weights)
        with jax.numpy_dtype_promotion("standard"):  # optax raises a float to a whole number
            update, optimiser = adam.update(gradient, state.optimiser)
        weights = jax.tree.map(lambda w, u: w - state.rate * u, state.weights, update)
        return state._replace(weights=weights, optimiser=optimiser, train_loss=loss), key_epoch

    def epoch(number: Array, state: _Training) -> _Training:
        state, _ = jax.lax.fori_loop(0, steps, step, (state, jax.random.fold_in(key, number)))
        loss = held_out_loss(state.weights)
        better = loss < state.best_loss
        waited = jnp.where(better, 0, state.waited + 1)
        plateau = waited >= settings.patience
        keep = lambda new, old: jnp.where(better, new, old)  # noqa: E731
        return state._replace(
            rate=jnp.where(plateau, jnp.maximum(state.rate * 0.1, 1e-3 * settings.learning_rate), state.rate),
            waited=jnp.where(plateau, 0, waited),
            best_loss=keep(loss, state.best_loss),
            best_weights=jax.tree.map(keep, state.weights, state.best_weights),
            best_epoch=keep(number, state.best_epoch),
        )

    weights = split(model)
    start = _Training(
        weights=weights,
        optimiser=adam.init(weights),
        rate=jnp.asarray(settings.learning_rate),
        waited=jnp.zeros((), jnp.int32),
        best_loss=jnp.asarray(jnp.inf),
        best_weights=weights,
        best_epoch=jnp.zeros((), jnp.int32),
        train_loss=jnp.zeros(()),
    )
    done = jax.lax.fori_loop(0, epochs, epoch, start)
    model = eqx.tree_at(split, model, done.best_weights)
    report = judge(model, data.obs, data.action, data.next_obs, held_out)
    diverged = (num_held_out > 0) & jnp.isinf(done.best_loss)
    return model, report._replace(train_loss=done.train_loss, best_epoch=done.best_epoch, diverged=diverged)


@partial(jax.jit, static_argnames="settings")
def fit_all(
    models: MixtureNet, fresh: MixtureNet, data: Data, keys: Array, settings: FitSettings
) -> tuple[MixtureNet, FitReport]:
    """`fit` for all seeds at once; everything has a leading axis S, counts are the same for all."""
    shared = data.filled[0]
    return jax.vmap(lambda m, f, o, a, n, u, k: fit(m, f, Data(o, a, n, u, shared), k, settings))(
        models, fresh, data.obs, data.action, data.next_obs, data.use, keys
    )


def judge(model: MixtureNet, obs: Array, action: Array, next_obs: Array, use: Bool[Array, "rows"]) -> FitReport:
    """NLL, R² per dimension and calibration on the rows in use."""

    def one(obs: Array, action: Array, next_obs: Array) -> tuple[Array, Array, Array, Array]:
        change = model.standardised_change(obs, next_obs)
        mixture = model.density(obs, action, change)
        return model.log_prob(obs, action, next_obs), change, mixture_mean(mixture), mixture_cdf(mixture, change)

    log_prob, change, mean, cdf = jax.vmap(one)(obs, action, next_obs)
    count = jnp.maximum(jnp.sum(use), 1).astype(jnp.float32)
    return FitReport(
        train_loss=jnp.zeros(()),
        nll=-jnp.sum(jnp.where(use, log_prob, 0.0)) / count,
        r2=r_squared(change, mean, use),
        ks=jax.vmap(ks_from_uniform, (1, None))(cdf, use),
        held_out=jnp.sum(use, dtype=jnp.int32),
        best_epoch=jnp.zeros((), jnp.int32),
        diverged=jnp.zeros((), bool),
    )


def horizon_r2(
    model: MixtureNet,
    obs: Float[Array, "T D"],
    action: Shaped[Array, "T ..."],
    next_obs: Float[Array, "T D"],
    horizon: int,
) -> Float[Array, "D"]:
    """R² per dimension of the state `horizon` steps ahead, predicted along an episode's own actions (by the mean)."""
    mean = model.by_the_mean()
    starts = jnp.arange(obs.shape[0] - horizon + 1)
    zero, key = jnp.zeros((), jnp.int32), jax.random.key(0)

    def ahead(start: Array) -> Array:
        actions = jax.lax.dynamic_slice_in_dim(action, start, horizon)
        return jax.lax.scan(lambda o, a: (mean.predict(o, a, key, zero), None), obs[start], actions)[0]

    guess = jax.vmap(ahead)(starts)
    return r_squared(next_obs[horizon - 1 :], guess, jnp.ones(starts.shape, bool))


def r_squared(
    truth: Float[Array, "rows D"], guess: Float[Array, "rows D"], use: Bool[Array, "rows"]
) -> Float[Array, "D"]:
    """1 − residual / total sum of squares, per dimension, over the rows in use."""
    weight = use[:, None].astype(jnp.float32)
    mean = jnp.sum(truth * weight, axis=0) / jnp.maximum(jnp.sum(weight), 1.0)
    total = jnp.sum(weight * (truth - mean[None]) ** 2, axis=0)
    return 1.0 - jnp.sum(weight * (truth - guess) ** 2, axis=0) / jnp.maximum(total, 1e-12)


def ks_from_uniform(values: Float[Array, "rows"], use: Bool[Array, "rows"]) -> Float[Array, ""]:
    """Kolmogorov–Smirnov distance of the values in use from the uniform distribution on [0, 1]."""
    count = jnp.maximum(jnp.sum(use), 1).astype(jnp.float32)
    ordered = jnp.sort(jnp.where(use, values, 2.0))  # rows not in use go to the end
    rank = jnp.arange(values.shape[0], dtype=jnp.float32)
    inside = rank < count
    above, below = (rank + 1.0) / count - ordered, ordered - rank / count
    return jnp.max(jnp.where(inside, jnp.maximum(above, below), 0.0))
