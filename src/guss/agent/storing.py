"""What a stored agent says of itself: which systems it fits, and how good its model was."""

from __future__ import annotations

import ast
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from guss import checkpoint
from guss.agent.history import Episode
from guss.agent.learner import Learner, check_about
from guss.agent.settings import AgentSettings
from guss.checkpoint import Stored
from guss.errors import GussError, warn
from guss.models.judging import FitReport
from guss.models.outcomes import OutcomeReport
from guss.task import END, Task
from guss.types import Actions, ContinuousActions
from guss.validation import checked, received

if TYPE_CHECKING:
    from guss.agent.agent import Agent

SIGNATURE = {
    "observation size": int,
    "actions": dict[str, Any],
    "constraints": tuple[str, ...],
    "learned outcomes": tuple[str, ...],
}
ACTIONS = {
    "kind": str,
    "low": tuple[float, ...],
    "high": tuple[float, ...],
    "num_values": tuple[int, ...],
    "start": tuple[int, ...] | None,
    "scalar": bool,
    "ordered": bool,
}
STATE_META: dict[str, Any] = {"learner": dict[str, int], "system": dict[str, Any], "actions": str | None}
"""What every stored state has in its `meta`; older ones have no `system`."""
AGENT_META = STATE_META | {
    "seed": int,
    "settings": AgentSettings,
    "history": tuple[Episode, ...],
    "fitted_rows": int,
    "constraints": dict[str, dict[str, Any]],
}
RUN_META = STATE_META | {
    "done": int,
    "over": bool,
    "steps": tuple[int, ...],
    "config": dict[str, Any],
    "records": dict[str, Any],
    "diverged": tuple[int, ...],
}
TOLERANCE = 1e-5
"""Relative difference up to which action bounds are the same, as after a cast to float32."""


def about_agent(agent: Agent) -> dict[str, Any]:
    """What a stored agent has beside its arrays; what is not stored is warned of."""
    if agent._steps:
        text = f"{len(agent._steps)} steps of the episode under way are not saved; call reset() first to keep them"
        warn(text)
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
    """The agent that `load_agent` read, for this system."""
    meta = stored.meta
    agent = cls(system, **how, seed=meta["seed"], preset={}, **meta["settings"].arguments())
    for name, parameters in meta.get("constraints", {}).items():
        agent.set_constraint(name, **parameters)
    agent.restore(stored, list(meta["history"]), report_from(meta["report"], ()), meta["fitted_rows"])
    return agent


def load_agent(path: Path) -> Stored:
    """What `Agent.save` wrote."""
    if (path / "config.json").is_file():
        raise GussError(f"{path} is a run, not an agent's file: load it with Agent.from_run({str(path)!r}, seed=…)")
    required = ("seed", "settings", "history", "learner", "fitted_rows", "report")
    stored = checkpoint.load(path, "agent").checked(AGENT_META, required)
    check_learner(stored, 1)
    report_from(stored.meta["report"], ())
    return stored


def stored_learner(
    stored: Stored, settings: AgentSettings, tasks: tuple[Task, Task], key: PRNGKeyArray
) -> tuple[tuple[Task, ...], Learner]:
    """The learner that was stored, and the tasks with the end of episodes learned if it has learned that.

    It must have been learned with the same spaces and constraints.
    """
    learned = stored_signature(stored)
    tasks_then = tuple(with_stored_end(task, learned, stored.path) for task in tasks)
    check_signature(f"the model in {stored.path}", learned, tasks_then[1])
    about = stored.meta["learner"]
    learner = Learner(settings, tasks_then[1], key[None], capacity=about["capacity"])
    learner.restore(stored.restore(learner.state), about)
    return tasks_then, learner


def check_learner(stored: Stored, seeds: int) -> None:
    """What `meta` says of stored data must fit the arrays, before buffers of that size are made."""
    about = stored.meta["learner"]
    check_about(about)
    use = stored.arrays.get("['data'].use", np.zeros((seeds, 0)))
    if use.shape != (seeds, about["capacity"]):
        raise GussError(f"{stored.path}: meta.learner must fit the stored data of shape {list(use.shape)}, got {about}")


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
            f"{name} {_in_words(stored[name])}, task {planned.name!r} has {_in_words(mine.get(name))}"
            for name in different
        ]
        raise GussError(f"{what} was learned with other spaces or constraints than this system's: {'; '.join(each)}")


