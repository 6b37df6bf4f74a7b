"""A custom method, as users write one: a constant action with a learned bias. Contract tests and `--plugin` use it."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

import guss


class SteadyState(NamedTuple):
    """What is learned, and a buffer of all rewards."""

    bias: jax.Array
    rewards: jax.Array
    filled: jax.Array


@guss.register_method("steady")
class Steady(guss.Method):
    """Always the same action, moved towards noise that was followed by more reward than usual."""

    num_envs: int = guss.setting(2, "Episodes between two updates.")
    rate: float = guss.setting(0.5, "How far the action moves in one update.")
    noisy: bool = eqx.field(static=True, kw_only=True, default=True)

    def init(self, key):
        middle = 0.5 * sum(self.task.actions.bounds())
        zero = jnp.zeros((), jnp.int32)
        return SteadyState(middle, jnp.zeros(self.capacity), zero)

    def begin(self, state, key):
        return jnp.zeros((), jnp.int32)

    def act(self, state, carry, obs, key):
        low, high = self.task.actions.bounds()
        scale = 0.1 * (high - low) if self.noisy else jnp.zeros_like(low)
        noise = scale * jax.random.normal(key, low.shape)
        return jnp.clip(state.bias + noise, low, high), carry + 1, {"noise": noise, "step": carry}

    def update(self, state, trajectory, key):
        weight = trajectory.valid.astype(jnp.float32)
        mean = jnp.sum(trajectory.reward * weight) / jnp.sum(weight)
        advantage = (trajectory.reward - mean) * weight
        spread = jnp.sqrt(jnp.sum(advantage**2) / jnp.sum(weight)) + 1e-6
        step = jnp.sum(trajectory.aux["noise"] * (advantage / spread)[..., None], axis=(0, 1)) / jnp.sum(weight)
        low, high = self.task.actions.bounds()
        order = jnp.argsort(~trajectory.valid.reshape(-1), stable=True)  # what took place comes first
        count = jnp.sum(trajectory.valid, dtype=jnp.int32)
        rows = jnp.where(jnp.arange(order.size) < count, state.filled + jnp.arange(order.size), self.capacity)
        rewards = state.rewards.at[rows].set(trajectory.reward.reshape(-1)[order], mode="drop")
        bias = jnp.clip(state.bias + self.rate * step, low, high)
        return SteadyState(bias, rewards, state.filled + count), {"mean_reward": mean, "moved": jnp.abs(step).sum()}

    def acting(self, state: Any) -> Any:
        return state._replace(rewards=())

    def deployed(self):
        return dataclasses.replace(self, noisy=False)
