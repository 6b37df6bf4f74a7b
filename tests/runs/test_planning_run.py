import json
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.short_runs import ORIGIN, add, config, run_one, short_pendulum

from guss.cli.main import parse
from guss.collect.datasets import read_episode
from guss.envs import make_task
from guss.errors import GussError
from guss.models.factory import ModelSettings
from guss.models.training import FitSettings
from guss.plugins import load_preset
from guss.reports.run_summary import summarise_run
from guss.runs.store import by_seed, read_lines


def nan_reward(obs, action, next_obs):
    return jnp.where(next_obs[2] > -1e9, jnp.nan, 0.0)


def nan_step(obs, action, key):
    return obs + jnp.asarray([0.0, jnp.nan, 0.0])


add("nan-reward", lambda: short_pendulum(reward=nan_reward))
add("nan-step", lambda: short_pendulum(step=nan_step))


def test_a_run_leaves_the_records_of_the_design(tmp_path):
    told = []
    home = run_one(config(), tmp_path, ORIGIN, told.append)
    assert home.name.startswith("short-pendulum-rs-")
    assert len(home.name.split("-")[-1]) == 8
    episodes = read_lines(home / "episodes.jsonl")
    assert [(e["seed"], e["episode"]) for e in episodes] == [(s, e) for e in range(3) for s in (3, 4)]
    assert [e["phase"] for e in episodes] == ["random"] * 2 + ["plan"] * 4
    assert list(episodes[0]) == [
        "seed", "episode", "phase", "steps", "total_steps", "return", "mean_reward", "unsafe_steps", "unsafe_pct",
        "costs", "jitter", "hard_stop", "status",
    ]  # fmt: skip
    assert episodes[-1]["total_steps"] == 75
    task = make_task("short-pendulum")
    for row in episodes:
        with (home / "traces" / f"seed{row['seed']}-ep{row['episode']}.npz").open("rb") as file:
            trace = dict(np.load(file))
        assert set(trace) == {"obs", "action", "reward", "cost", "next_obs", "terminated", "truncated", "skip"}
        assert {trace[name].dtype for name in ("terminated", "truncated", "skip")} == {np.dtype(bool)}
        assert trace["obs"].shape == (25, 3)
        np.testing.assert_array_equal(trace["obs"][1:], trace["next_obs"][:-1])
        assert math.isclose(row["mean_reward"], trace["reward"].mean(dtype=float))
        assert row["unsafe_steps"] == (trace["cost"] > 0).sum() == row["costs"]["unsafe_angle"]
        assert row["unsafe_pct"] == 4.0 * row["unsafe_steps"]
        assert trace["truncated"].tolist() == [False] * 24 + [True]
        step = task.step(jnp.asarray(trace["obs"][7]), jnp.asarray(trace["action"][7]), jax.random.key(0))
        np.testing.assert_allclose(step, trace["next_obs"][7], atol=1e-5)
    timings = read_lines(home / "timings.jsonl")
    assert len(timings) == 3
    for name in ("nll", "r2", "ks", "r2_horizon", "fit_seconds", "plan_seconds", "compile_seconds"):
        assert name in timings[1]
    assert np.asarray(timings[1]["r2_horizon"]).shape == (2, 3)
    assert timings[2]["compiled_programs"] == 0, "no compilation after the first planned episode"
    assert [n.episode for n in told] == [0, 1, 2]


def test_the_same_settings_give_the_same_bytes(tmp_path):
    first = run_one(config(), tmp_path / "a", ORIGIN)
    second = run_one(config(), tmp_path / "b", ORIGIN)
    assert (first / "episodes.jsonl").read_bytes() == (second / "episodes.jsonl").read_bytes()
    other = run_one(config(seeds=(5, 6)), tmp_path / "a", ORIGIN)
    assert other != first
    assert (other / "episodes.jsonl").read_bytes() != (first / "episodes.jsonl").read_bytes()


