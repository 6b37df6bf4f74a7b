"""Logged transitions: NPZ, CSV and Parquet files in and out (docs/data.md says what they hold).

trace = read_trace("log.csv")       rows in the order they happened
pieces(trace, longest=200)          episode by episode
write_trace("log.npz", trace)
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from guss.agent.tables import read_columns, write_columns
from guss.checkpoint import write_atomically
from guss.errors import GussError, UnknownNameError, warn
from guss.limits import MAX_DATA, Budget

FORMATS = (".npz", ".csv", ".parquet")
VECTORS = ("obs", "action", "next_obs", "cost")
FLAGS = ("terminated", "truncated", "skip")
SCALARS = ("reward", *FLAGS, "episode", "seed")
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
    cost_names: tuple[str, ...] | None = None  # C constraints, where the file names them; None: by position
    obs_names: tuple[str, ...] | None = None  # D columns, where `columns` names them
    action_names: tuple[str, ...] | None = None
    cost_labels: tuple[str, ...] | None = None  # C columns, where `columns` names them; not used to match constraints
    knows_end: bool = True  # False: nothing says where the system itself ended an episode


ARRAYS = 8
"""So many of a trace's fields have a row for each transition."""


def join(traces: Sequence[Trace], origins: Sequence[Any] = ()) -> Trace:
    """One after another; reward and cost only if all have them. `origins`: where each is from, for errors."""
    origins, first, names = origins or [f"trace {i}" for i in range(len(traces))], traces[0], None
    for field in Trace._fields[:ARRAYS]:
        shapes = [None if (part := getattr(trace, field)) is None else part.shape[1:] for trace in traces]
        differ = [i for i, shape in enumerate(shapes) if shape != shapes[0]]
        if differ and None not in shapes:
            raise GussError(
                f"these cannot be joined: {field} has shape {[len(first.obs), *(shapes[0] or ())]} in {origins[0]} and "
                f"{[len(traces[differ[0]].obs), *(shapes[differ[0]] or ())]} in {origins[differ[0]]}"
            )
    for field in ("reward", "cost"):
        lacking = [getattr(trace, field) is None for trace in traces]
        if any(lacking) and not all(lacking):
            without, with_it = origins[lacking.index(True)], origins[lacking.index(False)]
            raise GussError(f"these cannot be joined: {with_it} has a {field}, {without} has none")
    if all(trace.cost is not None for trace in traces):
        names = first.cost_names
        traces = [with_costs(trace, names, f"{origins[0]}", f"{origins[i]}") for i, trace in enumerate(traces)]
    columns = zip(*(trace[:ARRAYS] for trace in traces), strict=True)
    fields: Any = [None if any(x is None for x in parts) else np.concatenate(parts) for parts in columns]
    same: Any = lambda name: getattr(first, name) if len({getattr(t, name) for t in traces}) == 1 else None  # noqa: E731
    about: Any = {name: same(name) for name in ("obs_names", "action_names", "cost_labels")} | {"cost_names": names}
    return Trace(*fields)._replace(**about, knows_end=all(trace.knows_end for trace in traces))


def with_costs(trace: Trace, names: Sequence[str] | None, whose: str, mine: str = "the trace") -> Trace:
    """The trace with its costs in the order of these names, which are those of `whose`; no names: it has none."""
    own = trace.cost_names
    if trace.cost is None or (own is None and names is None):
        return trace
    if own is None or names is None or sorted(own) != sorted(names):
        mine_named, theirs = (", ".join(x) if x else "(none)" for x in (own, names))
        raise GussError(
            f"{mine} names the costs {mine_named}, {whose} has {theirs}; they must be the same, in any order. Rename "
            f"the columns to cost_<constraint>, or list them in the order of the constraints: --columns cost=NAME,NAME"
        )
    order = [own.index(name) for name in names]
    return trace._replace(cost=np.ascontiguousarray(trace.cost[:, order]), cost_names=tuple(names))


def _rows(trace: Trace, which: Any) -> Trace:
    held: Any = trace[:ARRAYS]
    fields: Any = [None if x is None else x[which] for x in held]
    return Trace(*fields, *trace[ARRAYS:])


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
    budget, ignored = MAX_DATA.budget(_several(files)), dict[str, Path]()
    traces = [_read(path, columns or {}, budget, ignored) for path in files]
    _mention(ignored)
    return join(traces, files)


def _several(files: Sequence[Path]) -> str:
    return f"the trace {files[0]}" + (f" and {len(files) - 1} more, read together," if len(files) > 1 else "")


def read_trace(path: str | Path, columns: Columns | None = None) -> Trace:
    """A logged trace. `columns` names a file's columns where they are not called obs_0, action_0 and so on."""
    ignored: dict[str, Path] = {}
    trace = _read(Path(path), columns or {}, MAX_DATA.budget(_several([Path(path)])), ignored)
    _mention(ignored)
    return trace


