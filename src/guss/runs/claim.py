"""Claims of run folders: one process at a time writes to a run, on one machine or on many that share the folder.

A claim is a file `claim-<number>` in the folder of the run. Its owner locks it and rewrites it every few seconds. It
is lost if its owner ends (a process on the same machine detects that the lock is free) or does not rewrite it for
`EXPIRY` seconds. Each process measures this time by its own clock, from when it first read the current content: clocks
of machines need not agree, and may jump. A lost claim is replaced by one with the next number, and removed.

The owner checks its claim before each write. A process that was suspended, lost its claim and continues therefore
writes nothing. If it is suspended between check and write, the write has no effect: the next owner removes partial
files, and replaces the files to which lines are appended.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import platform
import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from guss.errors import GussError
from guss.files import writing

EXPIRY = 60.0
"""Seconds without a sign of life after which another process may take a claim over."""
BEATS = 12
"""Signs of life in that time."""
BOOT = Path("/proc/sys/kernel/random/boot_id")
PREFIX = "claim-"


class InUseError(GussError):
    """Another process has claimed the run."""


class ClaimLostError(GussError):
    """Another process took the run over."""


class Owner(NamedTuple):
    """What a claim says about the process that made it."""

    path: Path
    content: bytes
    """The content of the file, which changes with every sign of life."""
    host: str
    pid: int | None
    boot: str | None
    """Identifies the machine since it was started; None: unknown, or files cannot be locked there."""

    @property
    def ended(self) -> bool:
        """Whether the process is known to have ended: it ran on this machine, and its lock is free."""
        if self.boot is None or self.boot != boot_id():
            return False
        try:
            with self.path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


class Observer:
    """Remembers since when the claims of other processes have not changed."""

    def __init__(self, expiry: float = EXPIRY) -> None:
        self.expiry = expiry
        self._seen: dict[Path, tuple[bytes, float, float]] = {}
        """Content of a claim, when it was first read, and when it was last read."""

    def lost(self, owner: Owner) -> bool:
        """Whether a claim may be taken over. Time counts only while this process reads the claim at least
        twice per expiry.

        Otherwise a stalled file server, or a machine that slept, would make live claims look lost.
        """
        now = time.monotonic()
        content, since, last = self._seen.get(owner.path, (None, now, now))
        if content != owner.content or now - last > self.expiry / 2:
            since = now
        self._seen[owner.path] = owner.content, since, now
        return owner.ended or now - since >= self.expiry

    def forget(self, home: Path) -> None:
        """Forget the claims of a folder."""
        for path in [path for path in self._seen if path.parent == home]:
            del self._seen[path]


class Claim:
    """A claim of this process. Its owner calls `check` before each write."""

    def __init__(self, path: Path, file: int, beat: float) -> None:
        """Write and lock a new file, which is open as `file`, and rewrite it every `beat` seconds."""
        self.path, self.token = path, secrets.token_hex(8)
        self._file, self._beat, self._beats = file, beat, 0
        self._boot = boot_id() if _lock(file) else None
        self._write()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._live, name="guss claim", daemon=True)
        self._thread.start()

    @property
    def held(self) -> bool:
        """Whether no other process took the run over."""
        try:
            return _parsed(self.path.read_bytes()).get("token") == self.token
        except OSError:
            return False

    def check(self) -> None:
        """Raise ClaimLostError if another process took the run over."""
        if not self.held:
            raise ClaimLostError(
                f"another process took over {self.path.parent}, because this process did not renew its claim in time, "
                f"or the folder was moved; this process writes nothing more. Finished episodes are kept"
            )

    def release(self) -> None:
        """Remove the claim, unless another process took the run over."""
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(OSError):  # the folder was moved or removed: report the earlier error instead
            if self.held:
                self.path.unlink()
        os.close(self._file)

    def _live(self) -> None:
        while not self._ended.wait(self._beat):
            self._beats += 1
            with contextlib.suppress(OSError):  # an unreachable folder: other processes will take the run over
                self._write()

    def _write(self) -> None:
        """Rewrite the file in place; its length never changes."""
        about = {"token": self.token, "host": platform.node(), "pid": os.getpid(), "boot": self._boot}
        os.pwrite(self._file, (json.dumps(about | {"beat": f"{self._beats:012d}"}) + "\n").encode(), 0)
        os.fsync(self._file)


@contextlib.contextmanager
def claimed(home: Path, observer: Observer | None = None) -> Iterator[Claim]:
    """Claim a folder, which is created if necessary. Raises InUseError if another process has claimed it.

    `observer`: by default, only claims of processes that are known to have ended are taken over.
    """
    claim = _claim(home, observer or Observer())
    try:
        yield claim
    finally:
        claim.release()


def owner_of(home: Path) -> Owner | None:
    """The owner of the newest claim of a folder; None if it is free."""
    owners = _owners(home)
    return owners[-1] if owners else None


def boot_id() -> str | None:
    """Identifies this machine since it was started; None if the system does not provide this."""
    try:
        return BOOT.read_text().strip()
    except OSError:
        return None


def _claim(home: Path, observer: Observer) -> Claim:
    while True:
        before = _owners(home)
        for owner in before:
            if not observer.lost(owner):
                raise _in_use(home, owner)
        path = home / f"{PREFIX}{1 + max((_number(owner.path) for owner in before), default=0):06d}"
        with writing(home):
            home.mkdir(parents=True, exist_ok=True)
            try:
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            except FileExistsError:  # another process was faster
                continue
            try:
                claim = Claim(path, file, observer.expiry / BEATS)
            except BaseException:
                os.close(file)
                path.unlink()
                raise
            try:
                others = [(owner.path, owner.content) for owner in _owners(home) if owner.path != path]
                if claim.held and others == [(owner.path, owner.content) for owner in before]:
                    for owner in before:
                        owner.path.unlink(missing_ok=True)
                    observer.forget(home)
                    return claim
            except BaseException:
                claim.release()
                raise
        claim.release()  # another process claimed the folder, too: one of the two is faster next time
        time.sleep(secrets.randbelow(100) / 1000)


def _in_use(home: Path, owner: Owner) -> InUseError:
    here = owner.boot is not None and owner.boot == boot_id()
    unknown = "" if here else "This machine cannot check whether it is still running. "
    return InUseError(
        f"{home} is in use by process {'?' if owner.pid is None else owner.pid} on {owner.host}; nothing was changed. "
        f"{unknown}Wait until that process ends, or stop it; if it has ended, remove {owner.path}"
    )


def _owners(home: Path) -> list[Owner]:
    """The claims of a folder, oldest first."""
    found = []
    for path in sorted(path for path in home.glob(f"{PREFIX}*") if path.name.removeprefix(PREFIX).isdecimal()):
        try:
            content = path.read_bytes()
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ESTALE):  # released meanwhile
                continue
            content = b""
        about = _parsed(content)
        found.append(Owner(path, content, str(about.get("host", "?")), about.get("pid"), about.get("boot")))
    return found


def _number(path: Path) -> int:
    return int(path.name.removeprefix(PREFIX))


def _lock(file: int) -> bool:
    """Lock an open file until this process ends; False if the file system cannot."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        about = json.loads(content)
    except ValueError:
        return {}  # it is being written
    return about if isinstance(about, dict) else {}
