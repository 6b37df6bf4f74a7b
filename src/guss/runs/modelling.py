"""Models of logged data (`guss fit`), and the models of a stored run as they were at any of its episodes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from guss.agent.agent import Agent
from guss.agent.learner import Batch, Learner, diverged, divergence_error
from guss.agent.settings import AgentSettings
from guss.agent.systems import Checked
from guss.agent.traces import Trace, pieces, read_trace
from guss.constraint import Constraint
from guss.errors import GussError
from guss.models.examples import Examples
from guss.models.judging import FitReport
from guss.runs.config import spec_of_run
from guss.runs.learning import batch_of, capacity_of
from guss.runs.lines import num_random, read_episodes
from guss.runs.records import read_start, trace_path
from guss.runs.running import read_config
from guss.spaces import TINY
from guss.task import Grid, Task
from guss.types import ContinuousActions, Observations


class Log(NamedTuple):
    """What was logged, and how a model is to be made of it."""

    settings: AgentSettings
    system: Task  # as it was described
    task: Task  # as plans see it
    seeds: tuple[int, ...]
    capacity: int
    before: Batch | None  # what was known before the first episode
    episodes: list[Batch]
    num_random: int
    """Of them, how many at the start had random actions: a run fits nothing before they are over."""

    @property
    def keys(self) -> Array:
        """A random key per seed, as a run has."""
        return jax.vmap(jax.random.key)(jnp.asarray(self.seeds, jnp.int32))


class FitNews(NamedTuple):
    """How good the models are after one fit; arrays have a leading axis S."""

    episodes: int  # learned from
    rows: int
    report: FitReport
    r2_horizon: np.ndarray | None  # on the episode that follows, [S, D]
    seconds: float
    examples: list[list[Examples]]  # of every seed and learned cost


def log_of_run(home: Path, episodes: int | None = None) -> Log:
    """The traces of a run, of its first `episodes` or of all that are finished."""
    config = read_config(home)
    system = spec_of_run(config).make_task()
    task, planned = config.tasks(system)
    rows = read_episodes(home)
    done = min((sum(row["seed"] == seed for row in rows) for seed in config.seeds), default=0)
    wanted = done if episodes is None else episodes
    if not (config.data is None) <= wanted <= done:  # with logged data there is something to learn from before any
        raise GussError(f"{home} has {done} finished episodes, asked for {wanted}")
    checked, start = Checked(task), read_start(home, config.data)
    batches = []
    for episode in range(wanted):
        each = [
            _rows(checked, read_trace(trace_path(home, seed, episode)), task.episode_length) for seed in config.seeds
        ]
        batches.append(jax.tree.map(lambda *x: np.stack(x), *each))
    before = None if start is None else batch_of(checked, start, len(config.seeds))
    return Log(config, system, planned, config.seeds, capacity_of(config, task), before, batches, num_random(rows))


def log_of_files(trace: Trace, task: Task, settings: AgentSettings, seed: int) -> Log:
    """Logged data from elsewhere, cut into episodes; all of them count, none is taken for random."""
    system, (task, planned) = task, settings.tasks(task)
    checked = Checked(task)
    checked.batch(trace)  # tell what is wrong by the row of the whole
    said = trace._replace(knows_end=True)  # a warning that they do not was given for the whole
    batches = [batch_of(checked, piece, 1) for piece in pieces(said, task.episode_length)]
    capacity = len(batches) * task.episode_length
    settings = dataclasses.replace(settings, initial_episodes=0, initial_steps=None)
    return Log(settings, system, planned, (seed,), capacity, None, batches, 0)


def _rows(checked: Checked, trace: Trace, length: int) -> Batch:
    """An episode as a run holds it: as long as can be, what comes after its end not to be learned from."""
    pad = lambda x: np.pad(x, [(0, length - len(x)), *[(0, 0)] * (x.ndim - 1)])  # noqa: E731
    return jax.tree.map(pad, checked.batch(trace))


def fit_log(
    log: Log, *, in_turn: bool, test: bool, on_fit: Callable[[FitNews], Any] | None = None
) -> tuple[Learner, list[FitNews]]:
    """Fit to all episodes, or with `test` to all but the last, which judges the models at the horizon.

    `in_turn`: after every episode, each fit going on from the one before, as a run does; the models are then those of
    the run, bit for bit (same versions, machine type and threads).
    """
    if not log.settings.learns:
        raise GussError(f"method {log.settings.method!r} with model {log.settings.model!r} learns nothing from data")
    count = len(log.episodes) - test
    if count < 1 and log.before is None:
        raise GussError("there is one episode only, and it was to be kept for judging; learn from it with --no-test")
    learner = Learner(log.settings, log.task, log.keys, log.capacity)
    if log.before is not None:
        learner.add(log.before)
    told = []
    for number in range(count + 1):
        if number > 0:
            learner.add(log.episodes[number - 1])
        if number == count or (in_turn and number >= log.num_random and learner.rows > 0):
            told.append(_fit(log, learner, number))
            if on_fit is not None:
                on_fit(told[-1])
    return learner, told


def _fit(log: Log, learner: Learner, number: int) -> FitNews:
    """One fit, with the random key that a run has for its episode of that number."""
    started = time.perf_counter()
    keys = jax.vmap(lambda key: jax.random.fold_in(jax.random.fold_in(key, number), 0))(log.keys)
    report = learner.fit(keys)
    assert report is not None
    if (broken := diverged(report)).any():
        raise divergence_error(number, [s for s, bad in zip(log.seeds, broken, strict=True) if bad])
    ahead = learner.ahead(log.episodes[number]) if number < len(log.episodes) else None
    report = jax.tree.map(np.asarray, report)
    return FitNews(number, learner.rows, report, ahead, time.perf_counter() - started, learner.examples())


def save_models(folder: Path, log: Log, learner: Learner, last: FitNews) -> list[Path]:
    """An agent per seed, ready to act or to go on learning: `Agent.load(file, system)`."""
    own = log.settings.arguments() | {"initial_episodes": 0, "initial_steps": None}
    files = []
    for i, seed in enumerate(log.seeds):
        agent = Agent(log.system, seed=seed, preset={}, **own)
        mine = Learner(log.settings, log.task, log.keys[i : i + 1], log.capacity)
        mine.restore(jax.tree.map(lambda x, i=i: x[i : i + 1], learner.state), learner.meta())
        agent.adopt(mine, jax.tree.map(lambda x, i=i: x[i], last.report))
        files.append(folder / (f"seed{seed}.ckpt" if len(log.seeds) > 1 else "model.ckpt"))
        agent.save(files[-1])
    return files


# ---------------------------------------------------------------------------------------------- data without a Task

UNKNOWN = "logged data"


def _nothing(*_: Any) -> Array:
    return jnp.zeros(())


def _nowhere(_: Any) -> Array:
    return jnp.zeros((1,))


def _cost_names(trace: Trace) -> tuple[str, ...]:
    if trace.cost is None or trace.cost_names is not None:
        return trace.cost_names or ()
    width = trace.cost.shape[1]
    if trace.cost_labels is not None and len(trace.cost_labels) == width:
        return trace.cost_labels
    return ("cost",) if width == 1 else tuple(f"cost {i}" for i in range(width))


def task_of(trace: Trace) -> Task:
    """What can be said of a system by its data alone: sizes and ranges. Enough for a model, not for planning."""
    action = np.asarray(trace.action, float).reshape(len(trace.action), -1)
    if not np.isfinite(action).all():
        row = int(np.argmin(np.isfinite(action).all(axis=1)))
        raise GussError(f"action of the trace is not finite in row {row}: {action[row].tolist()}")
    low, high = action.min(axis=0), action.max(axis=0)
    largest = np.maximum(np.abs(low), np.abs(high))
    still = high - low <= np.maximum(1e-6 * largest, 4 * TINY)  # one value up to rounding: any range around it will do
    room = np.where(still, np.maximum(largest, 1.0), 0.0)
    length = max(len(piece.obs) for piece in pieces(trace, len(trace.obs)))
    size, costs = trace.obs.shape[1], _cost_names(trace)
    return Task(
        name=UNKNOWN,
        observations=Observations(low=(-np.inf,) * size, high=(np.inf,) * size, names=trace.obs_names),
        actions=ContinuousActions(
            tuple((low - room).tolist()), tuple((high + room).tolist()), names=trace.action_names
        ),
        reward=None if trace.reward is not None else _nothing,
        constraints=[Constraint("none", _nothing)] if trace.cost is None else [Constraint(name) for name in costs],
        descriptor=_nowhere,
        grid=Grid(low=(0.0,), high=(1.0,), cells=(1,)),
        episode_length=min(length, max(len(trace.obs) // 5, 1)) if len(trace.obs) == length else length,
        learns_end=bool(trace.terminated.any()),
    )
