"""The command line. Each command is a dataclass: its fields are the flags, their docstrings the help.

Exit codes: 0 done, 2 something given was wrong (told without a traceback), 130 interrupted.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from tyro.conf import arg

import guss
from guss.errors import GussError, UnknownNameError

if TYPE_CHECKING:  # nothing heavy is imported before a command runs: `guss --help` must answer at once
    from guss.task import Task

FROM_PRESET = arg(help_behavior_hint="(default: as the preset says)")
Plugins = Annotated[
    tuple[str, ...],
    arg(
        metavar="MODULE", help="Modules or .py files of your own to import first, so that what they register is known."
    ),
]


@dataclass
class List:
    """Show planners, environments and models, with a line about each and where the paper describes it."""

    json: bool = False
    """Print JSON instead of tables."""
    settings: bool = False
    """Also show each planner's settings and their defaults."""
    plugin: Plugins = ()

    def run(self) -> None:
        """Print the registries."""
        from guss.envs import ENVS
        from guss.models import MODELS
        from guss.planners import PLANNERS, settings_of

        load_plugins(self.plugin)

        def rows(registry: Any, more: Any = lambda entry: {}) -> list[dict[str, Any]]:
            return [
                {"name": e.name, "summary": e.summary, "paper": e.paper, "origin": e.origin} | more(e) for e in registry
            ]

        def planner(entry: Any) -> dict[str, Any]:
            fields = settings_of(entry.item).items()
            return {
                "judges": entry.item.judges,
                "settings": {name: {"default": f.default, "help": f.metadata["help"]} for name, f in fields},
            }

        found = {
            "planners": rows(PLANNERS, planner),
            "environments": rows(ENVS, lambda e: {"gym_id": e.item.gym_id}),
            "models": rows(MODELS),
        }
        if self.json:
            print(json.dumps(found, indent=2))
            return
        from rich.table import Table

        from guss.display import make_console

        console = make_console()
        for kind, entries in found.items():
            table = Table(title=kind.capitalize(), title_justify="left", title_style="bold", box=None, pad_edge=False)
            for column in ("name", "what it is", "in the paper"):
                table.add_column(column, overflow="fold")
            for e in entries:
                table.add_row(f"[bold]{e['name']}[/]", e["summary"], e["paper"] or f"({e['origin']})")
                if self.settings and "settings" in e:
                    for name, s in e["settings"].items():
                        table.add_row("", f"[dim]{name} = {s['default']}: {s['help']}[/]", "")
            console.print(table)
            console.print()


@dataclass
class Plan:
    """Plan once from one state and show the action, what the planner expects of it, and how it was found."""

    env: str = "safe-toy"
    """A registered environment, or your own: module:name or file.py:name of a Task or a function that returns one."""
    method: str = "guss"
    """The planner; see `guss list`."""
    horizon: int = 50
    """H: steps of a plan."""
    budget: int = 500
    """M: plans evaluated."""
    seed: int = 0
    """Seed of the search."""
    obs: Annotated[tuple[float, ...] | None, arg(metavar="X", help_behavior_hint="")] = None
    """The state to plan from; by default the task's own start."""
    set: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE")] = ()
    """Settings of the planner, such as num_new=10 (`guss list --settings` shows them)."""
    json: bool = False
    """Print JSON."""
    plugin: Plugins = ()

    def run(self) -> None:
        """Plan and print."""
        load_plugins(self.plugin)
        task = find_task(self.env)
        use_compilation_cache()
        import jax
        import numpy as np

        from guss.models.oracle import Oracle
        from guss.planners import make_planner
        from guss.planners.engine import plan

        planner = make_planner(self.method, task, horizon=self.horizon, budget=self.budget, **parse_settings(self.set))
        key_reset, key_plan = jax.random.split(jax.random.key(self.seed))
        if self.obs is None and task.reset is None:
            raise GussError(f"task {task.name!r} has no reset function; give the state to plan from with --obs")
        obs = np.asarray(self.obs, np.float32) if self.obs is not None else task.reset(key_reset)  # type: ignore[misc]
        result = plan(planner, Oracle.of(task), task, obs, key_plan)
        numbers = {name: np.asarray(value).item() for name, value in result.diagnostics._asdict().items()}
        shown = {
            "action": np.asarray(result.action).tolist(),
            **numbers,
            "predicted_obs": np.asarray(result.trajectory.next_obs[0]).tolist(),
        }
        if self.json:
            print(json.dumps(shown, indent=2))
            return
        d = result.diagnostics
        lines = [
            f"action            {shown['action']}" + ("  (fallback: no usable prediction)" if bool(d.fallback) else ""),
            f"expected reward   {float(d.reward):.4g} over {self.horizon} steps",
            f"expected cost     {float(d.cost):g} unsafe steps beyond the bounds, {float(d.hard):g} hard violations",
            f"plans evaluated   {int(d.evaluated)}, of them {100 * float(d.safe_share):.1f} % safe",
        ]
        if int(d.occupancy):
            lines.append(f"archive           {int(d.occupancy)} of {task.grid.num_cells} cells filled")
        for share, what in (
            (d.broken_share, "predictions not finite"),
            (d.outside_share, "descriptors beyond the bounds"),
        ):
            if float(share) > 0:
                lines.append(f"warning           {100 * float(share):.1f} % of plans: {what}")
        last = ", ".join(f"{x:.4g}" for x in shown["predicted_obs"][-1])
        print("\n".join([*lines, f"predicted end     ({last})"]))


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


# -------------------------------------------------------------------------------------------------------- helpers


def load_plugins(names: tuple[str, ...]) -> None:
    """Import the user's modules, so that their decorators register what they hold."""
    from guss.loading import load_module

    for name in names:
        load_module(name)


