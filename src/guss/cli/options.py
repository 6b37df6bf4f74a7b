"""What commands share: flags and their values, preparation, warnings, the command for the record."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated, Any

from tyro.conf import arg

from guss.errors import GussError

FROM_PRESET = arg(help_behavior_hint="(default: as the preset says)")
Plugins = Annotated[
    tuple[str, ...],
    arg(metavar="MODULE", help="Modules or .py files to import first, so that what they register is known."),
]

ColumnNames = Annotated[
    tuple[str, ...],
    arg(
        metavar="PART=NAME,NAME",
        help="Columns of a data file that have other names: obs=temperature,pressure action=valve. Costs are listed in "
        "the order of the constraints.",
    ),
]


def parse_columns(words: tuple[str, ...]) -> dict[str, list[str]]:
    """`obs=temperature,pressure` and the like."""
    pairs = [word.partition("=") for word in words]
    if bad := [word for word, (part, _, names) in zip(words, pairs, strict=True) if not part or not names]:
        raise GussError(f"columns are named like obs=temperature,pressure; got {bad[0]!r}")
    return {part: names.split(",") for part, _, names in pairs}


def prepare(plugins: tuple[str, ...]) -> None:
    """Import the user's modules, so that their decorators register what they hold; keep compiled programs on disk."""
    from guss.compilation import use_compilation_cache
    from guss.plugins import PLUGINS, load_module

    for name in plugins:
        if name not in PLUGINS:
            load_module(name)
            PLUGINS.append(name)
    use_compilation_cache()


def print_warning(text: object) -> None:
    """A warning on standard error, in one line."""
    print(f"guss: warning: {text}", file=sys.stderr)


def command_line() -> str:
    """The command as typed, for the record; the program without its folder."""
    return shlex.join(["guss", *sys.argv[1:]])


def command_provenance() -> dict[str, Any]:
    """The command, the commit and the machine, for the record."""
    from guss.runs.provenance import provenance

    return provenance(command_line())