def _mention(ignored: dict[str, Path]) -> None:
    """Columns of text, such as time stamps, may be there for people: they are named once, by their first file."""
    if ignored:
        path, names = next(iter(ignored.values())), ", ".join(ignored)
        warn(f"{path}: columns that hold no numbers are not used: {names}")


def _read(path: Path, columns: Columns, budget: Budget, ignored: dict[str, Path]) -> Trace:
    """One file; columns of text that it does not need are added to `ignored`."""
    if path.suffix not in FORMATS:
        raise GussError(f"a trace is a file that ends in {', '.join(FORMATS)}, got {path}")
    parts: dict[str, list[str]] = {}

    def pick(names: list[str]) -> list[str]:
        parts.update(_parts(path, names, columns))
        return list(itertools.chain(*parts.values()))

    found, text = read_columns(path, pick, budget)
    for name in text:
        ignored.setdefault(name, path)
    held = {part: _part(path, part, [found[name] for name in names]) for part, names in parts.items()}
    costs = [] if "cost" in columns else parts.get("cost", [])
    named = costs and not re.fullmatch("cost(_[0-9]+)?", costs[0])
    trace = _trace(path, held, tuple(name.removeprefix("cost_") for name in costs) if named else None)
    labels: Any = {f"{part}_names": tuple(columns[part]) for part in ("obs", "action") if part in columns}
    labels |= {"cost_labels": tuple(columns["cost"])} if "cost" in columns else {}
    return trace._replace(**labels, knows_end="terminated" in parts)


def _parts(path: Path, names: list[str], columns: Columns) -> dict[str, list[str]]:
    """Which columns make up which part of a trace: those named by `columns`, else obs_0, obs_1, … or a single `obs`."""
    for part in columns:
        if part not in (*VECTORS, *SCALARS):
            raise UnknownNameError("part of a trace", part, (*VECTORS, *SCALARS))
    parts = {part: list(columns.get(part, ())) or _find(path, part, names) for part in (*VECTORS, *SCALARS)}
    for part, mine in parts.items():
        for name in mine:
            if name not in names:
                raise UnknownNameError(f"column of {path}", name, names)
        if len(set(mine)) != len(mine) or (part in SCALARS and len(mine) > 1):
            raise GussError(
                f"{part} is {'one column' if part in SCALARS else 'columns that differ'}, got {', '.join(mine)}"
            )
    if missing := [part for part in ("obs", "action") if not parts[part]]:
        held = ", ".join(sorted(names)[:20]) + ", …" * (len(names) > 20)
        if path.suffix == ".npz":
            lacks = " and no ".join(missing)
            raise GussError(f"cannot read the trace {path}: it has no {lacks}; it holds {held or 'nothing'}")
        raise GussError(
            f"{path} has the columns {held or '(none)'}; a trace needs obs_0, obs_1, … and action_0, …; "
            f"if they have other names, say which: --columns obs=NAME,NAME action=NAME"
        )
    return {part: mine for part, mine in parts.items() if mine}


def _find(path: Path, part: str, names: list[str]) -> list[str]:
    """A single column `part`, or part_0, part_1 and so on; costs may have names of constraints instead of numbers."""
    single = [part] * (part in names)
    numbered = [name for name in names if re.fullmatch(rf"{part}_[0-9]+", name)]
    named = [name for name in names if part == "cost" and name.startswith("cost_") and name not in numbered]
    if sum(map(bool, (single, numbered, named))) > 1:
        raise GussError(
            f"{path} has the columns {', '.join([*single, *numbered, *named])}, of more than one kind; keep {part}, or "
            f"{part}_0, {part}_1, …{', or cost_<constraint>' * (part == 'cost')}, or say which they are: "
            f"--columns {part}=NAME,NAME"
        )
    numbered.sort(key=lambda name: int(name.rpartition("_")[2]))
    if [int(name.rpartition("_")[2]) for name in numbered] != list(range(len(numbered))):
        raise GussError(f"columns {part}_0, {part}_1, … must count from 0 without a gap, got {', '.join(numbered)}")
    return single or numbered or named


def _part(path: Path, part: str, columns: list[np.ndarray]) -> np.ndarray:
    """One part of a trace from its columns; an NPZ file may hold it as one array."""
    if len(columns) == 1 and (path.suffix == ".npz" or part in SCALARS):
        return columns[0]
    if len({column.shape for column in columns}) > 1 or columns[0].ndim != 1:
        shapes = ", ".join(str(column.shape) for column in columns)
        raise GussError(f"the trace {path}: the columns of {part} must be of one length, got the shapes {shapes}")
    return np.stack(columns, axis=1)


