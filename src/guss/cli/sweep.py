"""`guss sweep`: studies of many runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from guss.cli.options import command_provenance, prepare, print_results
from guss.cli.report import report_with_status
from guss.errors import GussError

if TYPE_CHECKING:
    from guss.sweeps.folder import SweepFolder

Pairs = Annotated[tuple[str, ...], arg(metavar="NAME=VALUE", help_behavior_hint="")]


@dataclass
class SweepCommand:
    """Execute a study: many runs, listed in a TOML file, on all cores, a Ray cluster or Slurm.

    In the file, a setting with a list of values is swept: method = ["guss", "rs"], horizon = [10, 20], [model] ensemble
    = [1, 5]. docs/scaling.md describes all entries.

    The output folder is the queue: workers claim the runs that are not finished. Further workers can join at any time,
    on every machine that shares the folder. If a worker is killed, another worker takes over its run; at most the
    episode in progress is lost. Failed runs are tried again, and do not stop other runs. To resume a sweep, repeat the
    same command: it executes only what is missing.

        guss sweep study.toml --dry-run
        guss sweep study.toml --out runs/study
        guss sweep --join runs/study
        guss sweep --status runs/study
    """

    study: Annotated[Positional[Path | None], arg(metavar="STUDY", help_behavior_hint="")] = None
    """The study file."""
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: runs/<STUDY>)")] = None
    """Output folder: a folder per run, sweep/ and report/."""
    dry_run: bool = False
    """Print the runs and how long they are expected to take, and execute nothing."""
    join: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None
    """Add a worker to the sweep in this folder."""
    status: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None
    """Show the progress and the errors of the sweep in this folder; on a terminal, until the sweep is finished."""
    executor: Literal["local", "ray", "slurm"] = "local"
    """local: a process per core; ray: tasks on a Ray cluster (extra `ray`); slurm: a job array (extra `slurm`)."""
    workers: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: one per core)")] = None
    """Number of workers. Each uses one thread."""
    worker: Annotated[str, arg(metavar="NAME", help_behavior_hint="(default: host and process)")] = ""
    """With --join: the worker's name in sweep/attempts."""
    address: Annotated[
        str | None, arg(metavar="ADDRESS", help_behavior_hint="(default: start Ray on this machine)")
    ] = None
    """Address of a Ray cluster, such as auto."""
    resources: Pairs = ()
    """Resources of a Ray worker, such as num_cpus=2 memory=4e9."""
    slurm: Pairs = ()
    """Options of submitit, such as slurm_partition=cpu timeout_min=600; with --script: options of sbatch, such as
    partition=cpu time=10:00:00. cluster=local starts the jobs of submitit on this machine."""
    script: bool = False
    """With --executor slurm: store the study and print a job-array script for sbatch, and submit nothing."""
    report: bool = True
    """Write a report of all runs at the end."""
    json: bool = False
    """Print the state of each run as JSON."""
    quiet: bool = False
    """Print no progress and no summary."""

    def run(self) -> None:
        """Execute the study, join it, show its progress, or print its forecast."""
        if [self.study, self.join, self.status].count(None) != 2:
            raise GussError("give a study file, or --join DIR, or --status DIR: exactly one of them")
        if self.join is not None:
            prepare(())
            from guss.sweeps.executors import join

            return join(self.join, self.worker)
        if self.status is not None:
            return self._show(self.status)
        return self._execute()

    def _show(self, out: Path) -> None:
        """Show a sweep that other processes execute."""
        from guss.cli.sweep_display import SweepDisplay, print_status
        from guss.progress import make_console
        from guss.sweeps.folder import open_sweep

        folder, console = open_sweep(out.absolute()), make_console()
        found = folder.statuses()
        if console.is_terminal and not self.json and not all(each.over for each in found):
            with SweepDisplay(console, folder, sum(each.state == "running" for each in found)):
                while not all(each.over for each in folder.statuses()):
                    time.sleep(1.0)
        print_results(status_rows(folder), self.json, False, lambda console: print_status(console, folder.statuses()))

    def _execute(self) -> None:
        """Execute the study, or print its forecast or its script."""
        assert self.study is not None
        from guss.sweeps.study import make_study, read_study, sweep_settings

        tables = read_study(self.study)
        prepare(sweep_settings(tables).plugin)
        study = make_study(tables)
        from guss.cli.sweep_display import print_forecast
        from guss.cli.table_display import print_report
        from guss.progress import make_console
        from guss.sweeps.executors import cores, slurm_script
        from guss.sweeps.folder import SweepFolder

        workers = min(len(cores()), len(study.runs)) if self.workers is None else self.workers
        if workers < 1:
            raise GussError(f"a sweep needs at least 1 worker, got --workers {self.workers}")
        if self.dry_run:
            return print_forecast(make_console(), study, workers)
        folder = SweepFolder(self.out or Path("runs") / self.study.stem, study)
        if self.script:
            if self.executor != "slurm":
                raise GussError("--script prints a script for Slurm: it needs --executor slurm")
            folder.store(command_provenance())
            print(slurm_script(folder, workers, [f"--{word}" for word in self.slurm]), end="")
            return None
        troubles = execute(folder, self._start(folder, workers), workers, self.quiet, study.left_out)
        files = report_or_trouble(folder, self.quiet, troubles) if self.report else []
        quiet = self.quiet or not files
        print_results(status_rows(folder), self.json, quiet, lambda console: print_report(console, files))
        raise_troubles(troubles)

    def _start(self, folder: SweepFolder, workers: int) -> Callable[[], None]:
        """The function that starts the workers and waits for them."""
        from guss.sweeps import executors

        if self.executor == "ray":
            resources = {name: _number(name, value) for name, value in _pairs("--resources", self.resources).items()}
            return lambda: executors.run_on_ray(folder, workers, self.address, resources)
        if self.executor == "slurm":
            options = _pairs("--slurm", self.slurm)
            return lambda: executors.run_on_slurm(folder, workers, options)
        return lambda: executors.run_local(folder, workers)


