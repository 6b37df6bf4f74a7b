"""Baselines as methods of a run: records, resuming, evaluation, replay, environments of the host."""

import gzip
import json
import shutil

import numpy as np
import pytest
from helpers.short_runs import ORIGIN, TINY, Stop, assert_same_run, policy_config, resume_run, run_one, stop_after

from guss.collect.datasets import read_episode
from guss.errors import GussError
from guss.reports.curves import binned, draw_learning
from guss.reports.inventory import read_record
from guss.reports.run_summary import summarise_run
from guss.runs.evaluation import evaluate_run
from guss.runs.replay import Replay
from guss.runs.results import read_config
from guss.runs.store import read_lines, trace_path


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run_one(policy_config(), tmp_path_factory.mktemp("whole"), ORIGIN)


def test_several_episodes_at_once_are_recorded_one_by_one(whole):
    rows = read_lines(whole / "episodes.jsonl")
    assert [(row["seed"], row["episode"]) for row in rows] == [(s, e) for e in range(6) for s in (3, 4)]
    assert {row["phase"] for row in rows} == {"policy"}
    assert [row["total_steps"] for row in rows if row["seed"] == 3] == [25 * (e + 1) for e in range(6)]
    assert sorted(path.name for path in (whole / "traces").iterdir()) == sorted(
        f"seed{s}-ep{e}.npz" for s in (3, 4) for e in (0, 2, 4)
    ), "of those played at once, the first is kept step by step"
    for row in rows:
        path = trace_path(whole, row["seed"], row["episode"])
        if path.exists():
            assert row["return"] == pytest.approx(float(read_episode(path).reward.sum()), rel=1e-5)
    timings = read_lines(whole / "timings.jsonl")
    assert [t["episode"] for t in timings] == [0, 2, 4]
    assert {"price", "kl", "episode_cost"} <= set(timings[0]["policy"])
    assert len(timings[0]["policy"]["kl"]) == 2


def test_records_that_were_packed_are_read_as_they_are(tmp_path, whole):
    home = shutil.copytree(whole, tmp_path / "run")
    before = summarise_run(home)
    for name in ("episodes.jsonl", "timings.jsonl"):
        (home / f"{name}.gz").write_bytes(gzip.compress((home / name).read_bytes()))
        (home / name).unlink()
    assert summarise_run(home) == before
    assert len(read_lines(home / "timings.jsonl")) == 3


def test_long_curves_are_drawn_by_means_and_beside_short_ones_by_logarithm(whole):
    values = np.arange(2 * 300.0).reshape(2, 300)
    middles, means = binned(values)
    assert len(middles) == len(means) == 100
    assert middles[-1] == 299
    np.testing.assert_allclose(means[0], [1.0, 301.0], err_msg="of three episodes each")
    np.testing.assert_array_equal(binned(values[:, :7])[1], values[:, :7].T)
    figure = draw_learning([read_record(whole)])
    assert figure.axes[0].get_xscale() == "linear"


def test_its_config_holds_what_decides_it_and_no_more(whole):
    stored = json.loads((whole / "config.json").read_text())["config"]
    assert not {"horizon", "budget", "model", "model_settings", "fit", "initial_episodes", "explore"} & set(stored)
    assert read_config(whole) == policy_config()
    assert {"model", "model_settings", "fit", "initial_episodes"} <= set(policy_config("safe-mbpo").to_json())


def test_an_interrupted_run_of_a_policy_ends_as_if_it_had_not_been(tmp_path, whole):
    with pytest.raises(Stop):
        run_one(policy_config(), tmp_path, ORIGIN, stop_after(3))
    (home,) = tmp_path.iterdir()
    told = []
    resume_run(home, told.append)
    assert [news.episode for news in told] == [5]
    assert_same_run(home, whole)


def test_safe_mbpo_goes_on_where_it_stopped(tmp_path):
    home = run_one(policy_config("safe-mbpo", episodes=3), tmp_path / "whole", ORIGIN)
    phases = [row["phase"] for row in read_lines(home / "episodes.jsonl") if row["seed"] == 3]
    assert phases == ["random", "policy", "policy"]
    assert {"model_r2", "penalty", "critic_loss"} <= set(read_lines(home / "timings.jsonl")[0]["policy"])
    with pytest.raises(Stop):
        run_one(policy_config("safe-mbpo", episodes=3), tmp_path / "broken", ORIGIN, stop_after(0))
    (other,) = (tmp_path / "broken").iterdir()
    resume_run(other)
    assert_same_run(other, home)


