"""`guss run`."""

from __future__ import annotations

import math
from argparse import Namespace
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from guss.cli.options import ColumnNames, Plugins, command_provenance, parse_columns, prepare, print_results
from guss.cli.run_notes import resumable, warn_if_random, warn_if_was_random
from guss.cli.settings_flags import Defaults, SettingsCommand, as_flags, merged
from guss.errors import GussError

if TYPE_CHECKING:
    from guss.collect.datasets import Dataset
    from guss.runs.config import RunConfig

DEFAULT_ENV = "safe-pendulum"


@dataclass
class RunCommand(SettingsCommand):
    """Train a method on an environment: a planner with a learned model (Alg. 1 of the paper), or a policy.

    Each run has a folder OUT/<env>-<method>-<hash of the settings> with records, checkpoints and figures. The defaults
    below are those of the preset and the method: add --env, --method and --model to --help to see those of others.

        guss run --env safe-pendulum --method guss --seeds 3 --episodes 20 --against s-rs random
        guss run --env system.py:make_env --episodes 30 --model dmdn --model.ensemble 5 --fit.max-steps 2000
        guss run --resume runs/safe-pendulum-guss-1a2b3c4d --episodes 40
    """

    preset: Annotated[str | None, arg(metavar="NAME|FILE", help_behavior_hint="(default: that of the env)")] = None
    """Preset of settings: a name in experiments/, such as safe-pendulum-paper, or a custom TOML file."""
    seeds: int = 6
    """Number of seeds, all run together."""
    seed: int = 0
    """First seed."""
    data: Annotated[tuple[Path, ...], arg(metavar="FILE", help_behavior_hint="")] = ()
    """Logged transitions to start from instead of random episodes: NPZ, CSV or Parquet files, folders, another run."""
    columns: ColumnNames = ()
    out: Path = Path("runs")
    """Output folder of all runs."""
    overwrite: bool = False
    """Replace an existing run with the same settings."""
    resume: Annotated[
        Path | None,
        arg(
            metavar="DIR/RUN",
            help="Resume an interrupted run, with the same results as without the interruption. The settings stay the "
            "same, except --episodes and --target, which also extend a finished run. Imports its environment.",
            help_behavior_hint="",
        ),
    ] = None
    previous: bool = False
    """With --resume: start from the second-last checkpoint."""
    against: Annotated[tuple[str, ...], arg(metavar="METHOD", help_behavior_hint="")] = ()
    """Further methods to run and compare, with the same seeds; --method.* flags apply to --method only."""
    figures: bool = True
    """Draw the learning curves."""
    replay: bool = False
    """Animate the last episode, as `guss replay` does."""
    log: Annotated[tuple[str, ...], arg(metavar="WHERE", help_behavior_hint="")] = ()
    """Log curves during the run to tensorboard or wandb (extras of the same names)."""
    json: bool = False
    """Print the results as JSON."""
    quiet: bool = False
    """Print no progress and no summary."""
    plugin: Plugins = ()

    @classmethod
    def defaults(cls, named: Namespace) -> Defaults:
        """The settings of the preset for the named methods and model."""
        from guss.methods.presets import settings_from
        from guss.methods.settings import RunSettings
        from guss.plugins import find_preset, load_preset
        from guss.validation import types_of

        preset = load_preset(named.preset) if named.preset else find_preset(named.env or DEFAULT_ENV)
        env = named.env or preset.get("env", DEFAULT_ENV)
        methods = (named.method or "guss", *named.against)
        settings = [settings_from(RunSettings, preset, method, env=env, model=named.model) for method in methods]
        return merged(settings, ("env", *(name for name in types_of(RunSettings) if name != "env")))

    def run(self) -> None:
        """Run, then print the results and the paths of the files."""
        prepare(self.plugin)
        from guss.cli.display import print_run_summary
        from guss.progress import RunProgress, make_console
        from guss.runs.extension import Extension
        from guss.runs.loggers import check_writers
        from guss.runs.results import read_config
        from guss.runs.run import new_run, reopened_run, train

        check_writers(self.log)
        console, others = make_console(stderr=True, quiet=self.quiet), []
        if self.resume is not None:
            self._check_resume()
            home, config = self.resume, read_config(self.resume)
            target = self.chosen.get("target")
            target = math.inf if "target" in self.chosen and target is None else target
            more = Extension(self.chosen.get("episodes"), target, command_provenance())
            opening = reopened_run(home, previous=self.previous, more=more)
        else:
            if self.columns and not self.data:
                raise GussError("--columns names the columns of data files: it needs --data")
            data = self._data() if self.data else None
            config = self._config(self.settings.method, data)
            others = [self._config(method, None) for method in self.against]
            home = config.folder_in(self.out)
            opening = new_run(config, self.out, origin=command_provenance(), data=data, overwrite=self.overwrite)
        episodes = self.chosen.get("episodes", config.episodes)
        warn_if_random(config, episodes)
        with resumable(home), RunProgress(console, episodes) as progress, opening as opened:
            train(opened, self.log, **progress.callbacks())
        from guss.reports.inventory import read_record
        from guss.reports.run_summary import summarise_record, write_figures  # slow imports, after the run

        records = [read_record(each) for each in (home, *(self._compared(other) for other in others))]
        summaries = [summarise_record(record) for record in records]
        files = [home, *(write_figures(records) if self.figures else ())]
        if self.replay:
            files += self._replay(home)
        warn_if_was_random(config, home)
        results = summaries[0] | {"against": summaries[1:]} if others else summaries[0]
        print_results(results, self.json, self.quiet, lambda console: print_run_summary(console, summaries, files))

    def _compared(self, config: RunConfig) -> Path:
        """A run to compare with: the stored one, resumed if it is not finished, or a new one."""
        from guss.progress import RunProgress, make_console
        from guss.runs.run import resume, run

        home = config.folder_in(self.out)
        start = partial(run, config, self.out, origin=command_provenance(), overwrite=self.overwrite)
        if (home / "config.json").exists() and not self.overwrite:
            start = partial(resume, home)
        console = make_console(stderr=True, quiet=self.quiet)
        with resumable(home), RunProgress(console, config.episodes, config.method) as progress:
            start(**progress.callbacks())
        return home

    def _replay(self, home: Path) -> list[Path]:
        """Animate the last episode of the first seed, and draw its last plan."""
        from guss.cli.display import counting_bar
        from guss.progress import make_console
        from guss.reports.replay_figure import write_replay
        from guss.runs.replay import Replay

        animation, still = home / "figures" / "replay.gif", home / "figures" / "last-plan.png"
        replay = Replay(home, None, None)
        with counting_bar(make_console(stderr=True, quiet=self.quiet), len(replay), "drawing step") as bar:
            write_replay(replay, animation, last=still, on_step=bar.update)
        return [animation, still]

    def _data(self) -> Dataset:
        """The logged data to start from, with costs in the order of the constraints."""
        from guss.collect.datasets import read_traces
        from guss.collect.inputs import costs_in_order
        from guss.envs.lookup import find_env

        data, s = read_traces(self.data, parse_columns(self.columns)), self.settings
        how: Any = {"episode_length": s.episode_length, "without_cost": s.without_cost, "process": s.env_process}
        return costs_in_order(find_env(s.env, **how).make_task(), data)

    def _config(self, method: str, data: Dataset | None) -> RunConfig:
        """The config of a method, by the preset and those flags that it uses; --method.* are of the first method."""
        from guss.methods.settings import without
        from guss.plugins import find_preset, load_preset
        from guss.runs.config import config_without_unused, seeds_from

        if self.previous:
            raise GussError("--previous chooses the checkpoint to resume from: it needs --resume")
        env, chosen = self.settings.env, without(self.chosen, ("env", "method"))
        preset = load_preset(self.preset) if self.preset else find_preset(env)
        if method != self.settings.method:
            chosen.pop("method_settings", None)
        return config_without_unused(preset, method, env, seeds_from(self.seed, self.seeds), data, **chosen)

    def _check_resume(self) -> None:
        """Raise an error for settings of a resumed run other than its length."""
        mine = ("resume", "previous", "episodes", "target", "figures", "replay", "log", "json", "quiet", "plugin")
        if names := sorted(self.given - set(mine)):
            raise GussError(
                f"--resume uses the stored settings, and only --episodes and --target extend a run; leave out "
                f"{as_flags(names)}"
            )
