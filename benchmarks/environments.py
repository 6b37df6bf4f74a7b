"""Speed of the environments in one thread: steps, resets, and the share of physics in a step."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

CAR = "guss/SafeCarGoal-v0"


def environments(turns: int = 15, steps: int = 200) -> dict[str, Any]:
    """SafeCar-Goal: the best and the median of several turns of `steps` steps with random actions."""
    import gymnasium

    from guss.envs.car_env import SafeCarGoalEnv

    whole, bare = gymnasium.make(CAR), SafeCarGoalEnv()
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, (steps, 2))
    ways: dict[str, list[float]] = {"step": [], "physics": [], "reset": []}
    for turn in range(turns):
        seeds = range(20 * turn, 20 * turn + 20)
        ways["reset"] += [_seconds(partial(whole.reset, seed=seed)) for seed in seeds]
        ways["step"].append(_seconds(partial(_steps, whole, actions)) / steps)
        bare.reset(seed=seeds[-1])
        ways["physics"].append(_seconds(partial(_physics, bare.cars.physics, bare.cars.state, actions)) / steps)
    best = {name: min(values) for name, values in ways.items()}
    return {
        "env": CAR,
        "threads": 1,
        "steps_per_second": 1.0 / best["step"],
        "median_steps_per_second": 1.0 / float(np.median(ways["step"])),
        "physics_share": best["physics"] / best["step"],
        "reset_ms": 1e3 * float(np.median(ways["reset"])),
        "worst_reset_ms": 1e3 * max(ways["reset"]),
    }


def _steps(env: Any, actions: np.ndarray) -> None:
    for action in actions:
        env.step(action)


def _physics(physics: Any, state: np.ndarray, actions: np.ndarray) -> None:
    for action in actions:
        state, _ = physics.step(state, action[None])


def _seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def environment_text(found: dict[str, Any]) -> str:
    """As a sentence."""
    return (
        f"{found['env']}, one thread: {found['steps_per_second']:,.0f} steps/s at best, "
        f"{found['median_steps_per_second']:,.0f} in the median; {100 * found['physics_share']:.0f} % of a step is "
        f"MuJoCo; a reset takes {found['reset_ms']:.1f} ms (the slowest {found['worst_reset_ms']:.1f})"
    )
