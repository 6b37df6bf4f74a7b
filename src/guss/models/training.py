"""Fit a model to transitions: Adam on minibatches, a validation split, rate cut on a plateau, best weights kept.

Data live in buffers of fixed size with a count of filled rows, so a growing data set compiles nothing anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from guss.errors import GussError, UnknownNameError
from guss.limits import MAX_BATCH, MAX_BUFFER
from guss.models.evaluation import FitReport, judge
from guss.models.mdn import (
    Mixture,
    MixtureNet,
    log_density,
    mixture_mean,
    mixture_variance,
)
from guss.models.scaling import Scaling
from guss.task import Task
from guss.validation import check_fields

LOSSES = ("nll", "beta_nll", "mse")
BLOCK = 256  # rows judged at once
DRAWN = 32  # batches drawn at once


class Data(NamedTuple):
    """Transitions in buffers of fixed size: the first `filled` rows hold something; rows not in `use` are skipped."""

    obs: Float[Array, "rows D"]
    action: Shaped[Array, "rows ..."]
    next_obs: Float[Array, "rows D"]
    use: Bool[Array, "rows"]
    filled: Int[Array, ""]
    told: Float[Array, "rows O"] | None = None  # reward, then costs, where they are to be learned


@dataclass(frozen=True)
class FitSettings:
    """How a model is trained."""

    loss: str = "beta_nll"
    """nll (the paper's), beta_nll (keeps the variance from starving the mean), mse (mean by squares, spread by nll)."""
    beta: float = 0.5
    """Exponent of the variance in beta_nll."""
    epochs: int = 5000
    """Passes over the data (as many random batches as a pass has), if the limits on steps allow them."""
    max_steps: int = 4000
    """At most this many gradient steps in all; 0: no limit."""
    warm_steps: int = 1500
    """The same for fits that go on from the last one's weights; 0: as max_steps."""
    batch: int = 50
    """Transitions per gradient step."""
    learning_rate: float = 1e-3
    """Adam's."""
    validation: float = 0.1
    """Share of the transitions held out."""
    patience: int = 200
    """Epochs without improvement on the held-out rows before the rate is cut by 10; a thousandth is the least, and as
    long without improvement at that rate ends the fit."""
    warm_start: bool = True
    """Go on from the last fit's weights; otherwise start anew."""
    cost_blur: float = 0.05
    """Noise on the states that costs are learned from, in standard deviations of the data: plans keep that far away."""
    reward_margin: float = 0.1
    """How far a learned reward may leave the observed range, as a share of its width."""
    reach: float = 3.0
    """A state is unfamiliar beyond the observed range, or where its distance from the nearest training state is more
    than this many times the usual distance between training states."""

    def __post_init__(self) -> None:
        check_fields(self, "fit")
        if self.loss not in LOSSES:
            raise UnknownNameError("loss", self.loss, LOSSES)
        for name in ("epochs", "batch", "patience"):
            if getattr(self, name) < 1:
                raise GussError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("cost_blur", "reward_margin"):
            if not getattr(self, name) >= 0.0:
                raise GussError(f"{name} must not be negative, got {getattr(self, name)}")
        MAX_BATCH.check(f"fit.batch = {self.batch}", self.batch)
        if self.beta < 0.0:
            raise GussError(f"beta must not be negative, got {self.beta}")
        if not self.reach > 0.0:
            raise GussError(f"reach must be more than 0, got {self.reach}")
        if not 0.0 < self.validation < 1.0 or not self.learning_rate > 0.0 or min(self.max_steps, self.warm_steps) < 0:
            raise GussError(
                f"validation must be in (0, 1), learning_rate positive, max_steps and warm_steps not negative; "
                f"got {self.validation}, {self.learning_rate}, {self.max_steps} and {self.warm_steps}"
            )


def empty_data(
    obs_size: int, action_shape: tuple[int, ...], action_dtype: Any, capacity: int, num_told: int = 0
) -> Data:
    """Buffers for `capacity` transitions; `num_told`: numbers of each that the system tells, if they are learned."""
    return Data(
        obs=jnp.zeros((capacity, obs_size)),
        action=jnp.zeros((capacity, *action_shape), action_dtype),
        next_obs=jnp.zeros((capacity, obs_size)),
        use=jnp.zeros((capacity,), bool),
        filled=jnp.zeros((), jnp.int32),
        told=jnp.zeros((capacity, num_told)) if num_told else None,
    )


def check_buffer(what: str, task: Task, rows: int) -> None:
    """Refuse more transitions of a task than memory is meant for."""
    numbers = 2 * task.observations.size + math.prod(task.actions.shape) + len(task.constraints) + 2
    MAX_BUFFER.check(f"{what} ({rows} transitions of task {task.name!r})", 4 * rows * numbers)


def append(data: Data, more: Data) -> Data:
    """The buffers with the first `more.filled` rows of a block; the caller sees to room for the whole block."""
    write = lambda rows, new: jax.lax.dynamic_update_slice_in_dim(rows, new, data.filled, axis=0)  # noqa: E731
    obs, action, next_obs, use = map(write, data[:4], more[:4])
    told = None if data.told is None else write(data.told, more.told)
    return Data(obs, action, next_obs, use, data.filled + more.filled, told)


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
    settled: Bool[Array, ""]


class Pace(NamedTuple):
    """How long the loops of a fit run. Shared by all nets fitted together: a loop that ends for each of them at
    another time would have to copy every weight in every step."""

    epochs: Int[Array, ""]
    steps: Int[Array, ""]  # per epoch
    blocks: Int[Array, ""]  # of held-out rows


def split_rows(data: Data, settings: FitSettings) -> tuple[Bool[Array, "rows"], Bool[Array, "rows"]]:
    """Which rows are trained on and which are held out.

    The draw depends on the row alone, so what was held out once stays held out.
    """
    capacity = data.use.shape[0]
    filled = data.use & (jnp.arange(capacity) < data.filled)
    held_out = filled & (_lots(capacity) < settings.validation)
    return filled & ~held_out, held_out


@lru_cache(maxsize=8)
def _lots(capacity: int) -> np.ndarray:
    """A random number for each row: a constant of the program, which would otherwise draw it in several places."""
    with jax.ensure_compile_time_eval():
        return np.asarray(jax.random.uniform(jax.random.key(0), (capacity,)))


def pace_of(
    num_training: Int[Array, ""], num_held_out: Int[Array, ""], settings: FitSettings, again: Bool[Array, ""] | bool
) -> Pace:
    """Epochs and steps for that many rows; `again`: the weights were fitted before."""
    steps = (num_training + settings.batch - 1) // settings.batch
    no_limit = 2**31 - 1
    first = settings.max_steps or no_limit
    warm = (settings.warm_steps or first) if settings.warm_start else first
    limit = jnp.where(jnp.asarray(again), warm, first)
    epochs = jnp.clip(limit // jnp.maximum(steps, 1), 1, settings.epochs)
    return Pace(epochs, steps, (num_held_out + BLOCK - 1) // BLOCK)


Losses = Callable[..., Float[Array, "N"]]
"""Weights and rows (and normal random numbers for each, if asked for) to the loss of each row."""


def train(
    weights: Any,
    objective: Losses,
    criterion: Losses,
    num_training: Int[Array, ""],
    num_held_out: Int[Array, ""],
    key: PRNGKeyArray,
    settings: FitSettings,
    pace: Pace,
    num_normals: int = 0,
) -> _Training:
    """Adam on minibatches of the first `num_training` rows; the weights of the best epoch on the held-out rows.

    The held-out rows follow the training rows. `objective` is minimised, with `num_normals` random numbers for each row
    if there are any; an epoch is judged by `criterion`.
    """
    adam = optax.scale_by_adam()

    def held_out_loss(weights: Any) -> Float[Array, ""]:
        """Mean over the held-out rows, block by block: only as many as there are."""

        def block(i: Array, total: Array) -> Array:
            row = i * BLOCK + jnp.arange(BLOCK)
            each = criterion(weights, num_training + row)  # rows beyond the end repeat the last
            return total + jnp.sum(jnp.where(row < num_held_out, each, 0.0))

        total = jax.lax.fori_loop(0, pace.blocks, block, batched_like(weights, jnp.zeros(())))
        return total / jnp.maximum(num_held_out, 1).astype(jnp.float32)

    def step(i: Array, carry: tuple[_Training, Any]) -> tuple[_Training, Any]:
        state, draws = carry
        drawn = jax.tree.map(lambda x: x[i], draws)
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean(objective(w, *drawn)))(state.weights)
        with jax.numpy_dtype_promotion("standard"):  # optax raises a float to a whole number
            update, optimiser = adam.update(gradient, state.optimiser)
        weights = jax.tree.map(lambda w, u: w - state.rate * u, state.weights, update)
        return state._replace(weights=weights, optimiser=optimiser, train_loss=loss), draws

    def steps(block: Array, carry: tuple[_Training, PRNGKeyArray]) -> tuple[_Training, PRNGKeyArray]:
        """Up to DRAWN steps: their batches are drawn at once, a draw a step would take longer than the step."""
        state, key_epoch = carry
        lots = jax.random.uniform(jax.random.fold_in(key_epoch, block), (DRAWN, settings.batch))
        draws = (lots * num_training.astype(jnp.float32)).astype(jnp.int32)
        draws = jnp.minimum(draws, num_training - 1)
        normals = []
        if num_normals:
            shape = (DRAWN, settings.batch, num_normals)
            normals = [jax.random.normal(jax.random.fold_in(key_epoch, -1 - block), shape)]
        count = jnp.minimum(DRAWN, pace.steps - block * DRAWN)
        return jax.lax.fori_loop(0, count, step, (state, (draws, *normals)))[0], key_epoch

    def epoch(number: Array, state: _Training) -> _Training:
        blocks = (pace.steps + DRAWN - 1) // DRAWN
        state, _ = jax.lax.fori_loop(0, blocks, steps, (state, jax.random.fold_in(key, number)))
        loss = held_out_loss(state.weights)
        better = (loss < state.best_loss) | (num_held_out == 0)  # nothing to judge by: the last weights are kept
        waited = jnp.where(better, 0, state.waited + 1)
        plateau = waited >= settings.patience
        least = 1e-3 * settings.learning_rate
        keep = lambda new, old: jnp.where(better, new, old)  # noqa: E731
        return state._replace(
            rate=jnp.where(plateau, jnp.maximum(state.rate * 0.1, least), state.rate),
            waited=jnp.where(plateau, 0, waited),
            best_loss=keep(loss, state.best_loss),
            best_weights=jax.tree.map(keep, state.weights, state.best_weights),
            best_epoch=keep(number, state.best_epoch),
            settled=plateau & (state.rate <= 1.01 * least),  # what follows would hardly move, and not be kept
        )

    start = _Training(
        weights=weights,
        optimiser=adam.init(weights),
        rate=jnp.asarray(settings.learning_rate),
        waited=jnp.zeros((), jnp.int32),
        best_loss=jnp.asarray(jnp.inf),
        best_weights=weights,
        best_epoch=jnp.zeros((), jnp.int32),
        train_loss=jnp.zeros(()),
        settled=jnp.zeros((), bool),
    )
    start = batched_like(weights, start)
    # Of nets fitted together the last to settle ends the loop; those before it keep what they have, epoch by epoch.
    unfinished = lambda carry: (carry[0] < pace.epochs) & ~carry[1].settled  # noqa: E731
    return jax.lax.while_loop(
        unfinished, lambda carry: (carry[0] + 1, epoch(*carry)), (jnp.zeros((), jnp.int32), start)
    )[1]


def batched_like(like: Any, carry: Any) -> Any:
    """The start of a loop, with every value batched where `like` is; the values stay as they are.

    Under `vmap`, a loop whose carry begins with constants is traced again until the batching of all values is settled:
    twice per loop, eight times for the innermost of three.
    """
    nothing = jnp.sum(jax.tree.leaves(like)[0].ravel()[:0])  # 0, which XLA knows
    return jax.tree.map(lambda x: x | (nothing != 0) if x.dtype == bool else x + nothing.astype(x.dtype), carry)


def in_order(training: Bool[Array, "rows"], held_out: Bool[Array, "rows"]) -> Int[Array, "rows"]:
    """Positions of the training rows, then of the held-out ones, then of the rest."""
    return jnp.argsort(jnp.where(training, 0, jnp.where(held_out, 1, 2)), stable=True)


def fit(
    model: MixtureNet, fresh: MixtureNet, data: Data, key: PRNGKeyArray, settings: FitSettings, pace: Pace | None = None
) -> tuple[MixtureNet, FitReport]:
    """TRAIN(p̂, D) of Alg. 1. `fresh` gives the weights to start from if there is no warm start."""
    training, held_out = split_rows(data, settings)
    num_training, num_held_out = (jnp.sum(rows, dtype=jnp.int32) for rows in (training, held_out))
    pace = pace_of(num_training, num_held_out, settings, again=False) if pace is None else pace
    model = model if settings.warm_start else fresh
    model = eqx.tree_at(
        lambda m: (m.obs_scaling, m.change_scaling),
        model,
        (Scaling.of(data.obs, training), Scaling.of(data.next_obs - data.obs, training)),
    )
    # What the nets are fed and what they should say, once for all steps; training rows first, then the held-out ones.
    order = in_order(training, held_out)
    inputs = jax.vmap(model.inputs)(data.obs, data.action)[order]
    change = jax.vmap(model.standardised_change)(data.obs, data.next_obs)[order]
    split = lambda m: (m.layers, m.before)  # noqa: E731

    def losses(loss: Loss) -> Losses:
        def each(weights: Any, rows: Int[Array, "N"]) -> Float[Array, "N"]:
            net = eqx.tree_at(split, model, weights)
            return jax.vmap(loss)(net.densities(inputs[rows], change[rows]), change[rows])

        return each

    # The weights of beta_nll change as it learns, so its own values do not compare from epoch to epoch.
    criterion = nll_of if settings.loss == "nll" or not model.deterministic else squares_of
    objective = losses(partial(loss_of, settings=settings))
    done = train(split(model), objective, losses(criterion), num_training, num_held_out, key, settings, pace)
    model = eqx.tree_at(split, model, done.best_weights)
    report = judge(model, data.obs, data.action, data.next_obs, held_out)
    diverged = (num_held_out > 0) & jnp.isinf(done.best_loss)
    return model, report._replace(train_loss=done.train_loss, best_epoch=done.best_epoch, diverged=diverged)
