"""Files of a sweep: the folders of its runs, and `sweep/`.

study.json             the study as plain data, the folder in which it was started, the command
attempts/<run>.jsonl   a line for each start and end of an attempt to execute the run
logs/<worker>.log      output of the workers that an executor started
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from guss.errors import GussError
from guss.files import check_folder, writing
from guss.limits import reading
from guss.plugins import load_plugins
from guss.runs.checkpoints import FINAL, episodes_kept
from guss.runs.claim import Owner, owner_of
from guss.runs.store import append_lines, write_json
from guss.sweeps.study import PlannedRun, Study, SweepSettings, planned_run
from guss.validation import build

NAME, SCHEMA = "sweep", 1
MOST_LOST = 10
"""Workers that a run may lose in a row without finishing an episode, before it is given up."""
State = Literal["finished", "running", "waiting", "failed", "given up"]
Event = Literal["start", "finish", "fail", "stop", "retry"]


class Attempts(NamedTuple):
    """What the file of attempts says about a run."""

    finished: int | None = None
    """Episodes of the run when it was finished; fewer than planned if it reached its target."""
    begun: bool = False
    """Whether an attempt was started and did not finish the run."""
    open: bool = False
    """Whether the last attempt neither ended nor failed: it is under way, or its worker was lost."""
    failures: int = 0
    """Failures in a row without a finished episode in between."""
    lost: int = 0
    """Earlier attempts in a row whose worker was lost, that is, was killed or crashed."""
    error: str | None = None
    """Why the last attempt failed."""
    worker: str | None = None
    """The worker of the last attempt."""
    notes: tuple[str, ...] = ()
    """Files that could not be made from a finished run."""


class RunStatus(NamedTuple):
    """A run of a sweep as its files show it."""

    planned: PlannedRun
    home: Path
    state: State
    done: int
    """Finished episodes."""
    attempts: Attempts
    owner: Owner | None
    """The process that executes the run."""

    @property
    def over(self) -> bool:
        """Whether no worker will execute the run any more."""
        return self.state in ("finished", "given up")


class SweepFolder:
    """A folder of runs, with the study that they belong to."""

    def __init__(self, out: Path, study: Study) -> None:
        self.out, self.study = out, study
        self.origin: dict[str, Any] = {}
        self._finished: dict[str, RunStatus] = {}

    def store(self, origin: dict[str, Any]) -> None:
        """Write the study, so that workers can join; runs that were given up are tried again.

        `origin`: from `provenance`.
        """
        check_folder(self.out)
        self.origin = origin
        with writing(self.out):
            for name in ("attempts", "logs"):
                (self.out / NAME / name).mkdir(parents=True, exist_ok=True)
            settings = dataclasses.asdict(self.study.settings)
            about = {"schema": SCHEMA, "started_in": os.getcwd(), "provenance": origin, "settings": settings}
            write_json(self.out / NAME / "study.json", about | {"runs": [run.to_json() for run in self.study.runs]})
        for run in self.study.runs:
            attempts = self.attempts(run)
            if attempts.failures or attempts.lost:
                self.note(run, "retry")

    def log(self, worker: str) -> Path:
        """The log of a worker that an executor starts."""
        return self.out / NAME / "logs" / f"{worker}.log"

    def note(self, run: PlannedRun, event: Event, **more: Any) -> None:
        """Note the start or end of an attempt."""
        about = {"event": event, "host": platform.node(), "pid": os.getpid()}
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        append_lines(self._attempts_of(run), [about | more | {"time": now}])

    def _attempts_of(self, run: PlannedRun) -> Path:
        return self.out / NAME / "attempts" / f"{run.home(self.out).name}.jsonl"

    def attempts(self, run: PlannedRun) -> Attempts:
        """What was noted about a run. Lines that a fault left incomplete are skipped."""
        path = self._attempts_of(run)
        found, done = Attempts(), -1
        for row in map(_parsed, path.read_bytes().split(b"\n") if path.exists() else ()):
            event = row.get("event")
            if event == "start":
                if int(row.get("done", 0)) > done:  # episodes were finished since the last start
                    found, done = Attempts(), int(row.get("done", 0))
                lost = found.lost + found.open
                found = found._replace(finished=None, begun=True, open=True, lost=lost, worker=row.get("worker"))
            elif event == "fail":
                found = found._replace(open=False, failures=found.failures + 1, error=str(row.get("error")))
            elif event == "stop":
                found = found._replace(open=False)
            elif event == "retry":
                found = Attempts(begun=found.begun)
            elif event == "finish":
                finished, notes = int(row.get("done", 0)), tuple(row.get("notes", ()))
                found = Attempts(finished=finished, worker=found.worker, notes=notes)
        return found

    def is_given_up(self, attempts: Attempts) -> bool:
        """Whether a run has failed too often."""
        return attempts.failures >= self.study.settings.attempts or attempts.lost >= MOST_LOST

    def status(self, run: PlannedRun) -> RunStatus:
        """The state of a run."""
        home = run.home(self.out)
        if home.name in self._finished and home.exists():
            return self._finished[home.name]
        attempts, owner = self.attempts(run), owner_of(home)
        try:
            done, finished = _progress(run, home, attempts)
        except (GussError, OSError) as error:  # an attempt reports it, too
            done, finished, attempts = 0, False, attempts._replace(error=attempts.error or str(error))
        state: State = "waiting"
        if finished:
            state = "finished"
        elif self.is_given_up(attempts):
            state = "given up"
        elif owner is not None and not owner.ended:
            state = "running"
        elif self.is_given_up(attempts._replace(lost=attempts.lost + attempts.open)):
            state = "given up"
        elif attempts.failures:
            state = "failed"
        found = RunStatus(run, home, state, done, attempts, owner)
        if finished:
            self._finished[home.name] = found
        return found

    def statuses(self) -> list[RunStatus]:
        """The state of each run of the study, in its order."""
        return [self.status(run) for run in self.study.runs]


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}


def _progress(run: PlannedRun, home: Path, attempts: Attempts) -> tuple[int, bool]:
    """Finished episodes, and whether the whole run is finished."""
    if not (home / "config.json").exists():
        return 0, False
    done, packed = episodes_kept(home), not (home / "checkpoints").is_dir()
    complete = packed or not run.config.learns or (home / FINAL).exists()
    if attempts.finished is not None:
        return done, done >= attempts.finished
    return done, done >= run.config.episodes and complete and not attempts.begun


def open_sweep(out: Path) -> SweepFolder:
    """The sweep that was started in a folder; imports its plugins.

    Works in the folder in which it was started, if this machine has it: names of files are relative to it.
    """
    path = out / NAME / "study.json"
    if not path.exists():
        raise GussError(f"{out} is not the folder of a sweep: it has no {NAME}/study.json, which `guss sweep` writes")
    with reading(f"{path} was not written by this version of guss"):
        about = json.loads(path.read_bytes())
        if about["schema"] != SCHEMA:
            raise GussError(f"{path} has schema {about['schema']!r}, this version of guss reads {SCHEMA}")
        settings, started_in = build(SweepSettings, about["settings"], "sweep"), about["started_in"]
        if Path(started_in).is_dir():
            os.chdir(started_in)
        load_plugins(settings.plugin)
        runs = tuple(planned_run(stored, started_in) for stored in about["runs"])
    folder = SweepFolder(out, Study(settings, runs))
    folder.origin = about["provenance"]
    return folder


def counts(found: Sequence[RunStatus]) -> dict[str, int]:
    """Number of runs by state."""
    states = [each.state for each in found]
    return {state: states.count(state) for state in get_args(State)}
