"""Which user code decides a run, by checksum: a later use of the run warns when that code has changed.

Covered are the modules that define the environment, the planner or baseline, and the model, as far as they are neither
part of guss nor of Gymnasium, and the modules that those import from the same folder or package. Data files and
installed dependencies are not covered.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium

from guss.baselines import BASELINES
from guss.errors import warn
from guss.loading import load_module
from guss.models import MODELS
from guss.planners import PLANNERS
from guss.runs.config import RunConfig, spec_of_run
from guss.runs.facts import read_stored

OURS = ("guss", "gymnasium")
"""Their versions are part of a run's provenance."""


def source_digests(config: RunConfig) -> dict[str, dict[str, str]]:
    """SHA-256 of every file that defines the environment, the method or the model, by its name within its folder."""
    methods = PLANNERS if config.baseline is None else BASELINES
    modules = {
        "environment": _environment(config),
        "method": methods[config.method].origin,
        "model": MODELS[config.model].origin,
    }
    found = {part: _files(name, config.folder) for part, name in modules.items()}
    return {part: files for part, files in found.items() if files}


def warn_if_changed(home: Path, config: RunConfig) -> None:
    """Warn if the code that a stored run began with differs from the code that is there now."""
    stored = read_stored(home).sources
    now = source_digests(config) if stored else {}
    for part, files in stored.items():
        changed = [name for name, digest in files.items() if now.get(part, {}).get(name) != digest]
        if changed:
            warn(
                f"the {part} of {home} has changed since the run began ({', '.join(changed)}): results from here on "
                f"mix two versions of it",
            )


def _environment(config: RunConfig) -> str:
    """The name of the module that defines the environment, or its file."""
    if ":" in config.env:
        return config.env.rpartition(":")[0]
    if config.env in gymnasium.registry:
        entry = gymnasium.spec(config.env).entry_point
        return entry.partition(":")[0] if isinstance(entry, str) else str(getattr(entry, "__module__", ""))
    return str(getattr(spec_of_run(config).make_task, "__module__", ""))


def _files(name: str, folder: Path | None) -> dict[str, str]:
    """Checksums of a module's file and of what it imports from its folder or package, by their paths there.

    `folder`: where a file is looked for first.
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
        where = path.relative_to(base) if path.is_relative_to(base) else Path(path.name)  # linked from elsewhere
        if where.as_posix() not in found:
            content = path.read_bytes()
            found[where.as_posix()] = hashlib.sha256(content).hexdigest()
            queue += [other for other in _imports(where, base, content) if _covered(other, base, top)]
    return dict(sorted(found.items()))


def _covered(path: Path, base: Path, top: str) -> bool:
    """Whether a file belongs to the user's folder or package, and was not installed into it."""
    parts = path.relative_to(base).parts
    installed = "site-packages" in parts or (not top and base.name == "site-packages")
    return parts[0] == top if top else not installed and parts[0] not in OURS


def _imports(where: Path, base: Path, content: bytes) -> Iterator[Path]:
    """The files below `base` that a source file imports, and their packages."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):  # an extension module, or a file that is not for this Python
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
