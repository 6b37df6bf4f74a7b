"""What every learned model must do, the custom ones of examples/ too; a new one is tested by being registered."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.quick import long_unless
from test_egocentric import SCOOTER, data_of, drive, scooter

import guss
from guss.errors import GussError
from guss.methods.presets import settings_from
from guss.methods.settings import AgentSettings
from guss.models import MODELS
from guss.models.evaluation import horizon_r2
from guss.models.factory import ModelSettings, fit_all, fit_programs, make_model
from guss.models.settings import model_class, settings_for
from guss.models.training import FitSettings
from guss.planners import make_planner
from guss.planners.engine import plan
from guss.planners.rollouts import Particles, roll_out
from guss.plugins import load_module
from guss.validation import build

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = {"linear": "linear_model", "random-features": "random_feature_model"}
TASK, KEY = scooter(), jax.random.key(0)
LEARNED = [entry.name for entry in MODELS if entry.name not in EXAMPLES and model_class(entry.name).learns()]
SMALL = ("--method", "rs", "--horizon", 3, "--budget", 20, "--seeds", 1, "--no-figures", "--quiet")
SHORT = ("--fit.max-steps", "20", "--fit.warm-steps", "10")


def plugin(name):
    return ("--plugin", str(ROOT / "examples" / f"{EXAMPLES[name]}.py")) if name in EXAMPLES else ()


def fit(name, **settings):
    """A model fitted a little, for one of two seeds."""
    if name in EXAMPLES:
        load_module(plugin(name)[1])
    data = jax.tree.map(lambda x: jnp.concatenate([x, x]), data_of([drive(seed, 40) for seed in range(3)]))
    keys = jax.random.split(KEY, 2)
    chosen = settings_for(name, {"hidden": (8,)} | settings, "model")
    fresh = jax.jit(jax.vmap(lambda key: make_model(name, TASK, key, chosen)))(keys)
    models, report = fit_all(fit_programs(fresh, fresh, data, keys, FitSettings(max_steps=100), False))
    assert jax.tree.structure(models) == jax.tree.structure(fresh)
    return jax.tree.map(lambda x: x[0], models), jax.tree.map(lambda x: x[0], report)


@pytest.fixture(scope="module", params=[*LEARNED, *EXAMPLES])
def fitted(request):
    return fit(request.param)


def test_predictions_are_observations(fitted):
    model, _ = fitted
    obs, actions = (jnp.asarray(x) for x in drive(5, 3))
    state, predict = model.encode(obs[0]), jax.jit(lambda *x: model.predict(*x, KEY, jnp.zeros((), jnp.int32)))
    for action in actions:
        state = predict(state, action)
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


def test_it_can_be_evaluated_at_the_horizon(fitted):
    """Stretches with a step that cannot be learned from do not count; without any left there is no figure."""
    obs, actions = (jnp.asarray(x) for x in drive(7, 12))
    rate = jax.jit(lambda use: horizon_r2(fitted[0], obs[:-1], actions, obs[1:], 5, use))
    everything, first = rate(jnp.ones(12, bool)), rate(jnp.arange(12) < 8)
    assert np.isfinite(everything).all()
    assert not np.allclose(everything, first)
    np.testing.assert_allclose(rate(jnp.arange(12) != 8), first, rtol=1e-5)  # rows 9 to 11 are too few
    assert np.isnan(rate(jnp.arange(12) % 5 != 4)).all()


@pytest.mark.parametrize("name", [long_unless(name in ("dmdn", "linear"), name) for name in (*LEARNED, *EXAMPLES)])
def test_three_of_them_make_an_ensemble(name):
    """Plans roll out every member as it predicts."""
    model, report = fit(name, ensemble=3)
    assert model.num_particles == 3
    assert report.r2.shape == (6,)
    assert np.isfinite(report.nll)
    obs = jnp.asarray(drive(5, 1)[0][0])
    actions = TASK.actions.sample(KEY, (2, 3))
    rollouts = roll_out(make_planner("rs", TASK, horizon=3, budget=2), Particles.of(model), obs, KEY, actions)
    for i in range(3):
        state = model.predict(model.encode(obs), actions[0, 0], KEY, jnp.asarray(i))
        np.testing.assert_allclose(rollouts.next_obs[0, i, 0], model.decode(state), rtol=1e-4, atol=1e-5)
    assert np.isfinite(rollouts.next_obs).all()


def test_particles_of_members_are_numbered_within_their_member():
    """Stochastic members: particle p is sample p // 3 of member p % 3, in plans as in `predict`."""
    model, _ = fit("random-features", ensemble=3, particles=2)
    assert model.num_particles == 6
    assert Particles.of(model).numbers.tolist() == [0, 0, 0, 1, 1, 1]
    assert model.mean_model().num_particles == 3


