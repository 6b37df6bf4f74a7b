"""Checks the return values of environments and converts them to one form. Does not import JAX."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from guss.errors import GussError, in_one_line

PARTS = ("observation_space", "action_space", "reset", "step")


class NotAnEnvironmentError(GussError):
    """An object that lacks spaces, `reset` or `step`."""


def calling(failing: str, function: Callable[..., Any], *args: Any, after: str = "", **options: Any) -> Any:
    """Call code of an environment; its exceptions, except Ctrl-C, become a GussError that starts with `failing`."""
    try:
        return function(*args, **options)
    except (Exception, SystemExit) as error:
        raise GussError(f"{failing}: {in_one_line(error)}{after}") from error


def check_parts(env: Any) -> None:
    """Raise NotAnEnvironmentError unless `env` is an environment."""
    missing = [name for name in PARTS if not hasattr(env, name)]
    if missing:
        what = f"the class {env.__name__}" if isinstance(env, type) else type(env).__name__
        raise NotAnEnvironmentError(
            f"{what} is not an environment: it has no {' and no '.join(missing)} "
            f"(expected a gymnasium.Env, or an object with these attributes)"
        )


def reset_values(values: Any, name: str) -> tuple[Any, dict[str, Any]]:
    """The return value of `reset`, checked: the observation and `info`."""
    pair = isinstance(values, tuple) and len(values) == 2
    if not pair or not isinstance(values[1], dict):
        came = f"a pair with {type(values[1]).__name__} as info" if pair else type(values).__name__
        raise GussError(
            f"reset of {name} must return a pair (observation, info), where info is a dict, got {came}; Gym before "
            f"0.26 returned only the observation"
        )
    return values


def five_values(values: Any, name: str) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    """The return value of `step`, of one or several environments, as five values; of six, the cost goes into `info`."""
    count = len(values) if isinstance(values, tuple) else 0
    if count not in (5, 6):
        came = f"{count} values" if count else type(values).__name__
        raise GussError(
            f"step of {name} must return (observation, reward, terminated, truncated, info), or six values with the "
            f"cost third, got {came}; Gym before 0.26 returned 4"
        )
    info = values[-1]
    if not isinstance(info, dict):
        raise GussError(f"step of {name} must return `info` as a dict, its last value, got {type(info).__name__}")
    if count == 5:
        return values
    obs, reward, cost, terminated, truncated, _ = values
    cost_number = cost_value(cost, f"the third of the six values of {name}, the cost,")
    return obs, reward, terminated, truncated, {**info, "cost": cost_number}


def one_number(value: Any) -> float | None:
    """A number, a bool or an array of one of them as a float; None for anything else."""
    try:
        array = np.asarray(float(value) if isinstance(value, numbers.Real) else value)
    except ValueError:  # lists of different lengths
        return None
    return float(array.reshape(())) if array.size == 1 and array.dtype.kind in "fiub" else None


def cost_value(value: Any, where: str = 'info["cost"]') -> float:
    """A reported cost as one finite number; anything else raises GussError, since it must not be taken as safe."""
    number = one_number(value)
    if number is None:
        raise GussError(f"{where} must be one number, 1 on an unsafe step and 0 elsewhere, got {value!r}")
    if not 0.0 <= number < math.inf:
        wrong = "is negative" if number < 0.0 else "is not finite"
        raise GussError(f"{where} {wrong}: {value!r}; a cost is 1 on an unsafe step and 0 elsewhere")
    return number


def reported_costs(info: dict[str, Any]) -> dict[str, float] | None:
    """The costs of one step by name: `info["costs"]`, or `info["cost"]` as "cost"; None if there are none."""
    if isinstance(info.get("costs"), dict) and info["costs"]:
        return {str(name): cost_value(value, f'info["costs"][{str(name)!r}]') for name, value in info["costs"].items()}
    return {"cost": cost_value(info["cost"])} if "cost" in info else None


def no_cost_error(name: str, info: dict[str, Any]) -> GussError:
    """The error for an environment that reports no cost, or omits one that it reported before."""
    if "costs" in info:
        found = sorted(info["costs"]) if isinstance(info["costs"], dict) else type(info["costs"]).__name__
        return GussError(
            f'the environment {name} must report every cost by name on every step: info["costs"] is a dict with all of '
            f"them, 0 if the step is safe; got {found}"
        )
    has = f"has {sorted(map(str, info))}" if info else "is empty"
    return GussError(
        f"the environment {name} does not report a cost: `info` {has}; "
        f'expected info["cost"], 1 on an unsafe step and 0 elsewhere, or info["costs"] with several by name. Or '
        f"describe the cost in a Task (docs/own-env.md), or pass --without-cost if nothing is unsafe"
    )
