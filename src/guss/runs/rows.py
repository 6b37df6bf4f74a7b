"""The lines of a run's records, checked as they are read: whatever a file holds, its reader gets rows of known fields.

read_episodes(home)   episodes.jsonl: a row for each seed and episode
read_timings(home)    timings.jsonl: a row for each turn of a run
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from guss.errors import GussError
from guss.runs.store import raw_lines

Row = dict[str, Any]
LARGEST = 2**53
"""Beyond it a count is not exact as a float, and none of ours."""


def is_count(value: Any) -> bool:
    """A whole number from 0 up."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST


def is_number(value: Any) -> bool:
    """A finite number, and one whose square is finite too."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e100


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _are_costs(value: Any) -> bool:
    return isinstance(value, dict) and all(map(is_number, value.values()))


def _are_numbers(value: Any) -> bool:
    """Numbers of every seed, or a list of them; null where one is not known."""
    if not isinstance(value, list):
        return False
    rows = [each if isinstance(each, list) else [each] for each in value]
    return len({len(row) for row in rows}) <= 1 and all(x is None or is_number(x) for row in rows for x in row)


Check = tuple[Callable[[Any], bool], str]
COUNT, NUMBER, TEXT = (is_count, "a count"), (is_number, "a number"), (_is_text, "a text")
FLAG, COSTS, NUMBERS = (_is_flag, "true or false"), (_are_costs, "costs by name"), (_are_numbers, "lists of numbers")
EPISODE: dict[str, Check] = {
    "seed": COUNT,
    "episode": COUNT,
    "steps": COUNT,
    "return": NUMBER,
    "mean_reward": NUMBER,
    "unsafe_pct": NUMBER,
    "status": TEXT,
    "phase": TEXT,
}
TIMING: dict[str, Check] = {"episode": COUNT, "plan_seconds": NUMBER}
OPTIONAL: dict[str, Check] = {
    "total_steps": COUNT,
    "unsafe_steps": COUNT,
    "costs": COSTS,
    "unsafe_pct_by_cost": COSTS,
    "hard_stop": FLAG,
    "fit_seconds": NUMBER,
    "compile_seconds": NUMBER,
    "compiled_programs": COUNT,
    "r2": NUMBERS,
    "r2_horizon": NUMBERS,
    "ks": NUMBERS,
}
"""What older runs may not have, or only some methods."""


def read_episodes(home: Path) -> list[Row]:
    """A row for each seed and episode of a run, in the order of the file."""
    return [row for row, _ in raw_episodes(home)]


def read_timings(home: Path) -> list[Row]:
    """A row for each episode of a run, or for each turn of several."""
    return [row for row, _ in raw_timings(home)]


def num_random(rows: Sequence[Row]) -> int:
    """How many episodes at the start had random actions."""
    planned = [row["episode"] for row in rows if row["phase"] != "random"]
    return min(planned) if planned else 1 + max((row["episode"] for row in rows), default=-1)


def raw_episodes(home: Path) -> list[tuple[Row, bytes]]:
    """The same as `read_episodes`, with the bytes of each line."""
    path = home / "episodes.jsonl"
    rows = _checked(path, raw_lines(path), EPISODE)
    counts: dict[int, int] = {}
    for number, (row, _) in enumerate(rows, 1):
        expected = counts.setdefault(row["seed"], 0)
        if row["episode"] != expected:
            raise GussError(
                f"{path}, line {number}: expected episode {expected} of seed {row['seed']}, got {row['episode']}; "
                f"lines are missing, repeated or out of order"
            )
        counts[row["seed"]] += 1
    return rows


def raw_timings(home: Path) -> list[tuple[Row, bytes]]:
    """The same as `read_timings`, with the bytes of each line."""
    path = home / "timings.jsonl"
    return _checked(path, raw_lines(path), TIMING)


def _checked(path: Path, rows: Sequence[tuple[Any, bytes]], needed: dict[str, Check]) -> list[tuple[Row, bytes]]:
    for number, (row, _) in enumerate(rows, 1):
        where = f"{path}, line {number}"
        if not isinstance(row, dict):
            raise GussError(f"{where}: expected an object, got {_shown(row)}")
        if missing := [name for name in needed if name not in row]:
            raise GussError(f"{where}: it has no {missing[0]!r}")
        for name, (fits, what) in (needed | OPTIONAL).items():
            if name in row and not fits(row[name]) and not (name in OPTIONAL and row[name] is None):
                raise GussError(f"{where}: expected {what} as {name!r}, got {_shown(row[name])}")
    return list(rows)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
