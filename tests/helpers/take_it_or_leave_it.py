"""A constrained problem with a known answer: take what is offered, or not.

Every step offers something worth x, uniform in [0, 1]; taking it earns x and costs 1. With at most a share d of steps
that cost, the best policy takes what is worth more than 1 − d and nothing else: reward (1 − (1 − d)²) / 2 a step.
Without the limit it takes everything: reward 1/2, cost 1.
"""

import jax
import jax.numpy as jnp
import numpy as np

from guss.constraint import Constraint
from guss.task import Grid, Task
from guss.types import DiscreteActions, Observations

SHARE = 0.25
BEST = (1.0 - (1.0 - SHARE) ** 2) / 2.0


def offer(obs, action, key):
    return jax.random.uniform(key, (1,))


def first_offer(key):
    return jax.random.uniform(key, (1,))


def taken(obs, action, next_obs):
    return obs[0] * action.astype(jnp.float32)


def paid(obs, action, next_obs):
    return action == 1


def nothing(rollout):
    return rollout.obs[0]


def choice_task():
    return Task(
        name="take-it-or-leave-it",
        observations=Observations(low=(0.0,), high=(1.0,)),
        actions=DiscreteActions(num_values=(2,), scalar=True),
        reward=taken,
        constraints=(Constraint("paid", paid),),
        descriptor=nothing,
        grid=Grid(low=(0.0,), high=(1.0,), cells=(2,)),
        episode_length=50,
        step=offer,
        reset=first_offer,
    )


def reward_and_cost(method, state):
    """Reward and cost of a step, exactly: the policy's probability of taking, integrated over x."""
    x = np.linspace(0.0, 1.0, 2001, dtype=np.float32)[:, None]
    logits = state.policy.choice(state.scale.standardised(jnp.asarray(x))).outputs
    take = np.asarray(jax.nn.softmax(logits)[:, 1], float)
    return np.trapezoid(take * x[:, 0], x[:, 0]), np.trapezoid(take, x[:, 0])
