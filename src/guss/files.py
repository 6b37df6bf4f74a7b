"""Checks whether a path can be written to, and reports why not.

`check_folder` and `check_file` test a path before anything is computed for it and leave no trace there; `writing` turns
later errors of the operating system (a full disk, a renamed folder) into one line.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, runtime_checkable

from guss.errors import GussError

LONGEST = 300
"""Characters of a path in a message; the middle of a longer path is left out."""
ADVICE = {
    errno.ENOTDIR: "a part of this path is a file, not a folder; choose another place",
    errno.EEXIST: "there is a file of that name; choose another place",
    errno.EISDIR: "there is a folder of that name; choose another file",
    errno.ELOOP: "a symbolic link in this path leads back to itself; choose another place",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ENOENT: "nothing can be created there, or a folder of this path was renamed or deleted meanwhile",
    errno.EACCES: "choose another place, or change its permissions",
    errno.EPERM: "choose another place, or change its permissions",
    errno.EROFS: "choose another place",
    errno.ENOSPC: "free some space, then run the command again",
    errno.EDQUOT: "free some space, then run the command again",
}


@runtime_checkable
class WriteGuard(Protocol):
    """Prevents writes of a process that lost the right to write."""

    token: str
    """Unique for each guard."""

    def check(self) -> None:
        """Raise an error if the right is lost."""


def file_error(path: str | Path, error: OSError, doing: str = "write") -> GussError:
    """The error for a path that cannot be written to; `doing` names another operation."""
    reason = error.strerror or str(error) or type(error).__name__
    name, advice = str(path), ADVICE.get(error.errno or 0)
    name = name if len(name) <= LONGEST else f"{name[: LONGEST // 2]}…{name[-LONGEST // 2 :]}"
    return GussError(f"cannot {doing} {name}: {reason}" + (f" ({advice})" if advice else ""))


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Report an OSError as a failure to write the file that it names, or else `path`."""
    try:
        yield
    except OSError as error:
        raise file_error(error.filename or path, error) from error


def check_folder(folder: Path) -> None:
    """Raise a GussError unless files can be written to this folder; it need not exist yet, and is not created."""
    missing = []
    try:
        for place in (folder, *folder.parents):
            if os.path.lexists(place):
                os.stat(place)  # raises for a circular or broken link
                break
            missing.append(place)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        finally:
            for place in missing:
                with contextlib.suppress(OSError):  # it was not created, or another process already writes there
                    place.rmdir()
    except OSError as error:
        raise file_error(folder, error) from error


def check_file(path: Path) -> None:
    """Raise a GussError unless this file can be written to; it may exist."""
    check_folder(path.parent)
    try:
        mode = os.stat(path).st_mode if os.path.lexists(path) else stat.S_IFREG
        with contextlib.suppress(FileNotFoundError):
            os.lstat(path)  # raises if the name is too long
    except OSError as error:
        raise file_error(path, error) from error
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "a device"
        raise GussError(f"cannot write {path}: it is {what}, not a file; choose another name")
