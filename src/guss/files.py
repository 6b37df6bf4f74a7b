"""Where guss writes: whether a place can be written to, and what is wrong if it cannot.

`check_folder` and `check_file` try a place before anything is computed for it and leave no trace there; `writing` turns
what the system refuses later (a full disk, a folder that was renamed) into one line.
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

from guss.errors import GussError

LONGEST = 300
"""Characters of a path in a message; of a longer one the middle is left out."""
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


def file_error(path: str | Path, error: OSError, doing: str = "write") -> GussError:
    """What to tell when a place cannot be written to (or whatever else was to be done with it)."""
    reason = error.strerror or str(error) or type(error).__name__
    name, advice = str(path), ADVICE.get(error.errno or 0)
    name = name if len(name) <= LONGEST else f"{name[: LONGEST // 2]}…{name[-LONGEST // 2 :]}"
    return GussError(f"cannot {doing} {name}: {reason}" + (f" ({advice})" if advice else ""))


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Within it an OSError is reported as one about writing: of the file that it names, or else of `path`."""
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
                os.stat(place)  # a link that leads to itself, or nowhere
                break
            missing.append(place)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        finally:
            for place in missing:
                with contextlib.suppress(OSError):  # it was not created, or another process writes there by now
                    place.rmdir()
    except OSError as error:
        raise file_error(folder, error) from error


def check_file(path: Path) -> None:
    """The same of a file, which may exist."""
    check_folder(path.parent)
    try:
        mode = os.stat(path).st_mode if os.path.lexists(path) else stat.S_IFREG
        with contextlib.suppress(FileNotFoundError):
            os.lstat(path)  # a name that is too long
    except OSError as error:
        raise file_error(path, error) from error
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "a device"
        raise GussError(f"cannot write {path}: it is {what}, not a file; choose another name")
