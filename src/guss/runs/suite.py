"""Executes many runs one after another, cheap runs first. Finished runs are skipped, unfinished runs are resumed from
their checkpoint, and the error of a failed run is stored while the other runs continue. This module prints nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from guss.errors import GussError
from guss.progress import EpisodeSummary
from guss.runs.checkpoints import FINAL, episodes_kept
from guss.runs.config import RunConfig, spec_of_run
from guss.runs.rows import read_timings
from guss.runs.run import resume, run
from guss.runs.trainer import FinalFit

ENOUGH = 60.0
"""Expected seconds after which measured time and estimate have equal weight; short runs are mostly overhead."""
Extras = Mapping[str, Callable[[Path], Any]]
"""Files to write for every finished run: the name in its folder, and the function that writes it."""

# ------------------------------------------------------------------------------------------------------------ forecast

# Seconds of one core, rounded from the records in `results/`; measured times of a run correct them.
COMPILE = 15.0  # a run
STEP, HOSTED_STEP = 1e-5, 4e-4  # a real step of a seed, compiled or in a simulator
PLAN, PREDICTED_STEP = 2e-3, 1.5e-6  # a plan of a seed, and each step of each of its candidates
FIT_STEP = 5e-4  # a gradient step of a seed's model
ON_POLICY_STEP = 4e-5  # learning from a step
UPDATE = 5e-3  # an update of SAC's nets


def expected_seconds(config: RunConfig) -> np.ndarray:
    """Expected seconds of every episode of a run, for all seeds, without compilation."""
    task = spec_of_run(config).make_task()
    steps, step = task.episode_length, HOSTED_STEP if task.reset is None else STEP
    episode = np.arange(config.episodes)
    random = np.asarray([config.is_random(int(i), int(i) * steps, steps) for i in episode])
    per_seed = np.full(config.episodes, steps * step)
    if config.plans:
        per_seed += np.where(random, 0.0, steps * (PLAN + PREDICTED_STEP * config.horizon * config.budget))
    if config.learns or (config.is_policy and config.method_class.model_based):
        per_seed += np.where(random, 0.0, FIT_STEP * _fit_steps(config, steps * episode))
    if config.is_policy:
        updates = getattr(config.method_settings, "updates", None)
        per_seed += steps * (ON_POLICY_STEP if updates is None else UPDATE * updates)
    return per_seed * len(config.seeds)


def _fit_steps(config: RunConfig, rows: np.ndarray) -> np.ndarray:
    """Gradient steps of a fit to `rows` transitions; it ends at most four patiences after its best epoch."""
    fit = config.fit
    epochs = min(fit.epochs, 6 * fit.patience)
    steps = np.ceil(epochs * rows * (1.0 - fit.validation) / fit.batch)
    most = fit.warm_steps or fit.max_steps
    return np.minimum(steps, most) if most else steps


# ---------------------------------------------------------------------------------------------------------------- runs


class Job:
    """One run of a batch: its progress, and its expected time."""

    def __init__(self, config: RunConfig, out: Path) -> None:
        self.config, self.out = config, out
        self.name = f"{config.env} {config.method}"
        self.home = config.folder_in(out)
        self.expected = expected_seconds(config)
        """Expected seconds of every episode."""
        self.news: EpisodeSummary | None = None
        """Summary of the last episode of this session; None: no episode finished yet."""
        self.troubles: list[str] = []
        """Errors: why the run is not finished, or which files could not be written."""
        with contextlib.suppress(GussError):  # reported when the run starts, so that the other runs continue
            self.look()

    def look(self) -> None:
        """Read the stored progress; another process may have continued the run."""
        self.done, self.seconds = 0, 0.0
        """Stored episodes, and the seconds they took without compilation."""
        if self.begun:
            done = episodes_kept(self.home)
            lines = [line for line in read_timings(self.home) if line["episode"] < done]
            names = ("fit_seconds", "compile_seconds")
            fit, compiled = (sum(line.get(name) or 0.0 for line in lines) for name in names)
            self.done, self.seconds = done, fit + sum(line["plan_seconds"] for line in lines) - compiled

    @property
    def begun(self) -> bool:
        """Whether the run folder exists."""
        return (self.home / "config.json").exists()

    @property
    def packed(self) -> bool:
        """Whether the run is packed, that is, without checkpoints to resume from."""
        return self.begun and not (self.home / "checkpoints").is_dir()

    @property
    def finished(self) -> bool:
        """Whether all episodes are finished."""
        return self.done >= self.config.episodes

    @property
    def work(self) -> float:
        """The whole run, in expected seconds."""
        return float(self.expected.sum()) + COMPILE

    @property
    def work_done(self) -> float:
        """The finished part, in expected seconds."""
        return self.work if self.finished else float(self.expected[: self.done].sum())

    def seconds_left(self, pace: float) -> float:
        """Estimated seconds until the run is finished. `pace`: measured seconds per expected second of the batch."""
        if self.finished:
            return 0.0
        played = float(self.expected[: self.done].sum())
        own = (self.seconds + ENOUGH * pace) / (played + ENOUGH)
        return own * float(self.expected[self.done :].sum()) + pace * COMPILE * (self.news is None)

    def add(self, news: EpisodeSummary) -> None:
        """Add a finished iteration."""
        self.done, self.news = news.episode + 1, news
        self.seconds += news.seconds_fit + news.seconds_plan - news.seconds_compile


@runtime_checkable
class Watcher(Protocol):
    """Receives the progress of a batch."""

    def start(self, job: Job) -> None:
        """A run starts or resumes."""

    def episode(self, job: Job) -> None:
        """Episodes have finished: `job.news`."""

    def step(self, done: int) -> None:
        """`done` steps of the current episode have finished."""

    def make(self, job: Job, name: str) -> None:
        """All episodes have finished; the file `name` is written next."""

    def end(self, job: Job) -> None:
        """The run has finished or failed."""


class Batch:
    """Runs in order of expected time, shortest first."""

    def __init__(self, configs: Sequence[RunConfig], out: Path) -> None:
        self.in_order = [Job(config, out) for config in configs]
        """In the order of the configs."""
        self.jobs = sorted(self.in_order, key=lambda job: job.seconds_left(1.0))
        """In the order of execution."""

    @property
    def pace(self) -> float:
        """Measured seconds per expected second so far; close to 1 at the start."""
        expected = sum(float(job.expected[: job.done].sum()) for job in self.jobs)
        return (sum(job.seconds for job in self.jobs) + ENOUGH) / (expected + ENOUGH)

    @property
    def work(self) -> float:
        """All runs, in expected seconds."""
        return sum(job.work for job in self.jobs)

    @property
    def work_done(self) -> float:
        """The finished part, in expected seconds; failed runs count as finished."""
        return sum(job.work if job.troubles else job.work_done for job in self.jobs)

    @property
    def seconds_left(self) -> float:
        pace = self.pace
        return sum(job.seconds_left(pace) for job in self.jobs if not job.troubles)

    def run(self, origin: dict[str, Any], watcher: Watcher, extras: Extras) -> list[Job]:
        """Execute all runs and write their extra files; returns the runs with troubles."""
        for job in self.jobs:
            _finish(job, origin, watcher, extras)
        return [job for job in self.jobs if job.troubles]


def _finish(job: Job, origin: dict[str, Any], watcher: Watcher, extras: Extras) -> None:
    """Finish one run and write its extra files."""
    try:
        job.look()
        was_finished = job.finished
        watcher.start(job)
        if not was_finished or (job.config.learns and not job.packed and not (job.home / FINAL).exists()):
            _train(job, origin, watcher)
    except GussError as error:
        job.troubles.append(str(error))
    else:
        for name, write in extras.items():
            if job.packed or (was_finished and (job.home / name).exists()):
                continue
            watcher.make(job, name)
            try:
                write(job.home)
            except GussError as error:
                job.troubles.append(f"no {name}: {error}")
    watcher.end(job)


def _train(job: Job, origin: dict[str, Any], watcher: Watcher) -> None:
    """Start it or resume it."""

    def episode(news: EpisodeSummary) -> None:
        job.add(news)
        watcher.episode(job)

    def final(fitted: FinalFit | None) -> None:
        if fitted is None:
            watcher.make(job, FINAL)

    how: Any = {"on_episode": episode, "on_step": watcher.step, "on_final": final}
    if not job.begun:
        run(job.config, job.out, origin=origin, **how)
    elif job.packed:
        raise GussError(
            f"{job.home} has {job.done} of {job.config.episodes} episodes and no checkpoint to resume from; move the "
            f"folder away to start over"
        )
    else:
        resume(job.home, **how)
