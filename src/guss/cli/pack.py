"""`guss pack`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from guss.cli.options import Plugins, load_plugins, use_compilation_cache
from guss.errors import GussError


@dataclass
class Pack:
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
        load_plugins(self.plugin)
        from guss.cli.display import PackProgress, make_console, print_packed
        from guss.runs.pack import check_target, find_runs, pack_run

        homes = find_runs(self.runs)
        for home in homes:
            check_target(home, self.out)
        use_compilation_cache()
        packed = []
        with PackProgress(make_console(stderr=True), len(homes), quiet=self.quiet) as progress:
            for home in homes:
                progress.start(home.name)
                packed.append(
                    pack_run(home, self.out, with_animation=self.animation, replay=self.replay, on_step=progress.step)
                )
        if self.json:
            rows = [each._asdict() | {"folder": str(each.folder)} for each in packed]
            print(json.dumps(rows, indent=2))
        elif not self.quiet:
            print_packed(make_console(), packed)
