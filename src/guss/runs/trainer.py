"""The training loop of every run and method: prepare → collect episodes of all seeds → update."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Key

from guss import keys as streams
from guss.checkpoint import Stored
from guss.collect.compiled import CompiledCollector, Failures, OnStep
from guss.collect.datasets import Dataset
from guss.collect.episode_metrics import EpisodeMetrics, episode_metrics, summarise
from guss.collect.host import HostCollector
from guss.collect.inputs import InputChecker, with_names
from guss.compilation import Ahead, begin_programs
from guss.envs import EnvSpec
from guss.errors import GussError
from guss.methods.factory import make_method
from guss.methods.signature import check_signature, signature, stored_signature
from guss.models.evaluation import FitReport, check_fit, diverged
from guss.models.training import check_buffer
from guss.models.unsafe_examples import Knowledge
from guss.progress import EpisodeSummary
from guss.runs.compile_clock import CompileClock
from guss.runs.config import RunConfig, spec_of_run
from guss.runs.extension import same_run, stopped_at_target
from guss.task import Task
from guss.types import Trajectory

OnText = Callable[[str], Any]


def ignore(*_: Any) -> None:
    """A callback that does nothing."""


class FinalFit(NamedTuple):
    """The fit after the last episode."""

    report: FitReport | None
    """None if the fit diverged (the previous models are kept) or there were no new data."""
    diverged: list[int]
    """The seeds whose fit diverged."""
    seconds: float


class Iteration(NamedTuple):
    """The results of one iteration: `num_envs` episodes of every seed."""

    trajectory: Trajectory
    metrics: list[list[EpisodeMetrics]]
    failures: Failures
    summary: EpisodeSummary
    timing: dict[str, Any]
    """A line of timings.jsonl."""


class Trainer:
    """A method, its state and a collector: trains all seeds of a run at once."""

    def __init__(self, config: RunConfig, data: Dataset | None = None, *, learning: bool = True) -> None:
        """`data`: logged transitions to start from. `learning=False`: only evaluate, one episode per seed at a time."""
        begin_programs()
        spec = spec_of_run(config)
        task, planning_task = config.tasks(spec.make_task())
        if data is not None:
            names = (data.obs_names, data.action_names)
            task, planning_task = (with_names(each, *names) for each in (task, planning_task))
        self.config, self.view = config, spec.view
        self.task, self.planning_task = task, planning_task
        """The task that scores steps, and the task that the method plans with."""
        if config.plans and config.horizon > task.episode_length:
            raise GussError(
                f"the horizon of {config.horizon} is longer than the episode of {task.episode_length} steps; lower it "
                f"with --horizon"
            )
        self.method = make_method(config, planning_task, capacity_of(config, task))
        self.num_envs = self.method.num_envs if learning else 1
        self._check_episodes()
        check_buffer("one iteration of a run", task, len(config.seeds) * self.num_envs * task.episode_length)
        self.collector = make_collector(task, spec, config, self.num_envs)
        self.keys = streams.of_seeds(config.seeds)
        self.state = self.method.init_all(streams.derived(self.keys, streams.FIRST_STATE))
        self.on_stage: OnText = ignore
        """Called with the name of the current stage, such as compiling or fitting."""
        self.on_warning: OnText = ignore
        """Called at once with each warning about the data; `EpisodeSummary` also contains these warnings."""
        self.done = 0
        """Finished episodes of each seed."""
        self.steps = np.zeros(len(config.seeds), int)
        """Real steps so far, of every seed."""
        self.ended_early = False
        """Whether the system or a hard limit ended an episode early; failures of environments do not count."""
        self.over = False
        """Whether all episodes are finished, or the target is reached."""
        self._knowledge, self._ahead, self._compiling = Knowledge(), Ahead(), False
        if data is not None:
            rows = InputChecker(task).dataset(data, len(config.seeds))
            self.state, _ = self.method.update_all(self.state, rows, streams.updates(self.keys, 0))

    def _check_episodes(self) -> None:
        each, asked = self.method.num_envs, self.config.episodes
        if asked % each:
            near = f"{asked - asked % each} or " if asked > each else ""
            raise GussError(
                f"{self.config.method} runs {each} episodes per seed in parallel, so --episodes must be a multiple of "
                f"{each}, such as {near}{asked - asked % each + each}; got {asked} (or change --method.num-envs)"
            )

    # ---------------------------------------------------------------------------------------------------- the loop

    def iterate(self, on_step: OnStep = None) -> Iteration:
        """Run the next episodes of every seed: prepare, collect, update."""
        started, first, random = time.perf_counter(), self.done, self.is_random
        keys = streams.episodes(self.keys, first, self.num_envs)
        self._compile_ahead(keys)
        prepare: dict[str, Any] = {}
        warnings: list[str] = []
        with CompileClock() as clock:
            if not random:
                examples = self.method.examples(self.state)
                warnings = self._knowledge.news(examples, self.config.seeds)
                for text in warnings:
                    self.on_warning(text)
                prepare = self.prepare(first) | {"examples": examples}
            prepared = time.perf_counter()
            self.on_stage("random actions" if random else "planning" if self.method.plans else "acting")
            if random:
                trajectory, failures = self.collector.explore(keys, self.config.explores(), first, on_step)
            else:
                acting = self.method.acting(self.state)
                trajectory, failures = self.collector.collect(self.method, acting, keys, first, on_step)
            collected = time.perf_counter()
            update = streams.updates(self.keys, first)
            self.state, metrics = jax.block_until_ready(self.method.update_all(self.state, trajectory, update))
            metrics = jax.device_get(metrics)
        self._check_metrics(metrics, first)
        learning = prepared - started + time.perf_counter() - collected
        seconds = {"fit_seconds": learning, "plan_seconds": collected - prepared, "compile_seconds": clock.seconds}
        timing = {"episode": first, **seconds, "compiled_programs": clock.programs}
        timing |= self.method.record(prepare, metrics)
        found = episode_metrics(self.task, trajectory)
        flat = [one for each in found for one in each]
        self.ended_early |= any(one.ended_early for one in flat)
        summary = summarise(
            self.task,
            flat,
            timing,
            episode=first + self.num_envs - 1,
            phase="random" if random else self.method.phase,
            ends_early=self.ended_early,
            model_r2=_model_r2(prepare | metrics),
            trouble=tuple(self._troubles(found, failures)),
            warnings=tuple(warnings),
        )
        self._count(found, summary)
        return Iteration(trajectory, found, failures, summary, timing)

    def prepare(self, number: int) -> dict[str, Any]:
        """Prepare the method to act in episode `number`; returns metrics of the fit, if there was one."""
        metrics = self._try_prepare(number)
        check_fit(metrics, number, self.config.seeds)
        self._ahead.wait(on_wait=self._compiling_stage)
        return metrics

    def prepare_final(self) -> FinalFit:
        """Fit the model as before a next episode; the report is None if there is nothing to fit."""
        started = time.perf_counter()
        report = self._try_prepare(self.done).get("report")
        broken = [] if report is None else self._seeds_where(diverged(report))
        return FinalFit(None if broken else report, broken, time.perf_counter() - started)

    def _try_prepare(self, number: int) -> dict[str, Any]:
        def before(program: str) -> None:
            self._ahead.wait(program, on_wait=self._compiling_stage)
            self.on_stage("fitting the model")

        self.state, metrics = self.method.prepare(self.state, streams.fits(self.keys, number), before)
        return metrics

    def _compile_ahead(self, keys: Key[Array, "S E"]) -> None:
        """Compile the programs of planned episodes in threads while random episodes run."""
        if self._compiling or not self.method.plans:
            return
        self._compiling = True
        fits = streams.fits(self.keys, self.done)
        acting = (self._ahead, self.method, self.method.acting(self.state), keys)
        self.method.compile_ahead(self._ahead, self.state, fits, partial(self.collector.compile_ahead, *acting))

    def _compiling_stage(self, program: str) -> None:
        self.on_stage(f"compiling the {program}")

    def _check_metrics(self, metrics: dict[str, Any], first: int) -> None:
        for name, values in metrics.items():
            unknown = np.isnan(values) & name.startswith(("model_", "r2_"))  # too few held-out rows to evaluate
            broken = ~np.isfinite(np.asarray(values)) & ~unknown
            if broken.any():
                seeds = self._seeds_where(broken.reshape(len(self.config.seeds), -1).any(axis=1))
                raise GussError(
                    f"{self.config.method} diverged in episode {first} (seeds {seeds}: {name} is not finite); lower "
                    f"its learning rates: `guss run --method {self.config.method} --help` lists their flags. Earlier "
                    f"episodes are kept."
                )

    def _seeds_where(self, bad: np.ndarray) -> list[int]:
        return [seed for seed, each in zip(self.config.seeds, bad, strict=True) if each]

    @property
    def is_random(self) -> bool:
        """Whether the next episode has random actions, because a seed still has too few steps to learn from."""
        return self.config.is_random(self.done, int(self.steps.min()), self.task.episode_length)

    @property
    def ready(self) -> bool:
        """Whether the method has learned enough to act."""
        return not self.config.acts_randomly and self.done > 0 and self.method.ready(self.state)

    # ------------------------------------------------------------------------------------- counting, storing, resuming

    def _count(self, metrics: list[list[EpisodeMetrics]], summary: EpisodeSummary) -> None:
        """Count finished episodes and steps, and check whether the run is over."""
        self.done += self.num_envs
        self.steps = self.steps + np.asarray([sum(one.steps for one in each) for each in metrics])
        target = self.config.target
        reached = target is not None and summary.phase != "random" and summary.mean_reward >= target
        self.over = self.done >= self.config.episodes or reached

    def _troubles(self, metrics: list[list[EpisodeMetrics]], failures: Failures) -> Iterator[str]:
        for row, seed in enumerate(self.config.seeds):
            for number, one in enumerate(metrics[row]):
                if one.hard_stop:
                    yield f"seed {seed}: a hard limit was violated; the episode ended after {one.steps} steps"
                if (why := failures.get((row, number))) is not None:
                    yield f"seed {seed}: the environment failed after {one.steps} steps ({why}) and was recreated"

    def meta(self) -> dict[str, Any]:
        """The metadata of a checkpoint."""
        return {
            "done": self.done,
            "over": self.over,
            "steps": self.steps.tolist(),
            "system": signature(self.planning_task),
            "config": self.config.to_json(),
        }

    def restore(self, stored: Stored) -> None:
        if not same_run(stored.meta, self.config):
            raise GussError(
                f"the checkpoint {stored.path} was written with other settings than those in the config.json of its "
                f"run; one of the two files was replaced or edited"
            )
        check_signature(f"the state in {stored.path}", stored_signature(stored), self.planning_task)
        check_done(stored, self.config.episodes, self.num_envs)
        self.done = stored.meta["done"]
        self.over = self.done >= self.config.episodes or stopped_at_target(stored.meta, self.config)
        whole = self.done * self.task.episode_length
        self.steps = np.asarray(stored.meta["steps"])
        if self.steps.shape != (len(self.config.seeds),):
            raise GussError(
                f"{stored.path}: meta.steps must have one number for each of the {len(self.config.seeds)} seeds, got "
                f"{self.steps.tolist()}; the checkpoint was not written by this run"
            )
        self.ended_early = bool((self.steps != whole).any())
        longer = stored.meta["config"]["episodes"] < self.config.episodes
        self.state = stored.restore(self.state, grow=longer)


def _model_r2(metrics: dict[str, Any]) -> float | None:
    """R² on held-out data of the model used for planning or policy learning; mean over seeds."""
    found = metrics["report"].r2 if metrics.get("report") is not None else metrics.get("model_r2")
    return None if found is None else float(np.asarray(found).mean())


def capacity_of(config: RunConfig, task: Task) -> int:
    """Rows of the data buffer of a whole run: for its episodes, and its logged data rounded up to whole episodes."""
    return (config.episodes + math.ceil(config.data_rows / task.episode_length)) * task.episode_length


def make_collector(task: Task, spec: EnvSpec, config: RunConfig, num_envs: int) -> CompiledCollector | HostCollector:
    """The collector of episodes: compiled if the Task simulates the system, else stepping Gymnasium environments."""
    if task.reset is None or spec.make_env is not None:
        if spec.make_env is None and not spec.gym_id:
            raise GussError(
                f"task {task.name!r} has neither a reset function nor an environment, so no episode can run: "
                f"return a pair (environment, Task), or give the Task `step` and `reset`"
            )
        process = (spec.source or spec.gym_id or config.env) if config.env_process else None
        how: Any = {"timeout": config.step_timeout, "process": process, "overlap": config.overlap}
        return HostCollector(task, spec, config.seeds, num_envs, **how)
    if config.env_process:
        raise GussError(
            f"--env-process applies to environments that are stepped in Python, and the episodes of {config.env} are "
            f"compiled; omit the flag"
        )
    return CompiledCollector(task, config.seeds)


def check_done(stored: Stored, episodes: int, num_envs: int = 1) -> None:
    """Raise unless the number of episodes in a checkpoint is possible: whole iterations, not more than the run has."""
    if not 0 <= stored.meta["done"] <= episodes or stored.meta["done"] % num_envs:
        each = f", a multiple of {num_envs}" * (num_envs > 1)
        raise GussError(
            f"{stored.path}: meta.done, the number of finished episodes, must be from 0 to {episodes}{each}, got "
            f"{stored.meta['done']}"
        )
