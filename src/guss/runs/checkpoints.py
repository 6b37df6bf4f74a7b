"""Checkpoints of a run: everything that is needed to resume it, and the models that it ends with."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from guss import checkpoint
from guss.checkpoint import Stored
from guss.errors import GussError
from guss.runs.rows import read_episodes

FINAL = "final.ckpt"
"""The models fitted to all episodes of a finished run; everything else of its state is in the last checkpoint."""
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
"""Types of what a checkpoint keeps beside the state."""


def checkpoints(home: Path) -> list[Path]:
    """The checkpoints of a run, newest first."""
    files = (home / "checkpoints").glob("ep*.ckpt")
    return sorted((path for path in files if path.stem[2:].isdecimal()), reverse=True)


def _load(path: Path, kind: str = "run") -> Stored:
    """A checkpoint of a run, its `meta` checked."""
    required = ("done", "over", "steps", "system", "config", *(("report", "diverged") if kind == "final" else ()))
    return checkpoint.load(path, kind).checked(RUN_META, required)


def episodes_kept(home: Path) -> int:
    """Episodes that a run has for good: those before its last checkpoint; if none are kept, those of its records."""
    if (home / "checkpoints").is_dir():
        return max((int(path.stem.removeprefix("ep")) for path in checkpoints(home)), default=0)
    return len({row["episode"] for row in read_episodes(home)})


def save_checkpoint(home: Path, done: int, meta: dict[str, Any], state: Any) -> None:
    """Write what is needed to resume; the one before is kept, older ones are deleted."""
    checkpoint.save(checkpoint_path(home, done), "run", meta, state)
    for old in checkpoints(home)[2:]:
        old.unlink()


def newest_checkpoint(home: Path, previous: bool = False) -> Stored | None:
    """The last checkpoint of a run, or the one before; None if there is none yet."""
    files = checkpoints(home)
    if previous and len(files) < 2:
        raise GussError(f"{home} has no checkpoint before its last one")
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
        raise GussError(
            f"{error}. The one before it, after {good.meta['done']} episodes, is good: `guss run --resume {home} "
            f"--previous` resumes from there"
        ) from error


def final_models(home: Path, done: int) -> Stored | None:
    """The models fitted after the last of `done` episodes; None if there are none."""
    if not (home / FINAL).exists():
        return None
    stored = _load(home / FINAL, "final")
    return stored if stored.meta["done"] == done else None


def is_final(home: Path, done: int) -> bool:
    """The same as whether there are any; a file that cannot be read counts for none, and is made again."""
    with contextlib.suppress(GussError):
        return final_models(home, done) is not None
    return False


def checkpoint_path(home: Path, episodes: int) -> Path:
    """Where the checkpoint after that many episodes is, if it is still there."""
    return home / "checkpoints" / f"ep{episodes:06d}.ckpt"


def checkpoint_after(home: Path, episodes: int) -> Stored | None:
    """The checkpoint after that many episodes, if it is still there."""
    path = checkpoint_path(home, episodes)
    return _load(path) if path.exists() else None
