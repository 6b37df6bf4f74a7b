"""What the terminal shows: progress while running, tables at the end. Plain lines where there is no terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table


def make_console(stderr: bool = False) -> Console:
    """A console that does not cut tables when there is no terminal."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else 120)


def print_toy_summary(console: Console, summary: dict[str, Any], files: list[Path]) -> None:
    """The outcome as a table, and where everything is."""
    config = summary["config"]
    count = len(config["seeds"])
    table = Table(
        title=f"Toy world: {count} seed{'s' if count != 1 else ''}, {config['steps']} steps, "
        f"{config['budget']} plans of {config['horizon']} steps",
        title_justify="left",
    )
    table.add_column("method")
    for column in ("goal reached", "unsafe steps", "safe plans", "coverage", "p safe", "p coverage", "time"):
        table.add_column(column, justify="right")
    for name, m in summary["methods"].items():
        p = summary["p_values"].get(name)
        unsafe = sum(m["cost_per_seed"]) / len(m["cost_per_seed"])
        table.add_row(
            f"[bold]{name}[/]" if name == "guss" else name,
            f"{m['reached']}/{m['seeds']}",
            f"{unsafe:.1f}",
            f"{100 * m['safe_plan_share']:.1f} %",
            f"{100 * m['coverage']:.1f} %",
            *((f"{p[k]:.2g}" for k in ("safe_plan_share", "coverage")) if p else ("", "")),
            f"{m['seconds']:.1f} s",
        )
    console.print(table)
    console.print(
        "[dim]unsafe steps: mean per episode. safe plans: share of all plans; coverage: safe cells that safe plans "
        "visited so far; both are means over seeds and steps. p: GuSS against this "
        "method, two-sided rank-sum test on per-seed means.[/]"
    )
    for file in files:
        console.print(f"  {file}", highlight=False, soft_wrap=True)


class MethodProgress:
    """A bar over methods and steps on a terminal; a line per method elsewhere; nothing if quiet."""

    def __init__(self, console: Console, methods: tuple[str, ...], steps: int, quiet: bool) -> None:
        self._console, self._steps, self._quiet = console, steps, quiet
        self._count, self._total, self._current = 0, len(methods), 0
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=self._total * steps)

    def start(self, method: str, stored: bool) -> None:
        """A method begins (or is there already)."""
        self._bar.update(self._task, completed=self._count * self._steps)
        self._count += 1
        note = "from the interrupted run" if stored else "compiling, then running"
        self._bar.update(self._task, description=f"{method} ({self._count}/{self._total}): {note}")
        if not self._quiet and not self._console.is_terminal:
            self._console.print(f"{method} ({self._count}/{self._total}): {note}", highlight=False)

    def step(self, done: int) -> None:
        """`done` steps of the episode are over."""
        self._bar.update(self._task, completed=(self._count - 1) * self._steps + done)

    def __enter__(self) -> MethodProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
