"""Environments: one file a problem, its pure Task beside its Gymnasium class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from guss.registry import Registry
from guss.task import Task


@dataclass(frozen=True)
class EnvSpec:
    """A problem: its Gymnasium id and the function that builds its Task."""

    gym_id: str
    make_task: Callable[..., Task]


ENVS: Registry[EnvSpec] = Registry(
    "environment", "guss.envs", ("guss.envs.toy", "guss.envs.pendulum", "guss.envs.acrobot")
)


def make_task(name: str, **options: object) -> Task:
    """The Task of a registered environment, as in `make_task("safe-toy")`."""
    return ENVS[name].item.make_task(**options)
