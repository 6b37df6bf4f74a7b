"""An animation of CEM and GuSS in the toy world on one seed, from the stored records of `guss reproduce toy`.

python studies/toy_animation.py results/toy --seed 0
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.animation import FuncAnimation, PillowWriter

from guss.reports.style import new_canvas
from guss.reports.toy import at_goal, draw_layout, layout_of
from guss.runs.toy import load_toy

SHOWN = {"cem": "CEM: reward only", "guss": "GuSS: cost first, then reward"}
UNSAFE, SAFE = "#c8102e", "#0072B2"


def last_step(data: dict[str, Any], record: dict[str, np.ndarray], seed: int) -> int:
    """The step at which the goal is reached, or the last one."""
    arrived = at_goal(layout_of(data), record)[:, seed]
    return int(arrived.argmax()) if arrived.any() else len(arrived) - 1


def main() -> None:
    """Draw every second step until both are at the goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("home", type=Path, nargs="?", default=Path("results/toy"))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    data, records = load_toy(args.home)
    column = data["config"]["seeds"].index(args.seed)
    ends = {name: last_step(data, records[name], column) for name in SHOWN}

    figure = new_canvas(7.2, 4.0, 90)
    axes = figure.subplots(1, 2)
    artists = {}
    for ax, (name, title) in zip(axes, SHOWN.items(), strict=True):
        draw_layout(ax, layout_of(data))
        ax.set(xlabel="", ylabel="", xticks=[], yticks=[], title=title)
        ax.annotate("start", layout_of(data).start, (7, -4), textcoords="offset points", fontsize=9)
        ax.annotate("goal", layout_of(data).goal, (-4, -22), textcoords="offset points", fontsize=9, ha="center")
        ax.text(25, 20, "unsafe", ha="center", fontsize=11, color="#555555")
        dots = ax.scatter([], [], s=14, zorder=3)
        head = ax.scatter([], [], s=60, zorder=4, edgecolor="white")
        count = ax.text(25, -5, "", ha="center", va="top", fontsize=10)
        artists[name] = dots, head, count

    def draw(step: int) -> None:
        for name, (dots, head, count) in artists.items():
            now = min(step, ends[name])
            path = records[name]["position"][: now + 1, column]
            cost = records[name]["cost"][:now, column]
            colours = [SAFE, *(UNSAFE if c else SAFE for c in cost)]
            dots.set_offsets(path)
            dots.set_color(colours)
            head.set_offsets(path[-1:])
            head.set_facecolor(colours[-1])
            arrived = ", goal reached" if step >= ends[name] else ""
            count.set_text(f"step {now}: {int(cost.sum())} unsafe steps{arrived}")

    last = max(ends.values())
    frames = [*range(0, last, 2), *[last] * 12]
    FuncAnimation(figure, draw, frames=frames).save(args.home / "cem-and-guss.gif", writer=PillowWriter(fps=10))


if __name__ == "__main__":
    main()
