"""Logged transitions: reads and writes NPZ, CSV and Parquet files (format: docs/data.md).

trace = read_trace("log.csv")       rows in time order
split_episodes(trace, longest=200)  episode by episode
write_trace("log.npz", trace)
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from guss.checkpoint import write_atomically
from guss.collect.tables import read_columns, write_columns
from guss.collect.trajectories import logged
from guss.errors import GussError, UnknownNameError, warn
from guss.limits import MAX_DATA, Budget
from guss.types import Trajectory

FORMATS = (".npz", ".csv", ".parquet")
VECTORS = ("obs", "action", "next_obs", "cost")
FLAGS = ("terminated", "truncated", "skip")
SCALARS = ("reward", *FLAGS, "episode", "seed")
Columns = Mapping[str, Sequence[str]]


class Dataset(NamedTuple):
    """N logged transitions in time order, of one or several episodes, and metadata of their file.

    `trajectory`: a Trajectory with one leading axis [N]. `cost_names`: the constraints that its costs belong to; None:
    by position. `obs_names`, `action_names` and `cost_labels`: names of columns. `knows_end`: whether the file
    records when the system itself ended an episode. `guss.read_traces` creates one from files.

    Example:
        >>> data = guss.read_traces(["tests/data/heating.csv"])
        >>> data.num_rows, data.cost_names
        (4, ('too_hot',))
    """

    trajectory: Trajectory  # [N, …]
    cost_names: tuple[str, ...] | None = None  # C constraints, if the file names them; None: by position
    obs_names: tuple[str, ...] | None = None  # D columns, if `columns` names them
    action_names: tuple[str, ...] | None = None
    cost_labels: tuple[str, ...] | None = None  # C columns, if `columns` names them; not used to match constraints
    knows_end: bool = True  # False: the file does not record when the system itself ended an episode

    @property
    def num_rows(self) -> int:
        """The number of transitions, N."""
        return len(self.trajectory.obs)


def join(datasets: Sequence[Dataset], origins: Sequence[Any] = ()) -> Dataset:
    """Concatenate datasets; all of them have rewards and costs, or none. `origins`: their sources, for errors."""
    origins, first, names = origins or [f"trace {i}" for i in range(len(datasets))], datasets[0], None
    for field in ("obs", "action", "next_obs", "reward", "cost"):
        parts = [getattr(each.trajectory, field) for each in datasets]
        for origin, part in zip(origins, parts, strict=True):
            if np.shape(part)[1:] != np.shape(parts[0])[1:] or (part is None) != (parts[0] is None):
                here, there = ("is missing" if x is None else f"has shape {list(x.shape)}" for x in (parts[0], part))
                raise GussError(f"datasets cannot be joined: {field} {here} in {origins[0]} and {there} in {origin}")
    if first.trajectory.cost is not None:
        names = first.cost_names
        datasets = [with_costs(each, names, f"{origins[0]}", f"{origins[i]}") for i, each in enumerate(datasets)]
    trajectory = jax.tree.map(lambda *parts: np.concatenate(parts), *(each.trajectory for each in datasets))
    about: Any = {"cost_names": names, "knows_end": all(each.knows_end for each in datasets)}
    for label in ("obs_names", "action_names", "cost_labels"):
        if len({getattr(each, label) for each in datasets}) == 1:
            about[label] = getattr(first, label)
    return Dataset(trajectory, **about)


def with_costs(data: Dataset, names: Sequence[str] | None, whose: str, mine: str = "the trace") -> Dataset:
    """The data with costs in the order of these names, which belong to `whose`; None: it has no names."""
    own, cost = data.cost_names, data.trajectory.cost
    if cost is None or (own is None and names is None):
        return data
    if own is None or names is None or sorted(own) != sorted(names):
        mine_named, theirs = (", ".join(x) if x else "(none)" for x in (own, names))
        raise GussError(
            f"{mine} names the costs {mine_named}, {whose} has {theirs}; they must be the same, in any order. Rename "
            f"the columns to cost_<constraint>, or list them in the order of the constraints: --columns cost=NAME,NAME"
        )
    cost = np.ascontiguousarray(cost[:, [own.index(name) for name in names]])
    return data._replace(trajectory=data.trajectory._replace(cost=cost), cost_names=tuple(names))


def split_episodes(data: Dataset, longest: int) -> list[Dataset]:
    """Split into episodes; an episode longer than `longest` becomes several pieces."""
    bounds = [0, *(np.flatnonzero(data.trajectory.done) + 1).tolist()]
    cuts = [
        (i, min(i + longest, stop)) for start, stop in itertools.pairwise(bounds) for i in range(start, stop, longest)
    ]
    rows = lambda cut: jax.tree.map(lambda x: x[slice(*cut)], data.trajectory)  # noqa: E731
    return [data._replace(trajectory=rows(cut)) for cut in cuts]


# ------------------------------------------------------------------------------------------------------------- reading


def find_traces(paths: Sequence[str | Path]) -> list[Path]:
    """The trace files of these paths: files, all traces of a folder, or those of a run."""
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
    """Sort key that compares numbers in names by value: ep2 before ep10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name)]


