"""The survivors of dominated novelty search, against plain Python."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.reference import Population
from hypothesis import given, settings
from hypothesis import strategies as st
from test_risk import scores_of

from guss.planners import archive as archives
from guss.planners.novelty import competition_fitness, most_novel

SIZES = (8, 5, 5, 1, 7)
CAPACITY = sum(SIZES)
CASES = [(6, 3, 2), (1, 1, 1), (10, 2, 3), (40, 5, 1)]  # population, k, dimensions

# Few values, so that ties and equal descriptors are the rule.
scores = st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 3), st.just(0), st.booleans())
numbers = st.lists(st.integers(-4, 4), min_size=3 * CAPACITY, max_size=3 * CAPACITY)


def with_descriptors(rows, descriptors):
    return scores_of(rows)._replace(descriptor=np.asarray(descriptors, np.float32))


def storing(population, nearest, sizes=SIZES):
    """Stores generations of these sizes; returns the archive and its best candidate after each of them."""
    rule = partial(most_novel, population=population, nearest=nearest)

    @jax.jit
    def store_all(scores):
        archive, steps, start = archives.empty(jnp.zeros(()), sum(sizes), scores.descriptor.shape[1]), [], 0
        for size in sizes:
            part = jax.tree.map(lambda x, start=start, size=size: x[start : start + size], scores)
            archive = archives.store(archive, start + jnp.arange(size, dtype=jnp.float32), part, rule)
            steps.append((archive, archives.best(archive)[0]))
            start += size
        return steps

    return store_all


STORES = {case: storing(*case[:2]) for case in CASES}


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=100)
@given(rows=st.lists(scores, min_size=CAPACITY, max_size=CAPACITY), numbers=numbers)
def test_survivors_agree_with_the_slow_reference(case, rows, numbers):
    population, nearest, dims = case
    descriptors = np.reshape(numbers, (CAPACITY, 3))[:, :dims]
    slow, start = Population(population, nearest), 0
    for size, (archive, best) in zip(
        SIZES, jax.device_get(STORES[case](with_descriptors(rows, descriptors))), strict=True
    ):
        for i in range(start, start + size):
            hard, cost, reward, _, finite = rows[i]
            slow.store(i, tuple(descriptors[i].tolist()), hard, cost, reward, finite)
        start += size
        slow.survive(np.flatnonzero(archive.elite).tolist())
        assert int(archive.occupancy) == len(slow.cells)
        if slow.cells:  # the best of all so far is still there
            assert best == min((*row[:2], -row[2], i) for i, row in enumerate(rows[:start]) if row[4])[-1]


STORE_ONCE = storing(6, 1, (CAPACITY,))


@settings(max_examples=100)
@given(rows=st.lists(scores, min_size=CAPACITY, max_size=CAPACITY), numbers=numbers)
def test_with_one_neighbour_and_one_dimension_the_survivors_are_exact(rows, numbers):
    """Distances are whole numbers times the same factor: nothing depends on rounding."""
    descriptors = numbers[:CAPACITY]
    key = lambda i: (rows[i][0], rows[i][1], -rows[i][2], i)  # noqa: E731
    finite = [i for i in range(CAPACITY) if rows[i][4]]
    distance = {
        i: min((abs(descriptors[i] - descriptors[j]) for j in finite if key(j) < key(i)), default=np.inf)
        for i in finite
    }
    expected = sorted(finite, key=lambda i: (-distance[i], i))[:6]
    ((archive, _),) = STORE_ONCE(with_descriptors(rows, np.reshape(descriptors, (-1, 1))))
    assert np.flatnonzero(archive.elite).tolist() == sorted(expected)


def test_of_equal_candidates_the_first_arrivals_survive():
    rows = [(0, 1, 2, 3, True)] * CAPACITY
    for case in CASES:
        for archive, _ in STORES[case](with_descriptors(rows, np.ones((CAPACITY, case[2])))):
            assert np.flatnonzero(archive.elite).tolist() == list(range(min(case[0], int(archive.size))))


def test_candidates_without_finite_predictions_never_survive():
    rows = [(0, 0, 3, 1, False)] * CAPACITY
    for archive, _ in STORES[CASES[0]](with_descriptors(rows, np.zeros((CAPACITY, 2)))):
        assert not archive.elite.any()


@given(
    factor=st.sampled_from((1e-20, 1e-3, 1.0, 1e6, 1e30)),
    offset=st.sampled_from((0.0, 7.0)),
    values=st.lists(st.floats(-1, 1, width=32), min_size=2 * CAPACITY, max_size=2 * CAPACITY),
)
def test_any_finite_descriptors_keep_the_best_and_fill_the_population(factor, offset, values):
    descriptors = ((np.reshape(values, (CAPACITY, 2)) + offset) * factor).astype(np.float32)
    rows = [(0, 0, i % 7, 0, True) for i in range(CAPACITY)]
    archive, _ = STORES[CASES[0]](with_descriptors(rows, descriptors))[-1]
    assert int(archive.occupancy) == 6
    assert bool(archive.elite[6])


def test_units_and_constant_dimensions_do_not_matter():
    rng = np.random.default_rng(0)
    descriptors = rng.normal(size=(CAPACITY, 2))
    rows = [(0, int(cost), int(reward), 0, True) for cost, reward in rng.integers(0, 4, (CAPACITY, 2))]
    plain = STORES[CASES[0]](with_descriptors(rows, descriptors))
    scaled = STORES[CASES[0]](with_descriptors(rows, descriptors * [1e-4, 1e4]))
    constant = STORES[CASES[0]](with_descriptors(rows, np.concatenate([descriptors, np.full((CAPACITY, 1), 0.1)], 1)))
    for (a, _), (b, _), (c, _) in zip(plain, scaled, constant, strict=True):
        assert np.array_equal(a.elite, b.elite)
        assert np.array_equal(a.elite, c.elite)


def test_competition_fitness_of_a_line():
    """Rewards 0, 1, … 4 at 0, 1, 3, 6, 10: every candidate is compared with those on its right."""
    line = with_descriptors([(0, 0, i, 0, True) for i in range(5)], [[0], [1], [3], [6], [10]])
    alive = jnp.asarray([True, True, True, False, True])
    found = competition_fitness(jax.tree.map(jnp.asarray, line), jnp.ones(1), alive, 2)
    assert found.tolist() == [2.0, 5.5, 7.0, -np.inf, np.inf]
