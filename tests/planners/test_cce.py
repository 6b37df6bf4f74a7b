"""A price on cost: how samples are ranked, and what a higher price does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import ACTIONS, make_task
from test_engine import Crowd
from test_risk import scores_of

from guss.errors import GussError
from guss.models.oracle import Oracle
from guss.planners import make_planner
from guss.planners.distributions import ranking
from guss.planners.engine import plan
from guss.planners.rollouts import Particles, roll_out, score

pytestmark = pytest.mark.xdist_group("cce")
TASK = make_task(ACTIONS["continuous"])


def solve(name, **settings):
    planner = make_planner(name, TASK, horizon=5, budget=100, **settings)
    return plan(planner, Oracle.of(TASK), TASK, np.full(2, 0.2), jax.random.key(0))  # a step from the cost


def test_samples_rank_by_hard_violations_then_by_reward_less_the_price_of_cost():
    planner = make_planner("cce", TASK, horizon=1, budget=50, penalty=2.0)
    rows = [(0, 3, 10, 0, True), (0, 0, 3, 0, True), (0, 1, 7, 0, True), (1, 0, 99, 0, True), (0, 0, 9, 0, False)]
    ranked = planner.ranking_scores(jax.tree.map(jnp.asarray, scores_of(rows)))
    assert ranked.reward[:4].tolist() == [4.0, 3.0, 5.0, 99.0]
    assert ranking(ranked).tolist() == [2, 0, 1, 3, 4]
    assert planner.counts(ranked).tolist() == [True] * 4 + [False]
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(ranked))


def test_a_price_beyond_all_numbers_ranks_last_and_stays_finite():
    planner = make_planner("cce", TASK, horizon=1, budget=50, penalty=1e38)
    ranked = planner.ranking_scores(jax.tree.map(jnp.asarray, scores_of([(0, 100, 1, 0, True), (0, 0, -5, 0, True)])))
    assert np.isfinite(ranked.reward).all()
    assert ranking(ranked).tolist() == [1, 0]


def test_without_a_price_it_is_cem():
    free, plain = solve("cce", penalty=0.0, guard=False), solve("cem", guard=False)
    np.testing.assert_array_equal(free.action, plain.action)
    assert float(free.diagnostics.cost) == float(plain.diagnostics.cost) > 0.0


def test_a_higher_price_buys_safety():
    cost = [float(solve("cce", penalty=penalty).diagnostics.cost) for penalty in (0.0, 1000.0)]
    assert cost[0] > 0.0
    assert cost[1] == 0.0


def test_the_cost_is_the_mean_over_particles():
    planner = make_planner("cce", TASK, horizon=5, budget=50)
    sequences = TASK.actions.sample(jax.random.key(0), (1, 5))
    rollouts = roll_out(planner, Particles.of(Crowd()), jnp.zeros(2), jax.random.key(0), sequences)
    scores = score(planner, Particles.of(Crowd()), TASK, jax.tree.map(lambda x: x[0], rollouts))
    np.testing.assert_allclose(scores.cost, (0 + 2 + 4) / 3)


@pytest.mark.parametrize("penalty", [-1.0, float("inf"), float("nan")])
def test_a_price_is_a_finite_number(penalty):
    with pytest.raises(GussError, match="penalty must be a finite number"):
        make_planner("cce", TASK, horizon=1, budget=50, penalty=penalty)
