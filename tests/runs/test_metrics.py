import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from guss.runs import metrics

values = st.floats(-100, 100, width=32)
records = st.tuples(st.integers(1, 4), st.integers(1, 23)).flatmap(
    lambda shape: st.tuples(
        arrays(float, shape, elements=values), arrays(float, shape, elements=st.floats(0, 100, width=32))
    )
)


@given(records)
def test_measures_equal_a_slow_reading_of_the_appendix(record):
    rewards, unsafe = record
    seeds, n = rewards.shape
    lengths = np.full(np.shape(unsafe), 7)
    for s in range(seeds):
        half = [rewards[s, tau - 1] for tau in range(1, n + 1) if tau > n // 2]
        assert math.isclose(metrics.mar(rewards)[s], sum(half) / len(half), rel_tol=1e-9, abs_tol=1e-9)
        assert math.isclose(metrics.p_unsafe(unsafe, lengths)[s], sum(unsafe[s]) / n, rel_tol=1e-9, abs_tol=1e-9)
        early = [unsafe[s, i] for i in range(n) if i < -(-15 * n // 100)]
        assert math.isclose(
            metrics.p_unsafe_transient(unsafe, lengths)[s],
            sum(early) / len(early),
            rel_tol=1e-9,
            abs_tol=1e-9,
        )
        steps, expected = 0, math.nan
        for reward in rewards[s]:
            steps += 200
            if reward >= 3.0:
                expected = steps
                break
        np.testing.assert_equal(metrics.mrcp(rewards, np.full((seeds, n), 200), 3.0)[s], expected)


def test_by_hand():
    rewards = np.asarray([[-9.0, -5.0, -2.0, -1.0, -3.0], [0.0, 0.0, 0.0, 0.0, 0.0], [-9.0] * 5])
    assert metrics.mar(rewards).tolist() == [-2.0, 0.0, -9.0]  # episodes 3, 4, 5
    assert metrics.mar(rewards[:, :4]).tolist() == [-1.5, 0.0, -9.0]  # 3 and 4
    reached = metrics.mrcp(rewards, np.full((3, 5), 200), -2.5)
    np.testing.assert_equal(reached, [600, 200, math.nan])  # later, at once, never
    assert metrics.p_unsafe_transient(np.arange(50.0)[None], np.ones((1, 50))).tolist() == [3.5]  # the first ⌈7.5⌉ = 8
    assert metrics.p_unsafe_transient(np.arange(20.0)[None], np.ones((1, 20))).tolist() == [1.0]  # exactly 3


def test_intervals_are_gaussian():
    got = metrics.interval([1.0, 2.0, 3.0, math.nan])
    low, high = stats.norm.interval(0.9, loc=2.0, scale=1.0 / math.sqrt(3))
    assert math.isclose(got.mean, 2.0)
    assert math.isclose(got.half_width, (high - low) / 2)
    assert metrics.interval([5.0]).mean == 5.0
    assert math.isnan(metrics.interval([5.0]).half_width)
    assert math.isnan(metrics.interval([math.nan]).mean)


@given(arrays(float, 6, elements=values, unique=True), arrays(float, 5, elements=values, unique=True))
def test_tests_are_scipys(a, b):
    assert math.isclose(
        metrics.welch_p(a, b), stats.ttest_ind(a, b, equal_var=False).pvalue, rel_tol=1e-6, abs_tol=1e-12
    )
    assert metrics.rank_sum_p(a, b) == stats.ranksums(a, b).pvalue


def test_full_separation_of_ten_against_ten_is_what_the_paper_reports():
    p = metrics.rank_sum_p(np.arange(10), np.arange(100, 110))
    # Rank sum 55, expected 105, standard deviation sqrt(10·10·21/12).
    assert np.isclose(p, 2 * stats.norm.sf((105 - 55) / np.sqrt(175)))
    assert 1.5e-4 < p < 1.8e-4


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=9))
def test_pareto_ranks_peel_off_fronts(points):
    ranks = metrics.pareto_ranks(*np.asarray(points, float).T)
    assert ranks.min() == 1
    beats = lambda a, b: a[0] >= b[0] and a[1] <= b[1] and a != b  # noqa: E731
    for i, point in enumerate(points):
        above = [ranks[j] for j, other in enumerate(points) if beats(other, point)]
        assert ranks[i] == (max(above) + 1 if above else 1)  # chains of domination have no gaps


def test_pareto_ranks_of_the_papers_pendulum():
    # S-RS, GuSS, Safe-MBPO, RS of Table 1: S-RS dominates everything, GuSS and Safe-MBPO trade reward for safety.
    assert metrics.pareto_ranks([-2.09, -2.2, -3.38, -2.7], [0.31, 0.68, 0.61, 1.49]).tolist() == [1, 2, 2, 3]


def test_what_is_not_seeds_by_episodes_is_refused():
    with pytest.raises(ValueError, match=r"expected an array \[seeds, episodes\]"):
        metrics.mar([1.0, 2.0])
    with pytest.raises(ValueError, match="at least one episode"):
        metrics.mar(np.zeros((3, 0)))


@given(arrays(float, st.integers(1, 20), elements=values))
def test_the_interquartile_mean_leaves_out_the_outer_quarters(found):
    kept = np.sort(found)[len(found) // 4 : len(found) - len(found) // 4]
    assert math.isclose(metrics.iqm(found), kept.mean(), rel_tol=1e-9, abs_tol=1e-9)
    low, high = metrics.bootstrap_iqm(found, draws=50)
    if len(found) == 1:
        assert math.isnan(low)
    else:
        assert found.min() - 1e-9 <= low <= high <= found.max() + 1e-9


def test_bootstrap_intervals_are_always_the_same_and_hold_the_truth_about_as_often_as_they_say():
    """Of 400 samples of 40, 90 % intervals hold the middle of a symmetric law 360 times; 3 σ are 18, and the bootstrap
    is a little narrow: 330 to 385 has a false-alarm rate below 1e-3."""
    draws = np.random.default_rng(1).normal(size=(400, 40))
    intervals = [metrics.bootstrap_iqm(row, draws=400) for row in draws]
    assert 330 <= sum(low <= 0.0 <= high for low, high in intervals) <= 385
    assert metrics.bootstrap_iqm(draws[0]) == metrics.bootstrap_iqm(draws[0])


@given(st.lists(st.floats(0, 1), max_size=8), st.floats(0.001, 0.5))
def test_holms_correction_rejects_what_the_step_down_procedure_does(p, alpha):
    corrected = metrics.holm(p)
    order, rejected = sorted(range(len(p)), key=lambda i: p[i]), set()
    for k, i in enumerate(order):
        if p[i] * (len(p) - k) > alpha:
            break
        rejected.add(i)
    assert {i for i, q in enumerate(corrected) if q <= alpha} == rejected
    assert all(a <= b <= 1.0 for a, b in zip(p, corrected, strict=True))


def test_what_has_no_p_value_does_not_count_and_constants_are_alike_or_not():
    np.testing.assert_array_equal(metrics.holm([math.nan, 0.02, 0.01]), [math.nan, 0.02, 0.02])
    assert math.isnan(metrics.welch_p([1.0], [1.0, 2.0]))
    assert metrics.welch_p([2.0, 2.0], [2.0, 2.0, 2.0]) == 1.0
    assert metrics.welch_p([2.0, 2.0], [2.1, 2.1]) == 0.0
    assert 0.0 < metrics.welch_p([2.0, 2.0], [2.1, 2.3]) < 1.0


def test_unsafe_steps_are_counted_over_all_steps_not_averaged_over_episodes():
    steps, unsafe = np.asarray([[10, 190]]), np.asarray([[0, 38]])
    np.testing.assert_allclose(metrics.p_unsafe(100 * unsafe / steps, steps), [19.0])
    np.testing.assert_allclose(metrics.p_unsafe_transient(100 * unsafe / steps, steps), [0.0])
    assert metrics.p_unsafe([[0.0, 0.0]], [[0, 0]]).tolist() == [0.0], "environments that failed at once"