def find_task(name: str) -> Task:
    """A registered environment's Task, or the user's own from `module:name`."""
    from guss.envs import make_task
    from guss.task import Task

    if ":" not in name:
        return make_task(name)
    from guss.loading import load_object

    found = load_object(name)
    task = found() if callable(found) and not isinstance(found, Task) else found
    if not isinstance(task, Task):
        raise GussError(f"{name} must be a guss.Task or a function that returns one, got {type(task).__name__}")
    return task


def parse_settings(words: tuple[str, ...]) -> dict[str, Any]:
    """`name=value` pairs; values are read as JSON where they can be, else as text."""
    settings: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise GussError(f"a setting is written name=value, got {word!r}")
        try:
            settings[name] = json.loads(value)
        except json.JSONDecodeError:
            settings[name] = value
    return settings


def use_compilation_cache() -> None:
    """Keep compiled programs between runs, in GUSS_CACHE_DIR or the user's cache folder; GUSS_CACHE_DIR=off: do not."""
    import jax

    chosen = os.environ.get("GUSS_CACHE_DIR") or str(
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "guss" / "jax"
    )
    if chosen == "off":
        return
    jax.config.update("jax_compilation_cache_dir", chosen)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def command_line() -> str:
    """The command as typed, for the record; the program without its folder."""
    return shlex.join(["guss", *sys.argv[1:]])


@dataclass
class Run:
    """Learn a model of a system and control it by planning in it (Alg. 1); records go to OUT/<env>-<method>-<hash>."""

    env: str = "safe-pendulum"
    """The environment; see `guss list`. Its preset in experiments/ gives what is not said here."""
    method: str = "guss"
    """The planner; see `guss list`."""
    seeds: int = 6
    """How many seeds, all run together."""
    seed: int = 0
    """The first of them."""
    episodes: Annotated[int | None, arg(metavar="N"), FROM_PRESET] = None
    """Episodes, random ones included."""
    horizon: Annotated[int | None, arg(metavar="H"), FROM_PRESET] = None
    """H: steps of a plan."""
    budget: Annotated[int | None, arg(metavar="M"), FROM_PRESET] = None
    """M: plans evaluated per step."""
    model: Annotated[str | None, arg(metavar="NAME"), FROM_PRESET] = None
    """The model: darmdn, dmdn, or oracle (the true dynamics, nothing learned)."""
    set: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE")] = ()
    """Settings of the planner, such as num_new=10 (`guss list --settings` shows them)."""
    fit: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE")] = ()
    """Settings of the training, such as loss=nll max_steps=5000."""
    out: Path = Path("runs")
    """Where to write."""
    json: bool = False
    """Print the outcome as JSON."""
    quiet: bool = False
    """No progress, no summary."""
    plugin: Plugins = ()

    def run(self) -> None:
        """Run, then say what came out and where it is."""
        load_plugins(self.plugin)
        from guss.display import RunProgress, make_console, print_run_summary
        from guss.envs import ENVS
        from guss.loading import load_preset
        from guss.models.fitting import FitSettings
        from guss.planners import PLANNERS, as_settings
        from guss.reports.run import summarise_run
        from guss.runs.learning import RunConfig, run_one
        from guss.runs.provenance import provenance

        ENVS[self.env], PLANNERS[self.method]  # told before anything else
        use_compilation_cache()
        preset = load_preset(self.env)
        net = dict(preset["model"])
        preset_model = net.pop("name")
        if self.seeds < 1 or self.seed < 0:
            raise GussError(f"there must be at least 1 seed, from 0 up, got --seeds {self.seeds} --seed {self.seed}")
        config = RunConfig(
            env=self.env,
            method=self.method,
            seeds=tuple(range(self.seed, self.seed + self.seeds)),
            model=self.model or preset_model,
            net={name: tuple(v) if isinstance(v, list) else v for name, v in net.items()},
            planner=preset["planners"].get(self.method, {}) | parse_settings(self.set),
            fit=as_settings("fit", FitSettings, preset["fit"] | parse_settings(self.fit)),
            **{name: preset[name] for name in ("initial_episodes", "explore")},
            **{name: getattr(self, name) or preset[name] for name in ("episodes", "horizon", "budget")},
        )
        with RunProgress(make_console(stderr=True), config.episodes, quiet=self.quiet) as progress:
            home = run_one(config, self.out, provenance(command_line()), progress.episode)
        summary = summarise_run(home)
        if self.json:
            print(json.dumps(summary, indent=2))
        elif not self.quiet:
            print_run_summary(make_console(), summary, home)


EXPERIMENTS = {"toy": Toy}


@dataclass
class Reproduce:
    """Reproduce an experiment of the paper, with its figures: toy."""


COMMANDS = {"run": Run, "reproduce": Reproduce, "plan": Plan, "list": List}


def parse(words: list[str]) -> Any:
    """The command that the words ask for. Exits, as tyro does, after help or on flags that do not exist."""
    kind, table, prog = "command", dict[str, Any](COMMANDS), "guss"
    if words[:1] == ["reproduce"]:
        kind, table, prog, words = "experiment", EXPERIMENTS, "guss reproduce", words[1:]
    if words and not words[0].startswith("-") and words[0] not in table:
        raise UnknownNameError(kind, words[0], table)
    about = (
        Reproduce.__doc__ if kind == "experiment" else "Safe planning in learned models with quality-diversity search."
    )
    return tyro.extras.subcommand_cli_from_dict(table, prog=prog, description=about, args=words or ["--help"])


def main() -> None:
    """Entry point of `guss`."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        print(f"guss {guss.__version__}")
        return
    try:
        parse(sys.argv[1:]).run()
    except GussError as error:
        print(f"guss: error: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # the reader of our output has gone, as in `guss list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("guss: interrupted; what was finished is kept, the same command goes on from there", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
