"""Files of a run: `DIR/<env>-<method>-<8 hex of its config>/`.

config.json       all settings that determine the outcome, provenance, checksums of user code
episodes.jsonl    a line per seed and episode; nothing in it depends on the clock or the machine
timings.jsonl     a line per iteration (one episode, or several in parallel): seconds, model error, host
maps.json.gz      states counted by cells; animation.json.gz: one episode with its plans (both: `guss pack`)
data.npz          logged transitions to start from, if any
traces/seed<S>-ep<E>.npz   steps of an episode; of episodes in parallel, only the first
checkpoints/ep<E>.ckpt   state needed to resume after E episodes; the last two are kept
final.ckpt        models fitted to all episodes of a finished run
claim-<number>    exists while a process writes to the run
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from guss.checkpoint import write_atomically
from guss.collect.datasets import Dataset, read_trace, trace_columns, write_trace
from guss.collect.episode_metrics import EpisodeMetrics
from guss.collect.tables import write_columns
from guss.collect.trajectories import one_episode
from guss.errors import GussError
from guss.files import WriteGuard, file_error
from guss.limits import MAX_PACKED, read_gzip, reading

if TYPE_CHECKING:
    from guss.runs.trainer import Iteration

SCHEMA = 2
"""Version of config.json. 2: all settings are stored, those of method and model in separate tables."""


def short_name(env: str) -> str:
    """An environment's name for folders and figures; of a custom environment file and function, without its folder."""
    module, _, function = env.rpartition(":")
    name = env if not module else f"{Path(module).name.removesuffix('.py')} {function}".removesuffix(" make_env")
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")


def write_json(path: Path, data: dict[str, Any], guard: WriteGuard | None = None) -> None:
    write_atomically(path, json_bytes(data), guard)


def json_bytes(data: dict[str, Any]) -> bytes:
    return (json.dumps(data, indent=2) + "\n").encode()


def append_lines(path: Path, rows: list[dict[str, Any]], guard: WriteGuard | None = None) -> None:
    """Append JSON lines and flush them to disk; if the disk is full, none is written.

    `guard` is checked between opening the file and writing to it.
    """
    try:
        with path.open("ab", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if guard is not None:
                guard.check()
            try:
                _write_all(file, "".join(json.dumps(row) + "\n" for row in rows).encode())
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):  # report the first error; resuming drops a partial line
                    file.truncate(size)
                raise
    except OSError as error:
        raise GussError(f"{file_error(path, error)}. Earlier episodes are kept") from error


def _write_all(file: io.FileIO, content: bytes) -> None:
    """Write to an unbuffered file: a write to a nearly full disk may write a part only."""
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def read_lines(path: Path) -> list[Any]:
    """All JSON lines of a file, without an incomplete last line; reads `<file>.gz` if it exists."""
    rows = []
    for number, line in enumerate(raw_lines(path), 1):
        try:
            rows.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise GussError(f"{path}, line {number} is not JSON: {error}") from error
    return rows


def raw_lines(path: Path) -> list[bytes]:
    packed = path.with_name(f"{path.name}.gz")
    try:
        content = unpacked(packed) if packed.exists() else path.read_bytes()
    except OSError as error:
        raise file_error(path, error, "read") from error
    return [line + b"\n" for line in content.split(b"\n")[:-1]]  # without an incomplete last line


def packed_bytes(content: bytes) -> bytes:
    """Content compressed by gzip, deterministically: without time and file name."""
    buffer = io.BytesIO()
    with gzip.GzipFile("", "wb", 9, buffer, mtime=0) as file:
        file.write(content)
    return buffer.getvalue()


def unpacked(path: Path) -> bytes:
    """The content of a gzip file."""
    with path.open("rb") as file, reading(f"{path} is damaged, or not compressed by gzip"):
        return read_gzip(file, MAX_PACKED.budget(str(path)))


def write_packed(path: Path, data: dict[str, Any]) -> None:
    """Write compressed JSON atomically; equal data give equal bytes."""
    write_atomically(path, packed_json(data))


def packed_json(data: dict[str, Any]) -> bytes:
    """The bytes that `write_packed` writes."""
    return packed_bytes(json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode())


