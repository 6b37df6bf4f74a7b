"""All runs in a folder as tables for analysis: `guss.load_results(folder)`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

from guss.errors import GussError
from guss.reports.inventory import Record, read_record, run_folders
from guss.reports.labels import compared_settings, flat_values
from guss.reports.run_summary import by_cost, per_seed
from guss.runs.metrics import interval
from guss.runs.rows import Row
from guss.usercode import no_user_code

Table = dict[str, list[Any]]
"""Columns of equal length by name; None if a row has no value."""


@dataclass(frozen=True)
class Results:
    """All runs in a folder as two tables, returned by `load_results`.

    A table is a dict of columns of equal length, name → list, with None for missing values. It can be passed directly
    to `pandas.DataFrame(results.episodes)` and `pyarrow.table(results.episodes)`.

    Fields:
        runs: one row for each run: `run` (its path relative to the folder), `env`, `method`, `path`, `seeds`
            (number of seeds with episodes), `episodes` (number that all seeds have), `measure` (`mean_reward` or
            `return`: the measure of `mar` and of the threshold of `mrcp_ksteps`); means over seeds: `mar`,
            `mrcp_ksteps` (over the seeds that reach the threshold, None if there is none), `unsafe_pct`,
            `unsafe_trans_pct`, `jitter` if it is stored, and `unsafe_pct.<name>` for each constraint, if there are
            several, and each measured cost; then its settings, named as their flags: `horizon`, `method.num_new`,
            `fit.loss`. Settings that are lists are strings, such as `[50, 50]`.
        episodes: one row for each run, seed and episode: `run`, `env`, `method`, then the fields of its line in
            `episodes.jsonl`: `seed`, `episode`, `phase`, `steps`, `total_steps`, `return`, `mean_reward`,
            `unsafe_steps`, `unsafe_pct`, `jitter`, `status`; shares and costs by constraint are `unsafe_pct.<name>` and
            `cost.<name>`.
        skipped: the error message of each run that could not be read.

    Example:
        >>> import guss
        >>> results = guss.Results(runs={"run": ["a"], "mar": [-1.5]}, episodes={"run": ["a", "a"], "episode": [0, 1]})
        >>> results.runs["mar"]
        [-1.5]
    """

    runs: Table
    episodes: Table
    skipped: tuple[str, ...] = ()


@no_user_code("reading results")
def load_results(folder: str | Path) -> Results:
    """All runs in a folder as tables for pandas. Reads only stored records; no user code is imported.

    Args:
        folder: a folder with runs at any depth: a run folder, or the `--out` of `guss run` and `guss reproduce`.

    Returns:
        `Results` with one row per run in `.runs` and one row per run, seed and episode in `.episodes`, sorted by
        folder. Unlike `guss report`, it keeps all of several runs with the same settings.

    Raises:
        GussError: the folder does not exist. A run that is unreadable or has no finished episode raises no error;
            `.skipped` has its error message.

    Example:
        >>> import guss
        >>> results = guss.load_results("results/oracle")
        >>> len(results.runs["run"]), results.skipped
        (14, ())
        >>> results.runs["method.num_new"][results.runs["method"].index("guss")]
        5
        >>> # pandas.DataFrame(results.episodes).groupby(["env", "method"]).mean_reward.mean()
    """
    folder = Path(folder)
    pairs, skipped = [], []
    for home in [home for home, is_toy in run_folders(folder) if not is_toy]:  # a toy-world experiment has no episodes
        try:
            pairs.append((home.relative_to(folder).as_posix() if home != folder else folder.name, read_record(home)))
        except GussError as error:
            skipped.append(str(error))
    runs = _table(_run_row(name, record) for name, record in pairs)
    episodes = _table(_episode_row(name, record, row) for name, record in pairs for row in record.episodes)
    return Results(runs, episodes, tuple(skipped))


def _run_row(name: str, record: Record) -> Row:
    found = per_seed(record)
    means = {measure: interval(values).mean for measure, values in found.items()}
    counts = {"path": str(record.home), "seeds": len(record.seeds), "episodes": record.done, "measure": record.measure}
    settings = flat_values(compared_settings(record.config))
    return (
        _about(name, record)
        | counts
        | {key: None if isnan(value) else value for key, value in means.items()}
        | {f"unsafe_pct.{name}": interval(values).mean for name, values in by_cost(record).items()}
        | {key: str(value) if isinstance(value, list) else value for key, value in settings.items()}
    )


def _episode_row(name: str, record: Record, row: Row) -> Row:
    found = {key: value for key, value in row.items() if not isinstance(value, dict)}
    for key, short in (("unsafe_pct_by_cost", "unsafe_pct"), ("costs", "cost")):
        found |= {f"{short}.{constraint}": value for constraint, value in (row.get(key) or {}).items()}
    return _about(name, record) | found


def _about(name: str, record: Record) -> Row:
    return {"run": name, "env": record.env, "method": record.method}


def _table(rows: Iterable[Row]) -> Table:
    """Columns in order of their first occurrence in the rows."""
    rows = list(rows)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}
