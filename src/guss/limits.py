"""Memory limits for settings and untrusted files, and archive readers that enforce them.

Sizes stated in a file are not trusted: readers count the bytes that they unpack. The environment variable of its name
raises a `Limit`.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from guss.errors import GussError

CHUNK = 2**20
"""Bytes that are unpacked at a time."""
MAX_LINE = 2**20
"""Characters in one line of a table."""
MAX_NPY_HEADER = 10_000
"""Bytes in the header of one array of an NPZ file; NumPy has the same limit."""


class Limit(NamedTuple):
    """The maximum size of one input; the environment variable `name` overrides it."""

    name: str
    default: int
    unit: str
    when: str = "if you trust the file"

    @property
    def value(self) -> int:
        """The current limit."""
        word = os.environ.get(self.name) or str(self.default)
        if not word.isdecimal() or int(word) < 1:
            raise GussError(f"{self.name} must be a number of {self.unit}, 1 or more, got {word!r}")
        return int(word)

    def budget(self, what: str) -> Budget:
        """A budget of the whole limit for `what`."""
        return Budget(what, self.value, self.unit, f"{self.when}, raise the limit: {self.name}=NUMBER")

    def check(self, what: str, amount: int) -> None:
        """Raise GussError if the `amount` of `what` exceeds the limit."""
        self.budget(what).take(amount)


class Budget:
    """Counts the amount read from one input, and raises GussError beyond the limit."""

    def __init__(self, what: str, limit: int, unit: str, advice: str) -> None:
        self.what, self.limit, self.unit, self.advice = what, limit, unit, advice
        self.left = limit

    def take(self, amount: int) -> None:
        self.left -= amount
        if self.left < 0:
            raise GussError(f"{self.what} has more than the limit of {self.limit} {self.unit}; {self.advice}")


MAX_DATA = Limit("GUSS_MAX_DATA_BYTES", 512 * 2**20, "bytes in memory")
"""The numbers of all data files that are read together (512 MiB); training takes several times that."""
MAX_COLUMNS = Limit("GUSS_MAX_COLUMNS", 4096, "columns")
"""The columns of a table, the arrays of an NPZ file."""
MAX_PACKED = Limit("GUSS_MAX_PACKED_BYTES", 256 * 2**20, "bytes unpacked")
"""A file of records compressed by gzip (256 MiB)."""
ENOUGH_MEMORY = "if this is intended and the machine has the memory"
MAX_PLAN_STEPS = Limit("GUSS_MAX_PLAN_STEPS", 20_000_000, "predicted steps", ENOUGH_MEMORY)
"""The steps that one plan predicts: horizon × budget × particles. Each takes some tens of bytes per seed."""
MAX_BATCH = Limit("GUSS_MAX_BATCH", 1_000_000, "transitions", ENOUGH_MEMORY)
"""The transitions of one gradient step."""
MAX_WEIGHTS = Limit("GUSS_MAX_WEIGHTS", 50_000_000, "weights", ENOUGH_MEMORY)
"""The weights of one seed's networks; training takes several times their memory."""
MAX_SEEDS = Limit("GUSS_MAX_SEEDS", 10_000, "seeds", ENOUGH_MEMORY)
"""The seeds of a run, which are all in memory at once."""
MAX_BUFFER = Limit("GUSS_MAX_BUFFER_BYTES", 8 * 2**30, "bytes", ENOUGH_MEMORY)
"""The transitions that a run or an agent keeps in memory, of all seeds (8 GiB)."""


@contextmanager
def reading(problem: str) -> Iterator[None]:
    """Report every exception of a parser as this problem: on damaged files, parsers raise almost anything."""
    try:
        yield
    except GussError:
        raise
    except Exception as error:
        cause = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        raise GussError(f"{problem}: {cause}") from error


def read_gzip(file: io.BufferedIOBase, budget: Budget) -> bytes:
    """Decompress a gzip file."""
    parts = []
    with gzip.GzipFile(fileobj=file) as packed:
        while part := packed.read(CHUNK):
            budget.take(len(part))
            parts.append(part)
    return b"".join(parts)


def npz_names(file: io.BufferedIOBase) -> list[str]:
    """The names of the arrays in an NPZ file."""
    with zipfile.ZipFile(file) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def read_npz(file: io.BufferedIOBase, budget: Budget, wanted: Callable[[str], Any] = bool) -> dict[str, np.ndarray]:
    """The arrays of an NPZ file whose names are `wanted`; never objects."""
    arrays: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(file) as archive:
        file.seek(-22, io.SEEK_END)
        end = file.read()  # the archive's last record, which counts its members; zipfile does not check it
        if end[:4] == b"PK\5\6" and int.from_bytes(end[10:12], "little") not in (len(archive.infolist()), 0xFFFF):
            raise ValueError("some of its arrays are missing")
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            with archive.open(info) as member:  # checks that the name is not damaged, also of other arrays
                if not wanted(name):
                    continue
                if name in arrays:
                    raise ValueError(f"it has two arrays {name!r}")
                if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise ValueError(f"{name} is compressed by method {info.compress_type}, which NumPy does not write")
                arrays[name] = _array(member, name, budget)
    return arrays


def _array(member: Any, name: str, budget: Budget) -> np.ndarray:
    """One array: its header, then as many bytes as it states; the archive checks the CRC at the end."""
    magic = member.read(8)
    if magic[:6] != np.lib.format.MAGIC_PREFIX or magic[6] not in (1, 2):
        raise ValueError(f"{name} is not an array of a known version")
    size = member.read(2 if magic[6] == 1 else 4)
    length = int.from_bytes(size, "little")
    if length > MAX_NPY_HEADER:
        raise ValueError(f"{name} has a header of {length} bytes, at most {MAX_NPY_HEADER} are read")
    header = io.BytesIO(size + member.read(length))
    parse = np.lib.format.read_array_header_1_0 if magic[6] == 1 else np.lib.format.read_array_header_2_0
    shape, by_columns, dtype = parse(header)
    if dtype.hasobject or dtype.itemsize == 0 or min(shape, default=0) < 0:
        raise ValueError(f"{name} does not hold numbers: {dtype}{list(shape)}")
    count = math.prod(shape) * dtype.itemsize
    budget.take(count)
    content = bytearray()
    while part := member.read(min(CHUNK, count - len(content) + 1)):  # one byte more than allowed
        content += part
        if len(content) > count:
            break
    if len(content) != count:
        raise ValueError(f"{name} is {dtype}{list(shape)}, {count} bytes, but has {len(content)} or more")
    flat = np.frombuffer(content, dtype)
    return flat.reshape(shape[::-1]).T if by_columns else flat.reshape(shape)
