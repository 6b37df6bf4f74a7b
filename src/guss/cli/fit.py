"""`guss fit`."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from guss.cli.options import ColumnNames, Plugins, command_provenance, parse_columns, prepare
from guss.cli.settings_flags import SettingsCommand, as_flags
from guss.errors import GussError
from guss.files import check_folder, writing

if TYPE_CHECKING:
    from guss.methods.settings import AgentSettings
    from guss.runs.fit import Log

KEPT = ("data", "in_turn", "test", "out", "overwrite", "json", "quiet", "plugin")
"""Flags that may be given with a stored run; its settings are its own."""


@dataclass
class FitCommand(SettingsCommand):
    """Train a model on logged data alone and say how good it is, before it plans anything."""

    data: Annotated[tuple[Path, ...], arg(metavar="FILE|RUN")]
    """Logged transitions: NPZ, CSV or Parquet files, folders of them; or one stored run, with its own settings."""
    env: Annotated[str | None, arg(metavar="NAME|FILE:NAME", help_behavior_hint="(default: none)")] = None
    """Whose data they are: an environment of `guss list`, or your own Task. Without it a model is judged, not kept."""
    preset: Annotated[str | None, arg(metavar="NAME|FILE", help_behavior_hint="(default: that of the env)")] = None
    """Another preset of experiments/, or a custom TOML file."""
    columns: ColumnNames = ()
    seed: int = 0
    """Of the first weights and the order of training."""
    in_turn: bool = False
    """Fit after every episode, going on from the weights before, as a run does: shows what more data bring."""
    test: bool = True
    """Keep the last episode for judging the model at the horizon; with --no-test it is learned from too."""
    out: Path = Path("models")
    """Where to write: OUT/<name of the data>/."""
    overwrite: bool = False
    """Replace what an earlier fit has written there."""
    json: bool = False
    """Print the outcome as JSON."""
    quiet: bool = False
    """No progress, no summary."""
    plugin: Plugins = ()

    @classmethod
    def defaults(cls, named: Namespace) -> tuple[AgentSettings, tuple[str, ...]]:
        """Those of the preset, for the model that is named."""
        from guss.methods.presets import settings_from
        from guss.methods.settings import AgentSettings
        from guss.plugins import find_preset, load_preset

        preset = load_preset(named.preset) if named.preset else find_preset(named.env or "")
        settings = settings_from(AgentSettings, preset, "guss", model=named.model)
        return settings, ("model", "horizon", "model_settings", "fit")

    def run(self) -> None:
        prepare(self.plugin)
        from guss.cli.fit_display import print_fit, print_fitted
        from guss.progress import make_console
        from guss.reports.fit_summary import summarise_fit
        from guss.runs.fit import UNKNOWN, fit_log, save_models
        from guss.runs.store import write_json

        home = self.out / self.data[0].stem
        check_folder(home)
        if (home / "fit.json").exists() and not self.overwrite:
            raise GussError(f"{home} holds an earlier fit; --overwrite replaces it, --out chooses another place")
        log = self._log()
        if self.test and len(log.episodes) == 1 and log.before is None:
            raise GussError(
                "the data contain only one episode, so none can be held out for evaluation: add more data, mark "
                "episodes by a column `episode`, or train on all of it with --no-test"
            )
        console = make_console(stderr=True, quiet=self.quiet)
        with console.status("fitting"):
            on_fit = partial(print_fitted, console)
            learner, fits = fit_log(log, in_turn=self.in_turn, test=self.test, on_fit=on_fit)
        with writing(home):
            home.mkdir(parents=True, exist_ok=True)
        files = [] if log.task.name == UNKNOWN else save_models(home, log, learner, fits[-1])
        summary = summarise_fit(log, fits)
        record = {"settings": log.settings.to_json(), "provenance": command_provenance()}
        write_json(home / "fit.json", summary | record)
        if self.json:
            print(json.dumps(summary, indent=2))
        elif not self.quiet:
            print_fit(make_console(), summary, [home / "fit.json", *files])

    def _log(self) -> Log:
        """The data, and how to make a model of them."""
        from guss.collect.datasets import read_traces
        from guss.collect.inputs import with_names
        from guss.envs.lookup import find_env
        from guss.methods.presets import settings_from
        from guss.methods.settings import AgentSettings
        from guss.plugins import find_preset, load_preset
        from guss.runs.fit import log_of_files, log_of_run, task_of
        from guss.validation import check_seed

        if len(self.data) == 1 and (self.data[0] / "config.json").is_file():
            if given := sorted(self.given - set(KEPT)):
                raise GussError(
                    f"the model of a stored run is fitted with the run's own settings; leave out {as_flags(given)}, "
                    f"or name its traces: --data {self.data[0]}/traces"
                )
            return log_of_run(self.data[0])
        check_seed(self.seed, "--seed")
        trace = read_traces(self.data, parse_columns(self.columns))
        names = (trace.obs_names, trace.action_names)
        task = task_of(trace) if self.env is None else with_names(find_env(self.env).make_task(), *names)
        preset = load_preset(self.preset) if self.preset else find_preset(task.name)
        settings = settings_from(AgentSettings, preset, "guss", **self.chosen)
        return log_of_files(trace, task, settings, self.seed)
