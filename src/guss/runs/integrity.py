"""Checks that a run's records match its checkpoint: none missing, repeated, out of order or altered."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from guss.collect.datasets import read_episode
from guss.errors import GussError
from guss.runs.store import trace_path
from guss.runs.trainer import Trainer

RECORDS = ("episodes.jsonl", "timings.jsonl")
Place = tuple[int, ...]
"""The (episode, seed) of a line of episodes.jsonl, or the (episode,) of a line of timings.jsonl."""


class RecordDigest:
    """Length and checksum of an append-only file; every byte is read once."""

    def __init__(self, path: Path) -> None:
        self.path, self.size, self._digest = path, 0, hashlib.sha256()

    def update(self) -> dict[str, Any]:
        """Read the appended bytes, and return length and checksum as a checkpoint stores them."""
        with self.path.open("rb") as file:
            file.seek(self.size)
            more = file.read()
        self.size += len(more)
        self._digest.update(more)
        return {"bytes": self.size, "sha256": self._digest.hexdigest()}


def kept_records(home: Path, trainer: Trainer, meta: dict[str, Any]) -> dict[str, bytes]:
    """The part of each record file that belongs to a checkpoint with this `meta`, without later lines.

    Raises GussError if a line or a trace of its episodes is missing, repeated, out of order, unreadable or altered.
    """
    done, sums = meta["done"], meta.get("records", {})  # older checkpoints have no sums
    if not 0 <= done <= trainer.config.episodes:
        raise GussError(f"a run of {trainer.config.episodes} episodes has no checkpoint after {done} episodes")
    places: dict[str, list[Place]] = {
        "episodes.jsonl": [(e, seed) for e in range(done) for seed in trainer.config.seeds],
        "timings.jsonl": [(e,) for e in range(0, done, trainer.num_envs)],
    }
    kept = {name: _kept(home / name, places[name], sums.get(name)) for name in RECORDS}
    rows = [json.loads(line) for line in kept["episodes.jsonl"].splitlines()]
    _check_traces(home, [row for row in rows if trainer.method.stores_all or row["episode"] % trainer.num_envs == 0])
    return kept


def _kept(path: Path, places: Sequence[Place], stored: dict[str, Any] | None) -> bytes:
    if not path.exists() and places:
        raise GussError(f"{path} is missing")
    content = path.read_bytes() if places else b""
    lines = [line for line in content.splitlines(keepends=True) if line.endswith(b"\n")]
    for number, (place, line) in enumerate(itertools.zip_longest(places, lines[: len(places)]), 1):
        found = _place(line, len(place))
        if found != place:
            raise GussError(
                f"{path}, line {number}: expected {_named(place)}, got {_named(found)}; lines are missing, repeated, "
                f"out of order or damaged"
            )
    kept = b"".join(lines[: len(places)])
    if stored is not None and stored != {"bytes": len(kept), "sha256": hashlib.sha256(kept).hexdigest()}:
        raise GussError(f"{path} was altered: its checksum is not the one in the checkpoint")
    return kept


def _place(line: bytes | None, size: int) -> Place | None:
    """The place of a line; None if the line cannot be read or is missing."""
    try:
        row = json.loads(line or b"")
        place = tuple(row[name] for name in ("episode", "seed")[:size])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return place if all(isinstance(x, int) for x in place) else None


def _named(place: Place | None) -> str:
    if place is None:
        return "no readable line"
    return " of ".join(f"{name} {number}" for name, number in zip(("episode", "seed"), place, strict=False))


def _check_traces(home: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Check that the trace of every recorded episode is readable and has the number of steps of its line."""
    for row in rows:
        path = trace_path(home, row["seed"], row["episode"])
        if not path.exists():
            raise GussError(f"the trace {path} is missing")
        steps = len(read_episode(path).obs)
        if steps != row.get("steps", steps):
            raise GussError(f"the trace {path} has {steps} steps, its line in episodes.jsonl has {row['steps']}")
