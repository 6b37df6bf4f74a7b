"""Terminal output of `guss fit`: a line per fit, and the accuracy of the model."""

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
    """Print a line about a finished fit."""
    ahead = "" if news.r2_horizon is None else f"  R² at the horizon {figure_text(news.r2_horizon.mean())}"
    about = f"{news.episodes} episodes, {news.rows} transitions: R² {figure_text(news.report.r2.mean())}{ahead}"
    nll = f"NLL {figure_text(news.report.nll.mean(), 2)}"
    console.print(f"{about}  {nll}  {news.seconds:.1f} s", highlight=False, soft_wrap=True)


def print_fit(console: Console, summary: dict[str, Any], files: list[Path]) -> None:
    """Print the accuracy of a model in each dimension, and advice if it is low."""
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
    about = f"R² (1 is perfect) and KS (0 is calibrated) on {summary['held_out_rows']} held-out transitions"
    about += "." if ahead is None else f"; {summary['horizon']} steps ahead on a held-out episode."
    if summary["held_out_rows"] < FEW_HELD_OUT:
        console.print("[red]Not evaluated[/]: too few held-out transitions; add more data.")
    else:
        console.print(f"[dim]{about} NLL {figure_text(summary['nll'], 2)}.[/]")
    weak = [name for name, r2 in zip(summary["dimensions"], ahead or summary["r2"], strict=True) if _is_weak(r2)]
    if weak:
        console.print(
            f"[red]Low accuracy in {escape(', '.join(weak))}[/]: try more or more varied data, a larger network or a "
            f"shorter horizon; or the observations lack a state variable (such as a velocity)."
        )
    print_files(console, files)


def _is_weak(r2: float | None) -> bool:
    return r2 is not None and r2 < WEAK_R2


def _r2_text(r2: float | None) -> str:
    return f"[red]{figure_text(r2)}[/]" if _is_weak(r2) else figure_text(r2)


def _print_outcomes(console: Console, summary: dict[str, Any]) -> None:
    """Print the accuracy of the learned reward, costs and episode ends, and which examples the data lack."""
    outcomes = summary["outcomes"]
    if outcomes:
        title = "Learned reward, costs and episode ends, on the same held-out transitions"
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
