"""Gymnasium wrappers for real systems: action delays, rate limits, hard limits, observation history, six-value steps.

A model can only learn from observed quantities. A wrapper that adds hidden state (pending actions, the current value of
an actuator) therefore appends it to the observation by default.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.utils import RecordConstructorArgs

from guss.envs.values import check_parts, five_values, reset_values
from guss.errors import GussError

AnyEnv = gymnasium.Env[Any, Any]
Start = tuple[Any, dict[str, Any]]
Step = tuple[Any, Any, bool, bool, dict[str, Any]]


class ObservationHistory(gymnasium.ObservationWrapper[np.ndarray, Any, np.ndarray], RecordConstructorArgs):
    """Concatenates the last `steps` observations, oldest first.

    For systems whose speed or trend is not observed. After a reset the first observation is repeated.
    """

    def __init__(self, env: AnyEnv, steps: int = 3) -> None:
        RecordConstructorArgs.__init__(self, steps=steps)
        super().__init__(env)
        _at_least_one("ObservationHistory", steps)
        space = _vector("ObservationHistory", env.observation_space)
        self.observation_space = Box(np.tile(space.low, steps), np.tile(space.high, steps), dtype=_kind(space))
        self._last: deque[np.ndarray] = deque(maxlen=steps)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Start:
        self._last.clear()
        return super().reset(seed=seed, options=options)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        """Append the newest observation and drop the oldest."""
        assert self._last.maxlen is not None
        times = 1 if self._last else self._last.maxlen
        self._last.extend([np.array(observation)] * times)  # a copy: environments may reuse their arrays
        return np.concatenate(self._last)


class _HeldActions(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Base of wrappers that hold actions back: an initial action, and held actions in the observation."""

    def __init__(self, env: AnyEnv, held: int, show: bool, idle: Any) -> None:
        super().__init__(env)
        self.show = show
        self._name = type(self).__name__
        self._low, self._high = _range(self._name, env.action_space)
        self.idle = self._begin_with(idle)
        if show:
            space = _vector(f"{self._name}(show=True)", env.observation_space)
            kind = np.result_type(_kind(space), np.float32).type
            low = np.concatenate([space.low, *[self._low] * held], dtype=kind)
            high = np.concatenate([space.high, *[self._high] * held], dtype=kind)
            self.observation_space = Box(low, high, dtype=kind)
        self._held: deque[Any] = deque([self.idle] * held, maxlen=held)

    @abstractmethod
    def _next(self, action: Any) -> Any:
        """The action to apply now; updates `_held`."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Start:
        """Reset; only idle actions are held."""
        obs, info = self.env.reset(seed=seed, options=options)
        self._held.extend([self.idle] * len(self._held))
        return self._shown(obs), info

    def step(self, action: Any) -> Step:
        """One step with the applied action, which is `info["applied_action"]`."""
        applied = self._next(self._checked(action))
        obs, reward, terminated, truncated, info = self.env.step(copy.copy(applied))
        return self._shown(obs), reward, terminated, truncated, {**info, "applied_action": copy.copy(applied)}

    def _begin_with(self, idle: Any) -> Any:
        space: Any = self.env.action_space
        if idle is None:
            start = np.zeros(space.shape) if isinstance(space, Box) else self._low
            idle = np.clip(start, self._low, self._high).reshape(space.shape)
        action = self._checked(idle, "idle")
        if not space.contains(action):
            raise GussError(f"{self._name}: idle must be an action of {space}, got {idle!r}")
        return action

    def _checked(self, action: Any, what: str = "the action") -> Any:
        """A copy of the action, in the space's shape and type."""
        space: Any = self.env.action_space
        array = np.array(action, space.dtype)
        if array.shape != space.shape or not np.isfinite(array).all():
            raise GussError(f"{self._name}: {what} must be finite and of shape {space.shape}, got {action!r}")
        return array if array.shape else space.dtype.type(array)

    def _shown(self, obs: Any) -> Any:
        if not self.show:
            return obs
        return np.concatenate([obs, *map(np.atleast_1d, self._held)], dtype=self.observation_space.dtype)


class ActionDelay(_HeldActions, RecordConstructorArgs):
    """Delays actions by `steps` steps; until the first takes effect, `idle` is applied (zero, or a Discrete's start).

    Pending actions are appended to the observation as numbers, the next one first: without them, an observation does
    not determine the next one. `show=False` omits them. `info["applied_action"]` is the applied action.
    """

    def __init__(self, env: AnyEnv, steps: int = 1, show: bool = True, idle: Any = None) -> None:
        RecordConstructorArgs.__init__(self, steps=steps, show=show, idle=idle)
        _at_least_one("ActionDelay", steps)
        super().__init__(env, steps, show, idle)

    def _next(self, action: Any) -> Any:
        """Apply the oldest pending action and append this one."""
        applied = self._held[0]
        self._held.append(action)
        return applied


class ActionRateLimit(_HeldActions, RecordConstructorArgs):
    """Limits the change of continuous actions per step to `per_step` (a number, or one per dimension, in action units).

    The initial action is `idle` (zero, or the nearest value within the bounds). The applied action is
    `info["applied_action"]`; since the next one depends on it, it is appended to the observation unless `show=False`.
    """

    def __init__(self, env: AnyEnv, per_step: Any, show: bool = True, idle: Any = None) -> None:
        RecordConstructorArgs.__init__(self, per_step=per_step, show=show, idle=idle)
        space = env.action_space
        if not isinstance(space, Box):
            raise GussError(f"ActionRateLimit needs continuous actions (a Box), got {space}")
        self.per_step = np.asarray(per_step, float)
        if self.per_step.shape not in ((), space.shape) or not (self.per_step > 0).all():
            raise GussError(
                f"ActionRateLimit: per_step must be positive, one number or one for each of the {space.shape} "
                f"dimensions of the action, got {per_step!r}"
            )
        super().__init__(env, 1, show, idle)

    def _next(self, action: Any) -> Any:
        """The nearest action that the limit allows."""
        now = self._held[0]
        change = np.clip(action - now, -self.per_step, self.per_step)
        self._held.append(np.clip(now + change, self._low, self._high).astype(self.idle.dtype))
        return self._held[0]


