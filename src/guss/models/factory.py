"""Learned models by name: made untrained, and fitted for all seeds at once (TRAIN of Alg. 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PRNGKeyArray

from guss.compilation import AT_ONCE, QUICKLY
from guss.errors import GussError
from guss.models import MODELS
from guss.models.calibration import finish_outcomes
from guss.models.egocentric import Egocentric, make_own_net
from guss.models.ensemble import Ensemble, fit_ensemble, make_ensemble
from guss.models.evaluation import FitReport
from guss.models.mdn import MixtureNet, NetSettings
from guss.models.outcomes import (
    OPINIONS,
    Behaviour,
    Informed,
    OutcomeNets,
    OutcomeReport,
    informed,
    train_outcomes,
    wanted_columns,
)
from guss.models.support import Support
from guss.models.training import Data, FitSettings, Pace, fit, pace_of, split_rows
from guss.task import Task

Dynamics = MixtureNet | Ensemble | Egocentric
Learned = Any
OUTCOMES, DYNAMICS = "fit of reward, cost and end", "fit of the dynamics"
CALIBRATION = "calibration of reward and cost"
BEYOND_OUTCOMES = 2**19 + 1  # folded into a key, for the sample of the data
APART = 2**19  # folded into a key, so that outcome nets do not draw the numbers of the dynamics


@dataclass(frozen=True)
class ModelSettings(NetSettings):
    """A learned model: its networks, and how many of them."""

    ensemble: int = 1
    """Nets of the ensemble; 1: no ensemble."""
    propagation: Literal["member", "resampled"] = "member"
    """A particle stays with one member, or meets one drawn anew at every step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ensemble < 1:
            raise GussError(f"an ensemble has at least 1 member, got {self.ensemble}")

    @property
    def num_weights(self) -> int:
        """Weights of all members."""
        return max(self.ensemble, 1) * super().num_weights


def make_model(name: str, task: Task, key: PRNGKeyArray, settings: ModelSettings) -> Learned:
    """The learned model of that name, untrained: a net, an ensemble of them, or either with known surroundings.

    What the task does not know, reward, costs, behaviour, is learned beside it.
    """
    dynamics = _make_dynamics(name, task, key, settings)
    if not task.unknown and not task.unknown_unsafe:
        return dynamics
    key = jax.random.fold_in(key, APART)
    opinions = settings.ensemble if settings.ensemble > 1 else OPINIONS
    return informed(dynamics, task, key, opinions, settings.hidden, settings.activation)


def _make_dynamics(name: str, task: Task, key: PRNGKeyArray, settings: ModelSettings) -> Dynamics:
    net = {k: v for k, v in asdict(settings).items() if k not in ("ensemble", "propagation")}
    if settings.ensemble == 1:
        return MODELS[name].item(task, key, **net)
    many = lambda make: make_ensemble(partial(make, task, **net), key, settings.ensemble, settings.propagation)  # noqa: E731
    return Egocentric.of(task, many(make_own_net)) if name == "egocentric" else many(MODELS[name].item)


class Program(NamedTuple):
    """A compiled function of a fit, and what it is called with."""

    name: str
    """What it does, as shown while it is compiled."""
    jitted: Any
    arguments: tuple[Any, ...]

    def run(self) -> Any:
        """Call it."""
        return self.jitted(*self.arguments)

    def lower(self) -> Any:
        """Trace it for such arguments, to be compiled."""
        return self.jitted.lower(*self.arguments)


def fit_programs(
    models: Learned,
    fresh: Learned,
    data: Data,
    keys: Array,
    settings: FitSettings,
    again: Bool[Array, ""] | np.bool_ | bool,
    task: Task | None = None,
) -> list[Program]:
    """What `fit_all` runs: the fit of the dynamics; before it, where the task does not know them, of outcomes."""
    rows = f" to {data.use.shape[-1]:,} rows"
    if not isinstance(models, Informed):
        return [Program(DYNAMICS + rows, _fit_dynamics, (models, fresh, data, keys, settings, again))]
    assert isinstance(fresh, Informed)
    assert task is not None
    outcomes = (models.nets, fresh.nets, data, keys, settings, again, task)
    dynamics = (models.dynamics, fresh.dynamics, data, keys, settings, again)
    rest = (models.nets, models.behaviour, data, keys, settings, task)
    return [
        Program(OUTCOMES + rows, _train_outcomes, outcomes),  # the longest runs first, while others are compiled
        Program(DYNAMICS + rows, _fit_dynamics, dynamics),
        Program(CALIBRATION + rows, _finish, rest),
    ]


