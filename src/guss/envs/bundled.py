"""Base class of the bundled Gymnasium environments, and a check of numbers."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import gymnasium
import numpy as np

from guss.errors import GussError, UnknownNameError

Start = tuple[np.ndarray, dict[str, Any]]
"""The first observation, and `info`."""
Step = tuple[np.ndarray, float, bool, bool, dict[str, Any]]
"""Observation, reward, terminated, truncated, and `info`."""
Move = tuple[np.ndarray, float, dict[str, Any]]
"""A step of an environment that never ends an episode: observation, reward, and `info`."""


class BundledEnv(gymnasium.Env[np.ndarray, Any]):
    """An environment that never ends an episode itself, and renders without a window system."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, render_mode: str | None) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UnknownNameError("render mode", str(render_mode), self.metadata["render_modes"])
        self.render_mode, self._begun = render_mode, False

    @abstractmethod
    def _start(self, options: dict[str, Any]) -> Start:
        """Start an episode; `options`: those of `reset`."""

    @abstractmethod
    def _move(self, action: Any) -> Move:
        """One step."""

    @abstractmethod
    def _picture(self) -> np.ndarray:
        """The state as an RGB image."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Start:
        super().reset(seed=seed)
        start = self._start(options or {})
        self._begun = True
        return start

    def step(self, action: Any) -> Step:
        self._check_begun("step")
        obs, reward, info = self._move(action)
        return obs, reward, False, False, info

    def render(self) -> np.ndarray | None:
        """The state as an RGB image, with `render_mode="rgb_array"`."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() needs render_mode='rgb_array'; pass it when the environment is created")
            return None
        self._check_begun("render")
        return self._picture()

    def _check_begun(self, method: str) -> None:
        if not self._begun:
            raise GussError(f"{type(self).__name__}.{method}() was called before reset()")


def finite(values: Any, shape: tuple[int, ...], must_be: str) -> np.ndarray:
    """Finite numbers of that shape; `must_be` starts the error, as in "an action must be one number"."""
    array = np.asarray(values, float)
    if array.shape != shape or not np.isfinite(array).all():
        raise GussError(f"{must_be}, got {array.tolist()}")
    return array
