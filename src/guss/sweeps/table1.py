"""The study of the paper's Table 1: every method on every environment, with one of three sets of presets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from guss.errors import UnknownNameError
from guss.methods import check_method, method_class

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


def table1(
    envs: Sequence[str], methods: Sequence[str], preset: str, first_seed: int, num_seeds: int, episodes: int | None
) -> dict[str, Any]:
    """The tables of the study. `episodes` overrides the presets, except of model-free methods."""
    check_names(envs, methods)
    found: dict[str, Any] = {"env": list(envs), "method": list(methods), "seed": first_seed, "seeds": num_seeds}
    found["envs"] = {env: {"preset": env + PRESETS[preset]} for env in envs}
    if episodes is not None:
        kinds = {method: method_class(method) for method in methods}
        chosen = [method for method, cls in kinds.items() if cls.model_based or cls.phase == "random"]
        found["methods"] = {method: {"episodes": episodes} for method in chosen}
    return found
