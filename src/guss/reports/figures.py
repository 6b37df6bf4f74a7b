"""Figures that compare the runs of one environment: Pareto fronts (Fig. 5), model errors, states and violations.

Each `draw_…` gives a matplotlib figure, or None where the records do not hold what it shows.
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
from guss.reports.table import Row, section_of
from guss.runs import metrics
from guss.runs.description import bundled_method

MARKERS = {"safe, with a model": "o", "reward alone, with a model": "s", "without a model": "^", "for comparison": "x"}


# ------------------------------------------------------------------------------------------------------ Pareto fronts


def draw_pareto(env: str, rows: list[Row]) -> Any:
    """Reward against unsafe steps, ours and the paper's, with the fronts and every method's rank on them."""
    reward = metrics.MEASURES[rows[0].measure]
    ours = [(row.style, row.section, row.pair("unsafe_pct"), row.pair("mar")) for row in rows]
    theirs = []
    for method in paper_methods(env):
        paper = paper_figures(env, method)
        theirs.append((style_of(method), section_of(bundled_method(method))[0], paper["unsafe_pct"], paper["mar"]))
    panels: Any = [("here", ours), ("in the paper (Table 1)", theirs)] if theirs else [("", ours)]
    figure, axes = new_figure(len(panels), 1, 5.4 * len(panels), 4.2, squeeze=False)
    for panel, (title, points) in zip(axes[0], panels, strict=True):
        log = spans_orders([unsafe[0] for _, _, unsafe, _ in points])
        _fronts(panel, points, log)
        panel.set(title=title, xlabel=f"unsafe steps [%]{', log scale' * log}", ylabel=f"MAR ({reward})")
    label = plot_text(rows[0].env_label)
    figure.suptitle(f"{label}: Pareto fronts, with ranks; up and to the left is better", fontsize=10)
    look = {"ls": "", "color": "#555555"}
    sections = dict.fromkeys(section for _, points in panels for _, section, _, _ in points)
    handles = [axes[0][0].plot([], [], marker=MARKERS[each], label=each, **look)[0] for each in sections]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8,
                  title="bars: 90 % intervals over seeds", title_fontsize=8)  # fmt: skip
    return figure


def spans_orders(values: list[float]) -> bool:
    """Whether values need a logarithmic axis: the largest is at least 30 times the smallest that is not zero."""
    positive = [value for value in values if value > 0]
    return bool(positive) and max(positive) >= 30 * min(positive)


def _fronts(axes: Any, points: list[tuple[dict[str, Any], str, Any, Any]], log: bool) -> None:
    unsafe, reward = (np.asarray([pair[0] for pair in pairs], float) for pairs in list(zip(*points, strict=True))[2:])
    ranks = metrics.pareto_ranks(reward, unsafe)
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
    _label(axes, unsafe, reward, [f"{p[0]['label']} ({rank})" for p, rank in zip(points, ranks, strict=True)],
           [p[0]["color"] for p in points])  # fmt: skip


def _unsafe_axis(axes: Any, unsafe: np.ndarray, log: bool) -> None:
    """Shares of unsafe steps from 0 on; on a logarithmic axis 0 is shown too, a linear piece below the smallest."""
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


def _label(axes: Any, x: np.ndarray, y: np.ndarray, texts: list[str], colours: list[str]) -> None:
    """Names in a column on the right, in the points' order from below, a thin line from each to its point."""
    low, high = axes.get_ylim()
    order = np.argsort(y, kind="stable")
    lines = max(text.count("\n") for text in texts) + 1
    wanted, apart = (y[order] - low) / (high - low), min(0.075 * lines, 1.0 / len(texts))
    heights = wanted.copy()
    for k in range(1, len(heights)):  # upwards, far enough from the one below
        heights[k] = max(heights[k], heights[k - 1] + apart)
    heights -= max(heights[-1] - 1.0, 0.0) * np.linspace(0.0, 1.0, len(heights)) ** 0.5
    for k in range(len(heights) - 2, -1, -1):
        heights[k] = min(heights[k], heights[k + 1] - apart)
    for k, i in enumerate(order):
        line = {"arrowstyle": "-", "lw": 0.5, "color": colours[i], "shrinkA": 1, "shrinkB": 4, "relpos": (0, 0.5)}
        axes.annotate(texts[i], (x[i], y[i]), (1.03, heights[k]), textcoords=axes.transAxes, va="center", fontsize=8,
                      arrowprops=line, annotation_clip=False)  # fmt: skip


# -------------------------------------------------------------------------------------------------------- the model


