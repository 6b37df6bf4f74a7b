"""Learned models by name: made untrained, and fitted for all seeds at once (TRAIN of Alg. 1)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PRNGKeyArray

from guss.models import MODELS
from guss.models.egocentric import Egocentric, make_own_net
from guss.models.ensemble import Ensemble, fit_ensemble, make_ensemble
from guss.models.fitting import Data, FitSettings, fit, pace_of, split_rows
from guss.models.judging import FitReport
from guss.models.mdn import MixtureNet, NetSettings
from guss.task import Task

Learned = MixtureNet | Ensemble | Egocentric


@dataclass(frozen=True)
class ModelSettings(NetSettings):
    """A learned model: its networks, and how many of them."""

    ensemble: int = 1
    """Nets of the ensemble; 1: no ensemble."""
    propagation: Literal["member", "resampled"] = "member"
    """A particle stays with one member, or meets one drawn anew at every step."""


def make_model(name: str, task: Task, key: PRNGKeyArray, settings: ModelSettings) -> Learned:
    """The learned model of that name, untrained: a net, an ensemble of them, or either with known surroundings."""
    net = {k: v for k, v in asdict(settings).items() if k not in ("ensemble", "propagation")}
    if settings.ensemble == 1:
        return MODELS[name].item(task, key, **net)
    many = lambda make: make_ensemble(partial(make, task, **net), key, settings.ensemble, settings.propagation)  # noqa: E731
    return Egocentric.of(task, many(make_own_net)) if name == "egocentric" else many(MODELS[name].item)


@partial(jax.jit, static_argnames="settings")
def fit_all(
    models: Learned,
    fresh: Learned,
    data: Data,
    keys: Array,
    settings: FitSettings,
    again: Bool[Array, ""] | bool,
) -> tuple[Learned, FitReport]:
    """Fit the models of all seeds at once; everything has a leading axis S. The seed with the most rows sets the pace.

    `again`: the weights were fitted before. An ensemble's report is its members' mean.
    """
    if isinstance(models, Egocentric):
        assert isinstance(fresh, Egocentric)
        nets, report = fit_all(models.net, fresh.net, models.own_data(data), keys, settings, again)
        held_out = jax.vmap(lambda d: split_rows(d, settings)[1])(data)
        return jax.vmap(Egocentric.fitted)(models, nets, report, data, held_out)
    training, held_out = (
        jnp.max(jnp.sum(rows, 1, jnp.int32)) for rows in jax.vmap(lambda d: split_rows(d, settings))(data)
    )
    pace = pace_of(training, held_out, settings, again)
    if isinstance(models, MixtureNet):
        assert isinstance(fresh, MixtureNet)
        return jax.vmap(lambda m, f, d, k: fit(m, f, d, k, settings, pace))(models, fresh, data, keys)
    assert isinstance(fresh, Ensemble)
    models, reports = jax.vmap(lambda m, f, d, k: fit_ensemble(m, f, d, k, settings, pace))(models, fresh, data, keys)
    mean = lambda x: jnp.mean(x.astype(jnp.float32), axis=1)  # noqa: E731
    return models, jax.tree.map(mean, reports)._replace(diverged=jnp.any(reports.diverged, axis=1))
