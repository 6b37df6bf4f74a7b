"""Where the user's files of a run are: its environment and plugins may be named relative to where it was started.

config.json keeps that folder as `started_in`, relative to the run's own folder if this lies in it, so that a project
can be moved as a whole. Neither the name nor the hash of a run depends on it, and packed copies do not have it.
"""

from __future__ import annotations

import os
from pathlib import Path

from guss.errors import GussError
from guss.plugins import PLUGINS, load_module

KEY = "started_in"
_FOUND: set[str] = set()
"""Plugins that stored runs named, and not --plugin."""


def place_of(home: Path, env: str) -> dict[str, str]:
    """What config.json keeps of a run that is started in the current folder: nothing if no name is relative to it."""
    names = [*([env.rpartition(":")[0]] if ":" in env else []), *PLUGINS]
    if all(Path(name).is_absolute() for name in names):
        return {}
    here, home = Path.cwd().resolve(), home.resolve()
    return {KEY: os.path.relpath(here, home) if home.is_relative_to(here) else str(here)}


def started_in(home: Path, stored: str) -> Path:
    """The folder that config.json names."""
    return Path(os.path.normpath(home.resolve() / stored))


def load_plugins_of(home: Path, names: tuple[str, ...], folder: Path | None) -> None:
    """Import the plugins of a stored run, but for those that --plugin has named already, wherever they lie now."""
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
            PLUGINS.append(whole)  # by its whole path: processes of environments load it too
            _FOUND.add(whole)
