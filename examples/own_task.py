"""A custom task: push a cart as far as it goes without exceeding a speed limit.

guss plan --env examples/own_task.py:cart --horizon 20 --budget 300
"""

import jax.numpy as jnp

import guss


def step(obs, action, key):
    """Position and speed after a tenth of a second; `key` is there for systems with noise."""
    position, speed = obs
    speed = speed + 0.1 * action[0]
    return jnp.stack([position + 0.1 * speed, speed])


def distance(obs, action, next_obs):
    return next_obs[0]


def too_fast(obs, action, next_obs, limit):
    return jnp.abs(next_obs[1]) > limit


def end_state(rollout):
    return rollout.next_obs[-1]


def cart(limit: float = 0.5) -> guss.Task:
    return guss.Task(
        name="cart",
        observations=guss.Observations(low=(-10.0, -2.0), high=(10.0, 2.0)),
        actions=guss.ContinuousActions(low=(-1.0,), high=(1.0,)),
        reward=distance,
        constraints=[guss.Constraint("too_fast", guss.with_params(too_fast, limit=limit))],
        descriptor=end_state,  # the archive keeps the best plan for each cell of end states
        grid=guss.Grid(low=(-2.0, -1.0), high=(2.0, 1.0), cells=(20, 20)),
        episode_length=100,
        step=step,
        reset=lambda key: jnp.zeros(2),
    )
