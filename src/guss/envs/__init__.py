"""Environments: one file a problem, its pure Task beside its Gymnasium class. Importing this registers their ids."""

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
    from guss.task import Task  # with JAX, which processes that hold a single environment do without

register_gym_ids()


@dataclass(frozen=True)
class StateMap:
    """The plane on which a problem's states are counted, cell by cell."""

    place: Callable[[np.ndarray], np.ndarray]
    """Observations [..., D] as places [..., 2]."""
    labels: tuple[str, str]
    limits: tuple[tuple[float, float], tuple[float, float]]
    """What lies beyond them is not on the map."""
    cells: tuple[int, int] = (50, 50)
    unsafe: tuple[tuple[float, float, float, float], ...] = ()
    """Rectangles (x from, x to, y from, y to)."""


@dataclass(frozen=True)
class View:
    """How a problem is shown. Arrays are NumPy's; `shown` takes many observations at once, [..., D]."""

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
    sketch: Callable[[np.ndarray], list[Shape]] | None = None
    """An observation as shapes (`guss.envs.shapes`), unsafe zones drawn; None: there is nothing to see."""
    world: tuple[float, float] = (-1.0, 1.0)
    """The shapes lie in the square [low, high]²."""
    map: StateMap | None = None
    """None: states are counted by their first two observations."""

    def picture(self, obs: np.ndarray) -> np.ndarray:
        """An observation as an RGB picture of 500 × 500 pixels."""
        if self.sketch is None:
            raise GussError("this View has no `sketch` to make a picture by")
        return paint(self.sketch(obs), self.world)


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
    source: str = ""
    """The name by which another process finds what makes it, where it is not the Gymnasium id."""


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
