"""A stored episode planned again, and drawn."""

import itertools
import shutil

import jax.numpy as jnp
import numpy as np
import pytest
from helpers.short_runs import ORIGIN, add, config, run_one, short_pendulum
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from guss.constraint import Constraint, with_params
from guss.envs import ENVS, EnvSpec
from guss.envs.pendulum import VIEW
from guss.errors import GussError
from guss.reports.inventory import read_record
from guss.reports.replay_figure import ReplayFigure, write_replay
from guss.reports.run_summary import write_figures
from guss.runs.animator import Animator
from guss.runs.replay import Candidates, Replay
from guss.runs.tracks import drawn_dims, find_dims
from guss.runs.views import BehaviourMap
from guss.task import Grid
from guss.types import ContinuousActions, Observations

ENVS.add("shown-pendulum", EnvSpec("none", short_pendulum, VIEW), summary="for tests", origin=__name__)
add("shown-plainly", lambda: short_pendulum(grid=Grid((-4.0,), (4.0,), (7,)), descriptor=lambda r: r.next_obs[-1, :1]))
GUSS = {"method": "guss", "method_settings": {"num_initial": 10}, "episodes": 4}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return run_one(config(env="shown-pendulum", **GUSS), tmp_path_factory.mktemp("stored"), ORIGIN)


@pytest.mark.parametrize("episode", [3, 1])
def test_a_planned_episode_is_planned_again(stored, episode):
    """The last one with the checkpoint's models, an earlier one with models fitted again."""
    fits = []
    replay = Replay(stored, episode, 4, fits.append)
    steps = list(replay.steps())
    assert len(fits) == (0 if episode == 3 else 1)
    assert [step.step for step in steps] == list(range(25))
    assert replay.verdict() == f"episode {episode} of seed 4, plans recomputed: all actions match the stored actions"
    for step in steps:
        snapshot, plans = step.snapshot, step.snapshot.candidates
        assert plans.paths.shape == (20, 3, 3)
        assert snapshot.diagnostics.evaluated == 20
        assert snapshot.diagnostics.safe_share == pytest.approx(plans.safe.mean())
        near = np.abs(plans.paths - snapshot.chosen).max(axis=(1, 2)) < 1e-4
        assert near.any(), "what was chosen is one of the plans"
        if plans.safe.any():
            assert plans.safe[near].any()
            assert plans.reward[near].max() == plans.reward[plans.safe].max()
        assert snapshot.behaviour.shape == (2,)


def test_other_plans_than_those_of_the_run_are_reported(stored, tmp_path):
    home = shutil.copytree(stored, tmp_path / "run")
    path = home / "traces" / "seed3-ep3.npz"
    with path.open("rb") as file:
        held = dict(np.load(file))
    held["action"] = held["action"] + np.float32(0.1)
    np.savez(path, **held)
    replay = Replay(home, None, None)
    list(replay.steps())
    assert "0 of 25 actions match the stored actions; the others differ" in replay.verdict()


def test_a_random_episode_has_no_plans(stored, tmp_path):
    replay = Replay(stored, 0, None)
    assert all(step.snapshot is None for step in replay.steps())
    assert replay.verdict() == "episode 0 of seed 3, random actions"
    assert replay.num_episodes == 4
    write_replay(replay, tmp_path / "x.gif", every=5)
    with Image.open(tmp_path / "x.gif") as animation:
        assert animation.n_frames == 6


def test_the_command_says_where_episodes_count_from(stored, tmp_path, guss_here):
    done = guss_here("replay", stored, "--episode", 0, "--step", 0, "--out", tmp_path / "x.png", check=0)
    assert "episode 0 of seed 3, random actions (episodes count from 0: the run has 0 to 3)" in done.stdout


