"""A learning run on a compiled task (Alg. 1): random episodes, then fit, plan, act, repeat; all seeds at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from guss.agent.episodes import run_episodes
from guss.agent.exploration import explore_episodes
from guss.agent.learner import Learner, diverged, divergence_error
from guss.agent.settings import AgentSettings
from guss.envs import make_task
from guss.errors import GussError
from guss.models.judging import FitReport
from guss.planners import make_planner
from guss.runs.records import SCHEMA, append_lines, run_folder, write_json
from guss.runs.timing import CompileClock
from guss.task import Task
from guss.types import Planner, Transition


@dataclass(frozen=True, kw_only=True)
class RunConfig(AgentSettings):
    """Everything that decides a run's outcome."""

    env: str
    seeds: tuple[int, ...]
    episodes: int
    """At most this many, random ones included."""
    target: float | None = None
    """Stop after a planned episode whose mean reward, over all seeds, reaches this."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise GussError(f"a run needs seeds, each once, got {list(self.seeds)}")
        if self.episodes < 1:
            raise GussError(f"a run needs at least 1 episode, got {self.episodes}")
        if self.initial_episodes == 0 and self.learns:
            raise GussError("a learned model needs at least 1 random episode at the start, got initial_episodes 0")


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


def run_one(
    config: RunConfig, out: Path, origin: dict[str, Any], on_episode: Callable[[EpisodeNews], Any] | None = None
) -> Path:
    """Run it and store its records; returns the run's folder."""
    task = make_task(config.env)
    planner = make_planner(config.method, task, horizon=config.horizon, budget=config.budget, **config.planner)
    if config.horizon > task.episode_length:
        raise GussError(f"the horizon of {config.horizon} is longer than the episode of {task.episode_length} steps")
    home = run_folder(out, config.env, config.method, config.to_json())
    (home / "traces").mkdir(parents=True, exist_ok=True)
    for name in ("episodes.jsonl", "timings.jsonl"):
        (home / name).unlink(missing_ok=True)
    write_json(home / "config.json", {"schema": SCHEMA, "config": config.to_json(), "provenance": origin})
    loop = Loop(config, task, planner)
    for episode in range(config.episodes):
        moves, news, timing = loop.episode(episode)
        _store(home, config, task, episode, moves, news, timing)
        if on_episode is not None:
            on_episode(news)
        if config.target is not None and news.phase == "plan" and news.mean_reward >= config.target:
            break
    return home


