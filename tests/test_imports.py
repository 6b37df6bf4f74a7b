"""Imports point one way, and what the project says of itself stays clean."""

import ast
import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "guss"

# Each layer may import itself and what stands before it; within one layer, packages do not import each other.
LAYERS = [
    {"errors"},
    {"usercode", "spaces", "fitting", "limits", "validation", "progress", "files"},
    {"types", "registry", "plugins", "checkpoint", "compilation"},
    {"keys"},
    {"constraint", "grid", "method", "risk_measures", "surroundings"},
    {"task"},
    {"risk", "envs", "models"},
    {"planners"},
    {"collect"},
    {"methods"},
    {"history", "explanation"},
    {"agent_file", "agent_episodes"},
    {"agent"},
    {"runs"},
    {"sweeps"},
    {"reports", "controller"},
    {"cli"},
    {"__main__"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}


# One convenience reads a run from above, when it is called: `Agent.from_run`.
UPWARD = {("agent.py", "runs")}


def part_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_parts(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "guss":
            words = node.module.split(".")
            yield from [words[1]] if len(words) > 1 else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                words = alias.name.split(".")
                if words[0] == "guss" and len(words) > 1:
                    yield words[1]


FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    part = part_of(path)
    assert part in RANK, f"{part} has no place among the layers yet"
    for other in imported_parts(path):
        assert other in RANK, f"{path.name} imports guss.{other}, which has no place among the layers"
        known = (path.relative_to(SOURCE).as_posix(), other) in UPWARD
        assert known or other == part or RANK[other] < RANK[part], f"{part} must not import {other}"


def test_the_rule_can_fail():
    tree = SOURCE / "planners" / "engine.py"
    assert {"risk", "task", "types", "errors"} <= set(imported_parts(tree))
    assert RANK["agent"] > RANK["planners"]


def test_types_import_nothing_of_ours_but_spaces_fitting_and_errors():
    assert set(imported_parts(SOURCE / "types.py")) <= {"spaces", "fitting", "errors"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_fit_in_a_head(path):
    assert len(path.read_text().splitlines()) <= 400


def third_party(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
        yield from ({name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - {"guss"})


def test_every_import_is_declared_and_every_extra_is_imported():
    """What guss imports is among its dependencies or in one of its extras, and no extra is for nothing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packages = {"pillow": "PIL"}
    modules = lambda words: {packages.get(name := re.split(r"[^\w.-]", word)[0], name) for word in words}  # noqa: E731
    extras = {name: modules(words) for name, words in project["optional-dependencies"].items() if name != "dev"}
    imported = {name for path in FILES for name in third_party(path)}
    assert imported <= modules(project["dependencies"]) | set().union(*extras.values())
    named = "".join(path.read_text() for path in FILES)  # some are imported by name
    unused = {name for name, parts in extras.items() if not all(x in imported or f'"{x}"' in named for x in parts)}
    assert unused == set()
    car = {name for path in SOURCE.glob("envs/car*.py") for name in third_party(path)}
    assert car <= modules(project["dependencies"]) | extras["car"]


SCRIPTS = sorted(path for folder in ("benchmarks", "studies", "examples") for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_scripts_outside_the_package_import_names_that_exist(path):
    """No test runs all of them: some need peers, or hours."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "guss":
            module = importlib.import_module(node.module)
            for alias in node.names:
                found = hasattr(module, alias.name) or importlib.util.find_spec(f"{node.module}.{alias.name}")
                assert found, f"{node.module} has no {alias.name}"