def test_the_animation_shows_every_step_asked_for(stored, tmp_path):
    steps = []
    write_replay(Replay(stored, None, None), tmp_path / "new" / "x.gif", every=6, on_step=steps.append)
    assert steps == list(range(1, 26))
    with Image.open(tmp_path / "new" / "x.gif") as animation:
        assert animation.n_frames == 5
        frames = []
        for i in range(animation.n_frames):
            animation.seek(i)
            frames.append(np.asarray(animation.convert("RGB"), int))
    assert all(np.abs(a - b).max() > 100 for a, b in itertools.pairwise(frames)), "they move"
    write_replay(Replay(stored, None, None), tmp_path / "x.png", step=-1)
    with Image.open(tmp_path / "x.png") as image:
        assert image.width > 1000


@pytest.mark.parametrize("env", ["shown-plainly", "safe-toy"])
def test_any_environment_can_be_drawn(tmp_path, env):
    """One that says nothing of how it is shown, with one dimension of behaviour; and one that moves in a plane."""
    home = run_one(config(env=env, model="oracle", initial_episodes=0, seeds=(0,), episodes=1), tmp_path, ORIGIN)
    write_replay(Replay(home, None, None), tmp_path / "x.png", step=20)
    with Image.open(tmp_path / "x.png") as image:
        assert len(image.convert("RGB").getcolors(1 << 20)) > 50


def test_angles_that_wrap_are_not_joined(stored):
    figure = ReplayFigure(Animator(Replay(stored, 0, None)), dpi=40)
    steps, angles = figure.panels._curve(np.asarray([170.0, 178.0, -175.0, -170.0]), start=-1)
    np.testing.assert_array_equal(angles, [170.0, 178.0, np.nan, -175.0, -170.0])
    np.testing.assert_array_equal(steps, [-1.0, 0.0, np.nan, 1.0, 2.0])
    figure.close()


def test_labels_do_not_overlap(stored):
    """Neither the title and the legend, nor one panel's labels and its neighbour."""
    animator = Animator(Replay(stored, None, None))
    figure = ReplayFigure(animator, dpi=130)
    figure.draw(next(animator.frames([0])))
    renderer = figure.figure.canvas.get_renderer()
    boxes = [axes.get_tightbbox(renderer) for axes in figure.figure.axes]
    boxes += [figure.title.get_window_extent(renderer), figure.figure.legends[0].get_window_extent(renderer)]
    for a, b in itertools.combinations(boxes, 2):
        assert not a.overlaps(b)
    assert all(figure.figure.bbox.containsx(edge) for box in boxes for edge in (box.x0, box.x1))
    figure.close()


# --------------------------------------------------------------------------------------------------- by dimensions


def too_fast(obs, action, next_obs, limit):
    return jnp.abs(next_obs[2]) > limit


