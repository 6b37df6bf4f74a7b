"""Reads and writes named columns of numbers in NPZ, CSV and Parquet files.

A Parquet file is sealed: a SHA-256 of all the rest precedes its footer, where readers do not look. Page checksums,
which other programs verify too, do not cover names, types and row counts.
"""

from __future__ import annotations

import array
import csv
import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from guss.errors import GussError
from guss.limits import CHUNK, MAX_COLUMNS, MAX_LINE, Budget, npz_names, read_npz, reading

Pick = Callable[[list[str]], Iterable[str]]
"""Maps the names in a file to the wanted names."""
SEAL = b"guss-sha256:"
ROWS = 2**16
"""Rows of a Parquet file that are decoded at a time."""


Table = tuple[dict[str, np.ndarray], list[str]]
"""The wanted columns, and names of other columns that hold text."""


def read_columns(path: Path, pick: Pick, budget: Budget) -> Table:
    """The columns that `pick` selects, unchanged, and names of other columns that hold text."""
    with reading(f"cannot read the trace {path}"):
        return READERS[path.suffix](path, pick, budget)


def write_columns(kind: str, columns: dict[str, np.ndarray]) -> bytes:
    """The bytes of a file of that kind (.npz, .csv, .parquet): arrays unchanged, or columns [N] of a table."""
    return WRITERS[kind](columns)


def _checked(path: Path, names: Sequence[str]) -> list[str]:
    if not any(names):
        raise GussError(f"the trace {path} is empty: it has no columns")
    MAX_COLUMNS.check(f"the trace {path}", len(names))
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise GussError(f"{path}: column names must be unique, got {', '.join(twice)} more than once")
    return list(names)


# ----------------------------------------------------------------------------------------------------------------- NPZ


def _read_npz(path: Path, pick: Pick, budget: Budget) -> Table:
    with path.open("rb") as file:
        if file.read(6) == np.lib.format.MAGIC_PREFIX:
            raise ValueError("it holds a single array without a name; write it with numpy.savez(obs=…, action=…)")
        wanted = set(pick(_checked(path, npz_names(file))))
        return read_npz(file, budget, wanted.__contains__), []


def _npz_bytes(columns: dict[str, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **columns)  # type: ignore[arg-type]
    return buffer.getvalue()


# ----------------------------------------------------------------------------------------------------------------- CSV


def _lines(path: Path, file: io.TextIOBase, left: list[int]) -> Iterator[str]:
    """The lines of a table. A quoted row may span several lines; its rest has at most `left[0]` characters."""
    while line := file.readline(left[0] + 1):
        left[0] -= len(line)
        if left[0] < 0:
            raise GussError(f"{path}: a row is longer than {MAX_LINE} characters; is it a table of numbers?")
        yield line


def _read_csv(path: Path, pick: Pick, budget: Budget) -> Table:
    with path.open(newline="", encoding="utf-8-sig") as file:
        left = [MAX_LINE]
        rows = csv.reader(_lines(path, file, left))
        header = [name.strip() for name in next(rows, [])]
        names = _checked(path, header)
        columns = {name: array.array("d") for name in pick(names)}
        places = [(names.index(name), name, column) for name, column in columns.items()]
        others, text = [(i, name) for i, name in enumerate(names) if name not in columns], list[str]()
        left[0] = MAX_LINE
        for row in rows:
            left[0] = MAX_LINE
            if not row:
                continue
            if len(row) != len(header):
                raise GussError(
                    f"{path}, line {rows.line_num}: {len(row)} values, but the header has {len(header)} columns"
                )
            budget.take(8 * len(places))
            if others:  # the first row shows what they hold
                text, others = [name for i, name in others if row[i] and _number(row[i]) is None], []
            for i, name, column in places:
                number = _number(row[i])
                if number is None:
                    where = f"{path}, line {rows.line_num}, column {name!r}"
                    raise GussError(f"{where}: expected a number, got {row[i][:50]!r}")
                column.append(number)
    return {name: np.asarray(column) for name, column in columns.items()}, text


def _number(word: str) -> float | None:
    """A number or a truth value; None for any other text."""
    try:
        return float(word)
    except ValueError:
        return {"true": 1.0, "false": 0.0}.get(word.strip().lower())


def _csv_bytes(columns: dict[str, np.ndarray]) -> bytes:
    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(columns)
    rows.writerows(zip(*(_words(column) for column in columns.values()), strict=True))
    return text.getvalue().encode()


def _words(column: np.ndarray) -> list[str]:
    """Numbers as text that reads back as exactly the same numbers."""
    if column.dtype.kind == "b":
        return [str(int(x)) for x in column.tolist()]
    return [
        np.format_float_positional(x, unique=True, trim="0") if column.dtype.kind == "f" else str(x) for x in column
    ]


# ------------------------------------------------------------------------------------------------------------- Parquet


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise GussError("Parquet files need the extra `parquet`: pip install 'guss[parquet]'") from error
    return pyarrow


def _read_parquet(path: Path, pick: Pick, budget: Budget) -> Table:
    """Read column by column, so that at most one page of one column is unpacked beyond the counted bytes."""
    pyarrow = _pyarrow()
    _check_seal(path)
    with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
        kinds, count, types = file.schema_arrow, file.metadata.num_rows, pyarrow.types
        wanted = dict.fromkeys(pick(_checked(path, kinds.names)))
        number = lambda kind: types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind)  # noqa: E731
        for name in wanted:
            if not number(kinds.field(name).type):
                found = f"got {kinds.field(name).type} from row 0 on"
                raise GussError(f"the trace {path}: column {name!r} must hold numbers, {found}")
            budget.take(8 * count)
        _check_pages(file.metadata, budget)
        text = [name for name in kinds.names if name not in wanted and not number(kinds.field(name).type)]
        return {name: _decoded(pyarrow, file, name, count) for name in wanted}, text


