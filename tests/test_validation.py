"""Settings from everywhere are checked in one place: types, names, ranges and what memory is meant for."""

import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pytest

from guss import Agent
from guss.errors import GussError
from guss.methods.presets import settings_from
from guss.methods.settings import AgentSettings
from guss.plugins import load_preset
from guss.runs.config import RunConfig, config_from, seeds_from
from guss.runs.trainer import Trainer
from guss.validation import build, convert


@dataclass(frozen=True)
class Inner:
    sizes: tuple[int, ...] = (1,)


@dataclass(frozen=True)
class Outer:
    count: int
    share: float = 0.5
    flag: bool = False
    name: str | None = None
    kind: Literal["a", "b"] = "a"
    inner: Inner = field(default_factory=Inner)
    margin: float | dict[str, float] = 0.0


def test_plain_values_become_the_types_of_the_fields():
    found = build(Outer, {"count": np.int64(3), "share": 1, "inner": {"sizes": [2, 3]}, "margin": {"x": 1}}, "outer")
    assert found == Outer(count=3, share=1.0, inner=Inner((2, 3)), margin={"x": 1.0})
    assert type(found.count) is int
    assert type(found.share) is float


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"count": True}, r"^outer\.count must be an integer, got True \(bool\)$"),
        ({"count": "5"}, r"^outer\.count must be an integer, got '5' \(str\)$"),
        ({"count": 2.0}, r"^outer\.count must be an integer, got 2.0 \(float\)$"),
        ({"count": 2**31}, r"outer\.count must be an integer of 32 bits"),
        ({"count": 10**5000}, r"got a number of 16610 bits"),
        ({"count": 1, "share": float("nan")}, r"outer\.share must be a finite number, got nan"),
        ({"count": 1, "share": 10**400}, r"outer\.share must be a finite number"),
        ({"count": 1, "share": True}, r"outer\.share must be a finite number, got True"),
        ({"count": 1, "flag": 1}, r"outer\.flag must be true or false, got 1"),
        ({"count": 1, "name": 5}, r"outer\.name must be text or none, got 5"),
        ({"count": 1, "kind": "c"}, r"unknown value of outer\.kind: 'c'"),
        ({"count": 1, "kind": [1]}, r"outer\.kind must be one of 'a', 'b', got \[1\]"),
        ({"count": 1, "inner": {"sizes": [1, "x"]}}, r"^outer\.inner\.sizes\[1\] must be an integer, got 'x'"),
        ({"count": 1, "inner": 7}, r"outer\.inner must be a table of settings, got 7"),
        ({"count": 1, "margin": {"x": "y"}}, r"outer\.margin\.x must be a finite number, got 'y'"),
        ({"count": 1, "margin": []}, r"outer\.margin must be a finite number or a table, got \[\]"),
        ({"cuont": 1}, r"unknown setting of outer: 'cuont'. Did you mean 'count'\?"),
        ({}, r"outer\.count is missing; it must be an integer"),
        ([1], r"outer must be a table of settings, got \[1\] \(list\)"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named_with_its_place(values, words):
    with pytest.raises(GussError, match=words):
        build(Outer, values, "outer")


def test_a_misspelled_setting_of_an_agent_is_named_with_the_nearest():
    with pytest.raises(GussError, match=r"unknown setting 'horizont'. Did you mean 'horizon'\?"):
        Agent("safe-pendulum", horizont=5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"horizon": "5"}, r"settings\.horizon must be an integer, got '5'"),
        ({"horizon": 0}, r"settings\.horizon must be at least 1, got 0"),
        ({"budget": True}, r"settings\.budget must be an integer, got True"),
        ({"method_settings": 3}, r"methods\.guss must be a table, got 3"),
        ({"method_settings": {"num_new": "x"}}, r"methods\.guss\.num_new must be an integer, got 'x'"),
        ({"model_settings": {"hidden": [50, "x"]}}, r"model\.hidden\[1\] must be an integer, got 'x'"),
        ({"model_settings": {"ensemble": 0}}, r"model\.ensemble must be at least 1, got 0"),
        ({"fit": {"batch": None}}, r"fit\.batch must be an integer, got None"),
        ({"fit": {"learning_rate": float("inf")}}, r"fit\.learning_rate must be a finite number, got inf"),
        ({"planning_margin": float("nan")}, r"settings\.planning_margin must be a finite number"),
        ({"planning_margin": -0.1}, r"settings\.planning_margin must be at least 0, got -0\.1"),
        ({"learned": "cost"}, r"settings\.learned must be a list of texts, got 'cost'"),
        ({"model": 5}, r"settings\.model must be text, got 5"),
        ({"horizon": 10**6, "budget": 10**6}, "the limit of 20000000 predicted steps; .*GUSS_MAX_PLAN_STEPS="),
        ({"model_settings": {"hidden": [100000, 100000]}}, "the limit of 50000000 weights; .*GUSS_MAX_WEIGHTS="),
        ({"fit": {"batch": 10**9}}, "more than the limit of 1000000 transitions; .*GUSS_MAX_BATCH="),
    ],
)  # fmt: skip
def test_wrong_settings_of_an_agent_are_refused_before_anything_is_made(arguments, words):
    with pytest.raises(GussError, match=words):
        settings_from(AgentSettings, {}, "guss", **arguments)


