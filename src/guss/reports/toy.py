"""Fig. 2 and the figure of appendix B, from the stored records of the toy experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.patches import Circle

from guss.envs.toy import ToyLayout
from guss.reports.escapes import plot_text
from guss.reports.run_summary import json_numbers
from guss.reports.style import add_rectangle, new_figure, save_figure, style_of
from guss.runs import metrics
from guss.runs.store import write_json
from guss.runs.toy import load_toy, safe_cells
from guss.validation import build

MEASURES = ("safe_plan_share", "coverage", "coverage_of_step")
GREY = "#c9c9c9"


def layout_of(data: dict[str, Any]) -> ToyLayout:
    """The layout that the experiment stored."""
    return build(ToyLayout, data["config"]["layout"], "the stored layout")


def at_goal(layout: ToyLayout, record: dict[str, np.ndarray]) -> np.ndarray:
    """Whether each position of every seed is within the goal's radius, [T + 1, S]."""
    distance = np.linalg.norm(record["position"] - np.asarray(layout.goal), axis=-1)
    return distance <= layout.goal_radius


def summarise(data: dict[str, Any], records: dict[str, dict[str, np.ndarray]]) -> dict[str, Any]:
    """Measures per method, and p-values of GuSS against each other method (rank-sum test of per-seed means)."""
    layout = layout_of(data)
    methods = {}
    for name, record in records.items():
        arrived = at_goal(layout, record)
        reached = np.asarray(arrived.any(axis=0)).tolist()
        first = [step if ever else None for step, ever in zip(arrived.argmax(axis=0).tolist(), reached, strict=True)]
        methods[name] = {
            "seeds": len(data["config"]["seeds"]),
            "reached": sum(reached),
            "reached_per_seed": reached,
            "first_reached_step_per_seed": first,
            "cost_per_seed": record["cost"].sum(axis=0).tolist(),
            "mean_reward": float(record["reward"].mean()),
            "mean_reward_per_seed": json_numbers(record["reward"].mean(axis=0), 6),
            "plans_per_step": int(record["evaluated"].max()),
            "fallback_steps": int(record["fallback"].sum()),
            "archive_occupancy": float(record["occupancy"].mean()),
            "seconds": round(float(record["seconds"]), 2),
            "compile_seconds": round(float(record["compile_seconds"]), 2),
        }
        for measure in MEASURES:
            values = record[measure]
            methods[name][measure] = float(values.mean())
            methods[name][f"{measure}_per_seed"] = json_numbers(values.mean(axis=0), 6)
            methods[name][f"{measure}_per_step"] = json_numbers(values.mean(axis=1), 6)
    return {
        "experiment": "toy",
        "config": data["config"],
        "provenance": data["provenance"],
        "safe_cells": int(safe_cells(layout).sum()),
        "methods": methods,
        "p_values": {
            name: {
                measure: metrics.rank_sum_p(records["guss"][measure].mean(axis=0), record[measure].mean(axis=0))
                for measure in MEASURES
            }
            for name, record in records.items()
            if name != "guss" and "guss" in records
        },
    }


def write_toy_report(home: Path) -> tuple[dict[str, Any], list[Path]]:
    """Write summary.json and the figures into an experiment folder; returns the summary and all files."""
    data, records = load_toy(home)
    summary = summarise(data, records)
    figures = [
        *save_figure(draw_exploration(data, records), home / "exploration"),
        *save_figure(draw_trajectories(data, records), home / "trajectories"),
    ]
    path = home / "summary.json"
    write_json(path, summary)
    return summary, [path, *figures]


# ------------------------------------------------------------------------------------------------------- figures


def draw_layout(axes: Any, layout: ToyLayout) -> None:
    """Draw unsafe areas, start and goal."""
    for area in layout.unsafe:
        add_rectangle(axes, area, facecolor=GREY, edgecolor="#999999", hatch="//")
    x, y = layout.goal
    axes.add_patch(Circle((x, y), layout.goal_radius, facecolor="#bfe5bf", edgecolor="#2a7d2a"))
    axes.plot(*layout.start, marker="s", color="black", markersize=5)
    edge = 0.02 * layout.size
    axes.set(xlim=(-edge, layout.size + edge), ylim=(-edge, layout.size + edge), aspect="equal", xlabel="x", ylabel="y")


