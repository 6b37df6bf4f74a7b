"""docs/troubleshooting.md quotes messages of guss: most are raised here, the others match a text of the source."""

import ast
import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import guss
from guss.collect.datasets import read_traces
from guss.collect.inputs import InputChecker
from guss.envs.lookup import find_env
from guss.errors import GussError
from guss.methods.settings import AgentSettings

ROOT = Path(__file__).resolve().parents[1]
MESSAGES = re.findall(r"^```text\n(.*?)\n```", (ROOT / "docs" / "troubleshooting.md").read_text(), re.M | re.S)
LEAST = 25
"""Characters that a text of the source must have in common with a message."""


def templates():
    """Every text of the source, as a pattern that what it is filled with matches too, and its fixed characters."""
    for path in (ROOT / "src" / "guss").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                fixed = [part.value if isinstance(part, ast.Constant) else None for part in node.values]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                fixed = [node.value]
            else:
                continue
            size = sum(len(part) for part in fixed if part is not None)
            if size >= LEAST:
                yield re.compile("".join(".*?" if part is None else re.escape(part) for part in fixed), re.S), size


TEMPLATES = list(templates())


def is_in_the_source(message):
    return any(size >= 0.3 * len(message) and pattern.search(message) for pattern, size in TEMPLATES)


class Plant(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}


class OldPlant(Plant):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


OldPlant.__name__ = "Plant"


def too_hot(obs, action, next_obs, limit):
    return next_obs[0] > limit


def oven(**changes):
    given = {
        "name": "oven",
        "observations": guss.Observations(low=(0.0,), high=(300.0,), names=("temperature",)),
        "actions": guss.ContinuousActions(low=(0.0,), high=(1.0,)),
        "reward": lambda obs, action, next_obs: -action[0],
        "constraints": [guss.Constraint("too_hot", guss.with_params(too_hot, limit=200.0))],
        "descriptor": None,
        "grid": None,
        "episode_length": 100,
    }
    return guss.Task(**(given | changes))


def limited(env):
    return gymnasium.wrappers.TimeLimit(env, 50)


def logged(actions):
    obs = np.full((len(actions), 1), 20.0)
    return guss.Transition(obs, actions[:, None], np.zeros(len(actions)), None, obs)


def write(name, text):
    Path(name).write_text(text)
    return [name]


RAISED = {
    "'plant.py' is a file": lambda: (write("plant.py", "def make_env():\n    pass\n"), find_env("plant.py")),
    "the environment Plant has no time limit": lambda: guss.Agent(Plant()),
    "the environment Plant does not report a cost": lambda: guss.Agent(limited(Plant())),
    "the environment Plant fails on its first reset": lambda: guss.Agent(limited(OldPlant())),
    "task 'oven': reward(obs, action, next_obs) must": lambda: oven(reward=lambda obs, action, next_obs: -action),
    "task 'oven' has observations": lambda: guss.Agent(limited(Plant()), task=oven()),
    "task 'oven' has no step function": lambda: guss.Oracle.of(oven()),
    "constraint 'too_hot' does not specify": lambda: AgentSettings(planning_margin=5.0).tasks(oven()),
    "unknown setting of model": lambda: guss.Agent(oven(), model_settings={"hiden": [5]}),
    "a budget of 20 plans": lambda: guss.make_planner("guss", oven(), budget=20, horizon=5),
    "particles=5": lambda: AgentSettings(model_settings={"particles": 5}),
    "a plan with horizon 2000": lambda: AgentSettings(horizon=2000, budget=100_000),
    "a learned model needs": lambda: guss.make_config("safe-pendulum", initial_episodes=0),
    "log.csv has the columns": lambda: read_traces(write("log.csv", "time,temp,heater,energy\n0,20,0.5,1\n")),
    "next_obs of episode 1": lambda: InputChecker(oven()).transition(
        guss.Transition(np.asarray([20.0]), np.asarray([0.5]), None, None, np.asarray([np.nan])), "episode 1, step 3"
    ),
    "the action of the trace": lambda: InputChecker(oven()).dataset(logged(np.asarray([0.5, 1.5, 2.5, 3.5]))),
}


@pytest.mark.parametrize("start", RAISED)
def test_a_quoted_message_is_raised(start, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GussError) as raised:
        RAISED[start]()
    assert [str(raised.value)] == [message for message in MESSAGES if message.startswith(start)]


@pytest.mark.parametrize("message", [m for m in MESSAGES if not m.startswith(tuple(RAISED))], ids=lambda m: m[:50])
def test_any_other_message_is_in_the_source(message):
    assert is_in_the_source(message), "no text of src/guss reads like this: correct docs/troubleshooting.md"


def test_a_message_that_is_not_in_the_source_is_found():
    assert not is_in_the_source("the environment Plant has no time limit, so its sentences are long")
    assert len(MESSAGES) >= 15
