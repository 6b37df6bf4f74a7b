"""`guss run`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from guss.commands.common import FROM_PRESET, Plugins, command_line, load_plugins, parse_settings, use_compilation_cache
from guss.errors import GussError


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
