"""Checkpoints of a run: the state needed to resume it, and the final models."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from guss import checkpoint
from guss.checkpoint import Stored
from guss.errors import GussError
from guss.files import WriteGuard
from guss.runs.rows import read_episodes

FINAL = "final.ckpt"
"""The models fitted to all episodes of a finished run; the rest of its state is in the last checkpoint."""
RUN_META: dict[str, Any] = {
    "system": dict[str, Any],
    "done": int,
    "over": bool,
    "steps": tuple[int, ...],
    "config": dict[str, Any],
    "records": dict[str, Any],
    "report": Any,
    "diverged": tuple[int, ...],
}
"""Types of a checkpoint's metadata."""


class PreviousIsValidError(GussError):
    """The newest checkpoint or its records are damaged, and the previous checkpoint is valid."""


def checkpoints(home: Path) -> list[Path]:
    """The checkpoints of a run, newest first."""
    files = (home / "checkpoints").glob("ep*.ckpt")
    return sorted((path for path in files if path.stem[2:].isdecimal()), reverse=True)


def _load(path: Path, kind: str = "run") -> Stored:
    """Load a checkpoint of a run and check its `meta`."""
    required = ("done", "over", "steps", "system", "config", *(("report", "diverged") if kind == "final" else ()))
    return checkpoint.load(path, kind).checked(RUN_META, required)


def episodes_kept(home: Path) -> int:
    """Number of episodes before the last checkpoint; without a folder of checkpoints, number of recorded episodes."""
    if (home / "checkpoints").is_dir():
        return max((int(path.stem.removeprefix("ep")) for path in checkpoints(home)), default=0)
    return len({row["episode"] for row in read_episodes(home)})


def save_checkpoint(home: Path, done: int, meta: dict[str, Any], state: Any, guard: WriteGuard | None = None) -> None:
    """Write a checkpoint; the previous checkpoint is kept, older checkpoints are deleted."""
    checkpoint.save(checkpoint_path(home, done), "run", meta, state, guard)
    for old in checkpoints(home)[2:]:
        old.unlink(missing_ok=True)


def newest_checkpoint(home: Path, previous: bool = False) -> Stored | None:
    """The last checkpoint of a run, or the second-last with `previous`; None if there is none yet."""
    files = checkpoints(home)
    if previous and len(files) < 2:
        raise GussError(f"{home} has no previous checkpoint: it has {len(files)}, and --previous needs two")
    if not files:
        return None
    try:
        return _load(files[1 if previous else 0])
    except GussError as error:
        if previous or len(files) < 2:
            raise
        try:
            good = _load(files[1])
        except GussError:
            raise error from None
        raise PreviousIsValidError(
            f"{error}. The previous checkpoint, after {good.meta['done']} episodes, is valid: `guss run --resume "
            f"{home} --previous` resumes from it"
        ) from error


def final_models(home: Path, done: int) -> Stored | None:
    """The models fitted after the last of `done` episodes; None if there are none."""
    if not (home / FINAL).exists():
        return None
    stored = _load(home / FINAL, "final")
    return stored if stored.meta["done"] == done else None


def is_final(home: Path, done: int) -> bool:
    """Whether there are final models; an unreadable file counts as missing and is rewritten."""
    with contextlib.suppress(GussError):
        return final_models(home, done) is not None
    return False


def checkpoint_path(home: Path, episodes: int) -> Path:
    """The path of the checkpoint after that many episodes."""
    return home / "checkpoints" / f"ep{episodes:06d}.ckpt"


def checkpoint_after(home: Path, episodes: int) -> Stored | None:
    """The checkpoint after that many episodes; None if it was deleted."""
    path = checkpoint_path(home, episodes)
    return _load(path) if path.exists() else None
