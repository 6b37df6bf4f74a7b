"""Every bundled Gymnasium id, as other libraries use it."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from guss.agent import Agent
from guss.collect.inputs import HostSystem, resolve
from guss.envs import ENVS
from guss.envs.adapters import Adapted, check_spaces
from guss.envs.toy import SafeToyEnv, toy_task
from guss.errors import GussError

IDS = [
    "guss/SafeToy-v0",
    "guss/SafePendulum-v0",
    "guss/SafeAcrobot-v0",
    "guss/SafeCarGoal-v0",
    "guss/SafeCarGoalFull-v0",
]


def test_all_ids_are_here():
    assert sorted(name for name in gymnasium.registry if name.startswith("guss/")) == sorted(IDS)


@pytest.mark.filterwarnings("ignore:.*(WARN|infinity|recommend)")  # recommendations of the checker
@pytest.mark.parametrize("gym_id", IDS)
def test_other_libraries_can_use_it(gym_id):
    """Actions that start at 0 or are a Box, observations in float32 and in their space, plain numbers as rewards."""
    env = gymnasium.make(gym_id)
    check_env(env.unwrapped, skip_render_check=True)
    space = env.action_space
    assert isinstance(space, gymnasium.spaces.Box) or not np.any(space.start)
    if isinstance(space, gymnasium.spaces.Box):
        assert space.dtype == np.float32
        assert np.isfinite([space.low, space.high]).all()
    assert env.observation_space.dtype == np.float32
    space.seed(0)
    obs, _ = env.reset(seed=0)
    for _ in range(5):
        assert env.observation_space.contains(obs)
        obs, reward, terminated, truncated, info = env.step(space.sample())
        assert (type(reward), type(terminated), type(truncated), type(info["cost"])) == (float, bool, bool, float)


def test_the_toy_counts_from_zero_and_its_task_as_before():
    env = Adapted(SafeToyEnv())
    check_spaces(env, toy_task())
    assert (env.actions.first, toy_task().actions.first) == ((-1, -1), (-1, -1))
    start = env.reset(0)[0]
    for action in ([-1, 1], [0, 0], [1, -1]):
        env.reset(0)
        np.testing.assert_array_equal(env.step(np.asarray(action, np.int32))[0] - start, action)
    for action in ([-2, 0], [2, 0]):
        with pytest.raises(GussError, match="two integers, each 0, 1 or 2"):
            env.step(np.asarray(action, np.int32))


def test_agents_act_on_the_toy_as_on_its_task():
    assert Agent("guss/SafeToy-v0", method="random").learn(1)[0].steps == 100
    task, env = resolve("guss/SafeToy-v0", None)
    system, key = HostSystem(task, env), jax.random.key(0)
    obs = system.reset(key, 0, 0)
    for t, action in enumerate(np.asarray([[1, 1], [-1, 0], [0, -1]], np.int32)):
        move = system.step(obs, action + 1, key, t)[0]  # as the environment has them, from 0 up
        np.testing.assert_array_equal(move.next_obs, toy_task().step(jnp.asarray(obs), jnp.asarray(action), key))
        obs = np.asarray(move.next_obs)


def test_every_bundled_id_has_the_actions_of_its_task():
    for entry in ENVS:
        if entry.bundled and entry.item.gym_id:
            task, env = resolve(gymnasium.make(entry.item.gym_id), None)
            assert env is not None
            assert task.actions.shape == env.actions.shape
