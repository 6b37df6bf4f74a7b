"""SafeCar-Goal: physics against a recorded trajectory, sensors and costs against a slow reference."""

import ctypes.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import guss
from guss.envs import car_world as world
from guss.envs.car import car_reward, car_task, hazards_of_lidar, lidar_of_hazards
from guss.envs.car_env import SafeCarGoalEnv, SafeCarGoalVectorEnv
from guss.envs.car_world import GOAL, LIDAR, Physics
from guss.errors import GussError

REFERENCE = Path(__file__).parents[1] / "data" / "car_reference.json"
SENSORS = ("accelerometer", "velocimeter", "gyro", "magnetometer")
FORWARD = -1.0
places = st.tuples(st.floats(-3, 3), st.floats(-3, 3))


# ------------------------------------------------------------------------------------------------------------ physics


@pytest.mark.parametrize("threads", [0, 2])
def test_the_car_follows_the_recorded_one(threads):
    """Safety-Gymnasium's car on MuJoCo 2.3, 60 steps: pose within 1e-4 m, sensors within 1e-3."""
    run = json.loads(REFERENCE.read_text())["runs"][0]
    physics = Physics(threads)
    state = np.concatenate([[0.0], run["qpos0"], run["qvel0"]])[None].repeat(3, axis=0)
    for control, qpos, told in zip(run["ctrl"], run["qpos"], run["sensors"], strict=True):
        state, sensors = physics.step(state, np.asarray(control, float)[None].repeat(3, axis=0))
        np.testing.assert_allclose(state[:, 1:8], np.asarray(qpos)[None, :7].repeat(3, axis=0), atol=1e-4)
        expected = np.concatenate([told[name] for name in SENSORS])
        np.testing.assert_allclose(sensors, expected[None].repeat(3, axis=0), atol=1e-3)


# ------------------------------------------------------------------------------------------------- a slow reference


def slow_lidar(car, heading, hazards, kind, bins=10):
    """Hazard by hazard, from the published description, for a car that stands level on the floor."""
    readings = [0.0] * bins
    for x, y in hazards:
        dx, dy = x - car[0], y - car[1]
        ahead = math.cos(heading) * dx + math.sin(heading) * dy
        left = -math.sin(heading) * dx + math.cos(heading) * dy
        distance = math.sqrt(ahead**2 + left**2)
        value = math.exp(-distance) if kind == "exponential" else max(0.0, 3.0 - distance) / 3.0
        angle = math.atan2(left, ahead) % (2 * math.pi)
        width = 2 * math.pi / bins
        own = min(int(angle / width), bins - 1)
        fraction = (angle - own * width) / width
        for which, share in ((own, 1.0), ((own + 1) % bins, fraction), ((own - 1) % bins, 1.0 - fraction)):
            readings[which] = max(readings[which], share * value)
    return readings


def on_a_border(seen, margin):
    """A hazard exactly between two bins, or right under the car, may be counted to either side."""
    positions = np.arctan2(seen[:, 1], seen[:, 0]) * 10 / (2 * np.pi)
    return bool((np.abs(positions - np.round(positions)) < margin).any() or np.hypot(*seen.T).min() < margin)


compiled_lidar = jax.jit(lidar_of_hazards, static_argnums=(1, 2))
read_back = jax.jit(hazards_of_lidar)


def test_the_body_has_the_time_step_and_the_height_that_the_rest_counts_with():
    model = world.Physics().model
    assert model.opt.timestep == world.TIMESTEP
    assert model.body("car").pos[2] == world.CAR_HEIGHT


def level(car, heading):
    return world.start_state(np.asarray(car, float)[None], np.asarray([heading], float))[:, 1:14]


@settings(max_examples=200, deadline=None)
@given(places, st.floats(0, 6.28), st.lists(places, min_size=1, max_size=8), st.sampled_from(world.LIDARS))
def test_lidar_agrees_with_the_slow_one(car, heading, hazards, kind):
    around = np.asarray(hazards, float)
    seen = world.in_car_frame(level(car, heading), around[None])
    got = world.lidar(seen, kind)[0]
    expected = np.asarray(slow_lidar(car, heading, hazards, kind))
    assume(not on_a_border(seen[0], 1e-6))
    np.testing.assert_allclose(got, expected, atol=1e-9)
    nearest = min(math.hypot(x - car[0], y - car[1]) for x, y in hazards)
    assume(abs(nearest - 0.2) > 1e-9)
    assert world.inside_hazard(level(car, heading), around[None])[0] == (nearest < 0.2)