def read_traces(paths: Sequence[str | Path], columns: Columns | None = None) -> Dataset:
    """Read the logged transitions of all files, concatenated; the end of a file ends an episode.

    `paths`: NPZ, CSV or Parquet files, and folders of them. `columns`: names of a file's columns by part, if they
    are not called obs_0, action_0 and so on, such as {"obs": ["temperature"], "action": ["valve"]}. Returns a Dataset
    of N rows. Raises GussError if a file cannot be read or lacks a column, or files do not match.

    Example:
        >>> data = guss.read_traces(["tests/data/heating.csv"])
        >>> data.trajectory.obs.shape, data.trajectory.reward.tolist()
        ((4, 1), [1.0, 2.0, 1.0, 0.0])
    """
    return _read_files(find_traces(paths), columns or {})


def read_trace(path: str | Path, columns: Columns | None = None) -> Dataset:
    """Read one trace; `columns` as in `read_traces`."""
    return _read_files([Path(path)], columns or {})


def _read_files(files: Sequence[Path], columns: Columns) -> Dataset:
    if not files:
        raise GussError("no file with logged data was given")
    more = f" and {len(files) - 1} more, read together," if len(files) > 1 else ""
    budget, ignored = MAX_DATA.budget(f"the trace {files[0]}{more}"), dict[str, Path]()
    traces = [_read(path, columns, budget, ignored) for path in files]
    if ignored:  # text columns, such as time stamps, are ignored with a single warning
        path, names = next(iter(ignored.values())), ", ".join(ignored)
        warn(f"{path}: columns without numbers are ignored: {names}")
    return join(traces, files)


def _read(path: Path, columns: Columns, budget: Budget, ignored: dict[str, Path]) -> Dataset:
    """Read one file; text columns that are not needed are added to `ignored`."""
    _check_ending(path)
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


def _check_ending(path: Path) -> None:
    if path.suffix not in FORMATS:
        raise GussError(f"a trace must be a file that ends in {', '.join(FORMATS)}, got {path}")


def _parts(path: Path, names: list[str], columns: Columns) -> dict[str, list[str]]:
    """The columns of each part of a trace: named by `columns`, else obs_0, obs_1, … or a single `obs`."""
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
                f"{part} must be {'one column' if part in SCALARS else 'distinct columns'}, got {', '.join(mine)}"
            )
    if missing := [part for part in ("obs", "action") if not parts[part]]:
        held = ", ".join(sorted(names)[:20]) + ", …" * (len(names) > 20)
        if path.suffix == ".npz":
            lacks = " and no ".join(missing)
            raise GussError(f"cannot read the trace {path}: it has no {lacks}; it holds {held or 'nothing'}")
        raise GussError(
            f"{path} has the columns {held or '(none)'}; a trace needs obs_0, obs_1, … and action_0, …; "
            f"if they have other names, pass --columns obs=NAME,NAME action=NAME"
        )
    return {part: mine for part, mine in parts.items() if mine}


def _find(path: Path, part: str, names: list[str]) -> list[str]:
    """A single column `part`, or part_0, part_1 and so on; costs may have names of constraints instead of numbers."""
    single = [part] * (part in names)
    numbered = [name for name in names if re.fullmatch(rf"{part}_[0-9]+", name)]
    named = [name for name in names if part == "cost" and name.startswith("cost_") and name not in numbered]
    if sum(map(bool, (single, numbered, named))) > 1:
        raise GussError(
            f"{path} names the columns of {part} in more than one way ({', '.join([*single, *numbered, *named])}); "
            f"keep only {part}, only {part}_0, {part}_1, …{', only cost_<constraint>' * (part == 'cost')}, or select "
            f"columns: --columns {part}=NAME,NAME"
        )
    numbered.sort(key=lambda name: int(name.rpartition("_")[2]))
    if [int(name.rpartition("_")[2]) for name in numbered] != list(range(len(numbered))):
        raise GussError(
            f"columns {part}_0, {part}_1, … must be numbered from 0 without gaps, got {', '.join(numbered)}"
        )
    return single or numbered or named


