"""`guss replay`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from guss.cli.options import Plugins, prepare
from guss.files import check_file


@dataclass
class ReplayCommand:
    """Draw an episode of a run: the system, the fan of plans with the chosen one, the archive, the course.

    Plans are recomputed, not stored: this imports and creates the environment that the run names, and its planner.
    """

    run_folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run's folder."""
    episode: Annotated[int | None, arg(metavar="E", help_behavior_hint="(default: the last)")] = None
    """Which episode, from 0. Models older than the last two checkpoints are fitted again first."""
    seed: Annotated[int | None, arg(metavar="S", help_behavior_hint="(default: the first)")] = None
    """Which seed."""
    step: Annotated[int | None, arg(metavar="T", help_behavior_hint="")] = None
    """One step only, from 0, as a picture (.png); -1 is the last."""
    dims: Annotated[tuple[str, ...], arg(metavar="NAME", help_behavior_hint="(default: all of a custom system)")] = ()
    """Draw these dimensions of the observations, by name or number, with their limits and the actions."""
    every: Annotated[int | None, arg(metavar="K", help_behavior_hint="(default: 100 frames in all)")] = None
    """A frame for every K-th step."""
    fps: int = 15
    """Frames per second."""
    out: Path = Path("replay.gif")
    """A .gif; with --step a .png."""
    quiet: bool = False
    """No progress, no summary."""
    plugin: Plugins = ()

    def run(self) -> None:
        """Plan the episode again and draw it."""
        prepare(self.plugin)
        from guss.cli.display import counting_bar
        from guss.cli.fit_display import print_fitted
        from guss.progress import make_console
        from guss.reports.replay_figure import write_replay
        from guss.runs.replay import Replay as Stored

        check_file(self.out)
        console = make_console(stderr=True, quiet=self.quiet)
        with console.status("looking for the models of that episode"):
            stored = Stored(self.run_folder, self.episode, self.seed, partial(print_fitted, console))
        with counting_bar(console, len(stored), "step") as bar:
            write_replay(
                stored,
                self.out,
                step=self.step,
                every=self.every,
                fps=self.fps,
                on_step=bar.update,
                dims=self.dims,
            )
        if not self.quiet:
            print(f"{self.out}: {stored.verdict()} (episodes count from 0: the run has 0 to {stored.num_episodes - 1})")