@settings(max_examples=100, deadline=None)
@given(st.lists(places, min_size=1, max_size=8), st.sampled_from(world.LIDARS))
def test_the_compiled_lidar_is_the_same(hazards, kind):
    around = np.asarray(hazards, np.float32)
    assume(not on_a_border(around, 1e-4))
    padded = np.zeros((8, 3), np.float32)  # the others are not there
    padded[: len(around)] = np.concatenate([around, np.ones((len(around), 1))], axis=1)
    np.testing.assert_allclose(compiled_lidar(padded, 10, kind), world.lidar(around[None], kind)[0], atol=2e-5)


@settings(max_examples=200, deadline=None)
@given(st.floats(0.02, 2.5), st.integers(0, 9), st.floats(0.02, 0.98), st.integers(0, 9), st.floats(0.05, 2.5))
def test_lone_hazards_are_read_back_from_the_lidar(distance, own, share, apart, other):
    """One hazard is always found where it is; two are, if their bins do not touch."""
    angles = [(own + share) * 2 * math.pi / 10]
    hazards = [(distance * math.cos(angles[0]), distance * math.sin(angles[0]))]
    if 4 <= apart <= 6:
        angle = (own + apart + 0.5) * 2 * math.pi / 10
        hazards.append((other * math.cos(angle), other * math.sin(angle)))
    readings = world.lidar(np.asarray(hazards)[None])[0]
    found = np.asarray(read_back(jnp.asarray(readings, jnp.float32)))
    there = found[found[:, 2] > 0][:, :2]
    assert len(there) == len(hazards)
    for hazard in hazards:
        assert np.hypot(*(there - hazard).T).min() < 0.01


def test_what_is_read_of_real_layouts_shows_the_same_again():
    """Decoding and encoding a real reading gives it back, nearest hazard first of all."""
    random = np.random.default_rng(0)
    seen, again = [], []
    for _ in range(300):
        layout = world.sample_layout(random)
        car = random.uniform(-1.5, 1.5, 2)
        readings = world.lidar(world.in_car_frame(level(car, layout.heading), layout.hazards[None]))[0]
        seen.append(readings)
        again.append(compiled_lidar(read_back(jnp.asarray(readings, jnp.float32)), 10, "exponential"))
    seen, again = np.asarray(seen), np.asarray(again)
    np.testing.assert_allclose(again.max(axis=1), seen.max(axis=1), atol=1e-4)
    assert np.abs(again - seen).mean() < 1e-3


# ------------------------------------------------------------------------------------------------------------- layout


def test_layouts_keep_their_distances():
    random = np.random.default_rng(1)
    for _ in range(100):
        layout = world.sample_layout(random)
        things = [(layout.car, 0.4), (layout.goal, 0.305), *((h, 0.18) for h in layout.hazards)]
        things.append((world.sample_goal(random, layout), 0.305))
        for i, (place, own) in enumerate(things):
            assert np.abs(place).max() <= 1.5 - own
            for j, (other, theirs) in enumerate(things[:i]):
                if (i, j) != (10, 1):  # the new goal may lie near the old one
                    assert np.hypot(*(place - other)) >= own + theirs


def test_layouts_cover_the_arena():
    """Hazards are as often left as right, front as back: 4,000 of them, each count within 5 standard deviations."""
    random = np.random.default_rng(2)
    hazards = np.concatenate([world.sample_layout(random).hazards for _ in range(500)])
    for axis in range(2):
        assert abs((hazards[:, axis] > 0).sum() - 2000) < 5 * math.sqrt(1000)


# ---------------------------------------------------------------------------------------------------- the environment


def roll(env, seed, steps, actions_seed=0):
    random = np.random.default_rng(actions_seed)
    obs, _ = env.reset(seed=seed)
    rows = [obs]
    rewards, infos = [], []
    for _ in range(steps):
        obs, reward, terminated, _, info = env.step(random.uniform(-1, 1, 2).astype(np.float32))
        assert not terminated
        rows.append(obs)
        rewards.append(reward)
        infos.append(info)
    return np.asarray(rows), np.asarray(rewards), infos


