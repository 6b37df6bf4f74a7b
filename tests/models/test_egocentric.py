"""The egocentric model: what a body senses of itself is learned, what it sees of still things is geometry."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guss.constraint import Constraint
from guss.envs.car import car_task
from guss.errors import GussError
from guss.models.egocentric import Egocentric, moved
from guss.models.factory import ModelSettings, fit_all, fit_programs, make_model
from guss.models.training import Data, FitSettings
from guss.planners import make_planner
from guss.planners.rollouts import Particles, roll_out
from guss.task import Grid, Surroundings, Task
from guss.types import ContinuousActions, Observations, Transition

DT = 0.1
KEY, ZERO = jax.random.key(0), jnp.zeros((), jnp.int32)


# A scooter: it senses its speed and its yaw rate, and sees a lamp and a tree by where they are.


def scooter_motion(own, next_own):
    return jnp.stack([DT * next_own[0], jnp.zeros(()), DT * next_own[1]])


def scooter_places(obs):
    return obs[2:].reshape(2, 2)


def scooter_sight(own, places):
    return jnp.concatenate([own, places.reshape(4)])


def scooter_reward(obs, action, next_obs):
    return -jnp.sqrt(jnp.sum(next_obs[2:4] ** 2))


def scooter_cost(obs, action, next_obs):
    return jnp.sum(next_obs[4:] ** 2) < 0.1


def scooter_descriptor(rollout):
    return rollout.next_obs[-1, 2:4]


SURROUNDINGS = Surroundings((0, 1), scooter_motion, scooter_places, scooter_sight)


def scooter(**changes):
    values = {
        "name": "scooter",
        "observations": Observations((-math.inf,) * 6, (math.inf,) * 6),
        "actions": ContinuousActions((-1.0, -1.0), (1.0, 1.0)),
        "reward": scooter_reward,
        "constraints": (Constraint("tree", scooter_cost),),
        "descriptor": scooter_descriptor,
        "grid": Grid((-3, -3), (3, 3), (4, 4)),
        "episode_length": 40,
        "surroundings": SURROUNDINGS,
    }
    return Task(**(values | changes))


def scooter_step(obs, action, key):
    own = obs[:2] + 0.5 * (jnp.asarray([1.0, 2.0]) * action - obs[:2])
    return scooter_sight(own, moved(scooter_places(obs), scooter_motion(obs[:2], own)))


def scooter_reset(key):
    return jnp.concatenate([jnp.zeros(2), jax.random.uniform(key, (4,), minval=-2.0, maxval=2.0)])


SCOOTER = scooter(step=scooter_step, reset=scooter_reset, episode_length=12)
"""The same as a simulated task, for whole runs."""


def world_step(pose, own, action):
    """The truth: pose (x, y, heading) in the world, speeds that lag behind the action."""
    own = own + 0.5 * (np.asarray([1.0, 2.0]) * action - own)
    x, y, heading = pose
    pose = (x + DT * own[0] * math.cos(heading), y + DT * own[0] * math.sin(heading), heading + DT * own[1])
    return pose, own


def look(pose, own, things):
    x, y, heading = pose
    seen = [
        (
            math.cos(heading) * (a - x) + math.sin(heading) * (b - y),
            math.cos(heading) * (b - y) - math.sin(heading) * (a - x),
        )
        for a, b in things
    ]
    return np.concatenate([own, np.ravel(seen)]).astype(np.float32)


def drive(seed, steps):
    random = np.random.default_rng(seed)
    things = random.uniform(-2, 2, (2, 2))
    pose, own = (0.0, 0.0, random.uniform(0, 6)), np.zeros(2)
    obs, actions = [look(pose, own, things)], []
    for _ in range(steps):
        action = random.uniform(-1, 1, 2)
        pose, own = world_step(pose, own, action)
        obs.append(look(pose, own, things))
        actions.append(action)
    return np.asarray(obs), np.asarray(actions, np.float32)


@settings(max_examples=50, deadline=None)
@given(st.floats(-1, 1), st.floats(-1, 1), st.floats(-3, 3))
def test_moving_there_and_back_changes_nothing(dx, dy, turn):
    places = jnp.asarray([[0.5, -1.0, 7.0], [2.0, 0.3, 8.0]])
    there = moved(places, jnp.asarray([dx, dy, turn]))
    np.testing.assert_array_equal(there[:, 2], places[:, 2])  # what tells them apart stays
    apart = lambda p: jnp.sqrt(jnp.sum((p[0, :2] - p[1, :2]) ** 2))  # noqa: E731
    np.testing.assert_allclose(apart(there), apart(places), atol=1e-5)
    back = moved(moved(there, jnp.asarray([0.0, 0.0, -turn])), jnp.asarray([-dx, -dy, 0.0]))
    np.testing.assert_allclose(back, places, atol=1e-5)


def test_with_the_true_motion_things_are_seen_where_they_are():
    """The body's own sensors as they were, everything else by geometry, over 30 steps."""
    obs, _ = drive(0, 30)
    state = SURROUNDINGS.places(jnp.asarray(obs[0]))
    for now, after in itertools.pairwise(obs):
        state = moved(state, scooter_motion(jnp.asarray(now[:2]), jnp.asarray(after[:2])))
        np.testing.assert_allclose(scooter_sight(jnp.asarray(after[:2]), state), after, atol=1e-4)


