"""Environments: one file per problem, its pure Task and its Gymnasium class. Importing this registers their ids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from guss.envs.gym_ids import register_gym_ids
from guss.envs.shapes import Shape, paint
from guss.errors import GussError
from guss.registry import Registry

if TYPE_CHECKING:
    from guss.task import Task  # imports JAX, which processes with a single environment do not need

register_gym_ids()


@dataclass(frozen=True)
class StateMap:
    """A plane with cells, in which visited states are counted."""

    place: Callable[[np.ndarray], np.ndarray]
    """Maps observations [..., D] to points [..., 2]."""
    labels: tuple[str, str]
    limits: tuple[tuple[float, float], tuple[float, float]]
    """States beyond them are not on the map."""
    cells: tuple[int, int] = (50, 50)
    unsafe: tuple[tuple[float, float, float, float], ...] = ()
    """Rectangles (x from, x to, y from, y to)."""


@dataclass(frozen=True)
class View:
    """How a problem is drawn. Arrays are NumPy arrays; `shown` takes batches of observations [..., D]."""

    shown: Callable[[np.ndarray], np.ndarray]
    """The quantity in figures of plans: a number [...], over time, or a point [..., 2]."""
    labels: tuple[str, ...]
    """Its name, or those of both coordinates."""
    limits: tuple[tuple[float, float], ...]
    """Its range in figures, or those of both coordinates."""
    unsafe: tuple[tuple[float, ...], ...] = ()
    """Intervals (from, to) of a number, or rectangles (x from, x to, y from, y to)."""
    behaviour: tuple[str, str] = ("behaviour 0", "behaviour 1")
    """Names of the two descriptor dimensions in figures of the archive."""
    behaviour_dims: tuple[int, int] = (0, 1)
    """Indices of these dimensions."""
    behaviour_scale: float = 1.0
    """Factor from the descriptor's unit to the unit in the names."""
    sketch: Callable[[np.ndarray], list[Shape]] | None = None
    """Draws an observation and the unsafe zones as shapes (`guss.envs.shapes`); None: no drawing."""
    world: tuple[float, float] = (-1.0, 1.0)
    """The shapes lie in the square [low, high]²."""
    map: StateMap | None = None
    """None: states are counted by their first two dimensions."""

    def picture(self, obs: np.ndarray) -> np.ndarray:
        """An observation as an RGB image of 500 × 500 pixels."""
        if self.sketch is None:
            raise GussError("this View has no `sketch`, so it cannot draw images")
        return paint(self.sketch(obs), self.world)


@dataclass(frozen=True)
class EnvSpec:
    """A problem: its Gymnasium id, the function that builds its Task, and its View (None: default figures)."""

    gym_id: str
    make_task: Callable[..., Task]
    view: View | None = None
    measure: Literal["mean", "return"] = "mean"
    """How reports measure an episode's reward: the mean per step, or the sum, as in the paper for the car."""
    make_env: Callable[[], Any] | None = None
    """Creates an `Adapted` environment that has no Gymnasium id."""
    source: str = ""
    """The name by which another process creates it, if not the Gymnasium id."""


ENVS: Registry[EnvSpec] = Registry(
    "environment", "guss.envs", ("guss.envs.toy", "guss.envs.pendulum", "guss.envs.acrobot", "guss.envs.car")
)


def make_task(name: str, **options: object) -> Task:
    """The Task of a registered environment.

    `name`: as `guss list` shows it. `options`: arguments of the function that builds the Task, such as limits.
    Raises UnknownNameError, a GussError, if there is no such environment.

    Example:
        >>> guss.make_task("safe-toy").observations.size
        2
    """
    return ENVS[name].item.make_task(**options)
