"""Lock of a run folder: one process at a time writes to it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from guss.errors import GussError
from guss.files import writing

NAME = "lock"


@contextmanager
def locked(home: Path) -> Iterator[None]:
    """Hold the lock of a folder. The system releases it when the process ends, so a stale file is harmless."""
    path = home / NAME
    while True:
        with writing(home):
            home.mkdir(parents=True, exist_ok=True)
            file = path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = _owner(path)
            file.close()
            raise GussError(
                f"{home} is in use by process {owner.get('pid', '?')} on {owner.get('host', '?')}; nothing was "
                f"changed. Wait until that process ends, or stop it"
            ) from None
        if _is_at(file, path):
            break
        file.close()  # its owner removed the file after it was opened here and before it was locked: try again
    with file:
        before = _owner(path).get("host", platform.node())
        if before != platform.node():
            raise GussError(
                f"{home} was locked by a process on {before}; this machine cannot check whether it is still running. "
                f"If it has ended, remove {path}"
            )
        with writing(path):
            path.write_text(json.dumps({"pid": os.getpid(), "host": platform.node()}) + "\n")
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # the folder was removed: report the earlier error instead
                if _is_at(file, path):
                    path.unlink()


def _is_at(file: IO[str], path: Path) -> bool:
    """Whether an open file is still the file at this path; it may have been removed, or its folder renamed."""
    return path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())


def _owner(path: Path) -> dict[str, Any]:
    try:
        owner = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}  # another process is writing it, or was killed while writing
    return owner if isinstance(owner, dict) else {}
