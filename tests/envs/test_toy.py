import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

from guss.envs import make_task
from guss.envs.shapes import paint
from guss.envs.toy import PAPER_LAYOUT, SafeToyEnv, ToyLayout, sketch_world, toy_task
from guss.errors import GussError
from guss.runs.toy import safe_cells

TASK = toy_task()


@jax.jit
def task_step(obs, action):
    next_obs = TASK.step(obs, action, jax.random.key(0))
    return next_obs, TASK.reward(obs, action, next_obs), TASK.costs(obs, action, next_obs)[0]


whole = st.integers(0, 50)
move = st.sampled_from((-1, 0, 1))


@given(start=st.tuples(whole, whole), action=st.tuples(move, move))
def test_the_task_and_the_environment_agree(start, action):
    env = SafeToyEnv()
    env.reset(options={"start": start})
    obs, reward, terminated, truncated, info = env.step(np.asarray(action) + 1)
    next_obs, task_reward, cost = task_step(jnp.asarray(start, jnp.float32), jnp.asarray(action, jnp.int32))
    np.testing.assert_array_equal(obs, next_obs)
    assert (reward, info["cost"]) == (float(task_reward), float(cost))
    assert info["costs"] == {"unsafe_area": info["cost"]}
    assert not terminated
    assert not truncated


def test_gymnasium_is_content():
    env = gymnasium.make("guss/SafeToy-v0", render_mode="rgb_array")
    check_env(env.unwrapped)
    obs, info = env.reset(seed=3)
    assert obs.tolist() == [5.0, 5.0]
    assert info == {"cost": 0.0, "costs": {"unsafe_area": 0.0}, "reached": False}
    for t in range(100):
        *_, terminated, truncated, _info = env.step(env.action_space.sample())
        assert not terminated
        assert truncated == (t == 99)


def test_the_paper_layout_is_the_specs():
    env = SafeToyEnv()
    for point, cost in (
        ((10, 40), 1),
        ((41, 40), 0),
        ((10, 41), 0),
        ((2, 20), 1),
        ((2, 19), 0),
        ((12, 46), 1),
        ((9, 5), 0),
    ):
        _, info = env.reset(options={"start": point})
        assert info["cost"] == cost, point
    _, info = env.reset(options={"start": (45, 42)})
    assert info["reached"]
    assert not env.reset(options={"start": (45, 41)})[1]["reached"]


def test_safe_cells_are_those_with_a_safe_position():
    cells = set()
    for x in range(51):
        for y in range(51):
            if not any(x0 <= x <= x1 and y0 <= y <= y1 for x0, x1, y0, y1 in PAPER_LAYOUT.unsafe):
                cells.add(min(x, 49) * 50 + min(y, 49))
    assert np.flatnonzero(safe_cells(PAPER_LAYOUT)).tolist() == sorted(cells)


def test_render_shows_the_world_and_the_path():
    env = gymnasium.make("guss/SafeToy-v0", render_mode="rgb_array")
    env.reset()
    before = env.render()
    assert before.shape == (500, 500, 3)
    assert before.dtype == np.uint8
    env.step(np.asarray([2, 2]))
    assert (env.render() != before).any()
    picture = paint(sketch_world(PAPER_LAYOUT, np.asarray([[5.0, 5.0], [25.0, 25.0]])), (0.0, 50.0))
    at = lambda x, y: picture[round(499 - y / 50 * 499), round(x / 50 * 499)].tolist()  # noqa: E731
    assert at(30, 10) == [190, 190, 190]  # unsafe
    assert at(5, 45) == [255, 255, 255]  # safe
    assert at(45, 45) == [44, 160, 44]  # goal


def test_render_without_a_mode_says_what_is_missing():
    env = SafeToyEnv()
    env.reset()
    with pytest.warns(UserWarning, match="render_mode='rgb_array'"):
        assert env.render() is None


def test_a_layout_of_ones_own(tmp_path):
    path = tmp_path / "world.toml"
    path.write_text("size = 10\nstart = [1, 1]\ngoal = [9, 9]\ngoal_radius = 1\nunsafe = [[4, 6, 0, 8]]\n")
    env = gymnasium.make("guss/SafeToy-v0", layout=path)
    assert env.reset()[0].tolist() == [1.0, 1.0]
    assert env.observation_space.high.tolist() == [10.0, 10.0]
    task = make_task("safe-toy", layout=ToyLayout.from_toml(path))
    assert float(task.costs(jnp.zeros(2), jnp.zeros(2, jnp.int32), jnp.asarray([5.0, 3.0]))[0]) == 1.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("size = -1", "size must be more than 0, got -1"),
        ("start = [99, 1]", r"start must be a point \(x, y\) within 0 … 50"),
        ("goal = [1]", "goal must be a point"),
        ("goal_radius = 0", "goal_radius must be more than 0"),
        ("unsafe = [[5, 1, 0, 3]]", "unsafe area 0 must be"),
        ("strat = [1, 1]", "Did you mean 'start'"),
        ("start = ['a', 1]", r"toy layout.start\[0\] must be a finite number, got 'a' \(str\)"),
        ("start = [", "is not TOML"),
    ],
)
def test_bad_layouts_are_told(tmp_path, text, words):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(GussError, match=words):
        ToyLayout.from_toml(path)


def test_a_missing_layout_is_told(tmp_path):
    with pytest.raises(GussError, match=r"cannot read the toy layout .*No such file"):
        ToyLayout.from_toml(tmp_path / "none.toml")


@pytest.mark.parametrize("action", [[3, 0], [0.5, 0], [0], [-1, 0]])
def test_bad_actions_are_told(action):
    env = SafeToyEnv()
    env.reset()
    with pytest.raises(GussError, match="two integers, each 0, 1 or 2"):
        env.step(np.asarray(action))


def test_a_step_before_reset_is_told():
    with pytest.raises(GussError, match="before reset"):
        SafeToyEnv().step(np.asarray([0, 0]))
    with pytest.raises(GussError, match="within 0 … 50"):
        SafeToyEnv().reset(options={"start": (60, 0)})
    with pytest.raises(GussError, match="Did you mean 'rgb_array'"):
        SafeToyEnv(render_mode="rgb_aray")
