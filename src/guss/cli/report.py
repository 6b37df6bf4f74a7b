"""`guss report`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from guss.cli.options import command_line, print_warning


@dataclass
class ReportCommand:
    """Turn stored runs into the answer: the paper's table with ours beside it, how sure it is, figures, and one page.

    Compared are the runs in DIR itself or in DIR/runs; those in its other subfolders are shown as groups of their own.
    Only stored records are read: no environment is created or stepped, and no module that a run names is imported. The
    report says what is missing or unfinished.
    """

    folder: Annotated[Positional[Path], arg(metavar="DIR")] = Path("runs")
    """Where the runs are."""
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: DIR/report)")] = None
    """Where to write table.md, table.json, table.tex, figures/ and report.html."""
    json: bool = False
    """Print the table as JSON."""
    quiet: bool = False
    """No progress, no table."""

    def run(self) -> None:
        """Make the report, show its table, say where it is."""
        from guss.cli.table_display import print_report
        from guss.progress import make_console
        from guss.reports.escapes import one_line

        files = report_with_status(self.folder, self.out, self.quiet)
        for note in json.loads((files[0].parent / "report.json").read_text()).get("left_out", ()):
            print_warning(one_line(note))
        if self.json:
            print((files[0].parent / "table.json").read_text(), end="")
        elif not self.quiet:
            print_report(make_console(), files)


def report_with_status(folder: Path, out: Path | None, quiet: bool) -> list[Path]:
    """Write the report of a folder's runs; a terminal shows the part that is being written. Returns its files."""
    from rich.text import Text

    from guss.progress import make_console
    from guss.reports.escapes import one_line
    from guss.reports.report import write_report

    with make_console(stderr=True, quiet=quiet).status("starting") as status:

        def show_part(name: str) -> None:
            status.update(Text(one_line(name)))

        return write_report(folder, out, command_line(), show_part)
