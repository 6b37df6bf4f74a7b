"""Advantages, scales and value functions against slow, obvious versions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guss.envs.pendulum import pendulum_task
from guss.errors import GussError
from guss.methods.base import ended_of, unsafe_of
from guss.methods.nets import Running
from guss.methods.on_policy import COST, REWARD, Critics, advantages
from guss.methods.ppo import Ppo, PpoLagrangian
from guss.types import Trajectory

STEPS, EPISODES = 7, 3


def slow_advantages(reward, values, ahead, length, gamma, lam):
    """Schulman 2016, eq. 16, episode by episode, as it is written."""
    found = np.zeros_like(reward)
    for e, count in enumerate(length):
        delta = [reward[e, t] + gamma * ahead[e, t] - values[e, t] for t in range(count)]
        for t in range(count):
            found[e, t] = sum((gamma * lam) ** k * delta[t + k] for k in range(count - t))
    return found


def episodes(lengths=(7, 4, 7), ended=(False, True, False)):
    """Made-up pendulum episodes: the second is ended by the system after four steps."""
    random = np.random.default_rng(0)
    shape = (EPISODES, STEPS)
    valid = np.arange(STEPS)[None] < np.asarray(lengths)[:, None]
    last = np.arange(STEPS)[None] == np.asarray(lengths)[:, None] - 1
    obs = random.normal(size=(*shape, 3))
    ended = last & np.asarray(ended)[:, None]
    return Trajectory(
        obs=jnp.asarray(obs, jnp.float32),
        action=jnp.zeros((*shape, 1)),
        reward=jnp.asarray(random.normal(size=shape), jnp.float32),
        cost=jnp.asarray(random.integers(0, 2, (*shape, 1)), jnp.float32),
        next_obs=jnp.asarray(random.normal(size=(*shape, 3)), jnp.float32),
        terminated=jnp.asarray(ended),
        truncated=jnp.asarray(last & ~ended),
        stopped=jnp.zeros(shape, bool),
        valid=jnp.asarray(valid),
        learnable=jnp.asarray(valid),
        aux=jnp.asarray(random.normal(size=(*shape, 1)), jnp.float32),
    )


def test_advantages_are_the_sums_of_the_paper():
    method = Ppo(pendulum_task(), capacity=0, num_envs=EPISODES, gamma=0.9, lam=0.8)
    state = eqx.filter_jit(method.init)(jax.random.key(0))
    state = state._replace(critics=state.critics.rescaled(jnp.asarray([1.0, 2.0]), jnp.asarray([3.0, 4.0])))
    trajectory = episodes()
    rows, _ = eqx.filter_jit(method.rows)(state, trajectory)
    values_of = jax.jit(lambda obs: state.critics(state.scale.standardised(obs)))
    flat = lambda x: x.reshape(-1, x.shape[-1])  # noqa: E731
    for which, outcome in ((REWARD, trajectory.reward), (COST, unsafe_of(trajectory))):
        values, ahead = (
            np.asarray(values_of(flat(x))[which]).reshape(EPISODES, STEPS)
            for x in (trajectory.obs, trajectory.next_obs)
        )
        ahead = np.where(np.asarray(ended_of(trajectory)), 0.0, ahead)
        wanted = slow_advantages(np.asarray(outcome), values, ahead, (7, 4, 7), 0.9, 0.8)
        np.testing.assert_allclose(
            np.asarray(rows.targets)[:, which].reshape(EPISODES, STEPS), wanted + values, rtol=1e-4, atol=1e-4
        )
        valid = np.asarray(trajectory.valid)
        kept = wanted[valid]
        scaled = (wanted - kept.mean()) / (kept.std() if which == REWARD else 1.0)
        mine = np.asarray(rows.advantage if which == REWARD else rows.cost_advantage).reshape(EPISODES, STEPS)
        np.testing.assert_allclose(mine[valid], scaled[valid], rtol=1e-3, atol=1e-3)
    assert np.asarray(rows.weight).sum() == 18


def test_what_comes_after_an_end_changes_nothing():
    """An update does not look at the padding of episodes that were over early."""
    method = PpoLagrangian(pendulum_task(), capacity=0, num_envs=EPISODES, epochs=2, batch=7)
    state = eqx.filter_jit(method.init)(jax.random.key(0))
    trajectory = episodes()
    gone = ~np.asarray(trajectory.valid)
    other = trajectory._replace(
        obs=jnp.where(gone[..., None], 9.0, trajectory.obs),
        next_obs=jnp.where(gone[..., None], -9.0, trajectory.next_obs),
        reward=jnp.where(gone, 1e3, trajectory.reward),
        aux=jnp.where(gone[..., None], 5.0, trajectory.aux),
    )
    update = eqx.filter_jit(method.update)
    first, second = (update(state, each, jax.random.key(1))[0] for each in (trajectory, other))
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_an_episode_ends_where_it_is_told_to():
    found = advantages(jnp.ones((1, 4)), jnp.asarray([[True, False, True, False]]), 0.5)
    np.testing.assert_allclose(found, [[1.5, 1.0, 1.5, 1.0]])


add_rows = jax.jit(lambda running, rows, weight: running.add(rows, weight))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=4), st.integers(0, 2**31 - 1))
def test_running_means_are_those_of_all_rows(sizes, seed):
    random = np.random.default_rng(seed)
    parts = [random.normal(3.0, 2.0, (n, 2)).astype(np.float32) for n in sizes]
    running = Running(jnp.zeros(()), jnp.full(2, 7.0), jnp.ones(2))
    for part in parts:
        empty = 33 - len(part)  # of one shape: each is compiled
        padded = np.concatenate([part, np.full((empty, 2), 99.0, np.float32)])
        weight = np.concatenate([np.ones(len(part)), np.zeros(empty)]).astype(np.float32)
        running = add_rows(running, padded, weight)
    every = np.concatenate(parts)
    assert float(running.seen) == len(every)
    np.testing.assert_allclose(running.mean, every.mean(axis=0), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(running.variance, every.var(axis=0), rtol=1e-2, atol=1e-2)


def test_another_scale_of_values_predicts_the_same():
    method = Ppo(pendulum_task(), capacity=0)
    critics: Critics = eqx.filter_jit(method.init)(jax.random.key(0)).critics
    obs = jax.random.normal(jax.random.key(1), (10, 3))
    other = critics.rescaled(jnp.asarray([-300.0, 4.0]), jnp.asarray([80.0, 0.5]))
    values = jax.jit(lambda critics, obs: critics(obs))
    np.testing.assert_allclose(values(other, obs), values(critics, obs), atol=1e-3)
    assert float(jnp.abs(other.raw(obs) - critics.raw(obs)).max()) > 1.0


def test_every_row_is_drawn_about_once_a_pass():
    method = Ppo(pendulum_task(), capacity=0, epochs=3, batch=10)
    draws = np.asarray(method.draws(jnp.ones(35), jax.random.key(0)))
    assert draws.shape == (3, 3, 10)
    for each in draws.reshape(3, 30):
        assert len(set(each.tolist())) == 30
    large = Ppo(pendulum_task(), capacity=0, epochs=1, batch=400)
    assert large.draws(jnp.ones(35), jax.random.key(0)).shape == (1, 1, 35)


DRAWN = Ppo(pendulum_task(), capacity=0, epochs=2, batch=5)
draw = eqx.filter_jit(DRAWN.draws)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.booleans(), min_size=20, max_size=20).filter(any), st.integers(0, 2**31 - 1))
def test_only_valid_rows_are_drawn_and_all_of_them(valid, seed):
    draws = np.asarray(draw(jnp.asarray(valid, jnp.float32), jax.random.key(seed)))
    for each in draws.reshape(2, 20):
        times = np.bincount(each, minlength=20)
        assert not times[~np.asarray(valid)].any()
        real = times[np.asarray(valid)]
        assert real.max() - real.min() <= 1, "about as often as each other"


def test_the_multiplier_rises_above_the_limit_and_falls_below():
    method = PpoLagrangian(pendulum_task(), capacity=0)
    assert method.limit == pytest.approx(5.0), "25 of 1,000 steps, of 200"
    state = eqx.filter_jit(method.init)(jax.random.key(0))
    assert float(method.multiplier(state)) == pytest.approx(1.0, abs=1e-5)
    above, _ = method.update_multiplier(state, jnp.asarray(20.0))
    below, _ = method.update_multiplier(state, jnp.asarray(0.0))
    assert float(method.multiplier(above)) > 1.0 > float(method.multiplier(below)) > 0.0
    assert float(above.multiplier - state.multiplier) == pytest.approx(0.05, abs=1e-4), "a step of Adam"


@pytest.mark.parametrize("wrong", [{"num_envs": 0}, {"batch": 0}, {"epochs": 0}, {"gamma": 1.5}, {"target_kl": 0.0}])
def test_settings_that_make_no_sense_are_told(wrong):
    with pytest.raises(GussError, match=rf"methods\.ppo\.{next(iter(wrong))} must be"):
        Ppo(pendulum_task(), capacity=0, **wrong)
