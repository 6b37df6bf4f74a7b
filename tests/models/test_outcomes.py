"""Reward, cost, end and behaviour where they are learned: against known answers, and against known probabilities."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from guss.constraint import Constraint
from guss.errors import GussError
from guss.models.calibration import _calibrated
from guss.models.factory import ModelSettings, fit_all, fit_programs, make_model
from guss.models.outcomes import Behaviour, ModelWithOutcomes, num_outcomes, outcome_targets
from guss.models.training import Data, FitSettings
from guss.planners import make_planner
from guss.planners.engine import plan
from guss.planners.rollouts import Particles, predict_outcomes, roll_out
from guss.task import Grid, Task
from guss.types import ContinuousActions, Observations, Rollout

ROWS, SEEDS = 1500, 2
SETTINGS = FitSettings(epochs=60, max_steps=1500, batch=64)
NET = ModelSettings(hidden=(32, 32))


def known_cost(obs, action, next_obs):
    return next_obs[1] > 1.0


def blank_task(**changes):
    """Two numbers that an action shifts; everything is to be learned unless said."""
    values = {
        "name": "blank",
        "observations": Observations(low=(-np.inf, -np.inf), high=(np.inf, np.inf)),
        "actions": ContinuousActions((-1.0,), (1.0,)),
        "reward": None,
        "constraints": (Constraint("rare"), Constraint("known", known_cost)),
        "descriptor": None,
        "grid": None,
        "episode_length": 50,
        "learns_end": True,
    }
    return Task(**(values | changes))


def true_reward(obs, action):
    return np.sin(2.0 * obs[..., 0]) - 0.5 * action[..., 0] ** 2


def true_chance(next_obs):
    """Of the rare cost: about 4 % of all steps."""
    return 1.0 / (1.0 + np.exp(-6.0 * (next_obs[..., 0] - 2.2)))


def draw(seed, count):
    random = np.random.default_rng(seed)
    obs = random.normal(size=(count, 2)).astype(np.float32)
    action = random.uniform(-1, 1, (count, 1)).astype(np.float32)
    next_obs = (obs + np.concatenate([action, -0.5 * action], 1)).astype(np.float32)
    reward = true_reward(obs, action) + 0.05 * random.normal(size=count)
    rare = random.uniform(size=count) < true_chance(next_obs)
    ended = np.abs(next_obs[:, 1]) > 2.0
    outcomes = np.stack([reward, rare, known_cost(obs, action, next_obs.T), ended], 1).astype(np.float32)
    return obs, action, next_obs, outcomes


def data_of(count=ROWS, outcomes=None):
    each = [draw(seed, count) for seed in range(SEEDS)]
    parts = [jnp.asarray(np.stack(x)) for x in zip(*each, strict=True)]
    use, filled = jnp.ones((SEEDS, count), bool), jnp.full((SEEDS,), count, jnp.int32)
    return Data(*parts[:3], use, filled, parts[3] if outcomes is None else outcomes)


@pytest.fixture(scope="module")
def learned():
    """A task of which nothing is known, and the models of two seeds."""
    task = blank_task(constraints=(Constraint("rare"), Constraint("known")))
    keys = jax.random.split(jax.random.key(0), SEEDS)
    fresh = fresh_models(task, keys, NET)
    models, report = fit_all(fit_programs(fresh, fresh, data_of(), keys, SETTINGS, False, task))
    return task, models, report


def first(models):
    return jax.tree.map(lambda x: x[0], models)


def predicted(model, obs, action, next_obs):
    """Reward and probabilities of many single steps."""
    rollout = Rollout(*(jnp.asarray(x) for x in (obs, action, next_obs)))
    return jax.device_get(outcomes_of_nets(model, rollout))


outcomes_of_nets = jax.jit(lambda model, rollout: model._predict_outcomes(model.nets, rollout))


def fresh_models(task, keys, net):
    return jax.jit(jax.vmap(lambda key: make_model("dmdn", task, key, net)))(keys)


def test_reward_and_costs_are_learned_on_data_not_seen(learned):
    _, models, report = learned
    obs, action, next_obs, outcomes = draw(99, 4000)
    reward, chance = predicted(first(models), obs, action, next_obs)
    residual = np.mean((reward - true_reward(obs, action)) ** 2)
    assert residual < 0.05 * np.var(outcomes[:, 0])
    known, ended = (outcomes[:, 2] > 0), (outcomes[:, 3] > 0)
    assert ((chance[1] > 0.5) == known).mean() > 0.98
    assert ((chance[2] > 0.5) == ended).mean() > 0.98
    assert report.outcome.reward_r2.shape == (SEEDS,)
    assert (np.asarray(report.outcome.reward_r2) > 0.9).all()


def test_a_reward_that_never_changes_has_no_r2_and_is_predicted_as_it_is():
    task, keys = blank_task(), jax.random.split(jax.random.key(0), SEEDS)
    fresh = fresh_models(task, keys, ModelSettings(hidden=(8,)))
    data = data_of(200)
    models, report = fit_all(
        fit_programs(
            fresh,
            fresh,
            data._replace(outcomes=data.outcomes.at[..., 0].set(1.0)),
            keys,
            FitSettings(epochs=3),
            False,
            task,
        )
    )
    assert np.isnan(np.asarray(report.outcome.reward_r2)).all()
    obs, action, next_obs, _ = draw(5, 50)
    np.testing.assert_array_equal(predicted(first(models), obs, action, 9.0 * next_obs)[0], 1.0)


def test_probabilities_of_a_rare_cost_are_calibrated(learned):
    """Unsafe rows weighed 20 times as much while it learned: none of that may be left in the probabilities.

    20,000 new steps of which about 750 are unsafe: their share has a standard error of 0.13 points, so that a right
    model misses the bound of 1 point by chance in less than one of 10⁹ trials; weights left in would miss by 10 points.
    """
    _, models, report = learned
    obs, action, next_obs, outcomes = draw(7, 20_000)
    _, chance = predicted(first(models), obs, action, next_obs)
    share = (outcomes[:, 1] > 0).mean()
    assert 0.02 < share < 0.08
    assert abs(chance[0].mean() - share) < 0.01
    assert np.abs(chance[0] - true_chance(next_obs)).mean() < 0.02
    likely = chance[0] > 0.3
    assert abs(chance[0][likely].mean() - true_chance(next_obs[likely]).mean()) < 0.12
    assert (np.asarray(report.outcome.cost_calibration)[:, 0] < 0.05).all()
    assert (np.asarray(report.outcome.cost_share)[:, 0] < 0.08).all()


def test_what_is_known_comes_from_the_task_and_the_rest_from_the_model(learned):
    """A reward counts as far as the episode is expected to last until then; cost until its end is likely."""
    task, models, _ = learned
    partly = blank_task(constraints=(Constraint("rare"), Constraint("known", known_cost)), learns_end=False)
    assert task.unknown == ("reward", "cost of rare", "cost of known", "end of an episode", "behaviour")
    assert partly.unknown == ("reward", "cost of rare", "behaviour")
    model = first(models)
    obs = np.asarray([[0.0, 1.0], [0.0, 2.0], [0.0, 0.0]], np.float32)
    action = np.asarray([[-1.0], [-1.0], [0.0]], np.float32)
    next_obs = np.asarray([[-1.0, 1.5], [-1.0, 2.5], [0.0, 0.0]], np.float32)  # the second is the end
    rollout = Rollout(*(jnp.asarray(x) for x in (obs, action, next_obs)))
    outcomes = jax.jit(lambda model, rollout: model.outcomes(task, rollout))(model, rollout)
    reward, chance = predicted(model, *rollout)
    assert chance[2, 1] > 0.5  # the end, as predicted
    lasts = np.concatenate([[1.0], np.cumprod(1.0 - chance[2])[:-1]])
    np.testing.assert_allclose(outcomes.reward, reward * lasts, rtol=1e-5)
    assert abs(float(outcomes.reward[2])) < 0.5 * abs(reward[2])
    assert outcomes.cost[:, 1].tolist() == [1.0, 1.0, 0.0]
    own = without_end(model)
    known = jax.jit(lambda model, rollout: model.outcomes(partly, rollout))(own, rollout)
    assert known.cost[:, 1].tolist() == [1.0, 1.0, 0.0]  # by the Task's function, on every step
    np.testing.assert_allclose(known.reward, reward, rtol=1e-5)


def without_end(model):
    """The same model with the nets of reward and of the rare cost alone."""
    nets = model.nets
    layers = [type(layer)(layer.weight[:, :2], layer.bias[:, :2]) for layer in nets.layers]
    parts = (layers, nets.slope[:, :1], nets.offset[:, :1])
    short = eqx.tree_at(lambda n: (n.layers, n.slope, n.offset), nets, parts)
    return ModelWithOutcomes(model.dynamics, short, model.behaviour, model.support)


def test_plans_of_every_kind_use_what_was_learned(learned):
    """A margin lowers the threshold, so that more steps count as unsafe, and compiles nothing of its own."""
    task, models, _ = learned
    model, key = first(models), jax.random.key(0)
    planner = make_planner("guss", task, horizon=5, budget=60)
    task = task.replace(constraints=(Constraint("rare", threshold=0.9), task.constraints[1]))
    done = plan(planner, model, task, [1.5, 0.0], key)
    assert bool(jnp.isfinite(done.diagnostics.reward))
    strict = plan(planner, model, task.with_margin({"rare": 0.89}), [1.5, 0.0], key)
    assert float(strict.diagnostics.safe_share) < float(done.diagnostics.safe_share)
    with pytest.raises(GussError, match=r"so the margin must be smaller than the threshold, got 0\.9"):
        task.with_margin(0.9)


def test_an_event_that_never_happened_is_unlikely_everywhere():
    task = blank_task(constraints=(Constraint("never"),), learns_end=False)
    keys = jax.random.split(jax.random.key(0), SEEDS)
    fresh = fresh_models(task, keys, ModelSettings(hidden=(8,)))
    data = data_of(200)
    data = data._replace(outcomes=data.outcomes[..., jnp.asarray([0, 1, 3])].at[..., 1:].set(0.0))
    models, report = fit_all(fit_programs(fresh, fresh, data, keys, FitSettings(epochs=20), False, task))
    _, chance = predicted(first(models), *draw(5, 500)[:3])
    assert (chance < 0.1).all()
    assert np.isnan(np.asarray(report.outcome.cost_recall)).all()  # there was nothing to find
    assert np.isfinite(np.asarray(report.outcome.cost_error)).all()


def test_members_of_an_ensemble_have_outcome_nets_of_their_own():
    task = blank_task()
    model = make_model("dmdn", task, jax.random.key(0), ModelSettings(hidden=(8,), ensemble=3))
    planner = make_planner("rs", task, horizon=4, budget=2)
    sequences = task.actions.sample(jax.random.key(1), (2, 4))
    particles = Particles.of(model)
    roll = jax.jit(lambda actions: roll_out(planner, particles, jnp.ones(2), jax.random.key(2), actions))
    rollouts = roll(sequences)
    predict = jax.jit(lambda rollouts: predict_outcomes(particles, task, jax.tree.map(lambda x: x[0], rollouts)))
    found = predict(rollouts)
    outcomes = jax.jit(lambda model, rollout: model.outcomes(task, rollout))
    assert found.reward.shape == (3, 4)
    for i in range(3):
        mine = jax.tree.map(lambda x, i=i: x[i : i + 1], model.nets)
        alone = ModelWithOutcomes(model.dynamics, mine, model.behaviour, model.support)
        mine = jax.tree.map(lambda x, i=i: x[0, i], rollouts)
        np.testing.assert_allclose(found.reward[i], outcomes(alone, mine).reward, rtol=1e-4, atol=1e-5)
    assert float(jnp.std(found.reward[:, 0])) > 1e-3


def test_calibration_finds_what_a_solver_finds():
    random = np.random.default_rng(0)
    odds = random.normal(size=400).astype(np.float32) * 3
    event = (random.uniform(size=400) < 1 / (1 + np.exp(-(0.4 * odds - 1.0)))).astype(np.float32)
    use = random.uniform(size=400) < 0.7

    def loss(point):
        z = point[0] * odds[use] + point[1]
        fit = np.sum(np.logaddexp(0.0, z) - event[use] * z)
        return fit + 0.5 * ((point[0] - 1.0) ** 2 + point[1] ** 2)

    best = minimize(loss, [1.0, 0.0]).x
    slope, offset = jax.jit(_calibrated)(odds, event, use)
    np.testing.assert_allclose([slope, offset], best, rtol=1e-2, atol=1e-2)


def test_behaviour_is_principal_components_within_one():
    random = np.random.default_rng(0)
    rows = (random.normal(size=(300, 2)) @ random.normal(size=(2, 5)) * [1, 10, 0.1, 3, 1] + 4.0).astype(np.float32)
    use = random.uniform(size=300) < 0.8
    behaviour = Behaviour.of(jnp.asarray(rows), jnp.asarray(use), 2)
    seen = (rows - np.asarray(behaviour.shift)) @ np.asarray(behaviour.axes)
    assert np.abs(seen[use]).max() <= 1.0
    assert np.abs(seen[use]).max(axis=0).min() > 0.5
    standard = (rows[use] - rows[use].mean(0)) / rows[use].std(0)
    directions = np.linalg.svd(standard, full_matrices=False)[2][:2]
    mine = np.asarray(behaviour.axes) * rows[use].std(0)[:, None]
    mine /= np.linalg.norm(mine, axis=0)
    np.testing.assert_allclose(np.abs(np.sum(directions.T * mine, axis=0)), 1.0, atol=1e-3)


def test_only_unknown_outcomes_are_learned():
    everything = blank_task()
    assert num_outcomes(everything) == 4
    outcomes = jnp.arange(8.0).reshape(2, 4)
    assert outcome_targets(everything, outcomes).tolist() == [[0, 1, 3], [4, 5, 7]]
    settled = blank_task(constraints=(Constraint("known", known_cost),), learns_end=False, reward=known_cost)
    assert num_outcomes(settled) == 0  # behaviour alone needs no more than the states
    model = make_model("dmdn", settled, jax.random.key(0), NET)
    assert model.nets is None
    assert model.behaviour is not None


def test_a_learned_behaviour_needs_no_grid_and_fits_the_observation():
    assert blank_task().grid.cells == (50, 50)
    with pytest.raises(GussError, match=r"must not have more dimensions than the observation \(2\), got 3"):
        blank_task(grid=Grid((-1,) * 3, (1,) * 3, (5,) * 3))
    with pytest.raises(GussError, match="it needs a grid"):
        blank_task(descriptor=lambda rollout: rollout.next_obs[-1])
    with pytest.raises(GussError, match="threshold must be a probability"):
        Constraint("x", threshold=1.5)


def test_a_task_that_does_not_know_says_so():
    task = blank_task()
    with pytest.raises(GussError, match="defines no reward function"):
        task.reward_of(jnp.zeros(2), jnp.zeros(1), jnp.zeros(2))
    with pytest.raises(GussError, match="Did you mean 'reward'"):
        task.forget(["rewards"])
