"""A run's files: `DIR/<env>-<method>-<8 hex of its config>/`, readable by people and programs.

config.json       everything that decides the outcome, and where it came from; checksums of the user's code
episodes.jsonl    a line per seed and episode; nothing in it depends on the clock or the machine
timings.jsonl     a line per episode, or per turn of several: seconds, model error, host
maps.json.gz      its states, counted by cells; animation.json.gz: one episode with its plans (both: `guss pack`)
data.npz          logged transitions it started from, if any
traces/seed<S>-ep<E>.npz   of several episodes that a baseline plays at once, the first
checkpoints/ep<E>.ckpt   everything needed to go on after E episodes; the last two
final.ckpt        models fitted to all episodes of a finished run
lock              there while a process works on the run
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from guss.checkpoint import write_atomically
from guss.collect.datasets import Trace, read_trace, write_trace
from guss.collect.host import Played
from guss.errors import GussError
from guss.files import file_error
from guss.limits import MAX_PACKED, read_gzip
from guss.task import Task
from guss.types import Transition

SCHEMA = 1


def short_name(env: str) -> str:
    """An environment's name for folders and figures: an own one's file and function, not where it lies."""
    module, _, function = env.rpartition(":")
    name = env if not module else f"{Path(module).name.removesuffix('.py')} {function}".removesuffix(" make_env")
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")


def run_folder(out: Path, env: str, method: str, config: dict[str, Any]) -> Path:
    """The folder of a run: its name tells what ran, its hash with which settings."""
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:8]
    return out / f"{short_name(env)}-{method}-{digest}"


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Readable JSON, atomically."""
    write_atomically(path, json_bytes(data))


def json_bytes(data: dict[str, Any]) -> bytes:
    """Readable JSON."""
    return (json.dumps(data, indent=2) + "\n").encode()


def append_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    """Add JSON lines, on disk when this returns; all of them or, if there is no room, none."""
    size = 0
    try:
        size = path.stat().st_size if path.exists() else 0
        with path.open("ab") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows).encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        with contextlib.suppress(OSError):  # the first error is the one to tell; half a line is dropped on resuming
            os.truncate(path, size)
        raise GussError(f"{file_error(path, error)}. What was finished before is kept") from error


def read_lines(path: Path) -> list[Any]:
    """All JSON lines of a file; a last one that was cut off while writing does not count.

    A file that was packed since (`gzip episodes.jsonl`) is read as it is.
    """
    return [row for row, _ in raw_lines(path)]


def raw_lines(path: Path) -> list[tuple[Any, bytes]]:
    """The same with the bytes of each line."""
    packed = path.with_name(f"{path.name}.gz")
    try:
        content = unpacked(packed) if packed.exists() else path.read_bytes()
    except OSError as error:
        raise GussError(f"cannot read {path}: {error.strerror}") from error
    rows: list[tuple[Any, bytes]] = []
    for number, line in enumerate(content.split(b"\n")[:-1], 1):  # what follows the last newline was cut off
        try:
            rows.append((json.loads(line), line + b"\n"))
        except (ValueError, RecursionError) as error:
            raise GussError(f"{path} holds a line that is not JSON: line {number}, {error}") from error
    return rows


def packed_bytes(content: bytes) -> bytes:
    """Compressed by gzip, always to the same bytes: without the time and a name."""
    buffer = io.BytesIO()
    with gzip.GzipFile("", "wb", 9, buffer, mtime=0) as file:
        file.write(content)
    return buffer.getvalue()


def unpacked(path: Path) -> bytes:
    """What a file holds that gzip compressed."""
    with path.open("rb") as file:
        try:
            return read_gzip(file, MAX_PACKED.budget(str(path)))
        except (OSError, EOFError, zlib.error) as error:
            raise GussError(f"{path} is damaged, or not compressed by gzip: {error}") from error


def write_packed(path: Path, data: dict[str, Any]) -> None:
    """JSON, compressed, atomically; the same data give the same bytes."""
    write_atomically(path, packed_json(data))


def packed_json(data: dict[str, Any]) -> bytes:
    """The content of such a file."""
    return packed_bytes(json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode())


def read_packed(path: Path, what: str, schemas: Sequence[int], names: Sequence[str]) -> dict[str, Any]:
    """What `write_packed` wrote: `what`, of one of these schemas and with these names; anything else raises."""
    try:
        data = json.loads(unpacked(path))
    except OSError as error:
        raise GussError(f"cannot read {path}: {error.strerror}") from error
    except GussError:
        raise
    except (ValueError, RecursionError) as error:
        raise GussError(f"{path} is not {what}: it holds no JSON ({error})") from error
    if not isinstance(data, dict) or "schema" not in data:
        raise GussError(f"{path} is not {what}: it names no schema")
    if data["schema"] not in schemas:
        raise GussError(f"{path} has schema {data['schema']!r}, this version of guss reads {schemas[-1]}; update guss")
    if missing := [name for name in names if name not in data]:
        raise GussError(f"{path} is not {what}: it has no {', '.join(missing)}")
    return data


def by_seed(episodes: list[dict[str, Any]], field: str) -> np.ndarray:
    """One field of the episode records as an array [seeds, episodes]; episodes that not all seeds have are left out."""
    seeds = sorted({row["seed"] for row in episodes})
    table = [[row[field] for row in episodes if row["seed"] == seed] for seed in seeds]
    shortest = min((len(row) for row in table), default=0)
    return np.asarray([row[:shortest] for row in table], float)


