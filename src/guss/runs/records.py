"""A run's files: `DIR/<env>-<method>-<8 hex of its config>/`, readable by people and programs.

config.json       everything that decides the outcome, and where it came from
episodes.jsonl    a line per seed and episode; nothing in it depends on the clock or the machine
timings.jsonl     a line per episode: seconds, model error, host
traces/seed<S>-ep<E>.npz
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from guss.errors import GussError

SCHEMA = 1


def run_folder(out: Path, env: str, method: str, config: dict[str, Any]) -> Path:
    """The folder of a run: its name tells what ran, its hash with which settings."""
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:8]
    return out / f"{env}-{method}-{digest}"


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside the file, then rename: a reader never sees half of it."""
    temporary = path.with_name(path.name + ".partial")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Readable JSON, atomically."""
    write_atomically(path, (json.dumps(data, indent=2) + "\n").encode())


def append_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    """Add JSON lines."""
    with path.open("a") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All JSON lines of a file."""
    try:
        return [json.loads(line) for line in path.read_text().splitlines()]
    except OSError as error:
        raise GussError(f"cannot read {path}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise GussError(f"{path} holds a line that is not JSON: {error}") from error


def by_seed(episodes: list[dict[str, Any]], field: str) -> np.ndarray:
    """One field of the episode records as an array [seeds, episodes]."""
    seeds = sorted({row["seed"] for row in episodes})
    table = [[row[field] for row in episodes if row["seed"] == seed] for seed in seeds]
    if len({len(row) for row in table}) > 1:
        raise GussError("the seeds of this run have different numbers of episodes; it was interrupted within one")
    return np.asarray(table, float)
