"""Planners: what to do now. One file each, all compiled by the same engine.

Write your own: subclass `guss.Planner`, decorate it with `@register_planner("my-planner")`.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from guss.errors import GussError, UnknownNameError
from guss.registry import Registry
from guss.task import Task
from guss.types import Planner

PLANNERS: Registry[type[Planner]] = Registry(
    "planner",
    "guss.planners",
    tuple(
        f"guss.planners.{name}"
        for name in ("random", "rs", "s_rs", "cem", "rcem", "map_elites", "guss", "cce", "icem", "mppi", "ps_me")
    ),
)
register_planner = PLANNERS.register
T = TypeVar("T")


def settings_of(planner: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    """A planner's (or baseline's) own settings by name: default in `.default`, a sentence in `.metadata["help"]`."""
    return {f.name: f for f in dataclasses.fields(planner) if "help" in f.metadata}


def make_planner(name: str, task: Task, *, horizon: int, budget: int, **settings: Any) -> Planner:
    """The planner of that name for a task: `horizon` H steps, `budget` M evaluated plans, and its own settings."""
    cls = PLANNERS[name].item
    checked = checked_settings(f"planner {name!r}", cls, settings_of(cls), settings)
    for key, value in (("horizon", horizon), ("budget", budget)):
        _as_type(f"the {key}", value, int)
    return cls(task.interface(), horizon=horizon, budget=budget, **checked)


def as_settings(what: str, cls: Callable[..., T], values: dict[str, Any]) -> T:
    """A settings dataclass from plain values; unknown names and wrong types are told."""
    return cls(**checked_settings(what, cls, {f.name for f in dataclasses.fields(cls)}, values))  # type: ignore[arg-type]


def checked_settings(what: str, cls: Any, known: Iterable[str], values: dict[str, Any]) -> dict[str, Any]:
    """Values of known settings as the types of `cls` ask for; unknown names and wrong types are told."""
    types = typing.get_type_hints(cls)
    for name in values:
        if name not in known:
            raise UnknownNameError(f"setting of {what}", name, known)
    return {name: _as_type(f"setting {name!r} of {what}", value, types[name]) for name, value in values.items()}


def _as_type(what: str, value: Any, wanted: Any) -> Any:
    """`value` if it is of the wanted type (whole numbers pass as floats, lists as tuples), else a clear error."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if wanted is float and is_number:
        return float(value)
    if typing.get_origin(wanted) is tuple and isinstance(value, list | tuple):
        return tuple(_as_type(what, v, typing.get_args(wanted)[0]) for v in value)
    if typing.get_origin(wanted) is typing.Literal:
        if value in typing.get_args(wanted):
            return value
        raise UnknownNameError(f"value for {what}:", str(value), map(str, typing.get_args(wanted)))
    if isinstance(wanted, type) and isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool)):
        return value
    raise GussError(f"{what} must be {getattr(wanted, '__name__', wanted)}, got {value!r} ({type(value).__name__})")