def test_it_is_a_proper_gymnasium_environment():
    env = gymnasium.make("guss/SafeCarGoal-v0").unwrapped
    with pytest.warns(UserWarning, match="infinity"):  # sensors have no bounds
        check_env(env, skip_render_check=True)
    a, b = (roll(SafeCarGoalEnv(), 3, 20) for _ in range(2))
    np.testing.assert_array_equal(a[0], b[0])
    assert not np.array_equal(a[0][0], roll(SafeCarGoalEnv(), 4, 1)[0][0])


def test_an_episode_is_truncated_after_1000_steps():
    env = gymnasium.make("guss/SafeCarGoal-v0")
    env.reset(seed=0)
    ends = [env.step(np.zeros(2, np.float32))[3] for _ in range(1000)]
    assert ends == [False] * 999 + [True]


def test_costs_and_rewards_follow_the_observations():
    """The Task's functions say of every transition what the environment says, but where the goal jumps."""
    task = guss.make_task("safe-car-goal")
    obs, rewards, infos = roll(SafeCarGoalEnv(), 5, 200)
    known_reward = jax.vmap(lambda o, n: car_reward(o, jnp.zeros(2), n))(obs[:-1], obs[1:])
    known_cost = jax.vmap(lambda o, n: task.costs(o, jnp.zeros(2), n)[0])(obs[:-1], obs[1:])
    still = ~np.asarray([info["skip"] for info in infos])
    assert still.sum() > 150
    np.testing.assert_allclose(known_reward[still], rewards[still], atol=0.02)  # the car tilts, its frame too
    np.testing.assert_array_equal(known_cost, [info["cost"] for info in infos])


def test_reaching_the_goal_pays_and_moves_it():
    env = SafeCarGoalEnv()
    far = [(1.3, y) for y in np.linspace(-1.3, 1.3, 8)]
    obs, _ = env.reset(seed=0, options={"car": (0, 0), "heading": 0.0, "goal": (0.0, 0.31), "hazards": far})
    np.testing.assert_allclose(obs[GOAL], (0.0, 0.31), atol=1e-6)
    for _ in range(60):  # towards the side where the wheels are
        before = env.cars.distance[0]
        obs, reward, *_, info = env.step(np.asarray([FORWARD, FORWARD], np.float32))
        if info["skip"]:
            break
        assert math.isclose(reward, before - env.cars.distance[0], abs_tol=1e-9)
    assert info["goal_reached"]
    assert info["skip"]
    assert 1.0 < reward < 1.1
    assert np.hypot(*(env.cars.goal[0] - (0.0, 0.31))) > 0.1
    before = env.cars.distance[0]
    np.testing.assert_allclose(before, np.hypot(*(env.cars.goal[0] - env.cars.qpos[0, :2])))
    obs, reward, *_, info = env.step(np.zeros(2, np.float32))
    assert not info["skip"]
    assert math.isclose(reward, before - env.cars.distance[0], abs_tol=1e-9)  # progress counts from the new goal


def test_costs_are_where_hazards_are():
    for distance, cost, native in ((0.09, 1.0, 1.0), (0.15, 0.0, 1.0), (0.25, 0.0, 0.0)):
        env = SafeCarGoalEnv()
        hazards = [(distance, 0.0), *((-1.3, y) for y in np.linspace(-1.2, 1.2, 7))]
        env.reset(seed=0, options={"car": (0, 0), "heading": 0.3, "goal": (0, 1.2), "hazards": hazards})
        info = env.step(np.zeros(2, np.float32))[4]
        assert (info["cost"], info["costs"]["lidar"], info["cost_native"]) == (cost, cost, native)


