"""Planners choose the next action. One file each; all run in the same compiled engine.

Custom planners: subclass `guss.Planner` and decorate the class with `@register_planner("my-planner")`.
"""

from __future__ import annotations

from typing import Any

from guss.limits import MAX_PLAN_STEPS
from guss.registry import Registry
from guss.task import Task
from guss.types import Planner
from guss.types import settings_of as settings_of
from guss.validation import checked, convert, types_of

PLANNERS: Registry[type[Planner]] = Registry(
    "planner",
    "guss.planners",
    tuple(
        f"guss.planners.{name}"
        for name in (
            "random",
            "rs",
            "s_rs",
            "cem",
            "rcem",
            "map_elites",
            "guss",
            "guss_plus",
            "cce",
            "icem",
            "mppi",
            "ps_me",
        )
    ),
)
register_planner = PLANNERS.register


def make_planner(name: str, task: Task, *, horizon: int, budget: int, **settings: Any) -> Planner:
    """The planner of that name for a task.

    `name`: one of `guss list`. `task`: the task that scores plans. `horizon`: H steps. `budget`: M plans to evaluate.
    `settings`: those that the planner declares, such as `num_new` of guss. Raises GussError if a name is not known, a
    value has the wrong type, or the plan is too large for memory.

    Example:
        >>> task = guss.make_task("safe-toy")
        >>> guss.make_planner("guss", task, horizon=10, budget=100, num_new=5).budget
        100
    """
    cls = PLANNERS[name].item
    own = checked_settings(name, cls, settings)
    steps, plans = (convert(value, int, f"the {what}") for what, value in (("horizon", horizon), ("budget", budget)))
    check_plan_size(steps, plans)
    return cls(task.interface(), horizon=steps, budget=plans, **own)


def checked_settings(name: str, cls: type[Any], values: Any) -> dict[str, Any]:
    """Values for the settings that the class of a method declares; unknown names and wrong types raise GussError."""
    types = types_of(cls)
    return checked({key: types[key] for key in settings_of(cls)}, values, f"methods.{name}", f"method {name!r}")


def check_plan_size(horizon: int, budget: int, particles: int = 1) -> None:
    """Raise if a plan predicts more steps than the memory limit allows."""
    if horizon > 0 and budget > 0:
        what = f"a plan with horizon {horizon}, budget {budget} and {particles} particles"
        MAX_PLAN_STEPS.check(what, horizon * budget * particles)
