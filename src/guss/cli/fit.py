"""`guss fit`."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from guss.cli.options import ColumnNames, Plugins, command_provenance, parse_columns, prepare, print_results
from guss.cli.settings_flags import Defaults, SettingsCommand, as_flags
from guss.errors import GussError
from guss.files import check_folder, writing

if TYPE_CHECKING:
    from guss.methods.settings import AgentSettings
    from guss.runs.fit import Log

KEPT = ("data", "in_turn", "test", "out", "overwrite", "json", "quiet", "plugin")
"""Flags that are allowed with a stored run, whose settings are used."""


@dataclass
class FitCommand(SettingsCommand):
    """Train a model on logged data and report its accuracy on held-out data, without an environment.

    Writes OUT/<name of the data>/fit.json and, with --env, trained agents for `Agent.load`.

        guss fit --data logs/ --env safe-pendulum
        guss fit --data heating.csv --columns obs=temperature action=valve --horizon 10
        guss fit --data runs/safe-pendulum-guss-1a2b3c4d --in-turn
    """

    data: Annotated[tuple[Path, ...], arg(metavar="FILE|RUN")]
    """Logged transitions: NPZ, CSV or Parquet files or folders of them; or one stored run, whose settings are used."""
    env: Annotated[str | None, arg(metavar="NAME|FILE:NAME", help_behavior_hint="(default: none)")] = None
    """Source of the data: an environment of `guss list`, or a custom Task. Without it, no model is stored."""
    preset: Annotated[str | None, arg(metavar="NAME|FILE", help_behavior_hint="(default: that of the env)")] = None
    """Preset: a name in experiments/ or a custom TOML file."""
    columns: ColumnNames = ()
    seed: int = 0
    """Seed of the initial weights and the order of training."""
    in_turn: bool = False
    """Fit after each episode, starting from the previous weights, as a run does: shows the effect of more data."""
    test: bool = True
    """Hold out the last episode to evaluate predictions over the horizon; with --no-test, train on it too."""
    out: Path = Path("models")
    """Output folder; files are in OUT/<name of the data>/."""
    overwrite: bool = False
    """Replace the files of an earlier fit."""
    json: bool = False
    """Print the results as JSON."""
    quiet: bool = False
    """Print no progress and no summary."""
    plugin: Plugins = ()

    @classmethod
    def defaults(cls, named: Namespace) -> Defaults:
        """The settings of the preset for the named model."""
        settings = cls._settings(named.preset, named.env, model=named.model)
        return Defaults(settings, ("model", "horizon", "model_settings", "fit"))

    @classmethod
    def _settings(cls, preset: str | None, env: str | None, **chosen: Any) -> AgentSettings:
        """The settings of a preset, by default that of the environment; `chosen` override them."""
        from guss.methods.presets import settings_from
        from guss.methods.settings import AgentSettings
        from guss.plugins import find_preset, load_preset

        return settings_from(AgentSettings, load_preset(preset) if preset else find_preset(env or ""), "guss", **chosen)

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
            raise GussError(f"{home} already contains a fit; --overwrite replaces it, --out chooses another folder")
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
        files.insert(0, home / "fit.json")
        print_results(summary, self.json, self.quiet, lambda console: print_fit(console, summary, files))

    def _log(self) -> Log:
        """The data and the settings of the model."""
        from guss.collect.datasets import read_traces
        from guss.collect.inputs import with_names
        from guss.envs.lookup import find_env
        from guss.runs.fit import log_of_files, log_of_run, task_of
        from guss.validation import check_seed

        if len(self.data) == 1 and (self.data[0] / "config.json").is_file():
            if given := sorted(self.given - set(KEPT)):
                raise GussError(
                    f"the model of a stored run is fitted with the settings of the run; leave out {as_flags(given)}, "
                    f"or fit to its traces: --data {self.data[0]}/traces"
                )
            return log_of_run(self.data[0])
        check_seed(self.seed, "--seed")
        trace = read_traces(self.data, parse_columns(self.columns))
        names = (trace.obs_names, trace.action_names)
        task = task_of(trace) if self.env is None else with_names(find_env(self.env).make_task(), *names)
        return log_of_files(trace, task, self._settings(self.preset, self.env, **self.chosen), self.seed)
