"""Examples of own environments and loops run, and learn."""

import os
import subprocess
import sys
from pathlib import Path

from helpers.custom_env_runs import beats_random

ROOT = Path(__file__).resolve().parents[1]


def test_a_discrete_environment_of_six_values_beats_random_in_reward_and_cost(guss_command, tmp_path):
    beats_random(guss_command, tmp_path, ROOT / "examples" / "six_values.py:make_env", seeds=2, episodes=6)


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


def test_a_search_finds_settings_and_resumes(tmp_path):
    command = [
        sys.executable,
        ROOT / "examples" / "search_optuna.py",
        "--episodes",
        "2",
        "--seeds",
        "1",
        "--out",
        "found",
    ]
    for trials in ("1", "2"):
        done = subprocess.run(
            [*command, "--trials", trials], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "not dominated: " in done.stdout
    assert "trial 1: " in done.stdout
    assert "trial 0: " not in done.stdout, "it is read from the journal"
    assert len(list((tmp_path / "found").glob("safe-pendulum-guss-*/config.json"))) == 2
    assert (tmp_path / "found" / "pareto.png").stat().st_size > 1000
