"""SafeCar-Goal from the first random step to the animation, small."""

import json

import numpy as np
import pytest
from helpers.short_runs import run_one
from PIL import Image

import guss
from guss.envs import ENVS, EnvSpec
from guss.envs.car import VIEW, car_task, full_task
from guss.models.factory import ModelSettings
from guss.models.training import FitSettings
from guss.plugins import find_preset, load_preset
from guss.reports.inventory import read_record
from guss.reports.replay_figure import write_replay
from guss.reports.run_summary import summarise_run, write_figures
from guss.runs.config import RunConfig
from guss.runs.evaluation import evaluate_run
from guss.runs.replay import Replay
from guss.runs.store import read_lines, trace_path
from guss.runs.trainer import Trainer

LENGTH = 30
SHORT = {"guss/SafeCarGoal-v0": car_task, "guss/SafeCarGoalFull-v0": full_task}
for gym_id, make in SHORT.items():
    ENVS.add(
        f"short-car{'-full' * (make is full_task)}",
        EnvSpec(gym_id, lambda make=make: make().replace(episode_length=LENGTH), VIEW, measure="return"),
        summary="for tests",
        origin=__name__,
    )


def config(**changes):
    values = {
        "env": "short-car",
        "method": "guss",
        "seeds": (3, 4),
        "episodes": 3,
        "horizon": 4,
        "budget": 10,
        "method_settings": {"num_initial": 5, "num_new": 5, "policy_hidden": [3]},
        "model": "egocentric",
        "model_settings": ModelSettings(hidden=(8,)),
        "fit": FitSettings(max_steps=200, warm_steps=50),
        "planning_margin": 0.05,
    }
    return RunConfig(**(values | changes))


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """One run for all."""
    return run_one(config(), tmp_path_factory.mktemp("car"), {"command": "test"})


def test_a_run_on_the_car_is_measured_by_returns(stored):
    rows = read_lines(stored / "episodes.jsonl")
    assert [row["phase"] for row in rows] == ["random"] * 2 + ["plan"] * 4
    summary = summarise_run(stored)
    assert summary["measure"] == "return"
    second_half = [row["return"] for row in rows if row["episode"] >= 1]
    assert np.isclose(summary["mar"][0], np.mean(second_half), atol=1e-3)
    with np.load(trace_path(stored, 3, 2)) as file:
        trace = dict(file)
    np.testing.assert_array_equal(trace["cost"][:, 0], (trace["next_obs"][:, 12:] > 0.9).any(axis=1))
    timing = read_lines(stored / "timings.jsonl")[-1]
    assert np.shape(timing["r2"]) == np.shape(timing["r2_horizon"]) == (2, 22)
    assert timing["ks"][0][:10] != [None] * 10
    assert timing["ks"][0][10:] == [None] * 12
    assert json.loads((stored / "config.json").read_text())["config"]["planning_margin"] == 0.05


def test_its_episodes_are_planned_again_and_drawn(stored, tmp_path):
    replay = Replay(stored, None, 4)
    told = []
    write_replay(replay, tmp_path / "car.gif", every=10, last=tmp_path / "last.png", on_step=told.append)
    assert "all actions match the stored actions" in replay.verdict()
    with Image.open(tmp_path / "car.gif") as animation:
        assert animation.n_frames == 4  # steps 0, 10, 20 and the last
    assert write_figures([read_record(stored)])[0].exists()


def test_what_it_learned_can_be_put_to_work(stored):
    found = evaluate_run(stored, 1)
    assert found.mean_reward.shape == (2, 1)
    assert np.isfinite(found.mean_reward).all()


def test_plans_in_copies_of_the_simulator():
    """The oracle of a host environment: nothing learned, and the next state predicted is the one that comes."""
    small = {"method": "s-rs", "method_settings": {}, "budget": 4, "seeds": (3,)}
    full = config(env="short-car-full", model="oracle", initial_episodes=0, **small)
    trainer = Trainer(full)
    assert trainer.task.step is not None
    found = trainer.iterate()
    assert found.summary.phase == "plan"
    assert found.trajectory.obs.shape == (1, 1, LENGTH, 65)


@pytest.mark.parametrize("name", ["safe-car-goal", "safe-car-goal-learned", "safe-car-goal-paper"])
@pytest.mark.parametrize("method", ["guss", "rs", "cem", "rcem"])
def test_the_presets_have_the_papers_planners(name, method):
    import dataclasses

    from guss.methods.presets import settings_from

    settings = settings_from(RunConfig, load_preset(name), method, env="safe-car-goal", seeds=(0,))
    assert settings.horizon == 30
    assert settings.budget == (525 if method == "guss" else 3000)
    planner = guss.make_planner(
        method,
        car_task(),
        horizon=settings.horizon,
        budget=settings.budget,
        **dataclasses.asdict(settings.method_settings),
    )
    expected = {"guss": (25,) + (10,) * 50, "rs": (3000,)}.get(method, (600,) * 5)
    assert planner.schedule(planner.budget) == expected
    assert find_preset("safe-car-goal")["model"]["name"] == "egocentric"
