"""Learning curves (Fig. 3): reward and unsafe steps by episode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from guss.reports.escapes import plot_text
from guss.reports.inventory import Record
from guss.reports.style import legend_below, new_figure
from guss.runs import metrics
from guss.runs.rows import num_random

MOST_POINTS = 128
RANDOM_LINE = "#c0392b"


class Curve(NamedTuple):
    """A mean over seeds with its 90 % interval, by episode."""

    number: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def ends_of(count: int, log: bool) -> np.ndarray:
    """The last episode of each of at most MOST_POINTS bins: equally long, or growing for a logarithmic axis."""
    each = -(-count // MOST_POINTS)
    ends = np.arange(each, count, each)
    if log and len(ends):
        wanted = np.geomspace(each, count, MOST_POINTS // 3)
        ends = np.unique(ends[np.searchsorted(ends, wanted).clip(max=len(ends) - 1)])
    return np.append(ends, count)


def binned(values: np.ndarray, log: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Curves [S, N] as at most MOST_POINTS points: the middle of each bin of episodes, and the mean over the bin.

    The curve of a policy that learns from a thousand episodes is easier to read as means over bins.
    """
    ends = ends_of(values.shape[1], log)
    starts = np.insert(ends[:-1], 0, 0) + 1
    parts = np.split(values, ends[:-1], axis=1)
    return (starts + ends) / 2, np.stack([part.mean(axis=1) for part in parts])


def curve_of(record: Record, field: str, log: bool = False) -> Curve:
    """A field of a run's episodes over time; with one seed the interval has no width.

    Unsafe shares are over the steps of all seeds, as in a run's progress: each episode is weighted by its steps.
    """
    values = record.values(field)
    steps = np.maximum(record.values("steps"), 1e-9) if field == "unsafe_pct" else np.ones_like(values)
    number, weights = binned(steps, log)
    columns = binned(values * steps, log)[1] / weights
    mean = (columns * weights).sum(axis=1) / weights.sum(axis=1)
    half = np.nan_to_num([metrics.interval(column).half_width for column in columns])
    low, high = mean - half, mean + half
    if field == "unsafe_pct":
        low, high = (np.clip(edge, 0.0, 100.0) for edge in (low, high))
    return Curve(number, mean, low, high)


def level_of(record: Record, field: str) -> float:
    """A field's mean over all episodes of a run, of unsafe shares over all steps: the level of random actions."""
    weights = record.values("steps") if field == "unsafe_pct" else None
    return float(np.average(record.values(field), weights=weights))


def with_random_apart(records: Sequence[Record]) -> tuple[list[Record], Record | None]:
    """The runs drawn as curves, and the run of random actions, drawn as a level; a curve too if it is the only run."""
    random = next((record for record in records if record.method == "random"), None)
    return [record for record in records if record is not random] or list(records), random


def panels_of(record: Record) -> tuple[tuple[str, str], tuple[str, str]]:
    """The two panels: a field of the episode records and its label, for reward and for safety."""
    return (record.measure, metrics.MEASURES[record.measure]), ("unsafe_pct", "unsafe steps [%]")


def far_apart(records: list[Record]) -> bool:
    """Whether some runs have so many more episodes than others that a logarithmic axis is needed."""
    counts = [record.done for record in records]
    return max(counts) > 5 * min(counts)


def draw_learning(records: list[Record], random: Record | None = None) -> Any:
    """A line per run, all of one environment; `random`: the run whose mean is drawn as a dashed red line."""
    figure, (reward, unsafe) = new_figure(2, 1, 9.6, 3.9 if len(records) <= 6 else 4.3)
    longest, log = max(2, *(record.done for record in records)), far_apart(records)
    for axes, (field, label) in zip((reward, unsafe), panels_of(records[0]), strict=True):
        for record in records:
            curve, style = curve_of(record, field, log), record.style
            dots = 3 if len(curve.mean) <= MOST_POINTS / 2 and not log else 0
            axes.fill_between(curve.number, curve.low, curve.high, color=style["color"], alpha=0.18, lw=0)
            axes.plot(curve.number, curve.mean, marker="o", ms=dots, lw=1.6, **style)
        if random is not None:
            label_of_random = "Random (independent)"
            axes.axhline(level_of(random, field), color=RANDOM_LINE, lw=1.2, ls=(0, (4, 3)), label=label_of_random)
        axes.set(xlabel="episode", ylabel=label, xlim=(1, longest))
        if log:  # planners need tens of episodes, policies thousands
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:,.0f}")
        else:
            axes.xaxis.get_major_locator().set_params(integer=True)
    threshold = records[0].threshold
    if threshold is not None:
        reward.axhline(threshold, color="#888888", lw=0.8, ls="--", label="threshold (paper)")
    unsafe.set_ylim(bottom=0.0)
    reward.set_title("return" if records[0].measure == "return" else "reward", fontsize=10)
    unsafe.set_title("unsafe steps", fontsize=10)
    figure.suptitle(plot_text(records[0].env_label))
    legend_below(figure, reward, 6, title=_seeds_text(records) + _beginning(records[0]), handlelength=3)
    return figure


def _beginning(record: Record) -> str:
    """Which initial episodes have random actions."""
    count = num_random(record.episodes)
    if not count or record.method == "random":
        return ""
    how = {"smooth": "smooth random actions", "iid": "independent random actions"}
    text = how.get(str(record.config.get("explore")), "random actions")
    return f"; episode 1{f' to {count}' * (count > 1)}: {text}"


def _seeds_text(records: list[Record]) -> str:
    counts = sorted({len(record.seeds) for record in records})
    if counts[-1] == 1:
        return "one seed"
    return f"mean of {' or '.join(map(str, counts))} seeds, bands: 90 % intervals"
