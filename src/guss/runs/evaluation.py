"""Evaluation of a stored run: new episodes with its learned model or policy, without further learning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from guss import keys as streams
from guss.collect.episode_metrics import EpisodeMetrics, episode_metrics
from guss.collect.trajectories import check_finite
from guss.errors import GussError
from guss.runs.final_model import restore_learned
from guss.runs.results import read_config
from guss.runs.sources import warn_if_changed
from guss.runs.trainer import Trainer, ignore


class Evaluation(NamedTuple):
    """Per seed and episode, [S, K]."""

    mean_reward: np.ndarray
    unsafe_pct: np.ndarray
    steps: np.ndarray
    unsafe_by_cost: dict[str, np.ndarray]  # [%], by constraint and measured cost; empty with a single constraint
    measured: tuple[str, ...]  # the names of the measured costs among them
    episode_length: int  # steps of a full episode
    trained_episodes: int


def evaluate_run(home: Path, episodes: int, on_episode: Callable[[int], Any] = ignore) -> Evaluation:
    """Run `episodes` new episodes for every seed of a run, with what it learned from all of its episodes."""
    if episodes < 1:
        raise GussError(f"evaluate at least 1 episode, got {episodes}")
    config = read_config(home)
    trainer = Trainer(config, learning=False)
    warn_if_changed(home, config)
    restore_learned(home, trainer)
    if config.acts_randomly:
        raise GussError(
            f"{home} is a run of {config.method!r}: random actions learn nothing, so there is no model to evaluate; "
            f"their rewards are in episodes.jsonl"
        )
    if not trainer.ready:
        raise GussError(f"{home} has not learned anything yet, so there is nothing to evaluate")
    method, acting = trainer.method.deployed(), trainer.method.acting(trainer.state)
    found: list[list[EpisodeMetrics]] = []
    for number in range(episodes):
        keys = streams.evaluations(trainer.keys, number)[:, None]
        trajectory, _ = trainer.collector.collect(method, acting, keys, streams.EVALUATION + number)
        check_finite(trainer.task, trajectory, streams.EVALUATION + number, config.seeds)
        found.append([mine[0] for mine in episode_metrics(trainer.task, trajectory)])
        on_episode(number + 1)
    costs = (*trainer.task.constraints, *trainer.task.measured)
    names = [cost.name for cost in costs] if len(costs) > 1 or trainer.task.measured else []
    measures = ("mean_reward", "unsafe_pct", "steps")
    return Evaluation(
        **{name: np.asarray([[getattr(one, name) for one in row] for row in found]).T for name in measures},
        unsafe_by_cost={
            name: np.asarray([[one.unsafe_pct_by_cost[name] for one in row] for row in found]).T for name in names
        },
        measured=tuple(cost.name for cost in trainer.task.measured),
        episode_length=trainer.task.episode_length,
        trained_episodes=trainer.done,
    )
