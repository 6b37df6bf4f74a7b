"""Many runs, one after another, cheap ones first. Each is an ordinary run: what is finished is skipped, what was begun
is resumed from its checkpoint, and the error of one that fails is kept while the others run. Nothing is printed here.
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
"""Expected seconds after which what was measured weighs as much as the guess: short runs are mostly overhead."""
Extras = Mapping[str, Callable[[Path], Any]]
"""What to make of every finished run: the file's name in its folder, and who writes it."""

# ------------------------------------------------------------------------------------------------------------ forecast

# Seconds of one core, rounded from the records in `results/`; what a run has taken so far corrects them.
COMPILE = 15.0  # a run
STEP, HOSTED_STEP = 1e-5, 4e-4  # a real step of a seed, compiled or in a simulator
PLAN, PREDICTED_STEP = 2e-3, 1.5e-6  # a plan of a seed, and each step of each of its candidates
FIT_STEP = 5e-4  # a gradient step of a seed's model
ON_POLICY_STEP = 4e-5  # learning from a step
UPDATE = 5e-3  # an update of SAC's nets


def expected_seconds(config: RunConfig) -> np.ndarray:
    """Of every episode of a run, all seeds together, without compiling."""
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
    """Gradient steps of the fit to so many transitions. It ends four patiences after its best epoch, or sooner."""
    fit = config.fit
    epochs = min(fit.epochs, 6 * fit.patience)
    steps = np.ceil(epochs * rows * (1.0 - fit.validation) / fit.batch)
    most = fit.warm_steps or fit.max_steps
    return np.minimum(steps, most) if most else steps


# ---------------------------------------------------------------------------------------------------------------- runs


class Job:
    """One run of a batch: how far it is, and how long it will take."""

    def __init__(self, config: RunConfig, out: Path) -> None:
        self.config, self.out = config, out
        self.name = f"{config.env} {config.method}"
        self.home = config.folder_in(out)
        self.expected = expected_seconds(config)
        """Seconds of every episode, roughly."""
        self.news: EpisodeSummary | None = None
        """Of the last of them, if it was played just now."""
        self.troubles: list[str] = []
        """Why it is not finished, or what could not be made of it."""
        with contextlib.suppress(GussError):  # reported when its turn comes, so that the others run
            self.look()

    def look(self) -> None:
        """Read what is stored of it; another process may have continued it."""
        self.done, self.seconds = 0, 0.0
        """Episodes that are kept, and what they took, without compiling."""
        if self.begun:
            done = episodes_kept(self.home)
            lines = [line for line in read_timings(self.home) if line["episode"] < done]
            names = ("fit_seconds", "compile_seconds")
            fit, compiled = (sum(line.get(name) or 0.0 for line in lines) for name in names)
            self.done, self.seconds = done, fit + sum(line["plan_seconds"] for line in lines) - compiled

    @property
    def begun(self) -> bool:
        """Whether it is there to be resumed."""
        return (self.home / "config.json").exists()

    @property
    def packed(self) -> bool:
        """Whether its records are all that was kept: it cannot be resumed."""
        return self.begun and not (self.home / "checkpoints").is_dir()

    @property
    def finished(self) -> bool:
        """Whether all episodes are there."""
        return self.done >= self.config.episodes

    @property
    def work(self) -> float:
        """All of it, in expected seconds."""
        return float(self.expected.sum()) + COMPILE

    @property
    def work_done(self) -> float:
        """What is done of it, in expected seconds."""
        return self.work if self.finished else float(self.expected[: self.done].sum())

    def seconds_left(self, pace: float) -> float:
        """Until it is finished, by its own pace as far as it has one. `pace`: seconds that an expected second takes."""
        if self.finished:
            return 0.0
        played = float(self.expected[: self.done].sum())
        own = (self.seconds + ENOUGH * pace) / (played + ENOUGH)
        return own * float(self.expected[self.done :].sum()) + pace * COMPILE * (self.news is None)

    def add(self, news: EpisodeSummary) -> None:
        """Episodes of it are over."""
        self.done, self.news = news.episode + 1, news
        self.seconds += news.seconds_fit + news.seconds_plan - news.seconds_compile


@runtime_checkable
class Watcher(Protocol):
    """Is notified of the progress of a batch."""

    def start(self, job: Job) -> None:
        """A run begins, or is resumed."""

    def episode(self, job: Job) -> None:
        """Episodes of it are over: `job.news`."""

    def step(self, done: int) -> None:
        """So many steps of the episode under way are over."""

    def make(self, job: Job, name: str) -> None:
        """Its episodes are over, and a file is made of them."""

    def end(self, job: Job) -> None:
        """It is finished, or failed."""


class Batch:
    """Runs in the order in which they are done: the one that will take least first."""

    def __init__(self, configs: Sequence[RunConfig], out: Path) -> None:
        self.in_order = [Job(config, out) for config in configs]
        """As they were asked for."""
        self.jobs = sorted(self.in_order, key=lambda job: job.seconds_left(1.0))
        """As they are done."""

    @property
    def pace(self) -> float:
        """Seconds that an expected second took so far; near 1 while little is known."""
        expected = sum(float(job.expected[: job.done].sum()) for job in self.jobs)
        return (sum(job.seconds for job in self.jobs) + ENOUGH) / (expected + ENOUGH)

    @property
    def work(self) -> float:
        """All of it, in expected seconds."""
        return sum(job.work for job in self.jobs)

    @property
    def work_done(self) -> float:
        """What is done of it, in expected seconds; what failed will not be done."""
        return sum(job.work if job.troubles else job.work_done for job in self.jobs)

    @property
    def seconds_left(self) -> float:
        pace = self.pace
        return sum(job.seconds_left(pace) for job in self.jobs if not job.troubles)

    def run(self, origin: dict[str, Any], watcher: Watcher, extras: Extras) -> list[Job]:
        """All of them, and what is to be made of each; returns those with troubles."""
        for job in self.jobs:
            _finish(job, origin, watcher, extras)
        return [job for job in self.jobs if job.troubles]


def _finish(job: Job, origin: dict[str, Any], watcher: Watcher, extras: Extras) -> None:
    """One run to its end."""
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
            f"{job.home} has {job.done} of {job.config.episodes} episodes and no checkpoint to resume from; move it "
            f"away to start over"
        )
    else:
        resume(job.home, **how)
