"""Environments: one file a problem, its pure Task beside its Gymnasium class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from guss.registry import Registry
from guss.task import Task


@dataclass(frozen=True)
class View:
    """How a problem is shown. Arrays are NumPy's; `shown` takes many observations at once, [..., D]."""

    picture: Callable[[np.ndarray], np.ndarray] | None
    """An observation as an RGB picture, unsafe zones drawn."""
    shown: Callable[[np.ndarray], np.ndarray]
    """What plans are drawn by: a number [...], over time, or a place [..., 2]."""
    labels: tuple[str, ...]
    """The name of that number, or of both."""
    limits: tuple[tuple[float, float], ...]
    """From where to where to draw it, or both."""
    unsafe: tuple[tuple[float, ...], ...] = ()
    """Intervals (from, to) of the number, or rectangles (x from, x to, y from, y to)."""
    behaviour: tuple[str, str] = ("behaviour 0", "behaviour 1")
    """Names of the two descriptor dimensions that the archive is drawn by."""
    behaviour_dims: tuple[int, int] = (0, 1)
    """Which dimensions they are."""
    behaviour_scale: float = 1.0
    """From the descriptor's unit to the one that the names say."""


@dataclass(frozen=True)
class EnvSpec:
    """A problem: its Gymnasium id, the function that builds its Task, and how it is shown (None: plainly)."""

    gym_id: str
    make_task: Callable[..., Task]
    view: View | None = None
    measure: Literal["mean", "return"] = "mean"
    """What reports call an episode's reward: its mean per step, or its sum, as the paper has it for the car."""
    make_env: Callable[[], Any] | None = None
    """Makes an environment that has no Gymnasium id, as an `Adapted` one."""


ENVS: Registry[EnvSpec] = Registry(
    "environment", "guss.envs", ("guss.envs.toy", "guss.envs.pendulum", "guss.envs.acrobot", "guss.envs.car")
)


def make_task(name: str, **options: object) -> Task:
    """The Task of a registered environment, as in `make_task("safe-toy")`."""
    return ENVS[name].item.make_task(**options)
