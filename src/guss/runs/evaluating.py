"""The frozen agent: what a run learned, put to work without learning any further."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from guss.errors import GussError
from guss.runs.deploying import restore_learned
from guss.runs.records import per_episode
from guss.runs.running import make_loop, read_config
from guss.runs.sources import warn_if_changed

BEYOND_LEARNING = 2**21  # folded into a seed's key: no start of an evaluation was a start of the run


class Evaluation(NamedTuple):
    """Per seed and episode, [S, K]."""

    mean_reward: np.ndarray
    unsafe_pct: np.ndarray
    trained_episodes: int


def evaluate(home: Path, episodes: int, on_episode: Callable[[int], Any] | None = None) -> Evaluation:
    """`episodes` new ones for every seed of a run, acting by what it learned from all of its episodes."""
    if episodes < 1:
        raise GussError(f"evaluate at least 1 episode, got {episodes}")
    config = read_config(home)
    loop = make_loop(config, alone=True)
    warn_if_changed(home, config)
    restore_learned(home, loop)
    if not loop.ready:
        raise GussError(f"{home} has learned nothing yet that could be evaluated")
    starts = jax.vmap(lambda key: jax.random.fold_in(key, BEYOND_LEARNING))(loop.keys)
    rewards, unsafe = [], []
    for episode in range(episodes):
        keys = jax.vmap(lambda key, number: jax.random.fold_in(key, number), (0, None))(starts, episode)
        reward, share = per_episode(loop.task, loop.play(BEYOND_LEARNING + episode, keys, random=False))
        rewards.append(reward)
        unsafe.append(100.0 * share)
        if on_episode is not None:
            on_episode(episode + 1)
    return Evaluation(np.stack(rewards, axis=1), np.stack(unsafe, axis=1), loop.done)
