"""An episode drawn step by step: the system, the fan of plans with the chosen one, what the planner keeps, the course.

write_replay(replay, Path("x.gif"))             the episode as a film
write_replay(replay, Path("x.png"), step=17)    one step as a picture

An environment that does not say how it is shown is drawn by the dimensions of its observations (`replay_dims.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from guss.errors import GussError
from guss.files import writing
from guss.planners.elites import ElitePlanner
from guss.reports.escaping import plot_text
from guss.reports.replay_dims import DimPanels
from guss.reports.style import new_canvas, plt, style_of
from guss.runs.replaying import Replay, Scene
from guss.runs.showing import BehaviourMap

SAFE, RISKY, CHOSEN, ZONE = "#7fb0d3", "#d6604d", "#08306b", "#f6c9c4"
PAST = 20
MAX_FRAMES = 100


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
    """A film (.gif) of every `every`-th step, by default of at most 100 in all; or one step as a picture (.png).

    `last`: where to put the film's last frame as a picture too. `dims`: draw these dimensions of the observations, by
    name or number.
    """
    from PIL import Image

    if path.suffix not in (".gif", ".png"):
        raise GussError(f"a replay is written to a .gif, or one step of it to a .png; got {path}")
    if (step is not None) != (path.suffix == ".png"):
        raise GussError(f"one step makes a .png, a whole episode a .gif; got {path} with step {step}")
    count = len(replay)
    if step is not None and not -count <= step < count:
        raise GussError(f"the episode has the steps 0 to {count - 1}, asked for {step}")
    if (every is not None and every < 1) or fps < 1:
        raise GussError(f"`every` and `fps` must be at least 1, got {every} and {fps}")
    apart = every or -(-count // MAX_FRAMES)
    wanted = {step % count} if step is not None else {*range(0, count, apart), count - 1}
    dpi = 90 if step is None else 130
    panels = DimPanels(replay, dims, dpi) if replay.plain or dims else ViewPanels(replay, dpi)
    stage = Stage(replay, panels)
    images = []
    for scene in replay.scenes():
        stage.keep(scene)
        if scene.step in wanted:
            images.append(Image.fromarray(stage.draw(scene)))
        if on_step is not None:
            on_step(scene.step + 1)
        if scene.step == max(wanted):
            break
    stage.close()
    frames = [image.quantize(colors=96, dither=Image.Dither.NONE) for image in images]
    times = [round(1000 / fps)] * (len(frames) - 1) + [1500]
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if last is not None:
            images[-1].save(last)
        if step is not None:
            images[0].save(path)
        else:
            frames[0].save(path, save_all=True, append_images=frames[1:], duration=times, loop=0, optimize=True)


class Stage:
    """The figure of a replay. What stays is drawn once; what changes is drawn on top of it, frame by frame."""

    def __init__(self, replay: Replay, panels: ViewPanels | DimPanels) -> None:
        self.replay, self.panels, self.figure = replay, panels, panels.figure
        self.scenes: list[Scene] = []
        self.title = self.figure.suptitle("\n", fontsize=10, x=0.01, ha="left")
        self.figure.canvas.draw()
        self.background = self.figure.canvas.copy_from_bbox(self.figure.bbox)

    def keep(self, scene: Scene) -> None:
        """What happened, for what is drawn of the past."""
        self.scenes.append(scene)

    def close(self) -> None:
        """Done with it."""
        plt.close(self.figure)

    def draw(self, scene: Scene) -> np.ndarray:
        """One frame, as RGB."""
        canvas = self.figure.canvas
        canvas.restore_region(self.background)
        for artist in self.panels.draw(scene, self.scenes):
            artist.draw(canvas.get_renderer())
            artist.remove()
        self.title.set_text(self._title(scene))
        self.title.draw(canvas.get_renderer())
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()

    def _title(self, scene: Scene) -> str:
        replay, so_far = self.replay, self.scenes[: scene.step + 1]
        unsafe, rewards = sum(s.unsafe for s in so_far), [s.reward for s in so_far]
        label = style_of(replay.config.method)["label"]
        phase = "random actions" if replay.random else f"{label} plans" if replay.thinks else f"{label}'s policy acts"
        first = f"{plot_text(replay.config.env, None)}, seed {replay.seed}, episode {replay.episode}"
        first += f" (0 to {replay.num_episodes - 1}): {phase}"
        first += f"   |   step {scene.step} (0 to {len(replay) - 1})"
        first += f"   |   {self.panels.note}" if self.panels.note else ""
        second = f"so far: return {sum(rewards):.4g}, mean reward {np.mean(rewards):.3f}, unsafe steps {unsafe}"
        if scene.thought is not None:
            second += f"   |   {scene.thought.in_words()}"
        return f"{first}\n{second}"


class ViewPanels:
    """The axes of an environment that says how it is shown: the system, plans, archive and course."""

    note = ""

    def __init__(self, replay: Replay, dpi: int) -> None:
        self.replay, self.view = replay, replay.view
        self.place = len(self.view.labels) == 2
        self.scenes: list[Scene] = []
        names = ["picture"] * (self.view.sketch is not None) + ["plans"] + ["archive"] * replay.thinks
        self.figure = new_canvas(11.2, 5.9, dpi)
        self.axes: Any = self.figure.subplot_mosaic(
            [names, ["course"] * len(names)], height_ratios=[3.2, 1.0], gridspec_kw={"hspace": 0.08}
        )
        for name, axes in self.axes.items():
            getattr(self, f"_prepare_{name}")(axes)

    def draw(self, scene: Scene, scenes: list[Scene]) -> Iterable[Any]:
        """What changes from step to step."""
        self.scenes = scenes
        for name, axes in self.axes.items():
            yield from getattr(self, f"_draw_{name}")(axes, scene)

    # -------------------------------------------------------------------------------------------------- the system

    def _prepare_picture(self, axes: Any) -> None:
        height, width = self.view.picture(self.replay.traces[self.replay.row].obs[0]).shape[:2]
        axes.set(
            xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[], aspect="equal", title="the system (shaded: unsafe)"
        )
        axes.spines[:].set_visible(False)

    def _draw_picture(self, axes: Any, scene: Scene) -> Iterable[Any]:
        image = self.view.picture(scene.obs)
        yield axes.imshow(image, extent=(0, image.shape[1], image.shape[0], 0))

    # --------------------------------------------------------------------------------------------------- the plans

    def _zones(self, axes: Any) -> None:
        """Where it is unsafe."""
        from matplotlib.patches import Rectangle

        for zone in self.view.unsafe:
            if self.place:
                x0, x1, y0, y1 = zone
                axes.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, facecolor=ZONE, lw=0))
            else:
                axes.axhspan(*zone, color=ZONE, lw=0)

    def _prepare_plans(self, axes: Any) -> None:
        self._zones(axes)
        axes.set_title("where the plans lead" if self.replay.thinks else "the course so far")
        if self.place:
            axes.set(xlim=self.view.limits[0], ylim=self.view.limits[1], aspect="equal")
            axes.set(xlabel=self.view.labels[0], ylabel=self.view.labels[1])
        else:
            axes.set(xlim=(-PAST, self.replay.config.horizon if self.replay.thinks else 1), ylim=self.view.limits[0])
            axes.set(xlabel="steps from now", ylabel=self.view.labels[0])
        kinds = [("so far", "black"), ("safe plans", SAFE), ("unsafe plans", RISKY), ("the chosen one", CHOSEN)]
        for name, colour in kinds[: 4 if self.replay.thinks else 1]:
            axes.plot([], [], color=colour, lw=2, label=name)
        self.figure.legend(loc="upper right", fontsize=8, ncols=4, frameon=False)

    def _draw_plans(self, axes: Any, scene: Scene) -> Iterable[Any]:
        """Where the plans lead from here; unsafe ones red, the chosen one dark."""
        from matplotlib.collections import LineCollection

        first = 0 if self.place else max(scene.step - PAST, 0)
        past = self.view.shown(np.stack([s.obs for s in self.scenes[first : scene.step + 1]])).astype(float)
        past[[s.step + 1 - first for s in self.scenes[first : scene.step] if s.jumped]] = np.nan  # no line across
        yield from axes.plot(*self._curve(past, 1 - len(past)), color="black", lw=1.6)
        if scene.thought is not None:
            looked, here = scene.thought.looked, scene.obs[None]
            start = np.broadcast_to(scene.obs, (len(looked.paths), *here.shape))
            lines = self.view.shown(np.concatenate([start, looked.paths], axis=1))
            for mask, colour in ((looked.usable & ~looked.safe, RISKY), (looked.usable & looked.safe, SAFE)):
                curves = [np.stack(self._curve(line, 0), axis=1) for line in lines[mask]]
                yield axes.add_collection(LineCollection(curves, colors=colour, lw=0.7, alpha=0.6), autolim=False)
            chosen = self._curve(self.view.shown(np.concatenate([here, scene.thought.chosen])), 0)
            yield from axes.plot(*chosen, color=CHOSEN, lw=2.4)
            yield from axes.plot(*(c[-1:] for c in chosen), "o", color=CHOSEN, ms=4)
        yield from axes.plot(*self._curve(self.view.shown(scene.obs[None]), 0), "o", color="black", ms=5)

    def _curve(self, values: np.ndarray, start: int) -> tuple[np.ndarray, np.ndarray]:
        """A number over time from step `start`, broken where it wraps around; or a path of places."""
        if self.place and values.ndim == 2:
            return values[:, 0], values[:, 1]
        low, high = self.view.limits[0]
        wraps: Any = [] if self.place else np.flatnonzero(np.abs(np.diff(values)) > 0.5 * (high - low)) + 1
        steps = np.arange(start, start + len(values), dtype=float)
        return np.insert(steps, wraps, np.nan), np.insert(values.astype(float), wraps, np.nan)

    # ------------------------------------------------------------------------------------------------- the archive

    def _prepare_archive(self, axes: Any) -> None:
        self.map = BehaviourMap(self.replay.task.grid, self.view)
        axes.set(xlim=self.map.extent[:2], ylim=self.map.extent[2:])
        axes.set(xlabel=self.map.labels[0], ylabel=self.map.labels[1])
        kept = self.replay.loop is not None and isinstance(self.replay.loop.planner, ElitePlanner)
        axes.set_title("archive: the best plan of each kind" if kept else "the best plan of each kind")
        bar = self.figure.colorbar(plt.cm.ScalarMappable(cmap="viridis"), ax=axes, shrink=0.7, ticks=[0, 1])
        bar.ax.set_yticklabels(["lowest", "highest"])
        bar.set_label("predicted reward of safe plans\n(red: only unsafe plans; ring: the chosen one)", fontsize=8)

    def _draw_archive(self, axes: Any, scene: Scene) -> Iterable[Any]:
        assert scene.thought is not None
        rewards, risky = self.map.best(scene.thought.looked)
        how = {"extent": self.map.extent, "origin": "lower", "aspect": "auto", "interpolation": "nearest"}
        yield axes.imshow(np.where(risky, 1.0, np.nan).T, cmap="autumn", vmin=1.0, vmax=2.0, **how)
        yield axes.imshow(rewards.T, cmap="viridis", **how)
        yield from axes.plot(*self.map.place_of(scene.thought.behaviour), "o", ms=13, mfc="none", mec=CHOSEN, mew=1.8)

    # -------------------------------------------------------------------------------------------------- the course

    def _prepare_course(self, axes: Any) -> None:
        mine = self.replay.traces[self.replay.row]
        assert mine.reward is not None
        self.course = mine.reward if self.place else self.view.shown(mine.next_obs)
        if not self.place:
            self._zones(axes)
            axes.set_ylim(self.view.limits[0])
        axes.plot(*self._curve(self.course, 0), color="#bbbbbb", lw=1.0)
        axes.set(xlim=(0, len(self.course)), xlabel="step of the episode, from 0 (red dots: unsafe steps)")
        axes.set_ylabel("reward" if self.place else self.view.labels[0].partition(" ")[0], fontsize=8)

    def _draw_course(self, axes: Any, scene: Scene) -> Iterable[Any]:
        """The whole episode, with what was unsafe; a line marks now."""
        yield from axes.plot(*self._curve(self.course[: scene.step + 1], 0), color="black", lw=1.4)
        unsafe = np.flatnonzero([s.unsafe for s in self.scenes])
        yield from axes.plot(unsafe, self.course[unsafe], "o", color="#b2182b", ms=3.5)
        yield axes.axvline(scene.step, color=CHOSEN, lw=1.0)
