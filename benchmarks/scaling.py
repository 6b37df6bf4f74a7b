"""How a plan's time and memory grow: `python -m benchmarks.scaling AXIS VALUE` measures one point in its own process.

All points are GuSS plans of Safe Pendulum with a DARMDN of 2 × 50: 100 policies, 10 steps, one net, one seed, 50 × 50
cells, except for the quantity that varies.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from guss.errors import GussError

AXES: dict[str, tuple[int, ...]] = {
    "plans": (100, 1_000, 10_000, 100_000, 1_000_000),  # n and n_new are a twentieth
    "horizon": (5, 10, 20, 50, 100, 200),
    "ensemble": (1, 2, 4, 8, 16),
    "seeds": (1, 2, 4, 8, 16, 32, 64),
    "cells": (10**2, 50**2, 50**3, 50**4),
}
SIDES = {10**2: (10, 10), 50**2: (50, 50), 50**3: (50, 50, 50), 50**4: (50, 50, 50, 50)}


def measure_here(axis: str, value: int) -> dict[str, Any]:
    """One point: milliseconds of a plan (best of several), megabytes of the program and of the process."""
    import jax
    import jax.numpy as jnp

    from guss.envs import make_task
    from guss.models.factory import ModelSettings, make_model
    from guss.planners import make_planner
    from guss.planners.engine import plan_one
    from guss.task import Grid
    from guss.types import Rollout

    at = {name: values[0] for name, values in AXES.items()} | {"horizon": 10, "cells": 50**2, axis: value}
    sides = SIDES[at["cells"]]

    def last_state_and_mean_action(rollout: Rollout) -> Any:
        return jnp.concatenate([rollout.next_obs[-1], jnp.mean(rollout.action, axis=0)])[: len(sides)]

    bounds = ((-1.0, -1.0, -8.0, -2.0)[: len(sides)], (1.0, 1.0, 8.0, 2.0)[: len(sides)])
    task = make_task("safe-pendulum").replace(descriptor=last_state_and_mean_action, grid=Grid(*bounds, sides))
    part = max(at["plans"] // 20, 1)
    planner = make_planner("guss", task, horizon=at["horizon"], budget=at["plans"], num_initial=part, num_new=part)
    settings = ModelSettings(hidden=(50, 50), ensemble=at["ensemble"])
    keys = jax.random.split(jax.random.key(0), at["seeds"])
    models = jax.jit(jax.vmap(lambda key: make_model("darmdn", task, key, settings)))(keys)
    obs = jnp.broadcast_to(jnp.asarray([1.0, 0.0, 0.0]), (at["seeds"], 3))
    many = jax.jit(jax.vmap(lambda model, obs, key: plan_one(planner, model, task, obs, key).action))
    started = time.perf_counter()
    program = many.lower(models, obs, keys).compile()
    compiling = time.perf_counter() - started
    memory = program.memory_analysis()
    assert memory is not None
    asked = memory.temp_size_in_bytes + memory.argument_size_in_bytes + memory.output_size_in_bytes
    seconds: list[float] = []
    begun = time.perf_counter()
    while len(seconds) < 3 or (time.perf_counter() - begun < 3.0 and len(seconds) < 300):
        started = time.perf_counter()
        program(models, obs, keys).block_until_ready()
        seconds.append(time.perf_counter() - started)
        if seconds[-1] > 30.0:
            break
    return {
        "axis": axis,
        "value": value,
        "ms": 1e3 * min(seconds),
        "median_ms": 1e3 * float(np.median(seconds)),
        "compile_s": compiling,
        "program_mb": asked / 2**20,
        "process_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
    }


def measure(axis: str, value: int, threads: int = 1) -> dict[str, Any]:
    """One point, in a new process, so that only its memory is measured."""
    env = os.environ | {"NPROC": str(threads)}
    words = [sys.executable, "-m", "benchmarks.scaling", axis, str(value)]
    done = subprocess.run(words, env=env, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise GussError(f"the point {axis} = {value} could not be measured: its errors are above")
    return json.loads(done.stdout.splitlines()[-1])


def exponent(points: Iterable[dict[str, Any]]) -> float:
    """b in time ≈ a · xᵇ, by least squares on logarithms."""
    x, y = np.log([(p["value"], p["ms"]) for p in points]).T
    return float(np.polyfit(x, y, 1)[0])


if __name__ == "__main__":
    print(json.dumps(measure_here(sys.argv[1], int(sys.argv[2]))))
