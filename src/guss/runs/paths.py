"""Paths of a run's user files: its environment and plugins may be relative to the folder in which the run started.

config.json stores that folder as `started_in`, relative to the run folder if the run folder lies in it, so that a
project can be moved as a whole. Name and hash of a run do not depend on it, and packed copies do not have it.
"""

from __future__ import annotations

import os
from pathlib import Path

from guss.errors import GussError
from guss.plugins import PLUGINS, load_module

KEY = "started_in"
_FOUND: set[str] = set()
"""Plugins that stored runs name and --plugin does not."""


def place_of(home: Path, env: str) -> dict[str, str]:
    """The entry `started_in` of config.json for a run started in the current folder; {} if all paths are absolute."""
    names = [*([env.rpartition(":")[0]] if ":" in env else []), *PLUGINS]
    if all(Path(name).is_absolute() for name in names):
        return {}
    here, home = Path.cwd().resolve(), home.resolve()
    return {KEY: os.path.relpath(here, home) if home.is_relative_to(here) else str(here)}


def started_in(home: Path, stored: str) -> Path:
    """The folder that `stored`, an entry of config.json, stands for."""
    return Path(os.path.normpath(home.resolve() / stored))


def load_plugins_of(home: Path, names: tuple[str, ...], folder: Path | None) -> None:
    """Import the plugins of a stored run, except those with the file name of a module given by --plugin."""
    given = {Path(loaded).name for loaded in PLUGINS if loaded not in _FOUND}
    for name in names:
        if Path(name).name in given:
            continue
        try:
            module = load_module(name, folder)
        except GussError as error:
            raise GussError(f"the plugin {name!r} of {home} cannot be loaded; give it by --plugin. {error}") from error
        whole = str(module.__file__) if name.endswith(".py") else name
        if whole not in PLUGINS:
            PLUGINS.append(whole)  # by its absolute path: environment processes load it too
            _FOUND.add(whole)
