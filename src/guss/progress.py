"""Progress of learning, an episode at a time: a bar on a terminal, a line per episode elsewhere."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

MIN_TEXT = 40
"""Characters for figures beside a progress bar: step, reward and unsafe share."""


@dataclass
class EpisodeSummary:
    """What is told after every episode, or after several that were played at once, for display."""

    episode: int
    """The last one's number."""
    phase: str
    mean_reward: float
    """Per step."""
    mean_return: float
    """Sum over an episode."""
    ends_early: bool
    """Whether an episode of the run had fewer steps than a whole one: then returns compare, means per step do not."""
    unsafe_pct: float
    unsafe_by_cost: dict[str, float]
    """Steps that violate each constraint [%]."""
    model_r2: float | None
    seconds_fit: float
    seconds_plan: float
    seconds_compile: float
    """NaN: it was not measured."""
    steps: float | None = None
    """Mean length of the episodes, where they did not all have full length."""
    pace: float = 0.0
    """Steps per second, of all seeds together, without the time for compiling."""
    trouble: tuple[str, ...] = ()
    """Hard limits that were violated, environments that failed."""
    warnings: tuple[str, ...] = ()
    """What the data do not show of learned costs."""


def make_bar(console: Console, quiet: bool, *columns: ProgressColumn) -> Progress:
    """A progress bar that ends in the time gone and the time left; shown on terminals only."""
    return Progress(
        *columns,
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=quiet or not console.is_terminal,
        transient=True,
    )


class RunProgress:
    """A learning run as it goes: a bar with the last episode's figures on a terminal, a line per episode elsewhere.

    On a terminal, figures that do not fit beside the bar are left out, the least important first.
    """

    def __init__(self, console: Console, episodes: int, quiet: bool, name: str = "") -> None:
        self._console, self._quiet, self._episodes = console, quiet, episodes
        self._name = f"{name}, " if name else ""
        count = f"{name or 'episode'} {{task.completed}}/{{task.total}}"
        free = console.width - len(f"{name or 'episode'} {episodes}/{episodes}") - len(" 0:00:00 left 0:00:00")
        width = min(24, free - 2 - MIN_TEXT)
        bar = [BarColumn(bar_width=width)] if width >= 4 else []
        self._room = free - 1 - (width + 1 if bar else 0)
        columns = (TextColumn(count), *bar, TextColumn("{task.description}", markup=False))
        self._bar = make_bar(console, quiet, *columns)
        self._task = self._bar.add_task("", total=episodes)
        self._pieces: list[str] = []
        self._stage = ""
        self.stage("compiling")

    def _show(self, *first: str) -> None:
        """`first`, then as many figures of the last episode as there is room for."""
        text = fitting([*first, *self._pieces], self._room)
        self._bar.update(self._task, description=text)

    def stage(self, text: str) -> None:
        """What takes time now, as "fitting" or "compiling the planner"; the next step or episode clears it."""
        self._stage = text
        self._show(text)

    def episode(self, news: EpisodeSummary) -> None:
        """An episode is over."""
        self._stage, self._pieces = "", news_pieces(news)
        self._show()
        self._bar.update(self._task, completed=news.episode + 1)
        if not self._quiet and not self._console.is_terminal:
            line = f"{self._name}episode {news.episode + 1}/{self._episodes} ({news.phase}): {'  '.join(self._pieces)}"
            self._console.print(line, highlight=False, soft_wrap=True, markup=False)
        if not self._quiet:
            for trouble in news.trouble:
                self._console.print(Text(f"  {trouble}", style="red"), soft_wrap=True)

    def step(self, done: int) -> None:
        """So many steps of the episode under way are over, where they are done one by one."""
        if done % 10 == 0 or self._stage:
            self._stage = ""
            self._show(f"step {done}")

    def warning(self, text: str) -> None:
        """What the data do not show, said before they are learned from."""
        if not self._quiet:
            self._console.print(Text(f"  warning: {text}", style="yellow"), soft_wrap=True)

    def callbacks(self) -> dict[str, Any]:
        """What `run` and `resume` call while a run trains."""
        return {
            "on_episode": self.episode,
            "on_step": self.step,
            "on_final": self.final,
            "on_stage": self.stage,
            "on_warning": self.warning,
        }

    def final(self, fitted: Any | None) -> None:
        """The fit after the last episode begins (None), or is over."""
        if fitted is None:
            self.stage("fitting the final model")
        elif not self._quiet and not self._console.is_terminal:
            error = "diverged" if fitted.report is None else f"R² {fitted.report.r2.mean():.4f}"
            self._console.print(f"{self._name}final model: {error}  fit {fitted.seconds:.1f} s", highlight=False)

    def __enter__(self) -> RunProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def fitting(pieces: list[str], room: int) -> str:
    """As many of these as fit into `room` characters, the first ones; at least the first, cut off if need be."""
    text = pieces[0] if pieces else ""
    for piece in pieces[1:]:
        if len(text) + 2 + len(piece) > room:
            break
        text += f"  {piece}"
    return text if len(text) <= room else f"{text[: max(room - 1, 0)]}…"


def reward_text(news: EpisodeSummary) -> str:
    """What an episode earned: per step, or in all where episodes end early."""
    return f"return {news.mean_return:.5g}" if news.ends_early else f"reward {news.mean_reward:.3f}"


def news_pieces(news: EpisodeSummary) -> list[str]:
    """The figures of an episode, the most important first."""
    policy = news.phase == "policy"
    fit, plan = ("learn", "act") if policy else ("fit", "plan")
    pieces = [reward_text(news), f"unsafe {news.unsafe_pct:.2f} %"]
    if news.steps is not None:
        pieces.append(f"steps {round(news.steps, 1):g}")
    if news.model_r2 is not None:
        pieces.append(f"model R² {figure_text(news.model_r2)}")
    if len(news.unsafe_by_cost) > 1:
        pieces.append(f"unsafe by {', '.join(f'{name} {share:.2f} %' for name, share in news.unsafe_by_cost.items())}")
    pieces += [f"{fit} {news.seconds_fit:.1f} s", f"{plan} {news.seconds_plan:.1f} s"]
    pieces += [] if math.isnan(news.seconds_compile) else [f"compile {news.seconds_compile:.1f} s"]
    return [*pieces, f"{news.pace:,.0f} steps/s"] if policy else pieces


def figure_text(value: Any, digits: int = 4) -> str:
    """A number, or a dash where it is not known."""
    return "–" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def learning_progress(episodes: int, wanted: bool | None) -> RunProgress:
    """Progress on stderr; None: if that is a terminal."""
    terminal = sys.stderr is not None and sys.stderr.isatty()  # a program without a console has none
    console = Console(stderr=True, width=None if terminal else 120)
    return RunProgress(console, episodes, quiet=not (console.is_terminal if wanted is None else wanted))
