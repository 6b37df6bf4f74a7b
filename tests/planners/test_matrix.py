"""Every planner on every bundled environment's Task: the plan compiles, and its action is one of the task's."""

from functools import cache

import jax
import numpy as np
import pytest
from helpers.quick import in_turn
from test_contract import smallest
from test_types import within

from guss.envs import ENVS, make_task
from guss.models.factory import ModelSettings, make_model
from guss.models.oracle import Oracle
from guss.planners import PLANNERS, make_planner, settings_of
from guss.planners.engine import plan

KEY = jax.random.key(0)


@cache
def problem(env):
    """A Task, a model of it and a first observation; an untrained net where there is no compiled step to start from."""
    task = make_task(env)
    if task.reset is not None:
        return task, Oracle.of(task), task.reset(KEY)
    return task, make_model("dmdn", task, KEY, ModelSettings(hidden=(4,))), np.zeros(task.observations.size)


def tiny(name, task):
    """One generation, where the planner lets one choose: each is compiled on its own."""
    once = {"iterations": 1} if "iterations" in settings_of(PLANNERS[name].item) else {}
    return make_planner(name, task, horizon=2, budget=smallest(name, task, horizon=2, **once).budget - 3, **once)


@pytest.mark.parametrize(("name", "env"), in_turn(PLANNERS, [entry.name for entry in ENVS if entry.bundled]))
def test_every_planner_plans_on_every_environment(name, env):
    task, model, obs = problem(env)
    planner = tiny(name, task)
    result = plan(planner, model, task, obs, KEY)
    assert result.action.shape == task.actions.shape
    assert within(task.actions, result.action)
    assert int(result.diagnostics.evaluated) == planner.budget
    assert np.isfinite(result.diagnostics.reward)
    assert not bool(result.diagnostics.fallback)
