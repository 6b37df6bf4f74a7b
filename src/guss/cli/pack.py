"""`guss pack`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from guss.cli.options import Plugins, prepare, print_results
from guss.errors import GussError


@dataclass
class PackCommand:
    """Write small copies of runs to share: settings, records, state maps and an animation, without checkpoints.

    Imports custom environments, planners and models only with --replay.

        guss pack runs --out shared
    """

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="DIR|RUN", help_behavior_hint="")]
    """Run folders, or folders that contain them."""
    out: Annotated[Path, arg(metavar="DIR2")]
    """Folder for the copies, each in a folder named as its run; an earlier copy of the same run is replaced."""
    animation: bool = True
    """Include an animation of the last episode: the stored one, or a new one if guss contains all code of the run."""
    replay: bool = False
    """Recompute animations also for custom environments, planners and models: imports and runs their code."""
    json: bool = False
    """Print the list of files as JSON."""
    quiet: bool = False
    """Print no progress and no summary."""
    plugin: Plugins = ()

    def run(self) -> None:
        """Check all runs, then pack them."""
        if not self.runs:
            raise GussError("guss pack needs a run folder or a folder of runs, such as: guss pack runs --out shared")
        if self.plugin and not self.replay:
            raise GussError("--plugin imports code, which needs --replay: add --replay, or leave out --plugin")
        prepare(self.plugin)
        from rich.text import Text

        from guss.cli.display import print_packed
        from guss.progress import make_console
        from guss.runs.pack import check_target, find_runs, pack_run

        homes = find_runs(self.runs)
        for home in homes:
            check_target(home, self.out)
        packed, how = [], {"with_animation": self.animation, "replay": self.replay}
        with make_console(stderr=True, quiet=self.quiet).status("") as status:
            for number, home in enumerate(homes, 1):
                name = f"{home.name} ({number}/{len(homes)})"

                def show_step(done: int, count: int, name: str = name) -> None:
                    status.update(Text(f"{name}: planning for its animation, step {done}/{count}"))

                status.update(Text(name))
                packed.append(pack_run(home, self.out, **how, on_step=show_step))
        rows = [each._asdict() | {"folder": str(each.folder)} for each in packed]
        print_results(rows, self.json, self.quiet, lambda console: print_packed(console, packed))