class RedButton(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """A hard limit: if `limit(obs, action, next_obs)` is true, the episode is terminated.

    `info["costs"][name]` is 1.0 then and 0.0 in every other step; `info["hard_stop"]` names the limit that stopped
    the system. Costs of the environment are kept: a plain `info["cost"]` is also reported as `info["costs"]["cost"]`.
    `hard_limits` names the hard limits of this wrapper and of wrappers inside it.
    """

    def __init__(self, env: AnyEnv, limit: Callable[[Any, Any, Any], Any], name: str = "red_button") -> None:
        RecordConstructorArgs.__init__(self, limit=limit, name=name)
        super().__init__(env)
        inner = env.get_wrapper_attr("hard_limits") if env.has_wrapper_attr("hard_limits") else ()
        if name in inner:
            raise GussError(f"RedButton: a wrapper inside already has a hard limit {name!r}, choose another name")
        self.limit, self.name = limit, name
        self.hard_limits: tuple[str, ...] = (*inner, name)
        self._obs: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Start:
        obs, info = self.env.reset(seed=seed, options=options)
        self._obs = copy.deepcopy(obs)  # environments may reuse their arrays
        return obs, self._with_costs(info, stop=False)

    def step(self, action: Any) -> Step:
        """One step, terminated if the limit is violated."""
        next_obs, reward, terminated, truncated, info = self.env.step(action)
        verdict = self.limit(self._obs, action, next_obs)
        if np.shape(verdict) != () or np.asarray(verdict).dtype != np.bool_:
            raise GussError(
                f"the limit {self.name!r} of RedButton must return True or False, got {verdict!r}; "
                f"compare with a number, and reduce arrays with .any() or .all()"
            )
        stop = bool(verdict)
        self._obs = copy.deepcopy(next_obs)
        return next_obs, reward, bool(terminated or stop), truncated, self._with_costs(info, stop)

    def _with_costs(self, info: dict[str, Any], stop: bool) -> dict[str, Any]:
        costs = dict(info["costs"]) if "costs" in info else {"cost": info["cost"]} if "cost" in info else {}
        if self.name in costs:
            raise GussError(f"RedButton: the environment already has a cost {self.name!r}, choose another name")
        with_costs = {**info, "costs": {**costs, self.name: float(stop)}}
        return {"hard_stop": self.name, **with_costs} if stop else with_costs  # the innermost limit is kept


class FiveValues(gymnasium.Env[Any, Any]):
    """Converts an environment with six-value steps, as in Safety-Gymnasium (…, reward, cost, terminated, …), to five.

    The cost becomes `info["cost"]`. The environment need not be a gymnasium.Env: spaces, `reset` and `step` are enough,
    and other attributes are looked up in it. Five-value steps are returned unchanged.
    """

    def __init__(self, env: Any) -> None:
        check_parts(env)
        self.env = env
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.metadata = getattr(env, "metadata", {"render_modes": []})
        self.render_mode = getattr(env, "render_mode", None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":  # also while it is being copied and has no `env` yet
            raise AttributeError(name)
        return getattr(self.env, name)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Start:
        super().reset(seed=seed)
        first = self.env.reset(seed=seed) if options is None else self.env.reset(seed=seed, options=options)
        return reset_values(first, type(self.env).__name__)

    def step(self, action: Any) -> Step:
        """Five values, with the cost in `info`."""
        return five_values(self.env.step(action), type(self.env).__name__)

    def render(self) -> Any:
        """The environment's image, if it renders any."""
        return self.env.render() if hasattr(self.env, "render") else None

    def close(self) -> None:
        """Close the environment, if it can be closed."""
        if hasattr(self.env, "close"):
            self.env.close()


def _at_least_one(who: str, steps: int) -> None:
    if steps < 1:
        raise GussError(f"{who}: steps must be an integer of at least 1, got {steps!r}")


def _vector(who: str, space: Any) -> Box:
    """The observation space, which must be a vector."""
    if not isinstance(space, Box) or len(space.shape) != 1:
        raise GussError(
            f"{who} needs observations that are vectors (a Box with one axis), got {space}; "
            f"flatten them first: gymnasium.wrappers.FlattenObservation(env)"
        )
    return space


def _kind(space: Box) -> Any:
    """The type of a space's numbers."""
    assert space.dtype is not None
    return space.dtype.type


def _range(who: str, space: Any) -> tuple[np.ndarray, np.ndarray]:
    """The smallest and the largest action, as vectors."""
    if isinstance(space, Box) and len(space.shape) == 1:
        return space.low, space.high
    if isinstance(space, Discrete):
        return np.asarray([space.start]), np.asarray([space.start + space.n - 1])
    if isinstance(space, MultiDiscrete) and len(space.shape) == 1:
        return space.start, space.start + space.nvec - 1
    raise GussError(f"{who} needs actions that are a number or a vector (Box, Discrete, MultiDiscrete), got {space}")
