"""The same system with known reward and cost functions: they are not learned, and limits can have a margin.

    guss run --env known.py:make_env --preset preset.toml --planning-margin 0.3

The functions take single observations, use jax.numpy, and must not use Python ifs on values.
"""

import jax.numpy as jnp
import system

import guss


def level_reached(obs, action, next_obs):
    return next_obs[0]


def overflows(obs, action, next_obs, limit):
    return next_obs[0] > limit


def where_it_ends(rollout):
    """The behaviour of a plan: the level at half of a plan and at its end."""
    half = rollout.next_obs.shape[0] // 2
    return jnp.stack([rollout.next_obs[half, 0], rollout.next_obs[-1, 0]])


def make_env():
    task = guss.Task(
        name="tank",
        observations=guss.Observations(low=(0.0, 0.0), high=(float("inf"), float("inf"))),
        actions=guss.ContinuousActions(low=(0.0,), high=(1.0,)),
        reward=level_reached,
        constraints=[
            guss.Constraint(
                "overflow",
                guss.with_params(overflows, limit=system.LIMIT),
                stricter={"limit": -1.0},  # with a planning margin of 0.3, plans use a limit lower by 0.3
            )
        ],
        descriptor=where_it_ends,
        grid=guss.Grid(low=(0.0, 0.0), high=(12.0, 12.0), cells=(20, 20)),
        episode_length=100,
    )
    return system.make_env(), task
