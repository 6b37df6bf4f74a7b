"""The cooling plant: a proper environment, a Task that says the same of it, and a page that shows what is stored."""

import json
import re
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from guss.plugins import load_module

ROOT = Path(__file__).resolve().parents[1]
STORED = ROOT / "results" / "cooling"


@pytest.fixture(scope="module")
def plant():
    return load_module(str(ROOT / "examples" / "cooling_plant.py"))


def test_the_plant_is_a_proper_environment(plant):
    check_env(plant.make_env(), skip_render_check=True)


def test_a_seed_is_a_day_whatever_the_cooling_does(plant):
    idle, _ = plant.operate(lambda obs: np.zeros(1), 7)
    full, actions = plant.operate(lambda obs: np.ones(1), 7)
    other, _ = plant.operate(lambda obs: np.zeros(1), 8)
    assert idle.shape == (plant.STEPS + 1, 3)
    np.testing.assert_array_equal(idle[:, 1:], full[:, 1:])
    assert (idle[-1, 1:] != other[-1, 1:]).all()
    assert (idle[1:, 0] > full[1:, 0]).all()
    assert plant.evaluate(full, actions)[0] == pytest.approx(24 * plant.FULL_POWER)


def test_heat_goes_from_warm_to_cold(plant):
    """Without load and cooling the room goes towards the outside; cooling cools only where it is colder outside."""
    assert 14.0 < plant.warmed(20.0, 0.0, 14.0, 0.0) < 20.0
    assert plant.warmed(20.0, 0.0, 14.0, 1.0) < plant.warmed(20.0, 0.0, 14.0, 0.0)
    assert plant.warmed(20.0, 0.0, 26.0, 1.0) > plant.warmed(20.0, 0.0, 26.0, 0.0) > 20.0


def test_the_task_says_what_the_plant_says(plant):
    env, task, rng = plant.make_env(), plant.plant_task(), np.random.default_rng(0)
    obs, _ = env.reset(seed=1)
    costs = []
    for _ in range(100):
        action = rng.uniform(0, 0.5, 1).astype(np.float32)
        next_obs, reward, _, _, info = env.step(action)
        np.testing.assert_allclose(task.reward(obs, action, next_obs), reward, rtol=1e-5)
        assert task.costs(jnp.asarray(obs), jnp.asarray(action), jnp.asarray(next_obs)) == info["cost"]
        costs.append(info["cost"])
        obs = next_obs
    assert 0 < np.mean(costs) < 1


def test_the_example_runs():
    words = ["--episodes", "4", "--days", "1", "--budget", "25", "--fit-steps", "100"]
    command = [sys.executable, "examples/cooling_plant.py", *words]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert re.search(r"day 4: guss +[\d.]+ kWh, [\d.]+ % unsafe", process.stdout)
    assert re.search(r"thermostat +[\d.]+ kWh a day, [\d.]+ % of the time unsafe\nguss +[\d.]+ kWh", process.stdout)


def test_the_thermostat_is_the_one_that_was_tuned(plant):
    tuned = json.loads((STORED / "tuning.json").read_text())["rivals"]["thermostat"]
    assert plant.thermostat.__defaults__ == tuple(tuned["settings"].values())
    assert tuned["unsafe_pct"] <= 0.1


def test_the_claim_is_stored():
    summary = json.loads((STORED / "summary.json").read_text())
    assert re.fullmatch("[0-9a-f]{40}", summary["provenance"]["commit"]), "results come from a commit, not from changes"
    results = summary["results"]
    rows = summary["days"]["guss"]
    assert sorted({row["seed"] for row in rows}) == [0, 1, 2, 3, 4, 5]
    for name, found in results.items():
        days = summary["days"][name]
        assert [(row["seed"], row["day"]) for row in days] == [(row["seed"], row["day"]) for row in rows]
        assert found["kwh"] == pytest.approx(np.mean([row["kwh"] for row in days]))
        assert found["unsafe_pct"] == pytest.approx(np.mean([row["unsafe_pct"] for row in days]))
    assert results["guss"]["kwh"] <= 0.85 * results["thermostat"]["kwh"]
    assert results["guss"]["unsafe_pct"] <= results["thermostat"]["unsafe_pct"]
    hot = {phase: [row["unsafe_pct"] for row in summary["learning"] if row["phase"] == phase]
           for phase in ("plan", "initial_policy")}  # fmt: skip
    assert (len(hot["plan"]), max(hot["plan"]), len(hot["initial_policy"])) == (30, 0.0, 18)
