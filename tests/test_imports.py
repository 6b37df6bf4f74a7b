"""Imports point one way, and what the project says of itself stays clean."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "guss"

# Each layer may import itself and what stands before it; within one layer, packages do not import each other.
LAYERS = [
    {"errors"},
    {"usercode", "spaces", "limits", "files"},
    {"types", "registry", "loading", "checkpoint", "programs"},
    {"constraint"},
    {"task"},
    {"risk", "envs", "models"},
    {"planners"},
    {"agent"},
    {"baselines"},
    {"runs"},
    {"metrics"},
    {"bench"},
    {"reports", "controller", "display"},
    {"commands"},
    {"cli"},
    {"__main__"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}


# One convenience reads a run from above, when it is called: `Agent.from_run`.
UPWARD = {("agent/agent.py", "runs")}


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


def test_types_import_nothing_of_ours_but_spaces_and_errors():
    assert set(imported_parts(SOURCE / "types.py")) <= {"spaces", "errors"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_fit_in_a_head(path):
    assert len(path.read_text().splitlines()) <= 400
