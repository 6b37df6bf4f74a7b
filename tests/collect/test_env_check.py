"""`check_env`: what it finds in good environments, and in bad ones of every kind."""

import os
import re
import time
from pathlib import Path

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

from guss.cli.main import parse
from guss.collect.env_check import SAMPLED_FLAGS, check_env
from guss.constraint import Constraint
from guss.envs.adapters import Adapted, describe
from guss.envs.lookup import as_maker, find_env
from guss.errors import GussError
from guss.task import Task
from guss.types import ContinuousActions, Observations

STEPS = 120


class Oven(gymnasium.Env):
    """Heats up by its action and cools down by itself; each option makes it wrong in one way."""

    action_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)

    def __init__(self, wrong=None):
        self.wrong, self.calls = wrong, 0
        top = np.inf if wrong == "unbounded" else 2.0 if wrong == "leaves" else 50.0
        self.observation_space = gymnasium.spaces.Box(0.0, top, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=None if self.wrong == "seeding" else seed)
        self.heat, self.t = float(self.np_random.uniform(1, 3)), 0
        return self._observed(), {}

    def step(self, action):
        self.t += 1
        self.calls += 1
        noise = np.random.default_rng().normal() if self.wrong == "noise" else self.np_random.normal()
        push = 0.0 if self.wrong == "deaf" else float(action[0])
        self.heat = max(0.0, 0.9 * self.heat + push + (0.0 if self.wrong == "calm" else 0.01) * noise)
        if self.wrong == "raises" and self.calls == 80:
            raise OSError("the fuse is blown")
        if self.wrong == "hangs" and self.calls == 80:
            time.sleep(30)
        cost = float(self.heat > 6.0) * (3.0 if self.wrong == "counts" else 1.0)
        cost = np.nan if self.wrong == "nan cost" and self.t == 20 else cost
        info = {} if self.wrong == "silent" and self.t > 10 else {"cost": cost}
        reward = {"nan": np.nan}.get(self.wrong, self.heat) if self.t == 20 else self.heat
        return self._observed(), reward, self.wrong == "ends" and self.t > 7, False, info

    def close(self):
        if self.wrong == "stays open":
            raise OSError("stuck")

    def _observed(self):
        return np.asarray([self.heat, 1.0], np.float32)


def heat_reached(obs, action, next_obs):
    return next_obs[0]


def heat_before(obs, action, next_obs):
    return obs[0]


def too_hot(obs, action, next_obs, limit=6.0):
    return next_obs[0] > limit


def hot(obs, action, next_obs):
    return too_hot(obs, action, next_obs, 5.0)


def ends_at(rollout):
    return jnp.stack([rollout.next_obs[-1, 0]])


def found(wrong=None, task=None, **options):
    make = lambda: Adapted(Oven(wrong))  # noqa: E731
    task = describe(make(), "oven", episode_length=40) if task is None else task
    return check_env(make, task, steps=STEPS, **options)


def texts(findings, kind, topic=""):
    return " | ".join(f.text for f in findings if f.kind == kind and topic in f.topic)


@pytest.fixture(scope="module")
def good():
    return found()


def test_a_good_environment_is_described(good):
    assert texts(good, "problem") == ""
    assert "vectors of 2 numbers" in texts(good, "fact", "observations")
    assert "1 continuous: 0 to 1" in texts(good, "fact", "actions")
    assert "the same seed starts at the same observation, others start elsewhere" in texts(good, "fact", "seeding")
    assert "give the same observations, over 40 steps" in texts(good, "fact", "determinism")
    assert "3 random episodes of 40 steps" in texts(good, "fact", "episodes")
    learned = {f.topic for f in good if f.kind == "learned"}
    assert learned == {"reward", "cost", "end of an episode", "behaviour", "dynamics"}
    assert "dimension 1 never changed" in texts(good, "risk", "observations")


def test_noise_is_found_and_answered_by_flags(good):
    """Whichever generator it is drawn from, in the environment or in a wrapper; else nothing is said."""
    told = r"stochastic: .* from step 1 on, by 0.0\S+ in \S.*--model.no-deterministic --model.particles 5"
    assert re.search(told, texts(good, "risk", "noise"))

    class Draught(gymnasium.Wrapper):
        def reset(self, **how):
            self.random = np.random.RandomState(how["seed"] % 2**31)
            return super().reset(**how)

        def step(self, action):
            obs, *rest = super().step(action)
            return obs + np.float32(0.1 * self.random.normal()), *rest

    for make, noisy in ((lambda: Adapted(Draught(Oven("calm"))), True), (lambda: Adapted(Oven("calm")), False)):
        task = describe(make(), "oven", episode_length=40)
        assert bool(texts(check_env(make, task, steps=STEPS), "risk", "noise")) == noisy
    assert parse(["run", *SAMPLED_FLAGS.split()]).settings.model_settings.particles == 5


