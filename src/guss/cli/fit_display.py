"""What `guss fit` shows: a line per fit, and how good the model is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from guss.cli.display import numbers, print_files
from guss.progress import figure_text

WEAK_R2 = 0.9
FEW_HELD_OUT = 2


def print_fitted(console: Console, news: Any) -> None:
    """A line about a fit that is over."""
    ahead = "" if news.r2_horizon is None else f"  R² at the horizon {figure_text(news.r2_horizon.mean())}"
    about = f"{news.episodes} episodes, {news.rows} transitions: R² {figure_text(news.report.r2.mean())}{ahead}"
    nll = f"NLL {figure_text(news.report.nll.mean(), 2)}"
    console.print(f"{about}  {nll}  {news.seconds:.1f} s", highlight=False, soft_wrap=True)


def print_fit(console: Console, summary: dict[str, Any], files: list[Path]) -> None:
    """How good a model is, dimension by dimension, and what to think of it."""
    seeds = len(summary["seeds"])
    title = f"{summary['model']} of {summary['task']}: {summary['rows']} steps of {summary['episodes']} episodes"
    title += f", mean of {seeds} seeds" if seeds > 1 else ""
    columns = numbers("dimension", "R², 1 step", f"R², {summary['horizon']} steps ahead", "KS distance")
    table = Table(*columns, title=title, title_justify="left")
    ahead = summary["r2_horizon"]
    each_ahead = [None] * len(summary["r2"]) if ahead is None else ahead
    for label, r2, far, ks in zip(summary["dimensions"], summary["r2"], each_ahead, summary["ks"], strict=True):
        table.add_row(Text(label.removeprefix("dimension ")), _r2_text(r2), _r2_text(far), figure_text(ks, 3))
    console.print(table)
    _print_outcomes(console, summary)
    about = f"R² (1 is perfect) and KS (0 is calibrated) on {summary['held_out_rows']} transitions that were held out"
    about += "." if ahead is None else f"; {summary['horizon']} steps ahead on an episode that was not learned from."
    if summary["held_out_rows"] < FEW_HELD_OUT:
        console.print("[red]Not evaluated[/]: too few transitions were held out; bring more data.")
    else:
        console.print(f"[dim]{about} NLL {figure_text(summary['nll'], 2)}.[/]")
    weak = [name for name, r2 in zip(summary["dimensions"], ahead or summary["r2"], strict=True) if _is_weak(r2)]
    if weak:
        console.print(
            f"[red]Weak in {escape(', '.join(weak))}[/]: more or other data, a larger net, a shorter horizon; or "
            f"something that matters is not observed (a speed?)."
        )
    print_files(console, files)


def _is_weak(r2: float | None) -> bool:
    return r2 is not None and r2 < WEAK_R2


def _r2_text(r2: float | None) -> str:
    return f"[red]{figure_text(r2)}[/]" if _is_weak(r2) else figure_text(r2)


def _print_outcomes(console: Console, summary: dict[str, Any]) -> None:
    """How good the learned reward, costs and end of episodes are, and what the data do not show."""
    outcomes = summary["outcomes"]
    if outcomes:
        title = "Learned beside the dynamics, on the same held-out transitions"
        columns = numbers("R²", "log loss", "calibration error", "recall", "examples")
        table = Table("", *columns, title=title, title_justify="left")
        for name, each in outcomes.items():
            count = "–" if each.get("examples") is None else f"{each['examples']:g}"
            figures = (figure_text(each.get(key)) for key in ("r2", "log_loss", "calibration", "recall"))
            table.add_row(name, *figures, count)
        console.print(table)
    for each in summary["unsafe_examples"].values():
        style = "yellow" if each["warning"] else "dim"
        console.print(Text(each["warning"] or each["text"], style=style), soft_wrap=True)
