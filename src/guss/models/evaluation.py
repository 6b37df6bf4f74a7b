"""Evaluation of models on held-out transitions: NLL, R² at one step and at the horizon, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

from guss.errors import GussError
from guss.types import Data, Model
from guss.types import FitReport as FitReport
from guss.validation import plain as plain


def mean_prediction(model: Model, obs: Float[Array, "D"], action: Shaped[Array, "..."]) -> Float[Array, "D"]:
    """The predicted next observation: the mean over ensemble members, without model noise."""
    mean, key = model.mean_model(), jax.random.key(0)
    state, members = mean.encode(obs), jnp.arange(mean.num_particles, dtype=jnp.int32)
    each = jax.vmap(lambda member: mean.decode(mean.predict(state, action, key, member)))(members)
    return jnp.mean(each, axis=0)


def evaluate_model(
    model: Model, data: Data, use: Bool[Array, "rows"], std: Float[Array, "rows D"] | None = None
) -> FitReport:
    """R², NLL and calibration of a model that predicts Gaussians, on the rows in `use` (the held-out rows of a fit).

    `model`: a fitted model of one seed. `data`: transitions in buffers of R rows. `use`: a mask [R]. `std`: predicted
    standard deviations [R, D]; None: those of the errors on these rows, per dimension. Returns a FitReport.

    Example:
        >>> task = guss.make_task("safe-toy")
        >>> action = task.actions.sample(jax.random.key(0), (10,))
        >>> obs = jnp.linspace(4.0, 6.0, 20).reshape(10, 2)
        >>> true = jax.vmap(task.step, (0, 0, None))(obs, action, jax.random.key(1))
        >>> data = guss.Data(obs, action, true, use=jnp.ones(10, bool), filled=jnp.int32(10))
        >>> bool(guss.evaluate_model(guss.Oracle.of(task), data, data.use).diverged)
        False
    """
    guess = jax.vmap(lambda obs, action: mean_prediction(model, obs, action))(data.obs, data.action)
    error, count = data.next_obs - guess, jnp.sum(use).astype(jnp.float32)
    if std is None:
        spread = jnp.sqrt(jnp.sum(jnp.where(use[:, None], error**2, 0.0), axis=0) / jnp.maximum(count, 1.0))
        std = jnp.broadcast_to(spread[None], error.shape)
    std = jnp.maximum(std, 1e-6)
    log_prob = jnp.sum(jax.scipy.stats.norm.logpdf(error / std) - jnp.log(std), axis=1)
    nll = -jnp.sum(jnp.where(use, log_prob, 0.0)) / count
    cdf = jax.scipy.stats.norm.cdf(error / std)
    return FitReport(
        train_loss=jnp.zeros(()),
        nll=nll,
        r2=r_squared(data.next_obs - data.obs, guess - data.obs, use),
        ks=jnp.where(count > 0.0, jax.vmap(ks_from_uniform, (1, None))(cdf, use), jnp.nan),
        held_out=jnp.sum(use, dtype=jnp.int32),
        best_epoch=jnp.zeros((), jnp.int32),
        diverged=(count > 0.0) & ~jnp.isfinite(nll),
    )


def diverged(report: FitReport) -> np.ndarray:
    """Which seeds' fits diverged, [S]."""
    evaluated = np.asarray(report.held_out) > 0  # without held-out rows the error is unknown, which is no divergence
    return np.asarray(report.diverged) | (evaluated & ~np.isfinite(np.asarray(report.nll)))


def check_fit(metrics: dict[str, Any], episode: int, seeds: Sequence[int]) -> None:
    """Raise if the fit for an episode diverged; `metrics`: those of `Method.prepare`."""
    if "report" in metrics and (broken := diverged(metrics["report"])).any():
        which = [seed for seed, bad in zip(seeds, broken, strict=True) if bad]
        raise GussError(
            f"the fit before episode {episode} diverged (seeds {which}: the error on held-out data is not finite); "
            f"lower the learning rate, or look for outliers in the data. Earlier episodes are kept."
        )


def horizon_r2(
    model: Model,
    obs: Float[Array, "T D"],
    action: Shaped[Array, "T ..."],
    next_obs: Float[Array, "T D"],
    horizon: int,
    use: Bool[Array, "T"],
) -> Float[Array, "D"]:
    """R² per dimension of the mean prediction `horizon` steps ahead, along the actions of an episode.

    Rows not in `use` are padding, or steps that cannot be predicted; windows that contain one are excluded. NaN if no
    window is left.
    """
    mean = model.mean_model()
    starts = jnp.arange(obs.shape[0] - horizon + 1)
    key = jax.random.key(0)

    def ahead(start: Array, particle: Array) -> Array:
        actions = jax.lax.dynamic_slice_in_dim(action, start, horizon)
        step = lambda state, action: (mean.predict(state, action, key, particle), None)  # noqa: E731
        return mean.decode(jax.lax.scan(step, mean.encode(obs[start]), actions)[0])

    particles = jnp.arange(mean.num_particles, dtype=jnp.int32)  # several for the members of an ensemble
    guess = jnp.mean(jax.vmap(jax.vmap(ahead, (None, 0)), (0, None))(starts, particles), axis=1)
    skipped = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(~use, dtype=jnp.int32)])
    whole = skipped[horizon:] == skipped[: starts.shape[0]]
    return jnp.where(jnp.any(whole), r_squared(next_obs[horizon - 1 :], guess, whole), jnp.nan)


def r_squared(
    truth: Float[Array, "rows D"], guess: Float[Array, "rows D"], use: Bool[Array, "rows"]
) -> Float[Array, "D"]:
    """1 − residual / total sum of squares, per dimension, over the rows in use; NaN for fewer than 2 rows."""
    weight = use[:, None].astype(jnp.float32)
    mean = jnp.sum(truth * weight, axis=0) / jnp.maximum(jnp.sum(weight), 1.0)
    total = jnp.sum(weight * (truth - mean[None]) ** 2, axis=0)
    share = jnp.sum(weight * (truth - guess) ** 2, axis=0) / jnp.maximum(total, 1e-12)
    return jnp.where(jnp.sum(weight) > 1.0, 1.0 - share, jnp.nan)


def ks_from_uniform(values: Float[Array, "rows"], use: Bool[Array, "rows"]) -> Float[Array, ""]:
    """Kolmogorov–Smirnov distance of the values in use from the uniform distribution on [0, 1]."""
    count = jnp.maximum(jnp.sum(use), 1).astype(jnp.float32)
    ordered = jnp.sort(jnp.where(use, values, 2.0))  # rows not in use go to the end
    rank = jnp.arange(values.shape[0], dtype=jnp.float32)
    inside = rank < count
    above, below = (rank + 1.0) / count - ordered, ordered - rank / count
    return jnp.max(jnp.where(inside, jnp.maximum(above, below), 0.0))
