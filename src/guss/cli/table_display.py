"""Terminal output of a report: its table, its notes and the paths of its files."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from guss.cli.display import interval_text, print_files
from guss.reports.escapes import one_line

COLUMNS = {"mar": "MAR", "mrcp_ksteps": "MRCP, k steps", "unsafe_pct": "unsafe %"}
"""Measures of the table that a report prints."""
HEAD_WIDTH = 16
"""Characters per line of a column header, about the width of its numbers."""
NAME_WIDTH = 24
"""Minimum characters per line of a name."""


def _columns_of(rows: list[dict[str, Any]]) -> list[tuple[str, list[Text]]]:
    """Header and cells of each numeric column in the table of an environment."""
    columns = [("seeds ×\nepisodes", [Text(f"{row['seeds']} × {row['episodes']}") for row in rows])]
    reached = any(row["reached"] or "mrcp_ksteps" in row["paper"] for row in rows)
    for name, head in COLUMNS.items():
        if name == "mrcp_ksteps" and not reached:
            continue
        beside, cells = any(name in row["paper"] for row in rows), []
        for row in rows:
            paper = row["paper"].get(name)
            theirs = () if paper is None else (" ", (f"[{paper[0]:g}]", "dim"))
            cells.append(Text.assemble(interval_text(*row[name]), *theirs))
        columns.append((head + " [paper]" * beside, cells))
    measured = dict.fromkeys(cost for row in rows for cost in row.get("measured", ()))
    costs = dict.fromkeys(cost for row in rows for cost in row.get("unsafe_pct_by_cost", ()))
    constraints = [cost for cost in costs if cost not in measured]
    for cost in (*(constraints if len(constraints) > 1 else ()), *measured):
        head = "\n".join(textwrap.wrap(f"{one_line(cost)} %", HEAD_WIDTH))
        pairs = [row.get("unsafe_pct_by_cost", {}).get(cost, (None, None)) for row in rows]
        columns.append((head, [Text(interval_text(*pair)) for pair in pairs]))
    if any("jitter" in row for row in rows):
        columns.append(("jitter", [Text(interval_text(*row.get("jitter", (None, None)))) for row in rows]))
    return columns


def _print_columns(console: Console, title: str, names: list[Text], columns: list[tuple[str, list[Text]]]) -> None:
    """A row for each name; names wrap, numbers do not. Columns that exceed the width follow in another table."""
    widths = [3 + max(len(line) for line in (*head.split("\n"), *(c.plain for c in cells))) for head, cells in columns]
    room = console.width - 4 - min(NAME_WIDTH, max(len(name) for name in names))
    parts, used = [list[tuple[str, list[Text]]]()], 0
    for column, width in zip(columns, widths, strict=True):
        if parts[-1] and used + width > room:
            parts.append([])
            used = 0
        parts[-1].append(column)
        used += width
    for i, part in enumerate(parts):
        heads = (Column(Text(head), justify="right", no_wrap=True) for head, _ in part)
        shown = Table(Column("method", overflow="fold"), *heads, title_justify="left")
        shown.title = None if i else Text(title)
        for name, *cells in zip(names, *(cells for _, cells in part), strict=True):
            shown.add_row(name, *cells)
        console.print(shown)


def print_report(console: Console, files: list[Path]) -> None:
    """Print the main columns of the report's table, its notes and the paths of its `files`."""
    table, notes = (json.loads((files[0].parent / f"{name}.json").read_text()) for name in ("table", "report"))
    for label, methods in zip(notes["environments"].values(), table.values(), strict=True):
        names = [Text(one_line(row["label"]), style="bold" if key == "guss" else "") for key, row in methods.items()]
        _print_columns(console, label, names, _columns_of(list(methods.values())))
    for note in notes["notes"]:
        console.print(Text.assemble("  ", ("!", "yellow"), f" {one_line(note)}"), soft_wrap=True)
    pages = [file for file in files if file.parent.name != "figures"]
    written = [one_line(file) for file in pages]
    if len(files) > len(pages):
        written.append(f"{one_line(pages[0].parent / 'figures')} ({len(files) - len(pages)} files)")
    print_files(console, written)
