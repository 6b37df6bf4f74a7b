"""Small problems with known answers, for planners of every kind of action."""

import jax.numpy as jnp
import numpy as np

from guss.constraint import Constraint
from guss.task import Grid, Task
from guss.types import ContinuousActions, DiscreteActions, Observations

ACTIONS = {
    "continuous": ContinuousActions(low=(-2.0, 0.0), high=(1.0, 0.5)),
    "discrete": DiscreteActions(num_values=(4,), scalar=True),
    "multi-discrete": DiscreteActions(num_values=(3, 2), start=(-1, 5)),
    "ordered": DiscreteActions(num_values=(3, 3), start=(-1, -1), ordered=True),
}


def numbers(action):
    """An action of any kind as a float vector."""
    return jnp.atleast_1d(action).astype(jnp.float32)


def drift(obs, action, key):
    return obs + 0.1 * jnp.sum(numbers(action))


def reward_far(obs, action, next_obs):
    return jnp.sum(next_obs)


def nowhere_unsafe(obs, action, next_obs):
    return 0.0


def crossed(obs, action, next_obs):
    return next_obs[0] > 0.3


def last_obs(rollout):
    return rollout.next_obs[-1]


def start(key):
    return jnp.zeros((2,))


def make_task(
    actions, *, reward=reward_far, constraints=None, step=drift, name="problem", cells=(10, 10), fallback=None
):
    return Task(
        name=name,
        observations=Observations(low=(-np.inf, -np.inf), high=(np.inf, np.inf)),
        actions=actions,
        reward=reward,
        constraints=(Constraint("crossed", crossed),) if constraints is None else constraints,
        descriptor=last_obs,
        grid=Grid(low=(-2.0, -2.0), high=(2.0, 2.0), cells=cells),
        episode_length=5,
        step=step,
        reset=start,
        fallback=fallback,
    )


# -------------------------------------------------- one choice of four, one step: the right answer can be named
# What action k does is written in `effects`: the next observation is (k, 0), so costs and rewards can be looked up.

CHOICE = DiscreteActions(num_values=(4,), scalar=True)


def land_on_choice(obs, action, key, broken):
    value = jnp.where(broken[action], jnp.nan, action.astype(jnp.float32))
    return jnp.stack([value, jnp.zeros(())])


def looked_up(obs, action, next_obs, table):
    return table[jnp.nan_to_num(next_obs[0]).astype(jnp.int32)]