def fit_all(
    models: Learned,
    fresh: Learned,
    data: Data,
    keys: Array,
    settings: FitSettings,
    again: Bool[Array, ""] | np.bool_ | bool,
    task: Task | None = None,
    before: Callable[[str], Any] | None = None,
) -> tuple[Learned, FitReport]:
    """Fit the models of all seeds at once; everything has a leading axis S. The seed with the most rows sets the pace.

    `again`: the weights were fitted before. `task`: what is known, where a model learns the rest. An ensemble's report
    is its members' mean. `before(name)` is called before each program; the one before it may still run.
    """
    programs = fit_programs(models, fresh, data, keys, settings, again, task)

    def run(program: Program) -> Any:
        if before is not None:
            before(program.name)
        return program.run()

    if len(programs) == 1:
        return run(programs[0])
    nets = run(programs[0])
    dynamics, report = run(programs[1])
    last = programs[2]
    nets, outcome, behaviour, support = run(last._replace(arguments=(nets, *last.arguments[1:])))
    return Informed(dynamics, nets, behaviour, support), report._replace(outcome=outcome)


@partial(jax.jit, static_argnames="settings")
def _fit_dynamics(
    models: Dynamics, fresh: Dynamics, data: Data, keys: Array, settings: FitSettings, again: Bool[Array, ""] | bool
) -> tuple[Dynamics, FitReport]:
    if isinstance(models, Egocentric):
        assert isinstance(fresh, Egocentric)
        nets, report = _fit_dynamics(models.net, fresh.net, models.own_data(data), keys, settings, again)
        held_out = jax.vmap(lambda d: split_rows(d, settings)[1])(data)
        return jax.vmap(Egocentric.fitted)(models, nets, report, data, held_out)
    pace = _common_pace(data, settings, again)
    if isinstance(models, MixtureNet):
        assert isinstance(fresh, MixtureNet)
        return jax.vmap(lambda m, f, d, k: fit(m, f, d, k, settings, pace))(models, fresh, data, keys)
    assert isinstance(fresh, Ensemble)
    models, reports = jax.vmap(lambda m, f, d, k: fit_ensemble(m, f, d, k, settings, pace))(models, fresh, data, keys)
    mean = lambda x: jnp.mean(x.astype(jnp.float32), axis=1)  # noqa: E731
    return models, jax.tree.map(mean, reports)._replace(diverged=jnp.any(reports.diverged, axis=1))


def _common_pace(data: Data, settings: FitSettings, again: Bool[Array, ""] | bool) -> Pace:
    training, held_out = (
        jnp.max(jnp.sum(rows, 1, jnp.int32)) for rows in jax.vmap(lambda d: split_rows(d, settings))(data)
    )
    return pace_of(training, held_out, settings, again)


@partial(jax.jit, static_argnames="settings", compiler_options=QUICKLY)
def _train_outcomes(
    nets: OutcomeNets | None,
    fresh: OutcomeNets | None,
    data: Data,
    keys: Array,
    settings: FitSettings,
    again: Bool[Array, ""] | bool,
    task: Task,
) -> OutcomeNets | None:
    """What the task does not know; the key of each set of nets is one of `_opinion_keys`."""
    if nets is None:
        return None
    pace, count = _common_pace(data, settings, again), nets.slope.shape[1]

    def one(nets: Any, fresh: Any, data: Data, key: Array) -> Any:
        wanted = wanted_columns(task, data.told)
        train = lambda n, f, k: train_outcomes(n, f, wanted, data, k, settings, pace)  # noqa: E731
        return jax.vmap(train)(nets, fresh, _opinion_keys(key, count))

    return jax.vmap(one)(nets, fresh, data, keys)


def _opinion_keys(key: PRNGKeyArray, count: int) -> Array:
    return jax.random.split(jax.random.fold_in(key, APART), count)


@partial(jax.jit, static_argnames="settings", compiler_options=AT_ONCE)
def _finish(
    nets: OutcomeNets | None, behaviour: Behaviour | None, data: Data, keys: Array, settings: FitSettings, task: Task
) -> tuple[OutcomeNets | None, OutcomeReport | None, Behaviour | None, Support]:
    """What follows the training of outcomes: their calibration, how plans are told apart, where the data lie."""
    outcome = None
    if nets is not None:
        count = nets.slope.shape[1]

        def one(nets: Any, data: Data, key: Array) -> Any:
            wanted = wanted_columns(task, data.told)
            finish = lambda n, k: finish_outcomes(n, wanted, data, k, settings)  # noqa: E731
            return jax.vmap(finish)(nets, _opinion_keys(key, count))

        nets, reports = jax.vmap(one)(nets, data, keys)
        outcome = jax.tree.map(lambda x: jnp.mean(x, axis=1), reports)
    if behaviour is not None:
        dims = len(task.grid.cells)
        rows = jax.vmap(lambda d: split_rows(d, settings)[0])(data)
        behaviour = jax.vmap(lambda obs, use: Behaviour.of(obs, use, dims))(data.obs, rows)

    def support(data: Data, key: Array) -> Support:
        rows = data.use & (jnp.arange(data.use.shape[0]) < data.filled)
        return Support.of(data.next_obs, rows, jax.random.fold_in(key, BEYOND_OUTCOMES), settings.reach)

    return nets, outcome, behaviour, jax.vmap(support)(data, keys)
