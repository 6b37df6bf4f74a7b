"""What `guss fit` shows: its progress, and how good the model is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from guss.cli.display import figure_text


class FitProgress:
    """A line per fit on a terminal or elsewhere; nothing if quiet."""

    def __init__(self, console: Console, text: str, quiet: bool) -> None:
        self._console, self._quiet = console, quiet
        self._status = console.status(text)

    def fitted(self, news: Any) -> None:
        """One fit is over."""
        if not self._quiet:
            ahead = "" if news.r2_horizon is None else f"  R² at the horizon {figure_text(news.r2_horizon.mean())}"
            self._console.print(
                f"{news.episodes} episodes, {news.rows} transitions: R² {figure_text(news.report.r2.mean())}"
                f"{ahead}  NLL {figure_text(news.report.nll.mean(), 2)}  {news.seconds:.1f} s",
                highlight=False,
                soft_wrap=True,
            )

    def __enter__(self) -> FitProgress:
        if not self._quiet:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()


WEAK_R2 = 0.9
FEW_HELD_OUT = 2


def print_fit(console: Console, summary: dict[str, Any], files: list[Path]) -> None:
    """How good a model is, dimension by dimension, and what to think of it."""
    seeds = len(summary["seeds"])
    table = Table(
        title=f"{summary['model']} of {summary['task']}: {summary['rows']} steps of {summary['episodes']} episodes"
        + (f", mean of {seeds} seeds" if seeds > 1 else ""),
        title_justify="left",
    )
    far = f"R², {summary['horizon']} steps ahead"
    for column in ("dimension", "R², 1 step", far, "KS distance"):
        table.add_column(column, justify="right")
    ahead = summary["r2_horizon"]
    weak_one = lambda x: x is not None and x < WEAK_R2  # noqa: E731
    show = lambda x: f"[red]{x:.4f}[/]" if weak_one(x) else figure_text(x)  # noqa: E731
    labels = [label.removeprefix("dimension ") for label in summary["dimensions"]]
    for i, (r2, ks) in enumerate(zip(summary["r2"], summary["ks"], strict=True)):
        table.add_row(Text(labels[i]), show(r2), "–" if ahead is None else show(ahead[i]), figure_text(ks, 3))
    console.print(table)
    _print_outcomes(console, summary)
    about = f"R² (1 is perfect) and KS (0 is calibrated) on {summary['held_out_rows']} transitions that were held out"
    about += "." if ahead is None else f"; {summary['horizon']} steps ahead on an episode that was not learned from."
    if summary["held_out_rows"] < FEW_HELD_OUT:
        console.print("[red]Not evaluated[/]: too few transitions were held out; bring more data.")
    else:
        console.print(f"[dim]{about} NLL {figure_text(summary['nll'], 2)}.[/]")
    weak = [summary["dimensions"][i] for i, r2 in enumerate(ahead or summary["r2"]) if weak_one(r2)]
    if weak:
        console.print(
            f"[red]Weak in {escape(', '.join(weak))}[/]: more or other data, a larger net, a shorter horizon; or "
            f"something that matters is not observed (a speed?)."
        )
    for file in files:
        console.print(f"  {file}", highlight=False, soft_wrap=True)


def _print_outcomes(console: Console, summary: dict[str, Any]) -> None:
    """How good the learned reward, costs and end of episodes are, and what the data do not show."""
    outcomes = summary["outcomes"]
    if outcomes:
        table = Table(title="Learned beside the dynamics, on the same held-out transitions", title_justify="left")
        for column in ("", "R²", "log loss", "calibration error", "recall", "examples"):
            table.add_column(column, justify="right" if column else "left")
        for name, each in outcomes.items():
            count = "–" if each.get("examples") is None else f"{each['examples']:g}"
            figures = (figure_text(each.get(key)) for key in ("r2", "log_loss", "calibration", "recall"))
            table.add_row(name, *figures, count)
        console.print(table)
    for each in summary["unsafe_examples"].values():
        style = "yellow" if each["warning"] else "dim"
        console.print(Text(each["warning"] or each["text"], style=style), soft_wrap=True)
