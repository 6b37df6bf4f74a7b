"""Checksums of the user code of a run, so that later uses of the run warn if the code has changed.

Covered are the modules that define the environment, the planner or method, and the model, unless they are part of guss
or Gymnasium, and the modules that they import from the same folder or package. Data files and installed dependencies
are not covered.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium

from guss.errors import warn
from guss.methods import method_entry
from guss.models import MODELS
from guss.plugins import load_module
from guss.runs.config import RunConfig, spec_of_run
from guss.runs.description import read_stored

OURS = ("guss", "gymnasium")
"""Packages without checksums; their versions are part of a run's provenance."""


def source_digests(config: RunConfig) -> dict[str, dict[str, str]]:
    """SHA-256 of the files that define environment, method and model, by part and path within their folder."""
    modules = {
        "environment": _environment(config),
        "method": method_entry(config.method).origin,
        "model": MODELS[config.model].origin,
    }
    found = {part: _files(name, config.folder) for part, name in modules.items()}
    return {part: files for part, files in found.items() if files}


def warn_if_changed(home: Path, config: RunConfig) -> None:
    """Warn if the user code of a stored run has changed since the run started."""
    stored = read_stored(home).sources
    now = source_digests(config) if stored else {}
    for part, files in stored.items():
        changed = [name for name, digest in files.items() if now.get(part, {}).get(name) != digest]
        if changed:
            warn(
                f"the {part} of {home} has changed since the run started ({', '.join(changed)}): results from here on "
                f"mix two versions of it"
            )


def _environment(config: RunConfig) -> str:
    """The module or file that defines the environment."""
    if ":" in config.env:
        return config.env.rpartition(":")[0]
    if config.env in gymnasium.registry:
        entry = gymnasium.spec(config.env).entry_point
        return entry.partition(":")[0] if isinstance(entry, str) else str(getattr(entry, "__module__", ""))
    return str(getattr(spec_of_run(config).make_task, "__module__", ""))


def _files(name: str, folder: Path | None) -> dict[str, str]:
    """Checksums of a module's file and of the files it imports from its folder or package, by relative path.

    `folder`: searched first for files.
    """
    if not name or (not name.endswith(".py") and name.partition(".")[0] in OURS):
        return {}
    module = load_module(name, folder) if name.endswith(".py") else sys.modules.get(name)
    if module is None or getattr(module, "__file__", None) is None:
        return {}
    file, top = Path(str(module.__file__)).resolve(), (module.__package__ or "").partition(".")[0]
    base = Path(sys.modules[top].__path__[0]).resolve().parent if top else file.parent
    found: dict[str, str] = {}
    queue = [file]
    while queue:
        path = queue.pop()
        where = path.relative_to(base) if path.is_relative_to(base) else Path(path.name)  # a symbolic link
        if where.as_posix() not in found:
            content = path.read_bytes()
            found[where.as_posix()] = hashlib.sha256(content).hexdigest()
            queue += [other for other in _imports(where, base, content) if _covered(other, base, top)]
    return dict(sorted(found.items()))


def _covered(path: Path, base: Path, top: str) -> bool:
    """Whether a file belongs to the user's folder or package and is not an installed dependency."""
    parts = path.relative_to(base).parts
    installed = "site-packages" in parts or (not top and base.name == "site-packages")
    return parts[0] == top if top else not installed and parts[0] not in OURS


def _imports(where: Path, base: Path, content: bytes) -> Iterator[Path]:
    """The files below `base` that a source file imports, and the __init__.py files of their packages."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):  # an extension module, or source for another Python version
        return
    names: list[tuple[str, ...]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            here = where.parent.parts[: len(where.parent.parts) - node.level + 1] if node.level else ()
            module = (*here, *(node.module.split(".") if node.module else ()))
            names += [(*module, alias.name) for alias in node.names]
    for name in names:
        for count in range(1, len(name) + 1):
            path = base.joinpath(*name[:count])
            yield from (file for file in (path.with_name(f"{path.name}.py"), path / "__init__.py") if file.is_file())