@pytest.mark.parametrize("seed", [-1, 2**31, 2**32, True])
def test_seeds_are_whole_numbers_of_31_bits(seed):
    with pytest.raises(GussError, match="the seed must be an integer from 0 to 2147483647, got"):
        Agent("safe-pendulum", seed=seed, method="random")


def test_the_largest_seed_works_and_the_next_does_not():
    assert seeds_from(2**31 - 2, 2) == (2**31 - 2, 2**31 - 1)
    with pytest.raises(GussError, match=r"the last seed .* from 0 to 2147483647, got 2147483648"):
        seeds_from(2**31 - 2, 3)
    with pytest.raises(GussError, match="more than the limit of 10000 seeds"):
        seeds_from(0, 10**9)


def test_an_environment_variable_raises_a_limit(monkeypatch):
    monkeypatch.setenv("GUSS_MAX_PLAN_STEPS", "40000000")
    assert AgentSettings(horizon=200, budget=200_000).horizon == 200


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("horizon = '5'", r"preset\.horizon must be an integer, got '5'"),
        ("model = 3", r"preset\.model must be a table, got 3"),
        ("methods = [1]", r"preset\.methods must be a table, got \[1\]"),
        ("methods.guss = 3", r"preset\.methods\.guss must be a table, got 3"),
        ("methods.gus.num_new = 3", "unknown method 'gus'. Did you mean 'guss'"),
        ("methods.pro.gamma = 1", "unknown method 'pro'. Did you mean 'ppo'"),
        ("methods.guss.model = 3", r"preset\.methods\.guss\.model must be a table, got 3"),
        ("[model]\nhidden = [5, 'x']", r"model\.hidden\[1\] must be an integer, got 'x'"),
        ("[model]\nname = 5", r"settings\.model must be text, got 5"),
        ("env = 5", r"preset\.env must be text, got 5"),
        ("target = nan", r"preset\.target must be a finite number or none, got nan"),
        ("hroizon = 5", "unknown setting of the preset: 'hroizon'. Did you mean 'horizon'"),
        ("extends = [1]", "unknown experiment that"),
        ("a = " + 5000 * "[", "is not TOML"),
    ],
)
def test_wrong_presets_are_named_by_their_entry(tmp_path, text, words):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(GussError, match=words):
        config_from(load_preset(str(path)), "guss", "safe-pendulum", (0,))


