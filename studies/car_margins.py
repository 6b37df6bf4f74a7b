"""Reward against safety by planning margin, from stored runs of SafeCar-Goal with their traces.

    python studies/car_margins.py results/car/margins --out results/car

Planned episodes only. Writes margins.json, margins.md (the table of docs/car.md) and margins.png.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np

from guss.envs.car_world import HAZARD_RADIUS, LIDAR, LIDAR_LIMIT
from guss.reports.style import new_figure, save_figure
from guss.runs.metrics import interval
from guss.runs.provenance import provenance
from guss.runs.results import read_config
from guss.runs.store import read_lines, trace_path


def measure(home: Path) -> dict[str, Any]:
    """One run: return of a planned episode, unsafe steps, steps inside a hazard, by seed."""
    config = read_config(home)
    rows = [row for row in read_lines(home / "episodes.jsonl") if row["phase"] == "plan"]
    inside = {seed: [] for seed in config.seeds}
    for row in rows:
        lidar = np.load(trace_path(home, row["seed"], row["episode"]))["next_obs"][:, LIDAR]
        inside[row["seed"]].append(100 * float((lidar.max(axis=1) > math.exp(-HAZARD_RADIUS)).mean()))
    each = lambda name: [float(np.mean([r[name] for r in rows if r["seed"] == s])) for s in config.seeds]  # noqa: E731
    return {
        "run": home.name,
        "margin": float(config.planning_margin),  # type: ignore[arg-type]
        "seeds": list(config.seeds),
        "planned_episodes": len(rows) // len(config.seeds),
        "return": each("return"),
        "unsafe_pct": each("unsafe_pct"),
        "inside_pct": [float(np.mean(inside[seed])) for seed in config.seeds],
    }


def table(rows: list[dict[str, Any]]) -> str:
    """As Markdown."""
    lines = [
        "| margin | distance of plans from a centre | return | unsafe steps [%] | steps inside a hazard [%] |",
        "|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        keep = -math.log(LIDAR_LIMIT - row["margin"])
        gained, unsafe, inside = (interval(row[name]) for name in ("return", "unsafe_pct", "inside_pct"))
        lines.append(
            f"| {row['margin']:g} | {keep:.2f} m | {gained.mean:.1f} ± {gained.half_width:.1f} | {unsafe.mean:.3f} | "
            f"{inside.mean:.2f} ± {inside.half_width:.2f} |"
        )
    return "\n".join(lines) + "\n"


def draw(rows: list[dict[str, Any]]) -> Any:
    """Return against steps inside a hazard."""
    figure, axes = new_figure(1, 1, 5.2, 3.6)
    x, y = ([float(np.mean(row[name])) for row in rows] for name in ("inside_pct", "return"))
    axes.plot(x, y, "o-", color="#0072B2", ms=5, lw=1.4)
    for row, a, b in zip(rows, x, y, strict=True):
        axes.plot(row["inside_pct"], row["return"], ".", color="#0072B2", alpha=0.35, ms=5)
        axes.annotate(f"margin {row['margin']:g}", (a, b), (6, -10), textcoords="offset points", fontsize=8)
    axes.set(xlabel="steps inside a hazard (within 0.2 m of its centre) [%]", ylabel="return of a planned episode")
    axes.set_xlim(left=min(0.0, min(x)) - 0.1)
    axes.set_ylim(bottom=0.0)
    axes.set_title("SafeCar-Goal: reward against safety", fontsize=10)
    return figure


def main() -> None:
    """Read, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="folder of runs that differ in their margin")
    parser.add_argument("--out", type=Path, default=Path("results/car"))
    args = parser.parse_args()
    rows = sorted((measure(home) for home in args.runs.iterdir() if home.is_dir()), key=lambda row: row["margin"])
    origin = provenance(shlex.join(["python", "studies/car_margins.py", *sys.argv[1:]]))
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "margins.json").write_text(json.dumps({"provenance": origin, "rows": rows}, indent=1) + "\n")
    (args.out / "margins.md").write_text(table(rows))
    save_figure(draw(rows), args.out / "margins")
    print(table(rows))


if __name__ == "__main__":
    main()
