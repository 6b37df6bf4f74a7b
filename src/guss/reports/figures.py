"""Figures that compare the runs of one environment: Pareto fronts (Fig. 5), model errors, states and violations.

Each `draw_…` returns a matplotlib figure, or None if the records lack the data for it.
"""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np

from guss.envs import ENVS
from guss.reports.escapes import plot_text
from guss.reports.inventory import Record
from guss.reports.paper import paper_figures, paper_methods
from guss.reports.style import add_rectangle, folded, label_of_env, legend_below, new_figure, style_of
from guss.reports.table import SECTIONS, Row, section_of
from guss.runs import metrics
from guss.runs.description import bundled_method

MARKERS = dict(zip(SECTIONS, "os^x", strict=True))


# ------------------------------------------------------------------------------------------------------ Pareto fronts


def draw_pareto(env: str, rows: list[Row]) -> Any:
    """Reward against unsafe steps, of these runs and in the paper, with Pareto fronts and ranks."""
    reward = metrics.MEASURES[rows[0].measure]
    ours = [(row.style, row.section, row.pair("unsafe_pct"), row.pair("mar")) for row in rows]
    theirs = []
    for method in paper_methods(env):
        paper = paper_figures(env, method)
        theirs.append((style_of(method), section_of(bundled_method(method))[0], paper["unsafe_pct"], paper["mar"]))
    panels: Any = [("these runs", ours), ("Table 1 of the paper", theirs)] if theirs else [("", ours)]
    figure, axes = new_figure(len(panels), 1, 5.4 * len(panels), 4.2, squeeze=False)
    for panel, (title, points) in zip(axes[0], panels, strict=True):
        log = spans_orders([unsafe[0] for _, _, unsafe, _ in points])
        _fronts(panel, points, log)
        panel.set(xlabel=f"unsafe steps [%]{', log scale, linear near 0' * log}")
        panel.set_ylabel(f"MAR: {reward},\nsecond half of the episodes")
        panel.set_title(title, fontsize=10)
        _label(panel, points)
    label = plot_text(rows[0].env_label)
    figure.suptitle(f"{label}: reward against unsafe steps; up and to the left is better")
    look = {"ls": "", "color": "#555555"}
    sections = dict.fromkeys(section for _, points in panels for _, section, _, _ in points)
    handles = [axes[0][0].plot([], [], marker=MARKERS[each], label=each, **look)[0] for each in sections]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8,
                  title="(1), (2), …: Pareto rank; lines join methods of equal rank; bars: 90 % intervals over seeds",
                  title_fontsize=8)  # fmt: skip
    return figure


def spans_orders(values: list[float]) -> bool:
    """Whether values need a logarithmic axis: the largest is at least 30 times the smallest that is not zero."""
    positive = [value for value in values if value > 0]
    return bool(positive) and max(positive) >= 30 * min(positive)


def _fronts(axes: Any, points: list[tuple[dict[str, Any], str, Any, Any]], log: bool) -> None:
    unsafe, reward, ranks = _ranked(points)
    for rank in range(1, ranks.max() + 1):
        front = np.flatnonzero(ranks == rank)
        front = front[np.argsort(unsafe[front])]
        shade = str(min(0.25 + 0.2 * (rank - 1), 0.85))
        axes.plot(unsafe[front], reward[front], color=shade, lw=1.4 if rank == 1 else 0.9, ls="-" if rank == 1 else ":")
    for style, section, x, y in points:
        colour = style["color"]
        half = x[1] or 0.0  # of a percentage: from 0 to 100
        axes.errorbar(x[0], y[0], xerr=[[min(half, x[0])], [min(half, 100.0 - x[0])]], yerr=y[1] or 0.0, color=colour,
                      marker=MARKERS[section], ms=7, elinewidth=0.9, capsize=2, zorder=3)  # fmt: skip
    _unsafe_axis(axes, unsafe, log)
    axes.margins(y=0.08)


