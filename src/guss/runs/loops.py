"""What a run does again and again, whatever its method: episodes of all seeds, and what to tell of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from guss.agent.fleets import Fleet, make_fleet
from guss.agent.hosting import Played
from guss.agent.storing import check_signature, signature, stored_signature
from guss.checkpoint import Stored
from guss.errors import GussError
from guss.models.fitting import check_buffer
from guss.models.judging import FitReport
from guss.programs import begin_programs
from guss.progress import EpisodeNews as EpisodeNews
from guss.runs.config import RunConfig, spec_of_run
from guss.runs.extending import same_run, stopped_at_target
from guss.runs.records import per_episode, unsafe_by_cost
from guss.runs.timing import CompileClock

OnStep = Callable[[int], Any] | None
OnStage = Callable[[str], Any] | None
OnWarning = Callable[[str], Any] | None


class FinalFit(NamedTuple):
    """What the fit after the last episode brought."""

    report: FitReport | None
    """None if it diverged: the models are those of the fit before."""
    diverged: list[int]
    """The seeds for which it did."""
    seconds: float


class Outcome(NamedTuple):
    """What one turn of a loop brought."""

    episodes: list[Played]
    """One of every seed each, in order."""
    news: EpisodeNews
    timing: dict[str, Any]
    """What to note beside it."""


class Loop:
    """Episodes of all seeds at once, until the run is over."""

    every_trace: bool = True
    """Whether every episode is kept step by step; otherwise the first of each turn."""

    def __init__(self, config: RunConfig, at_once: int = 1) -> None:
        """`at_once`: episodes of a seed that are played side by side."""
        begin_programs()
        spec = spec_of_run(config)
        self.config, self.view, self.at_once = config, spec.view, at_once
        self.task, self.planned = config.tasks(spec.make_task())
        """The task by which steps are judged, and as the method sees it."""
        check_buffer("one turn of a run", self.task, len(config.seeds) * at_once * self.task.episode_length)
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
            process = (spec.source or spec.gym_id or config.env) if config.env_process else None
            how: Any = (config.step_timeout, at_once, process)
            self.fleets = [make_fleet(self.task, spec, seeds, *how) for seeds in parts]
        elif config.env_process:
            raise GussError(
                f"--env-process is for environments that are stepped in Python; the episodes of {config.env} are "
                f"compiled, and nothing of them can hang"
            )
        self.on_stage: OnStage = None
        """Called with what takes time now: compiling, fitting."""
        self.on_warning: OnWarning = None
        """Called with each warning about the data as soon as it is known; without it, `EpisodeNews` has them."""
        self.done = 0
        """Episodes finished."""
        self.steps = np.zeros(len(config.seeds), int)
        """Real steps so far, of every seed."""
        self.ended_early = False
        """Whether an episode was ended by the system or a hard limit; not if an environment failed."""
        self.over = False
        """Whether all are, or the target is reached."""
        self.keys = jax.vmap(jax.random.key)(jnp.asarray(config.seeds, jnp.int32))

    def stage(self, text: str) -> None:
        """Tell what takes time now."""
        if self.on_stage is not None:
            self.on_stage(text)

    def compiling(self, program: str) -> None:
        """Tell what is being compiled."""
        self.stage(f"compiling the {program}")

    @property
    @abstractmethod
    def state(self) -> Any:
        """Everything learned, as arrays."""

    @abstractmethod
    def about_state(self) -> dict[str, Any]:
        """What belongs to the state and is not an array."""

    @abstractmethod
    def take(self, state: Any, about: dict[str, Any]) -> None:
        """Go on with a stored state."""

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether something was learned that could be put to work."""

    @abstractmethod
    def play(self, number: int, keys: Array, random: bool, on_step: OnStep = None) -> Played:
        """One episode of every seed with what was learned so far, or with random actions."""

    @abstractmethod
    def episode(self, on_step: OnStep = None) -> Outcome:
        """The next turn: an episode of every seed, or several."""

    @property
    @abstractmethod
    def learned(self) -> Any:
        """The part of the state that a final fit changes; empty where there is nothing to fit."""

    def fit_final(self) -> FinalFit | None:
        """Fit once more after the last episode, so that its data count too; None where there is nothing to fit."""
        return None

    @property
    def is_random(self) -> bool:
        """Whether the next episode has random actions: until every seed has enough steps to learn from."""
        return self.config.is_random(self.done, int(self.steps.min()), self.task.episode_length)

    def meta(self) -> dict[str, Any]:
        """What a checkpoint keeps beside the arrays."""
        return {
            "done": self.done,
            "over": self.over,
            "steps": self.steps.tolist(),
            "learner": self.about_state(),
            "system": signature(self.planned),
            "config": self.config.to_json(),
        }

    def restore(self, stored: Stored) -> None:
        """Go on from a checkpoint."""
        if not same_run(stored.meta, self.config):
            raise GussError(f"the checkpoint {stored.path} is of a run with other settings than its config.json")
        check_signature(f"the state in {stored.path}", stored_signature(stored), self.planned)
        check_done(stored, self.config.episodes, self.at_once)
        self.done = stored.meta["done"]
        self.over = self.done >= self.config.episodes or stopped_at_target(stored.meta, self.config)
        whole = [self.done * self.task.episode_length] * len(self.config.seeds)  # where not told
        self.steps = np.asarray(stored.meta.get("steps", whole))
        if self.steps.shape != (len(self.config.seeds),):
            raise GussError(f"{stored.path}: meta.steps must be a number for each seed, got {self.steps.tolist()}")
        self.ended_early = bool((self.steps != whole).any())
        longer = stored.meta["config"]["episodes"] < self.config.episodes
        self.take(stored.restore(self.state, grow=longer), stored.meta["learner"])

    def finish(
        self, episodes: Sequence[Played], phase: str, r2: float | None, fit: float, play: float, clock: CompileClock
    ) -> tuple[EpisodeNews, dict[str, Any]]:
        """Count what was played; what to tell and to note of it. `fit`, `play`: seconds of learning and acting."""
        length = np.stack([played.length for played in episodes])
        figures = [per_episode(self.task, played) for played in episodes]
        rewards, unsafe = (np.stack(x) for x in zip(*figures, strict=True))
        total = self.steps + length.sum(axis=0)
        self.ended_early |= any(bool((played.terminated | played.stopped).any()) for played in episodes)
        news = EpisodeNews(
            episode=self.done + len(episodes) - 1,
            phase=phase,
            mean_reward=float(rewards.mean()),
            mean_return=float((rewards * length).mean()),
            ends_early=self.ended_early,
            unsafe_pct=float(100 * (unsafe * length).sum() / max(length.sum(), 1)),
            unsafe_by_cost={
                name: float(100 * (share * length).sum() / max(length.sum(), 1))
                for name, share in _stacked([unsafe_by_cost(self.task, played) for played in episodes]).items()
            },
            model_r2=r2,
            seconds_fit=fit,
            seconds_plan=play,
            seconds_compile=clock.seconds,
            pace=float(length.sum() / max(fit + play - clock.seconds, 1e-9)),
            steps=None if (length == self.task.episode_length).all() else float(length.mean()),
            trouble=tuple(told for played in episodes for told in _trouble(self.config.seeds, played)),
        )
        timing = {"episode": self.done, "fit_seconds": fit, "plan_seconds": play}
        timing |= {"compile_seconds": clock.seconds, "compiled_programs": clock.programs}
        target = self.config.target
        self.done += len(episodes)
        self.steps = total
        self.over = self.done >= self.config.episodes or (
            target is not None and phase != "random" and news.mean_reward >= target
        )
        return news, timing


def _stacked(shares: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Shares [S] by name of several episodes as arrays [episodes, S]."""
    return {name: np.stack([each[name] for each in shares]) for name in shares[0]}


def check_done(stored: Stored, episodes: int, at_once: int = 1) -> None:
    """A checkpoint is after a turn of its run, and not after more episodes than the run has."""
    if not 0 <= stored.meta["done"] <= episodes or stored.meta["done"] % at_once:
        raise GussError(f"{stored.path}: meta.done must be a number of episodes of this run, got {stored.meta['done']}")


def _trouble(seeds: tuple[int, ...], played: Played) -> tuple[str, ...]:
    told = []
    for seed, steps, stopped, status in zip(seeds, played.length, played.stopped, played.status, strict=True):
        if stopped:
            told.append(f"seed {seed}: a hard limit was violated, the episode ended after {steps} steps")
        if status != "ok":
            told.append(f"seed {seed}: the environment failed after {steps} steps ({status}), it was made anew")
    return tuple(told)