@pytest.mark.parametrize("name", [long_unless(name in ("dmdn", "linear"), name) for name in (*LEARNED, *EXAMPLES)])
def test_a_run_learns_it_and_is_resumed(name, guss_here, tmp_path):
    env = ("--env", "test_egocentric:SCOOTER", "--model", name, "--episodes", 2)
    guss_here("run", *env, *SMALL, *SHORT, "--model.hidden", "4", *plugin(name), check=0)
    (home,) = (tmp_path / "runs").iterdir()
    guss_here("run", "--resume", home, "--episodes", 3, "--no-figures", "--quiet", *plugin(name), check=0)
    rows = [json.loads(line) for line in (home / "episodes.jsonl").read_text().splitlines()]
    assert [row["phase"] for row in rows] == ["random", "plan", "plan"]
    assert all(np.isfinite(row["mean_reward"]) for row in rows)


def test_a_custom_model_works_in_every_command(guss_here, tmp_path):
    """An ensemble with samples that learns reward, cost and behaviour too: run, eval, replay, fit, Agent."""
    name = "random-features"
    net = ("--model.hidden", "4", "--model.features", "20", "--model.particles", "2", "--model.ensemble", "3")
    env = ("--env", "test_egocentric:SCOOTER", "--model", name, "--episodes", 2)
    learned = ("--learned", "reward", "cost", "behaviour")
    guss_here("run", *env, *SMALL, *SHORT, *net, *learned, *plugin(name), check=0)
    (home,) = (tmp_path / "runs").iterdir()
    stored = json.loads((home / "config.json").read_text())["config"]["model_settings"]
    assert {"features": 20, "particles": 2, "ensemble": 3, "length_scale": 3.0}.items() <= stored.items()
    assert "components" not in stored
    guss_here("eval", home, "--episodes", 1, "--quiet", *plugin(name), check=0)
    said = guss_here("replay", home, "--step", 0, "--out", "plan.png", *plugin(name), check=0)
    assert "all actions match the stored actions" in said.stdout
    traces = ("--data", home / "traces", "--env", "test_egocentric:SCOOTER", "--out", "fitted")
    guss_here("fit", *traces, "--model", name, "--model.features", "20", "--no-test", "--quiet", *plugin(name), check=0)
    agent = guss.Agent(
        SCOOTER, model=name, model_settings={"features": 20}, method="rs", horizon=3, budget=20, preset={}
    )
    agent.learn(2)
    assert np.isfinite(agent.act(SCOOTER.reset(KEY))).all()


def test_a_policy_learns_in_a_custom_model(guss_here):
    small = ["--method.hidden", 4, "--method.branches", 6, "--method.horizon", 2, "--method.batch", 8]
    small += ["--method.updates", 0.5, "--method.updates-per-round", 2]
    env = ("--env", "test_egocentric:SCOOTER", "--model", "linear", "--episodes", 2, "--seeds", 1)
    words = ("run", "--method", "safe-mbpo", *env, *small, "--no-figures", "--quiet", *plugin("linear"))
    guss_here(*words, check=0)


def test_settings_of_a_custom_model_are_checked():
    load_module(plugin("linear")[1])
    with pytest.raises(GussError, match=r"unknown setting of model: 'ridg'.* 'ridge'\? Known: .*degree.*ridge"):
        settings_from(AgentSettings, {}, "rs", model="linear", model_settings={"ridg": 0.1})
    with pytest.raises(GussError, match="unknown setting of model: 'components'"):
        settings_from(AgentSettings, {}, "rs", model="linear", model_settings={"components": 2})
    with pytest.raises(GussError, match=r"model\.ridge must be a finite number, got 'much'"):
        settings_from(AgentSettings, {}, "rs", model="linear", model_settings={"ridge": "much"})
    # What a preset says of its own model is dropped where the chosen one has no such setting.
    preset = {"model": {"name": "dmdn", "components": 2, "ensemble": 5}}
    assert settings_from(AgentSettings, preset, "rs").model_settings == ModelSettings(components=2, ensemble=5)
    chosen = settings_from(AgentSettings, preset, "rs", model="linear", model_settings={"ridge": 0.5})
    assert (chosen.model_settings.ridge, chosen.model_settings.degree, chosen.model_settings.ensemble) == (0.5, 2, 5)
    assert settings_from(AgentSettings, {}, **chosen.arguments()).model_settings == chosen.model_settings
    assert build(AgentSettings, chosen.to_json(), "settings") == chosen
