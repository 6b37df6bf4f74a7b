"""`guss eval`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from guss.cli.options import Plugins, command_line, load_plugins, use_compilation_cache
from guss.files import check_file


@dataclass
class Eval:
    """Put what a run learned from all its episodes to work on new ones, without learning: reward and unsafe share.

    This imports, creates and steps the environment that the run names.
    """

    run_folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run's folder."""
    episodes: int = 10
    """New episodes for each of its seeds."""
    json: bool = False
    """Print the outcome as JSON."""
    quiet: bool = False
    """No progress, no summary."""
    plugin: Plugins = ()

    def run(self) -> None:
        """Evaluate, store `RUN/eval.json`, say what came out."""
        load_plugins(self.plugin)
        from guss.cli.display import EpisodeBar, make_console, print_evaluation
        from guss.reports.run_summary import summarise_evaluation
        from guss.runs.evaluation import evaluate
        from guss.runs.provenance import provenance
        from guss.runs.results import read_config
        from guss.runs.store import write_json

        use_compilation_cache()
        read_config(self.run_folder)
        check_file(self.run_folder / "eval.json")
        with EpisodeBar(make_console(stderr=True), self.episodes, quiet=self.quiet) as bar:
            found = evaluate(self.run_folder, self.episodes, bar.update)
        summary = summarise_evaluation(found)
        write_json(self.run_folder / "eval.json", summary | {"provenance": provenance(command_line())})
        if self.json:
            print(json.dumps(summary, indent=2))
        elif not self.quiet:
            print_evaluation(make_console(), summary, self.run_folder / "eval.json")
