"""`guss reproduce`: the paper's experiments."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from guss.cli.options import FROM_PRESET, Plugins, command_provenance, prepare
from guss.cli.report import report_with_status
from guss.errors import GussError
from guss.files import check_folder

if TYPE_CHECKING:
    from guss.runs.suite import Batch, Job


@dataclass
class Toy:
    """The exploration experiment of Sec. 5.1: Fig. 2 and the trajectories of appendix B. About a minute.

    The same command resumes what was interrupted; methods that were finished are not run again.
    """

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
    """A custom world: a TOML file with start, goal, unsafe (rectangles x0, x1, y0, y1), size, goal_radius."""
    out: Path = Path("runs")
    """Where to write; the results are in its subfolder toy."""
    json: bool = False
    """Print the summary as JSON instead of a table."""
    quiet: bool = False
    """No progress, no table."""
    plugin: Plugins = ()

    def run(self) -> None:
        """Run, report, say where the files are."""
        prepare(self.plugin)
        from guss.cli.display import print_toy_summary
        from guss.progress import make_console

        summary, files = self.reproduce()
        if self.json:
            print(json.dumps(summary, indent=2))
        elif not self.quiet:
            print_toy_summary(make_console(), summary, files)

    def reproduce(self, again: bool = True) -> tuple[dict[str, Any], list[Path]]:
        """The numbers and the files; unless `again`, a finished experiment with these settings is not run once more."""
        from guss.cli.display import MethodProgress
        from guss.envs.toy import PAPER_LAYOUT, ToyLayout
        from guss.plugins import load_preset
        from guss.progress import make_console
        from guss.reports.toy import write_toy_report
        from guss.runs.config import seeds_from
        from guss.runs.toy import ToyConfig, is_finished, run_toy

        experiment = load_preset("toy")
        preset = experiment["paper"] | (experiment[self.preset] if self.preset != "paper" else {})
        values = preset | {name: getattr(self, name) for name in preset if getattr(self, name) is not None}
        values |= {"methods": _names(values["methods"]), "seeds": seeds_from(self.seed, values["seeds"])}
        settings = {name: s for name, s in experiment["methods"].items() if name in values["methods"]}
        layout = PAPER_LAYOUT if self.layout is None else ToyLayout.from_toml(self.layout)
        config = ToyConfig(**values, settings=settings, layout=layout)
        home = self.out / "toy"
        if again or not is_finished(home, config):
            console = make_console(stderr=True, quiet=self.quiet)
            with MethodProgress(console, config.methods, config.steps) as progress:
                home = run_toy(config, self.out, command_provenance(), progress.start, progress.step)
        return write_toy_report(home)


@dataclass
class Table1:
    """The paper's Table 1, and random actions: every method on every environment, then a report of them all.

    Methods: guss, s-rs, safe-mbpo, rcem, rs, cem, cpo, ppo-lagrangian, random. Each is an ordinary run, as `guss run`
    makes it, so `guss replay`, `guss eval` and `guss run --resume` take it.

    How long, on one core: quick about twelve minutes, some more for the car (a first look, too short to judge by); best
    about three hours, and more than a day for the car; paper as long, and days for the car. Cheap runs come first, and
    the bar says how much is left.

    Interrupt it whenever you like (Ctrl-C): at most the episode under way is lost. The same command resumes,
    skips what is finished and ends as if it had never been interrupted. A run that fails, or that another process
    works on, is reported, and the others continue; the exit code is then 2.
    """

    env: Annotated[tuple[str, ...], arg(metavar="NAME", help_behavior_hint="(default: all three)")] = ()
    """Environments: safe-pendulum, safe-acrobot, safe-car-goal (the extra `car`; left out where that is missing)."""
    methods: Annotated[tuple[str, ...], arg(metavar="NAME", help_behavior_hint="(default: the table's)")] = ()
    """Methods: those of the table and random, or any other of `guss list`."""
    preset: Literal["best", "paper", "quick"] = "best"
    """best: what works best here, experiments/<env>.toml; paper: the paper's own settings; quick: a first look."""
    seeds: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: 6; quick: 2)")] = None
    """How many seeds, all run together."""
    seed: int = 0
    """The first of them."""
    episodes: Annotated[int | None, arg(metavar="N"), FROM_PRESET] = None
    """Episodes of methods that plan, learn a model or act at random; model-free ones, which need many, keep theirs."""
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: runs/reproduce-<preset>)")] = None
    """Where to write: a folder per run, and report/."""
    animations: bool = True
    """Store an episode of every run as an animation for the report: it is planned once more."""
    json: bool = False
    """Print the outcome as JSON."""
    quiet: bool = False
    """No progress, no summary."""
    plugin: Plugins = ()

    def run(self) -> None:
        """Run what is not finished, report, say what came out and where it is."""
        prepare(self.plugin)
        check_folder(self.folder)
        batch, left_out = self._batch()
        try:
            failed = self._run_all(batch, left_out)
            troubles = [trouble for job in failed for trouble in job.troubles] + self._more()
        except KeyboardInterrupt as stop:
            stop.add_note("the same command resumes from here")
            raise
        self._report(batch, left_out, troubles)
        if troubles:
            error = GussError(f"{len(troubles)} jobs did not finish; repeat the command to retry them:")
            for trouble in troubles:
                error.add_note(trouble)
            raise error

    @property
    def folder(self) -> Path:
        return Path("runs") / f"reproduce-{self.preset}" if self.out is None else self.out

    def _batch(self) -> tuple[Batch, list[str]]:
        """The runs, and what is left out of them."""
        from guss.envs.car_world import load_mujoco
        from guss.runs.suite import Batch
        from guss.runs.table1 import ENVIRONMENTS, METHODS, NUM_SEEDS, check_names, table1_runs

        envs, methods, missing = _names(self.env) or ENVIRONMENTS, _names(self.methods) or METHODS, []
        check_names(envs, methods)
        if "safe-car-goal" in envs:
            try:
                load_mujoco()
            except GussError as error:
                if self.env:  # asked for by name
                    raise
                envs, missing = tuple(env for env in envs if env != "safe-car-goal"), [f"safe-car-goal: {error}"]
        seeds = NUM_SEEDS[self.preset] if self.seeds is None else self.seeds
        configs, left_out = table1_runs(envs, methods, self.preset, self.seed, seeds, self.episodes)
        return Batch(configs, self.folder), missing + left_out

    def _run_all(self, batch: Batch, left_out: list[str]) -> list[Job]:
        """Every run to its end, with its animation and map; returns those that did not get there."""
        from guss.cli.table_display import BatchProgress
        from guss.progress import make_console
        from guss.runs.animator import write_animation
        from guss.runs.state_maps import write_maps

        extras: dict[str, Callable[[Path], Any]] = {"maps.json.gz": write_maps}
        if self.animations:
            extras["animation.json.gz"] = write_animation
        with BatchProgress(make_console(stderr=True, quiet=self.quiet), batch) as progress:
            for text in left_out:
                progress.line(f"left out: {text}")
            return batch.run(command_provenance(), progress, extras)

    def _more(self) -> list[str]:
        """What else there is to do; returns what failed."""
        return []

    def _report(self, batch: Batch, left_out: list[str], troubles: list[str]) -> None:
        """Tables and figures of all runs, and a summary; adds what fails."""
        from guss.cli.table_display import print_report
        from guss.progress import make_console
        from guss.reports.run_summary import summarise_run

        files: list[Path] = []
        try:
            files = report_with_status(self.folder, None, self.quiet)
        except GussError as error:  # of nothing, if all runs failed
            troubles.append(f"no report: {error}")
        if self.json:
            summaries = [summarise_run(job.home) for job in batch.in_order if job.finished]
            found = {"runs": summaries, "left_out": left_out, "failed": troubles, "files": list(map(str, files))}
            print(json.dumps(found, indent=2))
        elif files and not self.quiet:
            print_report(make_console(), files)


@dataclass
class All(Table1):
    """All experiments of the paper: Table 1 with these flags, then the toy world, and one report of everything.

    `guss reproduce table1 --help` says how long it takes and how to resume it; the toy world adds a minute.
    """

    def _more(self) -> list[str]:
        preset: Literal["paper", "quick"] = "quick" if self.preset == "quick" else "paper"
        try:
            Toy(preset=preset, seed=self.seed, out=self.folder, quiet=self.quiet).reproduce(again=False)
        except GussError as error:
            return [f"toy: {error}"]
        return []


def _names(words: Sequence[str]) -> tuple[str, ...]:
    """Names, with spaces or commas between them."""
    return tuple(name for word in words for name in word.split(",") if name)


EXPERIMENTS = {"table1": Table1, "toy": Toy, "all": All}


@dataclass
class Reproduce:
    """Reproduce an experiment of the paper, with its figures: table1, toy, or all of them.

    Start with `guss reproduce table1 --preset quick`. The same command resumes what was interrupted.
    """
