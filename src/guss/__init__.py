"""guss: safe planning in learned models with quality-diversity search (Guided Safe Shooting).

Importing guss registers its Gymnasium environments; JAX and everything heavy is imported when first used.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from typing import Any

__version__ = "0.1.0"

# ---------------------------------------------------------------------------------------------- Gymnasium's registry

_GYM_IDS = {
    "guss/SafeToy-v0": ("guss.envs.toy:SafeToyEnv", 100),
    "guss/SafePendulum-v0": ("guss.envs.pendulum:SafePendulumEnv", 200),
    "guss/SafeAcrobot-v0": ("guss.envs.acrobot:SafeAcrobotEnv", 200),
    "guss/SafeCarGoal-v0": ("guss.envs.car_env:SafeCarGoalEnv", 1000),
    "guss/SafeCarGoalFull-v0": ("guss.envs.car_env:SafeCarGoalFullEnv", 1000),
}
_VECTOR_GYM_IDS = {
    "guss/SafeCarGoal-v0": "guss.envs.car_env:SafeCarGoalVectorEnv",
    "guss/SafeCarGoalFull-v0": "guss.envs.car_env:SafeCarGoalFullVectorEnv",
}


def _register_gym_ids() -> None:
    import gymnasium

    for gym_id, (entry_point, episode_length) in _GYM_IDS.items():
        if gym_id not in gymnasium.registry:
            gymnasium.register(
                gym_id,
                entry_point=entry_point,
                vector_entry_point=_VECTOR_GYM_IDS.get(gym_id),
                max_episode_steps=episode_length,
            )


class _RegisterWhenImported(importlib.abc.MetaPathFinder):
    """Registers our ids when somebody imports Gymnasium: importing it here would double the time of `guss --help`."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_register(module: Any) -> None:
            run(module)
            _register_gym_ids()

        spec.loader.exec_module = run_and_register  # type: ignore[method-assign]
        return spec


if "gymnasium" in sys.modules:
    _register_gym_ids()
else:
    sys.meta_path.insert(0, _RegisterWhenImported())

# ------------------------------------------------------------------------------------------------------ public names

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
    "run_episodes": "guss.methods.planning",
}

__all__ = ["__version__", *sorted(_PUBLIC)]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'guss' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
