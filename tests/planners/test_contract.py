"""What every registered planner must do, for every kind of action. Registering a planner is enough to be tested."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import ACTIONS, CHOICE, land_on_choice, looked_up, make_task
from helpers.quick import few, in_turn
from test_types import within

from guss.constraint import Constraint, with_params
from guss.errors import GussError
from guss.models.oracle import Oracle
from guss.planners import PLANNERS, make_planner
from guss.planners.engine import Monitor, begin, plan, plan_one
from guss.plugins import load_module
from guss.types import ContinuousActions, Scores

if "GUSS_TEST_PLUGIN" in os.environ:  # a planner of your own, held to the same contract
    load_module(os.environ["GUSS_TEST_PLUGIN"])

BUDGET, HORIZON = 100, 5

names = pytest.mark.parametrize("name", PLANNERS.names())
kinds = pytest.mark.parametrize(("name", "kind"), in_turn(PLANNERS, list(ACTIONS)))


def judging(*what, quick=None):
    chosen = [name for name in PLANNERS.names() if PLANNERS[name].item.objective in what]
    return pytest.mark.parametrize("name", few(PLANNERS, quick or chosen, chosen))


def solve(name, task, seed=0, horizon=HORIZON):
    planner = make_planner(name, task, horizon=horizon, budget=BUDGET)
    return plan(planner, Oracle.of(task), task, np.zeros(2), jax.random.key(seed))


def same(a, b):
    return jax.tree.all(jax.tree.map(lambda x, y: np.array_equal(x, y, equal_nan=x.dtype.kind == "f"), a, b))


@kinds
def test_memory_has_the_same_types_before_and_after_a_plan(name, kind):
    """Otherwise the second plan is compiled again."""
    task = make_task(ACTIONS[kind])
    first = make_planner(name, task, horizon=HORIZON, budget=BUDGET).first_memory()
    types = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), tree)  # noqa: E731
    assert types(first) == types(solve(name, task).memory)


@kinds
def test_plans_are_in_bounds_exact_in_budget_repeatable_and_worth_what_they_say(name, kind):
    task = make_task(ACTIONS[kind])
    result = solve(name, task)
    assert result.action.shape == task.actions.shape
    assert result.action.dtype == task.actions.dtype
    assert within(task.actions, result.action)
    assert within(task.actions, result.trajectory.action)

    assert int(result.diagnostics.evaluated) == BUDGET
    for budget in (101, 103, 999, 1000):
        assert sum(make_planner(name, task, horizon=1, budget=budget).schedule(budget)) == budget

    assert same(result, solve(name, task)), "the same key must give the same plan"
    others = [solve(name, task, seed=seed) for seed in (1, 2, 3)]
    assert not all(same(result, other) for other in others), "other keys, other searches"

    steps = jax.tree.map(np.asarray, result.trajectory)
    assert steps.next_obs.shape == (1, HORIZON, 2)
    np.testing.assert_array_equal(steps.action[0, 0], result.action)
    np.testing.assert_array_equal(steps.obs[0, 1:], steps.next_obs[0, :-1])
    apart = [[jnp.asarray(x[0, t]) for x in steps] for t in range(HORIZON)]
    rewards = [float(task.reward(*step)) for step in apart]
    costs = [float(task.costs(*step)[0]) for step in apart]
    np.testing.assert_allclose(float(result.diagnostics.reward), sum(rewards), rtol=1e-5)
    assert float(result.diagnostics.cost) == sum(costs)


def smallest(name, task, horizon, **settings):
    """The planner with the smallest budget it accepts, and a little more, so that there is a second generation."""
    for budget in range(1, 200):
        try:
            make_planner(name, task, horizon=horizon, budget=budget, **settings)
        except GussError:
            continue
        return make_planner(name, task, horizon=horizon, budget=budget + 3, **settings)
    raise AssertionError(f"{name} accepts no budget below 200")


def generation(planner, key):
    """One turn of the loop with made-up scores: everything a planner does between rollouts."""
    state = planner.init(key, jnp.zeros(2), planner.first_memory())
    for _ in range(2):
        last = planner.schedule(planner.budget)[-1]
        candidates = planner.ask(state, planner.draws(key, last), last)
        num = jax.tree.leaves(candidates)[0].shape[0]
        rank = jnp.arange(num, dtype=jnp.float32)
        scores = Scores(rank * 0.0, rank % 3.0, rank % 5.0, jnp.arange(num) % 4, rank > 1.0, rank < 0.0)
        state = planner.tell(state, candidates, scores)
    best = planner.best(state)
    return best, planner.act(best, jnp.ones(2), jnp.zeros((), jnp.int32)), planner.memory(state)


def assert_close(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["continuous", pytest.param("discrete", marks=pytest.mark.long)])
@pytest.mark.parametrize("name", few(PLANNERS, ("s-rs", "rcem", "guss", "cce", "s-icem", "s-mppi")))
def test_jit_agrees_with_eager(name, kind):
    planner = smallest(name, make_task(ACTIONS[kind]), horizon=3)
    assert_close(jax.jit(generation)(planner, jax.random.key(0)), generation(planner, jax.random.key(0)))


@pytest.mark.long
@names
def test_whole_plans_agree_with_eager_ones(name):
    task = make_task(ACTIONS["discrete"])
    args = (smallest(name, task, horizon=2), Oracle.of(task), task, jnp.zeros(2), jax.random.key(0))
    compiled = plan(*args)
    with jax.disable_jit():
        assert_close(compiled, plan_one(*args))


def choice_task(*, soft, hard=(0, 0, 0, 0), broken=(False,) * 4, reward=(0.0,) * 4):
    """One choice of four for one step; everything is looked up by the choice."""
    table = lambda values: with_params(looked_up, table=np.asarray(values, np.float32))  # noqa: E731
    constraints = (Constraint("soft", table(soft)), Constraint("red_button", table(hard), hard=True))
    step = with_params(land_on_choice, broken=np.asarray(broken))
    return make_task(CHOICE, reward=table(reward), constraints=constraints, step=step, name="choice", fallback=3)


@judging("cost")
@pytest.mark.parametrize("seed", range(5))
def test_when_nothing_is_safe_the_least_costly_plan_is_taken(name, seed):
    task = choice_task(soft=(3, 1, 2, 4), reward=(9.0, 0.0, 5.0, 7.0))
    result = solve(name, task, seed, horizon=1)
    assert int(result.action) == 1
    assert float(result.diagnostics.cost) == 1.0
    assert float(result.diagnostics.safe_share) == 0.0


@judging("penalty", "cost")
@pytest.mark.parametrize("seed", range(5))
def test_a_hard_violation_is_never_preferred_to_a_soft_one(name, seed):
    task = choice_task(soft=(0, 4, 4, 0), hard=(1, 0, 0, 1), reward=(99.0, 1.0, 2.0, 99.0))
    result = solve(name, task, seed, horizon=1)
    assert int(result.action) == 2  # four times as costly, but no red button; and the better of the two
    assert float(result.diagnostics.hard) == 0.0


def crater(obs, action, next_obs):
    return jnp.abs(next_obs[0]) < 0.05  # what lies between good plans is the worst


def rim(obs, action, next_obs):
    return 1.0


@judging("penalty", "cost", quick=("guss", "cce", "s-mppi"))
def test_a_hard_violation_between_two_soft_plans_is_never_chosen(name):
    constraints = (Constraint("rim", rim), Constraint("crater", crater, hard=True))
    task = make_task(ContinuousActions(low=(-1.0,), high=(1.0,)), reward=near_zero, constraints=constraints)
    for seed in range(3):
        assert float(solve(name, task, seed, horizon=1).diagnostics.hard) == 0.0


def near_zero(obs, action, next_obs):
    return -jnp.abs(next_obs[0])


def broken_in_the_middle(obs, action, key):
    return jnp.where(jnp.abs(action[0]) < 0.2, jnp.nan, obs + action[0])


@judging("reward", "penalty", "cost", quick=("guss", "cem", "mppi"))
def test_a_broken_prediction_between_two_good_plans_is_never_chosen(name):
    actions = ContinuousActions(low=(-1.0,), high=(1.0,))
    task = make_task(actions, reward=near_zero, constraints=(), step=broken_in_the_middle)
    for seed in range(3):
        result = solve(name, task, seed, horizon=1)
        assert not bool(result.diagnostics.fallback)
        assert abs(float(result.action[0])) >= 0.2


@judging("cost")
@pytest.mark.parametrize("seed", range(5))
def test_a_safe_plan_is_preferred_to_any_reward(name, seed):
    task = choice_task(soft=(1, 1, 0, 1), reward=(1e6, 1e6, -1e6, 1e6))
    assert int(solve(name, task, seed, horizon=1).action) == 2


@judging("penalty", "cost")
@pytest.mark.parametrize("seed", range(5))
def test_of_equal_rewards_the_least_costly_plan_is_taken(name, seed):
    task = choice_task(soft=(3, 1, 2, 4), reward=(5.0, 5.0, 5.0, 5.0))
    result = solve(name, task, seed, horizon=1)
    assert int(result.action) == 1
    assert float(result.diagnostics.cost) == 1.0


@judging("penalty")
@pytest.mark.parametrize("seed", range(5))
def test_a_price_on_cost_is_paid_where_the_reward_is_worth_it_and_only_there(name, seed):
    task = choice_task(soft=(1, 1, 0, 1), reward=(-1e6, 0.0, 1.0, -1e6))
    assert int(solve(name, task, seed, horizon=1).action) == 2
    task = choice_task(soft=(1, 1, 0, 1), reward=(-1e6, 1e6, 1.0, -1e6))
    assert int(solve(name, task, seed, horizon=1).action) == 1


@judging("reward", "penalty", "cost")
@pytest.mark.parametrize("seed", range(5))
def test_the_best_of_safe_plans_is_taken(name, seed):
    task = choice_task(soft=(0, 0, 0, 0), reward=(1.0, 2.0, 4.0, 3.0))
    assert int(solve(name, task, seed, horizon=1).action) == 2


@judging("reward", "penalty", "cost")
@pytest.mark.parametrize("seed", range(5))
def test_predictions_that_are_not_finite_are_never_chosen(name, seed):
    task = choice_task(soft=(2, 0, 0, 2), reward=(0.0, 9.0, 9.0, 1.0), broken=(False, True, True, False))
    result = solve(name, task, seed, horizon=1)
    assert int(result.action) == 3  # the better of the two that can be predicted
    assert not bool(result.diagnostics.fallback)
    assert 0.0 < float(result.diagnostics.broken_share) < 1.0


@judging("reward", "penalty", "cost")
def test_when_no_prediction_is_finite_the_fallback_is_taken_and_told(name):
    result = solve(name, choice_task(soft=(0,) * 4, broken=(True,) * 4), horizon=1)
    assert bool(result.diagnostics.fallback)
    assert float(result.diagnostics.broken_share) == 1.0
    assert float(result.diagnostics.safe_share) == 0.0
    assert int(result.action) == 3


@names
def test_what_a_planner_remembers_keeps_its_structure(name):
    task = make_task(ACTIONS["multi-discrete"])
    planner = make_planner(name, task, horizon=HORIZON, budget=BUDGET)
    search = begin(planner, Monitor(), jnp.zeros(2), jax.random.key(0), planner.first_memory())
    shapes = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype), tree)  # noqa: E731
    assert shapes(planner.memory(search.state)) == shapes(planner.first_memory())


@pytest.mark.parametrize("name", few(PLANNERS, ("guss", "cem", "s-icem", "mppi")))
def test_planners_work_under_vmap_over_states_and_keys(name):
    task = make_task(ACTIONS["continuous"])
    planner = make_planner(name, task, horizon=HORIZON, budget=BUDGET)
    keys = jax.random.split(jax.random.key(0), 3)
    obs = jnp.asarray([[0.0, 0.0], [0.1, -0.2], [-1.0, 2.0]])
    many = jax.jit(jax.vmap(lambda o, k: plan_one(planner, Oracle.of(task), task, o, k)))(obs, keys)
    for i in range(3):
        one = plan(planner, Oracle.of(task), task, obs[i], keys[i])
        np.testing.assert_allclose(many.action[i], one.action, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(many.diagnostics.reward[i], one.diagnostics.reward, rtol=1e-4)
