"""Logged transitions: NPZ, CSV and Parquet files in and out (docs/data.md says what they hold).

trace = read_trace("log.csv")       rows in the order they happened
pieces(trace, longest=200)          episode by episode
write_trace("log.npz", trace)
"""

from __future__ import annotations

import csv
import io
import itertools
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from guss.checkpoint import write_atomically
from guss.errors import GussError, UnknownNameError

FORMATS = (".npz", ".csv", ".parquet")
VECTORS = ("obs", "action", "next_obs", "cost")
SCALARS = ("reward", "terminated", "truncated", "skip", "episode", "seed")
Columns = Mapping[str, Sequence[str]]


class Trace(NamedTuple):
    """N logged transitions in the order they happened; one or several episodes."""

    obs: np.ndarray  # [N, D]
    action: np.ndarray  # [N, …]
    next_obs: np.ndarray  # [N, D]
    reward: np.ndarray | None  # [N]
    cost: np.ndarray | None  # [N, C]
    use: np.ndarray  # [N], whether to learn from it
    end: np.ndarray  # [N], whether it is the last of its episode
    terminated: np.ndarray  # [N], whether the system itself ended the episode there


def join(traces: Iterable[Trace]) -> Trace:
    """One after another; reward and cost only if all have them."""
    fields: Any = [
        None if any(x is None for x in parts) else np.concatenate(parts) for parts in zip(*traces, strict=True)
    ]
    return Trace(*fields)


def _rows(trace: Trace, which: Any) -> Trace:
    fields: Any = [None if x is None else x[which] for x in trace]
    return Trace(*fields)


def pieces(trace: Trace, longest: int) -> list[Trace]:
    """Episode by episode; what is longer than `longest` comes in several pieces."""
    bounds = [0, *(np.flatnonzero(trace.end) + 1).tolist()]
    cuts = [
        (i, min(i + longest, stop)) for start, stop in itertools.pairwise(bounds) for i in range(start, stop, longest)
    ]
    return [_rows(trace, slice(*cut)) for cut in cuts]


# ------------------------------------------------------------------------------------------------------------- reading


def find_traces(paths: Sequence[str | Path]) -> list[Path]:
    """The files meant: each itself, all traces of a folder, those of a run."""
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = path / "traces" if (path / "traces").is_dir() else path
            files = sorted((p for p in inside.iterdir() if p.suffix in FORMATS), key=_in_order)
            if not files:
                raise GussError(f"there are no traces in {inside}; looked for {', '.join(FORMATS)}")
            found += files
        else:
            found.append(path)
    return found


def _in_order(path: Path) -> list[Any]:
    """Numbers in names count as numbers: ep2 before ep10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name)]


def read_traces(paths: Sequence[str | Path], columns: Columns | None = None) -> Trace:
    """All of them, one after another; a file's end is an episode's end."""
    files = find_traces(paths)
    if not files:
        raise GussError("no file with logged data was named")
    return join([read_trace(path, columns) for path in files])


def read_trace(path: str | Path, columns: Columns | None = None) -> Trace:
    """A logged trace. `columns` names a table's columns where they are not called obs_0, action_0 and so on."""
    path = Path(path)
    if path.suffix not in FORMATS:
        raise GussError(f"a trace is a file that ends in {', '.join(FORMATS)}, got {path}")
    held = _read_npz(path) if path.suffix == ".npz" else _vectors(path, _read_table(path), columns or {})
    return _trace(path, held)


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as file:
            arrays = np.load(file, allow_pickle=False)
            if isinstance(arrays, np.ndarray):
                raise ValueError("it holds a single array without a name; write it with numpy.savez(obs=…, action=…)")
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise GussError(f"cannot read the trace {path}: {error}") from error


def _read_table(path: Path) -> dict[str, np.ndarray]:
    """The columns of a table, by name."""
    if path.suffix == ".csv":
        return _read_csv(path)
    parquet = _pyarrow_parquet()
    try:
        table = parquet.read_table(path)
        return {name: np.asarray(table.column(name).to_numpy()) for name in table.column_names}
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise GussError(f"cannot read the trace {path}: {error}") from error


def _pyarrow_parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise GussError("Parquet files need the extra `parquet`: pip install 'guss[parquet]'") from error
    return pyarrow.parquet


def _read_csv(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file)
            header = [name.strip() for name in next(lines, [])]
            values: list[list[float]] = [[] for _ in header]
            for line in lines:
                if line and len(line) != len(header):
                    raise GussError(
                        f"{path}, line {lines.line_num}: {len(line)} values, but the first line names {len(header)}"
                    )
                for name, column, word in zip(header, values, line, strict=False):
                    column.append(_number(word, f"{path}, line {lines.line_num}, column {name!r}"))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise GussError(f"cannot read the trace {path}: {error}") from error
    if len(set(header)) != len(header):
        raise GussError(f"{path}: every column needs a name of its own, got {', '.join(header)}")
    return {name: np.asarray(column) for name, column in zip(header, values, strict=True)}


def _number(word: str, where: str) -> float:
    truth = {"true": 1.0, "false": 0.0}.get(word.strip().lower())
    try:
        return float(word) if truth is None else truth
    except ValueError as error:
        raise GussError(f"{where}: expected a number, got {word!r}") from error


