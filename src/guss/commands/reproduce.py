"""`guss reproduce`: the paper's experiments."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg

from guss.commands.common import FROM_PRESET, Plugins, command_line, load_plugins, use_compilation_cache
from guss.errors import GussError


@dataclass
class Toy:
    """The exploration experiment of Sec. 5.1: Fig. 2 and the trajectories of appendix B."""

    preset: Literal["paper", "quick"] = "paper"
    """paper: 10 seeds; quick: 2 seeds, for a first look."""
    seeds: Annotated[int | None, arg(metavar="N"), FROM_PRESET] = None
    """How many seeds."""
    seed: int = 0
    """The first of them."""
    methods: Annotated[tuple[str, ...] | None, arg(metavar="NAME"), FROM_PRESET] = None
    """Planners to compare; see `guss list`."""
    horizon: Annotated[int | None, arg(metavar="H"), FROM_PRESET] = None
    """H: steps of a plan."""
    budget: Annotated[int | None, arg(metavar="M"), FROM_PRESET] = None
    """M: plans evaluated per step."""
    steps: Annotated[int | None, arg(metavar="T"), FROM_PRESET] = None
    """T: steps of the episode."""
    layout: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: the paper's)")] = None
    """A world of your own: a TOML file with start, goal, unsafe (rectangles x0, x1, y0, y1), size, goal_radius."""
    out: Path = Path("runs")
    """Where to write; the results are in its subfolder toy."""
    json: bool = False
    """Print the summary as JSON instead of a table."""
    quiet: bool = False
    """No progress, no table."""
    plugin: Plugins = ()

    def run(self) -> None:
        """Run, report, say where the files are."""
        load_plugins(self.plugin)
        use_compilation_cache()
        from guss.display import MethodProgress, make_console, print_toy_summary
        from guss.envs.toy import PAPER_LAYOUT, ToyLayout
        from guss.loading import load_preset
        from guss.reports.toy import write_report
        from guss.runs.provenance import provenance
        from guss.runs.toy import ToyConfig, run_toy

        experiment = load_preset("toy")
        preset = experiment["paper"] | (experiment[self.preset] if self.preset != "paper" else {})
        chosen = {name: getattr(self, name) for name in preset if getattr(self, name) is not None}
        values = preset | chosen
        if values["seeds"] < 1 or self.seed < 0:
            raise GussError(
                f"there must be at least 1 seed, from 0 up, got --seeds {values['seeds']} --seed {self.seed}"
            )
        methods = tuple(name for word in values["methods"] for name in word.split(",") if name)
        config = ToyConfig(
            methods=methods,
            seeds=tuple(range(self.seed, self.seed + values["seeds"])),
            steps=values["steps"],
            horizon=values["horizon"],
            budget=values["budget"],
            settings={name: s for name, s in experiment["planners"].items() if name in methods},
            layout=PAPER_LAYOUT if self.layout is None else ToyLayout.from_toml(self.layout),
        )
        with MethodProgress(make_console(stderr=True), config.methods, config.steps, quiet=self.quiet) as progress:
            home = run_toy(config, self.out, provenance(command_line()), progress.start, progress.step)
        summary, files = write_report(home)
        if self.json:
            print(json.dumps(summary, indent=2))
        elif not self.quiet:
            print_toy_summary(make_console(), summary, files)


EXPERIMENTS = {"toy": Toy}


@dataclass
class Reproduce:
    """Reproduce an experiment of the paper, with its figures: toy."""
