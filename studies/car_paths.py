"""Paths of the cars of stored runs, an animation, and how long cars stood still in or near a hazard.

    python studies/car_paths.py results/runs/safe-car-goal-guss-… --out results/car

Episodes are replayed with the stored actions; the physics are deterministic, and the observations are checked.
Writes paths-METHOD.png (the last episode of every seed), parked.json (also with the fewest and most goals of an
episode) and, with --animation, episode.gif.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from guss.collect.host_envs import derived_seed
from guss.envs.car_env import SafeCarGoalEnv
from guss.envs.car_world import ARENA, GOAL_RADIUS, HAZARD_RADIUS
from guss.reports.style import new_figure, save_figure
from guss.runs.provenance import provenance
from guss.runs.results import read_config
from guss.runs.store import read_lines, trace_path

UNSAFE_RADIUS = 0.105
BESIDE, STILL = 0.35, 0.05  # metres from a hazard's centre; metres in 25 steps (a second)


class Drive(NamedTuple):
    """An episode in the world."""

    path: np.ndarray  # [T + 1, 2]
    goals: np.ndarray  # [T, 2], before each step
    hazards: np.ndarray  # [8, 2]
    cost: np.ndarray  # [T]
    frames: list[np.ndarray]


def drive_again(home: Path, seed: int, episode: int, every: int = 0) -> Drive:
    """The stored episode with unobserved positions; every `every`-th step as an image."""
    trace = np.load(trace_path(home, seed, episode))
    env = SafeCarGoalEnv(render_mode="rgb_array" if every else None)
    obs, _ = env.reset(seed=derived_seed(seed, episode))
    path, goals, frames = [env.cars.qpos[0, :2].copy()], [], []
    for t, action in enumerate(trace["action"]):
        if not np.allclose(obs, trace["obs"][t], atol=1e-4):
            sys.exit(f"{home}, seed {seed}, episode {episode}: the observation of step {t} differs from the stored one")
        goals.append(env.cars.goal[0].copy())
        if every and t % every == 0:
            picture = env.render()
            assert picture is not None
            frames.append(picture)
        obs = env.step(action)[0]
        path.append(env.cars.qpos[0, :2].copy())
    env.close()
    return Drive(np.asarray(path), np.asarray(goals), env.cars.hazards[0].copy(), trace["cost"][:, 0], frames)


def longest(mask: np.ndarray) -> int:
    """The longest stretch of True."""
    best = run = 0
    for value in mask:
        run = run + 1 if value else 0
        best = max(best, run)
    return best


def goal_changes(drive: Drive) -> np.ndarray:
    """The steps at which the goal was reached."""
    return np.flatnonzero((np.diff(drive.goals, axis=0) != 0).any(axis=1))


def habits(drive: Drive) -> dict[str, int]:
    """The longest times, in steps, that the car stood still, was near a hazard, or was unsafe."""
    away = np.linalg.norm(drive.path[1:, None] - drive.hazards[None], axis=-1).min(axis=1)
    ahead = np.minimum(np.arange(len(away)) + 25, len(away))
    still = np.linalg.norm(drive.path[ahead] - drive.path[:-1], axis=1) < STILL
    return {
        "still": longest(still),
        "still_beside_a_hazard": longest(still & (away < BESIDE)),
        "beside_a_hazard": longest(away < BESIDE),
        "unsafe": longest(drive.cost > 0),
    }


def draw(drives: list[tuple[str, Drive]]) -> Any:
    """Paths in their arenas: start, goals in their order, unsafe steps."""
    columns = min(3, len(drives))
    rows = -(-len(drives) // columns)
    figure, grid = new_figure(columns, rows, 3.4 * columns, 3.7 * rows, squeeze=False)
    import matplotlib.pyplot as plt

    for axes in grid.flat[len(drives) :]:
        axes.axis("off")
    for axes, (title, drive) in zip(grid.flat, drives, strict=False):
        for place in drive.hazards:
            axes.add_patch(plt.Circle(place, HAZARD_RADIUS, color="#f0b0b0", lw=0))
            axes.add_patch(plt.Circle(place, UNSAFE_RADIUS, color="#c84646", lw=0))
        changes = [0, *(goal_changes(drive) + 1)]
        for number, t in enumerate(changes):
            axes.add_patch(plt.Circle(drive.goals[t], GOAL_RADIUS, color="#2e9e4f", alpha=0.12, lw=0))
            axes.annotate(str(number + 1), drive.goals[t], fontsize=5, color="#1c6b35", ha="center", va="center")
        axes.plot(*drive.path.T, color="#0072B2", lw=0.8)
        axes.plot(*drive.path[0], "o", color="black", ms=4)
        bad = np.flatnonzero(drive.cost > 0)
        axes.plot(*drive.path[bad + 1].T, ".", color="#D55E00", ms=4)
        axes.add_patch(plt.Rectangle((-ARENA, -ARENA), 2 * ARENA, 2 * ARENA, fill=False, color="#aaaaaa", lw=0.6))
        axes.spines[:].set_visible(False)
        axes.set(xlim=(-2.1, 2.1), ylim=(-2.1, 2.1), aspect="equal", xticks=(), yticks=())
        axes.set_title(f"{title}: {len(changes) - 1} goals, {len(bad)} unsafe steps", fontsize=8)
    return figure


def main() -> None:
    """Replay, draw, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--out", type=Path, default=Path("results/car"))
    parser.add_argument(
        "--animation", action="store_true", help="write the last episode of the first seed as episode.gif"
    )
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {}
    for home in args.runs:
        config = read_config(home)
        done = len({row["episode"] for row in read_lines(home / "episodes.jsonl")})
        last, worst, goals = [], [], []
        for seed in config.seeds:
            for episode in range(config.initial_episodes, done):
                again = drive_again(home, seed, episode)
                worst.append({"seed": seed, "episode": episode} | habits(again))
                goals.append(len(goal_changes(again)))
            last.append((f"seed {seed}, episode {done}", again))
        save_figure(draw(last), args.out / f"paths-{config.method}")
        most = {name: max(worst, key=lambda row, name=name: row[name]) for name in habits(again)}
        about = {"run": home.name, "episodes": len(worst), "goals": [min(goals), max(goals)]}
        found[config.method] = about | {"longest": most}
        print(config.method, json.dumps(most))
    origin = provenance(shlex.join(["python", "studies/car_paths.py", *sys.argv[1:]]))
    (args.out / "parked.json").write_text(json.dumps({"provenance": origin, "methods": found}, indent=1) + "\n")
    if args.animation:
        home, config = args.runs[0], read_config(args.runs[0])
        frames = drive_again(home, config.seeds[0], done - 1, every=8).frames
        pictures = [Image.fromarray(frame).resize((280, 280)).quantize(96) for frame in frames]
        pictures[0].save(args.out / "episode.gif", save_all=True, append_images=pictures[1:], duration=120, loop=0)


if __name__ == "__main__":
    main()
