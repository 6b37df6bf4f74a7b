"""Separates model errors from planner errors: the same starts, planned in the simulator and in a learned model.

    python studies/car_oracle.py --out results/car

GuSS with 125 policies; the learned model is fitted once, to five random episodes. Writes oracle.json.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from car_models import STEPS, collect

from guss.collect.datasets import Dataset, logged
from guss.envs import ENVS, EnvSpec
from guss.envs.car import car_task, full_task
from guss.models.factory import ModelSettings
from guss.models.training import FitSettings
from guss.runs.config import RunConfig
from guss.runs.provenance import provenance
from guss.runs.store import digest_of
from guss.runs.trainer import Trainer

EPISODES = 5  # of random data


def short(make: Any, steps: int) -> Any:
    """The task with shorter episodes."""
    return make().replace(episode_length=steps)


def random_data() -> Dataset:
    """Random episodes as logged data."""
    obs, action, use = collect()
    flat = lambda x: x[:EPISODES].reshape(-1, *x.shape[2:])  # noqa: E731
    end = np.arange(EPISODES * STEPS) % STEPS == STEPS - 1
    return Dataset(logged(flat(obs[:, :-1]), flat(action), flat(obs[:, 1:]), learnable=flat(use), end=end))


def main() -> None:
    """Plan both ways, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/car"))
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    args = parser.parse_args()
    data = random_data()
    same: dict[str, Any] = {
        "method": "guss",
        "seeds": tuple(args.seeds),
        "episodes": 1,
        "initial_episodes": 0,
        "horizon": 30,
        "budget": 125,
        "method_settings": {"num_initial": 25, "num_new": 20, "policy_hidden": [3]},
        "planning_margin": 0.05,
    }
    learned: dict[str, Any] = {
        "model": "egocentric",
        "model_settings": ModelSettings(hidden=(32, 32)),
        "fit": FitSettings(batch=256, learning_rate=2e-3),
        "data": digest_of(data),
        "data_rows": data.num_rows,
    }
    ways: dict[str, tuple[str, Any, dict[str, Any], Dataset | None]] = {
        "learned": ("guss/SafeCarGoal-v0", car_task, learned, data),
        "simulator": ("guss/SafeCarGoalFull-v0", full_task, {"model": "oracle"}, None),
    }
    found: dict[str, Any] = {}
    for name, (gym_id, make, more, start) in ways.items():
        ENVS.add(name, EnvSpec(gym_id, partial(short, make, args.steps)), summary=name, origin=__name__)
        iteration = Trainer(RunConfig(env=name, **same, **more), start).iterate()
        metrics = [mine[0] for mine in iteration.metrics]
        found[name] = {
            "return": [round(one.episode_return, 3) for one in metrics],
            "goals": (~iteration.trajectory.learnable)[:, 0].sum(axis=1).tolist(),
            "unsafe_steps": [one.unsafe_steps for one in metrics],
            "seconds": round(iteration.summary.seconds_plan, 1),
        }
        print(name, json.dumps(found[name]), flush=True)
    origin = provenance(shlex.join(["python", "studies/car_oracle.py", *sys.argv[1:]]))
    args.out.mkdir(parents=True, exist_ok=True)
    record = {"provenance": origin, "steps": args.steps, "seeds": args.seeds, "models": found}
    (args.out / "oracle.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
