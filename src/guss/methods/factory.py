"""The method that settings ask for."""

from __future__ import annotations

from typing import Any

from guss.methods import RANDOM, method_class
from guss.methods.planning import Planning, oracle_for
from guss.methods.random import RandomActions
from guss.methods.settings import AgentSettings
from guss.planners import checked_settings, make_planner
from guss.task import Task
from guss.types import Method


def make_method(settings: AgentSettings, task: Task, capacity: int) -> Method:
    """`task`: as the method sees it. `capacity`: steps of a seed in all."""
    cls = method_class(settings.method)
    if settings.method == RANDOM:
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
    fixed = oracle_for(task) if settings.model == "oracle" else None
    how: Any = {"model": settings.model, "net": settings.net, "fit": settings.fit, "capacity": capacity}
    return Planning(task, planner, fixed, **how)
