"""Creates learned models by name, and fits them for all seeds at once (TRAIN of Alg. 1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PRNGKeyArray

from guss import keys as streams
from guss.compilation import AT_ONCE, QUICKLY
from guss.models.calibration import finish_outcomes
from guss.models.ensemble import make_ensemble
from guss.models.outcomes import (
    OUTCOME_MEMBERS,
    Behaviour,
    ModelWithOutcomes,
    OutcomeNets,
    OutcomeReport,
    learns_outcomes,
    make_model_with_outcomes,
    outcome_targets,
    train_outcomes,
)
from guss.models.settings import CommonSettings, model_class, own_settings, settings_for
from guss.models.settings import ModelSettings as ModelSettings
from guss.models.support import Support
from guss.models.training import FitSettings, pace_of, split_rows
from guss.task import Task
from guss.types import Data, FitReport, Model, Pace

OUTCOMES, DYNAMICS = "fit of reward, cost and end", "fit of the dynamics"
CALIBRATION = "calibration of reward and cost"


def make_model(name: str, task: Task, key: PRNGKeyArray, settings: CommonSettings) -> Model:
    """The untrained model of that name, or an ensemble of such models.

    Outcomes that the task does not define (reward, costs, behaviour, end of episodes) are learned next to it. A model
    that learns nothing is returned as it is: members of an ensemble would be equal.
    """
    cls, settings = model_class(name), settings_for(name, settings, "model")
    own = own_settings(cls, settings)
    make = lambda key: cls.create(task, key, **own)  # noqa: E731
    if not cls.learns():
        return make(key)
    many = settings.ensemble > 1
    dynamics = make_ensemble(make, key, settings.ensemble, settings.propagation) if many else make(key)
    if not learns_outcomes(task):
        return dynamics
    key = jax.random.fold_in(key, streams.OUTCOMES)
    members = settings.ensemble if many else OUTCOME_MEMBERS
    return make_model_with_outcomes(dynamics, task, key, members, settings.hidden, settings.activation)


class Program(NamedTuple):
    """A jitted function of a fit, and its arguments."""

    name: str
    """Label shown while it is compiled."""
    jitted: Any
    arguments: tuple[Any, ...]

    def lower(self) -> Any:
        """Trace the function for its arguments, before compilation."""
        return self.jitted.lower(*self.arguments)


def fit_programs(
    models: Model,
    fresh: Model,
    data: Data,
    keys: Array,
    settings: FitSettings,
    again: Bool[Array, ""] | np.bool_ | bool,
    task: Task | None = None,
) -> list[Program]:
    """The programs of `fit_all`: the fit of the dynamics; if outcomes are learned, their fit and calibration, too.

    All arrays have a leading axis S; the seed with the most rows determines the number of steps. `again`: the weights
    were fitted before. `task`: that of `make_model`, if outcomes are learned.
    """
    rows = f" to {data.use.shape[-1]:,} rows"
    if task is None or not learns_outcomes(task):
        return [Program(DYNAMICS + rows, _fit_dynamics, (models, fresh, data, keys, settings, again))]
    now, first = cast(ModelWithOutcomes, models), cast(ModelWithOutcomes, fresh)  # the type that `make_model` returns
    outcomes = (now.nets, first.nets, data, keys, settings, again, task)
    dynamics = (now.dynamics, first.dynamics, data, keys, settings, again)
    rest = (now.nets, now.behaviour, data, keys, settings, task)
    return [
        Program(OUTCOMES + rows, _train_outcomes, outcomes),  # the longest; it runs while the others are compiled
        Program(DYNAMICS + rows, _fit_dynamics, dynamics),
        Program(CALIBRATION + rows, _finish, rest),
    ]


def fit_all(programs: list[Program], before: Callable[[str], Any] | None = None) -> tuple[Model, FitReport]:
    """Fit the models of all seeds by the programs of `fit_programs`. An ensemble's report is its members' mean.

    `before(name)` is called before each program starts; the previous program may still be running.
    """

    def run(program: Program, *first: Any) -> Any:
        if before is not None:
            before(program.name)
        return program.jitted(*first, *program.arguments[len(first) :])

    if len(programs) == 1:
        return run(programs[0])
    nets = run(programs[0])
    dynamics, report = run(programs[1])
    nets, outcome, behaviour, support = run(programs[2], nets)
    return ModelWithOutcomes(dynamics, nets, behaviour, support), report._replace(outcome=outcome)


@partial(jax.jit, static_argnames="settings")
def _fit_dynamics(
    models: Model, fresh: Model, data: Data, keys: Array, settings: FitSettings, again: Bool[Array, ""] | bool
) -> tuple[Model, FitReport]:
    pace = _common_pace(data, settings, again)
    return jax.vmap(lambda m, f, d, k: m.fit(f, d, k, settings, pace))(models, fresh, data, keys)


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
    """Train the outcome nets; each set of nets has one of `_member_keys`."""
    if nets is None:
        return None
    pace, count = _common_pace(data, settings, again), nets.slope.shape[1]

    def one(nets: Any, fresh: Any, data: Data, key: Array) -> Any:
        targets = outcome_targets(task, data.outcomes)
        train = lambda n, f, k: train_outcomes(n, f, targets, data, k, settings, pace)  # noqa: E731
        return jax.vmap(train)(nets, fresh, _member_keys(key, count))

    return jax.vmap(one)(nets, fresh, data, keys)


def _member_keys(key: PRNGKeyArray, count: int) -> Array:
    return jax.random.split(jax.random.fold_in(key, streams.OUTCOMES), count)


@partial(jax.jit, static_argnames="settings", compiler_options=AT_ONCE)
def _finish(
    nets: OutcomeNets | None, behaviour: Behaviour | None, data: Data, keys: Array, settings: FitSettings, task: Task
) -> tuple[OutcomeNets | None, OutcomeReport | None, Behaviour | None, Support]:
    """Calibrate the trained outcome nets, then compute the behaviour descriptor and the support of the data."""
    outcome = None
    if nets is not None:
        count = nets.slope.shape[1]

        def one(nets: Any, data: Data, key: Array) -> Any:
            targets = outcome_targets(task, data.outcomes)
            finish = lambda n, k: finish_outcomes(n, targets, data, k, settings)  # noqa: E731
            return jax.vmap(finish)(nets, _member_keys(key, count))

        nets, reports = jax.vmap(one)(nets, data, keys)
        outcome = jax.tree.map(lambda x: jnp.mean(x, axis=1), reports)
    if behaviour is not None:
        dims = len(task.grid.cells)
        rows = jax.vmap(lambda d: split_rows(d, settings)[0])(data)
        behaviour = jax.vmap(lambda obs, use: Behaviour.of(obs, use, dims))(data.obs, rows)

    def support(data: Data, key: Array) -> Support:
        rows = data.use & (jnp.arange(data.use.shape[0]) < data.filled)
        return Support.of(data.next_obs, rows, jax.random.fold_in(key, streams.SUPPORT), settings.reach)

    return nets, outcome, behaviour, jax.vmap(support)(data, keys)