def data_of(drives):
    rows = [(obs[:-1], actions, obs[1:]) for obs, actions in drives]
    obs, action, next_obs = (np.concatenate(part) for part in zip(*rows, strict=True))
    use = jnp.ones((1, len(obs)), bool)
    return Data(*(jnp.asarray(x)[None] for x in (obs, action, next_obs)), use, jnp.asarray([len(obs)], jnp.int32))


@pytest.mark.parametrize("ensemble", [1, 3])
def test_it_learns_the_body_and_predicts_all(ensemble):
    task = scooter()
    chosen = ModelSettings(hidden=(16,), ensemble=ensemble)
    fresh = jax.jit(jax.vmap(lambda key: make_model("egocentric", task, key, chosen)))(KEY[None])
    how = FitSettings(batch=64, max_steps=1500, learning_rate=1e-2, validation=0.2)
    models, report = fit_all(
        fit_programs(fresh, fresh, data_of([drive(seed, 40) for seed in range(1, 9)]), KEY[None], how, False)
    )
    assert report.r2.shape == (1, 6)
    assert (np.asarray(report.r2) > 0.98).all()
    assert np.isfinite(np.asarray(report.ks)[0, :2]).all()
    assert np.isnan(np.asarray(report.ks)[0, 2:]).all()  # geometry is no density
    model = jax.tree.map(lambda x: x[0], models)
    assert model.num_particles == ensemble
    shift, scale = model.policy_inputs()
    assert shift.shape == scale.shape == (6,)
    assert (np.asarray(scale) > 0.1).all()
    obs, actions = drive(99, 10)
    state = model.encode(jnp.asarray(obs[0]))
    predict = jax.jit(lambda state, action: model.predict(state, action, KEY, ZERO))
    for action in actions:
        state = predict(state, action)
    np.testing.assert_allclose(model.decode(state), obs[-1], atol=0.1)


@pytest.mark.parametrize("ensemble", [1, 3])
def test_plans_see_what_it_predicts(ensemble):
    """The layout for plans, and the engine's way through it, against one prediction after the other."""
    task = scooter()
    model = make_model("egocentric", task, KEY, ModelSettings(hidden=(5, 18), ensemble=ensemble))
    planner = make_planner("rs", task, horizon=4, budget=2)
    sequences = task.actions.sample(KEY, (2, 4))
    obs = jnp.asarray(drive(3, 5)[0][-1])
    rollouts = jax.jit(lambda actions: roll_out(planner, Particles.of(model), obs, KEY, actions))(sequences)
    assert rollouts.next_obs.shape == (2, ensemble, 4, 6)
    predict = jax.jit(lambda state, action, i: model.predict(state, action, KEY, i))
    np.testing.assert_array_equal(rollouts.obs[0, 0, 0], obs)
    for n, sequence in enumerate(sequences):
        for i in range(ensemble):
            state = model.encode(obs)
            for t, action in enumerate(sequence):
                state = predict(state, action, jnp.asarray(i))
                np.testing.assert_allclose(rollouts.next_obs[n, i, t], model.decode(state), rtol=1e-4, atol=1e-5)


def test_what_is_hidden_on_the_way_is_not_forgotten():
    """Two hazards seen apart, then from so far that their bins touch, then from the start again: read once, both are
    where they were. Read anew at every step, they are not: that is why a plan's state is more than an observation."""
    from guss.envs.car import SURROUNDINGS as CAR

    around, own = CAR["exponential"], jnp.zeros(10)
    places = jnp.asarray([[0.0, 1.0, 1.0], [0.5, 0.9, 1.0], [0.5, -0.7, 1.0], *[[0.0, 0.0, 0.0]] * 8])
    first = around.sight(own, places)
    away, back = (jnp.asarray([dx, 0.0, 0.0]) for dx in (-0.1, 0.1))
    once, anew = around.places(first), around.places(first)
    for motion in [away] * 30 + [back] * 30:
        once, anew = moved(once, motion), moved(around.places(around.sight(own, anew)), motion)
    np.testing.assert_allclose(around.sight(own, once), first, atol=1e-3)
    assert np.abs(around.sight(own, anew) - first).max() > 0.05


def test_bad_surroundings_are_told():
    with pytest.raises(GussError, match="needs the surroundings of task 'scooter', which defines none"):
        make_model("egocentric", scooter(surroundings=None), KEY, ModelSettings())
    with pytest.raises(GussError, match=r"surroundings.own must have indices .* 0 to 5, got \(0, 6\)"):
        scooter(surroundings=dataclasses.replace(SURROUNDINGS, own=(0, 6)))
    with pytest.raises(GussError, match=r"surroundings.places\(obs\) must return \[K, 2 or more\]"):
        scooter(surroundings=dataclasses.replace(SURROUNDINGS, places=lambda obs: obs[2:]))
    with pytest.raises(GussError, match=r"surroundings.motion\(own, next_own\) must return shape \(3,\)"):
        scooter(surroundings=dataclasses.replace(SURROUNDINGS, motion=lambda own, after: own))
    with pytest.raises(GussError, match=r"surroundings.sight\(own, places\) must return shape \(6,\)"):
        scooter(surroundings=dataclasses.replace(SURROUNDINGS, sight=lambda own, places: own))


def test_it_is_one_of_the_cars_models():
    model = make_model("egocentric", car_task(), KEY, ModelSettings(hidden=(4,)))
    assert isinstance(model, Egocentric)
    move = Transition(*(jnp.zeros(n) for n in (22, 2, 1, 1, 22)))
    assert model.decode(model.predict(model.encode(move.obs), move.action, KEY, ZERO)).shape == (22,)
