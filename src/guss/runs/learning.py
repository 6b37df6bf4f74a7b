"""A learning run (Alg. 1): random episodes, then fit, plan, act, repeat; all seeds at once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from guss.agent.episodes import run_episodes
from guss.agent.exploration import explore_episodes
from guss.agent.hosting import Actor, Fleet, Played, make_fleet, planning_actor, play, random_actor
from guss.agent.learner import Batch, Learner, diverged, divergence_error
from guss.agent.settings import AgentSettings
from guss.agent.systems import Checked, check_finite
from guss.agent.traces import Trace
from guss.checkpoint import Stored
from guss.envs import EnvSpec
from guss.envs.adapting import find_env
from guss.errors import GussError
from guss.models.judging import FitReport, plain
from guss.planners import make_planner
from guss.runs.records import per_episode
from guss.runs.timing import CompileClock
from guss.task import Task


@dataclass(frozen=True, kw_only=True)
class RunConfig(AgentSettings):
    """Everything that decides a run's outcome."""

    env: str
    seeds: tuple[int, ...]
    episodes: int
    """At most this many, random ones included."""
    target: float | None = None
    """Stop after a planned episode whose mean reward, over all seeds, reaches this."""
    data: str | None = None
    """Digest of the logged transitions to start from, if any."""
    data_rows: int = 0
    """How many they are."""
    overlap: bool = False
    """Plan for one half of the seeds while the environments of the other half step, where they are not compiled."""
    episode_length: int | None = None
    """Steps of an episode, where an environment of the user's own does not say."""
    without_cost: bool = False
    """An environment of the user's own tells no cost: nothing is unsafe."""
    step_timeout: float = 60.0
    """Seconds that a step of an environment may take; beyond, its episode is given up."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise GussError(f"a run needs seeds, each once, got {list(self.seeds)}")
        if self.episodes < 1:
            raise GussError(f"a run needs at least 1 episode, got {self.episodes}")
        if self.episode_length is not None and self.episode_length < 1:
            raise GussError(f"an episode has at least 1 step, got --episode-length {self.episode_length}")
        if not self.step_timeout > 0.0:
            raise GussError(f"the step_timeout is a number of seconds, more than 0, got {self.step_timeout}")
        if self.initial_episodes == 0 and self.learns and self.data is None:
            raise GussError(
                "a learned model needs at least 1 random episode at the start, or logged data; got initial_episodes 0"
            )
        if self.data is not None and not self.learns:
            raise GussError(f"method {self.method!r} with model {self.model!r} learns nothing, so data are of no use")

    def to_json(self) -> dict[str, Any]:
        """As plain data; of logged data, and of what was added later, only where they are used."""
        silent = [] if self.data is not None else ["data", "data_rows"]
        default = {"overlap": False, "episode_length": None, "without_cost": False, "step_timeout": 60.0}
        silent += [name for name, value in default.items() if getattr(self, name) == value]
        return {k: v for k, v in super().to_json().items() if k not in silent}


@dataclass
class EpisodeNews:
    """What is told after every episode, for display."""

    episode: int
    phase: str
    mean_reward: float
    unsafe_pct: float
    model_r2: float | None
    seconds_fit: float
    seconds_plan: float
    seconds_compile: float
    steps: float | None = None
    """Mean length of the episodes, where they did not all have full length."""
    trouble: tuple[str, ...] = ()
    """Hard limits that were violated, environments that failed."""


def spec_of_run(config: RunConfig) -> EnvSpec:
    """The environment that a run is on."""
    return find_env(config.env, episode_length=config.episode_length, without_cost=config.without_cost)


def capacity_of(config: RunConfig, task: Task) -> int:
    """Rows for everything a run will ever hold, in whole episodes."""
    return (config.episodes + math.ceil(config.data_rows / task.episode_length)) * task.episode_length


def batch_of(checked: Checked, data: Trace, num_seeds: int) -> Batch:
    """The same logged rows for every seed, as a learner takes them: [S, N, …]."""
    return jax.tree.map(lambda x: np.repeat(x[None], num_seeds, axis=0), checked.batch(data))


class Loop:
    """Alg. 1 for all seeds at once, an episode at a time."""

    def __init__(self, config: RunConfig, data: Trace | None = None) -> None:
        spec = spec_of_run(config)
        self.config, self.view = config, spec.view
        self.task, self.planned = config.tasks(spec.make_task())
        """The task by which steps are judged, and as plans see it."""
        if config.horizon > self.task.episode_length:
            raise GussError(
                f"the horizon of {config.horizon} is longer than the episode of {self.task.episode_length} steps"
            )
        self.fleets: list[Fleet] = []
        """The environments to act on, where the task's episodes cannot be compiled; two halves if they overlap."""
        if self.task.reset is None or spec.make_env is not None:
            if spec.make_env is None and not spec.gym_id:
                raise GussError(
                    f"task {self.task.name!r} has no reset function, so there is nothing to act on: return an "
                    f"environment with it, as a pair (environment, Task), or give the Task `step` and `reset`"
                )
            half = -(-len(config.seeds) // (1 + config.overlap))
            parts = [config.seeds[i : i + half] for i in range(0, len(config.seeds), half)]
            self.fleets = [make_fleet(self.task, spec, seeds, config.step_timeout) for seeds in parts]
        self.planner = make_planner(
            config.method, self.task, horizon=config.horizon, budget=config.budget, **config.planner
        )
        self.done = 0
        """Episodes finished."""
        self.steps = np.zeros(len(config.seeds), int)
        """Real steps so far, of every seed."""
        self.over = False
        """Whether all are, or the target is reached."""
        self.keys = jax.vmap(jax.random.key)(jnp.asarray(config.seeds, jnp.int32))
        self.learner = Learner(config, self.planned, self.keys, capacity_of(config, self.task))
        if data is not None:
            self.learner.add(batch_of(Checked(self.task), data, len(config.seeds)))

    def meta(self) -> dict[str, Any]:
        """What a checkpoint keeps beside the arrays."""
        steps, learner = self.steps.tolist(), self.learner.meta()
        return {
            "done": self.done,
            "over": self.over,
            "steps": steps,
            "learner": learner,
            "config": self.config.to_json(),
        }

    def restore(self, stored: Stored) -> None:
        """Go on from a checkpoint."""
        if stored.meta["config"] != self.config.to_json():
            raise GussError(f"the checkpoint {stored.path} is of a run with other settings than its config.json")
        self.done, self.over = stored.meta["done"], stored.meta["over"]
        whole = [self.done * self.task.episode_length] * len(self.config.seeds)  # where not told
        self.steps = np.asarray(stored.meta.get("steps", whole))
        self.learner.restore(stored.restore(self.learner.state), stored.meta["learner"])

    def play(self, number: int, keys: Array, random: bool, on_step: Callable[[int], Any] | None = None) -> Played:
        """One episode of every seed, with random actions or by plans of the models as they are."""
        how, learner = self.config.explores(), self.learner
        if self.fleets:
            played = play(list(self._crews(keys, random)), number, on_step)
        elif random:
            moves = jax.device_get(explore_episodes(self.task, keys, self.task.episode_length, how))
            played = Played.whole(self.task, moves)
        else:
            steps = run_episodes(
                self.planner, learner.models, self.task, keys, planned=self.planned, per_seed=learner.per_seed
            )
            played = Played.whole(self.task, jax.device_get(steps.transition))
        check_finite(self.task, played.moves, number, self.config.seeds)
        return played

    def _crews(self, keys: Array, random: bool) -> Iterator[tuple[Fleet, Actor]]:
        """Each fleet with who acts on it."""
        learner, first = self.learner, 0
        for fleet in self.fleets:
            mine = slice(first, first + len(fleet.seeds))
            first = mine.stop
            if random:
                yield fleet, random_actor(self.task, keys[mine], self.config.explores())
            else:
                models = (
                    jax.tree.map(lambda x, mine=mine: x[mine], learner.models) if learner.per_seed else learner.models
                )
                yield fleet, planning_actor(self.planner, models, self.planned, keys[mine], learner.per_seed)

    def episode(self, on_step: Callable[[int], Any] | None = None) -> tuple[Played, EpisodeNews, dict[str, Any]]:
        """One episode of every seed, what to tell, and what to note beside it."""
        started, number = time.perf_counter(), self.done
        keys = jax.vmap(lambda key: jax.random.fold_in(key, number))(self.keys)
        report, fit_seconds, ahead = None, 0.0, None
        random = self.config.is_random(number)
        with CompileClock() as clock:
            if not random:
                report = self._fit(keys, number)
                fit_seconds = time.perf_counter() - started
            played = self.play(number, keys, random, on_step)
            batch = played.batch()
            if not random:  # before this episode is learned from
                ahead = self.learner.ahead(batch)
            self.learner.add(batch)
        seconds = time.perf_counter() - started
        rewards, unsafe = per_episode(self.task, played)
        news = EpisodeNews(
            episode=number,
            phase="random" if random else "plan",
            mean_reward=float(rewards.mean()),
            unsafe_pct=float(100 * unsafe.mean()),
            model_r2=None if report is None else float(np.asarray(report.r2).mean()),
            seconds_fit=fit_seconds,
            seconds_plan=seconds - fit_seconds,
            seconds_compile=clock.seconds,
            steps=None if (played.length == self.task.episode_length).all() else float(played.length.mean()),
            trouble=_trouble(self.config.seeds, played),
        )
        timing = {"episode": number, "fit_seconds": fit_seconds, "plan_seconds": seconds - fit_seconds}
        timing |= {"compile_seconds": clock.seconds, "compiled_programs": clock.programs}
        timing |= _error_record(report, ahead)
        target = self.config.target
        self.done += 1
        self.steps = self.steps + played.length
        self.over = self.done >= self.config.episodes or (
            target is not None and not random and news.mean_reward >= target
        )
        return played, news, timing

    def _fit(self, keys: Array, number: int) -> FitReport | None:
        report = self.learner.fit(jax.vmap(lambda key: jax.random.fold_in(key, 0))(keys))
        if report is not None and (broken := diverged(report)).any():
            raise divergence_error(number, [s for s, bad in zip(self.config.seeds, broken, strict=True) if bad])
        return report


def _trouble(seeds: tuple[int, ...], played: Played) -> tuple[str, ...]:
    told = []
    for seed, steps, stopped, status in zip(seeds, played.length, played.stopped, played.status, strict=True):
        if stopped:
            told.append(f"seed {seed}: a hard limit was violated, the episode ended after {steps} steps")
        if status != "ok":
            told.append(f"seed {seed}: the environment failed after {steps} steps ({status}), it was made anew")
    return tuple(told)


def _error_record(report: FitReport | None, ahead: np.ndarray | None) -> dict[str, Any]:
    """The model's error as plain numbers, a list per seed."""
    if report is None:
        return {}
    names = ("nll", "r2", "ks", "train_loss", "best_epoch")
    record = {name: plain(getattr(report, name)) for name in names}
    if report.outcome is not None:
        record |= {name: plain(value) for name, value in report.outcome._asdict().items()}
    return record | ({} if ahead is None else {"r2_horizon": plain(ahead)})
