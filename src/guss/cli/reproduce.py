"""`guss reproduce`: the paper's experiments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from guss.cli.options import FROM_PRESET, Plugins, check_planners, command_provenance, prepare, print_results
from guss.cli.sweep import execute, raise_troubles, report_or_trouble
from guss.errors import GussError
from guss.files import check_folder

if TYPE_CHECKING:
    from guss.sweeps.folder import SweepFolder


@dataclass
class Toy:
    """The exploration experiment of Sec. 5.1: Fig. 2 and the trajectories of appendix B. Takes about a minute.

    The same command resumes an interrupted experiment; finished methods are not run again.

        guss reproduce toy --methods guss cem --seeds 3
    """

    preset: Literal["paper", "quick"] = "paper"
    """paper: 10 seeds; quick: 2 seeds, for a first look."""
    seeds: Annotated[int | None, arg(metavar="N"), FROM_PRESET] = None
    """Number of seeds."""
    seed: int = 0
    """First seed."""
    methods: Annotated[tuple[str, ...] | None, arg(metavar="NAME"), FROM_PRESET] = None
    """Planners of `guss list` to compare."""
    horizon: Annotated[int | None, arg(metavar="H"), FROM_PRESET] = None
    """H: steps of a plan."""
    budget: Annotated[int | None, arg(metavar="M"), FROM_PRESET] = None
    """M: plans evaluated per step."""
    steps: Annotated[int | None, arg(metavar="T"), FROM_PRESET] = None
    """T: steps of the episode."""
    layout: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: the paper's)")] = None
    """A custom world: a TOML file with start, goal, unsafe (rectangles x0, x1, y0, y1), size, goal_radius."""
    out: Path = Path("runs")
    """Output folder; the results are in its subfolder toy."""
    json: bool = False
    """Print the summary as JSON instead of a table."""
    quiet: bool = False
    """Print no progress and no table."""
    plugin: Plugins = ()

    def run(self) -> None:
        """Run, write the report, print the results and the paths of the files."""
        prepare(self.plugin)
        from guss.cli.display import print_toy_summary

        summary, files = self.reproduce()
        print_results(summary, self.json, self.quiet, lambda console: print_toy_summary(console, summary, files))

    def reproduce(self, again: bool = True) -> tuple[dict[str, Any], list[Path]]:
        """The results and the files. With `again=False`, a finished experiment with these settings is not repeated."""
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
        check_planners(values["methods"], "policies are in: guss reproduce table1")
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
    """Table 1 of the paper and random actions: all methods on all environments, then a report of all runs.

    Methods: guss, s-rs, safe-mbpo, rcem, rs, cem, cpo, ppo-lagrangian, random. The runs equal those of `guss run`:
    `guss replay`, `guss eval` and `guss run --resume` accept them.

    Duration on one core: --preset quick takes about twelve minutes without the car, and is too short to compare
    methods; best takes about three hours without the car, and more than a day with it; paper takes as long as best
    without the car, and days with it. The command uses all cores and starts with the longest runs; the progress bar
    shows the remaining time.

    An interrupt (Ctrl-C) loses at most the current episode of each worker. To resume, repeat the same command: it skips
    finished runs and gives the same results as without the interruption. The table is a study of `guss sweep`, so
    `guss sweep --join DIR` adds a worker. If a run fails, the others continue, and the exit code is 2.

        guss reproduce table1 --preset quick
        guss reproduce table1 --env safe-pendulum --methods guss s-rs random --seeds 3
    """

    env: Annotated[tuple[str, ...], arg(metavar="NAME", help_behavior_hint="(default: all three)")] = ()
    """Environments: safe-pendulum, safe-acrobot, safe-car-goal (omitted if the extra `car` is not installed)."""
    methods: Annotated[tuple[str, ...], arg(metavar="NAME", help_behavior_hint="(default: those of the table)")] = ()
    """Methods: any of `guss list`."""
    preset: Literal["best", "paper", "quick"] = "best"
    """best: tuned settings, experiments/<env>.toml; paper: settings of the paper; quick: few seeds and episodes."""
    seeds: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: 6; quick: 2)")] = None
    """Number of seeds, all run together."""
    seed: int = 0
    """First seed."""
    episodes: Annotated[int | None, arg(metavar="N"), FROM_PRESET] = None
    """Episodes of planners, model-based policies and random; model-free policies, which need many more, ignore this."""
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: runs/reproduce-<preset>)")] = None
    """Output folder: a folder per run, and report/."""
    workers: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: one per core)")] = None
    """Processes that execute runs, each with one thread."""
    animations: bool = True
    """Store an episode of each run as an animation for the report; this recomputes its plans."""
    json: bool = False
    """Print the results as JSON."""
    quiet: bool = False
    """Print no progress and no summary."""
    plugin: Plugins = ()

    def run(self) -> None:
        """Run all unfinished runs, write the report, print the results and the paths of the files."""
        prepare(self.plugin)
        check_folder(self.folder)
        from guss.sweeps.executors import cores, run_local

        sweep, left_out = self._sweep()
        workers = min(len(cores()), len(sweep.study.runs)) if self.workers is None else self.workers
        if workers < 1:
            raise GussError(f"the runs need at least 1 worker, got --workers {workers}")
        left_out += sweep.study.left_out
        troubles = execute(sweep, partial(run_local, sweep, workers), workers, self.quiet, left_out)
        troubles += self._more()
        self._report(sweep, left_out, troubles)
        raise_troubles(troubles)

    @property
    def folder(self) -> Path:
        return Path("runs") / f"reproduce-{self.preset}" if self.out is None else self.out

    def _sweep(self) -> tuple[SweepFolder, list[str]]:
        """The study, and the reason if the car is left out."""
        from guss.envs.car_world import load_mujoco
        from guss.sweeps.folder import SweepFolder
        from guss.sweeps.study import make_study
        from guss.sweeps.table1 import ENVIRONMENTS, METHODS, NUM_SEEDS, check_names, table1

        envs, methods, missing = _names(self.env) or ENVIRONMENTS, _names(self.methods) or METHODS, []
        check_names(envs, methods)
        if "safe-car-goal" in envs:
            try:
                load_mujoco()
            except GussError as error:
                if self.env:  # requested by name
                    raise
                envs, missing = tuple(env for env in envs if env != "safe-car-goal"), [f"safe-car-goal: {error}"]
        seeds = NUM_SEEDS[self.preset] if self.seeds is None else self.seeds
        tables = table1(envs, methods, self.preset, self.seed, seeds, self.episodes)
        tables["sweep"] = {"animations": self.animations, "plugin": list(self.plugin)}
        return SweepFolder(self.folder, make_study(tables)), missing

    def _more(self) -> list[str]:
        """Further experiments; returns their errors."""
        return []

    def _report(self, sweep: SweepFolder, left_out: list[str], troubles: list[str]) -> None:
        """Write tables and figures of all runs, and print a summary; adds errors to `troubles`."""
        from guss.cli.table_display import print_report
        from guss.reports.run_summary import summarise_run

        files = report_or_trouble(sweep, self.quiet, troubles)
        summaries = [summarise_run(each.home) for each in sweep.statuses() if self.json and each.state == "finished"]
        found = {"runs": summaries, "left_out": left_out, "failed": troubles, "files": list(map(str, files))}
        print_results(found, self.json, self.quiet or not files, lambda console: print_report(console, files))


@dataclass
class All(Table1):
    """All experiments of the paper: Table 1 with these flags, then the toy experiment, and one report of both.

    `guss reproduce table1 --help` describes methods, duration and how to resume; the toy experiment adds a minute.

        guss reproduce all --preset quick
    """

    def _more(self) -> list[str]:
        preset: Literal["paper", "quick"] = "quick" if self.preset == "quick" else "paper"
        try:
            Toy(preset=preset, seed=self.seed, out=self.folder, quiet=self.quiet).reproduce(again=False)
        except GussError as error:
            return [f"toy: {error}"]
        return []


def _names(words: Sequence[str]) -> tuple[str, ...]:
    """Names separated by spaces or commas."""
    return tuple(name for word in words for name in word.split(",") if name)


EXPERIMENTS = {"table1": Table1, "toy": Toy, "all": All}


@dataclass
class Reproduce:
    """Reproduce the experiments of the paper with their figures: table1, toy, or all.

    Start with `guss reproduce table1 --preset quick`. To resume an interrupted experiment, repeat the same command.
    """
