"""The runs of the paper's Table 1: every method on every environment, with one of three sets of presets."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp

from guss.envs import make_task
from guss.errors import GussError, UnknownNameError
from guss.methods import check_method, method_class
from guss.plugins import load_preset
from guss.runs.config import RunConfig, config_from, seeds_from

ENVIRONMENTS = ("safe-pendulum", "safe-acrobot", "safe-car-goal")
METHODS = ("guss", "s-rs", "safe-mbpo", "rcem", "rs", "cem", "cpo", "ppo-lagrangian", "random")
PRESETS = {"best": "", "paper": "-paper", "quick": "-quick"}
"""Suffix of an environment's name in the name of its preset."""
NUM_SEEDS = {"best": 6, "paper": 6, "quick": 2}


def check_names(envs: Sequence[str], methods: Sequence[str]) -> None:
    """Raise if an environment is not in the table, or a method is unknown."""
    for env in envs:
        if env not in ENVIRONMENTS:
            raise UnknownNameError("environment of Table 1", env, ENVIRONMENTS)
    for method in methods:
        check_method(method)


def table1_runs(
    envs: Sequence[str], methods: Sequence[str], preset: str, first_seed: int, num_seeds: int, episodes: int | None
) -> tuple[list[RunConfig], list[str]]:
    """The runs, and a sentence for each omitted run. `episodes` overrides the presets, except of model-free methods."""
    check_names(envs, methods)
    seeds = seeds_from(first_seed, num_seeds)
    runs, left_out = [], []
    for env in dict.fromkeys(envs):
        settings, task = load_preset(env + PRESETS[preset]), make_task(env)
        for method in dict.fromkeys(methods):
            cls = method_class(method)
            if getattr(cls, "continuous_only", False) and task.actions.dtype != jnp.float32:
                left_out.append(f"{method} on {env}: it needs continuous actions, and these are discrete")
                continue
            chosen = episodes if cls.model_based or cls.phase == "random" else None
            runs.append(config_from(settings, method, env, seeds, episodes=chosen))
    if not runs:
        raise GussError(f"nothing to run. {'; '.join(left_out)}; ppo-lagrangian and cpo support both")
    return runs, left_out