def test_the_measures_are_those_of_the_records(tmp_path):
    home = run_one(config(model="oracle", initial_episodes=1), tmp_path, ORIGIN)
    summary = summarise_run(home)
    rewards = by_seed(read_lines(home / "episodes.jsonl"), "mean_reward")
    assert summary["seeds"] == 2
    assert summary["episodes"] == 3
    assert math.isclose(summary["mar"][0], rewards[:, 1:].mean(), abs_tol=1e-4)
    assert summary["mrcp_ksteps"] == [None, None], "an environment without a threshold has none"


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ("nan-reward", r"reward of task 'safe-pendulum' is not finite in episode 0, step 0, seed 3: nan"),
        ("nan-step", r"next_obs of task .* is not finite in episode 0, step 0, seed 3, sin\(angle\)"),
    ],
)
def test_what_is_not_finite_is_told_with_episode_and_dimension(tmp_path, env, words):
    with pytest.raises(GussError, match=words):
        run_one(config(env=env), tmp_path, ORIGIN)


def test_a_model_that_diverges_is_told_and_what_was_finished_is_kept(tmp_path):
    settings = FitSettings(epochs=50, learning_rate=1e20, loss="nll")
    with pytest.raises(GussError, match=r"the fit before episode 1 diverged \(seeds \[3, 4\]"):
        run_one(config(fit=settings), tmp_path, ORIGIN)
    (home,) = tmp_path.iterdir()
    assert len(read_lines(home / "episodes.jsonl")) == 2


@pytest.mark.parametrize("propagation", ["member", pytest.param("resampled", marks=pytest.mark.long)])
def test_ensembles_learn_in_a_run(tmp_path, propagation):
    net = ModelSettings(hidden=(8,), ensemble=2, propagation=propagation)
    home = run_one(config(model_settings=net, model="dmdn", episodes=2), tmp_path, ORIGIN)
    (_, timing) = read_lines(home / "timings.jsonl")
    assert np.asarray(timing["r2"]).shape == np.asarray(timing["r2_horizon"]).shape == (2, 3)
    assert np.isfinite(timing["nll"]).all()


def test_the_random_method_fits_nothing_and_its_actions_are_independent(tmp_path):
    home = run_one(config(method="random", episodes=40), tmp_path, ORIGIN)
    assert {e["phase"] for e in read_lines(home / "episodes.jsonl")} == {"random"}
    assert "nll" not in read_lines(home / "timings.jsonl")[-1]
    actions = [read_episode(file).action[:, 0] for file in (home / "traces").iterdir()]
    neighbours = np.concatenate([np.stack([a[:-1], a[1:]]) for a in actions], axis=1)  # 80 episodes × 24 pairs
    assert abs(np.corrcoef(neighbours)[0, 1]) < 0.1  # 4.4 standard errors: one false alarm in 100,000


def test_a_run_stops_at_the_target(tmp_path):
    told = []
    home = run_one(config(model="oracle", episodes=4, target=-100.0), tmp_path, ORIGIN, told.append)
    assert [n.phase for n in told] == ["random", "plan"]
    assert len(read_lines(home / "episodes.jsonl")) == 4


def test_fits_after_the_first_take_fewer_steps(tmp_path):
    long = config(fit=FitSettings(epochs=10**6, batch=5, max_steps=500, warm_steps=5))
    timings = read_lines(run_one(long, tmp_path, ORIGIN) / "timings.jsonl")
    assert max(timings[1]["best_epoch"]) > 2, "22 rows are 5 steps an epoch, so 100 epochs"
    assert max(timings[2]["best_epoch"]) == 0, "one epoch"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seeds": ()}, "needs distinct seeds"),
        ({"episodes": 0}, "at least 1 episode"),
        ({"initial_episodes": 0}, "at least 1 random episode"),
        ({"explore": "smoth"}, "Did you mean 'smooth'"),
    ],
)
def test_bad_runs_are_told(change, words):
    with pytest.raises(GussError, match=words):
        config(**change)


