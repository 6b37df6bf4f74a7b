"""What every registered policy method must do, for free."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import ACTIONS, make_task
from helpers.quick import long_unless

from guss.collect.compiled import CompiledCollector
from guss.collect.episode_metrics import episode_metrics
from guss.collect.trajectories import one_episode
from guss.errors import GussError
from guss.methods import METHODS
from guss.methods.base import ended_of
from guss.methods.factory import make_method
from guss.methods.settings import AgentSettings
from guss.models.training import FitSettings
from guss.types import ContinuousActions

SMALL = {"hidden": (8,), "batch": 4}
SEEDS = 2


def small(name, task, **changes):
    """A method as small as can be."""
    known = {f.name for f in dataclasses.fields(METHODS[name].item)}
    settings = {k: v for k, v in (SMALL | {"num_envs": 3} | changes).items() if k in known}
    model = {}
    if METHODS[name].item.model_based:
        settings |= {"branches": 4, "updates_per_round": 5, "horizon": 2}
        model = {"model": "dmdn", "model_settings": {"hidden": (4,), "ensemble": 2}, "fit": FitSettings(epochs=2)}
    return make_method(AgentSettings(method=name, method_settings=settings, **model), task, 40)


QUICK = (("sac", "continuous"), ("ppo", "discrete"), ("cpo", "multi-discrete"))
"""With continuous actions, the contract of methods trains every policy."""
CASES = [
    long_unless((name, kind) in QUICK, (name, kind))
    for name in METHODS.names()
    for kind, actions in ACTIONS.items()
    if isinstance(actions, ContinuousActions) or not METHODS[name].item.continuous_only
]


def begun(method):
    keys = jax.vmap(jax.random.key)(jnp.arange(SEEDS, dtype=jnp.int32))
    return keys, method.init_all(keys)


def collected(method, states, keys, number=0):
    episodes = jax.vmap(lambda k: jax.random.split(jax.random.fold_in(k, number), method.num_envs))(keys)
    return CompiledCollector(method.task).collect(method, method.acting(states), episodes)[0]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_it_acts_within_bounds_and_learns_something_finite(name, kind):
    method = small(name, make_task(ACTIONS[kind]))
    keys, states = begun(method)
    first = states
    for number in range(2):
        trajectory = collected(method, states, keys, number)
        assert trajectory.reward.shape == (SEEDS, method.num_envs, 5)
        states, metrics = method.update_all(states, trajectory, keys)
        assert metrics
        for measure, values in metrics.items():
            assert values.shape == (SEEDS,)
            assert np.isfinite(values).all() or measure.startswith("model_")  # NaN if too little was held out
    actions = trajectory.action
    assert actions.shape == (SEEDS, method.num_envs, 5, *ACTIONS[kind].shape)
    legal = ACTIONS[kind].sample(jax.random.key(0), (500,))
    if isinstance(ACTIONS[kind], ContinuousActions):
        low, high = map(np.asarray, ACTIONS[kind].bounds())
        assert ((actions >= low) & (actions <= high)).all()
    else:
        flat = actions.reshape(SEEDS * method.num_envs * 5, -1)
        assert set(map(tuple, flat)) <= set(map(tuple, np.asarray(legal).reshape(500, -1)))
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(first), jax.tree.leaves(states), strict=True):
        same = (a.shape, a.dtype, a.weak_type) == (b.shape, b.dtype, b.weak_type)
        assert same, f"{jax.tree_util.keystr(path)} would compile anew"
    assert any(not np.array_equal(a, b) for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(states), strict=True))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(states) if x.dtype == np.float32)


@pytest.mark.parametrize("name", METHODS.names())
def test_the_same_key_gives_the_same_and_seeds_differ(name):
    method = small(name, make_task(ACTIONS["continuous"]))
    keys, states = begun(method)
    one, two = collected(method, states, keys), collected(method, states, keys)
    np.testing.assert_array_equal(one.action, two.action)
    assert not np.array_equal(one.action[0], one.action[1])
    other = collected(method, states, keys, number=1)
    assert not np.array_equal(one.action, other.action)
    deployed, again = (collected(method.deployed(), states, keys).action for _ in range(2))
    np.testing.assert_array_equal(deployed, again)


@pytest.mark.parametrize("name", [n for n in METHODS.names() if METHODS[n].item.continuous_only])
def test_what_is_for_continuous_actions_says_so(name):
    with pytest.raises(
        GussError,
        match=rf"{name} supports only continuous actions, .* discrete actions; ppo-lagrangian and cpo support",
    ):
        small(name, make_task(ACTIONS["discrete"]))


@pytest.mark.parametrize("name", METHODS.names())
def test_settings_are_checked_by_name_and_type(name):
    with pytest.raises(GussError, match=r"unknown setting of method .*'gama'. Did you mean 'gamma'\?"):
        AgentSettings(method=name, method_settings={"gama": 0.9})
    with pytest.raises(GussError, match=r"methods\..*\.gamma must be a finite number"):
        AgentSettings(method=name, method_settings={"gamma": "much"})


def test_episodes_of_several_environments_are_told_one_by_one():
    method = small("ppo", make_task(ACTIONS["continuous"]))
    keys, states = begun(method)
    trajectory = collected(method, states, keys)
    metrics = episode_metrics(method.task, trajectory)
    assert [len(each) for each in metrics] == [3] * SEEDS
    for s, e in np.ndindex(SEEDS, 3):
        one = one_episode(trajectory, s, e)
        np.testing.assert_array_equal(one.action, trajectory.action[s, e])
        np.testing.assert_array_equal(one.reward, trajectory.reward[s, e])
        np.testing.assert_array_equal(one.aux, trajectory.aux[s, e])
        assert metrics[s][e].episode_return == pytest.approx(one.reward.sum(), rel=1e-6)
    alone = jax.random.split(jax.random.fold_in(keys[1], 0), 3)[None, 2:]
    state = jax.tree.map(lambda x: x[1:], method.acting(states))
    again = one_episode(CompiledCollector(method.task).collect(method, state, alone)[0], 0, 0)
    np.testing.assert_allclose(again.action, trajectory.action[1, 2], rtol=1e-5, atol=1e-6)
    assert trajectory.aux.shape == (SEEDS, 3, 5, 2)


def test_an_episode_that_a_hard_limit_stops_is_over_there():
    task = make_task(ACTIONS["continuous"]).with_hard(("crossed",))
    method = small("ppo", task, num_envs=40)
    keys, states = begun(method)
    trajectory = collected(method, states, keys)
    crossed, ended = trajectory.cost[..., 0] > 0, np.asarray(ended_of(jax.tree.map(jnp.asarray, trajectory)))
    assert crossed.any()
    for s, e in np.ndindex(SEEDS, 40):
        count = crossed[s, e].argmax() + 1 if crossed[s, e].any() else 5
        assert trajectory.valid[s, e].sum() == count
        assert ended[s, e].any() == crossed[s, e].any()
        assert np.flatnonzero(trajectory.done[s, e]).tolist() == [count - 1]