def with_stored_end(task: Task, stored: dict[str, Any], path: Path) -> Task:
    """The task with the end of episodes learned if the stored model has learned it: it is no property of the system."""
    if "learned outcomes" not in stored:
        return task
    knows = END in stored["learned outcomes"]
    if task.learns_end and not knows:
        warn(f"the model in {path} does not know when the system ends an episode early, so plans ignore it")
    return task.replace(learns_end=knows) if bool(task.learns_end) != knows else task


def stored_signature(stored: Stored) -> dict[str, Any]:
    """The signature in a checkpoint's `meta`; older agents have only their actions, older runs nothing."""
    meta, what = stored.meta, f"{stored.path}: meta.system"
    if "system" not in meta:
        return {"actions": _read_actions(meta["actions"], stored.path)} if meta.get("actions") else {}
    found = checked(SIGNATURE, meta["system"], what)
    if "actions" in found:
        found["actions"] = checked(ACTIONS, found["actions"], f"{what}.actions")
    return _as_lists(found)


def _as_lists(part: Any) -> Any:
    """Tuples as JSON has them."""
    if isinstance(part, dict):
        return {name: _as_lists(value) for name, value in part.items()}
    return list(part) if isinstance(part, tuple) else part


def _plain_actions(actions: Actions) -> dict[str, Any]:
    kind = "continuous" if isinstance(actions, ContinuousActions) else "discrete"
    return {"kind": kind} | {
        name: [*map(float if kind == "continuous" else int, value)] if isinstance(value, tuple) else value
        for name, value in asdict(actions).items()
        if name != "names"  # no model depends on them
    }


def _read_actions(text: str, path: Path) -> dict[str, Any]:
    """Actions from their repr."""
    try:
        call = ast.parse(re.sub(r"np\.\w+\(([^()]*)\)", r"\1", text), mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError("it is no call")
        values = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError) as error:
        raise GussError(f"{path}: meta.actions is not a description of actions: {error}") from error
    kind = {"kind": "continuous" if call.func.id == "ContinuousActions" else "discrete"}
    return _as_lists(checked(ACTIONS, kind | values, f"{path}: meta.actions"))


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return set(a) == set(b) and all(_alike(a[name], b[name]) for name in a)
    if isinstance(a, list) and isinstance(b, list) and all(isinstance(x, float | int) for x in (*a, *b)):
        return len(a) == len(b) and bool(np.allclose(a, b, rtol=TOLERANCE, atol=1e-8))
    return bool(a == b)


def _in_words(part: Any) -> str:
    if isinstance(part, dict):
        return f"{part.get('kind')} ({', '.join(f'{name} {value}' for name, value in part.items() if name != 'kind')})"
    return (", ".join(part) or "none") if isinstance(part, list) else str(part)


# ------------------------------------------------------------------------------------------------------------- reports


def report_numbers(report: FitReport | None) -> list[Any] | None:
    """A report as plain data."""
    return [np.asarray(x, float).tolist() for x in jax.tree.leaves(report)] or None


def report_from(values: Any, lead: tuple[int, ...]) -> FitReport | None:
    """A report as `report_numbers` wrote it: its own numbers, then those of learned outcomes; `lead`: first axes."""
    if values is None:
        return None
    count, more = len(FitReport._fields) - 1, len(OutcomeReport._fields)
    try:
        own: Any = [np.asarray(x, float) for x in values]
    except (TypeError, ValueError) as error:
        raise GussError(f"a stored report must be lists of numbers, got {received(values)}") from error
    fits = [x.shape[: len(lead)] == lead and x.ndim <= len(lead) + 1 for x in own]
    if len(own) not in (count, count + more) or not all(fits):
        raise GussError(f"a stored report must be {count} or {count + more} numbers or lists, got {received(values)}")
    parts = [*own[:count], OutcomeReport(*own[count:]) if own[count:] else None]
    return FitReport(*parts)
