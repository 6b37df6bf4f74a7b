"""Terminal output of one run or experiment: progress bars, then tables."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.table import Column, Table
from rich.text import Text

from guss.progress import ProgressBar, count_column, figure_text, time_columns
from guss.runs.metrics import MEASURES


def counting_bar(console: Console, count: int, unit: str = "episode") -> ProgressBar:
    """A bar over episodes or other units; only on a terminal."""
    return ProgressBar(console, count, count_column(unit), BarColumn(), *time_columns())


class MethodProgress(ProgressBar):
    """A bar over methods and steps; a line per method if the output is not a terminal."""

    def __init__(self, console: Console, methods: tuple[str, ...], steps: int) -> None:
        self._steps, self._count, self._total = steps, 0, len(methods)
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
        super().__init__(console, self._total * steps, *columns, *time_columns())
        self.update(text="starting")

    def start(self, method: str, stored: bool) -> None:
        """A method starts; `stored`: an interrupted run has finished it."""
        self._count += 1
        note = "from the interrupted run" if stored else "compiling, then running"
        text = f"{method} ({self._count}/{self._total}): {note}"
        self.update((self._count - 1) * self._steps, text)
        if not self._console.is_terminal:
            self.line(text)

    def step(self, done: int) -> None:
        """`done` steps of the episode are finished."""
        self.update((self._count - 1) * self._steps + done)


def numbers(*headers: str) -> list[Column]:
    """Right-aligned table columns."""
    return [Column(header, justify="right") for header in headers]


def count_seeds(count: int) -> str:
    """Such as "1 seed", "6 seeds"."""
    return f"{count} seed{'s' * (count != 1)}"


def interval_text(mean: float | None, half: float | None) -> str:
    """A mean with its interval, if it has one; a dash if there is no mean."""
    return figure_text(mean, 3) + ("" if mean is None or half is None else f" ± {half:.3f}")


def print_files(console: Console, files: Iterable[Path | str]) -> None:
    for file in files:
        console.print(Text(f"  {file}"), soft_wrap=True)


def print_toy_summary(console: Console, summary: dict[str, Any], files: list[Path]) -> None:
    """Print the results as a table, and the paths of the files."""
    config = summary["config"]
    title = f"Toy world: {count_seeds(len(config['seeds']))}, {config['steps']} steps, "
    title += f"{config['budget']} plans of {config['horizon']} steps"
    columns = numbers("goal reached", "unsafe steps", "safe plans", "coverage", "p safe", "p coverage", "time")
    table = Table("method", *columns, title=title, title_justify="left")
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
    print_files(console, files)


def print_run_summary(console: Console, summaries: list[dict[str, Any]], files: list[Path]) -> None:
    """Print the paper's measures of a run, next to those of the runs it is compared with."""
    first = summaries[0]
    title = f"{first['env']}: {count_seeds(first['seeds'])}, {first['episodes']} episodes"
    methods = numbers(*(summary["method"] for summary in summaries))
    table = Table("measure", *methods, "description", title=title, title_justify="left")
    table.add_row("mar", *_intervals(summaries, "mar"), f"{MEASURES[first['measure']]}, second half of the episodes")
    if first["threshold"] is not None:
        about = f"environment steps until {first['threshold']} is reached, in thousands"
        table.add_row("mrcp_ksteps", *map(_reached_text, summaries), about)
    table.add_row("unsafe_pct", *_intervals(summaries, "unsafe_pct"), "unsafe steps [%], all episodes")
    for cost in dict.fromkeys(cost for summary in summaries for cost in summary["unsafe_pct_by_cost"]):
        cells = _intervals([summary["unsafe_pct_by_cost"] for summary in summaries], cost)
        about = _about_cost(cost, any(cost in summary["measured"] for summary in summaries))
        table.add_row(Text(f"  {cost}"), *cells, Text(f"{about} [%], all episodes"))
    about = "unsafe steps [%], first 15 % of the episodes"
    table.add_row("unsafe_trans_pct", *_intervals(summaries, "unsafe_trans_pct"), about)
    if any("jitter" in summary for summary in summaries):
        about = "change of the action per step, share of its range, episodes of mar"
        table.add_row("jitter", *_intervals(summaries, "jitter"), about)
    console.print(table)
    if first["seeds"] > 1:
        console.print("[dim]± is the 90 % interval over seeds; measures include the initial random episodes.[/]")
    for summary in summaries:
        if count := summary.get("mar_random_episodes", 0):
            of = f"{count} of the {summary['mar_episodes']} episodes of MAR had random actions"
            console.print(Text(f"{summary['method']}: {of}", style="yellow"), soft_wrap=True)
    print_files(console, files)


def _about_cost(cost: str, measured: bool) -> str:
    """What the share of a constraint or a measured cost counts."""
    return f"steps with the cost {cost}, which plans do not use" if measured else f"steps that violate {cost}"


def _intervals(summaries: list[dict[str, Any]], name: str) -> list[str]:
    """A measure of each run."""
    return [interval_text(*summary.get(name, (None, None))) for summary in summaries]


def _reached_text(summary: dict[str, Any]) -> str:
    """Thousands of steps until the seeds of a run reach its threshold, and how many of them do."""
    mean, half = summary["mrcp_ksteps"]
    return "never" if mean is None else f"{interval_text(mean, half)} ({summary['reached']}/{summary['seeds']})"


def print_evaluation(console: Console, summary: dict[str, Any], file: Path) -> None:
    """Print the evaluation of a trained agent."""
    title = f"after {summary['trained_episodes']} episodes of training: {summary['episodes']} evaluation episodes, "
    title += f"{count_seeds(summary['seeds'])}"
    table = Table("measure", *numbers("mean", "± (90 %)"), "description", title=title, title_justify="left")
    early = [("return", "sum of rewards per episode"), ("steps", "steps per episode")] * summary["ends_early"]
    rows = [(name, summary[name], about) for name, about in early]
    rows += [("mean_reward", summary["mean_reward"], "reward per step")]
    rows += [("unsafe_pct", summary["unsafe_pct"], "unsafe steps [%]")]
    for cost, pair in summary["unsafe_pct_by_cost"].items():
        rows.append((f"  {cost}", pair, f"{_about_cost(cost, cost in summary['measured'])} [%]"))
    for name, (mean, half), about in rows:
        table.add_row(Text(name), figure_text(mean, 3), figure_text(half, 3), Text(about))
    table.add_row("worst episode", figure_text(summary["worst_episode_unsafe_pct"], 3), "", "unsafe steps [%]")
    console.print(table)
    print_files(console, [file])


def print_packed(console: Console, packed: list[Any]) -> None:
    """Print the files of each packed run, with sizes."""
    columns = numbers("episodes", "records", "maps", "animation", "all")
    table = Table("run", *columns, title="Packed", title_justify="left")
    for each in packed:
        sizes = {**each.files, "all": sum(each.files.values())}
        sizes["records"] = sum(size for name, size in each.files.items() if name.endswith(".jsonl.gz"))
        names = ("records", "maps.json.gz", "animation.json.gz", "all")
        shown = (f"{sizes[name] / 1000:.1f} kB" if name in sizes else "–" for name in names)
        table.add_row(Text(each.folder.name), str(each.episodes), *shown)
    console.print(table)
    for each in packed:
        for text in each.missing:
            console.print(Text(f"{each.folder.name}: {text}", style="dim"), soft_wrap=True)
    print_files(console, [packed[0].folder.parent])
