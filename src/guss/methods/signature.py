"""What a learned state depends on in its task: it fits any system with the same signature, whatever its name."""

from __future__ import annotations

import ast
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from guss.checkpoint import Stored
from guss.errors import GussError, warn
from guss.task import END, Task
from guss.types import Actions, ContinuousActions
from guss.validation import checked

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
TOLERANCE = 1e-5
"""Relative difference up to which action bounds are the same, as after a cast to float32."""


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
