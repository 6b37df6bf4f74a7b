"""Steps any environment with vectors. Does not import JAX, since processes with a single environment use it too."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from guss.envs.values import check_parts, five_values, one_number, reset_values
from guss.errors import GussError


class VectorSteps:
    """An environment with vectors as observations and actions, and five values per step; `info` has the costs."""

    def __init__(self, env: Any) -> None:
        check_parts(env)
        self.env = env
        self.action_start = getattr(getattr(env, "unwrapped", env), "task_action_start", None)
        """The Task's value of the environment's discrete action 0, per dimension; None: both use the same values."""

    def reset(self, seed: int | None) -> tuple[np.ndarray, dict[str, Any]]:
        """The first observation, and `info`."""
        obs, info = reset_values(self.env.reset(seed=seed), name_of(self.env))
        return self._vector(obs), info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step; six values, as in Safety-Gymnasium (the cost third), become five."""
        try:
            shifted = action if self.action_start is None else np.asarray(action) - np.asarray(self.action_start)
            result = self.env.step(action_for(self.env.action_space, shifted))
        except (TypeError, ValueError) as error:
            if "unpack" not in str(error):
                raise
            raise GussError(
                f"step of {name_of(self.env)} or one of its wrappers failed ({error}): step must return (observation, "
                f"reward, terminated, truncated, info); Gym before 0.26 returned 4 values"
            ) from error
        obs, reward, terminated, truncated, info = five_values(result, name_of(self.env))
        number = one_number(reward)
        if number is None:
            raise GussError(f"the reward of {name_of(self.env)} must be one number, got {reward!r}")
        ends = self._flag("terminated", terminated), self._flag("truncated", truncated)
        return self._vector(obs), number, *ends, info

    def space(self) -> tuple[tuple[int, ...] | None, str]:
        """The shape of the environment's own observations, and their space as text."""
        return getattr(self.env.observation_space, "shape", None), str(self.env.observation_space)

    def reseed(self, seed: int) -> int:
        """Reseed every random generator of the environment and its wrappers; returns their number."""
        layer, found = self.env, dict[int, np.random.Generator | np.random.RandomState]()
        while layer is not None:
            for value in vars(layer).values() if hasattr(layer, "__dict__") else ():
                if isinstance(value, np.random.Generator | np.random.RandomState):
                    found[id(value)] = value
            layer = vars(layer).get("env") if hasattr(layer, "__dict__") else None
        for number, each in enumerate(found.values()):
            kind = type(each._bit_generator if isinstance(each, np.random.RandomState) else each.bit_generator)
            state = kind(np.random.SeedSequence([seed, number])).state
            if isinstance(each, np.random.RandomState):
                each.set_state(dict(state))
            else:
                each.bit_generator.state = state
        return len(found)

    def close(self) -> None:
        if hasattr(self.env, "close"):
            self.env.close()

    def _flag(self, what: str, value: Any) -> bool:
        number = one_number(value)
        if number is None:
            raise GussError(f"`{what}` of {name_of(self.env)} must be True or False, got {value!r}")
        return bool(number)

    def _vector(self, obs: Any) -> np.ndarray:
        space = self.env.observation_space
        try:
            plain = obs if isinstance(space, spaces.Box) else spaces.flatten(space, obs)
            flat = np.array(plain, np.float32).reshape(-1)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            raise GussError(
                f"{name_of(self.env)} returned an observation that is not in its space {space}: {obs!r}"
            ) from error
        size = spaces.flatdim(space)
        if flat.shape != (size,):
            raise GussError(
                f"{name_of(self.env)} returned an observation of {flat.size} numbers, its space {space} has {size}"
            )
        return flat


def action_for(space: Any, action: Any) -> Any:
    """An action in the environment's shape and dtype, clipped to its bounds after rounding."""
    if isinstance(space, spaces.Discrete):
        return int(action)
    shaped = np.asarray(action).reshape(space.shape).astype(space.dtype)
    return np.asarray(np.clip(shaped, space.low, space.high)) if isinstance(space, spaces.Box) else shaped


def name_of(env: Any) -> str:
    """The class name of an environment without its wrappers."""
    return type(getattr(env, "unwrapped", env)).__name__
