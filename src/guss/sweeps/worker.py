"""A worker: executes the runs of a sweep one after another, until all are finished or given up.

Workers share nothing but the folder. Each claims the longest run that no other worker has claimed (`guss.runs.claim`),
starts it or resumes it, and then searches for the next. Other workers take over the runs of lost workers. Failed runs
are tried again later.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from guss.collect.compiled import OnStep
from guss.errors import GussError, in_one_line, warn
from guss.progress import EpisodeSummary
from guss.runs.animation import NAME as ANIMATION
from guss.runs.animator import write_animation
from guss.runs.checkpoints import PreviousIsValidError
from guss.runs.claim import ClaimLostError, InUseError, Observer, owner_of
from guss.runs.compile_clock import CompileClock
from guss.runs.run import ExistingRunError, OpenRun, new_run, reopened_run, train
from guss.runs.state_maps import NAME as MAPS
from guss.runs.state_maps import write_maps
from guss.runs.trainer import ignore
from guss.sweeps.folder import Event, RunStatus, SweepFolder
from guss.sweeps.forecast import COMPILE
from guss.sweeps.study import PlannedRun

PARENT = "GUSS_PARENT"
"""Environment variable with the process that starts workers and ends with them."""

LONGEST_WAIT = 600.0
"""Largest number of seconds until a failed run is tried again."""


class Worker:
    """Executes runs of a sweep."""

    def __init__(self, folder: SweepFolder, name: str = "", on_step: OnStep = None) -> None:
        self.folder, self.on_step = folder, on_step
        self.name = name or f"{platform.node()}-{os.getpid()}"
        self.on_episode: Callable[[EpisodeSummary], Any] = ignore
        self.poll = min(1.0, folder.study.settings.expiry / 10)
        """Seconds between two reads of the folder while other workers have claimed all runs."""
        self._observer = Observer(folder.study.settings.expiry)
        self._failed: dict[str, tuple[int, float]] = {}
        """Failures of a run, and when this worker first read that number."""
        self._unwritten: Counter[str] = Counter()
        """Failures of a run that could not be noted, because the folder could not be written to."""
        self._compile_seconds: dict[str, float] = {}
        """Programs of the runs that this worker has executed, and how long it took to compile them."""
        self._parent = os.environ.pop(PARENT, None)  # not inherited by processes that a run starts

    def work(self) -> None:
        """Return when all runs are finished or given up."""
        while True:
            found = self.folder.statuses()
            if all(each.over for each in found):
                return
            waiting = self._in_order([each for each in found if not each.over])
            if not any(self._is_free(each) and self._attempt(each) for each in waiting):
                self._check_parent()
                time.sleep(self.poll)

    def _in_order(self, found: list[RunStatus]) -> list[RunStatus]:
        """The longest run first. Runs whose programs this worker has compiled count as longer, and those whose programs
        another worker uses as shorter: then each program is compiled by one worker.
        """
        others = {_program(each) for each in found if each.state == "running"}
        measured = self._compile_seconds.values()  # short if the compilation cache has the programs
        seconds = sum(measured) / len(measured) if measured else COMPILE

        def score(each: RunStatus) -> float:
            mine, theirs = _program(each) in self._compile_seconds, _program(each) in others
            return sum(each.planned.expected[each.done :]) + seconds * (mine - theirs)

        return sorted(found, key=score, reverse=True)

    def _check_parent(self) -> None:
        """Stop if the process that started this worker, and would restart it, has ended."""
        if self._parent not in (None, str(os.getppid())):
            raise KeyboardInterrupt

    def _is_free(self, found: RunStatus) -> bool:
        """Whether nobody has claimed the run, and a failed run has waited long enough. Clocks need not agree."""
        owner, attempts, name = owner_of(found.home), found.attempts, found.home.name
        if owner is not None and not self._observer.lost(owner):
            return False
        failures = attempts.failures + attempts.lost + attempts.open + self._unwritten[name]
        if failures != self._failed.get(name, (0, 0.0))[0]:
            self._failed[name] = failures, time.monotonic()
        since = self._failed.get(name, (0, 0.0))[1]
        return time.monotonic() - since >= self._wait(failures)

    def _wait(self, failures: int) -> float:
        """Seconds between a failure and the next attempt."""
        if failures == 0:
            return 0.0
        return min(self.folder.study.settings.backoff * 4.0 ** min(failures - 1, 20), LONGEST_WAIT)

    def _attempt(self, found: RunStatus) -> bool:
        """Execute a run; False if another worker was faster. Its errors are noted, and do not end the worker."""
        run = found.planned
        try:
            with self._opened(run) as opened:
                attempts = self.folder.attempts(run)
                if attempts.finished is not None or self.folder.is_given_up(attempts):  # by another worker, meanwhile
                    return False
                self.folder.note(run, "start", worker=self.name, done=opened.trainer.done)
                with CompileClock(all_threads=True) as clock:
                    train(opened, on_episode=self._after_episode, on_step=self.on_step)
                self._compile_seconds.setdefault(_program(found), clock.seconds)
                self.folder.note(run, "finish", done=opened.trainer.done, notes=self._extras(opened.home))
        except (InUseError, ExistingRunError):
            return False
        except ClaimLostError as error:
            warn(str(error))
        except KeyboardInterrupt:
            self._note(run, "stop")
            raise
        except GussError as error:
            self._note_failure(run, str(error))
        except (Exception, SystemExit) as error:
            self._note_failure(run, in_one_line(error), traceback=traceback.format_exc())
        else:
            del self._unwritten[found.home.name]
        return True

    def _after_episode(self, news: EpisodeSummary) -> None:
        self.on_episode(news)
        self._check_parent()

    def _note_failure(self, run: PlannedRun, error: str, **more: Any) -> None:
        warn(f"{run.name}: {error}")
        if not self._note(run, "fail", error=error, **more):
            self._unwritten[run.home(self.folder.out).name] += 1

    def _note(self, run: PlannedRun, event: Event, **more: Any) -> bool:
        """Note the end of an attempt; False if the folder cannot be written to, which must not end the worker."""
        try:
            self.folder.note(run, event, **more)
        except GussError as error:
            warn(str(error))
            return False
        return True

    @contextlib.contextmanager
    def _opened(self, run: PlannedRun) -> Iterator[OpenRun]:
        """The claimed run: new, or resumed from its newest valid checkpoint."""
        home, observer = run.home(self.folder.out), self._observer
        with contextlib.ExitStack() as stack:
            if not (home / "config.json").exists():
                origin = self.folder.origin or None
                opened = stack.enter_context(new_run(run.config, self.folder.out, origin=origin, observer=observer))
            else:
                try:
                    opened = stack.enter_context(reopened_run(home, observer=observer))
                except PreviousIsValidError as error:
                    warn(str(error))
                    opened = stack.enter_context(reopened_run(home, previous=True, observer=observer))
            yield opened

    def _extras(self, home: Path) -> list[str]:
        """Write files that reports use, unless `train` has written them; returns why some could not be written."""
        writers: dict[str, Callable[[Path], Any]] = {MAPS: write_maps}
        if self.folder.study.settings.animations:
            writers[ANIMATION] = write_animation
        notes = []
        for name, write in writers.items():
            try:
                if not (home / name).exists():
                    write(home)
            except GussError as error:
                notes.append(f"no {name}: {error}")
        return notes


def _program(found: RunStatus) -> str:
    """A text that is equal for runs that share all compiled programs: those that differ in their seeds only."""
    config = found.planned.config
    return json.dumps([len(config.seeds), config.changed() | {"seeds": None}], sort_keys=True)
