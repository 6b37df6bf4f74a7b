"""How long runs take: an estimate from their settings, corrected by the time that their episodes took so far."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from guss.errors import GussError
from guss.runs.config import RunConfig, spec_of_run
from guss.runs.rows import read_timings

# Seconds of one core, rounded from the records in `results/`.
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


def seconds_until_done(left: Sequence[float], workers: int) -> float:
    """Seconds until runs with that much work left are finished, if each worker takes the longest one next."""
    busy = [0.0] * max(workers, 1)
    for seconds in sorted(left, reverse=True):
        heapq.heapreplace(busy, busy[0] + seconds)
    return max(busy)


ENOUGH = 60.0
"""Expected seconds after which measured time and estimate have equal weight; short runs are mostly overhead."""


class Pace:
    """Measured seconds per expected second of each run, from the timings of its episodes."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float, float]] = {}

    def look(self, home: Path, expected: np.ndarray, done: int) -> None:
        """Read the timings of a run if it has finished episodes since the last look."""
        if done == self._seen.get(home.name, (0,))[0]:
            return
        try:
            lines = [line for line in read_timings(home) if line["episode"] < done]
        except GussError:  # the worker that executes the run reports it
            return
        names = ("fit_seconds", "plan_seconds", "compile_seconds")  # older runs may lack some
        fit, plan, compilation = (sum(line.get(name) or 0.0 for line in lines) for name in names)
        seconds = fit + plan - compilation
        self._seen[home.name] = done, seconds, float(expected[:done].sum())

    def of(self, name: str) -> float:
        """The pace of a run, by that of all runs if it has few episodes."""
        spent, work = (sum(each[i] for each in self._seen.values()) for i in (1, 2))
        common = (spent + ENOUGH) / (work + ENOUGH)
        _, own, expected = self._seen.get(name, (0, 0.0, 0.0))
        return (own + ENOUGH * common) / (expected + ENOUGH)
