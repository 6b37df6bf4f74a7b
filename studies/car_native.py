"""Adds the share of steps inside a hazard, Safety Gym's own cost, to packed runs of SafeCar-Goal.

    python studies/car_native.py runs/safe-car-goal-guss-… results/runs/safe-car-goal-guss-…

For runs of versions that did not record it: the first folder is the whole run, with the traces of all episodes; the
second one its packed copy, whose episodes.jsonl.gz is rewritten. Newer runs record it themselves (`Task.measured`).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from guss.checkpoint import write_atomically
from guss.collect.datasets import read_episode
from guss.envs.car import car_task
from guss.envs.car_world import HAZARD_READINGS, LIDAR
from guss.runs.store import packed_bytes, read_lines, trace_path


def share_inside(home: Path, seed: int, episode: int) -> float:
    """Percentage of steps that end inside a hazard."""
    nearest = np.asarray(read_episode(trace_path(home, seed, episode)).next_obs)[:, LIDAR].max(axis=1)
    return 100.0 * float((nearest > np.float32(HAZARD_READINGS["exponential"])).mean())


def main() -> None:
    """Rewrite the records of a packed run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the whole run")
    parser.add_argument("packed", type=Path, help="its packed copy")
    args = parser.parse_args()
    task = car_task()
    paper, own = task.constraints[0].name, task.measured[0].name
    rows = read_lines(args.packed / "episodes.jsonl")
    for row in rows:
        inside = share_inside(args.run, row["seed"], row["episode"])
        status = row.pop("status")
        row |= {"unsafe_pct_by_cost": {paper: row["unsafe_pct"], own: inside}, "status": status}
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    write_atomically(args.packed / "episodes.jsonl.gz", packed_bytes(lines.encode()))
    mean = np.mean([row["unsafe_pct_by_cost"][own] for row in rows])
    print(f"{args.packed.name}: {len(rows)} episodes, {mean:.2f} % of the steps inside a hazard")


if __name__ == "__main__":
    main()