def _check_pages(metadata: Any, budget: Budget) -> None:
    """Check that the pages of a row group are not larger than the limit: they may hold more than its rows.

    The sizes of single columns are not read: on damaged files, pyarrow ends the process instead of raising.
    """
    for i in range(metadata.num_row_groups):
        if metadata.row_group(i).total_byte_size > budget.limit:
            budget.take(budget.limit + 1)


def _decoded(pyarrow: Any, file: Any, name: str, count: int) -> np.ndarray:
    """One column; missing values become NaN."""
    parts, found = [], 0
    for batch in file.iter_batches(ROWS, columns=[name], use_threads=False):
        found += len(batch)
        if found > count:
            break
        column = batch.column(name)
        column = column.cast(pyarrow.float64()) if column.null_count else column
        parts.append(column.to_numpy(zero_copy_only=False))
    if found != count:
        raise ValueError(f"it states {count} rows, column {name!r} has {found} or more")
    return np.concatenate(parts) if parts else np.zeros(0)


def _parquet_bytes(columns: dict[str, np.ndarray]) -> bytes:
    pyarrow, buffer = _pyarrow(), io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer, write_page_checksum=True)
    content = buffer.getvalue()
    footer = _footer(content[-8:], len(content))
    return content[:footer] + SEAL + hashlib.sha256(content).hexdigest().encode() + content[footer:]


def _footer(last: bytes, size: int) -> int:
    """Offset of the footer of a Parquet file; its length is in the `last` 8 bytes."""
    return size - 8 - int.from_bytes(last[:4], "little")


def _check_seal(path: Path) -> None:
    """Raise GussError if a sealed file was changed; files of other programs have no seal."""
    size, length = path.stat().st_size, len(SEAL) + 64
    with path.open("rb") as file:
        file.seek(max(size - 8, 0))
        seal_at = _footer(file.read(8), size) - length
        if seal_at < 0:
            return
        file.seek(seal_at)
        seal = file.read(length)
        if not seal.startswith(SEAL):
            return
        digest = hashlib.sha256()
        for start, stop in ((0, seal_at), (seal_at + length, size)):
            file.seek(start)
            for at in range(start, stop, CHUNK):
                digest.update(file.read(min(CHUNK, stop - at)))
    if digest.hexdigest().encode() != seal[len(SEAL) :]:
        raise GussError(f"the trace {path} is damaged: its checksum does not match")


READERS = {".npz": _read_npz, ".csv": _read_csv, ".parquet": _read_parquet}
WRITERS = {".npz": _npz_bytes, ".csv": _csv_bytes, ".parquet": _parquet_bytes}
