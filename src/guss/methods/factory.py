"""Creates the method that settings specify."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from guss.errors import GussError
from guss.method import Method
from guss.methods import method_class
from guss.methods.settings import AgentSettings
from guss.models.factory import make_model
from guss.planners import make_planner
from guss.task import Task
from guss.types import Model


def make_method(settings: AgentSettings, task: Task, capacity: int) -> Method:
    """The method of `settings`. `task`: the planning task. `capacity`: total steps of a seed."""
    cls = method_class(settings.method)
    parts: dict[str, Any] = {}
    own = dataclasses.asdict(settings.method_settings)
    if cls.plans:
        size = {"horizon": settings.horizon, "budget": settings.budget}
        parts["planner"] = make_planner(settings.method, task, **size, **own)
        parts["fixed"] = None if settings.learns else _fixed_model(settings, task)
    elif not settings.acts_randomly:
        parts |= own
    if cls.model_based:
        parts |= {"model": settings.model, "model_settings": settings.model_settings, "fit": settings.fit}
    return cls(task, capacity=capacity, **parts)


def _fixed_model(settings: AgentSettings, task: Task) -> Model:
    """A model that learns nothing; the task must define all outcomes that plans need."""
    if task.unknown:
        raise GussError(
            f"the model {settings.model!r} learns nothing, but the {' and the '.join(task.unknown)} of task "
            f"{task.name!r} must be learned: choose another model, such as darmdn"
        )
    return make_model(settings.model, task, jax.random.key(0), settings.model_settings)
