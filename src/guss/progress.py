"""Training progress by episode: a bar on a terminal, a line per episode elsewhere."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

Bar = TypeVar("Bar", bound="ProgressBar")
MIN_TEXT = 40
"""Characters for figures next to a progress bar: step, reward and unsafe share."""


@dataclass
class EpisodeSummary:
    """Figures displayed after every episode, or after several that ran at once."""

    episode: int
    """Number of the last episode."""
    phase: str
    mean_reward: float
    """Per step."""
    mean_return: float
    """Sum over an episode."""
    ends_early: bool
    """Whether an episode of the run was shorter than full length: then compare returns, not means per step."""
    unsafe_pct: float
    unsafe_by_cost: dict[str, float]
    """Steps that violate each constraint [%]."""
    model_r2: float | None
    seconds_fit: float
    seconds_plan: float
    seconds_compile: float
    """NaN if not measured."""
    steps: float | None = None
    """Mean length of the episodes, unless all had full length."""
    pace: float = 0.0
    """Steps per second of all seeds together, without compilation time."""
    trouble: tuple[str, ...] = ()
    """Violated hard limits and failed environments."""
    warnings: tuple[str, ...] = ()
    """Missing examples of learned costs."""


def make_console(stderr: bool = False, quiet: bool = False) -> Console:
    """A console that does not truncate tables without a terminal; a quiet console prints nothing."""
    stream = sys.stderr if stderr else sys.stdout
    terminal = stream is not None and stream.isatty()  # a program without a console has no streams
    width = None if terminal else 120
    return Console(stderr=stderr, quiet=quiet, force_terminal=False if quiet else None, width=width)


class ProgressBar:
    """A bar that is shown on terminals while a `with` block runs."""

    def __init__(self, console: Console, total: float, *columns: ProgressColumn) -> None:
        self._console = console
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
        self._task = self._bar.add_task("", total=total)

    def update(self, done: float | None = None, text: str | None = None) -> None:
        """Set the completed amount, and a `text` on the current work; None leaves either unchanged."""
        self._bar.update(self._task, completed=done, description=text)

    def line(self, text: str, style: str = "") -> None:
        """Print a line that stays, above the bar if there is one."""
        self._console.print(Text(text, style=style), soft_wrap=True)

    def __enter__(self: Bar) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def time_columns() -> tuple[ProgressColumn, ...]:
    """Elapsed and remaining time."""
    return TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()


def count_column(unit: str) -> ProgressColumn:
    """A counter such as "episode 3/40"."""
    return TextColumn(f"{unit} {{task.completed}}/{{task.total}}")


class RunProgress(ProgressBar):
    """Progress of a learning run: a bar with the last episode's figures on a terminal, a line per episode elsewhere.

    On a terminal, figures that do not fit next to the bar are left out, the least important first.
    """

    def __init__(self, console: Console, episodes: int, name: str = "") -> None:
        self._episodes, self._name = episodes, f"{name}, " if name else ""
        unit = name or "episode"
        free = console.width - len(f"{unit} {episodes}/{episodes}") - len(" 0:00:00 left 0:00:00")
        width = min(24, free - 2 - MIN_TEXT)
        bar = [BarColumn(bar_width=width)] if width >= 4 else []
        self._room = free - 1 - (width + 1 if bar else 0)
        figures = TextColumn("{task.description}", markup=False)
        super().__init__(console, episodes, count_column(unit), *bar, figures, *time_columns())
        self._pieces: list[str] = []
        self.stage("compiling")

    def _show(self, *first: str) -> None:
        """Display `first`, then as many figures of the last episode as fit."""
        self.update(text=fitting([*first, *self._pieces], self._room))

    def stage(self, text: str) -> None:
        """Display the current work, such as "fitting"; the next step or episode clears it."""
        self._stage = text
        self._show(text)

    def episode(self, news: EpisodeSummary) -> None:
        self._stage, self._pieces = "", news_pieces(news)
        self._show()
        self.update(news.episode + 1)
        if not self._console.is_terminal:
            number = f"{self._name}episode {news.episode + 1}/{self._episodes}"
            self.line(f"{number} ({news.phase}): {'  '.join(self._pieces)}")
        for trouble in news.trouble:
            self.line(f"  {trouble}", "red")

    def step(self, done: int) -> None:
        """Display the number of completed steps, if the host runs them one by one."""
        if done % 10 == 0 or self._stage:
            self._stage = ""
            self._show(f"step {done}")

    def warning(self, text: str) -> None:
        """Print a warning about the data before a model is fitted to them."""
        self.line(f"  warning: {text}", "yellow")

    def callbacks(self) -> dict[str, Any]:
        """Callbacks for `run` and `resume`."""
        return {
            "on_episode": self.episode,
            "on_step": self.step,
            "on_final": self.final,
            "on_stage": self.stage,
            "on_warning": self.warning,
        }

    def final(self, fitted: Any | None) -> None:
        """The fit after the last episode starts (None) or has ended."""
        if fitted is None:
            self.stage("fitting the final model")
        elif not self._console.is_terminal:
            error = "diverged" if fitted.report is None else f"R² {fitted.report.r2.mean():.4f}"
            self.line(f"{self._name}final model: {error}  fit {fitted.seconds:.1f} s")


def fitting(pieces: list[str], room: int) -> str:
    """The first pieces that fit into `room` characters; at least the first one, truncated if necessary."""
    text = pieces[0] if pieces else ""
    for piece in pieces[1:]:
        if len(text) + 2 + len(piece) > room:
            break
        text += f"  {piece}"
    return text if len(text) <= room else f"{text[: max(room - 1, 0)]}…"


def reward_text(news: EpisodeSummary) -> str:
    """The reward of an episode: per step, or the return if episodes end early."""
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
    """A number, or a dash if it is unknown."""
    return "–" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def learning_progress(episodes: int, wanted: bool | None) -> RunProgress:
    """Progress on stderr; `wanted` None: only if that is a terminal."""
    if wanted is None:
        wanted = make_console(stderr=True).is_terminal
    return RunProgress(make_console(stderr=True, quiet=not wanted), episodes)
