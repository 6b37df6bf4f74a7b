"""Notes of `guss run`: the command to resume it, and a warning if all episodes are random."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from guss.cli.options import print_warning

if TYPE_CHECKING:
    from guss.runs.config import RunConfig


def resume_command(home: Path, *more: str) -> str:
    """The command that resumes a run, from any folder."""
    return shlex.join(["guss", "run", "--resume", str(home.resolve()), *more])


@contextmanager
def resumable(home: Path) -> Iterator[None]:
    """Adds the command to resume the run to an interrupt (Ctrl-C), if the run has started."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if (home / "config.json").exists():
            stop.add_note(f"resume with: {resume_command(home)}")
        raise


def warn_if_random(config: RunConfig, episodes: int) -> None:
    """Before a run: warn if all of its `episodes` will have random actions."""
    from guss.runs.config import spec_of_run

    asked = dataclasses.replace(config, episodes=episodes)
    if asked.never_acts(spec_of_run(config).make_task().episode_length):
        first = config.initial_episodes
        why = f" and {config.initial_steps} steps" if config.initial_steps else ""
        print_warning(
            f"all actions of this run will be random: --episodes is {episodes}, and {config.method} acts only after "
            f"{first} random episode{'s' * (first != 1)}{why}; increase --episodes, or decrease --initial-episodes and "
            f"--initial-steps"
        )


def warn_if_was_random(config: RunConfig, home: Path) -> None:
    """After a run: warn if all of its episodes were random."""
    from guss.runs.rows import num_random, read_episodes

    rows = read_episodes(home)
    count = num_random(rows)
    if not config.acts_randomly and all(row["episode"] < count for row in rows):
        print_warning(
            f"all {count} episodes were random: the measures are those of random actions, not of {config.method}; "
            f"add episodes with {resume_command(home, '--episodes', str(max(2 * count, config.initial_episodes + 1)))}"
        )