def trace_path(home: Path, seed: int, episode: int) -> Path:
    """Where an episode of a seed is."""
    return home / "traces" / f"seed{seed}-ep{episode}.npz"


def digest_of(data: Trace) -> str:
    """Tells logged data apart, whatever file they came from."""
    digest = hashlib.sha256()
    told = [part for part in (data.reward, data.cost) if part is not None]
    for part in (data.obs, data.action, data.next_obs, data.use, *told):
        digest.update(f"{part.dtype}{part.shape}".encode() + np.ascontiguousarray(part).tobytes())
    if data.cost_names is not None:
        digest.update("\n".join(data.cost_names).encode())
    return digest.hexdigest()


def write_start(home: Path, data: Trace | None) -> None:
    """Keep the logged data that a run starts from with it."""
    if data is None:
        (home / "data.npz").unlink(missing_ok=True)
    else:
        write_trace(home / "data.npz", data)


def read_start(home: Path, digest: str | None) -> Trace | None:
    """The logged data that a run started from; None if it had none."""
    if digest is None:
        return None
    data = read_trace(home / "data.npz")
    if digest_of(data) != digest:
        raise GussError(f"{home / 'data.npz'} is not what this run started from: its digest does not match config.json")
    return data


def unsafe_steps(task: Task, moves: Transition | Trace) -> np.ndarray:
    """Where any soft constraint is violated, whatever its bound: [T, S], or [T] of a trace."""
    soft = np.asarray(task.soft, bool)
    return np.any(np.asarray(moves.cost)[..., soft] > 0, axis=-1)


def per_episode(task: Task, played: Played) -> tuple[np.ndarray, np.ndarray]:
    """Mean reward and share of unsafe steps of every seed's episode, [S]."""
    unsafe, reward = unsafe_steps(task, played.moves), np.asarray(played.moves.reward)
    each = [(reward[:count, i], unsafe[:count, i]) for i, count in enumerate(played.length)]
    means = [(r.mean(dtype=np.float64), u.mean()) for r, u in each]
    rewards, shares = np.asarray(means).T
    return rewards, shares


def unsafe_by_cost(task: Task, played: Played) -> dict[str, np.ndarray]:
    """Share of steps that violate each constraint in every seed's episode, [S]."""
    cost = np.asarray(played.moves.cost) > 0
    share = lambda k: np.asarray([cost[:n, i, k].mean() for i, n in enumerate(played.length)])  # noqa: E731
    return {c.name: share(k) for k, c in enumerate(task.constraints)}


def store_episodes(
    home: Path,
    seeds: tuple[int, ...],
    task: Task,
    first: int,
    phase: str,
    episodes: Sequence[Played],
    timing: dict[str, Any],
    steps_before: np.ndarray,
    every_trace: bool = True,
) -> list[dict[str, Any]]:
    """Episodes of every seed, numbered from `first`: their traces, then their lines, which are returned.

    `steps_before`: real steps of each seed until then. Without `every_trace` only the first is kept step by step.
    """
    rows, total = [], np.array(steps_before)
    for number, played in enumerate(episodes, first):
        total += played.length
        for i, seed in enumerate(seeds):
            if every_trace or number == first:
                write_atomically(trace_path(home, seed, number), _trace_bytes(played, i))
            rows.append({"seed": seed, "episode": number, "phase": phase, **_figures(task, played, i, int(total[i]))})
    append_lines(home / "episodes.jsonl", rows)
    append_lines(home / "timings.jsonl", [timing])
    return rows


def _trace_bytes(played: Played, row: int) -> bytes:
    steps = int(played.length[row])
    mine = {name: np.asarray(value)[:steps, row] for name, value in played.moves._asdict().items()}
    last = np.arange(steps) == steps - 1
    ended = np.asarray(played.terminated, bool)[row]
    used = np.asarray(played.use, bool)[:steps, row]
    flags = {"terminated": last & ended, "truncated": last & ~ended, "skip": ~used}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **mine, **flags)  # type: ignore[arg-type]
    return buffer.getvalue()


def _figures(task: Task, played: Played, row: int, total_steps: int) -> dict[str, Any]:
    """An episode of one seed as its line tells it."""
    steps = int(played.length[row])
    reward, cost = (np.asarray(x)[:steps, row] for x in (played.moves.reward, played.moves.cost))
    unsafe = unsafe_steps(task, played.moves)[:steps, row]
    shares = {name: 100.0 * float(share[row]) for name, share in unsafe_by_cost(task, played).items()}
    return {
        "steps": steps,
        "total_steps": total_steps,
        "return": float(reward.sum(dtype=np.float64)),
        "mean_reward": float(reward.mean(dtype=np.float64)),
        "unsafe_steps": int(unsafe.sum()),
        "unsafe_pct": 100.0 * float(unsafe.mean()),
        **({"unsafe_pct_by_cost": shares} if len(shares) > 1 else {}),
        "costs": {c.name: float(cost[:, k].sum()) for k, c in enumerate(task.constraints)},
        "hard_stop": bool(played.stopped[row]),
        "status": played.status[row],
    }
