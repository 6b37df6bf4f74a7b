"""The frozen agent: what a run learned, put to work without learning any further."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from guss.errors import GussError
from guss.runs.deploying import restore_learned
from guss.runs.records import per_episode, unsafe_by_cost
from guss.runs.running import make_loop, read_config
from guss.runs.sources import warn_if_changed

BEYOND_LEARNING = 2**21  # folded into a seed's key: no start of an evaluation was a start of the run


class Evaluation(NamedTuple):
    """Per seed and episode, [S, K]."""

    mean_reward: np.ndarray
    unsafe_pct: np.ndarray
    steps: np.ndarray
    unsafe_by_cost: dict[str, np.ndarray]  # [%], by constraint, where there are several
    episode_length: int  # of one that does not end early
    trained_episodes: int


def evaluate(home: Path, episodes: int, on_episode: Callable[[int], Any] | None = None) -> Evaluation:
    """`episodes` new ones for every seed of a run, acting by what it learned from all of its episodes."""
    if episodes < 1:
        raise GussError(f"evaluate at least 1 episode, got {episodes}")
    config = read_config(home)
    loop = make_loop(config, alone=True)
    warn_if_changed(home, config)
    restore_learned(home, loop)
    if not config.plans and config.baseline is None:
        raise GussError(
            f"{home} is a run of {config.method!r}: random actions learn nothing that could be evaluated; what they "
            f"earned is in its episodes.jsonl"
        )
    if not loop.ready:
        raise GussError(f"{home} has learned nothing yet that could be evaluated")
    starts = jax.vmap(lambda key: jax.random.fold_in(key, BEYOND_LEARNING))(loop.keys)
    rewards, unsafe, steps, shares = [], [], [], []
    for episode in range(episodes):
        keys = jax.vmap(lambda key, number: jax.random.fold_in(key, number), (0, None))(starts, episode)
        played = loop.play(BEYOND_LEARNING + episode, keys, random=False)
        reward, share = per_episode(loop.task, played)
        rewards.append(reward)
        unsafe.append(100.0 * share)
        steps.append(played.length)
        shares.append(unsafe_by_cost(loop.task, played))
        if on_episode is not None:
            on_episode(episode + 1)
    names = [c.name for c in loop.task.constraints] if len(loop.task.constraints) > 1 else []
    return Evaluation(
        mean_reward=np.stack(rewards, axis=1),
        unsafe_pct=np.stack(unsafe, axis=1),
        steps=np.stack(steps, axis=1),
        unsafe_by_cost={name: 100.0 * np.stack([each[name] for each in shares], axis=1) for name in names},
        episode_length=loop.task.episode_length,
        trained_episodes=loop.done,
    )
