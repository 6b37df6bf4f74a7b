"""What the terminal shows of many runs: one bar over all of them, a table per environment at the end."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from guss.display import measure_text
from guss.metrics import MEASURES
from guss.runs.batches import Batch, Job

SECONDS_BETWEEN_LINES = 30.0


class _TimeLeft(ProgressColumn):
    """Until all runs are over: as forecast at the last event, less what has gone since."""

    def __init__(self) -> None:
        super().__init__()
        self.until = time.monotonic()

    def render(self, task: Task) -> Text:
        return Text(f"about {in_words(self.until - time.monotonic())} left", style="progress.remaining")


def in_words(seconds: float) -> str:
    """Hours, minutes and seconds."""
    return str(timedelta(seconds=round(max(seconds, 0.0))))


class BatchProgress:
    """A batch as it goes: a bar over all runs on a terminal; elsewhere a line per run, and one now and then between."""

    def __init__(self, console: Console, batch: Batch, quiet: bool) -> None:
        self._console, self._batch, self._quiet = console, batch, quiet
        self._plain = not quiet and not console.is_terminal
        self._left, self._said, self._started = _TimeLeft(), time.monotonic(), time.monotonic()
        share, text = TextColumn("{task.percentage:>3.0f} %"), TextColumn("{task.description}")
        columns = (BarColumn(bar_width=24), share, TimeElapsedColumn(), self._left, text)
        self._bar = Progress(*columns, console=console, disable=quiet or not console.is_terminal, transient=True)
        self._task = self._bar.add_task("starting", total=batch.work)
        self._job: Job | None = None

    def start(self, job: Job) -> None:
        """A run begins, or goes on."""
        self._job, self._started = job, time.monotonic()
        if not job.finished:
            self._show("compiling" if job.done == 0 else f"going on after {job.done} episodes")

    def episode(self, job: Job) -> None:
        """Episodes of it are over."""
        self._show(_figures(job))
        if self._plain and time.monotonic() - self._said > SECONDS_BETWEEN_LINES:
            self._line(f"{self._place(job)}: {_figures(job)}")
        if not self._quiet and job.news is not None:
            for trouble in job.news.trouble:
                self._console.print(Text(f"  {job.name}: {trouble}", style="red"), soft_wrap=True)

    def step(self, done: int) -> None:
        """So many steps of the episode under way are over."""
        if done % 10 == 0 and self._job is not None:
            self._show(f"{_figures(self._job)}, step {done}")

    def make(self, job: Job, name: str) -> None:
        """A file is made of its episodes."""
        self._show(f"making {name}")

    def end(self, job: Job) -> None:
        """It is finished, or failed."""
        self._show("done")
        if self._quiet:
            return
        for trouble in job.troubles:
            self._console.print(Text(f"{self._place(job)}: {trouble}", style="red"), soft_wrap=True)
        if job.troubles:
            return
        if job.news is None:
            self._line(f"{self._place(job)}: finished before")
        else:
            took = in_words(time.monotonic() - self._started)
            self._line(f"{self._place(job)}: {_figures(job)}, took {took}; {in_words(self._batch.seconds_left)} left")

    def _place(self, job: Job) -> str:
        return f"{self._batch.jobs.index(job) + 1}/{len(self._batch.jobs)} {job.name}"

    def _show(self, text: str) -> None:
        if self._job is not None:
            self._left.until = time.monotonic() + self._batch.seconds_left
            about = f"{self._place(self._job)}: {text}"
            self._bar.update(self._task, completed=self._batch.work_done, description=about)

    def _line(self, text: str) -> None:
        """Said for good, above the bar if there is one."""
        self._said = time.monotonic()
        self._console.print(text, highlight=False, soft_wrap=True)

    def __enter__(self) -> BatchProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def _figures(job: Job) -> str:
    """How far a run is, and its last figures."""
    text = f"episode {job.done}/{job.config.episodes}"
    if job.news is None:
        return text
    return f"{text}, reward {job.news.mean_reward:.3f}, unsafe {job.news.unsafe_pct:.2f} %"


def print_table(console: Console, summaries: list[dict[str, Any]], files: list[Path]) -> None:
    """What came out, in the paper's measures: a table per environment, a row per method; then where it all is."""
    for env in dict.fromkeys(summary["env"] for summary in summaries):
        mine = [summary for summary in summaries if summary["env"] == env]
        count = mine[0]["seeds"]
        table = Table(title=f"{env}: {count} seed{'s' if count != 1 else ''}", title_justify="left")
        threshold = mine[0]["threshold"]
        heads = [f"mar: {MEASURES[mine[0]['measure']]}", f"mrcp: thousand steps until {threshold}"]
        heads += ["unsafe_pct: unsafe steps [%]", "unsafe_trans_pct: first 15 % of the episodes"]
        table.add_column("method")
        for head in (*heads, "episodes"):
            table.add_column(head, justify="right")
        for summary in mine:
            names = ("mar", "mrcp_ksteps", "unsafe_pct", "unsafe_trans_pct")
            measures = (measure_text(summary, name) for name in names)
            table.add_row(summary["method"], *measures, f"{summary['episodes']:,}")
        console.print(table)
    if any(summary["seeds"] > 1 for summary in summaries):
        console.print("[dim]mar: second half of the episodes. ± is the 90 % interval over seeds.[/]")
    for file in files:
        console.print(f"  {file}", highlight=False, soft_wrap=True)
