"""guss: safe planning in learned models with quality-diversity search (Guided Safe Shooting).

JAX and everything heavy is imported when first used. `import guss.envs` registers the Gymnasium environments.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "ContinuousActions": "guss.types",
    "DiscreteActions": "guss.types",
    "Observations": "guss.types",
    "Model": "guss.types",
    "Planner": "guss.types",
    "Rollout": "guss.types",
    "Scores": "guss.types",
    "Trajectory": "guss.types",
    "Transition": "guss.types",
    "Method": "guss.method",
    "register_method": "guss.methods",
    "setting": "guss.types",
    "Constraint": "guss.constraint",
    "Grid": "guss.task",
    "Surroundings": "guss.task",
    "Task": "guss.task",
    "with_params": "guss.constraint",
    "GussError": "guss.errors",
    "make_task": "guss.envs",
    "Oracle": "guss.models.oracle",
    "register_model": "guss.models",
    "make_planner": "guss.planners",
    "register_planner": "guss.planners",
    "plan": "guss.planners.engine",
    "plan_within": "guss.planners.engine",
    "Agent": "guss.agent",
    "Run": "guss.runs.results",
    "RunConfig": "guss.runs.config",
    "make_config": "guss.runs.config",
    "run": "guss.runs.run",
    "resume": "guss.runs.run",
    "run_episodes": "guss.methods.planning",
}

__all__ = ["__version__", *sorted(_PUBLIC)]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'guss' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


# `gymnasium.make("guss:guss/SafePendulum-v0")` imports guss and then looks the id up in its registry. Without Gymnasium
# loaded nothing is registered here: importing it would double the time of `guss --help`.
if "gymnasium" in sys.modules:
    importlib.import_module("guss.envs")
