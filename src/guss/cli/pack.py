"""`guss pack`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from guss.cli.options import Plugins, prepare
from guss.errors import GussError

if TYPE_CHECKING:
    from rich.status import Status

    from guss.runs.pack import Packed


@dataclass
class PackCommand:
    """A small copy of runs, to keep or to share: settings, records, state maps, the animation of an episode.

    Stored files are copied and counted. Code that is not part of guss (environments, planners, models) is imported with
    --replay only.
    """

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="DIR|RUN", help_behavior_hint="")]
    """Runs, or folders of runs."""
    out: Annotated[Path, arg(metavar="DIR2")]
    """Where each gets a folder of its own name; what is there is replaced if it is an earlier copy of the same run."""
    animation: bool = True
    """With the animation of the last episode: the stored one, else recomputed, if all its code is part of guss."""
    replay: bool = False
    """Recompute it for custom environments and planners too: imports and runs their code."""
    json: bool = False
    """Print what was written as JSON."""
    quiet: bool = False
    """No progress, no summary."""
    plugin: Plugins = ()

    def run(self) -> None:
        """Check all, then pack one after the other."""
        if not self.runs:
            raise GussError("name a run, or a folder of runs")
        if self.plugin and not self.replay:
            raise GussError("--plugin imports code, which a pack does only with --replay: add that, or leave it out")
        prepare(self.plugin)
        from guss.cli.display import print_packed
        from guss.progress import make_console
        from guss.runs.pack import check_target, find_runs

        homes = find_runs(self.runs)
        for home in homes:
            check_target(home, self.out)
        with make_console(stderr=True, quiet=self.quiet).status("") as status:
            names = [f"{home.name} ({number}/{len(homes)})" for number, home in enumerate(homes, 1)]
            packed = [self._pack(home, name, status) for home, name in zip(homes, names, strict=True)]
        if self.json:
            rows = [each._asdict() | {"folder": str(each.folder)} for each in packed]
            print(json.dumps(rows, indent=2))
        elif not self.quiet:
            print_packed(make_console(), packed)

    def _pack(self, home: Path, name: str, status: Status) -> Packed:
        """Pack one run; `status` shows its name and how far its animation is."""
        from rich.text import Text

        from guss.runs.pack import pack_run

        def show_step(done: int, count: int) -> None:
            status.update(Text(f"{name}: planning for its animation, step {done}/{count}"))

        status.update(Text(name))
        return pack_run(home, self.out, with_animation=self.animation, replay=self.replay, on_step=show_step)
