"""Common parts of fits: data buffers, settings, held-out rows, and the training loop of networks.

Data are stored in buffers of fixed size with a count of filled rows, so a growing data set causes no recompilation. The
loop runs Adam on minibatches, reduces the learning rate on a plateau, and keeps the best weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from guss.errors import UnknownNameError
from guss.limits import MAX_BATCH, MAX_BUFFER
from guss.task import Task
from guss.types import Data as Data
from guss.types import FitReport, Model
from guss.types import Pace as Pace
from guss.validation import check_fields, check_ranges

LOSSES = ("nll", "beta_nll", "mse")
BLOCK = 256  # rows evaluated at once
DRAWN = 32  # batches drawn at once


@dataclass(frozen=True)
class FitSettings:
    """How a model is trained.

    Raises:
        GussError: a value is out of its range.

    Example:
        >>> guss.FitSettings(loss="nll", epochs=300).learning_rate
        0.001
    """

    loss: str = "beta_nll"
    """nll (negative log-likelihood, as in the paper), beta_nll (nll weighted by variance^beta, for a better mean), mse
    (squared error for the mean, nll for the spread)."""
    beta: float = 0.5
    """Exponent of the variance in beta_nll."""
    epochs: int = 5000
    """Maximum number of epochs, unless a limit on steps is lower. Batches are drawn at random; an epoch has as many
    batches as one pass over the data."""
    max_steps: int = 4000
    """Maximum number of gradient steps; 0: no limit."""
    warm_steps: int = 1500
    """Like max_steps, for fits that start from the weights of the last fit; 0: the same as max_steps."""
    batch: int = 50
    """Transitions per gradient step."""
    learning_rate: float = 1e-3
    """Learning rate of Adam."""
    validation: float = 0.1
    """Share of the transitions held out."""
    patience: int = 200
    """Epochs without improvement on the held-out rows before the learning rate is divided by 10. Its minimum is a
    thousandth of `learning_rate`; the same number of epochs without improvement at the minimum ends the fit."""
    warm_start: bool = True
    """Start from the weights of the last fit instead of new random ones."""
    cost_blur: float = 0.05
    """Noise added to the states from which costs are learned, in standard deviations of the data. It keeps plans at
    about this distance from unsafe states."""
    reward_margin: float = 0.1
    """How far predicted rewards may lie outside the observed range, as a share of the width of this range."""
    reach: float = 3.0
    """A state is unfamiliar if it is outside the observed range, or if its distance from the nearest training state is
    more than this many times the usual distance between training states."""

    def __post_init__(self) -> None:
        check_fields(self, "fit")
        if self.loss not in LOSSES:
            raise UnknownNameError("loss", self.loss, LOSSES)
        check_ranges(self, "fit", epochs="[1, inf)", batch="[1, inf)", patience="[1, inf)", reach="(0, inf)")
        check_ranges(self, "fit", max_steps="[0, inf)", warm_steps="[0, inf)", validation="(0, 1)", beta="[0, inf)")
        check_ranges(self, "fit", learning_rate="(0, inf)", cost_blur="[0, inf)", reward_margin="[0, inf)")
        MAX_BATCH.check(f"fit.batch = {self.batch}", self.batch)


def empty_data(
    obs_size: int, action_shape: tuple[int, ...], action_dtype: Any, capacity: int, num_outcomes: int = 0
) -> Data:
    """Empty buffers for `capacity` transitions, each with `num_outcomes` outcomes (reward, costs, end) to learn."""
    return Data(
        obs=jnp.zeros((capacity, obs_size)),
        action=jnp.zeros((capacity, *action_shape), action_dtype),
        next_obs=jnp.zeros((capacity, obs_size)),
        use=jnp.zeros((capacity,), bool),
        filled=jnp.zeros((), jnp.int32),
        outcomes=jnp.zeros((capacity, num_outcomes)) if num_outcomes else None,
    )


def check_buffer(what: str, task: Task, rows: int) -> None:
    """Raise if `rows` transitions of a task exceed the memory limit; `what` names their purpose in the error."""
    numbers = 2 * task.observations.size + math.prod(task.actions.shape) + len(task.constraints) + 2
    MAX_BUFFER.check(f"{what} ({rows} transitions of task {task.name!r})", 4 * rows * numbers)


def append(data: Data, more: Data) -> Data:
    """Append the first `more.filled` rows of a block; the buffers must have room for the whole block."""
    write = lambda rows, new: jax.lax.dynamic_update_slice_in_dim(rows, new, data.filled, axis=0)  # noqa: E731
    obs, action, next_obs, use = map(write, data[:4], more[:4])
    outcomes = None if data.outcomes is None else write(data.outcomes, more.outcomes)
    return Data(obs, action, next_obs, use, data.filled + more.filled, outcomes)


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


def split_rows(data: Data, settings: FitSettings) -> tuple[Bool[Array, "rows"], Bool[Array, "rows"]]:
    """Masks of the training rows and of the held-out rows, [R] each.

    `data`: transitions in buffers of R rows; `settings.validation` is the share to hold out. The choice depends
    only on the row number, so a row that is held out in one fit is held out in all fits.

    Example:
        >>> rows = jnp.zeros((100, 2))
        >>> data = guss.Data(rows, rows, rows, use=jnp.ones(100, bool), filled=jnp.int32(60))
        >>> training, held_out = guss.split_rows(data, guss.FitSettings(validation=0.2))
        >>> int(training.sum() + held_out.sum()), bool((training & held_out).any())
        (60, False)
    """
    capacity = data.use.shape[0]
    filled = data.use & (jnp.arange(capacity) < data.filled)
    held_out = filled & (_lots(capacity) < settings.validation)
    return filled & ~held_out, held_out


@lru_cache(maxsize=8)
def _lots(capacity: int) -> np.ndarray:
    """A fixed random number per row, as a constant: otherwise a compiled program would draw them in several places."""
    with jax.ensure_compile_time_eval():
        return np.asarray(jax.random.uniform(jax.random.key(0), (capacity,)))


def pace_of(
    num_training: Int[Array, ""], num_held_out: Int[Array, ""], settings: FitSettings, again: Bool[Array, ""] | bool
) -> Pace:
    """Epochs, and gradient steps per epoch, for these numbers of rows; `again`: the weights were fitted before."""
    steps = (num_training + settings.batch - 1) // settings.batch
    no_limit = 2**31 - 1
    first = settings.max_steps or no_limit
    warm = (settings.warm_steps or first) if settings.warm_start else first
    limit = jnp.where(jnp.asarray(again), warm, first)
    epochs = jnp.clip(limit // jnp.maximum(steps, 1), 1, settings.epochs)
    return Pace(epochs, steps, (num_held_out + BLOCK - 1) // BLOCK)


Losses = Callable[..., Float[Array, "N"]]
"""Maps weights and row numbers (and `num_normals` normal random numbers per row) to the loss of each row."""


def train_network(
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
    """Run Adam on minibatches of the first `num_training` rows; keep the weights that are best on the held-out rows.

    The held-out rows follow the training rows. `objective` is minimised; if `num_normals` > 0, it receives this many
    normal random numbers per row. `criterion` evaluates the weights after an epoch.
    """
    adam = optax.scale_by_adam()

    def held_out_loss(weights: Any) -> Float[Array, ""]:
        """The mean over the held-out rows, computed in as few blocks of BLOCK rows as possible."""

        def block(i: Array, total: Array) -> Array:
            row = i * BLOCK + jnp.arange(BLOCK)
            each = criterion(weights, num_training + row)  # rows beyond the end repeat the last row
            return total + jnp.sum(jnp.where(row < num_held_out, each, 0.0))

        total = jax.lax.fori_loop(0, pace.blocks, block, batched_like(weights, jnp.zeros(())))
        return total / jnp.maximum(num_held_out, 1).astype(jnp.float32)

    def step(i: Array, carry: tuple[_Training, Any]) -> tuple[_Training, Any]:
        state, draws = carry
        drawn = jax.tree.map(lambda x: x[i], draws)
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean(objective(w, *drawn)))(state.weights)
        with jax.numpy_dtype_promotion("standard"):  # optax raises a float to an integer power
            update, optimiser = adam.update(gradient, state.optimiser)
        weights = jax.tree.map(lambda w, u: w - state.rate * u, state.weights, update)
        return state._replace(weights=weights, optimiser=optimiser, train_loss=loss), draws

    def steps(block: Array, carry: tuple[_Training, PRNGKeyArray]) -> tuple[_Training, PRNGKeyArray]:
        """Up to DRAWN gradient steps. Their batches are drawn at once: drawing one takes longer than a step."""
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
        better = (loss < state.best_loss) | (num_held_out == 0)  # no held-out rows: the last weights are kept
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
            settled=plateau & (state.rate <= 1.01 * least),  # more epochs would hardly change the weights
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
    # Under `vmap` the loop runs until the last network has settled; `while_loop` leaves settled networks unchanged.
    unfinished = lambda carry: (carry[0] < pace.epochs) & ~carry[1].settled  # noqa: E731
    return jax.lax.while_loop(
        unfinished, lambda carry: (carry[0] + 1, epoch(*carry)), (jnp.zeros((), jnp.int32), start)
    )[1]


def batched_like(like: Any, carry: Any) -> Any:
    """The initial carry of a loop with the same values, but batched like `like`.

    Under `vmap`, JAX traces a loop again if its initial carry contains constants, until it knows which values are
    batched: twice per loop, so eight times for the innermost of three nested loops.
    """
    nothing = jnp.sum(jax.tree.leaves(like)[0].ravel()[:0])  # 0, which XLA folds into a constant
    return jax.tree.map(lambda x: x | (nothing != 0) if x.dtype == bool else x + nothing.astype(x.dtype), carry)


def in_order(training: Bool[Array, "rows"], held_out: Bool[Array, "rows"]) -> Int[Array, "rows"]:
    """The row numbers, sorted: training rows first, then held-out rows, then unused rows."""
    return jnp.argsort(jnp.where(training, 0, jnp.where(held_out, 1, 2)), stable=True)


def fit_model(
    model: Model, fresh: Model, data: Data, key: PRNGKeyArray, settings: FitSettings
) -> tuple[Model, FitReport]:
    """Fit the model of one seed; `guss.models.factory.fit_all` fits those of all seeds at once."""
    num_training, num_held_out = (jnp.sum(rows, dtype=jnp.int32) for rows in split_rows(data, settings))
    return model.fit(fresh, data, key, settings, pace_of(num_training, num_held_out, settings, again=False))
