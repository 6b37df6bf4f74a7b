"""What a stored agent says of itself: which systems it fits, and how good its model was."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from guss.agent.history import Episode
from guss.agent.settings import AgentSettings, settings_from_json
from guss.errors import GussError, GussWarning
from guss.models.judging import FitReport
from guss.models.outcomes import OutcomeReport
from guss.task import END, Task
from guss.types import Actions, ContinuousActions

if TYPE_CHECKING:
    from guss.agent.agent import Agent
    from guss.checkpoint import Stored

TOLERANCE = 1e-5
"""Relative difference up to which action bounds are the same, as after a cast to float32."""


def about_agent(agent: Agent) -> dict[str, Any]:
    """What a stored agent has beside its arrays."""
    return {
        "task": agent.task.name,
        "system": signature(agent.planned),
        "seed": agent.seed,
        "settings": agent.settings.to_json(),
        "history": [asdict(episode) for episode in agent.history],
        "learner": agent.learner.meta(),
        "fitted_rows": agent._fitted_rows,
        "report": report_numbers(agent._report),
        "constraints": {
            name: {key: np.asarray(value).tolist() for key, value in parameters.items()}
            for name, parameters in agent._changed.items()
        },
    }


def stored_agent(cls: type[Agent], stored: Stored, system: Any, **how: Any) -> Agent:
    """The agent that was stored, for this system."""
    meta = stored.meta
    settings = settings_from_json(AgentSettings, meta["settings"])
    agent = cls(system, **how, seed=meta["seed"], preset={}, **settings.arguments())
    for name, parameters in meta.get("constraints", {}).items():
        agent.set_constraint(name, **parameters)
    history = [Episode(**episode) for episode in meta["history"]]
    agent.restore(stored, history, report_from(meta["report"]), meta["fitted_rows"])
    return agent


def signature(planned: Task) -> dict[str, Any]:
    """What a model depends on in a task as plans see it, as plain data; its name is not part of it."""
    return {
        "observation size": planned.observations.size,
        "actions": _plain_actions(planned.actions),
        "constraints": [constraint.name for constraint in planned.constraints],
        "learned outcomes": list(planned.unknown),
    }


def check_signature(what: str, stored: dict[str, Any], planned: Task) -> None:
    """Raise a GussError that names what differs between a stored signature and a task as plans see it."""
    mine = signature(planned)
    different = [name for name in stored if not _alike(stored[name], mine.get(name))]
    if different:
        each = [
            f"{name} {_in_words(stored[name])}, task {planned.name!r} has {_in_words(mine[name])}" for name in different
        ]
        raise GussError(f"{what} was learned with other spaces or constraints than this system's: {'; '.join(each)}")


def with_stored_end(task: Task, stored: dict[str, Any], path: Path) -> Task:
    """The task with the end of episodes learned if the stored model has learned it: it is no property of the system."""
    if "learned outcomes" not in stored:
        return task
    knows = END in stored["learned outcomes"]
    if task.learns_end and not knows:
        warnings.warn(
            f"the model in {path} does not know when the system ends an episode early, so plans ignore it",
            GussWarning,
            stacklevel=4,
        )
    return task.replace(learns_end=knows) if bool(task.learns_end) != knows else task


def stored_signature(meta: dict[str, Any]) -> dict[str, Any]:
    """The signature in a checkpoint's `meta`; older agents have only their actions, older runs nothing."""
    if "system" in meta:
        return dict(meta["system"])
    return {"actions": _read_actions(meta["actions"])} if meta.get("actions") else {}


def _plain_actions(actions: Actions) -> dict[str, Any]:
    kind = "continuous" if isinstance(actions, ContinuousActions) else "discrete"
    return {"kind": kind} | {
        name: [*map(float if kind == "continuous" else int, value)] if isinstance(value, tuple) else value
        for name, value in asdict(actions).items()
        if name != "names"  # no model depends on them
    }


def _read_actions(text: str) -> dict[str, Any]:
    """Actions from their repr."""
    call = ast.parse(re.sub(r"np\.\w+\(([^()]*)\)", r"\1", text), mode="eval").body
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Name)
    values = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    return {"kind": "continuous" if call.func.id == "ContinuousActions" else "discrete"} | plain


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return set(a) == set(b) and all(_alike(a[name], b[name]) for name in a)
    if isinstance(a, list) and isinstance(b, list) and all(isinstance(x, float | int) for x in (*a, *b)):
        return len(a) == len(b) and bool(np.allclose(a, b, rtol=TOLERANCE, atol=1e-8))
    return bool(a == b)


def _in_words(part: Any) -> str:
    if isinstance(part, dict):
        return f"{part['kind']} ({', '.join(f'{name} {value}' for name, value in part.items() if name != 'kind')})"
    return (", ".join(part) or "none") if isinstance(part, list) else str(part)


# ------------------------------------------------------------------------------------------------------------- reports


def report_numbers(report: FitReport | None) -> list[Any] | None:
    """A report as plain data."""
    return [np.asarray(x, float).tolist() for x in jax.tree.leaves(report)] or None


def report_from(values: list[Any] | None) -> FitReport | None:
    """A report as `report_numbers` wrote it: its own numbers, then those of learned outcomes."""
    if values is None:
        return None
    count = len(FitReport._fields) - 1
    own: Any = [np.asarray(x) for x in values]
    parts = [*own[:count], OutcomeReport(*own[count:]) if own[count:] else None]
    return FitReport(*parts)
