"""`guss run`."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from guss.cli.options import (
    FROM_PRESET,
    ColumnNames,
    Plugins,
    command_line,
    load_plugins,
    parse_columns,
    parse_settings,
    use_compilation_cache,
)
from guss.cli.run_notes import resumable, warn_if_random, warn_if_was_random
from guss.errors import GussError

if TYPE_CHECKING:
    from guss.collect.datasets import Dataset
    from guss.runs.config import RunConfig

DEFAULT_ENV = "safe-pendulum"


@dataclass
class Run:
    """Learn a model of a system and control it by planning in it (Alg. 1); records go to OUT/<env>-<method>-<hash>."""

    env: Annotated[str | None, arg(metavar="NAME", help_behavior_hint=f"(default: {DEFAULT_ENV})")] = None
    """The environment: one of `guss list`, a Gymnasium id, or your own as module:function or file.py:function."""
    preset: Annotated[str | None, arg(metavar="NAME|FILE", help_behavior_hint="(default: that of the env)")] = None
    """Another preset of experiments/, such as safe-pendulum-paper, or a TOML file of your own."""
    method: str = "guss"
    """The planner, or a baseline that learns a policy; see `guss list`."""
    seeds: int = 6
    """How many seeds, all run together."""
    seed: int = 0
    """The first of them."""
    episodes: Annotated[int | None, arg(metavar="N"), FROM_PRESET] = None
    """Episodes at most, random ones included. With --resume: extend the run to so many in all."""
    target: Annotated[float | None, arg(metavar="REWARD", help_behavior_hint="(default: none)")] = None
    """Stop after a planned episode whose mean reward, over all seeds, reaches this. With --resume: another one, or inf
    for none."""
    initial_episodes: Annotated[int | None, arg(metavar="N"), FROM_PRESET] = None
    """Random episodes at the start."""
    initial_steps: Annotated[int | None, arg(metavar="N", help_behavior_hint="")] = None
    """Steps that they have at least, of every seed: where episodes end early, more of them are random. By default as
    many as episodes of full length have, but at most 200."""
    data: Annotated[tuple[Path, ...], arg(metavar="FILE", help_behavior_hint="")] = ()
    """Logged transitions to start from (NPZ, CSV, Parquet, folders, another run); then no random episode is needed."""
    columns: ColumnNames = ()
    explore: Annotated[str | None, arg(metavar="HOW"), FROM_PRESET] = None
    """How the random actions at the start follow each other: smooth (temporally correlated), or iid (independent, as
    in the paper). The method random always draws independent ones."""
    horizon: Annotated[int | None, arg(metavar="H"), FROM_PRESET] = None
    """H: steps of a plan."""
    budget: Annotated[int | None, arg(metavar="M"), FROM_PRESET] = None
    """M: plans evaluated per step."""
    model: Annotated[str | None, arg(metavar="NAME"), FROM_PRESET] = None
    """The model: one of `guss list`, such as darmdn, dmdn or oracle (the true dynamics, nothing learned), or a custom
    one that a --plugin registers."""
    planning_margin: Annotated[float | None, arg(metavar="X"), FROM_PRESET] = None
    """Plan by limits that are stricter by this, in their own unit; steps are judged by the limits as they are."""
    learned: Annotated[tuple[str, ...], arg(metavar="PART"), FROM_PRESET] = ()
    """What to learn although it is known: reward, cost, behaviour. What an environment of your own tells always is."""
    unknown_unsafe: bool = False
    """Count predicted states far from all data as unsafe."""
    hard: Annotated[tuple[str, ...], arg(metavar="COST"), FROM_PRESET] = ()
    """Costs that are hard limits, a red button: a violation ends the episode, and counts worse than any soft one."""
    episode_length: Annotated[int | None, arg(metavar="T", help_behavior_hint="(default: as it says)")] = None
    """Steps of an episode, where an environment of your own has no time limit."""
    without_cost: bool = False
    """An environment of your own tells no cost: nothing is unsafe."""
    step_timeout: float = 60.0
    """Seconds that a step of an environment may take; one that takes longer loses its episode, not the run."""
    env_process: bool = False
    """Each environment in its own process, which is killed where a step hangs, and may crash without ending the run."""
    set: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE")] = ()
    """Settings of the method, such as num_new=10 (`guss list --settings` shows them)."""
    net: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE")] = ()
    """Settings of the model, such as components=3 ensemble=5 hidden=[100,100]."""
    fit: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE")] = ()
    """Settings of the training, such as loss=nll max_steps=5000."""
    overlap: bool = False
    """On a slow environment of your own: plan for one half of the seeds while the other half's environments step."""
    out: Path = Path("runs")
    """Where to write."""
    overwrite: bool = False
    """Start anew where a run with these very settings is stored."""
    resume: Annotated[Path | None, arg(metavar="DIR/RUN", help_behavior_hint="")] = None
    """Resume an interrupted run; it ends as if it had never been interrupted. Imports and steps the environment that it
    names. Its settings are its own, but for --episodes and --target, which extend it, also if it is finished."""
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

    def run(self) -> None:
        """Run, then say what came out and where it is."""
        load_plugins(self.plugin)
        from guss.cli.display import RunProgress, make_console, print_run_summary
        from guss.runs.extension import Extension
        from guss.runs.loggers import check_writers
        from guss.runs.provenance import provenance
        from guss.runs.results import read_config
        from guss.runs.run import new_run, reopened_run, train
        from guss.runs.store import run_folder

        check_writers(self.log)
        use_compilation_cache()
        console, others = make_console(stderr=True), []
        if self.resume is not None:
            self._check_resume()
            home, config = self.resume, read_config(self.resume)
            more = Extension(self.episodes, self.target, provenance(command_line()))
            opened = reopened_run(home, previous=self.previous, more=more)
        else:
            if self.columns and not self.data:
                raise GussError("--columns names columns of data files: it needs --data")
            data = self._data() if self.data else None
            config = self._config(self.method, data)
            others = [self._config(method, None) for method in self.against]
            home = run_folder(self.out, config.env, config.method, config.to_json())
            opened = new_run(config, self.out, provenance(command_line()), data=data, overwrite=self.overwrite)
        episodes = self.episodes or config.episodes
        warn_if_random(config, episodes)
        with resumable(home), RunProgress(console, episodes, quiet=self.quiet) as progress, opened as (home, trainer):
            train(home, trainer, progress.callbacks(), self.log)
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
        """The run to compare with: the one stored, gone on with if it is not finished, or a new one."""
        from guss.cli.display import RunProgress, make_console
        from guss.runs.provenance import provenance
        from guss.runs.run import resume, run
        from guss.runs.store import run_folder

        home = run_folder(self.out, config.env, config.method, config.to_json())
        console = make_console(stderr=True)
        with (
            resumable(home),
            RunProgress(console, config.episodes, quiet=self.quiet, name=config.method) as progress,
        ):
            if (home / "config.json").exists() and not self.overwrite:
                resume(home, **progress.callbacks())
            else:
                origin = provenance(command_line())
                run(config, self.out, origin=origin, overwrite=self.overwrite, **progress.callbacks())
        return home

    def _replay(self, home: Path) -> list[Path]:
        """The last episode of the first seed as an animation, its last plan as a figure."""
        from guss.cli.display import EpisodeBar, make_console
        from guss.reports.replay_figure import write_replay
        from guss.runs.replay import Replay

        animation, still = home / "figures" / "replay.gif", home / "figures" / "last-plan.png"
        replay = Replay(home, None, None)
        with EpisodeBar(make_console(stderr=True), len(replay), quiet=self.quiet, unit="drawing step") as bar:
            write_replay(replay, animation, last=still, on_step=bar.update)
        return [animation, still]

    def _preset(self) -> tuple[dict[str, Any], str]:
        """The preset, and the environment's name."""
        from guss.plugins import find_preset, load_preset

        preset = load_preset(self.preset) if self.preset else find_preset(self.env or DEFAULT_ENV)
        return preset, self.env or preset.get("env", DEFAULT_ENV)

    def _data(self) -> Dataset:
        """The logged data to start from, costs in the order of the environment's constraints."""
        from guss.collect.datasets import read_traces
        from guss.collect.inputs import costs_in_order
        from guss.envs.lookup import find_env

        data = read_traces(self.data, parse_columns(self.columns))
        how: Any = {"episode_length": self.episode_length, "without_cost": self.without_cost}
        how |= {"process": self.env_process}
        return costs_in_order(find_env(self._preset()[1], **how).make_task(), data)

    def _config(self, method: str, data: Dataset | None) -> RunConfig:
        """The run that the flags and the preset ask for; planner settings on the command line are the method's."""
        from guss.methods.settings import PRESET_KEYS
        from guss.runs.config import config_from, seeds_from

        if self.previous:
            raise GussError("--previous says where to go on from: it needs --resume")
        preset, env = self._preset()
        flags = [name for name in (*PRESET_KEYS, "model") if name != "env"]
        return config_from(
            preset,
            method,
            env,
            seeds_from(self.seed, self.seeds),
            data,
            planner=parse_settings(self.set) if method == self.method else {},
            net=parse_settings(self.net),
            fit=parse_settings(self.fit),
            overlap=self.overlap,
            episode_length=self.episode_length,
            without_cost=self.without_cost,
            step_timeout=self.step_timeout,
            env_process=self.env_process,
            **{name: value for name in flags if (value := getattr(self, name)) != () and value is not False},
        )

    def _check_resume(self) -> None:
        """A run is resumed as it began: nothing can be set but how long it is."""
        mine = ("resume", "previous", "episodes", "target", "figures", "replay", "log", "json", "quiet", "plugin")
        other = [f.name for f in dataclasses.fields(self) if f.name not in mine and getattr(self, f.name) != f.default]
        if other:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in other)
            raise GussError(
                f"a run is resumed with the settings it began with, but for --episodes and --target; leave out {flags}"
            )
