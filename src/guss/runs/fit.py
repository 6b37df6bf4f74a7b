"""Fits models to logged data (`guss fit`), and refits the models that a stored run had at any of its episodes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from guss import keys as streams
from guss.agent import Agent
from guss.collect.datasets import Dataset, read_trace, split_episodes
from guss.collect.inputs import InputChecker
from guss.constraint import Constraint
from guss.errors import GussError
from guss.methods.factory import make_method
from guss.methods.planning import Planning
from guss.methods.settings import AgentSettings
from guss.models.evaluation import FitReport, check_fit
from guss.models.unsafe_examples import Examples
from guss.runs.config import spec_of_run
from guss.runs.results import read_config
from guss.runs.rows import num_random, read_episodes
from guss.runs.store import read_start, trace_path
from guss.runs.trainer import capacity_of, ignore
from guss.spaces import TINY
from guss.task import Grid, Task
from guss.types import ContinuousActions, Observations, Trajectory


class Log(NamedTuple):
    """Logged episodes, and the settings of the model to fit to them."""

    settings: AgentSettings
    system: Task  # as the user described it
    task: Task  # the planning task
    seeds: tuple[int, ...]
    capacity: int
    before: Trajectory | None  # logged data from before the first episode
    episodes: list[Trajectory]  # [S, 1, T, …] each
    num_random: int
    """Number of initial episodes with random actions; a run does not fit a model before they are finished."""

    @property
    def keys(self) -> Array:
        """A random key per seed, as in a run."""
        return streams.of_seeds(self.seeds)

    def method(self) -> Planning:
        """The method that learns from the log."""
        if not self.settings.learns:
            name, model = self.settings.method, self.settings.model
            raise GussError(
                f"method {name!r} with model {model!r} learns nothing from data; choose a planning method and a "
                f"learned model, such as --method guss --model darmdn"
            )
        return cast(Planning, make_method(self.settings, self.task, self.capacity))


class FitSummary(NamedTuple):
    """Evaluation of the models after one fit; arrays have a leading axis S."""

    episodes: int  # in the training data
    rows: int
    report: FitReport
    r2_horizon: np.ndarray | None  # on the next episode, [S, D]
    seconds: float
    examples: list[list[Examples]]  # of every seed and learned cost


def log_of_run(home: Path, episodes: int | None = None) -> Log:
    """The traces of a run: of its first `episodes`, or of all finished episodes."""
    config = read_config(home)
    system = spec_of_run(config).make_task()
    task, planning_task = config.tasks(system)
    rows = read_episodes(home)
    done = min((sum(row["seed"] == seed for row in rows) for seed in config.seeds), default=0)
    wanted = done if episodes is None else episodes
    if not (config.data is None) <= wanted <= done:  # with logged data, 0 episodes are enough to fit a model
        raise GussError(f"cannot fit a model to the first {wanted} episodes of {home}: it has {done} finished episodes")
    checker, start = InputChecker(task), read_start(home, config.data)
    found = []
    for episode in range(wanted):
        each = [_padded(checker.rows(read_trace(trace_path(home, seed, episode))), task) for seed in config.seeds]
        found.append(jax.tree.map(lambda *x: np.stack(x)[:, None], *each))
    before = None if start is None else checker.dataset(start, len(config.seeds))
    size = capacity_of(config, task)
    return Log(config, system, planning_task, config.seeds, size, before, found, num_random(rows))


def log_of_files(data: Dataset, task: Task, settings: AgentSettings, seed: int) -> Log:
    """Logged data from files, split into episodes; no episode is treated as random."""
    system, (task, planning_task) = task, settings.tasks(task)
    checker = InputChecker(task)
    checker.rows(data)  # checked as a whole, so that errors name rows of the file
    warned = data._replace(knows_end=True)  # the check of the whole has already warned about unknown ends
    episodes = [checker.dataset(piece) for piece in split_episodes(warned, task.episode_length)]
    settings = dataclasses.replace(settings, initial_episodes=0, initial_steps=None)
    return Log(settings, system, planning_task, (seed,), len(episodes) * task.episode_length, None, episodes, 0)


def _padded(trajectory: Trajectory, task: Task) -> Trajectory:
    """An episode [T, …] padded to the full episode length; padded steps are masked."""
    missing = task.episode_length - len(trajectory.obs)
    return jax.tree.map(lambda x: np.pad(x, [(0, missing), *[(0, 0)] * (x.ndim - 1)]), trajectory)


def fit_log(
    log: Log, *, in_turn: bool, test: bool, on_fit: Callable[[FitSummary], Any] = ignore
) -> tuple[Any, list[FitSummary]]:
    """The state fitted to all episodes; with `test`, to all but the last, on which the models are evaluated.

    That evaluation is R² at the horizon. `in_turn`: fit after every episode, each fit warm-started from the previous
    one, as in a run; the models are then bit for bit those of the run (with the same versions, machine type and number
    of threads).
    """
    method = log.method()
    count = len(log.episodes) - test
    if count < 1 and log.before is None:
        raise GussError("the data have a single episode, which is held out for evaluation; train on it with --no-test")
    state = method.init_all(streams.derived(log.keys, streams.FIRST_STATE))
    if log.before is not None:
        state, _ = method.update_all(state, log.before, streams.updates(log.keys, 0))
    found: list[FitSummary] = []
    for number in range(count + 1):
        rows = int(np.asarray(state.data.filled)[0])
        if number == count or (in_turn and number >= log.num_random and rows > 0):
            started = time.perf_counter()
            state, metrics = method.prepare(state, streams.fits(log.keys, number))  # the key of a run's episode
            check_fit(metrics, number, log.seeds)
            ahead = method.evaluate(state, log.episodes[number]) if number < len(log.episodes) else None
            report = jax.tree.map(np.asarray, metrics["report"])
            seconds = time.perf_counter() - started
            found.append(FitSummary(number, rows, report, ahead, seconds, method.examples(state)))
            on_fit(found[-1])
        if number < count:
            state, _ = method.update_all(state, log.episodes[number], streams.updates(log.keys, number))
    return state, found


def save_models(folder: Path, log: Log, state: Any, last: FitSummary) -> list[Path]:
    """An agent per seed, ready to act or to continue learning: `Agent.load(file, system)`."""
    own = log.settings.arguments() | {"initial_episodes": 0, "initial_steps": None}
    files = []
    for i, seed in enumerate(log.seeds):
        agent = Agent(log.system, seed=seed, preset={}, **own)
        mine = jax.tree.map(lambda x, i=i: x[i : i + 1], state)
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


def _cost_names(data: Dataset) -> tuple[str, ...]:
    cost = data.trajectory.cost
    if cost is None or data.cost_names is not None:
        return data.cost_names or ()
    width = cost.shape[1]
    if data.cost_labels is not None and len(data.cost_labels) == width:
        return data.cost_labels
    return ("cost",) if width == 1 else tuple(f"cost {i}" for i in range(width))


def task_of(data: Dataset) -> Task:
    """A Task with the sizes and ranges of logged data: enough to fit a model, not to plan."""
    trace = data.trajectory
    action = np.asarray(trace.action, float).reshape(len(trace.action), -1)
    if not np.isfinite(action).all():
        row = int(np.argmin(np.isfinite(action).all(axis=1)))
        raise GussError(f"the action of the trace is not finite in row {row}: {action[row].tolist()}; remove that row")
    low, high = action.min(axis=0), action.max(axis=0)
    largest = np.maximum(np.abs(low), np.abs(high))
    still = high - low <= np.maximum(1e-6 * largest, 4 * TINY)  # constant up to rounding: any range around it will do
    room = np.where(still, np.maximum(largest, 1.0), 0.0)
    length = max(piece.num_rows for piece in split_episodes(data, data.num_rows))
    size, costs = trace.obs.shape[1], _cost_names(data)
    return Task(
        name=UNKNOWN,
        observations=Observations(low=(-np.inf,) * size, high=(np.inf,) * size, names=data.obs_names),
        actions=ContinuousActions(tuple((low - room).tolist()), tuple((high + room).tolist()), names=data.action_names),
        reward=None if trace.reward is not None else _nothing,
        constraints=[Constraint("none", _nothing)] if trace.cost is None else [Constraint(name) for name in costs],
        descriptor=_nowhere,
        grid=Grid(low=(0.0,), high=(1.0,), cells=(1,)),
        episode_length=min(length, max(data.num_rows // 5, 1)) if data.num_rows == length else length,
        learns_end=bool(trace.terminated.any()),
    )
