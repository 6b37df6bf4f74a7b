"""Fronts in every cell, against storing one by one; and who becomes a parent."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import ACTIONS, make_task
from helpers.reference import Fronts
from hypothesis import given, settings
from scipy.stats import chisquare
from test_archive import CAPACITY, SIZES, generations
from test_risk import scores_of

from guss.planners import archive as archives
from guss.planners import fronts, make_planner

METHODS = {"pairs": fronts._fronts_by_pairs, "sorting": fronts._fronts_by_sorting}
TASK = make_task(ACTIONS["continuous"])


def storing(rule):
    @jax.jit
    def store_all(scores):
        archive, steps, start = archives.empty(jnp.zeros(()), CAPACITY), [], 0
        for size in SIZES:
            part = jax.tree.map(lambda x, start=start, size=size: x[start : start + size], scores)
            archive = archives.store(archive, start + jnp.arange(size, dtype=jnp.float32), part, rule)
            steps.append((archive.elite, fronts.filled_cells(archive)))
            start += size
        return steps

    return store_all


STORES = {method: storing(rule) for method, rule in METHODS.items()}


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=300)
@given(rows=generations)
def test_fronts_equal_storing_one_by_one(method, rows):
    slow, arrived = Fronts(), 0
    for size, (elite, filled) in zip(SIZES, jax.device_get(STORES[method](scores_of(rows))), strict=True):
        for hard, cost, reward, cell, finite in rows[arrived : arrived + size]:
            slow.store(slow.arrivals, cell, hard, cost, reward, finite)
        arrived += size
        assert np.flatnonzero(elite).tolist() == sorted(e.arrival for front in slow.cells.values() for e in front)
        assert int(filled) == len(slow.cells)


store = jax.jit(archives.store, static_argnums=3)


def archive_of(rows, rule=fronts.fronts_of_cells):
    candidates = jnp.arange(len(rows), dtype=jnp.float32)[:, None]  # a policy of one number
    scores = jax.tree.map(jnp.asarray, scores_of(rows))
    return store(archives.empty(jnp.zeros(1), len(rows)), candidates, scores, rule)


FRONT = [  # hard, cost, reward, cell, finite
    (0, 0, 1, 0, True),
    (0, 2, 5, 0, True),  # dearer, but more rewarding
    (0, 2, 4, 0, True),  # beaten by the one before
    (0, 1, 1, 0, True),  # no better than the first, and dearer
    (0, 2, 5, 0, True),  # the same again
    (1, 0, 9, 0, True),  # a hard violation is beaten by all
    (1, 3, 9, 1, True),  # unless there is nothing else
    (0, 0, 9, 2, False),
]


def test_a_front_by_hand():
    assert np.flatnonzero(archive_of(FRONT).elite).tolist() == [0, 1, 6]


def test_large_generations_are_sorted_and_agree_with_pairs():
    rows = np.random.default_rng(3).integers(0, [2, 30, 50, 90], (2100, 4)).tolist()
    assert archives.PAIRWISE_LIMIT < 2100 * 2100
    rows = [(*row, i % 50 > 0) for i, row in enumerate(rows)]
    by_sorting, by_pairs = (archive_of(rows, rule).elite for rule in (fronts.fronts_of_cells, METHODS["pairs"]))
    assert np.array_equal(by_sorting, by_pairs)
    assert by_pairs.sum() > 90


@pytest.mark.parametrize(("parents", "expected"), [("front", [1, 1, 1]), ("safe-first", [3, 0, 0])])
def test_parents_are_drawn_from_all_fronts_alike_or_from_safe_plans_first(parents, expected):
    """Chi-square over 3,000 draws: a sound selection fails at one seed in a million."""
    planner = make_planner("ps-me", TASK, horizon=1, budget=30, parents=parents)
    archive = archive_of(FRONT)
    lots = jax.random.uniform(jax.random.key(0), (3000, len(FRONT)), minval=-1.0, maxval=1.0)
    chosen, found = jax.vmap(lambda lots: planner.select(archive, lots, 1))(lots)
    assert found.all()
    counts = np.bincount(np.asarray(chosen).astype(int).ravel(), minlength=7)[[0, 1, 6]]
    assert counts.sum() == 3000
    if parents == "front":
        assert chisquare(counts).pvalue > 1e-6
    else:
        assert counts.tolist() == [1000 * share for share in expected]
    everyone, found = planner.select(archive, lots[0], 5)
    assert sorted(np.asarray(everyone)[np.asarray(found), 0].tolist()) == [0, 1, 6]  # then those missing are sampled


def test_the_safest_of_all_fronts_is_acted_with_and_cells_are_counted_once():
    planner = make_planner("ps-me", TASK, horizon=1, budget=30)
    archive = archive_of(FRONT)
    assert planner.best(archive).tolist() == [0.0]
    assert int(planner.occupancy(archive)) == 2