def _part(path: Path, part: str, columns: list[np.ndarray]) -> np.ndarray:
    """One part of a trace from its columns; an NPZ file may hold it as one array."""
    if len(columns) == 1 and (path.suffix == ".npz" or part in SCALARS):
        return columns[0]
    if len({column.shape for column in columns}) > 1 or columns[0].ndim != 1:
        shapes = ", ".join(str(column.shape) for column in columns)
        raise GussError(f"the trace {path}: the columns of {part} must be of one length, got the shapes {shapes}")
    return np.stack(columns, axis=1)


def _trace(path: Path, held: dict[str, np.ndarray], cost_names: tuple[str, ...] | None) -> Dataset:
    """A Dataset from the parts found in a file."""
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
            raise GussError(f"the trace {path}: {name} must have one number per row, got shape {value.shape}")
        if name == "cost" and cost_names is not None and value.size != count * len(cost_names):
            raise GussError(f"the trace {path}: cost_{cost_names[0]} must have one number per row, got {value.shape}")
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
    stop = held.get("terminated", np.zeros(count, bool))
    reward, cost = held.get("reward"), column(held["cost"]) if "cost" in held else None
    rows: Any = slice(None)
    after: Any = rows
    if "next_obs" in held:
        next_obs = column(held["next_obs"])
    else:  # the next row's observation; an episode's last row has none, so the row before becomes its last
        rows = np.flatnonzero(~end)
        after = rows + 1
        next_obs = obs[after]
        if len(rows) == 0:
            raise GussError(
                f"the trace {path} has no column next_obs, and guss cannot derive it, because every episode has only "
                f"one row"
            )
        if cost is not None and (lost := int((cost[end] > 0).any(axis=1).sum())):
            warn(
                f"{path}: {lost} unsafe rows are left out: they are the last of their episodes, so without next_obs "
                f"their next observation is unknown. Add columns next_obs_0, …"
            )
    outcomes = (None if x is None else x[rows] for x in (reward, cost))
    flags = {"learnable": use[rows], "end": end[after], "terminated": stop[after]}
    return Dataset(logged(obs[rows], action[rows], next_obs, *outcomes, **flags), cost_names)


def _marks(path: Path, name: str, values: np.ndarray) -> np.ndarray:
    """Check columns that separate episodes: numbers must not be missing, flags are 0 or 1."""
    wrong = ~np.isfinite(values) if name not in FLAGS else ~np.isin(values, (0, 1))
    if wrong.any():
        row, wanted = int(np.argmax(wrong)), "0 or 1 (false or true)" if name in FLAGS else "finite"
        raise GussError(f"the trace {path}: {name} must be {wanted} in every row, got {values[row]} in row {row}")
    return values.astype(bool) if name in FLAGS else values


# ------------------------------------------------------------------------------------------------------------- writing


def trace_columns(trajectory: Trajectory, cost_names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """The columns of a file of transitions [N, …]; costs by name, if all names are read back as names."""
    parts = {part: getattr(trajectory, part) for part in ("obs", "action", "next_obs", "reward", "cost")}
    columns = {part: np.asarray(value) for part, value in parts.items() if value is not None}
    if "cost" in columns and cost_names is not None and not any(name.isdecimal() for name in cost_names):
        cost = columns.pop("cost")
        columns |= {f"cost_{name}": cost[:, i] for i, name in enumerate(cost_names)}
    skip = ~np.asarray(trajectory.learnable, bool)
    flags = {"terminated": trajectory.terminated, "skip": skip, "truncated": trajectory.truncated}
    return columns | {name: np.asarray(flag, bool) for name, flag in flags.items()}


def write_trace(path: str | Path, data: Dataset, **more: np.ndarray) -> None:
    """Write NPZ, CSV or Parquet, by the file's extension; `more`: additional columns, such as seed and episode."""
    path = Path(path)
    _check_ending(path)
    arrays = trace_columns(data.trajectory, data.cost_names) | more
    write_atomically(path, write_columns(path.suffix, arrays if path.suffix == ".npz" else dict(_flat(arrays))))


def read_episode(path: Path) -> Trajectory:
    """One stored episode, [T, …]."""
    return read_trace(path).trajectory


def _flat(arrays: dict[str, np.ndarray]) -> Iterable[tuple[str, np.ndarray]]:
    """Columns of a table: a vector of several numbers is spread over name_0, name_1 and so on."""
    for name, value in arrays.items():
        if value.ndim == 1:
            yield name, value
        else:
            flat = value.reshape(len(value), -1)
            yield from ((f"{name}_{i}", flat[:, i]) for i in range(flat.shape[1]))
