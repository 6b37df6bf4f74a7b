"""The method that settings ask for."""

from __future__ import annotations

from typing import Any

import jax

from guss.errors import GussError
from guss.method import Method
from guss.methods import method_class
from guss.methods.planning import Planning
from guss.methods.random import RandomActions
from guss.methods.settings import AgentSettings
from guss.models.factory import make_model
from guss.planners import checked_settings, make_planner
from guss.task import Task
from guss.types import Model


def make_method(settings: AgentSettings, task: Task, capacity: int) -> Method:
    """`task`: as the method sees it. `capacity`: steps of a seed in all."""
    cls = method_class(settings.method)
    if settings.acts_randomly:
        return RandomActions(task, capacity=capacity)
    if not cls.plans:
        own = checked_settings("method", settings.method, cls, settings.planner)
        model: Any = {"model": settings.model, "net": settings.net, "fit": settings.fit} if cls.model_based else {}
        return cls(task, capacity=capacity, **model, **own)
    return make_planning(settings, task, capacity)


def make_planning(settings: AgentSettings, task: Task, capacity: int) -> Planning:
    """The method that plans, with the planner and the model that settings name."""
    size = {"horizon": settings.horizon, "budget": settings.budget}
    planner = make_planner(settings.method, task, **size, **settings.planner)
    fixed = None if settings.learns else _fixed_model(settings, task)
    how: Any = {"model": settings.model, "net": settings.net, "fit": settings.fit, "capacity": capacity}
    return Planning(task, planner, fixed, **how)


def _fixed_model(settings: AgentSettings, task: Task) -> Model:
    """A model that learns nothing, if the task knows all that plans need."""
    if task.unknown:
        raise GussError(
            f"the model {settings.model!r} learns nothing, but the {' and the '.join(task.unknown)} of task "
            f"{task.name!r} must be learned: choose another model, such as darmdn"
        )
    return make_model(settings.model, task, jax.random.key(0), settings.net)
