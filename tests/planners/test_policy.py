import jax
import jax.numpy as jnp
import numpy as np
import pytest

from guss.planners import policy
from guss.types import ContinuousActions, DiscreteActions, Interface

PENDULUM = (3, ContinuousActions(low=(-2.0,), high=(2.0,)), (5,))
ACROBOT = (6, DiscreteActions(num_values=(3,), scalar=True), (5, 5))
CAR = (22, ContinuousActions(low=(-1.0, -1.0), high=(1.0, 1.0)), (3,))
TOY = (2, DiscreteActions(num_values=(3, 3), start=(-1, -1), ordered=True), (5,))


def interface(obs_size, actions):
    return Interface(obs_size, actions, jnp.zeros(obs_size), jnp.ones(obs_size))


@pytest.mark.parametrize(("problem", "count"), [(PENDULUM, 26), (ACROBOT, 83), (CAR, 77), (TOY, 27)])
def test_policies_have_the_papers_number_of_parameters(problem, count):
    obs_size, actions, hidden = problem
    sizes = policy.layer_sizes(interface(obs_size, actions), hidden)
    assert policy.num_parameters(sizes) == count
    assert policy.sample(jax.random.key(0), sizes, 7, 1.0).shape == (7, count)


def test_a_policy_is_the_network_it_says_it_is():
    ends = Interface(3, PENDULUM[1], jnp.asarray([1.0, 2.0, 3.0]), jnp.asarray([2.0, 4.0, 8.0]))
    sizes = policy.layer_sizes(ends, (5, 4))
    params = np.asarray(policy.sample(jax.random.key(1), sizes, 1, 1.0))[0]
    obs = np.asarray([0.3, -0.7, 2.0], np.float32)
    x, start = (obs - [1, 2, 3]) / [2, 4, 8], 0
    for layer, (n, m) in enumerate([(3, 5), (5, 4), (4, 1)]):
        weights, bias = params[start : start + n * m].reshape(n, m), params[start + n * m : start + n * m + m]
        x = x @ weights + bias
        x = 1 / (1 + np.exp(-x)) if layer < 2 else x
        start += n * m + m
    got = policy.act(jnp.asarray(params), jnp.asarray(obs), ends, sizes)
    np.testing.assert_allclose(got, 2 * np.tanh(x), rtol=1e-5)


def test_samples_are_standard_normal():
    draws = np.asarray(policy.sample(jax.random.key(2), (3, 5, 1), 4000, 1.0)).ravel()
    # 104,000 draws: the mean is within 5 standard errors but once in two million seeds; so is the variance.
    assert abs(draws.mean()) < 5 / np.sqrt(draws.size)
    assert abs(draws.var() - 1) < 5 * np.sqrt(2 / draws.size)
