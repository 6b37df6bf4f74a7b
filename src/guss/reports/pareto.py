"""Reward against unsafe steps, with Pareto fronts (Fig. 5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from guss.reports.escapes import plot_text
from guss.reports.paper import paper_figures, paper_methods
from guss.reports.style import new_figure, style_of
from guss.reports.table import SECTIONS, Row, section_of
from guss.runs import metrics
from guss.runs.description import bundled_method

MARKERS = dict(zip(SECTIONS, "os^x", strict=True))


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
        reach = np.clip(x[1] or 0.0, 0.0, np.maximum([[x[0]], [100.0 - x[0]]], 0.0))  # of a percentage: from 0 to 100
        axes.errorbar(x[0], y[0], xerr=reach, yerr=y[1] or 0.0, color=colour, marker=MARKERS[section], ms=7,
                      elinewidth=0.9, capsize=2, zorder=3)  # fmt: skip
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
