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
    """Animate an episode of a run: the system, candidate plans, the chosen plan, the archive, reward and cost.

    Plans are recomputed, not stored: this imports the environment and the planner of the run.

        guss replay runs/safe-pendulum-guss-1a2b3c4d --episode 3
        guss replay runs/safe-pendulum-guss-1a2b3c4d --step 50 --out plan.png
    """

    run_folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """Folder of the run."""
    episode: Annotated[int | None, arg(metavar="E", help_behavior_hint="(default: the last)")] = None
    """Episode number, from 0. Models older than the last two checkpoints are fitted again."""
    seed: Annotated[int | None, arg(metavar="S", help_behavior_hint="(default: the first)")] = None
    """Seed."""
    step: Annotated[int | None, arg(metavar="T", help_behavior_hint="")] = None
    """Draw only this step, from 0, as an image (.png); -1 is the last."""
    dims: Annotated[tuple[str, ...], arg(metavar="NAME", help_behavior_hint="(default: all of a custom system)")] = ()
    """Draw these observation dimensions, by name or number, with their limits and the actions."""
    every: Annotated[int | None, arg(metavar="K", help_behavior_hint="(default: 100 frames in all)")] = None
    """Draw every K-th step."""
    fps: int = 15
    """Frames per second."""
    out: Path = Path("replay.gif")
    """Output file: .gif, or .png with --step."""
    quiet: bool = False
    """Print no progress and no summary."""
    plugin: Plugins = ()

    def run(self) -> None:
        """Recompute the plans of the episode and draw it."""
        prepare(self.plugin)
        from guss.cli.display import counting_bar
        from guss.cli.fit_display import print_fitted
        from guss.progress import make_console
        from guss.reports.replay_figure import write_replay
        from guss.runs.replay import Replay as Stored

        check_file(self.out)
        console = make_console(stderr=True, quiet=self.quiet)
        with console.status("loading the models of the episode"):
            stored = Stored(self.run_folder, self.episode, self.seed, partial(print_fitted, console))
        with counting_bar(console, len(stored), "step") as bar:
            write_replay(
                stored, self.out, step=self.step, every=self.every, fps=self.fps, on_step=bar.update, dims=self.dims
            )
        if not self.quiet:
            print(f"{self.out}: {stored.verdict()} (episodes count from 0: the run has 0 to {stored.num_episodes - 1})")
