"""Safe Pendulum and Safe Acrobot against Gymnasium's own, and each Task against its environment."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from guss.envs import make_task
from guss.envs.acrobot import VIEW as ACROBOT
from guss.envs.acrobot import SafeAcrobotEnv, advance
from guss.envs.pendulum import VIEW as PENDULUM
from guss.envs.pendulum import SafePendulumEnv
from guss.errors import GussError

COUNT = 3_000


def batch_step(task):
    """next_obs, reward and cost of many transitions at once."""

    def one(obs, action):
        next_obs = task.step(obs, action, jax.random.key(0))
        return next_obs, task.reward(obs, action, next_obs), task.costs(obs, action, next_obs)[0]

    return jax.jit(jax.vmap(one))


def pendulum_cases():
    rng = np.random.default_rng(0)
    angle, speed = rng.uniform(-np.pi, np.pi, COUNT), rng.uniform(-8, 8, COUNT)
    states = np.stack([angle, speed], 1)
    obs = np.stack([np.cos(angle), np.sin(angle), speed], 1).astype(np.float32)
    return states, obs, rng.uniform(-2.5, 2.5, (COUNT, 1)).astype(np.float32)


def acrobot_cases():
    rng = np.random.default_rng(1)
    a1, a2 = rng.uniform(-np.pi, np.pi, (2, COUNT))
    v1, v2 = rng.uniform(-12, 12, COUNT), rng.uniform(-28, 28, COUNT)
    obs = np.stack([np.cos(a1), np.sin(a1), np.cos(a2), np.sin(a2), v1, v2], 1).astype(np.float32)
    return np.stack([a1, a2, v1, v2], 1), obs, rng.integers(0, 3, COUNT)


def test_pendulum_steps_are_gymnasiums():
    states, obs, actions = pendulum_cases()
    next_obs, reward, cost = batch_step(make_task("safe-pendulum"))(obs, jnp.clip(jnp.asarray(actions), -2.0, 2.0))
    theirs, ours = gymnasium.make("Pendulum-v1").unwrapped, SafePendulumEnv()
    theirs.reset(seed=0)
    expected = []
    for state, action in zip(states, actions, strict=True):
        theirs.state = state
        ours.reset(options={"state": state})
        theirs_obs, theirs_reward, *_ = theirs.step(action)
        ours_obs, ours_reward, terminated, truncated, info = ours.step(action)
        assert (terminated, truncated) == (False, False)
        expected.append((theirs_obs, theirs_reward, ours_obs, ours_reward, info["cost"]))
    theirs_obs, theirs_reward, ours_obs, ours_reward, ours_cost = map(np.asarray, zip(*expected, strict=True))
    np.testing.assert_allclose(ours_obs, theirs_obs, atol=1e-6)
    np.testing.assert_allclose(ours_reward, theirs_reward, rtol=1e-6)
    np.testing.assert_allclose(next_obs, theirs_obs, atol=5e-6)
    np.testing.assert_allclose(reward, theirs_reward, rtol=1e-5, atol=1e-5)
    angle = np.rad2deg(np.arctan2(theirs_obs[:, 1], theirs_obs[:, 0]))
    clear = (abs(angle - 20) > 1e-3) & (abs(angle - 30) > 1e-3)  # float32 may fall on either side of the edge itself
    np.testing.assert_array_equal(np.asarray(cost)[clear], ours_cost[clear])
    np.testing.assert_array_equal(ours_cost[clear], ((angle >= 20) & (angle <= 30))[clear])
    assert 0.01 < ours_cost.mean() < 0.1


def test_acrobot_steps_are_gymnasiums():
    states, obs, actions = acrobot_cases()
    theirs, ours = gymnasium.make("Acrobot-v1").unwrapped, SafeAcrobotEnv()
    theirs.reset(seed=0)
    expected, heights = [], []
    for i, (state, action) in enumerate(zip(states, actions, strict=True)):
        theirs.state = state
        expected.append(theirs.step(action)[0])
        heights.append(2 - np.cos(theirs.state[0]) - np.cos(theirs.state[0] + theirs.state[1]))
        if i < 500:
            ours.reset(options={"state": state})
            ours_obs, height, terminated, _, info = ours.step(action)
            np.testing.assert_allclose(ours_obs, expected[-1], atol=2e-5)
            assert abs(height - heights[-1]) < 1e-6
            assert info["cost"] == float(heights[-1] > 3.0)
            assert not terminated
    expected, heights = np.asarray(expected), np.asarray(heights)
    # The equations in double precision agree to its last digits.
    a1, a2, v1, v2 = advance(np, tuple(states.T), actions - 1.0)
    exact = np.stack([np.cos(a1), np.sin(a1), np.cos(a2), np.sin(a2), v1, v2], 1)
    np.testing.assert_allclose(exact, expected, atol=2e-6)
    # In single precision too. Speeds of 28 turn a link by 5.6 rad within one step of four stages: where the equations
    # are steep, the rounding of the input alone is multiplied a thousandfold, hence percentiles and a loose maximum.
    next_obs, reward, cost = batch_step(make_task("safe-acrobot"))(obs, actions.astype(np.int32))
    errors = abs(np.asarray(next_obs) - expected)
    assert np.median(errors) < 1e-6
    assert np.percentile(errors, 99.9) < 2e-4
    assert errors.max() < 2e-2
    np.testing.assert_allclose(reward, heights, atol=2e-3)
    clear = abs(heights - 3.0) > 2e-3
    np.testing.assert_array_equal(np.asarray(cost)[clear], (heights > 3.0)[clear])
    assert 0.05 < np.mean(heights > 3.0) < 0.5


@pytest.mark.parametrize("gym_id", ["guss/SafePendulum-v0", "guss/SafeAcrobot-v0"])
@pytest.mark.filterwarnings("ignore:.*For Box action spaces, we recommend using a symmetric and normalized space.*")
def test_gymnasium_is_content(gym_id):
    env = gymnasium.make(gym_id, render_mode="rgb_array")
    check_env(env.unwrapped)
    first, info = env.reset(seed=7)
    assert info["cost"] == 0.0
    again, _ = env.reset(seed=7)
    np.testing.assert_array_equal(first, again)
    for t in range(200):
        obs, _, terminated, truncated, info = env.step(env.action_space.sample())
        assert env.observation_space.contains(obs)
        assert set(info) == {"cost", "costs"}
        assert not terminated
        assert truncated == (t == 199)


def test_resets_are_as_documented():
    task, hanging = make_task("safe-pendulum"), make_task("safe-pendulum", start="hanging")
    keys = jax.random.split(jax.random.key(0), 2000)
    anywhere = np.asarray(jax.vmap(task.reset)(keys))
    angles = np.arctan2(anywhere[:, 1], anywhere[:, 0])
    assert angles.min() < -3.1
    assert angles.max() > 3.1
    assert abs(anywhere[:, 2]).max() <= 1.0
    assert (np.asarray(jax.vmap(hanging.reset)(keys))[:, 0] < -0.99).all()
    env = SafePendulumEnv(start="hanging")
    assert env.reset(seed=1)[0][0] < -0.99
    low = np.asarray(jax.vmap(make_task("safe-acrobot").reset)(keys))
    assert (low[:, [0, 2]] > 0.99).all()
    assert abs(low[:, 4:]).max() <= 0.1


def test_descriptors_look_at_half_and_end():
    from guss.types import Rollout

    task = make_task("safe-pendulum")
    angles = jnp.arange(1.0, 11.0) * 0.1
    states = jnp.stack([jnp.cos(angles), jnp.sin(angles), jnp.zeros(10)], 1)
    np.testing.assert_allclose(task.descriptor(Rollout(states, jnp.zeros((10, 1)), states)), [0.5, 1.0], rtol=1e-5)
    task = make_task("safe-acrobot")
    assert task.grid.num_cells == 50**4
    up = jnp.asarray([-1.0, 0.0, 1.0, 0.0, 0.0, 0.0])  # both links straight up
    side = jnp.asarray([0.0, 1.0, 1.0, 0.0, 0.0, 0.0])  # both to the right
    states = jnp.stack([side, side, side, up])
    got = task.descriptor(Rollout(states, jnp.zeros(4, jnp.int32), states))
    np.testing.assert_allclose(got, [2.0, 0.0, 0.0, 2.0], atol=1e-6)
    np.testing.assert_allclose(task.reward(side, jnp.asarray(1), up), 4.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: SafePendulumEnv(start="hangin"), "Did you mean 'hanging'"),
        (lambda: make_task("safe-pendulum", start="hangin"), "Did you mean 'hanging'"),
        (lambda: SafePendulumEnv().step(np.zeros(1)), "before reset"),
        (lambda: SafeAcrobotEnv().step(1), "before reset"),
        (lambda: SafePendulumEnv().reset(options={"state": (1, 2, 3)}), r"must be \(angle, speed\)"),
        (lambda: SafeAcrobotEnv().reset(options={"state": (1, 2)}), "two angles and two speeds"),
        (lambda: SafeAcrobotEnv(render_mode="human"), "unknown render mode"),
    ],
)
def test_bad_use_is_told(call, words):
    with pytest.raises(GussError, match=words):
        call()


def test_bad_actions_are_told():
    pendulum, acrobot = SafePendulumEnv(), SafeAcrobotEnv()
    pendulum.reset()
    acrobot.reset()
    with pytest.raises(GussError, match="one finite number"):
        pendulum.step(np.asarray([np.nan]))
    with pytest.raises(GussError, match="0, 1 or 2, got 3"):
        acrobot.step(3)


def test_pictures_show_the_unsafe_zone_and_the_system():
    red = [240, 176, 176]
    picture = PENDULUM.picture(np.asarray([-1.0, 0.0, 0.0]))
    at = lambda image, x, y, span: image[  # noqa: E731
        round((span - y) / (2 * span) * 499), round((x + span) / (2 * span) * 499)
    ].tolist()
    assert at(picture, -np.sin(np.deg2rad(25)), np.cos(np.deg2rad(25)), 1.3) == red
    assert at(picture, np.sin(np.deg2rad(25)), np.cos(np.deg2rad(25)), 1.3) == [255, 255, 255]
    assert at(picture, 0.0, -0.5, 1.3) == [31, 119, 180]
    picture = ACROBOT.picture(np.asarray([1.0, 0.0, 1.0, 0.0, 0.0, 0.0]))
    assert at(picture, 0.0, 1.5, 2.3) == red
    assert at(picture, 0.0, -0.5, 2.3) == [31, 119, 180]
    assert at(picture, 0.0, -1.5, 2.3) == [86, 180, 233]