def _ranked(points: list[tuple[dict[str, Any], str, Any, Any]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unsafe steps, rewards and Pareto ranks of the methods, [N] each."""
    unsafe, reward = (np.asarray([pair[0] for pair in pairs], float) for pairs in list(zip(*points, strict=True))[2:])
    return unsafe, reward, metrics.pareto_ranks(reward, unsafe)


def _unsafe_axis(axes: Any, unsafe: np.ndarray, log: bool) -> None:
    """The axis of unsafe steps, from 0 on; a logarithmic axis is linear below the smallest value, to include 0."""
    largest = float(unsafe.max()) or 1.0
    if log:
        smallest = float(unsafe[unsafe > 0].min()) if (unsafe > 0).any() else 1.0
        ticks = [t for power in range(-3, 3) for t in (10.0**power, 3 * 10.0**power) if smallest <= t <= 2 * largest]
        axes.set_xscale("symlog", linthresh=smallest)
        axes.set_xticks([0.0, *ticks])
        axes.set_xticks([], minor=True)
        axes.set_xlim(left=-0.2 * smallest, right=2.0 * largest)  # room for a marker at 0
    else:
        axes.set_xlim(left=-0.02 * largest, right=1.1 * max(largest, axes.get_xlim()[1] / 1.1))
    axes.xaxis.set_major_formatter("{x:g}")


def _label(axes: Any, points: list[tuple[dict[str, Any], str, Any, Any]]) -> None:
    """Names in a column to the right of the panel, each with a thin line to its point; the lines do not cross."""
    from scipy.optimize import linear_sum_assignment

    axes.autoscale_view()
    x, y, ranks = _ranked(points)
    texts = [f"{style['label']} ({rank})" for (style, *_), rank in zip(points, ranks, strict=True)]
    places = axes.transAxes.inverted().transform(axes.transData.transform(np.stack([x, y], axis=1)))
    lines = max(text.count("\n") for text in texts) + 1
    heights, apart = np.sort(places[:, 1]), min(0.075 * lines, 1.0 / len(texts))
    for k in range(1, len(heights)):  # upwards, far enough from the one below
        heights[k] = max(heights[k], heights[k - 1] + apart)
    heights -= max(heights[-1] - 1.0, 0.0) * np.linspace(0.0, 1.0, len(heights)) ** 0.5
    for k in range(len(heights) - 2, -1, -1):
        heights[k] = min(heights[k], heights[k + 1] - apart)
    lengths = np.hypot(1.03 - places[:, :1], places[:, 1:] - heights)
    for i, k in zip(*linear_sum_assignment(lengths), strict=True):  # the shortest lines in all do not cross
        line = {"arrowstyle": "-", "lw": 0.5, "color": points[i][0]["color"], "shrinkA": 1, "shrinkB": 4}
        axes.annotate(texts[i], (x[i], y[i]), (1.03, heights[k]), textcoords=axes.transAxes, va="center", fontsize=8,
                      arrowprops=line | {"relpos": (0, 0.5)}, annotation_clip=False)  # fmt: skip


# -------------------------------------------------------------------------------------------------------- the model


def draw_model(records: list[Record]) -> Any:
    """Unexplained variance of the model one step ahead and at the planning horizon, and its calibration, by episode."""
    panels: tuple[tuple[str, str, str, bool], ...] = (
        ("r2", "one step ahead, held-out data", "unexplained variance, 1 − R²", True),
        ("r2_horizon", "at the planning horizon, next episode", "unexplained variance, 1 − R²", True),
        ("ks", "calibration, held-out data", "Kolmogorov–Smirnov distance\nfrom a calibrated prediction", False),
    )
    lines = [(record, errors) for record in records if (errors := _model_errors(record))]
    panels = tuple(panel for panel in panels if any(panel[0] in errors for _, errors in lines))
    if not panels:
        return None
    figure, (axes,) = new_figure(len(panels), 1, 3.7 * len(panels), 3.7, squeeze=False)
    for panel, (field, title, label, unexplained) in zip(axes, panels, strict=True):
        for record, errors in lines:
            if field not in errors:
                continue
            number, values = errors[field]
            values = np.clip(1.0 - values, 1e-6, None) if unexplained else values
            low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=1)
            style = record.style
            panel.fill_between(number, low, high, color=style["color"], alpha=0.10, lw=0)
            panel.plot(number, middle, lw=1.4, **style)
        if unexplained:
            panel.set_yscale("log")
            panel.axhline(1.0, color="#888888", lw=0.8, ls="--", label="predicting the mean")
            panel.set_ylim(top=min(panel.get_ylim()[1], 30.0))
        else:
            panel.set_ylim(bottom=0.0)
        panel.set(xlabel="episode", ylabel=label)
        panel.set_title(title, fontsize=10)
    figure.suptitle(f"{plot_text(records[0].env_label)}: errors of the learned model")
    title = "median over seeds, mean over dimensions; bands: the middle half of the seeds; lower is better"
    legend_below(figure, axes[0], 8, title=title)
    return figure


def _model_errors(record: Record) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By field: episode numbers [N] and values [N, S], means over dimensions; episodes with NaN are left out."""
    found = {}
    for field in ("r2", "r2_horizon", "ks"):
        rows = {row["episode"] + 1: np.asarray(row[field], float) for row in record.timings if row.get(field)}
        kept = {n: v.reshape(len(v), -1).mean(axis=1) for n, v in rows.items() if not np.isnan(v).any()}
        if kept:
            found[field] = (np.asarray(list(kept)), np.stack(list(kept.values())))
    return found


# ----------------------------------------------------------------------------------------------- states, violations


Mapped = list[tuple[Record, dict[str, Any]]]
"""Runs with the maps of their states."""


def same_plane(maps: Mapped) -> bool:
    """Whether the states of all runs were counted on the same cells."""
    return all(found[k] == maps[0][1][k] for _, found in maps for k in ("labels", "limits", "cells"))


def draw_states(maps: Mapped) -> Any:
    """Visited and unsafe states: two maps for each run, over all its stored episodes."""
    if not maps:
        return None
    first, count = maps[0][1], len(maps)
    edges = np.asarray([found["limits"] for _, found in maps], float)  # all panels have the same axes
    view = [(float(edges[:, i, 0].min()), float(edges[:, i, 1].max())) for i in (0, 1)]
    figure, axes = new_figure(count, 2, max(1.75 * count + 1.2, 4.8), 4.7, squeeze=False, sharex=True, sharey=True)
    for j, (record, found) in enumerate(maps):
        (x0, x1), (y0, y1) = found["limits"]
        for row, (field, colours) in enumerate((("visited", "viridis"), ("unsafe", "inferno"))):
            panel, cells = axes[row][j], np.zeros(found["cells"])
            for a, b, n in found[field]:
                cells[a, b] = n
            total = sum(n for _, _, n in found["visited"])
            shown = np.where(cells > 0, np.log10(np.maximum(100 * cells / max(total, 1), 1e-4)), np.nan)
            for zone in found["unsafe_zone"]:
                add_rectangle(panel, zone, zorder=1)
            image = panel.imshow(shown.T, origin="lower", extent=(x0, x1, y0, y1), aspect="auto", cmap=colours,
                                 vmin=-4, vmax=1, interpolation="nearest", zorder=2)  # fmt: skip
            panel.set(xlim=view[0], ylim=view[1])
            if row == 0:
                share = f"{100 * found['covered'][-1]:.0f} % of the cells"
                panel.set_title(f"{folded(record.label, 22)}\n{share}", fontsize=8)
            elif not cells.any():
                panel.text(0.5, 0.5, "none", transform=panel.transAxes, ha="center", fontsize=8, color="#555555")
            if j == count - 1:
                bar = figure.colorbar(image, ax=axes[row].tolist(), ticks=[-4, -2, 0], shrink=0.8, pad=0.01)
                bar.ax.set_yticklabels(["0.0001 %", "0.01 %", "1 %"], fontsize=7)
                bar.set_label("share of all steps", fontsize=7)
    for row, name in enumerate(("visited", "unsafe")):
        axes[row][0].set_ylabel(f"{name}\n{folded(first['labels'][1], 44)}", fontsize=8)
    for panel in axes.ravel():
        panel.tick_params(labelsize=7)
    figure.supxlabel(plot_text(first["labels"][0]), fontsize=8)
    seeds, episodes = ([found[field] for _, found in maps] for field in ("seeds", "episodes"))
    counts = f"{_range(seeds)} seeds, {_range(episodes)} stored episodes of each; cells visited: mean over seeds"
    zone = "; pink: unsafe zone" * any(found["unsafe_zone"] for _, found in maps)
    figure.suptitle(f"{plot_text(maps[0][0].env_label)}: visited and unsafe states\n({counts}{zone})", fontsize=9)
    return figure


def _range(counts: list[int]) -> str:
    return str(min(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def draw_coverage(maps: Mapped) -> Any:
    """Share of the state map's cells visited by the end of every episode; None if the runs have different maps."""
    if not maps or not same_plane(maps):
        return None
    figure, axes = new_figure(1, 1, 6.4, 3.4)
    for record, found in maps:
        number = 1 + np.asarray(found["numbers"])
        axes.plot(number, 100 * np.asarray(found["covered"]), lw=1.6, **record.style)
    axes.set(xlabel="episode (log scale)", ylabel="cells of the state map visited so far [%]", xscale="log")
    axes.set(xlim=(1, None), ylim=(0, None))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.minorticks_off()
    axes.set_title(f"{plot_text(maps[0][0].env_label)}: state space covered, mean over seeds", fontsize=10)
    axes.legend(frameon=False, fontsize=8, handlelength=3, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


# ----------------------------------------------------------------------------------------------------------- gallery

POSES = {
    "safe-toy": [5.0, 5.0],
    "safe-pendulum": [np.cos(2.2), np.sin(2.2), 0.0],
    "safe-acrobot": [np.cos(0.9), np.sin(0.9), np.cos(0.6), np.sin(0.6), 0.0, 0.0],
    "safe-car-goal": [*[0.0] * 10, 0.9, 0.6, 0.55, 0.3, 0.92, 0.25, 0.4, 0.3, 0.6, 0.35, 0.5, 0.3],
}
"""The observation drawn of each environment; the car's: its motion, the position of the goal, ten lidar readings."""


def draw_gallery(envs: list[str]) -> Any:
    """The environments, with their unsafe zones in red (toy world: grey)."""
    shown = [env for env in envs if env in POSES]
    if not shown:
        return None
    figure, axes = new_figure(len(shown), 1, 3.1 * len(shown), 4.2, squeeze=False)
    for panel, env in zip(axes[0], shown, strict=True):
        view: Any = ENVS[env].item.view
        panel.imshow(view.picture(np.asarray(POSES[env])))
        panel.set(xticks=[], yticks=[])
        panel.spines[:].set_visible(False)
        panel.set_title(label_of_env(env), fontsize=10)
        panel.set_xlabel(textwrap.fill(ENVS[env].summary, 40), fontsize=8)
    notes = [("grey (toy world) and red" if "safe-toy" in shown else "red") + ": unsafe", "green: goal or tip"]
    notes += ["arcs around the car: hazards sensed by its lidar"] * ("safe-car-goal" in shown)
    figure.supxlabel("; ".join(notes), fontsize=8, color="#555555")
    return figure
