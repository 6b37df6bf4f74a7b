"""`guss fit` and `guss run` on data that cannot support what they would report."""

import json
import re

import numpy as np
import pytest
from helpers.short_runs import ORIGIN, run_one

from guss.agent import Agent
from guss.collect.datasets import read_trace
from guss.envs import ENVS, EnvSpec
from guss.envs.adapters import Adapted, describe
from guss.errors import GussWarning
from guss.models.factory import ModelSettings
from guss.models.training import FitSettings
from guss.plugins import load_object
from guss.runs.config import RunConfig
from guss.runs.store import read_lines

FAST = ("--fit.max-steps", "60", "--model.hidden", "8", "--horizon", "2")


def write_log(path, episodes=6, length=20, unsafe_from=np.inf, skip=False, **columns):
    """A cart pushed to and fro; rows are unsafe from a position on."""
    random = np.random.default_rng(0)
    rows = []
    for episode in range(episodes):
        x = random.uniform(-1, 1)
        for _ in range(length):
            a = random.uniform(-1, 1)
            after = x + 0.3 * a
            rows.append([x, a, after, -abs(after), float(after > unsafe_from), episode, int(skip)])
            x = after
    names = ["obs_0", "action_0", "next_obs_0", "reward", "cost", "episode", "skip"]
    path.write_text("\n".join([",".join(names), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


@pytest.mark.parametrize("rows", [3, 4])
def test_a_model_without_held_out_rows_has_no_error_instead_of_a_perfect_one(rows, tmp_path, guss_here):
    log = write_log(tmp_path / "log.csv", episodes=1, length=rows)
    done = guss_here("fit", "--data", log, "--no-test", *FAST, "--out", tmp_path / "models", check=0)
    assert "1.0000" not in done.stdout + done.stderr
    assert "R² –" in done.stderr
    assert "Not evaluated" in done.stdout
    figures = json.loads((tmp_path / "models" / "log" / "fit.json").read_text())
    assert figures["held_out_rows"] == 0
    assert figures["r2"] == [None]
    assert figures["nll"] is None
    assert figures["ks"] == [None]


def test_data_that_are_all_skipped_are_an_error(tmp_path, guss_here):
    log = write_log(tmp_path / "log.csv", skip=True)
    done = guss_here("fit", "--data", log, *FAST, "--out", tmp_path / "models", check=2)
    assert "no transitions to train a model on: 0 of 100 are usable" in done.stderr
    assert not (tmp_path / "models").exists()


def test_fit_evaluates_reward_and_cost_and_says_where_unsafe_examples_lie(tmp_path, guss_here):
    log = write_log(tmp_path / "log.csv", episodes=30, unsafe_from=0.8)
    flags = ("--fit.max-steps", "1500", "--model.hidden", "16", "--horizon", "2", "--out", tmp_path / "models")
    done = guss_here("fit", "--data", log, *flags, check=0)
    found = json.loads((tmp_path / "models" / "log" / "fit.json").read_text())
    assert set(found["outcomes"]) == {"reward", "cost"}
    assert found["outcomes"]["reward"]["r2"] > 0.8
    assert 0.0 <= found["outcomes"]["cost"]["log_loss"] < 0.3
    unsafe = found["unsafe_examples"]["cost"]
    assert unsafe["unsafe"] == found["outcomes"]["cost"]["examples"] > 10
    assert unsafe["low"][0] > 0.8
    assert "observed states are unsafe; they lie at obs[0] 0.8" in done.stdout


def test_fit_warns_of_data_without_an_unsafe_row(tmp_path, guss_here):
    log = write_log(tmp_path / "log.csv")
    done = guss_here("fit", "--data", log, *FAST, "--out", tmp_path / "models", check=0)
    assert "none of 100 observed states is unsafe" in " ".join(done.stdout.split())


class Track:
    """A cart that is unsafe beyond ±1, on a floor that slopes to one side: with random actions it only meets that."""

    def __init__(self):
        from gymnasium import spaces

        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        self.random = np.random.default_rng(seed)
        self.x = self.random.uniform(-0.1, 0.1)
        return np.asarray([self.x], np.float32), {}

    def step(self, action):
        self.x += 0.02 * float(np.asarray(action)[0]) - 0.06
        return np.asarray([self.x], np.float32), -abs(self.x), False, False, {"cost": float(abs(self.x) > 1.0)}


def test_a_run_warns_once_of_unsafe_examples_on_one_side_only(tmp_path):
    make = lambda: Adapted(Track())  # noqa: E731
    spec = EnvSpec("", lambda: describe(make(), "track", episode_length=30), make_env=make)
    ENVS.add("track-test", spec, summary="a test's", origin="test")
    small = {"model_settings": ModelSettings(hidden=(4,)), "fit": FitSettings(max_steps=20, warm_steps=10)}
    config = RunConfig(env="track-test", method="s-rs", seeds=(0, 1), episodes=3, horizon=2, budget=8, **small)
    news = []
    home = run_one(config, tmp_path, ORIGIN, news.append)
    assert [len(each.warnings) for each in news] == [0, 1, 0]
    assert "plans treat that side as safe" in news[1].warnings[0]
    events = []
    say = lambda kind: lambda text: events.append((kind, text))  # noqa: E731
    run_one(config, tmp_path, ORIGIN, overwrite=True, on_stage=say("stage"), on_warning=say("warning"))
    kinds = [kind for kind, text in events if kind == "warning" or text in ("fitting the model", "planning")]
    assert kinds[:3] == ["warning", "stage", "stage"], "before the fit and the episode that it is about"
    assert kinds.count("warning") == 1
    counts = [row["unsafe_examples"]["cost"] for row in read_lines(home / "timings.jsonl") if "unsafe_examples" in row]
    assert len(counts) == 2
    assert all(count > 0 for each in counts for count in each)
    assert sum(counts[1]) > sum(counts[0])


def test_files_are_joined_only_if_all_have_costs(tmp_path, guss_here):
    log = write_log(tmp_path / "log.csv", unsafe_from=0.8)
    lines = [",".join(word for i, word in enumerate(row.split(",")) if i != 4) for row in log.read_text().splitlines()]
    (tmp_path / "without.csv").write_text("\n".join(lines) + "\n")
    done = guss_here("fit", "--data", log, tmp_path / "without.csv", *FAST, "--out", tmp_path / "models", check=2)
    text = " ".join(done.stderr.split())
    assert re.search(r"cost has shape \[120, 1\] in \S*log\.csv and is missing in \S*without\.csv", text), text


def test_unsafe_rows_that_cannot_be_used_are_reported(tmp_path):
    """Without next_obs, an episode's last row has no step to learn from: on a system that stops there, all are lost."""
    path = tmp_path / "log.csv"
    rows = [[e * 0.1 + t, 0.5, float(t == 4), int(t == 4)] for e in range(3) for t in range(5)]
    path.write_text("obs_0,action_0,cost,terminated\n" + "\n".join(",".join(map(str, row)) for row in rows) + "\n")
    with pytest.warns(GussWarning, match="3 unsafe rows are left out"):
        trace = read_trace(path)
    assert trace.num_rows == 12


@pytest.mark.filterwarnings("ignore:the logged data have no column `terminated`")
def test_a_fitted_model_loads_with_what_its_preset_learns(tmp_path, guss_here):
    (tmp_path / "plant.py").write_text(
        "import jax.numpy as jnp, numpy as np, guss\n"
        "def cost(obs, action, next_obs, limit):\n    return next_obs[0] > limit\n"
        "task = guss.Task(name='plant', observations=guss.Observations((-np.inf,), (np.inf,)),\n"
        "    actions=guss.ContinuousActions((-1.0,), (1.0,)), reward=lambda o, a, n: -jnp.abs(n[0]),\n"
        "    constraints=[guss.Constraint('cost', guss.with_params(cost, limit=0.8))],\n"
        "    descriptor=None, grid=None, episode_length=20)\n"
    )
    (tmp_path / "preset.toml").write_text('learned = ["cost"]\nplanning_margin = 0.06\n')
    log = write_log(tmp_path / "log.csv", unsafe_from=0.8)
    flags = ("--env", "plant.py:task", "--preset", "preset.toml", *FAST, "--out", tmp_path / "models")
    guss_here("fit", "--data", log, *flags, check=0)
    assert "cost" in json.loads((tmp_path / "models" / "log" / "fit.json").read_text())["unsafe_examples"]
    task = load_object(f"{tmp_path / 'plant.py'}:task")
    agent = Agent.load(tmp_path / "models" / "log" / "model.ckpt", task)
    assert agent.act(np.zeros(1)).shape == (1,)
    assert float(agent.planning_task.constraints[0].cost.params["threshold"]) == pytest.approx(0.04)


@pytest.mark.filterwarnings("always:the logged data have no column `terminated`")
def test_columns_of_costs_give_them_their_names_and_a_warning_is_given_once(tmp_path, guss_here):
    log = write_log(tmp_path / "log.csv", unsafe_from=0.8)
    lines = log.read_text().replace("cost", "too_hot", 1).replace("skip", "too_wet", 1)
    log.write_text(lines)
    flags = ("--columns", "cost=too_hot,too_wet", *FAST, "--out", tmp_path / "models")
    done = guss_here("fit", "--data", log, *flags, check=0)
    assert "cost of too_hot" in done.stdout
    assert "cost of too_wet" in done.stdout
    (tmp_path / "plant.py").write_text(
        "import numpy as np, guss\n"
        "task = guss.Task(name='plant', observations=guss.Observations((-np.inf,), (np.inf,)),\n"
        "    actions=guss.ContinuousActions((-1.0,), (1.0,)), reward=None, learns_end=True,\n"
        "    constraints=[guss.Constraint('hot'), guss.Constraint('wet')],\n"
        "    descriptor=None, grid=None, episode_length=20)\n"
    )
    done = guss_here("fit", "--data", log, "--env", "plant.py:task", "--overwrite", *flags, check=0)
    assert done.stderr.count("have no column `terminated`") == 1
