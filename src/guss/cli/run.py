"""`guss run`."""

from __future__ import annotations

import json
import math
from argparse import Namespace
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from guss.cli.options import ColumnNames, Plugins, command_provenance, parse_columns, prepare
from guss.cli.run_notes import resumable, warn_if_random, warn_if_was_random
from guss.cli.settings_flags import SettingsCommand, as_flags
from guss.errors import GussError

if TYPE_CHECKING:
    from guss.collect.datasets import Dataset
    from guss.methods.settings import RunSettings
    from guss.runs.config import RunConfig

DEFAULT_ENV = "safe-pendulum"


@dataclass
class RunCommand(SettingsCommand):
    """Learn a model of a system and control it by planning in it (Alg. 1); records go to OUT/<env>-<method>-<hash>.

    Defaults of settings are those of the preset, or of the method. Settings of another method: --method NAME --help.
    """

    preset: Annotated[str | None, arg(metavar="NAME|FILE", help_behavior_hint="(default: that of the env)")] = None
    """Another preset of experiments/, such as safe-pendulum-paper, or a custom TOML file."""
    seeds: int = 6
    """How many seeds, all run together."""
    seed: int = 0
    """The first of them."""
    data: Annotated[tuple[Path, ...], arg(metavar="FILE", help_behavior_hint="")] = ()
    """Logged transitions to start from (NPZ, CSV, Parquet, folders, another run); then no random episode is needed."""
    columns: ColumnNames = ()
    out: Path = Path("runs")
    """Where to write."""
    overwrite: bool = False
    """Replace a stored run with the same settings."""
    resume: Annotated[Path | None, arg(metavar="DIR/RUN", help_behavior_hint="")] = None
    """Resume an interrupted run; it ends as if it had never been interrupted. Imports and steps the environment that it
    names. Its settings are kept, but for --episodes and --target, which extend it, also if it is finished."""
    previous: bool = False
    """With --resume: from the checkpoint before the last one."""
    against: Annotated[tuple[str, ...], arg(metavar="METHOD", help_behavior_hint="")] = ()
    """Other methods to run with the same seeds, and compare with; those stored already are not run again."""
    figures: bool = True
    """Draw the learning curves."""
    replay: bool = False
    """Draw the last episode too, as `guss replay` does."""
    log: Annotated[tuple[str, ...], arg(metavar="WHERE", help_behavior_hint="")] = ()
    """Curves while it runs: tensorboard, wandb (extras of the same names)."""
    json: bool = False
    """Print the outcome as JSON."""
    quiet: bool = False
    """No progress, no summary."""
    plugin: Plugins = ()

    @classmethod
    def defaults(cls, named: Namespace) -> tuple[RunSettings, tuple[str, ...]]:
        """Those of the preset, for the method and the model that are named."""
        from guss.methods.presets import settings_from
        from guss.methods.settings import RunSettings
        from guss.plugins import find_preset, load_preset
        from guss.validation import types_of

        preset = load_preset(named.preset) if named.preset else find_preset(named.env or DEFAULT_ENV)
        env = named.env or preset.get("env", DEFAULT_ENV)
        settings = settings_from(RunSettings, preset, named.method or "guss", env=env, model=named.model)
        return settings, ("env", *(name for name in types_of(RunSettings) if name not in {"env", *settings.unused}))

    def run(self) -> None:
        """Run, then say what came out and where it is."""
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
            opened = reopened_run(home, previous=self.previous, more=more)
        else:
            if self.columns and not self.data:
                raise GussError("--columns names columns of data files: it needs --data")
            data = self._data() if self.data else None
            config = self._config(self.settings.method, data)
            others = [self._config(method, None) for method in self.against]
            home = config.folder_in(self.out)
            opened = new_run(config, self.out, origin=command_provenance(), data=data, overwrite=self.overwrite)
        episodes = self.chosen.get("episodes", config.episodes)
        warn_if_random(config, episodes)
        with resumable(home), RunProgress(console, episodes) as progress, opened as (home, trainer):
            train(home, trainer, self.log, **progress.callbacks())
        from guss.reports.inventory import read_record
        from guss.reports.run_summary import summarise_record, write_figures  # slow to import, so not before the run

        records = [read_record(each) for each in (home, *(self._compared(other) for other in others))]
        summaries = [summarise_record(record) for record in records]
        files = [home, *(write_figures(records) if self.figures else ())]
        if self.replay:
            files += self._replay(home)
        warn_if_was_random(config, home)
        if self.json:
            print(json.dumps(summaries[0] | {"against": summaries[1:]} if others else summaries[0], indent=2))
        elif not self.quiet:
            print_run_summary(make_console(), summaries, files)

    def _compared(self, config: RunConfig) -> Path:
        """The run to compare with: the one stored, resumed if it is not finished, or a new one."""
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
        """The last episode of the first seed as an animation, its last plan as a figure."""
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
        """The logged data to start from, costs in the order of the environment's constraints."""
        from guss.collect.datasets import read_traces
        from guss.collect.inputs import costs_in_order
        from guss.envs.lookup import find_env

        data, s = read_traces(self.data, parse_columns(self.columns)), self.settings
        how: Any = {"episode_length": s.episode_length, "without_cost": s.without_cost, "process": s.env_process}
        return costs_in_order(find_env(s.env, **how).make_task(), data)

    def _config(self, method: str, data: Dataset | None) -> RunConfig:
        """The run that the flags and the preset ask for; another method has its own settings, not those of --method."""
        from guss.plugins import find_preset, load_preset
        from guss.runs.config import config_from, seeds_from

        if self.previous:
            raise GussError("--previous says which checkpoint to resume from: it needs --resume")
        preset = load_preset(self.preset) if self.preset else find_preset(self.settings.env)
        chosen = {name: value for name, value in self.chosen.items() if name not in ("env", "method")}
        if method != self.settings.method:
            chosen.pop("method_settings", None)
        return config_from(preset, method, self.settings.env, seeds_from(self.seed, self.seeds), data, **chosen)

    def _check_resume(self) -> None:
        """A run is resumed as it began: nothing can be set but how long it is."""
        mine = ("resume", "previous", "episodes", "target", "figures", "replay", "log", "json", "quiet", "plugin")
        if names := sorted(self.given - set(mine)):
            raise GussError(
                f"a run is resumed with the settings it began with, but for --episodes and --target; leave out "
                f"{as_flags(names)}"
            )