def test_a_learned_policy_is_put_to_work(tmp_path, whole):
    home = shutil.copytree(whole, tmp_path / "run")
    found = evaluate_run(home, 3)
    assert found.mean_reward.shape == (2, 3)
    assert found.trained_episodes == 6
    again = evaluate_run(home, 3)
    np.testing.assert_array_equal(found.mean_reward, again.mean_reward)
    trained = {row["mean_reward"] for row in read_lines(home / "episodes.jsonl")}
    assert not trained & set(found.mean_reward.ravel().tolist()), "starts of its own"


def test_its_last_kept_episode_is_replayed_without_plans(whole):
    replay = Replay(whole, None, None)
    assert replay.episode == 4
    assert not replay.replans
    assert len(list(replay.steps())) == 25
    assert replay.verdict() == "episode 4 of seed 3, actions of a learned policy"
    with pytest.raises(GussError, match=r"episode 5 of .* has no stored trace: .* nearest stored episode is 4"):
        Replay(whole, 5, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"episodes": 5}, "runs 2 episodes per seed in parallel, .* such as 4 or 6; got 5"),
        ({"episodes": 1}, "such as 2; got 1"),
        ({"overlap": True}, "--overlap applies to planning methods"),
        ({"data": "abc"}, "learns only from its own episodes; logged data need a planning method"),
        ({"method": "safe-mpbo"}, "unknown method 'safe-mpbo'. Did you mean 'safe-mbpo'?"),
        (
            {"method_settings": {"clipp": 0.1}},
            "unknown setting of method 'ppo-lagrangian': 'clipp'. Did you mean 'clip'?",
        ),
        (
            {"method": "safe-mbpo", "env": "safe-acrobot", "method_settings": {}},
            "safe-mbpo supports only continuous actions",
        ),
    ],
)
def test_what_cannot_be_run_is_told(tmp_path, changes, message):
    with pytest.raises(GussError, match=message):
        run_one(policy_config(**changes), tmp_path, ORIGIN)
    assert not list(tmp_path.iterdir())


def test_a_policy_that_diverges_is_told_and_episodes_are_kept(tmp_path):
    wild = policy_config(method_settings=TINY | {"num_envs": 2, "policy_rate": 1e30, "value_rate": 1e30})
    with pytest.raises(GussError, match=r"ppo-lagrangian diverged in episode \d \(seeds \[.*\]: .* is not finite"):
        run_one(wild, tmp_path, ORIGIN)


def test_a_policy_learns_on_environments_of_the_host(tmp_path):
    """CartPole, stepped by Gymnasium, whose episodes end early: those at once have starts of their own."""
    chosen = policy_config(env="CartPole-v1", without_cost=True, episodes=4)
    home = run_one(chosen, tmp_path / "whole", ORIGIN)
    rows = read_lines(home / "episodes.jsonl")
    assert len(rows) == 8
    assert len({read_episode(path).obs.tobytes() for path in (home / "traces").iterdir()}) == 4
    assert max(row["steps"] for row in rows) < 500
    with pytest.raises(Stop):
        run_one(chosen, tmp_path / "broken", ORIGIN, stop_after(1))
    (other,) = (tmp_path / "broken").iterdir()
    resume_run(other)
    assert_same_run(other, home)
    assert evaluate_run(home, 1).mean_reward.shape == (2, 1)


def test_guss_run_shows_a_baseline_beside_a_planner(guss_here):
    words = ("run", "--env", "policy-pendulum", "--method", "cpo", "--seeds", "2", "--episodes", "4")
    more = (
        "--method.num-envs",
        "2",
        "--method.hidden",
        "8",
        "--method.batch",
        "20",
        "--against",
        "random",
        "--log",
        "tensorboard",
    )
    shown = guss_here(*words, *more, check=0)
    assert "cpo" in shown.stdout
    assert "learn" in shown.stderr
    assert "episode 4/4 (policy)" in shown.stderr
