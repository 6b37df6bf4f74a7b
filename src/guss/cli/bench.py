"""`guss bench`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg

from guss.cli.options import command_line
from guss.files import check_file

Part = Literal["plans", "fits", "startup", "environments", "scaling"]


@dataclass
class Bench:
    """Measure how fast guss is on this machine: plans and fits against the limit, start-up, environments,
    growth.

    The comparison with other libraries needs the repository: `make bench`. What the figures mean is in
    docs/performance.md.
    """

    parts: tuple[Part, ...] = ("plans", "fits", "startup", "environments")
    """What to measure. scaling takes about ten minutes, the others one each."""
    cases: Annotated[tuple[str, ...], arg(metavar="CASE")] = ()
    """Only these plans and fits, such as pendulum or fit-darmdn-2k; by default all."""
    seeds: tuple[int, ...] = (1, 6)
    """How many seeds are planned for at once."""
    seconds: float = 4.0
    """Time for each comparison, after compiling."""
    threads: int = 1
    """Threads of each process (XLA's NPROC)."""
    out: Path | None = None
    """Write the figures to this JSON file."""
    json: bool = False
    """Print the figures as JSON."""

    def run(self) -> None:
        """Measure and show."""
        from guss.bench.suite import measure_all
        from guss.cli.display import make_console, print_bench
        from guss.runs.provenance import provenance
        from guss.runs.store import write_json

        if self.out is not None:
            check_file(self.out)
        notes = make_console(stderr=True)
        found = measure_all(self.parts, self.cases, self.seeds, self.seconds, self.threads, notes.print)
        record = found | {
            "rows": [asdict(row) for row in found["rows"]],
            "provenance": provenance(command_line()),
        }
        if self.out is not None:
            write_json(self.out, record)
        if self.json:
            print(json.dumps(record, indent=2))
        else:
            print_bench(make_console(), record)
