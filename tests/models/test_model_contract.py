"""What every learned model must do; a new one is tested by being registered."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_egocentric import data_of, drive, scooter

from guss.models import MODELS
from guss.models.evaluation import horizon_r2
from guss.models.factory import ModelSettings, fit_all, make_model
from guss.models.training import FitSettings
from guss.planners import make_planner
from guss.planners.engine import plan

TASK, KEY = scooter(), jax.random.key(0)
LEARNED = [entry.name for entry in MODELS if entry.name != "oracle"]


@pytest.fixture(scope="module", params=LEARNED)
def fitted(request):
    """A model of each kind, fitted a little: for one of two seeds."""
    data = jax.tree.map(lambda x: jnp.concatenate([x, x]), data_of([drive(seed, 40) for seed in range(3)]))
    keys = jax.random.split(KEY, 2)
    chosen = ModelSettings(hidden=(8,))
    fresh = jax.jit(jax.vmap(lambda key: make_model(request.param, TASK, key, chosen)))(keys)
    models, report = fit_all(fresh, fresh, data, keys, FitSettings(max_steps=100), False)
    return jax.tree.map(lambda x: x[0], models), jax.tree.map(lambda x: x[0], report)


def test_predictions_are_observations(fitted):
    model, _ = fitted
    obs, actions = (jnp.asarray(x) for x in drive(5, 3))
    state = model.encode(obs[0])
    for action in actions:
        state = model.predict(state, action, KEY, jnp.zeros((), jnp.int32))
        assert model.decode(state).shape == (6,)
        assert np.isfinite(model.decode(state)).all()


def test_reports_speak_of_every_dimension(fitted):
    _, report = fitted
    assert report.r2.shape == report.ks.shape == (6,)
    assert np.isfinite(report.r2).all()
    assert np.isfinite(report.nll)
    assert int(report.held_out) > 0
    assert not bool(report.diverged)


def test_policies_get_standardised_inputs(fitted):
    shift, scale = fitted[0].policy_inputs()
    assert shift.shape == scale.shape == (6,)
    assert (np.asarray(scale) > 0).all()


def test_plans_can_be_made_in_it(fitted):
    planner = make_planner("guss", TASK, horizon=3, budget=12, num_initial=4, num_new=4)
    found = plan(planner, fitted[0], TASK, np.zeros(6), KEY)
    assert np.isfinite(found.action).all()
    assert found.trajectory.next_obs.shape == (fitted[0].num_particles, 3, 6)


def test_it_can_be_judged_at_the_horizon(fitted):
    """Stretches with a step that cannot be learned from do not count; without any left there is no figure."""
    obs, actions = (jnp.asarray(x) for x in drive(7, 12))
    rate = jax.jit(lambda use: horizon_r2(fitted[0], obs[:-1], actions, obs[1:], 5, use))
    everything, first = rate(jnp.ones(12, bool)), rate(jnp.arange(12) < 8)
    assert np.isfinite(everything).all()
    assert not np.allclose(everything, first)
    np.testing.assert_allclose(rate(jnp.arange(12) != 8), first, rtol=1e-5)  # rows 9 to 11 are too few
    assert np.isnan(rate(jnp.arange(12) % 5 != 4)).all()
