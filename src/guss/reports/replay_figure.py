"""An episode drawn step by step: the system, all plans with the chosen plan, the archive, the episode as a curve.

write_replay(replay, Path("x.gif"))             the episode as an animation
write_replay(replay, Path("x.png"), step=17)    one step as a figure

`guss.runs.animator` describes the contents. An environment without a View is drawn by the dimensions of its
observations, with their limits and the plans, and by its actions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap

from guss.envs.shapes import paint
from guss.errors import GussError
from guss.files import writing
from guss.reports.escapes import plot_text
from guss.reports.style import (
    COLOURS,
    add_lines,
    add_rectangle,
    folded,
    label_of,
    label_of_env,
    line_handles,
    new_canvas,
)
from guss.runs.animation import PAST
from guss.runs.animator import Animator, Frame
from guss.runs.replay import Replay
from guss.runs.tracks import Track

MAX_FRAMES = 100
SHARP = 130
"""Dots per inch of a single step; animations have 90."""


def write_replay(
    replay: Replay,
    path: Path,
    *,
    step: int | None = None,
    every: int | None = None,
    fps: int = 15,
    last: Path | None = None,
    on_step: Callable[[int], Any] | None = None,
    dims: Sequence[str] = (),
) -> None:
    """An animation (.gif) of every `every`-th step, by default of at most 100 steps; or one step as a figure (.png).

    `last`: a .png for the last frame too. `dims`: draw these dimensions of the observations, by name or number.
    """
    from PIL import Image

    if path.suffix not in (".gif", ".png"):
        raise GussError(f"a replay is written to a .gif, one step of it to a .png; got {path}")
    if (step is not None) != (path.suffix == ".png"):
        raise GussError(f"one step is written to a .png, a whole episode to a .gif; got {path} with step {step}")
    count = len(replay)
    if step is not None and not -count <= step < count:
        raise GussError(f"the episode has steps 0 to {count - 1}, got step {step}")
    if (every is not None and every < 1) or fps < 1:
        raise GussError(f"`every` and `fps` must be at least 1, got {every} and {fps}")
    apart = every or -(-count // MAX_FRAMES)
    wanted = {step % count} if step is not None else {*range(0, count, apart), count - 1}
    animator = Animator(replay, dims if replay.plain or dims else None)
    figure, images = ReplayFigure(animator, dpi=90 if step is None else SHARP), []
    for frame in animator.frames(wanted, on_step):
        images.append(Image.fromarray(figure.draw(frame)))
    figure.close()
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if last is not None:
            figure = ReplayFigure(animator, dpi=SHARP)
            Image.fromarray(figure.draw(frame)).save(last)
            figure.close()
        if step is not None:
            images[0].save(path)
        else:
            samples = [np.asarray(images[i]) for i in sorted({0, len(images) // 2, len(images) - 1})]
            palette = Image.fromarray(np.concatenate(samples)).quantize(128, Image.Quantize.MAXCOVERAGE)
            first, *rest = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
            times = [round(1000 / fps)] * len(rest) + [1500]
            first.save(path, save_all=True, append_images=rest, duration=times, loop=0, optimize=True)


class ReplayFigure:
    """The figure of an animation. The static background is drawn once, the rest on top of it for every frame."""

    def __init__(self, animation: Animator, dpi: int) -> None:
        self.animation = animation
        self.panels = ViewPanels(animation, dpi) if animation.tracks is None else DimensionPanels(animation, dpi)
        self.figure = self.panels.figure
        handles = line_handles(animation.legend)
        self.figure.legend(handles=handles, loc="outside lower center", fontsize=8, ncols=len(handles), frameon=False)
        self.title = self.figure.suptitle("\n", fontsize=10, x=0.01, ha="left")
        self.figure.canvas.draw()
        self.background = self.figure.canvas.copy_from_bbox(self.figure.bbox)

    def close(self) -> None:
        plt.close(self.figure)

    def draw(self, frame: Frame) -> np.ndarray:
        canvas = self.figure.canvas
        canvas.restore_region(self.background)
        for artist in self.panels.draw(frame):
            artist.draw(canvas.get_renderer())
            artist.remove()
        self.title.set_text(self._title(frame))
        self.title.draw(canvas.get_renderer())
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()

    def _title(self, frame: Frame) -> str:
        replay, config, tracks = self.animation.replay, self.animation.replay.config, self.animation.tracks
        phase = {"random": "random actions", "plan": "planned", "policy": "learned policy"}[self.animation.phase]
        env, method = plot_text(label_of_env(config.env)), plot_text(label_of(config.method))
        episode = f"episode {replay.episode} (0 to {replay.num_episodes - 1}): {phase}"
        parts = [f"{env}, {method}, seed {replay.seed}, {episode}"]
        parts += [f"step {frame.step} (0 to {len(replay) - 1})", "" if tracks is None else tracks.note]
        lines = ["   |   ".join(filter(None, texts)) for texts in (parts, (frame.progress, frame.text))]
        return "\n".join([lines[0], re.sub(r"(?<!\w)-(?=\d)", "−", lines[1])])


class ViewPanels:
    """The axes of an environment with a View: system, plans, archive, and the episode as a curve."""

    def __init__(self, animation: Animator, dpi: int) -> None:
        self.animation, self.place = animation, animation.place
        names = ["system"] * (animation.world is not None) + ["plans"] + ["archive"] * (animation.behaviour is not None)
        self.figure = new_canvas(11.2, 6.1, dpi)
        self.figure.get_layout_engine().set(w_pad=0.08, h_pad=0.06)
        self.axes: Any = self.figure.subplot_mosaic(
            [names, ["course"] * len(names)], height_ratios=[3.2, 1.0], gridspec_kw={"hspace": 0.04, "wspace": 0.1}
        )
        for name, axes in self.axes.items():
            axes.set_title(animation.titles[name], fontsize=10)
            getattr(self, f"_prepare_{name}")(axes)

    def draw(self, frame: Frame) -> Iterable[Any]:
        """The artists that change from step to step."""
        for name, axes in self.axes.items():
            yield from getattr(self, f"_draw_{name}")(axes, frame)

    # -------------------------------------------------------------------------------------------------- the system

    def _prepare_system(self, axes: Any) -> None:
        axes.set(xlim=self.animation.world, ylim=self.animation.world, xticks=[], yticks=[], aspect="equal")
        axes.spines[:].set_visible(False)

    def _draw_system(self, axes: Any, frame: Frame) -> Iterable[Any]:
        world: Any = self.animation.world
        yield axes.imshow(paint(map(tuple, frame.shapes), world), extent=(*world, *world))

    # --------------------------------------------------------------------------------------------------- the plans

    def _zones(self, axes: Any) -> None:
        for zone in self.animation.view.unsafe:
            if self.place:
                add_rectangle(axes, zone)
            else:
                axes.axhspan(*zone, color=COLOURS["zone"], lw=0)

    def _prepare_plans(self, axes: Any) -> None:
        limits, labels = self.animation.view.limits, self.animation.view.labels
        self._zones(axes)
        if self.place:
            axes.set(xlim=limits[0], ylim=limits[1], aspect="equal", xlabel=labels[0], ylabel=labels[1])
        else:
            axes.set(xlim=(-PAST, self.animation.horizon), ylim=limits[0], xlabel="steps from now", ylabel=labels[0])

    def _draw_plans(self, axes: Any, frame: Frame) -> Iterable[Any]:
        first = 0 if self.place else max(frame.step - PAST, 0)
        past = self._curve(self.animation.path[first : frame.step + 1], first - frame.step)
        yield from axes.plot(*past, color=COLOURS["past"], lw=1.6)
        for name in ("unsafe", "safe"):
            curves = [np.stack(self._curve(line, 0), axis=1) for line in getattr(frame, name)]
            yield add_lines(axes, curves, name)
        if len(frame.chosen):
            chosen = self._curve(frame.chosen, 0)
            yield from axes.plot(*chosen, color=COLOURS["chosen"], lw=2.4)
            yield from axes.plot(*(c[-1:] for c in chosen), "o", color=COLOURS["chosen"], ms=4, clip_on=False)
        yield from axes.plot(*self._curve(frame.now[None], 0), "o", color=COLOURS["past"], ms=5)

    def _curve(self, values: np.ndarray, start: int) -> tuple[np.ndarray, np.ndarray]:
        """A number over time from step `start`, broken where it wraps around; or a path in the plane."""
        if values.ndim == 2:
            return values[:, 0], values[:, 1]
        most = self.animation.wraps
        wraps: Any = [] if most is None else np.flatnonzero(np.abs(np.diff(values)) > most) + 1
        steps = np.arange(start, start + len(values), dtype=float)
        return np.insert(steps, wraps, np.nan), np.insert(values, wraps, np.nan)

    # ------------------------------------------------------------------------------------------------- the archive

    def _prepare_archive(self, axes: Any) -> None:
        plane: Any = self.animation.behaviour
        axes.set(xlim=plane.extent[:2], ylim=plane.extent[2:], xlabel=plane.labels[0], ylabel=plane.labels[1])
        bar = self.figure.colorbar(plt.cm.ScalarMappable(cmap="viridis"), ax=axes, shrink=0.7, ticks=[0, 1])
        bar.ax.set_yticklabels(["lowest", "highest"], fontsize=8)
        bar.set_label("predicted reward of safe plans", fontsize=8, labelpad=-20)
        axes.set_title(f"{axes.get_title()}\n(red: unsafe plans only; circle: chosen plan)", fontsize=9)

    def _draw_archive(self, axes: Any, frame: Frame) -> Iterable[Any]:
        plane: Any = self.animation.behaviour
        how = {"extent": plane.extent, "origin": "lower", "aspect": "auto", "interpolation": "nearest"}
        risky, best = np.full(plane.shape, np.nan), np.full(plane.shape, np.nan)
        risky[tuple(frame.risky.T)] = 1.0
        best[tuple(frame.cells[:, :2].astype(int).T)] = frame.cells[:, 2]
        yield axes.imshow(risky.T, cmap=ListedColormap([COLOURS["unsafe"]]), **how)
        yield axes.imshow(best.T, cmap="viridis", vmin=0.0, vmax=1.0, **how)
        if frame.ring is not None:
            yield from axes.plot(*frame.ring, "o", ms=13, mfc="none", mec=COLOURS["chosen"], mew=1.8)

    # -------------------------------------------------------------------------------------------------- the course

    def _prepare_course(self, axes: Any) -> None:
        if not self.place:
            self._zones(axes)
        axes.plot(*self._curve(self.animation.course, 0), color=COLOURS["later"], lw=1.0)
        limits = self.animation.course_limits(self.animation.course)
        axes.set(xlim=(0, len(self.animation.replay)), ylim=limits, xlabel="step of the episode, from 0")
        axes.set_ylabel(self.animation.course_label, fontsize=8)

    def _draw_course(self, axes: Any, frame: Frame) -> Iterable[Any]:
        """The episode up to now with its unsafe steps; a line marks the current step."""
        course, unsafe = self.animation.course, np.flatnonzero(self.animation.unsafe[: frame.step + 1])
        yield from axes.plot(*self._curve(course[: frame.step + 1], 0), color=COLOURS["past"], lw=1.4)
        yield from axes.plot(unsafe, course[unsafe], "o", color=COLOURS["dot"], ms=3.5)
        yield axes.axvline(frame.step, color=COLOURS["chosen"], lw=1.0)


# -------------------------------------------------------------------------------------------------- observed dimensions


class DimensionPanels:
    """The axes of an animation with tracks: for each track the episode, and the plans from now on."""

    def __init__(self, animation: Animator, dpi: int) -> None:
        assert animation.tracks is not None
        self.tracks = animation.tracks.tracks
        rows = len(self.tracks)
        self.figure = new_canvas(11.2, 1.6 + 1.25 * max(rows, 3), dpi)
        self.axes: Any = self.figure.subplots(rows, 2, squeeze=False, sharex="col", sharey="row", width_ratios=(1.5, 1))
        for (left, right), track in zip(self.axes, self.tracks, strict=True):
            _prepare(left, right, track)
        (first, second), (left, right) = self.axes[0], self.axes[-1]
        first.set_title("Episode (red dots: states after unsafe steps)", fontsize=9)
        second.set_title(animation.titles["plans"], fontsize=9)
        left.set(xlim=(0, len(animation.replay)), xlabel="step of the episode, from 0")
        right.set(xlim=(-PAST, animation.horizon), xlabel="steps from now")
        for axes in self.axes.ravel():
            axes.tick_params(labelsize=7)

    def draw(self, frame: Frame) -> Iterable[Any]:
        """The artists that change from step to step."""
        step, first = frame.step, max(frame.step - PAST, 0)
        ago = np.arange(first - step, 1)
        for i, ((left, right), track) in enumerate(zip(self.axes, self.tracks, strict=True)):
            past, style = track.values[: step + 1].copy(), _style(track)
            if track.held:  # the action of this step is planned, not yet taken
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
    """The static background: the whole episode in grey, and the limits."""
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
