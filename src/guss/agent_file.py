"""Files of agents: metadata next to the arrays, and agents created from files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np

from guss import checkpoint
from guss import keys as streams
from guss.checkpoint import Stored
from guss.errors import GussError, warn
from guss.history import Episode
from guss.methods.factory import make_method
from guss.methods.settings import AgentSettings, current_names
from guss.methods.signature import check_signature, signature, stored_signature, with_stored_end
from guss.models.stored_report import report_from, report_numbers
from guss.task import Task

AGENT_META: dict[str, Any] = {
    "system": dict[str, Any],
    "seed": int,
    "settings": AgentSettings,
    "history": tuple[Episode, ...],
    "report": Any,
    "constraints": dict[str, dict[str, Any]],
    "num_observed": int,
}


def about_agent(agent: Any) -> dict[str, Any]:
    """The metadata of a stored agent; warns of steps that are not stored."""
    if agent._open.steps:
        text = f"{len(agent._open.steps)} steps of the open episode are not saved; call reset() first to keep them"
        warn(text)
    return {
        "task": agent.task.name,
        "system": signature(agent.planning_task),
        "seed": agent.seed,
        "num_observed": agent.num_observed,
        "settings": agent.settings.to_json(),
        "history": [asdict(episode) for episode in agent.history],
        "report": report_numbers(agent._report),
        "constraints": {
            name: {key: np.asarray(value).tolist() for key, value in parameters.items()}
            for name, parameters in agent._changed.items()
        },
    }


def stored_agent(cls: type[Any], stored: Stored, system: Any, **how: Any) -> Any:
    """The agent of a file that `load_agent` read, for this system."""
    meta = stored.meta
    agent = cls(system, **how, seed=meta["seed"], preset={}, **meta["settings"].arguments())
    for name, parameters in meta["constraints"].items():
        agent.set_constraint(name, **parameters)
    agent.restore(stored, list(meta["history"]), report_from(meta["report"], ()))
    return agent


def load_agent(path: Path) -> Stored:
    """Read a file that `Agent.save` wrote."""
    if (path / "config.json").is_file():
        raise GussError(f"{path} is a run, not an agent's file: load it with Agent.from_run({str(path)!r}, seed=…)")
    stored = checkpoint.load(path, "agent")
    if isinstance(stored.meta.get("settings"), dict):
        stored.meta["settings"] = current_names(stored.meta["settings"])
    stored = stored.checked(AGENT_META, AGENT_META)
    report_from(stored.meta["report"], ())
    return stored


def stored_state(stored: Stored, agent: Any) -> tuple[tuple[Task, ...], Any]:
    """The agent's tasks, with the end of episodes learned if the stored state learned it, and the state.

    The state must have been learned with the same spaces and constraints.
    """
    learned = stored_signature(stored)
    tasks = tuple(with_stored_end(task, learned, stored.path) for task in (agent.task, agent.planning_task))
    check_signature(f"the model in {stored.path}", learned, tasks[1])
    if not agent.settings.learns:
        return tasks, stored.restore(agent.state)
    rows = stored.arrays.get(".data.use")
    if rows is None or rows.ndim != 2:
        raise GussError(f"{stored.path} has no data from which an agent could continue to learn")
    method = make_method(agent.settings, tasks[1], rows.shape[1])
    return tasks, stored.restore(jax.eval_shape(jax.vmap(method.init), streams.first_state(agent.key)[None]))
