"""An environment of the user's own, from the command line, without a Task: reward and cost are learned."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EPISODES = 8
QUICK = ("--horizon", 10, "--budget", 60, "--net", "hidden=[24,24]", "--fit", "max_steps=1200", "warm_steps=400")


def learned(guss_command, folder, env, *more):
    """The outcome of a short run beside random actions."""
    words = ("run", "--env", env, "--seeds", 3, "--episodes", EPISODES, "--against", "random", "--no-figures", "--json")
    done = guss_command(*words, *QUICK, *more, cwd=folder, check=0, timeout=500)
    summary = json.loads(done.stdout)
    return summary, summary["against"][0]


def last_episodes(folder, method, count):
    """Mean reward and unsafe share of the last `count` episodes of a run, over all seeds."""
    (home,) = (folder / "runs").glob(f"*-{method}-*")
    rows = [json.loads(line) for line in (home / "episodes.jsonl").read_text().splitlines()]
    mine = [row for row in rows if row["episode"] >= max(r["episode"] for r in rows) + 1 - count]
    assert {row["status"] for row in rows} == {"ok"}
    return tuple(sum(row[name] for row in mine) / len(mine) for name in ("mean_reward", "unsafe_pct"))


def test_a_continuous_environment_beats_random_in_reward_and_cost(guss_command, tmp_path):
    """The project that `guss init` writes, as it is written."""
    guss_command("init", "mine", check=0)
    folder = tmp_path / "mine"
    learned(guss_command, folder, "system.py:make_env", "--preset", "preset.toml")
    ours, random = last_episodes(folder, "guss", 2), last_episodes(folder, "random", EPISODES)
    assert ours[0] > random[0]
    assert ours[1] < 0.5 * random[1]


def test_a_discrete_environment_of_six_values_beats_random_in_reward_and_cost(guss_command, tmp_path):
    learned(guss_command, tmp_path, ROOT / "examples" / "six_values.py:make_env")
    ours, random = last_episodes(tmp_path, "guss", 2), last_episodes(tmp_path, "random", EPISODES)
    assert ours[0] > random[0]
    assert ours[1] < 0.5 * random[1]


def test_init_writes_once_and_what_it_writes_is_ready(guss_command, tmp_path):
    told = guss_command("init", "mine", check=0).stdout
    assert "guss run --env system.py:make_env" in told
    again = guss_command("init", "mine", check=2)
    assert "has README.md, system.py, known.py, preset.toml already" in again.stderr
    for name in ("system", "known"):
        done = guss_command("check-env", f"{name}.py:make_env", "--steps", 200, cwd=tmp_path / "mine", check=0)
        assert "Ready." in done.stdout
    assert "reward function agrees" in done.stdout
    assert (tmp_path / "mine" / "preset.toml").read_text().count("#") >= 4  # commented


def test_bad_input_is_told(guss_command, tmp_path):
    for words, told in (
        (("run", "--env", "CartPole-v1"), "does not say what is unsafe"),
        (("run", "--env", "nowhere.py:make_env"), "there is no file 'nowhere.py'"),
        (("run", "--env", "safe-pendulum", "--learned", "rewards"), "Did you mean 'reward'"),
        (("run", "--env", "safe-pendulum", "--model", "oracle", "--learned", "reward"), "the oracle learns nothing"),
        (("check-env", "safe-pendulm"), "Did you mean 'safe-pendulum'"),
    ):
        assert told in guss_command(*words, check=2).stderr


def test_a_loop_of_ones_own_runs(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "own_loop.py", "--episodes", "3"],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "initial_policy: mean reward" in done.stdout
    assert "          plan: mean reward" in done.stdout
    assert (tmp_path / "own-loop.ckpt").exists()