def _vectors(path: Path, table: dict[str, np.ndarray], columns: Columns) -> dict[str, np.ndarray]:
    """The arrays that a table's columns make up: those named by `columns`, else obs_0, obs_1, … or a single `obs`."""
    for name in columns:
        if name not in (*VECTORS, *SCALARS):
            raise UnknownNameError("part of a trace", name, (*VECTORS, *SCALARS))
    held = {}
    for name in (*VECTORS, *SCALARS):
        mine = list(columns.get(name, ())) or _numbered(name, table) or [name] * (name in table)
        for column in mine:
            if column not in table:
                raise UnknownNameError(f"column of {path}", column, table)
        if name in SCALARS and len(mine) > 1:
            raise GussError(f"{name} is one column, got {', '.join(mine)}")
        if mine:
            parts = [table[column] for column in mine]
            held[name] = parts[0] if name in SCALARS else np.stack(parts, axis=1)
    if "obs" not in held or "action" not in held:
        raise GussError(
            f"{path} has the columns {', '.join(table) or '(none)'}; a trace needs obs_0, obs_1, … and action_0, …; "
            f"if they have other names, say which: --columns obs=NAME,NAME action=NAME"
        )
    return held


def _numbered(name: str, table: dict[str, np.ndarray]) -> list[str]:
    """name_0, name_1 and so on, as far as there are any; costs may have names instead of numbers."""
    found = [column for column in table if re.fullmatch(rf"{name}_\d+", column)]
    if name == "cost" and not found:
        return [column for column in table if column.startswith("cost_")]
    if sorted(int(column.rpartition("_")[2]) for column in found) != list(range(len(found))):
        raise GussError(f"columns {name}_0, {name}_1, … must count from 0 without a gap, got {', '.join(found)}")
    return [f"{name}_{i}" for i in range(len(found))]


def _trace(path: Path, held: dict[str, np.ndarray]) -> Trace:
    """Arrays as they were found in a file, as a Trace."""
    missing = [name for name in ("obs", "action") if name not in held]
    if missing:
        raise GussError(
            f"the trace {path} has no {', '.join(missing)}; it holds {', '.join(sorted(held)) or 'nothing'}"
        )
    count = len(np.atleast_1d(held["obs"]))
    for name, value in held.items():
        if name in (*VECTORS, *SCALARS) and (value.ndim == 0 or len(value) != count):
            raise GussError(f"the trace {path}: {name} has shape {value.shape}, but obs has {count} rows")
        if name in (*VECTORS, *SCALARS) and value.dtype.kind not in "fiub":
            raise GussError(f"the trace {path}: {name} must hold numbers, got {value.dtype}")
    if count == 0:
        raise GussError(f"the trace {path} is empty")
    column = lambda x: x[:, None] if x.ndim == 1 else x  # noqa: E731
    obs, action = column(held["obs"]), held["action"]
    end = np.zeros(count, bool)
    end[-1] = True
    for name in ("terminated", "truncated"):
        end |= held.get(name, end).astype(bool)
    for name in ("episode", "seed"):
        if name in held:
            end[:-1] |= held[name][1:] != held[name][:-1]
    use = ~held["skip"].astype(bool) if "skip" in held else np.ones(count, bool)
    reward, cost = held.get("reward"), held.get("cost")
    stop = held["terminated"].astype(bool) if "terminated" in held else np.zeros(count, bool)
    if "next_obs" in held:
        told = (reward, None if cost is None else column(cost))
        return Trace(obs, action, column(held["next_obs"]), *told, use, end, stop)
    # What follows is the next row's observation; an episode's last row has none, so the one before is its last.
    rows = np.flatnonzero(~end)
    if len(rows) == 0:
        raise GussError(
            f"the trace {path} has no next_obs, and no episode of two rows or more from which it would follow"
        )
    pick = lambda x: None if x is None else x[rows]  # noqa: E731
    cost = None if cost is None else column(cost)
    next_rows = (use[rows], end[rows + 1], stop[rows + 1])
    return Trace(obs[rows], action[rows], obs[rows + 1], pick(reward), pick(cost), *next_rows)


# ------------------------------------------------------------------------------------------------------------- writing


def write_trace(path: str | Path, trace: Trace, **more: np.ndarray) -> None:
    """The trace as NPZ, CSV or Parquet, by the name's ending; `more` columns, such as seed and episode, go along."""
    path = Path(path)
    if path.suffix not in FORMATS:
        raise GussError(f"a trace is written to a file that ends in {', '.join(FORMATS)}, got {path}")
    arrays = {name: value for name, value in trace._asdict().items() if value is not None}
    arrays |= {name: np.asarray(arrays[name], bool) for name in ("use", "end", "terminated")}  # `~1` is −2
    arrays["skip"], arrays["truncated"] = ~arrays.pop("use"), arrays.pop("end") & ~arrays["terminated"]
    arrays |= more
    buffer = io.BytesIO()
    if path.suffix == ".npz":
        np.savez_compressed(buffer, **arrays)
    else:
        table = dict(_flat(arrays))
        if path.suffix == ".csv":
            text = io.StringIO(newline="")
            rows = csv.writer(text, lineterminator="\n")
            rows.writerow(table)
            rows.writerows(zip(*(_words(column) for column in table.values()), strict=True))
            buffer.write(text.getvalue().encode())
        else:
            parquet = _pyarrow_parquet()
            import pyarrow

            parquet.write_table(pyarrow.table(table), buffer)
    write_atomically(path, buffer.getvalue())


def _flat(arrays: dict[str, np.ndarray]) -> Iterable[tuple[str, np.ndarray]]:
    """Columns of a table: a vector of several numbers is spread over name_0, name_1 and so on."""
    for name, value in arrays.items():
        if value.ndim == 1:
            yield name, value
        else:
            flat = value.reshape(len(value), -1)
            yield from ((f"{name}_{i}", flat[:, i]) for i in range(flat.shape[1]))


def _words(column: np.ndarray) -> list[str]:
    """As text that reads back as the very same number."""
    if column.dtype.kind == "b":
        return [str(int(x)) for x in column.tolist()]
    return [
        np.format_float_positional(x, unique=True, trim="0") if column.dtype.kind == "f" else str(x) for x in column
    ]
