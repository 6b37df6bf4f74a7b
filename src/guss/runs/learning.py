"""A learning run (Alg. 1): random episodes, then fit, plan, act, repeat; all seeds at once."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from guss.agent.episodes import lower_episodes, run_episodes
from guss.agent.exploration import explore_episodes
from guss.agent.fleets import Fleet
from guss.agent.hosting import Actor, Played, lower_plans, planning_actor, play, random_actor
from guss.agent.learner import EVALUATION, Batch, Learner, diverged, divergence_error
from guss.agent.systems import Checked, check_finite, with_names
from guss.agent.traces import Trace
from guss.errors import GussError
from guss.models.examples import Examples, Knowledge
from guss.models.judging import FitReport, plain
from guss.planners import make_planner
from guss.programs import Ahead
from guss.runs.config import RunConfig
from guss.runs.loops import FinalFit, Loop, OnStep, Outcome
from guss.runs.timing import CompileClock
from guss.task import Task

PLANNER = "planner"
"""Its name among the programs that are compiled ahead."""


def capacity_of(config: RunConfig, task: Task) -> int:
    """Rows for everything a run will ever hold, in whole episodes."""
    return (config.episodes + math.ceil(config.data_rows / task.episode_length)) * task.episode_length


def batch_of(checked: Checked, data: Trace, num_seeds: int) -> Batch:
    """The same logged rows for every seed, as a learner takes them: [S, N, …]."""
    return jax.tree.map(lambda x: np.repeat(x[None], num_seeds, axis=0), checked.batch(data))


class PlanningLoop(Loop):
    """Alg. 1 for all seeds at once, an episode at a time."""

    def __init__(self, config: RunConfig, data: Trace | None = None) -> None:
        super().__init__(config)
        if data is not None:
            names = (data.obs_names, data.action_names)
            self.task, self.planned = (with_names(task, *names) for task in (self.task, self.planned))
        if config.horizon > self.task.episode_length:
            raise GussError(
                f"the horizon of {config.horizon} is longer than the episode of {self.task.episode_length} steps"
            )
        self.planner = make_planner(
            config.method, self.task, horizon=config.horizon, budget=config.budget, **config.planner
        )
        self.learner = Learner(config, self.planned, self.keys, capacity_of(config, self.task))
        self.knowledge = Knowledge()
        self.ahead, self._compiling = Ahead(), False
        if data is not None:
            self.learner.add(batch_of(Checked(self.task), data, len(config.seeds)))

    @property
    def state(self) -> Any:
        """Models and data."""
        return self.learner.state

    def about_state(self) -> dict[str, Any]:
        """How full the buffers are, and how often models were fitted."""
        return self.learner.meta()

    def take(self, state: Any, about: dict[str, Any]) -> None:
        """Go on with stored models and data."""
        self.learner.restore(state, about)

    @property
    def learned(self) -> Any:
        """The models, as they are in the state."""
        return {"models": self.learner.models} if self.learner.per_seed else {}

    @property
    def ready(self) -> bool:
        """Whether there is a model to plan with."""
        return self.config.plans and (not self.learner.per_seed or self.learner.fits > 0)

    @property
    def is_random(self) -> bool:
        """Whether the next episode has random actions: never after a planned one, whatever an older guss counted."""
        return self.learner.fits == 0 and super().is_random

    def play(self, number: int, keys: Array, random: bool, on_step: OnStep = None) -> Played:
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
                models = learner.models
                if learner.per_seed and len(self.fleets) > 1:
                    models = jax.tree.map(lambda x, mine=mine: x[mine], models)
                yield fleet, planning_actor(self.planner, models, self.planned, keys[mine], learner.per_seed)

    def _compile_ahead(self, keys: Array) -> None:
        """Begin to compile in threads what planned episodes need."""
        self._compiling = True
        learner, how = self.learner, dict[str, Any](per_seed=self.learner.per_seed)
        learner.compile_ahead(self.ahead, self._fit_keys(keys))
        if not self.fleets:
            arguments = (self.planner, learner.models, self.task, keys)
            self.ahead.start(PLANNER, lambda: lower_episodes(*arguments, planned=self.planned, **how))
        elif len(self.fleets) == 1:
            self.ahead.start(PLANNER, lambda: lower_plans(self.planner, learner.models, self.planned, keys, **how))
        learner.compile_evaluation(self.ahead, self._fit_keys(keys))

    def episode(self, on_step: OnStep = None) -> Outcome:
        """One episode of every seed, what to tell, and what to note beside it."""
        started, number = time.perf_counter(), self.done
        keys = self._keys_of(number)
        if self.config.plans and not self._compiling:
            self._compile_ahead(keys)
        report, fit_seconds, ahead, examples, unsaid = None, 0.0, None, list[list[Examples]](), list[str]()
        random = self.is_random
        with CompileClock() as clock:
            if not random:
                examples = self.learner.examples()
                unsaid = self._warn(self.knowledge.news(examples, self.config.seeds))
                report = self._fit(keys, number)
                fit_seconds = time.perf_counter() - started
                self.ahead.wait(EVALUATION, PLANNER, on_wait=self.compiling)
            self.stage("random actions" if random else "planning")
            played = self.play(number, keys, random, on_step)
            batch = played.batch()
            if not random:  # before this episode is learned from
                ahead = self.learner.ahead(batch)
            self.learner.add(batch)
        r2 = None if report is None else float(np.asarray(report.r2).mean())
        rest = time.perf_counter() - started - fit_seconds
        news, timing = self.finish([played], "random" if random else "plan", r2, fit_seconds, rest, clock)
        news.warnings = tuple(unsaid)
        counts = {each[0].name: [one.unsafe for one in each] for each in zip(*examples, strict=True)}
        timing |= {"unsafe_examples": counts} if counts else {}
        return Outcome([played], news, timing | _error_record(report, ahead))

    def _warn(self, texts: list[str]) -> list[str]:
        """Give warnings before the fit and the episode that they are about; returns those that nobody was given."""
        if self.on_warning is None:
            return texts
        for text in texts:
            self.on_warning(text)
        return []

    def _keys_of(self, number: int) -> Array:
        """A random key per seed for an episode."""
        return jax.vmap(lambda key: jax.random.fold_in(key, number))(self.keys)

    def _fit_keys(self, keys: Array) -> Array:
        """Of the keys of an episode, those of the fit before it."""
        return jax.vmap(lambda key: jax.random.fold_in(key, 0))(keys)

    def _fit(self, keys: Array, number: int) -> FitReport | None:
        report, broken = self._try_fit(keys)
        if broken:
            raise divergence_error(number, broken)
        return report

    def _try_fit(self, keys: Array) -> tuple[FitReport | None, list[int]]:
        """The fit for an episode with these keys, and the seeds for which it diverged; then no model is changed."""

        def before(program: str) -> None:
            self.ahead.wait(program, on_wait=self.compiling)
            self.stage("fitting the model")

        report = self.learner.fit(self._fit_keys(keys), before)
        bad = [] if report is None else diverged(report).tolist()
        return report, [seed for seed, broken in zip(self.config.seeds, bad, strict=False) if broken]

    def fit_final(self) -> FinalFit | None:
        """The fit that one more episode would begin with."""
        started = time.perf_counter()
        report, broken = self._try_fit(self._keys_of(self.done))
        return None if report is None else FinalFit(None if broken else report, broken, time.perf_counter() - started)


def _error_record(report: FitReport | None, ahead: np.ndarray | None) -> dict[str, Any]:
    """The model's error as plain numbers, a list per seed."""
    if report is None:
        return {}
    names = ("nll", "r2", "ks", "train_loss", "best_epoch")
    record = {name: plain(getattr(report, name)) for name in names}
    if report.outcome is not None:
        record |= {name: plain(value) for name, value in report.outcome._asdict().items()}
    return record | ({} if ahead is None else {"r2_horizon": plain(ahead)})
