"""Bring in what users wrote: modules and objects named on the command line, presets shipped with the package."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from guss.errors import GussError, UnknownNameError
from guss.usercode import check_user_code

PLUGINS: list[str] = []
"""What `--plugin` has imported in this process."""


def load_module(name: str, folder: Path | None = None) -> ModuleType:
    """Import `package.module`, or a file `path/to/file.py`; modules of the current folder are found too.

    `folder`: where to look first, as the folder in which a stored run was started.
    """
    check_user_code(f"the module {name!r}")
    if name.endswith(".py"):
        path = _find_file(name, folder)
        if path.stem in sys.modules and getattr(sys.modules[path.stem], "__file__", None) == str(path):
            return sys.modules[path.stem]
        if str(path.parent) not in sys.path:  # modules beside it are found, as when Python runs it
            sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        _guarded(name, spec.loader.exec_module, module)
        return module
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    if folder is not None and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return _guarded(name, importlib.import_module, name)


def _find_file(name: str, folder: Path | None) -> Path:
    places = [Path.cwd()] if folder is None or folder == Path.cwd() else [folder, Path.cwd()]
    for place in places:
        if (place / name).is_file():
            return (place / name).resolve()
    if Path(name).is_absolute():
        raise GussError(f"there is no file {name!r} to import")
    started = "" if len(places) == 1 else f" or in {folder}, where the run was started"
    raise GussError(
        f"there is no file {name!r} to import in {Path.cwd()}{started}; run the command in the folder that has it"
    )


def _guarded(name: str, load: Callable[[Any], Any], what: Any) -> Any:
    try:
        return load(what)
    except GussError:
        raise
    except Exception as error:
        raise GussError(f"importing {name!r} failed: {type(error).__name__}: {error}") from error


def load_object(name: str, folder: Path | None = None) -> Any:
    """The object `module:attribute` or `file.py:attribute`; `folder` as in `load_module`."""
    module_name, _, attribute = name.rpartition(":")
    module = load_module(module_name, folder)
    if not hasattr(module, attribute):
        raise UnknownNameError(f"attribute of {module_name!r}", attribute, [n for n in vars(module) if n[0] != "_"])
    return getattr(module, attribute)


def shipped(name: str) -> list[Path]:
    """A folder that comes with guss: inside the package if it is installed, beside the sources in a checkout."""
    here = Path(__file__).resolve().parent
    return [folder for folder in (here / name, here.parents[1] / name) if folder.is_dir()]


def _presets() -> dict[str, Path]:
    """The experiments by name."""
    return {path.stem: path for folder in reversed(shipped("experiments")) for path in folder.glob("*.toml")}


def load_preset(name: str) -> dict[str, Any]:
    """The experiment `name` of `experiments/`, or a TOML file of the user's own; either may extend an experiment."""
    found = {name: Path(name)} if name.endswith(".toml") else _presets()
    if name not in found:
        raise UnknownNameError("experiment", name, found)
    try:
        preset = tomllib.loads(found[name].read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise GussError(f"cannot read the preset {name}: {error}") from error
    if "extends" not in preset:
        return preset
    base = preset.pop("extends")
    if base not in _presets():
        raise UnknownNameError(f"experiment that {name} extends", base, _presets())
    return _merged(load_preset(base), preset)


def _merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """`base` with what `more` says otherwise, table by table."""
    both = {
        name: _merged(base[name], value) if isinstance(value, dict) and isinstance(base.get(name), dict) else value
        for name, value in more.items()
    }
    return base | both


def find_preset(name: str) -> dict[str, Any]:
    """The experiment of that name, or an empty one: a task of the user's own has none."""
    return load_preset(name) if name in _presets() else {}