class Loop:
    """Alg. 1 for all seeds at once, an episode at a time."""

    def __init__(self, config: RunConfig, task: Task, planner: Planner) -> None:
        self.config, self.task, self.planner = config, task, planner
        self.keys = jax.vmap(jax.random.key)(jnp.asarray(config.seeds, jnp.int32))
        self.learner = Learner(config, task, self.keys, capacity=config.episodes * task.episode_length)

    def episode(self, number: int) -> tuple[Transition, EpisodeNews, dict[str, Any]]:
        """One episode of every seed: [T, S, …], what to tell, and what to note beside it."""
        started = time.perf_counter()
        keys = jax.vmap(lambda key: jax.random.fold_in(key, number))(self.keys)
        report, fit_seconds, ahead = None, 0.0, None
        random = self.config.is_random(number)
        with CompileClock() as clock:
            if random:
                moves = explore_episodes(self.task, keys, self.task.episode_length, self.config.explores())
            else:
                report = self._fit(keys, number)
                fit_seconds = time.perf_counter() - started
                learner = self.learner
                moves = run_episodes(
                    self.planner, learner.models, self.task, keys, per_seed=learner.per_seed
                ).transition
            moves = jax.device_get(moves)
            self._check(number, moves)
            obs, action, next_obs = (np.swapaxes(x, 0, 1) for x in (moves.obs, moves.action, moves.next_obs))
            if not random:
                ahead = self.learner.ahead(obs, action, next_obs)  # before this episode is learned from
            self.learner.add(obs, action, next_obs, np.ones(obs.shape[:2], bool))
        seconds = time.perf_counter() - started
        unsafe = unsafe_steps(self.task, moves)
        news = EpisodeNews(
            episode=number,
            phase="random" if random else "plan",
            mean_reward=float(np.asarray(moves.reward).mean()),
            unsafe_pct=float(100 * unsafe.mean()),
            model_r2=None if report is None else float(np.asarray(report.r2).mean()),
            seconds_fit=fit_seconds,
            seconds_plan=seconds - fit_seconds,
            seconds_compile=clock.seconds,
        )
        timing = {"episode": number, "fit_seconds": fit_seconds, "plan_seconds": seconds - fit_seconds}
        timing |= {"compile_seconds": clock.seconds, "compiled_programs": clock.programs}
        timing |= _error_record(report, ahead)
        return moves, news, timing

    def _fit(self, keys: Array, number: int) -> FitReport | None:
        report = self.learner.fit(jax.vmap(lambda key: jax.random.fold_in(key, 0))(keys))
        if report is not None and (broken := diverged(report)).any():
            raise divergence_error(number, [s for s, bad in zip(self.config.seeds, broken, strict=True) if bad])
        return report

    def _check(self, number: int, moves: Transition) -> None:
        """Observations, rewards and costs must be finite: name the episode, the step and the dimension if not."""
        for name in ("next_obs", "reward", "cost"):
            values = np.asarray(getattr(moves, name))
            if not np.isfinite(values).all():
                where = np.argwhere(~np.isfinite(values))[0]
                dimension = f", dimension {where[2]}" if len(where) > 2 else ""
                if name == "cost":
                    dimension = f", constraint {self.task.constraints[where[2]].name!r}"
                raise GussError(
                    f"{name} of task {self.task.name!r} is not finite in episode {number}, step {where[0]}, "
                    f"seed {self.config.seeds[where[1]]}{dimension}: {values[tuple(where)]}. Episodes before are kept."
                )


def _error_record(report: FitReport | None, ahead: np.ndarray | None) -> dict[str, Any]:
    """The model's error as plain numbers, a list per seed."""
    if report is None:
        return {}
    names = ("nll", "r2", "ks", "train_loss", "best_epoch")
    record = {name: np.asarray(getattr(report, name)).round(5).tolist() for name in names}
    return record | ({} if ahead is None else {"r2_horizon": ahead.round(5).tolist()})


def unsafe_steps(task: Task, moves: Transition) -> np.ndarray:
    """Where any soft constraint is violated, whatever its bound: [T, S]."""
    soft = np.asarray(task.soft, bool)
    return np.any(np.asarray(moves.cost)[..., soft] > 0, axis=-1)


def _store(
    home: Path,
    config: RunConfig,
    task: Task,
    episode: int,
    moves: Transition,
    news: EpisodeNews,
    timing: dict[str, Any],
) -> None:
    unsafe = unsafe_steps(task, moves)
    steps = task.episode_length
    arrays = {name: np.asarray(value) for name, value in moves._asdict().items()}
    last = np.arange(steps) == steps - 1
    rows = []
    for i, seed in enumerate(config.seeds):
        mine = {name: value[:, i] for name, value in arrays.items()}
        flags = {"terminated": np.zeros(steps, bool), "truncated": last, "skip": np.zeros(steps, bool)}
        with (home / "traces" / f"seed{seed}-ep{episode}.npz").open("wb") as file:
            np.savez_compressed(file, **mine, **flags)  # type: ignore[arg-type]
        rows.append(
            {
                "seed": seed,
                "episode": episode,
                "phase": news.phase,
                "steps": steps,
                "total_steps": steps * (episode + 1),
                "return": float(mine["reward"].sum(dtype=np.float64)),
                "mean_reward": float(mine["reward"].mean(dtype=np.float64)),
                "unsafe_steps": int(unsafe[:, i].sum()),
                "unsafe_pct": 100.0 * float(unsafe[:, i].mean()),
                "costs": {c.name: float(mine["cost"][:, k].sum()) for k, c in enumerate(task.constraints)},
                "hard_stop": False,
                "status": "ok",
            }
        )
    append_lines(home / "episodes.jsonl", rows)
    append_lines(home / "timings.jsonl", [timing])
