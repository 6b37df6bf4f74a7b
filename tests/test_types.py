import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import ACTIONS
from hypothesis import given
from hypothesis import strategies as st

from guss.errors import GussError
from guss.types import ContinuousActions, DiscreteActions, Observations

floats = st.floats(-1e3, 1e3, width=32)


def within(actions, values):
    values = np.asarray(values)
    if isinstance(actions, ContinuousActions):
        return ((values >= np.float32(actions.low)) & (values <= np.float32(actions.high))).all()
    values = values[..., None] if actions.scalar else values
    first = np.asarray(actions.first)
    return ((values >= first) & (values < first + np.asarray(actions.num_values))).all()


@pytest.mark.parametrize("kind", ACTIONS)
def test_samples_are_actions_of_the_right_shape_and_cover_the_space(kind):
    actions = ACTIONS[kind]
    draws = actions.sample(jax.random.key(0), (500, 7))
    assert draws.shape == (500, 7, *actions.shape)
    assert draws.dtype == actions.dtype
    assert within(actions, draws)
    flat = np.asarray(draws).reshape(3500, -1)
    if isinstance(actions, DiscreteActions):
        assert [len(np.unique(column)) for column in flat.T] == list(actions.num_values)
    else:
        assert np.allclose(flat.min(0), actions.low, atol=0.01)
        assert np.allclose(flat.max(0), actions.high, atol=0.01)


@pytest.mark.parametrize("kind", ACTIONS)
@given(data=st.data())
def test_any_policy_output_becomes_an_action(kind, data):
    actions = ACTIONS[kind]
    outputs = data.draw(st.lists(floats, min_size=actions.num_outputs, max_size=actions.num_outputs))
    action = actions.from_outputs(jnp.asarray(outputs, jnp.float32))
    assert action.shape == actions.shape
    assert within(actions, action)


def test_ordered_outputs_are_clipped_and_rounded():
    actions = ACTIONS["ordered"]
    for outputs, expected in (([0.2, -0.2], [0, 0]), ([0.6, -0.6], [1, -1]), ([9.0, -9.0], [1, -1])):
        assert actions.from_outputs(jnp.asarray(outputs)).tolist() == expected


def test_unordered_outputs_are_taken_by_their_largest():
    assert int(ACTIONS["discrete"].from_outputs(jnp.asarray([0.0, 3.0, 2.0, -1.0]))) == 1
    assert ACTIONS["multi-discrete"].from_outputs(jnp.asarray([0.0, 0.0, 1.0, 5.0, 4.0])).tolist() == [1, 5]


def test_continuous_outputs_pass_through_tanh_onto_the_bounds():
    actions = ACTIONS["continuous"]
    got = actions.from_outputs(jnp.asarray([0.0, 100.0]))
    np.testing.assert_allclose(got, [-0.5, 0.5], rtol=1e-6)


def test_actions_are_encoded_for_models():
    assert ACTIONS["discrete"].encode(jnp.asarray(2)).tolist() == [0, 0, 1, 0]
    assert ACTIONS["multi-discrete"].encode(jnp.asarray([1, 5])).tolist() == [0, 0, 1, 1, 0]
    assert ACTIONS["ordered"].encode(jnp.asarray([-1, 1])).tolist() == [-1, 1]
    assert ACTIONS["continuous"].encode(jnp.asarray([0.25, 0.5])).tolist() == [0.25, 0.5]


def test_neutral_is_zero_or_the_nearest_to_it():
    assert ACTIONS["continuous"].neutral() == (0.0, 0.0)
    assert ContinuousActions(low=(1.0,), high=(2.0,)).neutral() == (1.0,)
    assert ACTIONS["multi-discrete"].neutral() == (0, 5)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ContinuousActions(low=(0.0,), high=(0.0,)), "dimension 0 must be finite with low < high"),
        (lambda: ContinuousActions(low=(0.0,), high=(float("inf"),)), "finite"),
        (lambda: ContinuousActions(low=(0.0, 1.0), high=(1.0,)), "same positive length"),
        (lambda: Observations(low=(float("nan"),), high=(1.0,)), "low < high"),
        (lambda: DiscreteActions(num_values=(0,)), "at least one value"),
        (lambda: DiscreteActions(num_values=(2, 2), scalar=True), "one dimension"),
        (lambda: DiscreteActions(num_values=(2, 2), start=(0,)), "same length"),
    ],
)
def test_bad_spaces_are_refused(make, words):
    with pytest.raises(GussError, match=words):
        make()
