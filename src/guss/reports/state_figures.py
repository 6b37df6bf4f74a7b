"""Figures of visited and unsafe states, and of the share of the state space that was visited.

Each `draw_…` returns a matplotlib figure, or None if the records lack the data for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from guss.reports.escapes import plot_text
from guss.reports.inventory import Record
from guss.reports.style import add_rectangle, folded, new_figure

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