def execute(
    folder: SweepFolder, start: Callable[[], None], workers: int, quiet: bool, left_out: Iterable[str] = ()
) -> list[str]:
    """Store the study, start workers and show progress until they end; returns why runs are missing.

    `left_out`: sentences to print first.
    """
    from guss.cli.sweep_display import SweepDisplay, failures_of
    from guss.progress import make_console

    folder.store(command_provenance())
    try:
        with SweepDisplay(make_console(stderr=True, quiet=quiet), folder, workers) as display:
            for text in left_out:
                display.line(f"left out: {text}")
            start()
    except KeyboardInterrupt as stop:
        stop.add_note("repeat the same command to resume")
        raise
    return failures_of(folder.statuses())


def report_or_trouble(folder: SweepFolder, quiet: bool, troubles: list[str]) -> list[Path]:
    """Write a report of all runs and return its files; if no run has a finished episode, add this to `troubles`."""
    try:
        return report_with_status(folder.out, None, quiet)
    except GussError as error:
        troubles.append(f"no report: {error}")
        return []


def raise_troubles(troubles: list[str]) -> None:
    """Raise one error for all runs that failed."""
    if troubles:
        error = GussError("not all steps succeeded; repeat the command to try again:")
        for trouble in troubles:
            error.add_note(trouble)
        raise error


def status_rows(folder: SweepFolder) -> list[dict[str, Any]]:
    """The state of each run as plain data."""
    return [
        {
            "run": each.home.name,
            "name": each.planned.name,
            "state": each.state,
            "episodes": each.done,
            "of": each.planned.config.episodes,
            "failures": each.attempts.failures,
            "error": each.attempts.error,
            "worker": each.attempts.worker,
        }
        for each in folder.statuses()
    ]


def _pairs(flag: str, words: tuple[str, ...]) -> dict[str, str]:
    pairs = [word.partition("=") for word in words]
    if bad := [word for word, (name, _, value) in zip(words, pairs, strict=True) if not name or not value]:
        raise GussError(f"{flag} takes NAME=VALUE, got {bad[0]!r}")
    return {name: value for name, _, value in pairs}


def _number(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise GussError(f"--resources {name} must be a number, got {value!r}") from None