def draw_model(records: list[Record]) -> Any:
    """How wrong the model is, one step and a whole plan ahead, and how well it knows that, by episode."""
    panels: tuple[tuple[str, str, str, bool], ...] = (
        ("r2", "one step ahead, held-out rows", "share of variance not explained", True),
        ("r2_horizon", "at the end of a plan", "share of variance not explained", True),
        ("ks", "calibration", "KS distance from a calibrated prediction", False),
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
            panel.axhline(1.0, color="#888888", lw=0.8, ls="--")
            panel.set_ylim(top=min(panel.get_ylim()[1], 30.0))
        else:
            panel.set_ylim(bottom=0.0)
        panel.set(title=title, xlabel="episode", ylabel=label)
    axes[0].annotate("as good as the mean", (1, 1), (2, 3), textcoords="offset points", fontsize=7, color="#555555")
    figure.suptitle(f"{plot_text(records[0].env_label)}: the learned model", fontsize=10)
    title = "median over seeds (mean over dimensions), bands: the middle half of the seeds"
    legend_below(figure, axes[0], 8, title=title)
    return figure


def _model_errors(record: Record) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By field: episode numbers [N] and values [N, S], means over what is predicted; left out what is no number."""
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
    """Whether the states of all were counted by the same cells."""
    return all(found[k] == maps[0][1][k] for _, found in maps for k in ("labels", "limits", "cells"))


def draw_states(maps: Mapped) -> Any:
    """Where each run has been, and where it was unsafe: two maps a run, of all its stored episodes."""
    if not maps:
        return None
    first, count = maps[0][1], len(maps)
    edges = np.asarray([found["limits"] for _, found in maps], float)  # all are shown by the same axes
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
                share = f"{100 * found['covered'][-1]:.0f} % of the map"
                panel.set_title(f"{folded(record.label, 22)}\n{share}", fontsize=8)
            elif not cells.any():
                panel.text(0.5, 0.5, "none", transform=panel.transAxes, ha="center", fontsize=8, color="#555555")
            if j == count - 1:
                bar = figure.colorbar(image, ax=axes[row].tolist(), ticks=[-4, -2, 0], shrink=0.8, pad=0.01)
                bar.ax.set_yticklabels(["0.0001 %", "0.01 %", "1 %"], fontsize=7)
                bar.set_label("of all steps", fontsize=7)
    for row, name in enumerate(("all steps", "unsafe steps")):
        axes[row][0].set_ylabel(f"{name}\n{folded(first['labels'][1], 44)}", fontsize=8)
    for panel in axes.ravel():
        panel.tick_params(labelsize=7)
    figure.supxlabel(plot_text(first["labels"][0]), fontsize=8)
    seeds, episodes = ([found[field] for _, found in maps] for field in ("seeds", "episodes"))
    counts = f"{_range(seeds)} seeds, {_range(episodes)} episodes of each stored step by step"
    figure.suptitle(f"{plot_text(maps[0][0].env_label)}: where it was, and where it was unsafe\n({counts})", fontsize=9)
    return figure


def _range(counts: list[int]) -> str:
    return str(min(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def draw_coverage(maps: Mapped) -> Any:
    """How much of the map of states was visited by the end of every episode; None if they are not of one map."""
    if not maps or not same_plane(maps):
        return None
    figure, axes = new_figure(1, 1, 6.4, 3.4)
    for record, found in maps:
        number = 1 + np.asarray(found["numbers"])
        axes.plot(number, 100 * np.asarray(found["covered"]), lw=1.6, **record.style)
    axes.set(xlabel="episode", ylabel="cells visited so far [%]", xscale="log", ylim=(0, None))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_title(f"{plot_text(maps[0][0].env_label)}: state space covered, mean over seeds", fontsize=10)
    axes.legend(frameon=False, fontsize=8, handlelength=3, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


# ----------------------------------------------------------------------------------------------------------- gallery

POSES = {
    "safe-toy": [5.0, 5.0],
    "safe-pendulum": [np.cos(2.2), np.sin(2.2), 0.0],
    "safe-acrobot": [np.cos(0.9), np.sin(0.9), np.cos(0.6), np.sin(0.6), 0.0, 0.0],
    "safe-car-goal": [*[0.0] * 10, 0.9, 0.6, 0.55, 0.3, 0.92, 0.25, 0.4, 0.2, 0.6, 0.35, 0.5, 0.3],
}
"""Observations that show what an environment is; the car's: its own motion, the goal's place, ten lidar readings."""


def draw_gallery(envs: list[str]) -> Any:
    """What the environments look like, with what is unsafe in red."""
    shown = [env for env in envs if env in POSES]
    if not shown:
        return None
    figure, axes = new_figure(len(shown), 1, 3.1 * len(shown), 3.6, squeeze=False)
    for panel, env in zip(axes[0], shown, strict=True):
        view: Any = ENVS[env].item.view
        panel.imshow(view.picture(np.asarray(POSES[env])))
        panel.set(xticks=[], yticks=[])
        panel.spines[:].set_visible(False)
        panel.set_title(label_of_env(env), fontsize=10)
        panel.set_xlabel(textwrap.fill(ENVS[env].summary, 40), fontsize=8)
    return figure