def test_a_preset_of_ones_own_gives_the_settings_and_flags_override_them(guss_here, tmp_path):
    preset = tmp_path / "mine.toml"
    preset.write_text(
        'env = "safe-pendulum"\nepisodes = 2\nhorizon = 3\nbudget = 20\n'
        '[model]\nname = "dmdn"\nhidden = [8]\n[fit]\nmax_steps = 20\n[methods.rs]\n'
    )
    words = ["--preset", preset, "--method", "rs", "--seeds", "1", "--out", "runs", "--quiet"]
    guss_here("run", *words, "--horizon", "4", "--model.components", "2", "--fit.loss", "nll", check=0)
    (home,) = (tmp_path / "runs").iterdir()
    stored = json.loads((home / "config.json").read_text())["config"]
    assert (stored["horizon"], stored["budget"], stored["episodes"], stored["model"]) == (4, 20, 2, "dmdn")
    assert (stored["model_settings"]["components"], stored["model_settings"]["hidden"], stored["fit"]["loss"]) == (
        2,
        [8],
        "nll",
    )
    wrong = guss_here("run", *words, "--model.component", "2", check=2)
    assert "did you mean --model.components" in wrong.stderr
    preset.write_text('env = "safe-pendulum"\nepisods = 2\n')
    with pytest.raises(GussError, match="Did you mean 'episodes'"):
        parse(["run", "--preset", str(preset)]).run()
    preset.write_text('extends = "safe-pendulun"\n')
    with pytest.raises(GussError, match="Did you mean 'safe-pendulum'"):
        parse(["run", "--preset", str(preset)]).run()
    with pytest.raises(GussError, match=r"cannot read the preset 'none.toml'"):
        parse(["run", "--preset", "none.toml"]).run()


def test_guss_run_learns_and_reports(guss_command, guss_here, tmp_path):
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "from guss.envs import ENVS, EnvSpec\nfrom guss.envs.pendulum import VIEW, pendulum_task\n"
        "make = lambda: pendulum_task().replace(episode_length=25)\n"
        "ENVS.add('shown-pendulum', EnvSpec('none', make, VIEW), summary='for tests', origin=__name__)\n"
    )
    words = ["--seeds", "2", "--episodes", "2", "--horizon", "3"]
    learned = [
        "--method",
        "cem",
        "--fit.max-steps",
        "100",
        "--budget",
        "60",
        "--model.ensemble",
        "1",
        "--model.hidden",
        "8",
    ]
    more = ["--env", "shown-pendulum", "--plugin", plugin, "--against", "random", "--replay", "--log", "tensorboard"]
    process = guss_command("run", *words, *learned, *more, check=0)
    assert "episode 1/2 (random)" in process.stderr
    assert "episode 2/2 (plan): reward" in process.stderr
    assert "random, episode 2/2 (random): reward" in process.stderr
    assert re.search("measure.*cem.*random.*description", process.stdout)
    assert "unsafe_trans_pct" in process.stdout
    (home,) = (tmp_path / "runs").glob("*-cem-*")
    for name in ("learning.png", "replay.gif", "last-plan.png"):
        assert f"{home.relative_to(tmp_path)}/figures/{name}" in process.stdout
        assert (home / "figures" / name).stat().st_size > 10_000
    assert list((home / "tensorboard").iterdir())
    known = ["--env", "short-pendulum", "--method", "rs", "--budget", "20", "--model", "oracle"]
    as_json = guss_here("run", *words, *known, "--json", "--quiet", check=0)
    assert as_json.stderr == ""
    assert json.loads(as_json.stdout)["episodes"] == 2


def test_a_preset_extends_another():
    plain, quick = load_preset("safe-pendulum"), load_preset("safe-pendulum-quick")
    assert quick | {"methods": plain["methods"]} == plain | {"episodes": 10}
    assert quick["methods"]["ppo"] == plain["methods"]["ppo"], "tables are merged entry by entry"
    assert quick["methods"]["cpo"]["episodes"] < plain["methods"]["cpo"]["episodes"]
    assert plain["episodes"] == 50


def test_own_environments_that_end_early_are_measured_by_returns():
    """To last longer is to earn more; one that failed does not count."""
    from guss.runs.description import measure_of

    rows = [{"steps": 7, "status": "ok"}, {"steps": 9, "status": "ok"}]
    assert measure_of("mine.py:make_env", rows) == "return"
    assert measure_of("mine.py:make_env", [rows[0], rows[1] | {"status": "error: …"}]) == "mean_reward"
    assert measure_of("safe-pendulum", rows) == "mean_reward"
    assert measure_of("safe-car-goal", rows[:1]) == "return"
