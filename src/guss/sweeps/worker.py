"""A worker: executes the runs of a sweep one after another, until all are finished or given up.

Workers share nothing but the folder. Each claims the longest run that no other worker has claimed (`guss.runs.claim`),
starts it or resumes it, and looks again. Runs of lost workers are taken over, failed runs are tried again later.
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from guss.collect.compiled import OnStep
from guss.errors import GussError, in_one_line, warn
from guss.progress import EpisodeSummary
from guss.runs.animator import write_animation
from guss.runs.claim import ClaimLostError, InUseError, Observer, owner_of
from guss.runs.run import OpenRun, new_run, reopened_run, train
from guss.runs.state_maps import write_maps
from guss.runs.trainer import ignore
from guss.sweeps.folder import RunStatus, SweepFolder
from guss.sweeps.forecast import expected_seconds
from guss.sweeps.study import PlannedRun

POLL = 1.0
"""Seconds between two looks at the folder while other workers have claimed all runs."""


class Worker:
    """Executes runs of a sweep."""

    def __init__(self, folder: SweepFolder, name: str = "", on_step: OnStep = None) -> None:
        self.folder, self.on_step = folder, on_step
        self.name = name or f"{platform.node()}-{os.getpid()}"
        self.on_episode: Callable[[EpisodeSummary], Any] = ignore
        self._observer = Observer(folder.study.settings.expiry)
        self._expected = {run.home(folder.out).name: expected_seconds(run.config) for run in folder.study.runs}
        self._failed: dict[str, tuple[int, float]] = {}
        """Failures of a run, and when this worker first saw that number."""

    def work(self) -> None:
        """Return when all runs are finished or given up."""
        while True:
            found = self.folder.statuses()
            if all(each.over for each in found):
                return
            waiting = sorted((each for each in found if not each.over), key=self._left, reverse=True)
            if not any(self._is_free(each) and self._attempt(each) for each in waiting):
                time.sleep(POLL)

    def _left(self, found: RunStatus) -> float:
        """Expected seconds until the run is finished."""
        return float(self._expected[found.home.name][found.done :].sum())

    def _is_free(self, found: RunStatus) -> bool:
        """Whether nobody has claimed the run, and a failed run has waited long enough. Clocks need not agree."""
        owner, failures = owner_of(found.home), found.attempts.failures
        if owner is not None and not self._observer.lost(owner):
            return False
        if failures != self._failed.get(found.home.name, (0, 0.0))[0]:
            self._failed[found.home.name] = failures, time.monotonic()
        since = self._failed.get(found.home.name, (0, 0.0))[1]
        wait = self.folder.study.settings.backoff * 4 ** (failures - 1) if failures else 0.0
        return time.monotonic() - since >= wait

    def _attempt(self, found: RunStatus) -> bool:
        """Execute a run; False if another worker claimed it first. Its errors are noted, and do not end the worker."""
        run = found.planned
        try:
            with self._opened(run) as opened:
                if self.folder.status(run).over:  # another worker finished it meanwhile
                    return False
                self.folder.note(run, "start", worker=self.name, done=opened.trainer.done)
                train(opened, on_episode=self.on_episode, on_step=self.on_step)
                self.folder.note(run, "finish", done=opened.trainer.done, notes=self._extras(opened.home))
        except InUseError:
            return False
        except ClaimLostError as error:
            warn(str(error))
        except KeyboardInterrupt:
            self.folder.note(run, "stop")
            raise
        except GussError as error:
            self._note_failure(run, str(error))
        except (Exception, SystemExit) as error:
            self._note_failure(run, in_one_line(error), traceback=traceback.format_exc())
        return True

    def _note_failure(self, run: PlannedRun, error: str, **more: Any) -> None:
        warn(f"{run.name}: {error}")
        self.folder.note(run, "fail", error=error, **more)

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
                except InUseError:
                    raise
                except GussError as error:  # the previous checkpoint, if the newest is damaged
                    try:
                        opened = stack.enter_context(reopened_run(home, previous=True, observer=observer))
                    except GussError:
                        raise error from None
            yield opened

    def _extras(self, home: Path) -> list[str]:
        """Write files that reports use; returns why some could not be written."""
        writers: dict[str, Callable[[Path], Any]] = {"state map": write_maps}
        if self.folder.study.settings.animations:
            writers["animation"] = write_animation
        notes = []
        for name, write in writers.items():
            try:
                write(home)
            except GussError as error:
                notes.append(f"no {name}: {error}")
        return notes
