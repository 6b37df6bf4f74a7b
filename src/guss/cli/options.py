"""What commands share: flags, plugins, settings."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from guss.compilation import use_compilation_cache as use_compilation_cache
from guss.errors import GussError

if TYPE_CHECKING:
    from guss.task import Task

FROM_PRESET = arg(help_behavior_hint="(default: as the preset says)")
Plugins = Annotated[
    tuple[str, ...],
    arg(
        metavar="MODULE", help="Modules or .py files of your own to import first, so that what they register is known."
    ),
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


def load_plugins(names: tuple[str, ...]) -> None:
    """Import the user's modules, so that their decorators register what they hold."""
    from guss.plugins import PLUGINS, load_module

    for name in names:
        load_module(name)
        PLUGINS.append(name)


def find_task(name: str) -> Task:
    """The Task of an environment: ours, a Gymnasium id, or the user's own from `module:name`."""
    from guss.envs.lookup import find_env

    return find_env(name).make_task()


def parse_settings(words: tuple[str, ...]) -> dict[str, Any]:
    """`name=value` pairs; values are read as JSON where they can be, else as text."""
    settings: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise GussError(f"a setting is written name=value, got {word!r}")
        try:
            settings[name] = json.loads(value)
        except (ValueError, RecursionError):  # not JSON, too many digits, nested too deep
            settings[name] = value
    return settings


def command_line() -> str:
    """The command as typed, for the record; the program without its folder."""
    return shlex.join(["guss", *sys.argv[1:]])
