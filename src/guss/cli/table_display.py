"""Terminal output of many runs: one progress bar, and the table of a report."""

from __future__ import annotations

import json
import textwrap
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from guss.cli.display import interval_text, print_files
from guss.progress import ProgressBar, reward_text
from guss.reports.escapes import one_line
from guss.runs.suite import Batch, Job

SECONDS_BETWEEN_LINES = 30.0
COLUMNS = {"mar": "MAR", "mrcp_ksteps": "MRCP, k steps", "unsafe_pct": "unsafe %"}
"""Measures of the table that a report prints."""
HEAD_WIDTH = 16
"""Characters per line of a column header, about the width of its numbers."""
NAME_WIDTH = 24
"""Minimum characters per line of a name."""


class _TimeLeft(ProgressColumn):
    """Time until all runs are finished: the forecast at the last event minus the time since then."""

    def __init__(self) -> None:
        super().__init__()
        self.until = time.monotonic()

    def render(self, task: Task) -> Text:
        return Text(f"about {duration_text(self.until - time.monotonic())} left", style="progress.remaining")


def duration_text(seconds: float) -> str:
    return str(timedelta(seconds=round(max(seconds, 0.0))))


class BatchProgress(ProgressBar):
    """Progress of a batch: a bar over all runs on a terminal; otherwise a line per run and some in between."""

    def __init__(self, console: Console, batch: Batch) -> None:
        self._batch = batch
        self._job: Job | None = None
        self._left, self._said, self._started = _TimeLeft(), time.monotonic(), time.monotonic()
        share, text = TextColumn("{task.percentage:>3.0f} %"), TextColumn("{task.description}", markup=False)
        super().__init__(console, batch.work, BarColumn(bar_width=24), share, TimeElapsedColumn(), self._left, text)
        self.update(text="starting")

    def start(self, job: Job) -> None:
        """A run starts or is resumed."""
        self._job, self._started = job, time.monotonic()
        if not job.finished:
            self._show("compiling" if job.done == 0 else f"resuming after {job.done} episodes")

    def episode(self, job: Job) -> None:
        """Episodes of the run are finished."""
        self._show(_figures(job))
        if not self._console.is_terminal and time.monotonic() - self._said > SECONDS_BETWEEN_LINES:
            self.line(f"{self._place(job)}: {_figures(job)}")
        for trouble in () if job.news is None else job.news.trouble:
            self.line(f"  {job.name}: {trouble}", "red")

    def step(self, done: int) -> None:
        """`done` steps of the current episode are finished."""
        if done % 10 == 0 and self._job is not None:
            self._show(f"{_figures(self._job)}, step {done}")

    def make(self, job: Job, name: str) -> None:
        """A file is written from the episodes of the run."""
        self._show(f"writing {name}")

    def end(self, job: Job) -> None:
        """The run is finished or has failed."""
        self._show("done")
        for trouble in job.troubles:
            self.line(f"{self._place(job)}: {trouble}", "red")
        if job.troubles:
            return
        if job.news is None:
            self.line(f"{self._place(job)}: finished before")
        else:
            took, left = duration_text(time.monotonic() - self._started), duration_text(self._batch.seconds_left)
            self.line(f"{self._place(job)}: {_figures(job)}, took {took}; {left} left")

    def line(self, text: str, style: str = "") -> None:
        """Print a line above the bar."""
        self._said = time.monotonic()
        super().line(text, style)

    def _place(self, job: Job) -> str:
        return f"{self._batch.jobs.index(job) + 1}/{len(self._batch.jobs)} {job.name}"

    def _show(self, text: str) -> None:
        if self._job is not None:
            self._left.until = time.monotonic() + self._batch.seconds_left
            self.update(self._batch.work_done, f"{self._place(self._job)}: {text}")


def _figures(job: Job) -> str:
    """The number of finished episodes, and the results of the last."""
    text = f"episode {job.done}/{job.config.episodes}"
    if job.news is None:
        return text
    return f"{text}, {reward_text(job.news)}, unsafe {job.news.unsafe_pct:.2f} %"


def _columns_of(rows: list[dict[str, Any]]) -> list[tuple[str, list[Text]]]:
    """Header and cells of each numeric column in the table of an environment."""
    columns = [("seeds ×\nepisodes", [Text(f"{row['seeds']} × {row['episodes']}") for row in rows])]
    reached = any(row["reached"] or "mrcp_ksteps" in row["paper"] for row in rows)
    for name, head in COLUMNS.items():
        if name == "mrcp_ksteps" and not reached:
            continue
        beside, cells = any(name in row["paper"] for row in rows), []
        for row in rows:
            paper = row["paper"].get(name)
            theirs = () if paper is None else (" ", (f"[{paper[0]:g}]", "dim"))
            cells.append(Text.assemble(interval_text(*row[name]), *theirs))
        columns.append((head + " [paper]" * beside, cells))
    for cost in dict.fromkeys(cost for row in rows for cost in row.get("unsafe_pct_by_cost", ())):
        head = "\n".join(textwrap.wrap(f"{one_line(cost)} %", HEAD_WIDTH))
        pairs = [row.get("unsafe_pct_by_cost", {}).get(cost, (None, None)) for row in rows]
        columns.append((head, [Text(interval_text(*pair)) for pair in pairs]))
    return columns


def _print_columns(console: Console, title: str, names: list[Text], columns: list[tuple[str, list[Text]]]) -> None:
    """A row for each name; names wrap, numbers do not. Columns that exceed the width follow in another table."""
    widths = [3 + max(len(line) for line in (*head.split("\n"), *(c.plain for c in cells))) for head, cells in columns]
    room = console.width - 4 - min(NAME_WIDTH, max(len(name) for name in names))
    parts, used = [list[tuple[str, list[Text]]]()], 0
    for column, width in zip(columns, widths, strict=True):
        if parts[-1] and used + width > room:
            parts.append([])
            used = 0
        parts[-1].append(column)
        used += width
    for i, part in enumerate(parts):
        heads = (Column(Text(head), justify="right", no_wrap=True) for head, _ in part)
        shown = Table(Column("method", overflow="fold"), *heads, title_justify="left")
        shown.title = None if i else Text(title)
        for name, *cells in zip(names, *(cells for _, cells in part), strict=True):
            shown.add_row(name, *cells)
        console.print(shown)


def print_report(console: Console, files: list[Path]) -> None:
    """Print the main columns of the report's table, its notes and the paths of its `files`."""
    table, notes = (json.loads((files[0].parent / f"{name}.json").read_text()) for name in ("table", "report"))
    for label, methods in zip(notes["environments"].values(), table.values(), strict=True):
        names = [Text(one_line(row["label"]), style="bold" if key == "guss" else "") for key, row in methods.items()]
        _print_columns(console, label, names, _columns_of(list(methods.values())))
    for note in notes["notes"]:
        console.print(Text.assemble("  ", ("!", "yellow"), f" {one_line(note)}"), soft_wrap=True)
    pages = [file for file in files if file.parent.name != "figures"]
    written = [one_line(file) for file in pages]
    if len(files) > len(pages):
        written.append(f"{one_line(pages[0].parent / 'figures')} ({len(files) - len(pages)} files)")
    print_files(console, written)
