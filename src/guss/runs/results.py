"""`Run`: the settings, episodes, measures and agent of a stored run."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from pathlib import Path

from guss.agent import Agent
from guss.errors import GussError
from guss.history import Episode
from guss.runs.config import RunConfig
from guss.runs.description import measure_of, read_stored
from guss.runs.metrics import THRESHOLDS, RunMetrics, run_metrics
from guss.runs.paths import load_plugins_of
from guss.runs.rows import read_episodes, shares_by_cost
from guss.runs.store import by_seed, by_seed_if_stored
from guss.usercode import user_code_allowed
from guss.validation import build


class Run:
    """A stored run, finished or not, as returned by `guss.run`.

    Raises GussError if the folder is not a run, or a record is damaged.

    Example:
        >>> run = guss.Run("results/quick/safe-pendulum-guss-d6d81405")
        >>> run.config.method, run.episodes[0].phase, run.metrics.mar.shape
        ('guss', 'random', (3,))
    """

    def __init__(self, path: Path | str) -> None:
        """`path`: the run folder, as printed by `guss run`."""
        self.path = Path(path)
        self._stored = read_stored(self.path)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @cached_property
    def config(self) -> RunConfig:
        return read_config(self.path)

    @property
    def episodes(self) -> list[Episode]:
        """Finished episodes of all seeds, in the order in which they were recorded."""
        return list(map(Episode.of, read_episodes(self.path)))

    @property
    def metrics(self) -> RunMetrics:
        """The paper's measures and the jitter of every seed. Raises GussError if there is no finished episode yet."""
        rows = read_episodes(self.path)
        if not rows:
            raise GussError(f"{self.path} has no finished episode yet")
        measure = measure_of(self._stored.env, rows, self._stored.facts)
        rewards, unsafe, steps = (by_seed(rows, name) for name in (measure, "unsafe_pct", "steps"))
        jitter = by_seed_if_stored(rows, "jitter")
        return run_metrics(rewards, unsafe, steps, THRESHOLDS.get(self._stored.env), shares_by_cost(rows), jitter)

    @cached_property
    def agent(self) -> Agent:
        """The agent of the first seed, which can act, explain its plans and continue learning (`Agent.from_run`)."""
        return Agent.from_run(self.path)


def read_config(home: Path) -> RunConfig:
    """The settings of a stored run. Imports its plugins first."""
    stored = read_stored(home)
    if user_code_allowed() and stored.facts is not None:
        load_plugins_of(home, stored.facts.plugins, stored.started_in)
    config = build(RunConfig, stored.config, "settings")
    folder = None if stored.started_in is None else str(stored.started_in)
    return dataclasses.replace(config, started_in=folder)
