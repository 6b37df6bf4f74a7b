"""Calibration and evaluation of trained outcome nets on held-out rows."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from guss.models.evaluation import r_squared
from guss.models.outcomes import OutcomeNets, OutcomeReport, blur, event_weight
from guss.models.training import FitSettings, batched_like, split_rows
from guss.types import Data

CALIBRATION_STEPS = 12


def finish_outcomes(
    nets: OutcomeNets, targets: Float[Array, "rows O"], data: Data, key: PRNGKeyArray, settings: FitSettings
) -> tuple[OutcomeNets, OutcomeReport]:
    """Calibrate and evaluate a set of trained nets on held-out rows; `key` as for `train_outcomes`."""
    training, held_out = split_rows(data, settings)
    events = (targets[:, int(nets.rewarded) :] > 0.0).astype(jnp.float32)
    weight, still = event_weight(events, training), blur(data, key, settings)
    odds = nets.log_odds(nets.outputs(jax.vmap(nets.inputs)(data.obs, data.action, data.next_obs), still))
    # Training weighted events by `weight`: undo that shift of the log odds, then calibrate on held-out rows.
    slope, offset = jax.vmap(_calibrated, (0, 1, None))(odds - jnp.log(weight)[:, None], events, held_out)
    nets = eqx.tree_at(lambda n: (n.slope, n.offset), nets, (slope, offset - slope * jnp.log(weight)))
    return nets, _evaluated(nets, data, targets, held_out, still)


def _calibrated(
    odds: Float[Array, "rows"], event: Float[Array, "rows"], use: Bool[Array, "rows"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Platt scaling: slope and offset of the log odds that fit the rows best, by Newton's method.

    A normal prior of standard deviation 1 around (1, 0) regularises them if few or no events were held out.
    """
    features = jnp.stack([odds, jnp.ones_like(odds)], axis=1)
    prior = jnp.asarray([1.0, 0.0])

    def newton(_: Array, point: Float[Array, "2"]) -> Float[Array, "2"]:
        chance = jax.nn.sigmoid(features @ point)
        gradient = features.T @ jnp.where(use, chance - event, 0.0) + point - prior
        curvature = (features * jnp.where(use, chance * (1.0 - chance), 0.0)[:, None]).T @ features + jnp.eye(2)
        (a, b), (c, d) = curvature  # solved by hand: a general solver takes a second to compile
        step = jnp.stack([d * gradient[0] - b * gradient[1], a * gradient[1] - c * gradient[0]]) / (a * d - b * c)
        return point - jnp.clip(step, -1.0, 1.0)

    slope, offset = jax.lax.fori_loop(0, CALIBRATION_STEPS, newton, batched_like(odds, prior))
    return jnp.maximum(slope, 0.1), offset


def _evaluated(
    nets: OutcomeNets,
    data: Data,
    targets: Float[Array, "rows O"],
    use: Bool[Array, "rows"],
    noise: Float[Array, "rows D"],
) -> OutcomeReport:
    rewarded = int(nets.rewarded)
    outputs = nets.outputs(jax.vmap(nets.inputs)(data.obs, data.action, data.next_obs), noise)
    r2 = jnp.asarray(jnp.nan)
    if rewarded:
        guess = jax.vmap(nets.reward_scaling.undo)(nets.reward(outputs)[0][:, None])
        varies = nets.reward_range[1] - nets.reward_range[0] > 0.0  # otherwise there is no variance to explain
        r2 = jnp.where(varies, r_squared(targets[:, :1], guess, use)[0], jnp.nan)
    events, chance = (targets[:, rewarded:] > 0.0).astype(jnp.float32).T, nets.probabilities(outputs)
    weight = use.astype(jnp.float32)
    count = jnp.sum(weight)
    mean = lambda x: jnp.sum(jnp.where(use[None], x, 0.0), axis=1) / count  # noqa: E731
    safe = jnp.clip(chance, 1e-6, 1.0 - 1e-6)
    hits = events * weight[None]
    bins = jnp.clip((chance * 10.0).astype(jnp.int32), 0, 9)
    inside = jax.nn.one_hot(bins, 10) * weight[None, :, None]  # [C, rows, bins]
    gaps = jnp.abs(jnp.einsum("crb,cr->cb", inside, chance - events))
    return OutcomeReport(
        reward_r2=r2,
        cost_error=-mean(events * jnp.log(safe) + (1.0 - events) * jnp.log(1.0 - safe)),
        cost_calibration=jnp.sum(gaps, axis=1) / count,
        cost_recall=jnp.sum(jnp.where(chance >= 0.5, hits, 0.0), axis=1) / jnp.sum(hits, axis=1),
        cost_share=mean(events),
    )
