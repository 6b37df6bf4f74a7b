import dataclasses
from functools import cache, partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import ACTIONS, make_task
from helpers.quick import long_unless
from scipy.stats import kstest

from guss.errors import GussError
from guss.models.evaluation import horizon_r2, ks_from_uniform, r_squared
from guss.models.factory import fit_all, fit_programs
from guss.models.mdn import DARMDN, DMDN
from guss.models.training import Data, FitSettings, append, empty_data, fit_model
from guss.runs.compile_clock import CompileClock

TASK = make_task(ACTIONS["continuous"])
ROWS = 600


def linear(obs, action, noise):
    """A system whose second dimension follows from the first one's next value."""
    first = 0.9 * obs[0] + 0.3 * action[0] + 0.1 * noise[0]
    return jnp.stack([first, 0.5 * obs[1] + 2.0 * jnp.sin(2.0 * first) + 0.01 * noise[1]])


@partial(jax.jit, static_argnums=(0, 1))
def transitions(count, seed=0):
    key_obs, key_action, key_noise = jax.random.split(jax.random.key(seed), 3)
    obs = jax.random.normal(key_obs, (count, 2))
    action = TASK.actions.sample(key_action, (count,))
    return obs, action, jax.vmap(linear)(obs, action, jax.random.normal(key_noise, (count, 2)))


@cache
def filled(count, capacity=ROWS):
    data = empty_data(2, (2,), jnp.float32, capacity)
    return append(data, Data(*transitions(count), jnp.ones(count, bool), jnp.asarray(count, jnp.int32)))


@cache
def net(autoregressive, seed=0):
    return (DARMDN if autoregressive else DMDN).create(TASK, jax.random.key(seed), hidden=(16, 16))


fitted = jax.jit(fit_model, static_argnames="settings")
evaluate = jax.jit(lambda model, *rows: model.evaluate(*rows, jnp.ones(500, bool)))
TEST = transitions(500, 9)
SHORT = FitSettings(epochs=3)  # each setting is compiled


@cache
def learned(loss, autoregressive):
    model = net(autoregressive)
    return fitted(model, model, filled(ROWS), jax.random.key(1), FitSettings(loss=loss, epochs=60, batch=32))


QUICK = {("beta_nll", True), ("nll", False)}


@pytest.mark.parametrize(
    ("loss", "autoregressive"),
    [long_unless(case in QUICK, case) for case in product(("nll", "beta_nll", "mse"), (False, True))],
)
def test_every_loss_learns_the_system(loss, autoregressive):
    before = evaluate(net(autoregressive), *TEST)
    model, report = learned(loss, autoregressive)
    after = evaluate(model, *TEST)
    assert float(after.nll) < float(before.nll) - 1.0
    enough = 0.5 if loss == "nll" else 0.8  # plain likelihood lets the variance starve the mean
    assert (np.asarray(after.r2) > enough).all()
    assert (np.asarray(report.r2) > enough).all()
    assert 30 < int(report.held_out) < 90  # a tenth of 600
    assert (np.asarray(after.ks) < 0.3).all()


def test_autoregressive_nets_are_likelier_where_dimensions_are_coupled():
    apart, coupled = (float(evaluate(learned("nll", each)[0], *TEST).nll) for each in (False, True))
    assert coupled < apart - 0.3


def test_growing_data_compile_nothing_anew():
    model = net(True)
    small, large = filled(200), filled(500)
    fitted(model, model, small, jax.random.key(1), SHORT)
    with CompileClock() as clock:
        for data in (large, small):
            jax.block_until_ready(fitted(model, model, data, jax.random.key(1), SHORT))
    assert clock.programs == 0


def test_rows_that_are_not_used_do_not_matter():
    model = net(False)
    clean = filled(300)
    poisoned = clean._replace(
        next_obs=clean.next_obs.at[100:].set(1e3), obs=clean.obs.at[100:].set(-1e3), use=clean.use.at[100:].set(False)
    )
    hundred = filled(300)._replace(use=clean.use.at[100:].set(False))
    for a, b in zip(
        jax.tree.leaves(fitted(model, model, poisoned, jax.random.key(1), SHORT)),
        jax.tree.leaves(fitted(model, model, hundred, jax.random.key(1), SHORT)),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_warm_start_goes_on_and_a_cold_one_begins_anew():
    model, fresh, data = net(True), net(True, seed=5), filled(300)
    once, _ = fitted(model, fresh, data, jax.random.key(1), SHORT)
    other, _ = fitted(fresh, fresh, data, jax.random.key(1), SHORT)
    cold = dataclasses.replace(SHORT, warm_start=False)
    again = [fitted(m, fresh, data, jax.random.key(1), cold)[0] for m in (model, once)]
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), *again))
    assert not np.allclose(once.layers[0].weight, other.layers[0].weight)


def test_the_best_weights_are_kept():
    model, data = net(False), filled(100)
    model, report = fitted(model, model, data, jax.random.key(1), FitSettings(loss="nll", epochs=200, batch=10))
    assert 0 < int(report.best_epoch) < 199  # 90 rows are soon learned by heart


