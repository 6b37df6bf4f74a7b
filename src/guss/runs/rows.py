"""Readers of a run's records; they check the type of every known field.

read_episodes(home)   episodes.jsonl: a row for each seed and episode
read_timings(home)    timings.jsonl: a row for each iteration
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from guss.errors import GussError
from guss.runs.store import by_seed, read_lines
from guss.validation import received

Row = dict[str, Any]
LARGEST = 2**53
"""Largest valid count; larger integers are not exact as floats."""


def _is_count(value: Any) -> bool:
    """Whether a value is a non-negative integer."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST


def _is_number(value: Any) -> bool:
    """Whether a value is a number whose square is finite."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e100


def _are_costs(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


def _are_numbers(value: Any) -> bool:
    """Whether a value is a list over seeds of numbers, or of lists of numbers; null for unknown numbers."""
    if not isinstance(value, list):
        return False
    rows = [each if isinstance(each, list) else [each] for each in value]
    return len({len(row) for row in rows}) <= 1 and all(x is None or _is_number(x) for row in rows for x in row)


Check = tuple[Callable[[Any], bool], str]
CHECKS: dict[str, Check] = {
    **dict.fromkeys(("seed", "episode", "steps", "total_steps", "unsafe_steps"), (_is_count, "a count")),
    **dict.fromkeys(("return", "mean_reward", "unsafe_pct"), (_is_number, "a number")),
    **dict.fromkeys(("status", "phase"), (lambda value: isinstance(value, str), "a text")),
    **dict.fromkeys(("costs", "unsafe_pct_by_cost"), (_are_costs, "costs by name")),
    "hard_stop": (lambda value: isinstance(value, bool), "true or false"),
    "jitter": (_is_number, "a number"),
    **dict.fromkeys(("fit_seconds", "plan_seconds", "compile_seconds"), (_is_number, "a number")),
    "compiled_programs": (_is_count, "a count"),
    **dict.fromkeys(("r2", "r2_horizon", "ks"), (_are_numbers, "lists of numbers")),
}
"""The check of each field, and its description; fields that are not required may also be null."""
EPISODE = ("seed", "episode", "steps", "return", "mean_reward", "unsafe_pct", "status", "phase")
TIMING = ("episode", "plan_seconds")
"""Required fields; other fields are missing in older runs, or are specific to a method."""


def read_episodes(home: Path) -> list[Row]:
    """A row for each seed and episode of a run, in file order."""
    path = home / "episodes.jsonl"
    rows = _checked(path, EPISODE)
    counts = dict.fromkeys((row["seed"] for row in rows), 0)
    for number, row in enumerate(rows, 1):
        expected = counts[row["seed"]]
        if row["episode"] != expected:
            raise GussError(
                f"{path}, line {number}: expected episode {expected} of seed {row['seed']}, got {row['episode']}; "
                f"lines are missing, repeated or out of order"
            )
        counts[row["seed"]] += 1
    return rows


def read_timings(home: Path) -> list[Row]:
    """A row for each iteration of a run: one episode, or several in parallel."""
    return _checked(home / "timings.jsonl", TIMING)


def shares_by_cost(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """`unsafe_pct_by_cost` of the episodes that all seeds have, [S, N] by name; only costs that every row has."""
    shares = [row.get("unsafe_pct_by_cost") or {} for row in rows]
    names = [name for name in (shares[0] if shares else ()) if all(name in each for each in shares)]
    return {
        name: by_seed([{"seed": row["seed"], name: each[name]} for row, each in zip(rows, shares, strict=True)], name)
        for name in names
    }


def measured_costs(rows: Sequence[Row]) -> tuple[str, ...]:
    """The names in `shares_by_cost` that are not constraints, which have a sum in `costs`: the measured costs."""
    either = [row["costs"] if row.get("costs") is not None else row.get("unsafe_pct_by_cost") or {} for row in rows]
    constraints = {name for each in either for name in each}
    return tuple(name for name in shares_by_cost(rows) if name not in constraints)


def num_random(rows: Sequence[Row]) -> int:
    """Number of initial episodes with random actions."""
    planned = [row["episode"] for row in rows if row["phase"] != "random"]
    return min(planned) if planned else 1 + max((row["episode"] for row in rows), default=-1)


def _checked(path: Path, needed: Sequence[str]) -> list[Row]:
    rows = read_lines(path)
    for number, row in enumerate(rows, 1):
        where = f"{path}, line {number}"
        if not isinstance(row, dict):
            raise GussError(f"{where}: expected an object, got {received(row)}")
        if missing := [name for name in needed if name not in row]:
            raise GussError(f"{where}: the field {missing[0]!r} is missing")
        for name, (fits, what) in CHECKS.items():
            if name in row and not fits(row[name]) and (name in needed or row[name] is not None):
                raise GussError(f"{where}: expected {what} as {name!r}, got {received(row[name])}")
    return rows
