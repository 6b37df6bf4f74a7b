"""guss: safe planning in learned models with quality-diversity search (Guided Safe Shooting).

JAX and other heavy modules are imported on first use. `import guss.envs` registers the Gymnasium environments.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Names are listed twice: as imports for editors, type checkers and documentation tools, and in the table from which
# `__getattr__` imports a module on first use. `tests/test_public_api.py` compares the two.
if TYPE_CHECKING:
    from guss.agent import Agent as Agent
    from guss.collect.datasets import Dataset as Dataset
    from guss.collect.datasets import read_traces as read_traces
    from guss.constraint import Constraint as Constraint
    from guss.constraint import with_params as with_params
    from guss.envs import make_task as make_task
    from guss.errors import GussError as GussError
    from guss.errors import GussWarning as GussWarning
    from guss.explanation import Explanation as Explanation
    from guss.history import Episode as Episode
    from guss.method import Method as Method
    from guss.methods import register_method as register_method
    from guss.methods.planning import run_episodes as run_episodes
    from guss.methods.settings import AgentSettings as AgentSettings
    from guss.methods.settings import RunSettings as RunSettings
    from guss.models import register_model as register_model
    from guss.models.evaluation import evaluate_model as evaluate_model
    from guss.models.layers import encoded as encoded
    from guss.models.oracle import Oracle as Oracle
    from guss.models.scaling import Scaling as Scaling
    from guss.models.settings import ModelSettings as ModelSettings
    from guss.models.training import FitSettings as FitSettings
    from guss.models.training import split_rows as split_rows
    from guss.planners import make_planner as make_planner
    from guss.planners import register_planner as register_planner
    from guss.planners.engine import Diagnostics as Diagnostics
    from guss.planners.engine import Monitor as Monitor
    from guss.planners.engine import Plan as Plan
    from guss.planners.engine import plan as plan
    from guss.planners.engine import plan_within as plan_within
    from guss.reports.results_table import Results as Results
    from guss.reports.results_table import load_results as load_results
    from guss.risk import best_index as best_index
    from guss.runs.config import RunConfig as RunConfig
    from guss.runs.config import make_config as make_config
    from guss.runs.metrics import RunMetrics as RunMetrics
    from guss.runs.results import Run as Run
    from guss.runs.run import resume as resume
    from guss.runs.run import run as run
    from guss.task import Grid as Grid
    from guss.task import Surroundings as Surroundings
    from guss.task import Task as Task
    from guss.types import ContinuousActions as ContinuousActions
    from guss.types import Data as Data
    from guss.types import DiscreteActions as DiscreteActions
    from guss.types import FitReport as FitReport
    from guss.types import Model as Model
    from guss.types import Observations as Observations
    from guss.types import Outcomes as Outcomes
    from guss.types import Planner as Planner
    from guss.types import Rollout as Rollout
    from guss.types import Scores as Scores
    from guss.types import Trajectory as Trajectory
    from guss.types import Transition as Transition
    from guss.types import setting as setting
else:
    _MODULES = {
        "guss.agent": "Agent",
        "guss.collect.datasets": "Dataset read_traces",
        "guss.constraint": "Constraint with_params",
        "guss.envs": "make_task",
        "guss.errors": "GussError GussWarning",
        "guss.explanation": "Explanation",
        "guss.history": "Episode",
        "guss.method": "Method",
        "guss.methods": "register_method",
        "guss.methods.planning": "run_episodes",
        "guss.methods.settings": "AgentSettings RunSettings",
        "guss.models": "register_model",
        "guss.models.evaluation": "evaluate_model",
        "guss.models.layers": "encoded",
        "guss.models.oracle": "Oracle",
        "guss.models.scaling": "Scaling",
        "guss.models.settings": "ModelSettings",
        "guss.models.training": "FitSettings split_rows",
        "guss.planners": "make_planner register_planner",
        "guss.planners.engine": "Diagnostics Monitor Plan plan plan_within",
        "guss.reports.results_table": "Results load_results",
        "guss.risk": "best_index",
        "guss.runs.config": "RunConfig make_config",
        "guss.runs.metrics": "RunMetrics",
        "guss.runs.results": "Run",
        "guss.runs.run": "resume run",
        "guss.task": "Grid Surroundings Task",
        "guss.types": "ContinuousActions Data DiscreteActions FitReport Model Observations Outcomes Planner Rollout "
        "Scores Trajectory Transition setting",
    }
    _PUBLIC = {name: module for module, names in _MODULES.items() for name in names.split()}

    __all__ = ["__version__", *sorted(_PUBLIC)]

    # Hidden from type checkers, which would otherwise accept every name.
    def __getattr__(name: str) -> Any:
        if name in _PUBLIC:
            return getattr(importlib.import_module(_PUBLIC[name]), name)
        raise AttributeError(f"module 'guss' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return __all__


# `gymnasium.make("guss:guss/SafePendulum-v0")` imports guss and then looks up the id. If Gymnasium is not loaded,
# nothing is registered here: importing it would double the time of `guss --help`.
if "gymnasium" in sys.modules:
    importlib.import_module("guss.envs")
