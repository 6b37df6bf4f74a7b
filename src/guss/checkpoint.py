"""Checkpoints without pickle: a JSON header line, then the arrays of the state.

    {"format": "guss-checkpoint", "schema": 2, "kind": "run", "sha256": …, "bytes": …, "meta": {…}}
    NPZ archive: one array per leaf of the state, named by its path in the tree

A file is written next to its target, synced and renamed, then the folder is synced: a reader sees the old or the new
file, and the new file survives a power failure. Loading checks format, schema, length and checksum before unpacking,
and never executes anything from a file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from guss.errors import GussError
from guss.files import WriteGuard, file_error
from guss.limits import Budget, read_npz, reading
from guss.validation import checked, received

FORMAT, SCHEMA = "guss-checkpoint", 2
START = json.dumps({"format": FORMAT}).encode()[:-1]
"""The first bytes of every file."""
T = TypeVar("T")


@dataclass(frozen=True)
class Stored:
    """A checkpoint as read from disk."""

    path: Path
    meta: dict[str, Any]
    arrays: dict[str, np.ndarray]

    def checked(self, kinds: Mapping[str, Any], required: Iterable[str]) -> Stored:
        """A copy whose `meta` has these types; a missing or mistyped entry raises GussError."""
        known = {name: value for name, value in self.meta.items() if name in kinds}
        return replace(self, meta=self.meta | checked(kinds, known, f"{self.path}: meta", required=required))

    def row(self, index: int, count: int) -> Stored:
        """The arrays of one of `count` seeds; seeds are the first axis of every array."""
        if wrong := [name for name, x in self.arrays.items() if x.shape[:1] != (count,)]:
            raise GussError(
                f"the checkpoint {self.path} is invalid: the first axis of the array {wrong[0]} must have one entry "
                f"for each of the {count} seeds"
            )
        return replace(self, arrays={name: x[index : index + 1] for name, x in self.arrays.items()})

    def restore(self, like: T, *, grow: bool = False) -> T:
        """The state in the structure of `like`; every array must have the same shape and dtype as there.

        `grow`: buffers of `like` may be longer; the rest is padded with zeros.
        """
        leaves, structure = jax.tree_util.tree_flatten_with_path(like)
        names = [jax.tree_util.keystr(path) for path, _ in leaves]
        if missing := set(names) ^ set(self.arrays):
            raise GussError(
                f"the checkpoint {self.path} does not match: only the checkpoint or only the state to restore has the "
                f"array{'s' * (len(missing) > 1)} {', '.join(sorted(missing)[:3])}; it was written with other settings "
                f"or by another version of guss"
            )
        new = []
        for name, (_, old) in zip(names, leaves, strict=True):
            array = self.arrays[name]
            if grow and array.ndim == old.ndim and array.shape != old.shape:
                array = np.pad(array, [(0, max(b - a, 0)) for a, b in zip(array.shape, old.shape, strict=True)])
            if (array.shape, array.dtype) != (old.shape, old.dtype):
                raise GussError(
                    f"the checkpoint {self.path} does not fit this state: {name} is {array.dtype}{list(array.shape)}, "
                    f"expected {old.dtype}{list(old.shape)}"
                )
            new.append(jnp.asarray(array))
        return jax.tree_util.tree_unflatten(structure, new)


def write_atomically(path: Path, content: bytes, guard: WriteGuard | None = None) -> None:
    """Write next to the file, sync, rename, sync the folder: the file is never partial, and durable on return.

    `guard` is checked before the rename; it may raise an error.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid() if guard is None else guard.token}.partial")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if guard is not None:
            guard.check()
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise file_error(path, error) from error
    finally:
        with contextlib.suppress(OSError):  # it was renamed, or an earlier error is reported
            temporary.unlink()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable: otherwise a power failure may undo a rename."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network filesystems cannot sync a folder
            raise
    finally:
        os.close(descriptor)


def save(path: Path, kind: str, meta: dict[str, Any], state: Any, guard: WriteGuard | None = None) -> None:
    """Write a state (a pytree of arrays) and metadata (plain data)."""
    buffer = io.BytesIO()
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    np.savez(buffer, **{jax.tree_util.keystr(where): np.asarray(leaf) for where, leaf in leaves})  # type: ignore[arg-type]
    payload = buffer.getvalue()
    header = {"format": FORMAT, "schema": SCHEMA, "kind": kind, "bytes": len(payload), "meta": meta}
    header["sha256"] = _digest(header, payload)
    write_atomically(path, json.dumps(header).encode() + b"\n" + payload, guard)


def _digest(header: dict[str, Any], payload: bytes) -> str:
    """The SHA-256 of header and payload, without the checksum itself."""
    rest = {name: value for name, value in header.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode() + payload).hexdigest()


def load(path: Path, kind: str) -> Stored:
    """Read and verify a checkpoint."""
    try:
        with path.open("rb") as file:
            start = file.read(len(START))
            first, payload = (start + file.readline(), file.read()) if start == START else (start, b"")
    except OSError as error:
        raise GussError(f"cannot read the checkpoint {path}: {error.strerror}") from error
    try:
        header = json.loads(first)
        known = isinstance(header, dict) and header.get("format") == FORMAT
    except (ValueError, RecursionError):
        known = False
    if not known:
        raise GussError(f"{path} is not a checkpoint of guss")
    if header.get("schema") != SCHEMA:
        raise GussError(
            f"the checkpoint {path} has schema {header.get('schema')!r}, this version of guss reads schema {SCHEMA}; "
            f"use the version of guss that wrote it"
        )
    if header.get("kind") != kind:
        raise GussError(f"the checkpoint {path} is of kind {header.get('kind')!r}, expected {kind!r}")
    if len(payload) != header.get("bytes"):
        raise GussError(f"the checkpoint {path} is truncated: {len(payload)} of {header.get('bytes')} bytes")
    if _digest(header, payload) != header.get("sha256"):
        raise GussError(f"the checkpoint {path} is damaged: its checksum does not match")
    if not isinstance(header.get("meta"), dict):
        raise GussError(f"the checkpoint {path}: meta must be a table, got {received(header.get('meta'))}")
    with reading(f"the checkpoint {path} contains a value that is not an array"):
        # Arrays are stored uncompressed, so together they are no larger than the file.
        budget = Budget(f"the checkpoint {path}", len(payload), "bytes, its file size", "it was not written by guss")
        arrays = read_npz(io.BytesIO(payload), budget)
    return Stored(path, header["meta"], arrays)
