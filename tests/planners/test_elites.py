"""What GuSS and MAP-Elites share beyond the algorithms of the paper: starting from the last plan's policy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import ACTIONS, make_task
from scipy.stats import kstest

from guss.models.oracle import Oracle
from guss.planners import make_planner
from guss.planners.engine import plan

TASK = make_task(ACTIONS["continuous"])
KEYS = jax.random.split(jax.random.key(0), 2)


@pytest.mark.parametrize("name", ["guss", "map-elites"])
def test_a_warm_start_evaluates_the_last_plans_policy_again(name):
    warm = make_planner(name, TASK, horizon=4, budget=30)
    first = warm.first_memory()
    assert np.isnan(first).all()
    memory = plan(warm, Oracle.of(TASK), TASK, np.zeros(2), KEYS[0]).memory
    state = warm.init(KEYS[1], jnp.zeros(2), memory)
    asked = warm.ask(state, warm.draws(KEYS[1], 25), 25)
    np.testing.assert_array_equal(asked[0], memory)
    fresh = warm.ask(warm.init(KEYS[1], jnp.zeros(2), first), warm.draws(KEYS[1], 25), 25)
    assert np.isfinite(fresh).all(), "nothing is remembered before the first plan"
    np.testing.assert_array_equal(asked[1:], fresh[1:])


def test_a_warm_started_plan_is_at_least_as_good_from_the_same_state():
    warm = make_planner("guss", TASK, horizon=4, budget=30)
    first = plan(warm, Oracle.of(TASK), TASK, np.zeros(2), KEYS[0])
    again = plan(warm, Oracle.of(TASK), TASK, np.zeros(2), KEYS[1], memory=first.memory)
    worth = lambda p: (-float(p.diagnostics.cost), float(p.diagnostics.reward))  # noqa: E731
    assert worth(again) >= worth(first)


def test_a_cold_start_remembers_nothing():
    cold = make_planner("guss", TASK, horizon=4, budget=30, warm_start=False)
    assert np.isnan(plan(cold, Oracle.of(TASK), TASK, np.zeros(2), KEYS[0]).memory).all()


def test_a_generations_numbers_are_uniform_and_normal():
    """KS tests of 10,000 and more draws; sound ones fail at one seed in a million."""
    planner = make_planner("guss", make_task(ACTIONS["continuous"]), horizon=2, budget=50)
    drawn = jax.vmap(lambda key: planner.draws(key, 25))(jax.random.split(jax.random.key(11), 200))
    assert kstest(np.asarray(drawn.lots).ravel(), "uniform", args=(-1.0, 2.0)).pvalue > 1e-6
    assert kstest(np.asarray(drawn.noise).ravel(), "norm").pvalue > 1e-6
    assert np.isfinite(drawn.noise).all()
