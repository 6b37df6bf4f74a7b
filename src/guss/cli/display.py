"""What the terminal shows: progress while running, tables at the end. Plain lines where there is no terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.table import Table
from rich.text import Text

from guss.progress import RunProgress as RunProgress
from guss.progress import figure_text as figure_text
from guss.progress import make_bar
from guss.progress import reward_text as reward_text
from guss.runs.metrics import MEASURES


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
        self._count, self._total = 0, len(methods)
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
        self._bar = make_bar(console, quiet, *columns)
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


def print_run_summary(console: Console, summaries: list[dict[str, Any]], files: list[Path]) -> None:
    """What came out of a learning run, in the paper's measures, beside others it is compared with."""
    first = summaries[0]
    count = first["seeds"]
    table = Table(
        title=f"{first['env']}: {count} seed{'s' if count != 1 else ''}, {first['episodes']} episodes",
        title_justify="left",
    )
    table.add_column("measure")
    for summary in summaries:
        table.add_column(summary["method"], justify="right")
    table.add_column("what it is")
    about = {
        "mar": f"{MEASURES[first['measure']]}, second half of the episodes",
        "mrcp_ksteps": f"thousand real steps until it reaches {first['threshold']}",
        "unsafe_pct": "unsafe steps [%], all episodes",
        "unsafe_trans_pct": "unsafe steps [%], first 15 % of the episodes",
    }
    if first["threshold"] is None:
        del about["mrcp_ksteps"]
    for name, text in about.items():
        table.add_row(name, *(_measure(summary, name) for summary in summaries), text)
        if name == "unsafe_pct":
            for cost in first["unsafe_pct_by_cost"]:
                cells = (_measure(summary["unsafe_pct_by_cost"], cost) for summary in summaries)
                table.add_row(Text(f"  {cost}"), *cells, Text(f"steps that violate {cost} [%], all episodes"))
    console.print(table)
    if count > 1:
        console.print("[dim]± is the 90 % interval over seeds; random episodes at the start count in all of them.[/]")
    for summary in summaries:
        if count := summary.get("mar_random_episodes", 0):
            of = f"{count} of {summary['mar_episodes']} episodes counted in MAR had random actions"
            console.print(Text(f"{summary['method']}: {of}", style="yellow"), soft_wrap=True)
    for file in files:
        console.print(f"  {file}", highlight=False, soft_wrap=True)


def _measure(summary: dict[str, Any], name: str) -> str:
    """One measure of a run: its mean, and its interval if there is one."""
    mean, half = summary.get(name, (None, None))
    if mean is None:
        return "never" if name == "mrcp_ksteps" else "–"
    reached = f" ({summary['reached']}/{summary['seeds']})" if name == "mrcp_ksteps" else ""
    return f"{mean:.3f}" + ("" if half is None else f" ± {half:.3f}") + reached


class EpisodeBar:
    """A bar over episodes, or other units, on a terminal; nothing elsewhere."""

    def __init__(self, console: Console, count: int, quiet: bool, unit: str = "episode") -> None:
        self._bar = make_bar(console, quiet, TextColumn(f"{unit} {{task.completed}}/{{task.total}}"), BarColumn())
        self._task = self._bar.add_task("", total=count)

    def update(self, done: int) -> None:
        """So many are over."""
        self._bar.update(self._task, completed=done)

    def __enter__(self) -> EpisodeBar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def print_evaluation(console: Console, summary: dict[str, Any], file: Path) -> None:
    """What a frozen agent did."""
    table = Table(
        title=f"after {summary['trained_episodes']} episodes of learning: {summary['episodes']} new ones for each of "
        f"{summary['seeds']} seed{'s' if summary['seeds'] != 1 else ''}, nothing learned",
        title_justify="left",
    )
    for column in ("measure", "mean", "± (90 %)", "what it is"):
        table.add_column(column, justify="right" if column in ("mean", "± (90 %)") else "left")
    show = lambda x: "–" if x is None else f"{x:.3f}"  # noqa: E731
    early = [("return", "sum of rewards of an episode"), ("steps", "of an episode")] * summary["ends_early"]
    for name, about in (*early, ("mean_reward", "reward per step"), ("unsafe_pct", "unsafe steps [%]")):
        mean, half = summary[name]
        table.add_row(name, show(mean), show(half), about)
    for name, (mean, half) in summary["unsafe_pct_by_cost"].items():
        table.add_row(Text(f"  {name}"), show(mean), show(half), Text(f"steps that violate {name} [%]"))
    table.add_row("worst episode", show(summary["worst_episode_unsafe_pct"]), "", "its unsafe steps [%]")
    console.print(table)
    console.print(f"  {file}", highlight=False, soft_wrap=True)


class PackProgress:
    """Which run is being packed, on a terminal; nothing elsewhere."""

    def __init__(self, console: Console, count: int, quiet: bool) -> None:
        self._count, self._done, self._name, self._quiet = count, 0, "", quiet
        self._status = console.status("")

    def start(self, name: str) -> None:
        """The next run."""
        self._done, self._name = self._done + 1, f"{name} ({self._done + 1}/{self._count})"
        self._status.update(Text(self._name))

    def step(self, done: int, count: int) -> None:
        """So many steps of its animation are over."""
        self._status.update(Text(f"{self._name}: planning for its animation, step {done}/{count}"))

    def __enter__(self) -> PackProgress:
        if not self._quiet:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()


def print_packed(console: Console, packed: list[Any]) -> None:
    """What was written of every run, with sizes."""
    table = Table(title="Packed", title_justify="left")
    table.add_column("run")
    for name in ("episodes", "records", "maps", "animation", "all"):
        table.add_column(name, justify="right")
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
    console.print(Text(f"  {packed[0].folder.parent}"), soft_wrap=True)


def print_findings(env: str, findings: dict[str, list[Any]], problems: int, flags: str) -> None:
    """What `guss check-env` found, in words, and what to do next."""
    console = make_console()
    colours = {"What is risky": "yellow", "What is wrong": "red"}
    for title, found in findings.items():
        if not found:
            continue
        console.print(f"[bold {colours.get(title, '')}]{title}[/]")
        table = Table(box=None, show_header=False, pad_edge=True)
        table.add_column(no_wrap=True, style="dim")
        table.add_column(overflow="fold")
        for finding in found:
            table.add_row(finding.topic, Text(finding.text))
        console.print(table)
    if problems:
        console.print(f"[bold red]Not ready[/]: {problems} problem{'s' * (problems > 1)}, told above.")
    else:
        console.print(Text(f"Ready. Go on with: guss run --env {env}{flags}"))