def draw_exploration(data: dict[str, Any], records: dict[str, dict[str, np.ndarray]]) -> Any:
    """Fig. 2: (a) world, (b) safe plans, (c) coverage, (d) reward and cost per step."""
    layout = layout_of(data)
    count = len(data["config"]["seeds"])
    figure, axes = new_figure(3, 2, 11.0, 6.4)
    world, safe, coverage, reward, cost, legend = axes.ravel()

    draw_layout(world, layout)
    world.annotate("start", layout.start, (0, 6), textcoords="offset points", ha="center", fontsize=8)
    x, y = layout.goal
    world.annotate("goal", (x, y - layout.goal_radius), (0, -9), textcoords="offset points", ha="center", fontsize=8)
    for x0, x1, y0, y1 in layout.unsafe[:1]:
        middle = ((x0 + x1) / 2, (y0 + y1) / 2)
        world.text(*middle, "unsafe", ha="center", va="center", fontsize=9, backgroundcolor=GREY)
    world.set_title("(a) The world")

    panels = (
        (safe, "safe_plan_share", 100.0, "(b) Share of safe plans", "safe plans [%]"),
        (coverage, "coverage", 100.0, "(c) Safe space explored so far", "safe cells visited by safe plans [%]"),
        (reward, "reward", 1.0, "(d) Reward per step", "reward"),
        (cost, "cost", 100.0, "(d) Unsafe steps", "seeds in an unsafe area [%]"),
    )
    for panel, measure, factor, title, unit in panels:
        for name, record in records.items():
            values = record[measure] * factor
            mean, std = values.mean(axis=1), values.std(axis=1)
            steps = np.arange(1, len(mean) + 1)
            style = style_of(name)
            low, high = mean - std, mean + std
            if measure != "reward":
                low, high = low.clip(0.0), high.clip(max=factor)
            panel.fill_between(steps, low, high, color=style["color"], alpha=0.15, lw=0)
            panel.plot(steps, mean, lw=1.6, zorder=3 if name == "guss" else 2, **style)
        panel.set(title=title, xlabel="step of the episode", ylabel=unit, xlim=(1, len(mean)))
        if measure != "reward":
            panel.set_ylim(-0.02 * factor, 1.02 * factor)  # lines at zero stay visible

    handles, labels = safe.get_legend_handles_labels()
    legend.axis("off")
    seeds = f"{count} seed{'s' * (count != 1)}"
    settings = data["config"]
    plans = f"{plot_text(settings['budget'])} plans of {plot_text(settings['horizon'])} steps"
    title = f"Mean over {seeds}, ± one standard deviation\n{plans}, perfect model\n"
    legend.legend(handles, labels, loc="center", frameon=False, ncols=2, handlelength=3, fontsize=10, title=title)
    return figure


def draw_trajectories(data: dict[str, Any], records: dict[str, dict[str, np.ndarray]]) -> Any:
    """Appendix B: the paths of all seeds, a panel per method, unsafe steps marked."""
    layout = layout_of(data)
    columns = min(4, len(records))
    rows = -(-len(records) // columns)
    figure, axes = new_figure(columns, rows, 2.9 * columns, 3.2 * rows, squeeze=False, sharex=True, sharey=True)
    for panel in axes.ravel()[len(records) :]:
        panel.axis("off")
    for panel, (name, record) in zip(axes.ravel(), records.items(), strict=False):
        draw_layout(panel, layout)
        style = style_of(name)
        paths = record["position"]
        for seed in range(paths.shape[1]):
            panel.plot(paths[:, seed, 0], paths[:, seed, 1], color=style["color"], lw=1.0, alpha=0.7)
        unsafe = paths[1:][record["cost"] > 0]
        panel.plot(unsafe[:, 0], unsafe[:, 1], ".", color="#b2182b", markersize=2.5)
        reached, mean_unsafe = at_goal(layout, record).any(axis=0).sum(), record["cost"].sum(axis=0).mean()
        title = f"{style['label']}: {reached} of {paths.shape[1]} reach the goal\n{mean_unsafe:.1f} unsafe steps (mean)"
        panel.set_title(title, fontsize=9)
    for i, panel in enumerate(axes.ravel()[: len(records)]):
        panel.label_outer()
        if i + columns >= len(records):  # nothing below it
            panel.tick_params(labelbottom=True)
            panel.set_xlabel("x")
    figure.suptitle("Paths in the toy world, one line per seed; hatched: unsafe; red: unsafe steps; green: goal")
    return figure