def test_a_fit_ends_when_nothing_gets_better_at_the_least_rate():
    model, data, key = net(False), filled(100), jax.random.key(1)
    endless = FitSettings(loss="nll", epochs=2**30, max_steps=0, warm_steps=0, batch=10, patience=3)
    settled, report = fitted(model, model, data, key, endless)
    until_best = dataclasses.replace(endless, epochs=int(report.best_epoch) + 1)
    known, _ = fitted(model, model, data, key, until_best)
    for got, expected in zip(jax.tree.leaves(settled.layers), jax.tree.leaves(known.layers), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def make_all(make, keys):
    return jax.jit(jax.vmap(make))(keys)


@pytest.mark.long
def test_seeds_that_settled_wait_for_the_others_unchanged():
    keys = jax.random.split(jax.random.key(0), 3)
    models = make_all(lambda key: DMDN.create(TASK, key, hidden=(8,)), keys)
    data = jax.tree.map(lambda x: jnp.stack([x] * 3), filled(100))
    settings = FitSettings(loss="nll", epochs=2**30, max_steps=0, warm_steps=0, batch=10, patience=3)
    _, report = fit_all(fit_programs(models, models, data, keys, settings, jnp.asarray(False)))
    assert len(set(np.asarray(report.best_epoch).tolist())) > 1  # or nobody waited
    for i in range(3):
        pick = lambda tree, i=i: jax.tree.map(lambda x: x[i], tree)  # noqa: E731
        _, alone = fitted(pick(models), pick(models), pick(data), keys[i], settings)
        np.testing.assert_allclose(report.nll[i], alone.nll, rtol=0.05)


def test_with_too_few_rows_to_hold_any_out_the_last_weights_are_kept():
    model, data = net(False), filled(3)
    _, report = fitted(model, model, data, jax.random.key(1), SHORT)
    assert int(report.held_out) == 0
    assert int(report.best_epoch) == SHORT.epochs - 1
    assert not bool(report.diverged)


@pytest.mark.long
def test_many_seeds_fit_at_once_as_one_by_one():
    models = make_all(lambda key: DARMDN.create(TASK, key, hidden=(8,)), jax.random.split(jax.random.key(0), 2))
    data = jax.tree.map(lambda x: jnp.stack([x, x]), filled(200))
    keys = jax.random.split(jax.random.key(3), 2)
    together, report = fit_all(fit_programs(models, models, data, keys, SHORT, jnp.asarray(False)))
    for i in range(2):
        pick = lambda tree, i=i: jax.tree.map(lambda x: x[i], tree)  # noqa: E731
        alone, alone_report = fitted(pick(models), pick(models), pick(data), keys[i], SHORT)
        np.testing.assert_allclose(report.nll[i], alone_report.nll, rtol=1e-3)
        np.testing.assert_allclose(pick(together).layers[0].weight, alone.layers[0].weight, rtol=1e-2, atol=1e-4)


def test_measures_of_a_fit():
    rng = np.random.default_rng(0)
    truth, guess = rng.normal(size=(50, 2)), rng.normal(size=(50, 2))
    use = rng.random(50) < 0.7
    expected = 1 - ((truth - guess)[use] ** 2).sum(0) / ((truth[use] - truth[use].mean(0)) ** 2).sum(0)
    got = r_squared(jnp.asarray(truth, jnp.float32), jnp.asarray(guess, jnp.float32), jnp.asarray(use))
    np.testing.assert_allclose(got, expected, rtol=1e-4)
    values = rng.beta(2, 3, size=50)
    distance = ks_from_uniform(jnp.asarray(values, jnp.float32), jnp.asarray(use))
    np.testing.assert_allclose(distance, kstest(values[use], "uniform").statistic, rtol=1e-4)


def test_the_error_at_the_horizon_is_that_of_an_open_loop():
    model, _ = learned("beta_nll", True)
    actions = TASK.actions.sample(jax.random.key(4), (30,))
    path = [jnp.zeros(2)]
    for action in actions:
        path.append(linear(path[-1], action, jnp.zeros(2)))
    obs, next_obs = jnp.stack(path[:-1]), jnp.stack(path[1:])
    predict = jax.jit(jax.vmap(lambda x, a: model.predict(x, a, jax.random.key(0), jnp.zeros((), jnp.int32))))
    ends = obs[:26]
    for t in range(5):
        ends = predict(ends, actions[t : t + 26])
    expected = r_squared(next_obs[4:], ends, jnp.ones(26, bool))
    got = jax.jit(partial(horizon_r2, horizon=5))(model, obs, actions, next_obs, use=jnp.arange(len(obs)) < 30)
    np.testing.assert_allclose(got, expected, rtol=1e-3)
    sampling = dataclasses.replace(model, deterministic=False)
    again = jax.jit(partial(horizon_r2, horizon=5))(sampling, obs, actions, next_obs, use=jnp.arange(len(obs)) < 30)
    np.testing.assert_allclose(again, got, rtol=1e-4)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"loss": "nl"}, "Did you mean 'nll'"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"validation": 1.0}, "validation must be more than 0 and less than 1"),
    ],
)
def test_bad_settings_are_told(settings, words):
    with pytest.raises(GussError, match=words):
        FitSettings(**settings)
