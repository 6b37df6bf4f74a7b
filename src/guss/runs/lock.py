"""One process at a time in a run's folder."""

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
    """Hold the folder's lock. The system lets go of it when a process dies, so what a dead one left behind is stale."""
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
                f"changed. Wait until it is done, or stop it first"
            ) from None
        if _is_at(file, path):
            break
        file.close()  # its owner removed it between our opening and our locking it: once more
    with file:
        before = _owner(path).get("host", platform.node())
        if before != platform.node():
            raise GussError(
                f"{home} was locked by a process on {before}; whether it is still running cannot be checked from here. "
                f"If it has ended, remove {path}"
            )
        with writing(path):
            path.write_text(json.dumps({"pid": os.getpid(), "host": platform.node()}) + "\n")
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # the folder is gone: an earlier error is the one to report
                if _is_at(file, path):
                    path.unlink()


def _is_at(file: IO[str], path: Path) -> bool:
    """Whether an open file is the one at this path: it may have been removed, or its folder renamed."""
    return path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())


def _owner(path: Path) -> dict[str, Any]:
    try:
        owner = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}  # being written just now, or by somebody killed while writing
    return owner if isinstance(owner, dict) else {}
