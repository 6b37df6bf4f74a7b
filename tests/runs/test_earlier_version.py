"""Runs and agents stored by guss 0.1.0 at commit 3615b08, before the redesign of runs and methods.

tests/data/earlier has two runs of two episodes and an agent; `config.json` of each run names its command. EXTENDED are
the mean rewards of the third episodes that the same commit then played (`guss run --resume RUN --episodes 3`).
"""

import shutil
from pathlib import Path

import numpy as np
import pytest

import guss
from guss.runs.evaluation import evaluate
from guss.runs.extension import Extension
from guss.runs.rows import read_episodes
from guss.runs.run import resume

STORED = Path(__file__).parents[1] / "data" / "earlier"
EXTENDED = {"safe-pendulum-guss-a1cb7ebc": -7.482318384647369, "safe-pendulum-ppo-d3a8232d": -7.83834924697876}


@pytest.mark.parametrize("name", EXTENDED)
def test_an_earlier_run_continues_as_it_would_have(name, tmp_path):
    """Up to rounding, since compilers and machines differ."""
    home = tmp_path / name
    shutil.copytree(STORED / name, home)
    before = (home / "episodes.jsonl").read_bytes()
    resume(home, more=Extension(episodes=3))
    assert (home / "episodes.jsonl").read_bytes().startswith(before)
    last = read_episodes(home)[-1]
    assert last["episode"] == 2
    assert last["mean_reward"] == pytest.approx(EXTENDED[name], rel=1e-2)
    assert evaluate(home, 1).trained_episodes == 3


def test_an_earlier_agent_is_loaded_and_acts():
    agent = guss.Agent.load(STORED / "agent.ckpt", "safe-pendulum")
    assert [episode.phase for episode in agent.history] == ["random", "plan"]
    action = agent.act(np.asarray([1.0, 0.0, 0.0], np.float32))
    assert action.shape == (1,)
    assert np.isfinite(action).all()
