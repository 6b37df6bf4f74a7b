"""Constraints that are limits of one dimension are recognised as such, wherever their function says so."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import ACTIONS, make_task

from guss.constraint import Constraint, with_params
from guss.envs.thresholds import find_thresholds

OBS = np.random.default_rng(0).uniform(-0.2, 0.2, (50, 2)).astype(np.float32)
ACTION = np.zeros((50, 2), np.float32)


def above(obs, action, next_obs, limit):
    return next_obs[1] > limit


def beyond(obs, action, next_obs, limit):
    return jnp.abs(obs[0]) > limit


def below(obs, action, next_obs):
    return jnp.where(next_obs[0] < -0.3, 2.5, 0.0)


def within(obs, action, next_obs):
    return jnp.abs(next_obs[0]) < 0.1


def far(obs, action, next_obs):
    return jnp.linalg.norm(next_obs) > 0.3


def moving(obs, action, next_obs):
    return next_obs[0] + action[0] > 0.1


def thresholds(cost):
    task = make_task(ACTIONS["continuous"], constraints=[Constraint("c", cost)])
    actions = ACTION + np.linspace(-1, 1, 50)[:, None]
    return [(t.dim, pytest.approx(t.low), pytest.approx(t.high)) for t in find_thresholds(task, OBS, actions)]


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (with_params(above, limit=0.3), [(1, -np.inf, 0.3)]),
        (with_params(above, limit=75.0), [(1, -np.inf, 75.0)]),
        (with_params(beyond, limit=0.25), [(0, -0.25, 0.25)]),
        (below, [(0, -0.3, np.inf)]),
        (within, []),
        (far, []),
        (moving, []),
        (None, []),
    ],
)
def test_only_a_cost_that_is_a_limit_of_one_dimension_is_taken_for_one(cost, expected):
    assert thresholds(cost) == expected


def test_a_limit_is_written_as_it_is_said():
    task = make_task(ACTIONS["continuous"], constraints=[Constraint("c", with_params(above, limit=0.3))])
    assert [t.text() for t in find_thresholds(task, OBS, ACTION)] == ["at most 0.3"]
