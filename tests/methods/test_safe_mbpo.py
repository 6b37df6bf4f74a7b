"""SAC and Safe-MBPO against their formulas."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from guss.envs.pendulum import pendulum_task
from guss.methods.base import unsafe_of
from guss.methods.sac import Rewards, Sac, minibatch, squashed, target_of
from guss.methods.safe_mbpo import SafeMbpo, penalty
from guss.models.factory import ModelSettings
from guss.models.oracle import Oracle
from guss.types import Trajectory

GAMMA = 0.9


def batch_of(count, **changes):
    random = np.random.default_rng(1)
    values = {
        "obs": random.normal(size=(count, 3)),
        "action": random.uniform(-1, 1, (count, 1)),
        "reward": random.normal(size=count),
        "next_obs": random.normal(size=(count, 3)),
        "ended": np.zeros(count, bool),
        "unsafe": np.zeros(count, bool),
        "valid": np.ones(count, bool),
    }
    values |= changes
    as_array = lambda v: jnp.asarray(v, jnp.float32 if np.asarray(v).dtype == float else None)  # noqa: E731
    return minibatch(**{name: as_array(v) for name, v in values.items()})


def test_the_target_of_an_unsafe_transition_is_the_violation_value_and_of_others_bellmans():
    ended, unsafe = np.asarray([False, True, False, True]), np.asarray([False, False, True, True])
    batch = batch_of(4, ended=ended, unsafe=unsafe)
    value = jnp.asarray([10.0, 20.0, 30.0, 40.0])
    found = target_of(batch, value, GAMMA, jnp.asarray(-77.0))
    reward = np.asarray(batch.reward)
    np.testing.assert_allclose(found, [reward[0] + GAMMA * 10.0, reward[1], -77.0, -77.0], rtol=1e-6)


@pytest.mark.parametrize(("low", "high"), [(-16.0, 0.0), (-1.0, 3.0), (2.0, 5.0)])
@pytest.mark.parametrize("horizon", [1, 10])
def test_the_violation_value_is_worse_than_the_best_that_can_follow(low, high, horizon):
    """−C / (1 − γ) with C of their eq. 3; unsafe within H steps is worse than the worst rewards for ever (thm. 3.3)."""
    method = SafeMbpo(pendulum_task(), capacity=200, gamma=GAMMA, horizon=horizon)
    rewards = Rewards(jnp.asarray(low), jnp.asarray(high))
    c = (high - low) / GAMMA**horizon - high
    assert float(penalty(rewards, GAMMA, horizon)) == pytest.approx(c, rel=1e-5)
    value = float(method.violation_value(rewards))
    assert value == pytest.approx(-c / (1 - GAMMA), rel=1e-5)
    best_then_unsafe = high * (1 - GAMMA**horizon) / (1 - GAMMA) + GAMMA**horizon * value
    assert best_then_unsafe <= low / (1 - GAMMA) + 1e-3


@partial(jax.jit, static_argnums=(1, 2))
def episode_of(task, steps, seed=0):
    """Random transitions of the pendulum, as an episode."""
    keys = jax.random.split(jax.random.key(seed), steps)
    obs = jax.vmap(task.reset)(keys)
    action = jax.vmap(task.actions.sample)(keys)
    after = jax.vmap(task.step)(obs, action, keys)
    reward, cost = (jax.vmap(f)(obs, action, after) for f in (task.reward_of, task.costs))
    every = jnp.ones((1, steps), bool)
    last = every.at[:, :-1].set(False)
    columns = (x[None] for x in (obs, action, reward, cost, after))
    return Trajectory(*columns, ~every, last, ~every, every, every)


remembered = jax.jit(lambda method, episode: method.remember(method.init(jax.random.key(0)), episode))


def test_branches_follow_the_model_and_stop_where_they_violate():
    """With the true dynamics for a model, every imagined step is one of the pendulum's own."""
    task = pendulum_task()
    method = SafeMbpo(task, capacity=400, branches=300, horizon=6, hidden=(16,))
    state = remembered(method, episode_of(task, 200))
    state = state._replace(model=Oracle.of(task))
    found = jax.device_get(
        jax.jit(lambda *x: method.imagine(*x))(state, state.nets, jnp.asarray(2.0), jax.random.key(1))
    )
    mean, std = np.asarray(state.scale.mean), np.sqrt(np.asarray(state.scale.variance) + 1e-8)
    obs, after = (found.obs * std + mean).astype(np.float32), (found.next_obs * std + mean).astype(np.float32)
    action = found.action * 2.0
    key = jax.random.key(0)
    inside = (np.abs(found.obs) < 9.9).all(axis=1) & (np.abs(found.next_obs) < 9.9).all(axis=1)
    wanted = jax.jit(jax.vmap(lambda o, a: task.step(o, a, key)))(obs, action)
    np.testing.assert_allclose(np.asarray(wanted)[inside], after[inside], atol=1e-2)
    reward = jax.jit(jax.vmap(lambda *x: task.reward_of(*x)))(obs, action, after)
    np.testing.assert_allclose(np.asarray(reward)[inside] / 2.0, found.reward[inside], atol=2e-2)
    unsafe, valid = (np.asarray(x).reshape(-1, 6) for x in (unsafe_of(found) > 0, found.valid))
    assert unsafe.any()
    for row in range(len(unsafe)):
        first = unsafe[row].argmax() if unsafe[row].any() else 5
        assert valid[row].tolist() == [True] * (first + 1) + [False] * (5 - first)


