"""What every registered baseline must do, for free."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import ACTIONS, make_task

from guss.collect.host import Played
from guss.errors import GussError
from guss.methods import BASELINES, make_baseline
from guss.methods.episodes import experience, one_by_one, play_compiled
from guss.models.factory import ModelSettings
from guss.models.training import FitSettings
from guss.types import ContinuousActions

SMALL = {"hidden": (8,), "batch": 4}
SEEDS = 2


def small(name, actions, **changes):
    """A baseline as small as can be, on a problem of five steps."""
    task = make_task(actions)
    known = {f.name for f in dataclasses.fields(BASELINES[name].item)}
    settings = {k: v for k, v in (SMALL | {"num_envs": 3} | changes).items() if k in known}
    fields = {"capacity": 40}
    if BASELINES[name].item.model_based:
        settings |= {"branches": 4, "updates_per_round": 5, "horizon": 2}
        fields |= {"net": ModelSettings(hidden=(4,), ensemble=2), "fit": FitSettings(epochs=2)}
    return make_baseline(name, task, settings, **fields)


CASES = [
    (name, kind)
    for name in BASELINES.names()
    for kind, actions in ACTIONS.items()
    if isinstance(actions, ContinuousActions) or not BASELINES[name].item.continuous_only
]


def begun(method):
    keys = jax.vmap(jax.random.key)(jnp.arange(SEEDS, dtype=jnp.int32))
    return keys, jax.jit(jax.vmap(method.init))(keys)


def turn(method, states, keys, number=0, best=False):
    episodes = jax.vmap(lambda k: jax.random.split(jax.random.fold_in(k, number), method.at_once))(keys)
    return jax.device_get(play_compiled(method, states, method.task, episodes, best))


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_it_acts_within_bounds_and_learns_something_finite(name, kind):
    method = small(name, ACTIONS[kind])
    keys, states = begun(method)
    first = states
    for number in range(2):
        moves, note = turn(method, states, keys, number)
        seen = experience(Played.whole(method.task, moves), note, method.at_once)
        assert seen.reward.shape == (SEEDS, method.at_once, 5)
        states, told = method.learn(states, seen, keys, number)
        assert told
        for measure, values in told.items():
            assert values.shape == (SEEDS,)
            assert np.isfinite(values).all() or measure.startswith("model_")  # NaN if too little was held out
    actions = np.asarray(moves.action)
    assert actions.shape == (5, SEEDS * method.at_once, *ACTIONS[kind].shape)
    legal = ACTIONS[kind].sample(jax.random.key(0), (500,))
    if isinstance(ACTIONS[kind], ContinuousActions):
        low, high = map(np.asarray, ACTIONS[kind].bounds())
        assert ((actions >= low) & (actions <= high)).all()
    else:
        assert set(map(tuple, actions.reshape(-1, actions[0, 0].size))) <= set(
            map(tuple, np.asarray(legal).reshape(500, -1))
        )
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(first), jax.tree.leaves(states), strict=True):
        same = (a.shape, a.dtype, a.weak_type) == (b.shape, b.dtype, b.weak_type)
        assert same, f"{jax.tree_util.keystr(path)} would compile anew"
    assert any(not np.array_equal(a, b) for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(states), strict=True))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(states) if x.dtype == np.float32)


@pytest.mark.parametrize("name", BASELINES.names())
def test_the_same_key_gives_the_same_and_seeds_differ(name):
    method = small(name, ACTIONS["continuous"])
    keys, states = begun(method)
    one, two = turn(method, states, keys)[0], turn(method, states, keys)[0]
    np.testing.assert_array_equal(one.action, two.action)
    apart = np.asarray(one.action).reshape(5, SEEDS, method.at_once, 2)
    assert not np.array_equal(apart[:, 0], apart[:, 1])
    other = turn(method, states, keys, number=1)[0]
    assert not np.array_equal(one.action, other.action)
    best, again = (turn(method, states, keys, best=True)[0].action for _ in range(2))
    np.testing.assert_array_equal(best, again)


@pytest.mark.parametrize("name", [n for n in BASELINES.names() if BASELINES[n].item.continuous_only])
def test_what_is_for_continuous_actions_says_so(name):
    with pytest.raises(GussError, match=rf"{name} is for continuous actions, .* discrete; ppo-lagrangian and cpo take"):
        small(name, ACTIONS["discrete"])


@pytest.mark.parametrize("name", BASELINES.names())
def test_settings_are_checked_by_name_and_type(name):
    with pytest.raises(GussError, match=r"unknown setting of baseline .*'gama'. Did you mean 'gamma'\?"):
        make_baseline(name, make_task(ACTIONS["continuous"]), {"gama": 0.9}, capacity=10)
    with pytest.raises(GussError, match=r"baselines\..*\.gamma must be a finite number"):
        make_baseline(name, make_task(ACTIONS["continuous"]), {"gamma": "much"}, capacity=10)


def test_episodes_played_at_once_are_told_one_by_one():
    method = small("ppo", ACTIONS["continuous"])
    keys, states = begun(method)
    moves, note = turn(method, states, keys)
    played = Played.whole(method.task, moves)
    seen, parts = experience(played, note, 3), one_by_one(played, 3)
    assert len(parts) == 3
    for i, part in enumerate(parts):
        for s in range(SEEDS):
            np.testing.assert_array_equal(part.moves.action[:, s], seen.action[s, i])
            np.testing.assert_array_equal(part.moves.reward[:, s], seen.reward[s, i])
    assert np.asarray(seen.note).shape == (SEEDS, 3, 5, 2)


def test_an_episode_that_a_hard_limit_stops_is_over_there():
    task = make_task(ACTIONS["continuous"]).with_hard(("crossed",))
    method = make_baseline("ppo", task, SMALL | {"num_envs": 40}, capacity=40)
    keys, states = begun(method)
    moves, note = turn(method, states, keys)
    seen = experience(Played.whole(task, moves), note, 40)
    crossed = np.asarray(seen.cost)[..., 0] > 0
    assert crossed.any()
    for s, e in np.ndindex(SEEDS, 40):
        count = crossed[s, e].argmax() + 1 if crossed[s, e].any() else 5
        assert seen.happened[s, e].sum() == count
        assert seen.ended[s, e].any() == crossed[s, e].any()