def test_an_environment_that_cannot_be_closed_is_a_risk():
    assert "close() of the environment failed" in texts(found("stays open"), "risk", "close")


@pytest.mark.parametrize(
    ("wrong", "kind", "told"),
    [
        ("seeding", "problem", "starts differently each time.*super\\(\\).reset\\(seed=seed\\)"),
        ("noise", "problem", "the same seed and actions give other observations, first at step 1: draw all noise"),
        ("silent", "problem", "every step must report it in .*; 90 of 120 steps did not"),
        ("raises", "problem", "step 79 .*|step \\d+.*: error: OSError: the fuse is blown"),
        ("nan", "problem", "not finite in episode 0, step 19"),
        ("nan cost", "problem", "episode 0, step 19: .*is not finite: nan"),
        ("unbounded", "risk", "are not bounded on both sides"),
        ("leaves", "risk", "dimension 0 leaves its bounds \\[0, 2\\]"),
        ("deaf", "risk", "other actions do not change the observations"),
        ("counts", "risk", "every value above 0 is unsafe"),
        ("ends", "fact", "ended early by the environment itself"),
    ],
)
def test_what_is_wrong_is_told_in_words(wrong, kind, told):
    import re

    findings = found(wrong)
    assert re.search(told, texts(findings, kind)), [f for f in findings if f.kind == kind]


def test_an_environment_that_hangs_is_told():
    findings = found("hangs", timeout=0.5)
    assert "timeout: a step took longer than 0.5 s" in texts(findings, "problem", "failure")


def oven_task(reward=heat_reached, cost=too_hot):
    return Task(
        name="oven",
        observations=Observations((0.0, 0.0), (50.0, 50.0)),
        actions=ContinuousActions((0.0,), (1.0,)),
        reward=reward,
        constraints=(Constraint("cost", cost),),
        descriptor=None,
        grid=None,
        episode_length=40,
    )


def test_functions_are_held_against_the_environment():
    right = found(task=oven_task())
    assert texts(right, "problem") == ""
    agrees = texts(right, "fact", "agreement")
    assert "reward function agrees with the environment on 120 transitions" in agrees
    assert "cost function of 'cost' agrees" in agrees

    wrong = texts(found(task=oven_task(reward=heat_before, cost=hot)), "problem", "agreement")
    assert "the reward function disagrees with the environment on" in wrong
    first, second = wrong.split(" | ")
    assert "first on number 0: obs [" in first
    assert "action [" in first
    assert "the function returns" in first
    assert "the cost function of 'cost' disagrees" in second
    assert "the function returns 1, the environment 0" in second


@pytest.mark.parametrize("name", ["safe-pendulum", "safe-acrobot", "safe-toy"])
def test_ours_are_ready(name):
    spec = find_env(name)
    findings = check_env(as_maker(spec), spec.make_task(), steps=STEPS)
    assert texts(findings, "problem") == ""
    assert "agrees with the environment" in texts(findings, "fact", "agreement")


def test_the_command_tells_and_fails_on_problems(guss_command, tmp_path):
    (tmp_path / "ovens.py").write_text(
        "from test_env_check import Oven\n"
        "import gymnasium\n"
        "make_env = lambda: gymnasium.wrappers.TimeLimit(Oven(), 40)\n"
        "make_bad = lambda: gymnasium.wrappers.TimeLimit(Oven('seeding'), 40)\n"
    )
    here = {"PYTHONPATH": os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))}
    fine = guss_command("check-env", "ovens.py:make_env", "--steps", 60, env=here, check=0)
    assert "Learned from data" in fine.stdout
    assert "Ready. Continue with: guss run --env ovens.py:make_env" in fine.stdout
    bad = guss_command("check-env", "ovens.py:make_bad", "--steps", 60, "--json", env=here, check=2)
    assert '"ready": false' in bad.stdout


class Named(Oven):
    """Never unsafe, and its observations have names."""

    observation_names = ("heat", "time")

    def step(self, action):
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, {"cost": 0.0}


def test_names_are_listed_and_advice_is_given_once():
    make = lambda: Adapted(gymnasium.wrappers.TimeLimit(Named(), 40))  # noqa: E731
    found = check_env(make, describe(make(), "named"), steps=STEPS)
    assert any(f.topic == "observations" and f.text == "vectors of 2 numbers: heat, time" for f in found)
    (risk,) = [f.text for f in found if f.kind == "risk" and f.topic == "cost 'cost'"]
    assert risk.lower().count("describe the cost in a task") == 1


def test_a_missing_module_of_gymnasium_names_its_extra(monkeypatch):
    def make(*_, **__):
        raise ModuleNotFoundError("No module named 'imageio'", name="imageio")

    monkeypatch.setattr(gymnasium, "make", make)
    with pytest.raises(GussError, match=r"No module named 'imageio'; .* pip install 'gymnasium\[mujoco\]'"):
        find_env("Hopper-v5", without_cost=True)