NAMES = ("cosine", "sine", "speed")
add(
    "named-pendulum",
    lambda: short_pendulum(
        observations=Observations(low=(-1.0, -1.0, -8.0), high=(1.0, 1.0, 8.0), names=NAMES),
        actions=ContinuousActions(low=(-2.0,), high=(2.0,), names=("torque",)),
        constraints=[Constraint("too_fast", with_params(too_fast, limit=2.5))],
    ),
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    about = {"env": "named-pendulum", "model": "oracle", "initial_episodes": 0, "seeds": (0,), "episodes": 1}
    return Replay(run_one(config(**about), tmp_path_factory.mktemp("plain"), ORIGIN), None, None)


def texts_of(figure):
    labels = [axes.get_ylabel() for axes in figure.axes if axes.get_ylabel()]
    return labels, [text.get_text() for axes in figure.axes for text in axes.texts]


def test_a_custom_system_is_drawn_by_its_dimensions_with_limits_and_actions(plain):
    animator = Animator(plain, ())
    figure = ReplayFigure(animator, dpi=40)
    labels, texts = texts_of(figure.figure)
    assert labels == [*NAMES, "action: torque"]
    assert any(text.startswith(("too_fast: at most 2.5", "too_fast: -2.5 to 2.5 (not in view)")) for text in texts)
    frame = figure.draw(next(animator.frames([5])))
    assert "step 5 (0 to 24)" in figure.title.get_text(), "the number that --step takes"
    assert len(np.unique(frame.reshape(-1, 3), axis=0)) > 50
    figure.close()


def test_chosen_dimensions_are_drawn_in_their_order_and_misspelled_ones_are_errors(plain, tmp_path):
    figure = ReplayFigure(Animator(plain, ("speed", "0")), dpi=40)
    assert texts_of(figure.figure)[0] == ["speed", "cosine", "action: torque"]
    figure.close()
    with pytest.raises(GussError, match=r"unknown dimension of the observation: 'sped'.*speed"):
        write_replay(plain, tmp_path / "x.png", step=3, dims=("sped",))
    with pytest.raises(GussError, match="unknown dimension of the observation: '3'"):
        find_dims(NAMES, ["3"])
    many = [f"dimension {i}" for i in range(20)]
    assert drawn_dims(many, (), [17]) == [0, 1, 2, 3, 4, 5, 6, 17], "those with limits come first"
    assert drawn_dims(many, ["dimension 9", "9"], [17]) == [9]


def test_the_page_shows_the_dimension_that_has_a_limit(plain):
    assert plain.view.labels == ("speed",)
    np.testing.assert_allclose([zone for zone in plain.view.unsafe], [(plain.view.limits[0][0], -2.5),
                               (2.5, plain.view.limits[0][1])], rtol=1e-6)  # fmt: skip


@given(data=st.data())
def test_the_map_holds_the_best_safe_plan_of_each_cell(data):
    cells, count = (4, 3, 5), data.draw(st.integers(1, 12))
    draw = lambda strategy: np.asarray(data.draw(st.lists(strategy, min_size=count, max_size=count)))  # noqa: E731
    cell, safe, finite, reward = (draw(x) for x in (st.integers(0, 59), st.booleans(), st.booleans(), st.floats(-5, 5)))
    picked = BehaviourMap.__new__(BehaviourMap)
    picked.cells, picked.dims, picked.shape = cells, [0, 2], (4, 5)
    rewards, risky = picked.best(Candidates(None, reward, safe, finite, cell))
    for i in range(4):
        for j in range(5):
            here = [k for k in range(count) if finite[k] and cell[k] // 15 == i and cell[k] % 5 == j]
            good = [reward[k] for k in here if safe[k]]
            assert np.isnan(rewards[i, j]) if not good else rewards[i, j] == max(good)
            assert risky[i, j] == (bool(here) and not good)


def test_missing_episodes_and_steps_are_errors(stored, tmp_path):
    with pytest.raises(GussError, match="has episodes 0 to 3, got episode 4"):
        Replay(stored, 4, None)
    with pytest.raises(GussError, match="unknown seed of the run: '5'"):
        Replay(stored, None, 5)
    replay = Replay(stored, 0, None)
    for path, step, text in (
        ("x.mp4", None, "is written to a .gif"),
        ("x.png", None, "one step is written to a .png, a whole episode to a .gif"),
        ("x.gif", 3, "one step is written to a .png, a whole episode to a .gif"),
        ("x.png", 25, "has steps 0 to 24, got step 25"),
    ):
        with pytest.raises(GussError, match=text):
            write_replay(replay, tmp_path / path, step=step)
    with pytest.raises(GussError, match="must be at least 1, got 0 and 15"):
        write_replay(replay, tmp_path / "x.gif", every=0)
    assert not list(tmp_path.iterdir())


def test_learning_curves_of_runs_of_different_length(stored, tmp_path):
    short = run_one(config(env="shown-pendulum", method="random", episodes=1, seeds=(3,)), tmp_path, ORIGIN)
    home = shutil.copytree(stored, tmp_path / "run")
    (picture,) = write_figures([read_record(home), read_record(short)])
    assert picture == home / "figures" / "learning.png"
    assert "GuSS" in (home / "figures" / "learning.svg").read_text()
    assert Replay(home, 0, None).view is VIEW
