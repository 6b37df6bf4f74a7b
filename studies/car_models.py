"""Held-out R² of models of SafeCar-Goal on static data, by size, loss and structure.

    python studies/car_models.py --out results/car

Random smooth episodes (seeds from 5000), fitted with the library's code; evaluated on 12 other episodes along their
actions. Writes models.json with all values, and models.md, the table of docs/car.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import guss
from guss.collect.exploration import explore
from guss.envs.car_env import SafeCarGoalVectorEnv
from guss.envs.car_world import GOAL, LIDAR
from guss.models.evaluation import r_squared
from guss.models.factory import ModelSettings, fit_all, fit_programs, make_model
from guss.models.training import Data, FitSettings
from guss.runs.provenance import provenance
from guss.task import Task
from guss.types import Model, Observations

FIRST_SEED, TRAIN, TEST, STEPS = 5000, 50, 12, 1000
HORIZONS = (1, 10, 30)
STRIDE = 7  # steps between starts of predictions


def collect() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Observations [E, T + 1, 22], actions [E, T, 2] and whether a transition is used for training [E, T]."""
    count = TRAIN + TEST
    seeds = np.arange(FIRST_SEED, FIRST_SEED + count)
    envs = SafeCarGoalVectorEnv(count)
    obs = [envs.reset(seed=seeds.tolist())[0]]
    actions = guss.make_task("safe-car-goal").actions
    moves = np.asarray(jax.vmap(lambda k: explore(actions, k, STEPS, "smooth"))(jax.vmap(jax.random.key)(seeds)))
    use = []
    for t in range(STEPS):
        now, _, _, _, info = envs.step(moves[:, t].astype(float))
        obs.append(now)
        use.append(~info["skip"])
    return np.stack(obs, axis=1), moves, np.stack(use, axis=1)


def with_history(obs: np.ndarray, length: int) -> np.ndarray:
    """The last `length` observations concatenated, newest first; the first one is repeated before the start."""
    shifted = [
        np.concatenate([obs[:, :1].repeat(k, axis=1), obs[:, : obs.shape[1] - k]], axis=1) for k in range(length)
    ]
    return np.concatenate(shifted, axis=-1)


@dataclasses.dataclass(frozen=True)
class Case:
    """A model to evaluate."""

    name: str
    model: str = "dmdn"
    hidden: tuple[int, ...] = (50, 50)
    loss: str = "beta_nll"
    activation: str = "silu"
    history: int = 1
    ensemble: int = 1
    fit: tuple[tuple[str, Any], ...] = ()


CASES = (
    Case("DMDN 2 × 50, NLL, ReLU (the paper's)", loss="nll", activation="relu"),
    Case("DMDN 2 × 50, NLL", loss="nll"),
    Case("DMDN 2 × 50, MSE", loss="mse"),
    Case("DMDN 2 × 50, β-NLL"),
    Case("DMDN 2 × 200, β-NLL", hidden=(200, 200)),
    Case("DMDN 3 × 256, β-NLL", hidden=(256, 256, 256)),
    Case("DMDN 2 × 200, β-NLL, last 3 observations", hidden=(200, 200), history=3),
    Case("five DMDN 2 × 200, β-NLL", hidden=(200, 200), ensemble=5),
    Case("DARMDN 2 × 50, β-NLL", model="darmdn"),
    Case("egocentric 2 × 32, β-NLL", model="egocentric", hidden=(32, 32)),
    Case("egocentric 2 × 64, β-NLL", model="egocentric", hidden=(64, 64)),
    Case("egocentric 2 × 64, NLL", model="egocentric", hidden=(64, 64), loss="nll"),
    Case("egocentric 2 × 128, β-NLL", model="egocentric", hidden=(128, 128)),
    Case("five egocentric 2 × 32, β-NLL", model="egocentric", hidden=(32, 32), ensemble=5),
)


def wider(task: Task, history: int) -> Task:
    """The task with observations of several steps."""
    low, high = task.observations.low * history, task.observations.high * history
    if history == 1:
        return task
    return dataclasses.replace(
        task,
        observations=Observations(low, high),
        descriptor=lambda rollout: rollout.next_obs[-1, GOAL],
        surroundings=None,
    )


