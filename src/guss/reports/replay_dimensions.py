"""An episode drawn by tracks: dimensions of its observations with their limits and the plans, and the actions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from guss.reports.escapes import plot_text
from guss.reports.style import COLOURS, add_lines, folded, new_canvas
from guss.runs.animation import PAST
from guss.runs.animator import Animator, Frame
from guss.runs.tracks import Track


class DimensionPanels:
    """The axes of an animation with tracks: for each one its course, and the plans from now on."""

    def __init__(self, animation: Animator, dpi: int) -> None:
        assert animation.tracks is not None
        self.tracks = animation.tracks.tracks
        rows = len(self.tracks)
        self.figure = new_canvas(11.2, 1.6 + 1.25 * max(rows, 3), dpi)
        self.axes: Any = self.figure.subplots(rows, 2, squeeze=False, sharex="col", sharey="row", width_ratios=(1.5, 1))
        for (left, right), track in zip(self.axes, self.tracks, strict=True):
            _prepare(left, right, track)
        (first, second), (left, right) = self.axes[0], self.axes[-1]
        first.set_title("Episode (red dots: states that an unsafe step led to)", fontsize=9)
        second.set_title(animation.titles["plans"], fontsize=9)
        left.set(xlim=(0, len(animation.replay)), xlabel="step of the episode, from 0")
        right.set(xlim=(-PAST, animation.axes.horizon), xlabel="steps from now")
        for axes in self.axes.ravel():
            axes.tick_params(labelsize=7)

    def draw(self, frame: Frame) -> Iterable[Any]:
        """What changes from step to step."""
        step, first = frame.step, max(frame.step - PAST, 0)
        ago = np.arange(first - step, 1)
        for i, ((left, right), track) in enumerate(zip(self.axes, self.tracks, strict=True)):
            past, style = track.values[: step + 1].copy(), _style(track)
            if track.held:  # the action of this step is only planned so far
                past[-1] = past[-2] if step else np.nan
            reached = track.unsafe[track.unsafe <= step]
            yield from left.plot(past, color=COLOURS["past"], lw=1.4, **style)
            yield left.axvline(step, color=COLOURS["chosen"], lw=1.0)
            yield from left.plot(reached, track.values[reached], "o", color=COLOURS["dot"], ms=3.5)
            if frame.tracks:
                plans = frame.tracks[i]
                ahead = np.arange(len(plans.chosen))
                for name in ("unsafe", "safe"):
                    lines = [np.stack([ahead, line], axis=1) for line in getattr(plans, name)]
                    yield add_lines(right, lines, name)
                yield from right.plot(ahead, plans.chosen, color=COLOURS["chosen"], lw=2.2, **style)
            yield from right.plot(ago, past[first:], color=COLOURS["past"], lw=1.6, **style)
            if not track.held:
                yield from right.plot([0], [track.values[step]], "o", color=COLOURS["past"], ms=4)


def _style(track: Track) -> Any:
    return {"drawstyle": "steps-post" if track.held else "default"}


def _prepare(left: Any, right: Any, track: Track) -> None:
    """What stays: the whole course in grey, and the limits."""
    left.set_ylim(*track.limits)
    left.plot(track.values, color=COLOURS["later"], lw=1.0, **_style(track))
    left.set_ylabel(folded(track.label, 16), fontsize=8)
    for limit, beyond, text in track.bounds:
        for axes in (left, right):
            axes.axhspan(*sorted((limit, beyond)), color=COLOURS["zone"], lw=0)
            axes.axhline(limit, color=COLOURS["dot"], lw=0.8, ls="--")
        left.annotate(plot_text(text), (0, limit), (3, 2 if beyond > limit else -8), textcoords="offset points",
                      fontsize=7, color=COLOURS["dot"], clip_on=True)  # fmt: skip
    if track.note:
        left.text(0.005, 0.9, plot_text(track.note), transform=left.transAxes, fontsize=7, color=COLOURS["dot"])
