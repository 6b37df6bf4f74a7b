"""`guss check-env`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from guss.cli.options import Plugins, prepare, print_results
from guss.errors import GussError

if TYPE_CHECKING:
    from rich.console import Console

    from guss.collect.env_check import Finding

TITLES = {
    "fact": "[bold]Properties[/]",
    "learned": "[bold]Learned from data[/]",
    "risk": "[bold yellow]Risks[/]",
    "problem": "[bold red]Problems[/]",
}
"""Titles of the kinds of findings."""


@dataclass
class CheckEnvCommand:
    """Check an environment with random actions: spaces, reward, costs, episode ends, speed.

    Lists its properties, risks and problems, and the command to continue with. Exit code 2 if there are problems.

        guss check-env safe-pendulum
        guss check-env system.py:make_env --episode-length 200
    """

    env: Annotated[Positional[str], arg(metavar="NAME")]
    """An environment of `guss list`, a Gymnasium id, or a custom one as module:function or file.py:function."""
    steps: int = 1000
    """Number of random steps."""
    seed: int = 0
    """Seed of the environment and of the random actions."""
    episode_length: Annotated[int | None, arg(metavar="T", help_behavior_hint="(default: its time limit)")] = None
    """Steps of an episode, for an environment without a time limit."""
    without_cost: bool = False
    """The environment reports no cost: every state is safe."""
    step_timeout: float = 60.0
    """Time limit of a step in seconds."""
    env_process: bool = False
    """Run the environment in its own process, which is killed if a step hangs."""
    json: bool = False
    """Print the findings as JSON."""
    plugin: Plugins = ()

    def run(self) -> None:
        """Check the environment and print the findings; exit code 2 if there are problems."""
        prepare(self.plugin)
        if self.steps < 1:
            raise GussError(f"--steps must be at least 1, got {self.steps}")
        from guss.collect.env_check import check_env
        from guss.envs.lookup import as_maker, find_env
        from guss.validation import check_seconds, check_seed, convert

        check_seed(self.seed, "--seed")
        check_seconds(self.step_timeout, "--step-timeout")
        convert(self.steps, int, "--steps")
        spec = find_env(
            self.env, episode_length=self.episode_length, without_cost=self.without_cost, process=self.env_process
        )
        task = spec.make_task().with_end()
        if spec.make_env is None and not spec.gym_id:
            raise GussError(f"{self.env} is a Task without an environment, so there is nothing to check")
        process = (spec.source or spec.gym_id or self.env) if self.env_process else None
        findings = check_env(
            as_maker(spec), task, steps=self.steps, seed=self.seed, timeout=self.step_timeout, process=process
        )
        problems = [finding for finding in findings if finding.kind == "problem"]
        results = {"ready": not problems, "findings": [dataclasses.asdict(finding) for finding in findings]}
        print_results(results, self.json, False, lambda console: self._print(console, findings, len(problems)))
        if problems:
            raise SystemExit(2)

    def _print(self, console: Console, findings: list[Finding], problems: int) -> None:
        """Print the findings and the next command."""
        from rich.table import Column, Table
        from rich.text import Text

        from guss.collect.env_check import SAMPLED_FLAGS

        for kind, title in TITLES.items():
            found = [finding for finding in findings if finding.kind == kind]
            if found:
                columns = (Column(no_wrap=True, style="dim"), Column(overflow="fold"))
                table = Table(*columns, box=None, show_header=False)
                for finding in found:
                    table.add_row(finding.topic, Text(finding.text))
                console.print(title)
                console.print(table)
        if problems:
            console.print(f"[bold red]Not ready[/]: {problems} problem{'s' * (problems > 1)}, listed above.")
            return
        more = f" --episode-length {self.episode_length}" if self.episode_length else ""
        more += " --without-cost" * self.without_cost + " --env-process" * self.env_process
        more += f" {SAMPLED_FLAGS}" * any(SAMPLED_FLAGS in finding.text for finding in findings)
        console.print(Text(f"Ready. Continue with: guss run --env {self.env}{more}"))
