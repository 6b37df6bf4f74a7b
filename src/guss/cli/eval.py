"""`guss eval`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from guss.cli.options import Plugins, command_provenance, prepare, print_results
from guss.files import check_file


@dataclass
class EvalCommand:
    """Evaluate a trained run on new episodes without further training: reward and percentage of unsafe steps.

    Imports and steps the environment of the run. Stores the result in RUN/eval.json.

        guss eval runs/safe-pendulum-guss-1a2b3c4d --episodes 20
    """

    run_folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """Folder of the run."""
    episodes: int = 10
    """Evaluation episodes per seed."""
    json: bool = False
    """Print the results as JSON."""
    quiet: bool = False
    """Print no progress and no summary."""
    plugin: Plugins = ()

    def run(self) -> None:
        """Evaluate, store `RUN/eval.json`, print the results."""
        prepare(self.plugin)
        from guss.cli.display import counting_bar, print_evaluation
        from guss.progress import make_console
        from guss.reports.run_summary import summarise_evaluation
        from guss.runs.evaluation import evaluate_run
        from guss.runs.results import read_config
        from guss.runs.store import write_json

        file = self.run_folder / "eval.json"
        read_config(self.run_folder)
        check_file(file)
        with counting_bar(make_console(stderr=True, quiet=self.quiet), self.episodes) as bar:
            found = evaluate_run(self.run_folder, self.episodes, bar.update)
        summary = summarise_evaluation(found)
        write_json(file, summary | {"provenance": command_provenance()})
        print_results(summary, self.json, self.quiet, lambda console: print_evaluation(console, summary, file))
