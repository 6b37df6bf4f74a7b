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
    """Compare stored runs: a table with the paper's values, intervals and tests, figures, and an HTML page.

    Compares the runs in DIR or DIR/runs; runs in other subfolders are separate groups. Lists missing and unfinished
    runs. Reads stored records only: imports no environment and no plugin.

        guss report runs
    """

    folder: Annotated[Positional[Path], arg(metavar="DIR")] = Path("runs")
    """Folder of the runs."""
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: DIR/report)")] = None
    """Output folder of table.md, table.json, table.tex, figures/ and report.html."""
    json: bool = False
    """Print the table as JSON."""
    quiet: bool = False
    """Print no progress and no table."""

    def run(self) -> None:
        """Write the report, print its table and the paths of its files."""
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
    """Write the report of the runs in a folder, with a status line on a terminal; returns its files."""
    from rich.text import Text

    from guss.progress import make_console
    from guss.reports.escapes import one_line
    from guss.reports.report import write_report

    with make_console(stderr=True, quiet=quiet).status("starting") as status:

        def show_part(name: str) -> None:
            status.update(Text(one_line(name)))

        return write_report(folder, out, command_line(), show_part)
