"""The signature of a task: a learned state is valid for any system with the same signature, whatever its name."""

from __future__ import annotations

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
"""Relative difference up to which action bounds are equal; a cast to float32 may cause it."""


def signature(planned: Task) -> dict[str, Any]:
    """The properties of a planning task that a model depends on, as plain data, without its name."""
    return {
        "observation size": planned.observations.size,
        "actions": _plain_actions(planned.actions),
        "constraints": tuple(constraint.name for constraint in planned.constraints),
        "learned outcomes": tuple(planned.unknown),
    }


def check_signature(what: str, stored: dict[str, Any], planned: Task) -> None:
    """Raise a GussError that lists the differences between a stored signature and a planning task."""
    mine = signature(planned)
    different = [name for name in SIGNATURE if not _alike(stored[name], mine[name])]
    if different:
        theirs, ours = (
            " and ".join(f"{name} {_in_words(each[name])}" for name in different) for each in (stored, mine)
        )
        raise GussError(
            f"{what} was learned on a system with other spaces or constraints: stored {theirs}; task {planned.name!r} "
            f"has {ours}"
        )


def with_stored_end(task: Task, stored: dict[str, Any], path: Path) -> Task:
    """The task, with the end of episodes learned if and only if the stored model learned it."""
    knows = END in stored["learned outcomes"]
    if task.learns_end and not knows:
        warn(f"the model in {path} does not predict early ends of episodes, so plans ignore them")
    return task.replace(learns_end=knows) if bool(task.learns_end) != knows else task


def stored_signature(stored: Stored) -> dict[str, Any]:
    """The signature in a checkpoint's `meta`."""
    what = f"{stored.path}: meta.system"
    found = checked(SIGNATURE, stored.meta["system"], what, required=SIGNATURE)
    return found | {"actions": checked(ACTIONS, found["actions"], f"{what}.actions")}


def _plain_actions(actions: Actions) -> dict[str, Any]:
    kind = "continuous" if isinstance(actions, ContinuousActions) else "discrete"
    return {"kind": kind} | {
        name: tuple(map(float if kind == "continuous" else int, value)) if isinstance(value, tuple) else value
        for name, value in asdict(actions).items()
        if name != "names"  # no model depends on them
    }


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return set(a) == set(b) and all(_alike(a[name], b[name]) for name in a)
    if isinstance(a, tuple) and isinstance(b, tuple) and all(isinstance(x, float | int) for x in (*a, *b)):
        return len(a) == len(b) and bool(np.allclose(a, b, rtol=TOLERANCE, atol=1e-8))
    return bool(a == b)


def _in_words(part: Any) -> str:
    if isinstance(part, dict):
        rest = {name: value for name, value in part.items() if name != "kind"}
        each = [f"{name} {list(value) if isinstance(value, tuple) else value}" for name, value in rest.items()]
        return f"{part.get('kind')} ({', '.join(each)})"
    return (", ".join(part) or "none") if isinstance(part, tuple) else str(part)
