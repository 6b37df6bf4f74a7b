"""CartPole-v1 with a shorter track: positions beyond ±1 are unsafe, and the pole must not fall.

    guss run --env examples/cartpole.py:known --seeds 3 --episodes 25      reward and cost are known
    guss run --env examples/cartpole.py:learned --seeds 3 --episodes 25    reward and cost are learned too

Both learn when an episode ends (the pole falls). The reward is 1 per step, so a model that does not predict the end
cannot distinguish good plans from bad ones.
"""

import gymnasium
import jax.numpy as jnp

import guss

LIMIT = 1.0


class ShortTrack(gymnasium.Wrapper):
    """Reports in `info["cost"]` whether the cart is beyond the limit."""

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, info | {"cost": float(abs(obs[0]) > LIMIT)}


def learned():
    return ShortTrack(gymnasium.make("CartPole-v1"))


def survived(obs, action, next_obs):
    return 1.0


def off_track(obs, action, next_obs, limit):
    return jnp.abs(next_obs[0]) > limit


def known():
    env = learned()
    low, high = (
        tuple(bound.astype(float).tolist()) for bound in (env.observation_space.low, env.observation_space.high)
    )
    task = guss.Task(
        name="cartpole",
        observations=guss.Observations(low, high),
        actions=guss.DiscreteActions((2,), scalar=True),
        reward=survived,
        constraints=[guss.Constraint("off_track", guss.with_params(off_track, limit=LIMIT), stricter={"limit": -1.0})],
        descriptor=None,  # learned
        grid=None,
        episode_length=500,
    )
    return env, task
