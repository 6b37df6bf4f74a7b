"""Random data at the start are counted in episodes and in steps: where episodes end early, more of them are random."""

import json

import gymnasium
import jax
import numpy as np
import pytest
from helpers.short_runs import ORIGIN, config, resume_run, run_one

from guss.agent import Agent
from guss.envs import ENVS
from guss.envs.lookup import spec_of
from guss.errors import GussError
from guss.methods.settings import AgentSettings
from guss.reports.curves import draw_learning
from guss.reports.inventory import read_record
from guss.runs.checkpoints import checkpoint_after
from guss.runs.config import RunConfig
from guss.runs.final_model import agent_of_run
from guss.runs.fit import fit_log, log_of_run
from guss.runs.replay import Replay
from guss.runs.rows import num_random, read_episodes
from guss.types import Transition

LENGTH = 30


class Falls(gymnasium.Env):
    """Ends after 4 to 8 steps, by the seed of its reset, though an episode could have 30."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left, self.state = int(self.np_random.integers(4, 9)), self.np_random.normal(size=2).astype(np.float32)
        return self.state, {}

    def step(self, action):
        self.left -= 1
        self.state = (0.9 * self.state + 0.1 * float(action[0])).astype(np.float32)
        return self.state, float(-np.abs(self.state).sum()), self.left == 0, False, {"cost": float(self.state[0] > 1)}


def make_falls():
    return gymnasium.wrappers.TimeLimit(Falls(), LENGTH)


ENVS.add("falls", spec_of(make_falls, "falls"), summary="for tests", origin=__name__)


def falls(**changes):
    return config(**{"env": "falls", "initial_steps": 20, "episodes": 6} | changes)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return run_one(falls(), tmp_path_factory.mktemp("falls"), ORIGIN)


@pytest.mark.parametrize(
    ("settings", "episode", "steps", "random"),
    [
        ({}, 0, 0, True),
        ({}, 1, 30, False),
        ({}, 1, 29, True),
        ({"initial_episodes": 20}, 19, 570, True),
        ({"initial_episodes": 20}, 20, 200, False),
        ({"initial_episodes": 20}, 20, 199, True),
        ({"initial_episodes": 0}, 0, 0, False),
        ({"initial_episodes": 0, "initial_steps": 5}, 0, 0, True),
        ({"initial_episodes": 0, "initial_steps": 5}, 1, 5, False),
        ({"initial_steps": 0}, 0, 0, True),
        ({"initial_steps": 0}, 1, 1, False),
        ({"method": "random"}, 99, 9999, True),
    ],
)
def test_both_counts_must_be_reached(settings, episode, steps, random):
    assert AgentSettings(**settings).is_random(episode, steps, LENGTH) is random


def test_a_run_has_random_episodes_until_every_seed_has_enough_steps(stored):
    rows = read_episodes(stored)
    count = num_random(rows)
    assert 2 < count < 6, "an episode has 4 to 8 steps"
    before = {e: min(r["total_steps"] for r in rows if r["episode"] == e) for e in range(6)}
    assert before[count - 2] < 20 <= before[count - 1]
    assert [row["phase"] for row in rows] == ["random"] * 2 * count + ["plan"] * 2 * (6 - count)


def test_replays_fits_and_reports_follow_the_records(stored):
    rows = read_episodes(stored)
    count = num_random(rows)
    assert not Replay(stored, count - 1, None).replans
    assert Replay(stored, count, None).replans
    state, told = fit_log(log_of_run(stored), in_turn=True, test=True)
    assert [news.episodes for news in told] == list(range(count, 6))
    models = checkpoint_after(stored, 6).restore(state).models
    assert all(map(np.array_equal, jax.tree.leaves(models), jax.tree.leaves(state.models)))
    (legend,) = draw_learning([read_record(stored)]).legends
    assert legend.get_title().get_text().endswith(f"; episode 1 to {count}: smooth random actions")


def test_an_interrupted_run_counts_the_steps_before(stored, tmp_path):
    def stop(news):
        if news.episode == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_one(falls(), tmp_path, ORIGIN, stop)
    (home,) = tmp_path.iterdir()
    resume_run(home)
    assert (home / "episodes.jsonl").read_bytes() == (stored / "episodes.jsonl").read_bytes()


def test_an_agent_counts_the_same(stored):
    assert agent_of_run(stored, None, None, None).phase == "plan"
    agent = Agent(
        make_falls(), horizon=3, budget=40, model_settings={"hidden": [8]}, fit={"epochs": 3}, initial_episodes=1
    )
    assert agent.settings.to_json()["initial_steps"] is None
    zero = np.zeros(2, np.float32)
    while agent.phase == "random":
        agent.observe(Transition(zero, np.zeros(1), 0.0, np.zeros(1), zero), terminated=len(agent._open.steps) == 6)
    assert [episode.steps for episode in agent.history] == [7] * 5, "30 steps of one whole episode"
    assert Agent(make_falls(), initial_episodes=1, initial_steps=0).settings.to_json()["initial_steps"] == 0


def test_it_is_stored_and_checked():
    assert config().to_json()["initial_steps"] is None
    assert config(initial_steps=7).to_json()["initial_steps"] == 7
    with pytest.raises(GussError, match=r"settings\.initial_steps must be at least 0, got -1"):
        config(initial_steps=-1)
    assert RunConfig(env="falls", seeds=(0,), episodes=1, initial_episodes=0, initial_steps=9).initial_steps == 9


def test_the_flag_and_the_preset_say_it(guss_here, tmp_path):
    (tmp_path / "p.toml").write_text('env = "safe-pendulum"\ninitial_steps = 400\nepisodes = 2\n')
    guss_here("run", "--preset", "p.toml", "--seeds", 1, "--quiet", "--no-figures", "--fit.max-steps", "5", check=0)
    (home,) = (tmp_path / "runs").iterdir()
    assert [row["phase"] for row in read_episodes(home)] == ["random", "random"]
    words = (
        "--preset",
        "p.toml",
        "--initial-steps",
        100,
        "--model",
        "oracle",
        "--method",
        "rs",
        "--budget",
        5,
        "--horizon",
        2,
    )
    guss_here("run", *words, "--seeds", 1, "--quiet", "--no-figures", "--out", "more", check=0)
    (home,) = (tmp_path / "more").iterdir()
    assert json.loads((home / "config.json").read_text())["config"]["initial_steps"] == 100
    assert [row["phase"] for row in read_episodes(home)] == ["random", "plan"]
