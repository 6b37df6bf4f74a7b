"""Figures of sweeps: measures against the values of a swept setting, and reward against unsafe steps along them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from guss.reports.escapes import plot_text
from guss.reports.inventory import Record
from guss.reports.labels import compared_settings, flat_values
from guss.reports.pareto import spans_orders
from guss.reports.run_summary import per_seed
from guss.reports.style import distinct_styles, label_of, new_figure
from guss.runs import metrics

MOST_SETTINGS = 4
"""Swept settings in the figure: those with the most lines."""


class Line(NamedTuple):
    """Runs that differ in the value of one setting only."""

    method: str
    label: str
    values: list[float]
    """Increasing."""
    mar: list[metrics.Interval]
    unsafe: list[metrics.Interval]


def swept_lines(records: list[Record]) -> dict[str, list[Line]]:
    """For each setting with several values, the lines of runs that differ in nothing else."""
    settings = [flat_values(compared_settings(record.config)) for record in records]
    found: dict[str, list[Line]] = {}
    for name in dict.fromkeys(name for each in settings for name, value in each.items() if _is_number(value)):
        groups: dict[str, list[int]] = {}
        for i, each in enumerate(settings):
            if _is_number(each.get(name)):
                rest = [records[i].method, sorted((k, str(v)) for k, v in each.items() if k != name)]
                groups.setdefault(str(rest), []).append(i)
        kept = [rows for rows in groups.values() if len({settings[i][name] for i in rows}) > 1]
        if kept:
            firsts = [settings[rows[0]] for rows in kept]
            found[name] = [
                _line(name, [records[i] for i in rows], [settings[i] for i in rows], firsts) for rows in kept
            ]
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _line(name: str, records: list[Record], settings: list[dict[str, Any]], firsts: list[dict[str, Any]]) -> Line:
    """The line of these runs; its label has the settings in which it differs from other lines (`firsts`)."""
    order = sorted(range(len(records)), key=lambda i: settings[i][name])
    mine, measures = settings[0], [per_seed(records[i]) for i in order]
    differ = [k for k, v in mine.items() if k != name and any(k in each and each[k] != v for each in firsts)]
    details = f" ({', '.join(f'{k} {mine[k]}' for k in differ)})" if differ else ""
    mar, unsafe = ([metrics.interval(each[measure]) for each in measures] for measure in ("mar", "unsafe_pct"))
    values = [float(settings[i][name]) for i in order]
    return Line(records[0].method, label_of(records[0].method) + details, values, mar, unsafe)


def draw_swept(records: list[Record]) -> Any:
    """A row of panels for each swept setting: reward, unsafe steps, one against the other; None if there is none."""
    found = swept_lines(records)
    names = sorted(found, key=lambda name: -len(found[name]))[:MOST_SETTINGS]
    if not names:
        return None
    figure, axes = new_figure(3, len(names), 12.5, 3.0 * len(names) + 0.5, squeeze=False)
    for (reward, unsafe, front), name in zip(axes, names, strict=True):
        lines = found[name]
        values = [value for line in lines for value in line.values]
        for line, style in zip(lines, distinct_styles(*zip(*(each[:2] for each in lines), strict=True)), strict=True):
            _draw_measure(reward, line.values, line.mar, style)
            _draw_measure(unsafe, line.values, line.unsafe, style)
            x, y = ([each.mean for each in pairs] for pairs in (line.unsafe, line.mar))
            front.plot(x, y, marker="o", ms=4, lw=1.2, **style)
            for value, *place in zip(line.values, x, y, strict=True):
                front.annotate(f"{value:g}", place, (3, 3), textcoords="offset points", fontsize=7)
        for panel in (reward, unsafe):
            panel.set(xlabel=plot_text(name), xscale="log" if spans_orders(values) and min(values) > 0 else "linear")
            panel.set_xticks(sorted(set(values)), [f"{value:g}" for value in sorted(set(values))])
            panel.minorticks_off()
        label = metrics.MEASURES[records[0].measure]
        reward.set_ylabel(f"MAR: {label}")
        unsafe.set(ylabel="unsafe steps [%]", ylim=(0.0, None))
        front.set(xlabel="unsafe steps [%]", ylabel=f"MAR: {label}")
        front.set_title(f"numbers: {plot_text(name)}", fontsize=8)
        front.legend(frameon=False, fontsize=8, handlelength=3, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.suptitle(f"{plot_text(records[0].env_label)}: swept settings; bands: 90 % intervals over seeds")
    return figure


def _draw_measure(axes: Any, values: list[float], found: list[metrics.Interval], style: dict[str, Any]) -> None:
    mean, half = (np.asarray([getattr(each, name) for each in found]) for name in ("mean", "half_width"))
    half = np.nan_to_num(half)
    axes.fill_between(values, mean - half, mean + half, color=style["color"], alpha=0.12, lw=0)
    axes.plot(values, mean, marker="o", ms=4, lw=1.4, **style)
