"""The noise's spectrum, what is kept from iteration to iteration and from plan to plan, and the safe variant."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import ACTIONS, make_task
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, chisquare
from test_risk import scores_of

from guss.errors import GussError
from guss.models.oracle import Oracle
from guss.planners import make_planner
from guss.planners.distributions import centre, shrinking_parts
from guss.planners.engine import plan
from guss.planners.noise import colouring

TASK = make_task(ACTIONS["continuous"])
CHOICES = make_task(ACTIONS["discrete"])
H = 12


@jax.jit
def begun(planner, seed=0):
    return planner.init(jax.random.key(seed), jnp.zeros(2), planner.first_memory())


tell = jax.jit(lambda planner, state, candidates, scores: planner.tell(state, candidates, scores))
ask = jax.jit(lambda planner, state, key, num: planner.ask(state, key, num), static_argnums=3)


@pytest.mark.parametrize("exponent", [0.0, 2.0])
def test_the_samples_noise_has_the_power_law_asked_for(exponent):
    """Exact chi-square bounds per frequency; a sound sampler fails at one seed in a million."""
    planner = make_planner("icem", TASK, horizon=H, budget=90, initial_std=0.05, noise_exponent=exponent)
    samples = np.asarray(ask(planner, begun(planner), jax.random.key(4), 500))
    noise = (2 * (samples - [-2.0, 0.0]) / [3.0, 0.5] - 1) / 0.05  # [N, H, A], far from the bounds
    series = np.moveaxis(noise, 1, 2).reshape(-1, H)
    power = np.sum(np.abs(np.fft.rfft(series)) ** 2, axis=0)  # over 1,000 series
    law = np.maximum(np.arange(H // 2 + 1), 1.0) ** -exponent
    single = np.asarray([k in (0, H // 2) for k in range(H // 2 + 1)])  # a real number, the others are complex
    expected = H**2 / 2 * law / np.sum(np.where(single, 0.5, 1.0) * law)  # every step has variance 1
    degrees = np.where(single, 1, 2) * len(series)
    p = chi2(degrees).cdf(power / expected * np.where(single, 1, 2))
    assert np.minimum(p, 1 - p).min() > 1e-6 / (2 * len(law))


@pytest.mark.parametrize("horizon", [1, 2, 7, 12])
def test_every_step_has_variance_one_and_no_colour_is_white(horizon):
    np.testing.assert_allclose(np.sum(colouring(horizon, 3.0) ** 2, axis=1), 1.0, rtol=1e-5)
    white = colouring(horizon, 0.0)
    np.testing.assert_allclose(white @ white.T, np.eye(horizon), atol=1e-5)


def test_discrete_samples_go_on_over_time_and_each_step_is_uniform():
    """Chi-square of 3,000 samples of one step; a sound sampler fails at one seed in a million."""
    planner = make_planner("icem", CHOICES, horizon=H, budget=90)
    samples = np.asarray(ask(planner, begun(planner), jax.random.key(1), 3000))
    assert chisquare(np.bincount(samples[:, 5], minlength=4)).pvalue > 1e-6
    assert np.mean(samples[:, 1:] == samples[:, :-1]) > 0.4  # of independent ones a quarter


@given(budget=st.integers(1, 5000), parts=st.integers(1, 8), factor=st.floats(1.0, 3.0))
def test_populations_shrink_and_sum_to_the_budget(budget, parts, factor):
    sizes = shrinking_parts(budget, parts, factor)
    assert sum(sizes) == budget
    assert list(sizes) == sorted(sizes, reverse=True)
    assert min(sizes) >= 1
    assert all(abs(b - a / factor) <= 2 for a, b in pairwise(sizes))


def test_populations_by_hand():
    assert shrinking_parts(100, 3, 1.25) == (41, 33, 26)


@pytest.mark.xdist_group("icem")
@pytest.mark.parametrize("kind", ["continuous", pytest.param("discrete", marks=pytest.mark.long)])
def test_the_last_plans_elites_are_tried_again_one_step_on(kind):
    task = make_task(ACTIONS[kind])
    planner = make_planner("icem", task, horizon=5, budget=100)
    memory = plan(planner, Oracle.of(task), task, np.zeros(2), jax.random.key(0)).memory
    assert memory.known.tolist() == [True] * 3
    state = planner.init(jax.random.key(1), jnp.zeros(2), memory)
    asked = ask(planner, state, jax.random.key(1), 41)
    np.testing.assert_array_equal(asked[:3, :-1], memory.elites[:, 1:])
    forgotten = ask(planner, state._replace(known=jnp.zeros(3, bool)), jax.random.key(1), 41)
    np.testing.assert_array_equal(asked[:3, -1], forgotten[:3, -1])  # a random action at the end
    np.testing.assert_array_equal(asked[3:], forgotten[3:])
    assert not np.array_equal(asked[:3], forgotten[:3])
    cold = make_planner("icem", task, horizon=5, budget=100, warm_start=False)
    same = jax.tree.map(np.array_equal, cold.memory(state), cold.first_memory())
    assert jax.tree.all(same)


def test_the_mean_is_a_sample_of_the_last_iteration_only():
    planner = make_planner("icem", TASK, horizon=3, budget=90)
    state = begun(planner)
    for generation, there in ((0, False), (1, False), (2, True)):
        asked = ask(planner, state._replace(generation=jnp.asarray(generation)), jax.random.key(2), 12)
        assert np.array_equal(asked[-1], centre(state.search.dist, TASK.actions)) == there


def test_elites_are_kept_for_the_next_iteration_and_refitted_to():
    planner = make_planner("icem", CHOICES, horizon=1, budget=30, num_elites=2, kept_share=0.5, smoothing=0.0)
    state = begun(planner)
    scored = lambda *rewards: jax.tree.map(jnp.asarray, scores_of([(0, 0, r, 0, True) for r in rewards]))  # noqa: E731
    state = tell(planner, state, jnp.asarray([[0], [1], [2]]), scored(5, 9, 7))
    assert state.elites.tolist() == [[1], [2]]
    state = tell(planner, state, jnp.asarray([[3], [0], [0]]), scored(8, 1, 9))
    assert state.elites.tolist() == [[1], [0]]  # the kept one was there first; the second of before was not kept
    np.testing.assert_allclose(state.search.dist.probs[0, 0], [0.5, 0.5, 0.0, 0.0])
    assert planner.best(state).tolist() == [1]


def test_without_a_share_to_keep_the_best_sample_is_still_acted_with():
    planner = make_planner("icem", CHOICES, horizon=1, budget=30, num_elites=2, kept_share=0.0)
    state = begun(planner)
    scored = lambda *rewards: jax.tree.map(jnp.asarray, scores_of([(0, 0, r, 0, True) for r in rewards]))  # noqa: E731
    state = tell(planner, state, jnp.asarray([[0], [1]]), scored(5, 9))
    state = tell(planner, state, jnp.asarray([[2], [3]]), scored(1, 2))
    assert state.elites.tolist() == [[3], [2]]
    assert planner.best(state).tolist() == [1]


@pytest.mark.xdist_group("s-icem")
def test_the_safe_one_avoids_a_cost_that_the_other_runs_into():
    for name, unsafe in (("icem", True), ("s-icem", False)):
        planner = make_planner(name, TASK, horizon=5, budget=100)
        result = plan(planner, Oracle.of(TASK), TASK, np.full(2, 0.2), jax.random.key(0))
        assert (float(result.diagnostics.cost) > 0.0) == unsafe
        assert float(result.diagnostics.reward) > 0.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget": 30}, r"populations \(13, 10, 7\), the last smaller than the 10 elites"),
        ({"shrink": 0.5}, "shrink must be at least 1, got 0.5"),
        ({"noise_exponent": -1}, "noise_exponent must be at least 0, got"),
        ({"iterations": 0}, "iterations must be at least 1, got 0"),
    ],
)
def test_settings_that_make_no_sense_are_told(options, words):
    with pytest.raises(GussError, match=words):
        make_planner("icem", TASK, **({"horizon": 2, "budget": 90} | options))