def evaluate(model: Model, obs: np.ndarray, action: np.ndarray, use: np.ndarray) -> dict[str, float]:
    """R² of changes since the start of a prediction, by the model's mean, along the recorded actions."""
    longest = max(HORIZONS)
    starts = [(e, t) for e in range(len(obs)) for t in range(0, STEPS - longest + 1, STRIDE)
              if use[e, t : t + longest].all()]  # fmt: skip
    first = jnp.asarray(np.stack([obs[e, t] for e, t in starts]))
    moves = jnp.asarray(np.stack([action[e, t : t + longest] for e, t in starts]))
    mean = model.mean_model()
    particles = jnp.arange(mean.num_particles, dtype=jnp.int32)

    @jax.jit
    def predict(first: Any, moves: Any) -> Any:
        def one(obs: Any, moves: Any, particle: Any) -> Any:
            def step(state: Any, action: Any) -> Any:
                state = mean.predict(state, action, jax.random.key(0), particle)
                return state, mean.decode(state)[: LIDAR.stop]

            return jax.lax.scan(step, mean.encode(obs), moves)[1]

        many = jax.vmap(jax.vmap(one, (None, None, 0)), (0, 0, None))
        return jnp.mean(many(first, moves, particles), axis=1)

    guess = np.nan_to_num(np.asarray(predict(first, moves)), nan=1e3, posinf=1e3, neginf=-1e3).clip(-1e3, 1e3)
    start = np.asarray(first)[:, : LIDAR.stop]
    found: dict[str, float] = {}
    for horizon in HORIZONS:
        truth = np.stack([obs[e, t + horizon, : LIDAR.stop] for e, t in starts])
        true_change, change = truth - start, guess[:, horizon - 1] - start
        r2 = np.asarray(r_squared(jnp.asarray(true_change), jnp.asarray(change), jnp.ones(len(starts), bool)))
        found[f"goal_{horizon}"] = float(r2[GOAL].mean())
        found[f"lidar_{horizon}"] = float(r2[LIDAR].mean())
        nearest = [x[:, LIDAR].max(axis=1)[:, None] for x in (truth, guess[:, horizon - 1], start)]
        both = [jnp.asarray(nearest[i] - nearest[2]) for i in (0, 1)]
        found[f"nearest_{horizon}"] = float(r_squared(both[0], both[1], jnp.ones(len(starts), bool))[0])
    found["speed_1"] = float(np.asarray(r_squared(jnp.asarray(np.stack([obs[e, t + 1, : LIDAR.stop] for e, t in starts])
        - start), jnp.asarray(guess[:, 0] - start), jnp.ones(len(starts), bool)))[[3, 4, 6]].mean())  # fmt: skip
    return {name: round(value, 4) for name, value in found.items()}


def study(case: Case, data: tuple[np.ndarray, np.ndarray, np.ndarray], episodes: int, steps: int) -> dict[str, Any]:
    """Fit a case to some episodes and evaluate it."""
    obs, action, use = data
    obs = with_history(obs, case.history)
    task = wider(guss.make_task("safe-car-goal"), case.history)
    flat = lambda x: jnp.asarray(x.reshape(1, -1, *x.shape[2:]))  # noqa: E731
    rows = Data(
        flat(obs[:episodes, :-1]), flat(action[:episodes]), flat(obs[:episodes, 1:]), flat(use[:episodes]),
        jnp.asarray([episodes * STEPS], jnp.int32),
    )  # fmt: skip
    settings = FitSettings(loss=case.loss, batch=256, max_steps=steps, learning_rate=2e-3, patience=30)
    net = ModelSettings(hidden=case.hidden, activation=case.activation, ensemble=case.ensemble)  # type: ignore[arg-type]
    fresh = jax.jit(jax.vmap(partial(make_model, case.model, task, settings=net)))(jax.random.key(0)[None])
    started = time.perf_counter()
    models, _ = jax.block_until_ready(
        fit_all(fit_programs(fresh, fresh, rows, jax.random.key(1)[None], settings, False))
    )
    seconds = time.perf_counter() - started
    model = jax.tree.map(lambda x: x[0], models)
    scores = evaluate(model, obs[TRAIN:], action[TRAIN:], use[TRAIN:])
    return dataclasses.asdict(case) | {"rows": episodes * STEPS, "fit_seconds": round(seconds, 1)} | scores


def table(rows: list[dict[str, Any]]) -> str:
    """As Markdown."""
    lines = [
        "| model | transitions | speeds, 1 step | goal, 30 | lidar, 1 | lidar, 30 | nearest hazard, 10 | nearest, 30 |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    show = lambda x: "< −1" if x < -1 else f"{x:.2f}".replace("-", "−")  # noqa: E731
    for row in rows:
        cells = [show(row[k]) for k in ("speed_1", "goal_30", "lidar_1", "lidar_30", "nearest_10", "nearest_30")]
        lines.append(f"| {row['name']} | {row['rows']:,} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Collect, fit, evaluate, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/car"))
    parser.add_argument("--episodes", type=int, nargs="+", default=[2, 30])
    parser.add_argument("--steps", type=int, default=4000, help="gradient steps of 256 transitions")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    args = parser.parse_args()
    data = collect()
    args.out.mkdir(parents=True, exist_ok=True)
    kept = args.out / "models.json"
    rows = json.loads(kept.read_text())["rows"] if kept.exists() else []  # continues an interrupted study
    order = [(case.name, episodes * STEPS) for case in CASES for episodes in args.episodes]
    for case in CASES:
        for episodes in args.episodes:
            done = any((row["name"], row["rows"]) == (case.name, episodes * STEPS) for row in rows)
            if args.only in case.name and not done:
                rows.append(study(case, data, episodes, args.steps))
                rows.sort(key=lambda row: order.index((row["name"], row["rows"])))
                origin = provenance(shlex.join(["python", "studies/car_models.py", *sys.argv[1:]]))
                kept.write_text(json.dumps({"provenance": origin, "rows": rows}, indent=1) + "\n")
                (args.out / "models.md").write_text(table(rows))
                now = next(r for r in rows if (r["name"], r["rows"]) == (case.name, episodes * STEPS))
                print(json.dumps({k: now[k] for k in ("name", "rows", "lidar_1", "lidar_30", "nearest_10",
                      "nearest_30", "goal_30", "speed_1", "fit_seconds")}), flush=True)  # fmt: skip
    print(table(rows))


if __name__ == "__main__":
    main()
