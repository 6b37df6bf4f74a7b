"""What data say of a learned cost: how many unsafe examples, where, and what they leave open."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from guss.models.unsafe_examples import Knowledge, _share_above, examples_of
from guss.types import Observations


def sides(examples):
    return [(dim, where) for dim, where, _ in examples.one_sided]


def track(seed=0, low=-1.5, high=0.7, count=500):
    """Positions and speeds of a cart that was driven from `low` to `high`; unsafe is |x| > 1."""
    random = np.random.default_rng(seed)
    obs = np.stack([random.uniform(low, high, count), random.normal(size=count)], axis=1)
    return obs, np.abs(obs[:, 0]) > 1.0


def test_a_side_that_was_never_met_is_named():
    found = examples_of("off", *track())
    assert found.kind == "one-sided"
    assert sides(found) == [(0, "low")]
    assert "all" in found.warning
    assert "obs[0] ≤ -1" in found.warning
    assert "no state above 0.694 was observed" in found.warning
    mirrored = examples_of("off", -track()[0], track()[1])
    assert sides(mirrored) == [(0, "high")]


def test_both_sides_or_an_explored_safe_side_leave_nothing_open():
    assert examples_of("off", *track(low=-1.5, high=1.5)).warning is None
    obs, _ = track(low=-3.0, high=1.5)
    one_sided_limit = examples_of("hot", obs, obs[:, 0] > 1.0)  # far below was met, and is safe
    assert one_sided_limit.warning is None
    assert one_sided_limit.region.startswith("they lie at obs[0] 1")


def test_none_and_few_are_told_apart():
    obs, _ = track(low=-0.9, high=0.9)
    none = examples_of("off", obs, np.zeros(len(obs), bool))
    assert none.kind == "none"
    assert "none of 500 observed states is unsafe" in none.warning
    assert none.region == "no unsafe example"
    few = np.zeros(len(obs), bool)
    few[[3, 70, 200]] = True
    assert examples_of("off", obs, few).kind == "few"
    assert examples_of("off", obs, np.ones(len(obs), bool)).kind == ""


@given(st.integers(0, 1000), st.integers(1, 30), st.integers(1, 30))
def test_the_share_above_is_counted_over_all_pairs(seed, first, second):
    random = np.random.default_rng(seed)
    these, those = random.integers(0, 5, first).astype(float), random.integers(0, 5, second).astype(float)
    pairs = [(a > b) + 0.5 * (a == b) for a in these for b in those]
    np.testing.assert_allclose(_share_above(these, those), np.mean(pairs))


def test_a_warning_is_news_once():
    obs, unsafe = track()
    both = examples_of("off", *track(low=-1.5, high=1.5))
    none = examples_of("off", obs[~unsafe], unsafe[~unsafe])
    knowledge = Knowledge()
    assert len(knowledge.news([[none], [none]])) == 1
    assert knowledge.news([[none], [none]]) == []
    assert "1 of 2 seeds" in knowledge.news([[none], [examples_of("off", obs, unsafe)]])[0]
    first = Knowledge().news([[both], [none]], (5, 6))
    assert first[0].startswith("seed 6 (1 of 2 seeds): cost 'off': none of")
    first = Knowledge().news([[both], [none], [none]], (5, 6, 7))
    assert first[0].startswith("seeds 6, 7 (2 of 3 seeds; the figures are those of seed 6): cost 'off'")
    assert knowledge.news([[both], [both]]) == []
    assert len(knowledge.news([[none], [both]])) == 1
    assert knowledge.news([]) == []


def test_a_side_that_cannot_be_reached_is_no_side():
    """A pressure is never negative, whether or not a space says so; a cart that never went there may go."""
    random = np.random.default_rng(0)
    pressure = np.concatenate([[0.03], random.exponential(2.0, 800)])[:, None]
    unsafe = pressure[:, 0] > 6.0
    assert examples_of("high", pressure, unsafe).warning is None
    assert examples_of("low", -pressure, unsafe).warning is None
    assert sides(examples_of("high", pressure + 1.0, unsafe)) == [(0, "high")], "it does not stop at zero"
    space = Observations(low=(-20.0,), high=(20.0,))
    assert sides(examples_of("high", pressure, unsafe, space)) == [(0, "high")], "the space goes on below zero"
    within = Observations(low=(-0.2,), high=(20.0,))
    assert examples_of("high", pressure, unsafe, within).warning is None