@pytest.mark.parametrize("lidar", ["exponential", "linear"])
def test_safety_gyms_own_cost_is_measured_but_not_planned_with(lidar):
    """The readings of a tilted car differ by millimetres."""
    task, env = car_task(lidar=lidar), SafeCarGoalEnv(lidar=lidar)
    (measured,) = task.measured
    assert [c.name for c in task.constraints] == ["lidar"]
    random = np.random.default_rng(0)
    found = []
    for distance in np.linspace(0.05, 0.4, 30):
        hazards = [(distance, 0.0), *((-1.3, y) for y in np.linspace(-1.2, 1.2, 7))]
        obs, _ = env.reset(seed=0, options={"car": (0, 0), "heading": 0.3, "goal": (0, 1.2), "hazards": hazards})
        for _ in range(20):
            action = random.uniform(-1, 1, 2).astype(np.float32)
            next_obs, _, _, _, info = env.step(action)
            nearest = np.sqrt(((env.cars.hazards[0] - env.cars.qpos[0, :2]) ** 2).sum(axis=-1).min())
            if abs(nearest - 0.2) > 0.005:
                step = map(jnp.asarray, (obs, action, next_obs))
                found.append((bool(measured.cost(*step)), bool(info["cost_native"])))
            obs = next_obs
    assert len(found) > 500
    assert any(native for _, native in found)
    assert all(mine == native for mine, native in found)


def test_many_cars_do_what_single_ones_do():
    many = SafeCarGoalVectorEnv(3, threads=2)
    singles = [SafeCarGoalEnv() for _ in range(3)]
    seeds = [7, 8, 9]
    first, _ = many.reset(seed=seeds)
    np.testing.assert_array_equal(first, [env.reset(seed=seed)[0] for env, seed in zip(singles, seeds, strict=True)])
    random = np.random.default_rng(0)
    for _ in range(30):
        actions = random.uniform(-1, 1, (3, 2))
        obs, rewards, _, _, info = many.step(actions)
        for i, env in enumerate(singles):
            single = env.step(actions[i])
            np.testing.assert_allclose(obs[i], single[0], atol=1e-5)
            np.testing.assert_allclose(rewards[i], single[1], atol=1e-6)
            assert {name: info[name][i] for name in ("cost", "cost_native", "skip")} == {
                name: single[4][name] for name in ("cost", "cost_native", "skip")
            }


def test_many_cars_start_anew_as_gymnasium_wants_it():
    many = gymnasium.make_vec("guss/SafeCarGoal-v0", num_envs=2, max_episode_steps=3)
    many.reset(seed=0)
    still = np.zeros((2, 2))
    ends = [many.step(still)[3].tolist() for _ in range(5)]
    assert ends == [[False] * 2] * 2 + [[True] * 2] + [[False] * 2] * 2  # the fourth step is the reset
    fixed = SafeCarGoalVectorEnv(2, autoreset_mode="Disabled", max_episode_steps=2)
    with pytest.raises(GussError, match="before reset"):
        fixed.step(still)
    fixed.reset(seed=[1, 2])
    fixed.step(still)
    assert fixed.step(still)[3].all()
    with pytest.raises(GussError, match=r"environments \[0, 1\] are over"):
        fixed.step(still)
    kept = fixed.cars.goal[1].copy()
    fixed.reset(options={"reset_mask": np.asarray([True, False])})
    np.testing.assert_array_equal(fixed.cars.goal[1], kept)


def test_the_simulator_as_a_model_does_what_the_environment_does():
    """Planning in copies of the simulator: the Task's step of the full observation is the environment's own.

    The state passes through float32, and contacts make much of little: places agree to millimetres.
    """
    task = guss.make_task("safe-car-goal-full")
    env = gymnasium.make("guss/SafeCarGoalFull-v0")
    obs, _ = env.reset(seed=2)
    random = np.random.default_rng(0)
    step = jax.jit(jax.vmap(task.step, (0, 0, None)))
    for _ in range(5):
        action = random.uniform(-1, 1, 2).astype(np.float32)
        guess = step(np.stack([obs, obs]), np.stack([action, action]), jax.random.key(0))
        obs = env.step(action)[0]
        assert guess.shape == (2, 65)
        np.testing.assert_allclose(guess[:, 23:25], obs[None, 23:25].repeat(2, axis=0), atol=2e-3)
        np.testing.assert_allclose(guess[:, LIDAR], obs[None, LIDAR].repeat(2, axis=0), atol=2e-2)
        np.testing.assert_array_equal(guess[0], guess[1])


# ------------------------------------------------------------------------------------------------------- clear errors


