"""Stable-Baselines3 on every bundled Gymnasium id, in `.venv-sb3`: it needs torch, which guss does not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest

import guss.envs  # noqa: F401  registers the ids

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FOLDER = ROOT / ".venv-sb3"
STEPS = 1024


def install(*words):
    pip = [str(FOLDER / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *map(str, words)], check=True)


@pytest.fixture(scope="module")
def python():
    wanted, stamp = (HERE / "sb3-requirements.txt"), FOLDER / ".installed"
    if not stamp.exists() or stamp.read_text() != wanted.read_text():
        subprocess.run([sys.executable, "-m", "venv", "--clear", FOLDER], check=True)
        install("torch==2.13.0")
        install("--constraint", ROOT / "constraints.txt", "--requirement", wanted)
        stamp.write_text(wanted.read_text())
    return FOLDER / "bin" / "python"


@pytest.mark.long
def test_stable_baselines_trains_on_every_bundled_id(python, record_result):
    """Its checker is content, and PPO trains; actions are all of those that there are."""
    found = {}
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    for gym_id in sorted(name for name in gymnasium.registry if name.startswith("guss/")):
        words = [str(python), "-W", "ignore", str(HERE / "sb3_training.py"), gym_id, str(STEPS)]
        env["PYTHONPATH"] = str(ROOT / "src")
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found[gym_id] = json.loads(done.stdout.splitlines()[-1])
        assert found[gym_id]["steps"] == STEPS
    assert found["guss/SafeToy-v0"]["lowest_action"] == [0, 0]
    assert found["guss/SafeToy-v0"]["highest_action"] == [2, 2]
    record_result("stable_baselines3", {"runs": found, "requirements": (HERE / "sb3-requirements.txt").read_text()})
