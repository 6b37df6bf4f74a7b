"""The part of a plan that quality-diversity libraries leave to the user: rollouts in guss, scored by one number."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from guss import risk
from guss.planners.rollouts import Particles, roll_out

PENALTY = 1000.0  # per unit of cost: these libraries have no second criterion


def fitness_and_descriptors(
    task: Any, planner: Any, particles: Particles, obs: Any, key: Any, candidates: Any
) -> tuple[Any, Any]:
    """Fitness [N] and descriptors [N, 2] of N policies, not compiled: to be traced inside a larger program."""
    rollouts = roll_out(planner, particles, obs, key, candidates)  # [N, P, H, …]
    step = jax.vmap(jax.vmap(jax.vmap(lambda o, a, n: (task.reward(o, a, n), task.costs(o, a, n)))))
    rewards, costs = step(*rollouts)
    _, cost = jax.vmap(partial(risk.plan_cost, task))(costs)
    descriptors = jnp.mean(jax.vmap(jax.vmap(task.descriptor))(rollouts), axis=1)
    reward = jnp.mean(jnp.sum(rewards.astype(jnp.float32), axis=2), axis=1)
    return reward - PENALTY * cost, descriptors