def test_files_that_are_not_text_are_no_presets(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(GussError, match="is not TOML"):
        load_preset(str(path))


STORED: dict[str, Any] = {"env": "safe-pendulum", "seeds": [0], "episodes": 3}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"seeds": [-1]}, r"settings\.seeds\[0\] must be an integer from 0 to"),
        ({"seeds": "0"}, r"settings\.seeds must be a list of integers, got '0'"),
        ({"episodes": None}, r"settings\.episodes must be an integer, got None"),
        ({"target": "-inf"}, r"settings\.target must be a finite number or none"),
        ({"step_timeout": float("inf")}, r"settings\.step_timeout must be a finite number"),
        ({"step_timeout": 1e300}, "the step_timeout must be a number of seconds"),
        ({"model_settings": [1]}, r"settings\.model_settings must be a table of settings, got \[1\]"),
        ({"fit": {"epochs": "1"}}, r"settings\.fit\.epochs must be an integer"),
        ({"method_settings": {"num_new": []}}, r"methods\.guss\.num_new must be an integer"),
        ({"method": "ppo", "method_settings": {"gamma": "1"}}, r"methods\.ppo\.gamma must be a finite number"),
        ({"epsiodes": 3}, "unknown setting of settings: 'epsiodes'. Did you mean 'episodes'"),
    ],
)
def test_wrong_stored_settings_are_named(values, words):
    with pytest.raises(GussError, match=words):
        build(RunConfig, STORED | values, "settings")


CALLS = """
import numpy as np
from guss import Agent
from guss.envs import make_task
from guss.errors import GussError
from guss.models.training import FitSettings
from guss.models.factory import ModelSettings
from guss.planners import make_planner
from guss.planners.engine import plan_within

def refused(words, call, *positional, **named):
    try:
        call(*positional, **named)
    except GussError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)

refused("fit.batch must be an integer, got '5' (str)", FitSettings, batch="5")
refused("model.hidden[0] must be an integer, got 'a' (str)", ModelSettings, hidden=("a",))
refused("settings.horizon must be an integer, got '5' (str)", Agent, "safe-pendulum", horizon="5")
refused("settings.method must be text, got 5 (int)", Agent, "safe-pendulum", method=5)
refused("preset must be a table of settings, got 3 (int)", Agent, "safe-pendulum", preset=3)
for seed in (2.5, "1", None):
    refused("the seed must be an integer from 0", Agent, "safe-pendulum", seed=seed, method="random")
assert ModelSettings(hidden=[5, 5]).hidden == (5, 5)
task = make_task("safe-toy")
planner = make_planner("rs", task, horizon=np.int64(3), budget=np.int32(5))
assert (planner.horizon, planner.budget) == (3, 5)
refused("at least 0; got chunk=8, seconds=nan", plan_within, planner, None, task, None, None, float("nan"))
"""


def test_python_calls_are_checked_too():
    """In a process without the type checker of these tests, which would refuse them first."""
    done = subprocess.run([sys.executable, "-c", CALLS], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_buffers_beyond_memory_are_refused_by_a_limit():
    config = config_from({}, "guss", "safe-pendulum", (0, 1), episodes=10**8)
    with pytest.raises(GussError, match=r"more than the limit of 8589934592 bytes; .*GUSS_MAX_BUFFER_BYTES="):
        Trainer(config)


def test_types_can_be_given_directly():
    assert convert([1, 2], tuple[int, int], "pair") == (1, 2)
    with pytest.raises(GussError, match="pair must have 2 entries"):
        convert([1], tuple[int, int], "pair")


def test_the_command_line_refuses_in_one_line(guss_here):
    for words, told in (
        (["run", "--seed", "4294967296"], "the last seed"),
        (["run", "--horizon", "1000000000"], "predicted steps"),
        (["run", "--target", "nan"], "settings.target must be a finite number"),
        (["run", "--method.num-new", "0"], "method.num_new must be at least 1, got 0"),
        (["plan", "--seed", "-1"], "--seed must be an integer from 0"),
        (["check-env", "safe-toy", "--step-timeout", "nan"], "--step-timeout must be a finite number"),
    ):
        process = guss_here(*words, check=2)
        assert told in process.stderr
        assert "Traceback" not in process.stderr
