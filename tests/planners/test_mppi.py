"""The weights, what they do to the sequence, and that safe samples alone have a say in the safe one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import ACTIONS, make_task
from test_risk import scores_of

from guss.errors import GussError
from guss.models.oracle import Oracle
from guss.planners import make_planner
from guss.planners.distributions import Normal, centre
from guss.planners.engine import plan
from guss.planners.mppi import weights as eager_weights

weights = jax.jit(eager_weights, static_argnums=(2, 3))
TASK = make_task(ACTIONS["continuous"])
REWARDS = np.asarray([3.0, -1.0, 4.0, 1.5, 9.0], np.float32)
COUNTS = np.asarray([True, True, True, True, False])


def by_formula(rewards, scale):
    raised = np.exp((rewards - rewards.max()) / scale)
    return np.append(raised / raised.sum(), 0.0)


@pytest.mark.parametrize(("relative", "scale"), [(True, 0.7 * np.std(REWARDS[:4])), (False, 0.7)])
def test_weights_are_the_softmax_of_rewards_over_the_temperature(relative, scale):
    got = weights(jnp.asarray(REWARDS), jnp.asarray(COUNTS), 0.7, relative)
    np.testing.assert_allclose(got, by_formula(REWARDS[:4], scale), rtol=1e-5)


def test_relative_weights_do_not_depend_on_the_unit_of_reward():
    once = weights(jnp.asarray(REWARDS), jnp.asarray(COUNTS), 0.3, True)
    again = weights(jnp.asarray(1000 * REWARDS - 5000), jnp.asarray(COUNTS), 0.3, True)
    np.testing.assert_allclose(once, again, rtol=1e-3, atol=1e-6)


def test_equal_rewards_weigh_the_same_none_weighs_nothing_and_huge_ones_stay_finite():
    same = weights(jnp.full(5, 1e6), jnp.asarray(COUNTS), 0.1, True)
    np.testing.assert_allclose(same, [0.25] * 4 + [0.0], rtol=1e-6)
    assert weights(jnp.asarray(REWARDS), jnp.zeros(5, bool), 0.1, True).tolist() == [0.0] * 5
    huge = weights(jnp.asarray([-3e38, 3e38, 0.0]), jnp.ones(3, bool), 0.1, True)
    assert np.isfinite(huge).all()


def test_the_sequence_moves_to_the_weighted_mean_and_the_noise_stays():
    planner = make_planner("mppi", TASK, horizon=1, budget=3, iterations=1, temperature=0.5, relative=False)
    state = planner.init(jax.random.key(0), jnp.zeros(2), planner.first_memory())
    samples = jnp.asarray([[[-2.0, 0.0]], [[1.0, 0.5]], [[-0.5, 0.25]]])  # −1, 1 and 0 in half-widths
    scores = scores_of([(0, 9, 1.0, 0, True), (0, 0, 2.0, 0, True), (0, 0, 9, 0, False)])
    after = jax.jit(lambda *x: planner.tell(*x))(state, samples, jax.tree.map(jnp.asarray, scores))
    low, high = by_formula(np.asarray([1.0, 2.0]), 0.5)[:2]
    assert isinstance(after.dist, Normal)
    np.testing.assert_allclose(after.dist.mean[0], [high - low] * 2, rtol=1e-5)
    np.testing.assert_array_equal(after.dist.std, state.dist.std)
    np.testing.assert_array_equal(after.sample, samples[1])


def counted(rows):
    planner = make_planner("s-mppi", TASK, horizon=1, budget=9)
    return np.asarray(planner.counts(jax.tree.map(jnp.asarray, scores_of(rows)))).tolist()


def test_only_feasible_samples_count_or_the_least_costly_ones():
    feasible = [(0, 0, 1, 0, True), (0, 1, 9, 0, True), (0, 0, 2, 0, True), (0, 0, 9, 0, False)]
    assert counted(feasible) == [True, False, True, False]
    costly = [(0, 3, 1, 0, True), (0, 2, 9, 0, True), (1, 0, 2, 0, True), (0, 2, 0, 0, True)]
    assert counted(costly) == [False, True, False, True]  # no hard violation, then the lowest cost
    assert counted([(0, 0, 0, 0, False)] * 2) == [False, False]


@pytest.mark.xdist_group("mppi")
@pytest.mark.parametrize("kind", ["continuous", pytest.param("multi-discrete", marks=pytest.mark.long)])
def test_a_next_plan_starts_from_the_sequence_one_step_on(kind):
    task = make_task(ACTIONS[kind], constraints=())
    planner = make_planner("mppi", task, horizon=4, budget=90)
    first = planner.first_memory()
    after = plan(planner, Oracle.of(task), task, np.zeros(2), jax.random.key(0)).memory
    actions = lambda dist: np.asarray(centre(dist, task.actions), float)  # noqa: E731
    assert actions(after)[:3].mean() > actions(first)[:3].mean()  # the reward asks for large actions
    np.testing.assert_array_equal(actions(after)[3], actions(first)[3])  # the new last step is unknown


@pytest.mark.xdist_group("s-mppi")
def test_the_safe_one_avoids_a_cost_that_the_other_runs_into():
    for name, unsafe in (("mppi", True), ("s-mppi", False)):
        planner = make_planner(name, TASK, horizon=5, budget=100)
        result = plan(planner, Oracle.of(TASK), TASK, np.full(2, 0.2), jax.random.key(0))
        assert (float(result.diagnostics.cost) > 0.0) == unsafe
        assert float(result.diagnostics.reward) > 0.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temperature": 0.0}, "temperature must be more than 0, got 0.0"),
        ({"mixing": 0.0}, "mixing must be more than 0 and at most 1, got"),
        ({"iterations": 0}, "iterations must be at least 1, got 0"),
        (
            {"budget": 2, "iterations": 3},
            "a budget of 2 plans is too small for 3 iterations, which need at least one plan each",
        ),
    ],
)
def test_settings_that_make_no_sense_are_told(options, words):
    with pytest.raises(GussError, match=words):
        make_planner("mppi", TASK, **({"horizon": 2, "budget": 30} | options))