def test_predictions_that_are_not_finite_are_not_valid():
    task = pendulum_task()
    method = SafeMbpo(
        task, capacity=400, branches=10, horizon=3, hidden=(8,), model_settings=ModelSettings(hidden=(4,), ensemble=2)
    )
    state = remembered(method, episode_of(task, 200))
    broken = jax.tree.map(lambda x: jnp.full_like(x, jnp.nan) if x.dtype == jnp.float32 else x, state.model)
    found = jax.jit(lambda *x: method.imagine(*x))(
        state._replace(model=broken), state.nets, jnp.ones(()), jax.random.key(1)
    )
    assert not found.valid.any()
    assert all(bool(jnp.isfinite(x).all()) for x in (found.obs, found.action, found.reward, found.next_obs))


def test_a_squashed_gaussian_has_the_density_that_it_says():
    """Its log density, over the whole interval, integrates to 1; by a fine grid of draws in order of their noise."""
    outputs = jnp.asarray([0.4, -0.3])
    noise = jnp.linspace(-8.0, 8.0, 20_001)[:, None]
    action, log_prob = squashed(jnp.broadcast_to(outputs, (20_001, 2)), noise)
    assert float(action.min()) >= -1.0
    assert float(action.max()) <= 1.0
    total = np.trapezoid(np.exp(np.asarray(log_prob, float)), np.asarray(action[:, 0], float))
    assert total == pytest.approx(1.0, abs=1e-3)


def test_an_update_moves_q_to_its_target():
    """Transitions that all end: Q must become their reward. Unsafe ones: the violation value."""
    method = Sac(pendulum_task(), capacity=0, hidden=(64, 64), rate=3e-3)
    nets = jax.jit(lambda key: method.first_nets(key))(jax.random.key(0))
    unsafe = np.asarray(batch_of(64).obs[:, 0]) > 0
    batch = batch_of(64, ended=np.ones(64, bool), unsafe=unsafe, reward=np.full(64, 1.5))
    step = jax.jit(lambda *x: method.learn_from(*x))
    losses = []
    for i in range(300):
        nets, metrics = step(nets, batch, jnp.asarray(-3.0), jax.random.key(i))
        losses.append(float(metrics["critic_loss"]))
    assert float(metrics["q"]) == pytest.approx(1.5 - 4.5 * unsafe.mean())
    assert losses[-1] < 0.1 * losses[0]