def test_bad_input_is_told():
    env = SafeCarGoalEnv()
    with pytest.raises(GussError, match="before reset"):
        env.step(np.zeros(2))
    env.reset(seed=0)
    for action in map(np.asarray, ([1.0], [np.nan, 0.0], [[0.0, 0.0]])):
        with pytest.raises(GussError, match=r"finite numbers of shape \(2,\)"):
            env.step(action)
    with pytest.raises(GussError, match="Did you mean 'goal'"):
        env.reset(options={"gaol": (0, 0)})
    with pytest.raises(GussError, match=r"'car' must be finite numbers of shape \(2,\)"):
        env.reset(options={"car": (0, 0, 0)})
    with pytest.raises(GussError, match="exponential"):
        SafeCarGoalEnv(lidar="exponentail")
    with pytest.raises(GussError, match="rgb_array"):
        SafeCarGoalEnv(render_mode="human")
    with pytest.raises(GussError, match="one per environment"):
        SafeCarGoalVectorEnv(2).reset(seed=[1])


WITHOUT = """
import sys, numpy as np, gymnasium
{before}
import guss.envs
try:
    env = gymnasium.make("guss/SafeCarGoal-v0", render_mode="rgb_array")
    env.reset(seed=0)
    env.step(np.zeros(2, np.float32))
    print("steps")
    env.render()
except guss.GussError as error:
    print("told:", error)
"""


def run_python(before, **env):
    return subprocess.run(
        [sys.executable, "-c", WITHOUT.format(before=before)],
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    ).stdout


def test_without_mujoco_it_is_told_what_to_install():
    out = run_python("sys.modules['mujoco'] = None")
    assert "told:" in out
    assert "pip install 'guss[car]'" in out
    assert "steps" not in out


def test_without_opengl_only_pictures_are_missing():
    out = run_python("", MUJOCO_GL="disabled")
    assert out.startswith("steps")
    assert "told: SafeCar-Goal cannot be rendered here" in out
    assert "MUJOCO_GL=egl" in out


# ---------------------------------------------------------------------------------------------------------- pictures


NO_OPENGL = not os.environ.get("DISPLAY") and ctypes.util.find_library("EGL") is None


def test_the_arena_is_drawn_or_what_is_missing_is_told():
    env = SafeCarGoalEnv(render_mode="rgb_array")
    with pytest.raises(GussError, match="before reset"):
        env.render()
    far = [(1.3, y) for y in np.linspace(-1.3, 1.3, 8)]
    env.reset(seed=0, options={"car": (0, 0), "heading": 0.0, "goal": (-1.0, 0.0), "hazards": far})
    if NO_OPENGL:
        with pytest.raises(GussError, match="needs EGL: install libegl1 and set MUJOCO_GL=egl"):
            env.render()
        return
    picture = env.render().astype(int)
    assert picture.shape == (640, 640, 3)
    red, green, blue = np.moveaxis(picture, -1, 0)
    assert (green > np.maximum(red, blue) + 30)[:, :320].sum() > 2000  # the goal, left
    assert (green > np.maximum(red, blue) + 30)[:, 320:].sum() == 0
    assert (red > np.maximum(green, blue) + 60)[:, 400:].sum() > 2000  # hazards, right
    assert (blue > red + 50)[250:400, 270:370].sum() > 100  # the car, in the middle
    env.step(np.asarray([1.0, 1.0]))
    for _ in range(15):
        env.step(np.asarray([1.0, 1.0]))
    assert (env.render().astype(int) != picture).any(axis=-1).sum() > 200
    env.close()


def test_an_observation_is_drawn_without_opengl():
    from guss.envs.car import VIEW

    obs = np.zeros(22)
    obs[GOAL], obs[12] = (0.8, 0.0), 0.95
    picture = VIEW.picture(obs)
    assert picture.shape == (500, 500, 3)
    assert (picture == (170, 10, 10)).all(axis=-1).any()  # beyond the limit
    assert not (VIEW.picture(np.where(np.arange(22) == 12, 0.5, obs)) == (170, 10, 10)).all(axis=-1).any()


def test_where_the_car_is_follows_from_its_own_sensors():
    from guss.envs.car import VIEW

    env = SafeCarGoalEnv()
    for seed in range(5):
        obs, _ = env.reset(seed=seed)
        layout = env.cars.layouts[0]
        np.testing.assert_allclose(VIEW.shown(obs), layout.car - layout.goal, atol=1e-3)
