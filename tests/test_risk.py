import jax
import jax.numpy as jnp
import numpy as np
from helpers.problems import ACTIONS, make_task, nowhere_unsafe
from hypothesis import given
from hypothesis import strategies as st

from guss import risk
from guss.constraint import Constraint
from guss.types import WORST, Scores

small = st.integers(0, 3)


def scores_of(rows):
    """Scores from (hard, cost, reward, cell, finite) rows, as NumPy arrays."""
    hard, cost, reward, cell, finite = (np.asarray(column) for column in zip(*rows, strict=True))
    finite = finite.astype(bool)
    return Scores(
        hard=np.where(finite, hard, WORST).astype(np.float32),
        cost=np.where(finite, cost, WORST).astype(np.float32),
        reward=np.where(finite, reward, -WORST).astype(np.float32),
        cell=cell.astype(np.int32),
        finite=finite,
        outside=np.zeros(len(rows), bool),
    )


best_index = jax.jit(lambda scores: risk.best_index(scores))


def test_a_plans_cost_is_what_exceeds_each_bound():
    task = make_task(
        ACTIONS["continuous"],
        constraints=(
            Constraint("free", nowhere_unsafe, bound=2.0),
            Constraint("strict", nowhere_unsafe),
            Constraint("button", nowhere_unsafe, hard=True),
        ),
    )
    costs = np.zeros((2, 5, 3), np.float32)  # two particles
    costs[0, :3, 0] = 1  # one step beyond its bound of two
    costs[0, 0, 1] = 1
    costs[1, :2, 0] = 1  # within its bound
    costs[1, 3:, 2] = 1  # two hard violations
    hard, cost = risk.plan_cost(task, jnp.asarray(costs))
    assert (float(hard), float(cost)) == (2.0, 2.0)  # the worst particle of each


def test_a_task_without_constraints_costs_nothing():
    hard, cost = risk.plan_cost(make_task(ACTIONS["continuous"], constraints=()), jnp.zeros((1, 5, 0)))
    assert (float(hard), float(cost)) == (0.0, 0.0)


@given(st.lists(st.tuples(small, small, small, small, st.booleans()), min_size=6, max_size=6))
def test_the_best_is_what_python_sorts_first(rows):
    scores = scores_of(rows)
    finite = [i for i, row in enumerate(rows) if row[4]]
    expected = min(finite, key=lambda i: (rows[i][0], rows[i][1], -rows[i][2]), default=0)
    assert int(best_index(scores)) == expected


@given(st.lists(st.tuples(small, small, small, small, st.just(True)), min_size=2, max_size=2))
def test_better_is_lexicographic(rows):
    scores = jax.tree.map(jnp.asarray, scores_of(rows))
    a, b = (jax.tree.map(lambda x, i=i: x[i], scores) for i in (0, 1))
    key = lambda row: (row[0], row[1], -row[2])  # noqa: E731
    assert bool(risk.better(a, b)) == (key(rows[0]) < key(rows[1]))


def test_cost_and_reward_are_never_folded_into_one_number():
    # A penalty of 1e6 in float32 would lose a reward difference of 0.01.
    assert int(best_index(scores_of([(0, 1e6, 1.00, 0, True), (0, 1e6, 1.01, 0, True)]))) == 1
    assert int(best_index(scores_of([(0, 1e-6, 1e9, 0, True), (0, 0, -1e9, 0, True)]))) == 1
