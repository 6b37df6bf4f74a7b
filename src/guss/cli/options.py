"""Shared by commands: flags, plugins and compilation cache, warnings, provenance."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from guss.errors import GussError

if TYPE_CHECKING:
    from rich.console import Console

FROM_PRESET = arg(help_behavior_hint="(default: from the preset)")
Plugins = Annotated[
    tuple[str, ...],
    arg(
        metavar="MODULE",
        help="Modules or .py files to import first, which register custom planners, methods, models or environments.",
        help_behavior_hint="",
    ),
]

ColumnNames = Annotated[
    tuple[str, ...],
    arg(
        metavar="PART=NAME,NAME",
        help="Column names of a data file, such as obs=temperature,pressure action=valve. List costs in the order of "
        "the constraints.",
        help_behavior_hint="",
    ),
]


def parse_columns(words: tuple[str, ...]) -> dict[str, list[str]]:
    """Words such as `obs=temperature,pressure` as a dict of lists."""
    pairs = [word.partition("=") for word in words]
    if bad := [word for word, (part, _, names) in zip(words, pairs, strict=True) if not part or not names]:
        raise GussError(f"--columns takes PART=NAME,NAME, such as obs=temperature,pressure; got {bad[0]!r}")
    return {part: names.split(",") for part, _, names in pairs}


def prepare(plugins: tuple[str, ...]) -> None:
    """Import plugins, whose decorators register their classes, and turn on the compilation cache on disk."""
    from guss.compilation import use_compilation_cache
    from guss.plugins import load_plugins

    load_plugins(plugins)
    use_compilation_cache()


def check_planners(names: Iterable[str], next_step: str) -> None:
    """Raise GussError for a method that is a policy, where a planner is needed."""
    from guss.methods import METHODS
    from guss.planners import PLANNERS

    for name in names:
        if name in METHODS.names():
            planners = ", ".join(PLANNERS.names())
            raise GussError(f"{name!r} is a policy, which does not plan; planners are {planners} ({next_step})")


def print_results(results: Any, as_json: bool, quiet: bool, show: Callable[[Console], Any]) -> None:
    """Print the results of a command as JSON, or else on a console by `show`, unless it is quiet."""
    from guss.progress import make_console

    if as_json:
        print(json.dumps(results, indent=2))
    elif not quiet:
        show(make_console())


def print_warning(text: object) -> None:
    """Print a warning on standard error, in one line."""
    print(f"guss: warning: {text}", file=sys.stderr)


def command_line() -> str:
    """The command as typed; the program without its folder."""
    return shlex.join(["guss", *sys.argv[1:]])


def command_provenance() -> dict[str, Any]:
    """The command, the commit and the machine, to be stored."""
    from guss.runs.provenance import provenance

    return provenance(command_line())
