"""Representations of plans: what is sampled, varied, executed, and carried over to the next plan."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import ACTIONS
from hypothesis import given, settings
from hypothesis import strategies as st

from guss.planners import policy
from guss.planners.action_sequences import ActionSequences
from guss.planners.candidates import Policies
from guss.planners.mixed_candidates import MixedCandidates
from guss.types import Interface

HORIZON, NUM = 5, 12


def representations(kind):
    interface = Interface(2, ACTIONS[kind], jnp.zeros(2), jnp.ones(2))
    policies = Policies(interface, (3,), 1.0, 0.2)
    sequences = ActionSequences(interface, HORIZON, 1.0, 1.0, 0.5)
    return {
        "policy": policies,
        "sequence": sequences,
        "mixed": MixedCandidates(interface, policies, sequences, 0.5),
    }


every_kind = pytest.mark.parametrize("kind", ACTIONS)
every_name = pytest.mark.parametrize("name", ["policy", "sequence", "mixed"])


def noise(seed, size, num=NUM):
    return jax.random.normal(jax.random.key(seed), (num, size))


def actions(candidates, numbers, obs=None):
    """Actions of every candidate at every step, [N, H, …]."""
    obs = jnp.asarray([0.3, -0.8]) if obs is None else obs
    steps = jnp.arange(HORIZON, dtype=jnp.int32)
    act = jax.vmap(jax.vmap(candidates.act, (None, None, 0)), (0, None, None))
    return np.asarray(act(numbers, obs, steps))


@every_kind
@every_name
def test_candidates_have_their_size_and_act_within_bounds(name, kind):
    candidates = representations(kind)[name]
    sampled = candidates.sample(noise(0, candidates.size))
    assert sampled.shape == (NUM, candidates.size)
    children = sampled + candidates.mutation(noise(1, candidates.size), sampled)
    for numbers in (sampled, children, candidates.next_step(children)):
        assert numbers.shape == sampled.shape
        found = actions(candidates, numbers)
        assert found.dtype == ACTIONS[kind].dtype
        assert not ACTIONS[kind].outside(found).any()


@every_kind
def test_a_sequence_ignores_the_observation_and_continues_with_its_next_action(kind):
    candidates = representations(kind)["sequence"]
    numbers = candidates.sample(noise(0, candidates.size))
    before, after = actions(candidates, numbers), actions(candidates, candidates.next_step(numbers))
    np.testing.assert_array_equal(before, actions(candidates, numbers, jnp.asarray([9.0, 9.0])))
    np.testing.assert_array_equal(after[:, :-1], before[:, 1:])
    np.testing.assert_array_equal(after[:, -1], before[:, -1])


@every_kind
def test_mixed_candidates_act_as_their_kind_and_keep_it(kind):
    found = representations(kind)
    mixed, numbers = found["mixed"], found["mixed"].sample(noise(0, found["mixed"].size))
    is_policy = np.asarray(numbers[:, 0]) == 1.0
    assert is_policy.tolist() == [True, False] * (NUM // 2)
    children = numbers + mixed.mutation(noise(1, mixed.size), numbers)
    for each in (numbers, children, mixed.next_step(children)):
        np.testing.assert_array_equal(each[:, 0], numbers[:, 0])
        for name, rows in (("policy", is_policy), ("sequence", ~is_policy)):
            part = each[rows, 1 : 1 + found[name].size]
            np.testing.assert_array_equal(actions(mixed, each[rows]), actions(found[name], part))
            assert not np.asarray(each[rows, 1 + found[name].size :]).any(), "padding"
    np.testing.assert_array_equal(mixed.comparable(numbers, jnp.roll(numbers, 1, axis=0)), np.zeros(NUM, bool))
    assert np.asarray(mixed.comparable(numbers, jnp.roll(numbers, 2, axis=0))).all()


@settings(max_examples=15)
@given(share=st.integers(0, 10).map(lambda tenths: tenths / 10), num=st.sampled_from([1, 25]))
def test_kinds_are_interleaved_with_the_share_of_policies(share, num):
    """Every prefix has the share of policies, up to one candidate."""
    found = representations("continuous")
    mixed = MixedCandidates(found["mixed"].interface, found["policy"], found["sequence"], share)
    is_policy = np.asarray(mixed.sample(noise(0, mixed.size, num))[:, 0])
    assert np.abs(np.cumsum(is_policy) - share * np.arange(1, num + 1)).max() < 1.0


@given(exponent=st.floats(0.0, 3.0), horizon=st.integers(1, 12))
def test_noise_of_sequences_has_unit_variance_at_every_step(exponent, horizon):
    """The colouring is linear: its rows' squares sum to 1, whatever the exponent."""
    interface = Interface(2, ACTIONS["continuous"], jnp.zeros(2), jnp.ones(2))
    sequences = ActionSequences(interface, horizon, exponent, 1.0, 1.0)
    unit = jnp.eye(sequences.size)
    rows = np.asarray(sequences.sample(unit))  # row i: the effect of the i-th number
    np.testing.assert_allclose((rows**2).sum(axis=0), 1.0, rtol=1e-4)


def test_correlated_noise_changes_slowly():
    interface = Interface(2, ACTIONS["continuous"], jnp.zeros(2), jnp.ones(2))
    roughness = []
    for exponent in (0.0, 1.0, 2.0):
        sequences = ActionSequences(interface, 20, exponent, 1.0, 1.0)
        steps = np.asarray(sequences.sample(noise(0, sequences.size, 2000))).reshape(2000, 20, 2)
        roughness.append(np.square(np.diff(steps, axis=1)).mean())
    assert roughness[0] > 1.2 * roughness[1] > 1.2 * roughness[2]


def test_policies_are_those_of_guss():
    candidates = representations("continuous")["policy"]
    drawn = noise(3, candidates.size)
    assert candidates.size == policy.num_parameters(candidates.layers)
    np.testing.assert_array_equal(candidates.sample(drawn), drawn)
    np.testing.assert_array_equal(candidates.next_step(drawn), drawn)