def _trace(path: Path, held: dict[str, np.ndarray], cost_names: tuple[str, ...] | None) -> Trace:
    """The parts as they were found in a file, as a Trace."""
    count = len(np.atleast_1d(held["obs"]))
    if count == 0:
        raise GussError(f"the trace {path} is empty")
    for name, value in held.items():
        if value.dtype.kind not in "fiub":
            raise GussError(f"the trace {path}: {name} must hold numbers, got {value.dtype}")
        empty = value.size == 0 and name != "cost"  # a system without constraints has no costs
        if value.ndim == 0 or len(value) != count or empty:
            raise GussError(f"the trace {path}: {name} has shape {value.shape}, but obs has {count} rows")
        if name in SCALARS and value.size != count:
            raise GussError(f"the trace {path}: {name} must have one number a row, got shape {value.shape}")
        if name == "cost" and cost_names is not None and value.size != count * len(cost_names):
            raise GussError(f"the trace {path}: cost_{cost_names[0]} must have one number a row, got {value.shape}")
        if name in SCALARS and name != "reward":
            held[name] = _marks(path, name, value.reshape(count))
    column = lambda x: x[:, None] if x.ndim == 1 else x  # noqa: E731
    obs, action = column(held["obs"]), held["action"]
    end = np.zeros(count, bool)
    end[-1] = True
    for name in ("terminated", "truncated"):
        end |= held.get(name, end)
    for name in ("episode", "seed"):
        if name in held:
            end[:-1] |= held[name][1:] != held[name][:-1]
    use = ~held["skip"] if "skip" in held else np.ones(count, bool)
    reward, cost = held.get("reward"), held.get("cost")
    stop = held.get("terminated", np.zeros(count, bool))
    if "next_obs" in held:
        told = (reward, None if cost is None else column(cost))
        return Trace(obs, action, column(held["next_obs"]), *told, use, end, stop, cost_names)
    # What follows is the next row's observation; an episode's last row has none, so the one before is its last.
    rows = np.flatnonzero(~end)
    if len(rows) == 0:
        raise GussError(
            f"the trace {path} has no next_obs, and no episode of two rows or more from which it would follow"
        )
    pick = lambda x: None if x is None else x[rows]  # noqa: E731
    cost = None if cost is None else column(cost)
    if cost is not None and (lost := int((cost[end] > 0).any(axis=1).sum())):
        warn(
            f"{path}: {lost} unsafe rows are left out. They are the last of their episodes, and without next_obs it is "
            f"not known where their step led: add columns next_obs_0, …"
        )
    next_rows = (use[rows], end[rows + 1], stop[rows + 1])
    return Trace(obs[rows], action[rows], obs[rows + 1], pick(reward), pick(cost), *next_rows, cost_names)


def _marks(path: Path, name: str, values: np.ndarray) -> np.ndarray:
    """What tells episodes apart: numbers that may not be missing; flags are 0 or 1."""
    wrong = ~np.isfinite(values) if name not in FLAGS else ~np.isin(values, (0, 1))
    if wrong.any():
        row, wanted = int(np.argmax(wrong)), "0 or 1 (false or true)" if name in FLAGS else "finite"
        raise GussError(f"the trace {path}: {name} must be {wanted} in every row, got {values[row]} in row {row}")
    return values.astype(bool) if name in FLAGS else values


# ------------------------------------------------------------------------------------------------------------- writing


def write_trace(path: str | Path, trace: Trace, **more: np.ndarray) -> None:
    """The trace as NPZ, CSV or Parquet, by the name's ending; `more` columns, such as seed and episode, go along."""
    path = Path(path)
    if path.suffix not in FORMATS:
        raise GussError(f"a trace is written to a file that ends in {', '.join(FORMATS)}, got {path}")
    fields: Any = zip(Trace._fields[:ARRAYS], trace[:ARRAYS], strict=True)
    arrays: dict[str, np.ndarray] = {name: value for name, value in fields if value is not None}
    arrays |= {name: np.asarray(arrays[name], bool) for name in ("use", "end", "terminated")}  # `~1` is −2
    arrays["skip"], arrays["truncated"] = ~arrays.pop("use"), arrays.pop("end") & ~arrays["terminated"]
    arrays = dict(_named(arrays, trace.cost_names)) | more
    write_atomically(path, write_columns(path.suffix, arrays if path.suffix == ".npz" else dict(_flat(arrays))))


def _named(arrays: dict[str, np.ndarray], names: Sequence[str] | None) -> Iterable[tuple[str, np.ndarray]]:
    """Costs by the names of their constraints, where all have one that reads back as a name."""
    for part, value in arrays.items():
        if part == "cost" and names is not None and not any(name.isdecimal() for name in names):
            yield from ((f"cost_{name}", value[:, i]) for i, name in enumerate(names))
        else:
            yield part, value


def _flat(arrays: dict[str, np.ndarray]) -> Iterable[tuple[str, np.ndarray]]:
    """Columns of a table: a vector of several numbers is spread over name_0, name_1 and so on."""
    for name, value in arrays.items():
        if value.ndim == 1:
            yield name, value
        else:
            flat = value.reshape(len(value), -1)
            yield from ((f"{name}_{i}", flat[:, i]) for i in range(flat.shape[1]))
