"""Imports modules and objects named on the command line, and reads presets."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from guss.errors import GussError, UnknownNameError, in_one_line
from guss.usercode import check_user_code

PLUGINS: list[str] = []
"""Modules that `--plugin` has imported in this process."""


def load_plugins(names: Iterable[str]) -> None:
    """Import modules whose decorators register classes, each once."""
    for name in names:
        if name not in PLUGINS:
            load_module(name)
            PLUGINS.append(name)


def load_module(name: str, folder: Path | None = None) -> ModuleType:
    """Import `package.module` or `path/to/file.py`; both may import modules of the current folder or next to the file.

    These folders come last on `sys.path`: a user's `random.py` must not shadow the standard library's. `folder`: the
    folder to search first, such as the one in which a stored run was started.
    """
    check_user_code(f"the module {name!r}")
    importlib.invalidate_caches()  # a file may be newer than Python's cache of its folder
    places = [Path.cwd()] if folder is None or folder == Path.cwd() else [folder, Path.cwd()]
    if not name.endswith(".py"):
        for place in places:
            _append_to_path(place)
        return _guarded(name, importlib.import_module, name)
    path = _find_file(name, places)
    _append_to_path(path.parent)
    known = _module_name(path)
    if known in sys.modules:
        return sys.modules[known]
    spec = importlib.util.spec_from_file_location(known, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[known] = module
    try:
        _guarded(name, spec.loader.exec_module, module)
    except BaseException:
        del sys.modules[known]  # a partly executed module must not be found later
        raise
    return module


def _append_to_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _module_name(path: Path) -> str:
    """The module name of a file: its stem if `import` finds this file by it, else an unused name."""
    stem = path.stem
    if stem.isidentifier():
        loaded = sys.modules.get(stem)
        try:
            spec = importlib.util.find_spec(stem) if loaded is None else None
        except ValueError:  # a module created by hand
            spec = None
        origin = getattr(loaded, "__file__", None) if spec is None else spec.origin
        if origin is not None and Path(origin).resolve() == path:
            return stem
    return f"{re.sub(r'[^0-9A-Za-z_]', '_', stem)}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"


def _find_file(name: str, places: list[Path]) -> Path:
    for place in places:
        if (place / name).is_file():
            return (place / name).resolve()
    if Path(name).is_absolute():
        raise GussError(f"there is no file {name!r} to import")
    started = "" if len(places) == 1 else f" or in {places[0]}, where the run was started"
    raise GussError(
        f"there is no file {name!r} to import in {Path.cwd()}{started}; run the command in the folder that contains it"
    )


def _guarded(name: str, load: Callable[[Any], Any], what: Any) -> Any:
    try:
        return load(what)
    except GussError:
        raise
    except (Exception, SystemExit) as error:
        raise GussError(f"importing {name!r} failed: {in_one_line(error)}") from error


def load_object(name: str, folder: Path | None = None) -> Any:
    """The object `module:attribute` or `file.py:attribute`; `folder` as in `load_module`."""
    module_name, _, attribute = name.rpartition(":")
    module = load_module(module_name, folder)
    if not hasattr(module, attribute):
        raise UnknownNameError(f"attribute of {module_name!r}", attribute, [n for n in vars(module) if n[0] != "_"])
    return getattr(module, attribute)


def located(name: str, folder: Path | None = None) -> str:
    """A name `file.py:attribute` with the file's absolute path; other names unchanged."""
    module_name, _, attribute = name.rpartition(":")
    return f"{load_module(module_name, folder).__file__}:{attribute}" if module_name.endswith(".py") else name


def functions_in(path: Path) -> list[str]:
    """Functions and classes of a source file that can be called without arguments, found without importing it."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return []
    found = [node.name for node in body if isinstance(node, ast.FunctionDef) and _needs_nothing(node.args)]
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    found += [node.name for node in classes if any("Env" in ast.unparse(base) for base in node.bases)]
    return [name for name in found if not name.startswith("_")]


def _needs_nothing(args: ast.arguments) -> bool:
    given = len(args.posonlyargs) + len(args.args) - len(args.defaults)
    return given == 0 and all(default is not None for default in args.kw_defaults)


def shipped(name: str) -> list[Path]:
    """A folder shipped with guss: inside the package if it is installed, next to the sources in a checkout."""
    here = Path(__file__).resolve().parent
    return [folder for folder in (here / name, here.parents[1] / name) if folder.is_dir()]


def read_toml(path: str | Path, what: str) -> dict[str, Any]:
    """The tables of a TOML file; `what` describes the file in errors."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise GussError(f"cannot read the {what} {str(path)!r}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # not TOML, not text, nested too deep
        raise GussError(f"the {what} {str(path)!r} is not TOML: {error}") from error


def _presets() -> dict[str, Path]:
    return {path.stem: path for folder in reversed(shipped("experiments")) for path in folder.glob("*.toml")}


def load_preset(name: str) -> dict[str, Any]:
    """The experiment `name` of `experiments/`, or a TOML file; either may extend an experiment."""
    found = {name: Path(name)} if name.endswith(".toml") else _presets()
    if name not in found:
        raise UnknownNameError("experiment", name, found)
    preset = read_toml(found[name], "preset")
    if "extends" not in preset:
        return preset
    base = preset.pop("extends")
    if not isinstance(base, str) or base not in _presets():
        raise UnknownNameError(f"experiment that the preset {name} extends:", str(base), _presets())
    return merged(load_preset(base), preset)


def merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """`base`, overridden by `more` table by table."""
    both = {
        name: merged(base[name], value) if isinstance(value, dict) and isinstance(base.get(name), dict) else value
        for name, value in more.items()
    }
    return base | both


def find_preset(name: str) -> dict[str, Any]:
    """The experiment of that name; empty if there is none, as for a custom task."""
    return load_preset(name) if name in _presets() else {}
