"""Terminal output of sweeps: a live table on a terminal, a line per finished run elsewhere; the forecast."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from guss.reports.escapes import one_line
from guss.sweeps.folder import RunStatus, SweepFolder, counts
from guss.sweeps.forecast import COMPILE, Pace, seconds_until_done
from guss.sweeps.study import Study

SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_BETWEEN_LINES = 60.0
MOST_ROWS = 12
"""Runs of a kind in the live table."""
TAIL, MOST_SEEDS = 1 << 16, 100
"""Bytes and lines at the end of a record file that are read for the last episode."""


def duration_text(seconds: float) -> str:
    return str(timedelta(seconds=round(max(seconds, 0.0))))


class SweepDisplay:
    """Shows the progress of a sweep in a thread while a `with` block runs; reads the folder only."""

    def __init__(self, console: Console, folder: SweepFolder, workers: int) -> None:
        self._console, self._folder, self._workers = console, folder, workers
        self._started = self._said = time.monotonic()
        self._expected = {run.home(folder.out).name: np.asarray(run.expected) for run in folder.study.runs}
        self._pace, self._over = Pace(), set[str]()
        self._first = True
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="guss progress", daemon=True)

    def __enter__(self) -> SweepDisplay:
        if self._live is not None:
            self._live.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        try:
            self.look()
        finally:
            if self._live is not None:
                self._live.stop()

    def line(self, text: str, style: str = "") -> None:
        """Print a line that stays."""
        self._said = time.monotonic()
        self._console.print(Text(one_line(text), style=style), soft_wrap=True)

    def _watch(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(OSError):  # the folder cannot be reached at the moment
                self.look()
            self._stop.wait(SECONDS_BETWEEN_LOOKS)

    def look(self) -> None:
        """Read the folder, print a line for each run that is over, and refresh the table."""
        found = self._folder.statuses()
        for each in found:
            self._pace.look(each.home, self._expected[each.home.name], each.done)
        for each in found:
            if each.over and each.home.name not in self._over:
                self._over.add(each.home.name)
                self._tell(each, found)
        self._first = False
        if self._live is not None:
            self._live.update(self.table(found), refresh=True)
        elif time.monotonic() - self._said > SECONDS_BETWEEN_LINES:
            self.line(f"{count_text(found)}; about {duration_text(self._left(found))} left")

    def _tell(self, each: RunStatus, found: Sequence[RunStatus]) -> None:
        """Print that a run is over."""
        place = f"{len(self._over)}/{len(found)} {each.planned.name}"
        if each.state == "given up":
            self.line(f"{place}: {error_of(each)}", "red")
        elif self._first:
            self.line(f"{place}: finished before")
        else:
            left = f"{duration_text(self._left(found))} left"
            self.line(f"{place}: {progress_text(each)}; {left}")
        for note in each.attempts.notes:
            self.line(f"  {each.planned.name}: {note}", "yellow")

    def _left(self, found: Sequence[RunStatus]) -> float:
        """Seconds until the study is finished, by the pace of the episodes so far."""
        todo = [each for each in found if not each.over]
        work = [
            float(self._expected[each.home.name][each.done :].sum()) * self._pace.of(each.home.name)
            + COMPILE * (each.done == 0)
            for each in todo
        ]
        return seconds_until_done(work, self._workers)

    def table(self, found: Sequence[RunStatus]) -> Group:
        """The live table."""
        total = sum(float(each.sum()) for each in self._expected.values())
        done = sum(float(self._expected[each.home.name][: None if each.over else each.done].sum()) for each in found)
        head = Table.grid(padding=(0, 2))
        head.add_row(
            ProgressBar(total, done, width=24),
            f"{100 * done / total:3.0f} %",
            duration_text(time.monotonic() - self._started),
            Text(f"about {duration_text(self._left(found))} left", style="progress.remaining"),
            count_text(found),
        )
        return Group(head, status_table(found, self._console.width))


def count_text(found: Sequence[RunStatus]) -> str:
    """Number of runs by state, such as "3 finished, 2 running"."""
    return ", ".join(f"{number} {state}" for state, number in counts(found).items() if number)


def status_table(found: Sequence[RunStatus], width: int) -> Table:
    """Runs that are executed, and runs with errors; others are only counted."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for state, style in (("running", ""), ("failed", "yellow"), ("given up", "red")):
        rows = [each for each in found if each.state == state]
        for each in rows[:MOST_ROWS]:
            where = "" if each.owner is None else f"{each.owner.host} {each.owner.pid}"
            text = progress_text(each) if state == "running" else f"{where} {error_of(each)}".strip()
            table.add_row(Text(state, style=style), Text(one_line(each.planned.name)), Text(one_line(text)))
        if len(rows) > MOST_ROWS:
            table.add_row(Text(state, style=style), Text(f"and {len(rows) - MOST_ROWS} more"), Text(""))
    return table


def error_of(each: RunStatus) -> str:
    """Why a run failed, and where to read more."""
    attempts = each.attempts
    lost = attempts.lost + attempts.open
    if lost > attempts.failures:
        return f"{lost} workers ended while they executed it; the last was {attempts.worker}: see sweep/logs"
    times = "once" if attempts.failures == 1 else f"{attempts.failures} times"
    return f"failed {times}: {attempts.error}" if attempts.failures else str(attempts.error or each.state)


def progress_text(each: RunStatus) -> str:
    """Finished episodes of a run, and the figures of the last."""
    text = f"episode {each.done}/{each.planned.config.episodes}"
    figures = last_figures(each.home / "episodes.jsonl")
    if not figures:
        return text
    reward, unsafe = (sum(each) / len(figures) for each in zip(*figures, strict=True))
    return f"{text}, reward {reward:.3f}, unsafe {unsafe:.2f} %"


def last_figures(path: Path) -> list[tuple[float, float]]:
    """Mean reward and unsafe share of each seed's last episode; empty if there are none, or they cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - TAIL, 0))
            lines = file.read().split(b"\n")[:-1]
        rows = [json.loads(line) for line in lines[-MOST_SEEDS:] if line]
        figures = [(row["episode"], float(row["mean_reward"]), float(row["unsafe_pct"])) for row in rows]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [(reward, unsafe) for episode, reward, unsafe in figures if episode == figures[-1][0]]


def print_status(console: Console, found: Sequence[RunStatus]) -> None:
    """The runs of a sweep, once."""
    console.print(Text(count_text(found)))
    console.print(status_table(found, console.width))


def print_forecast(console: Console, study: Study, workers: int) -> None:
    """The runs of a study, with the time that they are expected to take."""
    seconds = [sum(run.expected) + COMPILE for run in study.runs]
    table = Table("run", "seeds × episodes", "expected time")
    for run, each in zip(study.runs, seconds, strict=True):
        size = f"{len(run.config.seeds)} × {run.config.episodes}"
        table.add_row(Text(one_line(run.name)), size, duration_text(each))
    console.print(table)
    for text in study.left_out:
        console.print(Text(f"left out: {one_line(text)}"), soft_wrap=True)
    total, until = sum(seconds), seconds_until_done(seconds, workers)
    console.print(
        f"{len(seconds)} runs, {duration_text(total)} of computation on one core; with {workers} workers "
        f"about {duration_text(until)}. Estimated from the settings: machines differ by a factor of two."
    )


def failures_of(found: Sequence[RunStatus]) -> list[str]:
    """A sentence for each run that is not finished."""
    return [f"{each.planned.name}: {error_of(each)}" for each in found if each.state != "finished"]