def read_packed(path: Path, what: str, schema: int, names: Sequence[str]) -> dict[str, Any]:
    """Read a file of `write_packed`; raises GussError unless it has this schema and these names. `what`: its name."""
    with reading(f"{path} is not {what}: it is not JSON"):
        data = json.loads(unpacked(path))
    if not isinstance(data, dict) or "schema" not in data:
        raise GussError(f"{path} is not {what}: it has no schema")
    if data["schema"] != schema:
        raise GussError(
            f"{path} has schema {data['schema']!r}, this version of guss reads {schema}: another version wrote it"
        )
    if missing := [name for name in names if name not in data]:
        raise GussError(f"{path} is not {what}: it has no {', '.join(missing)}")
    return data


def by_seed(episodes: list[dict[str, Any]], field: str) -> np.ndarray:
    """One field of the episode records as an array [seeds, episodes], over the episodes that all seeds have."""
    seeds = sorted({row["seed"] for row in episodes})
    table = [[row[field] for row in episodes if row["seed"] == seed] for seed in seeds]
    shortest = min((len(row) for row in table), default=0)
    return np.asarray([row[:shortest] for row in table], float)


def by_seed_if_stored(episodes: list[dict[str, Any]], field: str) -> np.ndarray | None:
    """`by_seed` of a field that earlier versions did not store; None if a record lacks it. NaN: undefined."""
    return by_seed(episodes, field) if all(field in row for row in episodes) else None


def trace_path(home: Path, seed: int, episode: int) -> Path:
    """The path of the trace of an episode."""
    return home / "traces" / f"seed{seed}-ep{episode}.npz"


def digest_of(data: Dataset) -> str:
    """A digest of logged data, independent of the file format."""
    digest = hashlib.sha256()
    rows = data.trajectory
    for part in (rows.obs, rows.action, rows.next_obs, rows.learnable, rows.reward, rows.cost):
        if part is None:
            continue
        digest.update(f"{part.dtype}{part.shape}".encode() + np.ascontiguousarray(part).tobytes())
    if data.cost_names is not None:
        digest.update("\n".join(data.cost_names).encode())
    return digest.hexdigest()


def write_start(home: Path, data: Dataset | None) -> None:
    """Store the logged data that a run starts from."""
    if data is None:
        (home / "data.npz").unlink(missing_ok=True)
    else:
        write_trace(home / "data.npz", data)


def read_start(home: Path, digest: str | None) -> Dataset | None:
    """The logged data that a run started from; None if it had none."""
    if digest is None:
        return None
    data = read_trace(home / "data.npz")
    if digest_of(data) != digest:
        raise GussError(f"{home / 'data.npz'} was altered: its digest does not match config.json")
    return data


def store_iteration(
    home: Path,
    seeds: Sequence[int],
    first: int,
    found: Iteration,
    steps: np.ndarray,
    stores_all: bool = True,
    guard: WriteGuard | None = None,
) -> list[dict[str, Any]]:
    """Write traces, then lines, of episodes of every seed, numbered from `first`; returns the lines.

    `steps`: real steps of each seed, including these. Without `stores_all` only the first episode gets a trace.
    """
    trajectory, rows = found.trajectory, []
    total = steps - [sum(one.steps for one in mine) for mine in found.metrics]
    for number in range(trajectory.valid.shape[1]):
        for i, seed in enumerate(seeds):
            if stores_all or number == 0:
                columns = trace_columns(one_episode(trajectory, i, number))
                write_atomically(trace_path(home, seed, first + number), write_columns(".npz", columns), guard)
            metrics, status = found.metrics[i][number], found.failures.get((i, number), "ok")
            total[i] += metrics.steps
            about = {"seed": seed, "episode": first + number, "phase": found.summary.phase}
            rows.append(about | _figures(metrics, status, int(total[i])))
    append_lines(home / "episodes.jsonl", rows, guard)
    append_lines(home / "timings.jsonl", [found.timing], guard)
    return rows


def _figures(metrics: EpisodeMetrics, status: str, total_steps: int) -> dict[str, Any]:
    """The measures of an episode in its line."""
    first = {"steps": metrics.steps, "total_steps": total_steps, "return": metrics.episode_return}
    shares = metrics.unsafe_pct_by_cost
    known = len(shares) < 2 and shares.keys() == metrics.costs.keys()  # that of one constraint is `unsafe_pct`
    without = ["episode_return", "terminated", *(["unsafe_pct_by_cost"] * known)]
    rest = {name: value for name, value in metrics._asdict().items() if name not in without}
    return first | rest | {"status": status}
