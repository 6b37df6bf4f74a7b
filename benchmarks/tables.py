"""Tables and the figure of the results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.clock import LIMIT, row_text
from benchmarks.environments import environment_text
from benchmarks.scaling import AXES, exponent
from guss.reports.escapes import markdown_table
from guss.reports.style import new_figure, save_figure

NAMES = {
    "plans": "plans M (n, n_new = M/20)",
    "horizon": "steps of a plan H",
    "ensemble": "members of the ensemble",
    "seeds": "seeds at once",
    "cells": "cells of the grid",
}


def markdown(rows: list[dict[str, Any]], details: dict[str, Any]) -> str:
    """The rows as a table, with the machine and the threads named."""
    sources = list(details.get("provenance", {}).values())
    machines = sorted({f"{s['machine']['cpu']}, {s['machine']['cores']} cores" for s in sources})
    commits = sorted({str(s["commit"])[:12] for s in sources})
    threads = sorted({row["threads"] for row in rows})
    lines = [
        f"Machine: {'; '.join(machines)}. Threads of every process: {', '.join(map(str, threads))}. "
        f"Commit {', '.join(commits)}. Times: best of all turns, in brackets the median. Command: `make bench`.",
        "",
    ]
    cases = []
    for row in rows:
        ours, peer, ratio = row_text(row)
        cases.append((row["case"], ours, row["peer"], peer, f"at {ratio}" if row["peer"] == LIMIT else ratio))
    lines += markdown_table(["case", "guss", "compared with", "its time", "guss is"], cases)
    if startup := details.get("startup"):
        times = [(name, f"{ms:,.0f}") for name, ms in startup.items()]
        lines += ["", *markdown_table(["time from process start until the end of", "ms"], times)]
    if environment := details.get("environments"):
        lines += ["", environment_text(environment) + "."]
    if grown := details.get("growth"):
        heads = [
            "quantity",
            "range",
            "exponent of the time",
            "exponent between the two largest",
            "memory at the largest",
        ]
        powers = []
        for axis, g in grown.items():
            span = f"{AXES[axis][0]:,} to {AXES[axis][-1]:,}"
            memory = f"{g['last_program_mb']:,.1f} MB (process: {g['last_process_mb']:,.0f} MB)"
            powers.append((NAMES[axis], span, f"{g['exponent']:.2f}", f"{g['last_exponent']:.2f}", memory))
        lines += ["", *markdown_table(heads, powers)]
    return "\n".join(lines) + "\n"


def growth(points: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Exponents of time by axis, and the memory of its largest point."""
    found = {}
    for axis in AXES:
        line = [p for p in points if p["axis"] == axis]
        if len(line) > 1:
            found[axis] = {
                "exponent": exponent(line),
                "last_exponent": exponent(line[-2:]),  # where constant overhead matters least
                "last_program_mb": line[-1]["program_mb"],
                "last_process_mb": line[-1]["process_mb"],
            }
    return found


def draw_scaling(points: list[dict[str, Any]], path: Path) -> list[Path]:
    """Time above, memory below, one column for each quantity; the dotted line is proportional."""
    axes_here = [axis for axis in AXES if any(p["axis"] == axis for p in points)]
    figure, grid = new_figure(len(axes_here), 2, 2.5 * len(axes_here), 4.6, squeeze=False)
    for column, axis in enumerate(axes_here):
        line = [p for p in points if p["axis"] == axis]
        x = [p["value"] for p in line]
        for row, (what, colour) in enumerate((("ms", "#0072B2"), ("program_mb", "#D55E00"))):
            y = [p[what] for p in line]
            ax = grid[row][column]
            ax.loglog(x, y, "o-", color=colour, markersize=4)
            ax.loglog(x, [y[0] * v / x[0] for v in x], ":", color="0.6", linewidth=1, zorder=0)
            low, high = min(y), max(y)
            ax.set_ylim(low / 2, max(high, 10 * low) * 2)
            ax.grid(True, which="major", color="0.92")
        grid[0][column].set_title(
            f"time ∝ {NAMES[axis].split()[-1] if axis == 'horizon' else 'x'}^{exponent(line):.2f}"
        )
        grid[1][column].set_xlabel(NAMES[axis])
    grid[0][0].set_ylabel("a plan takes (ms)")
    grid[1][0].set_ylabel("memory of the program (MB)")
    return list(save_figure(figure, path))
