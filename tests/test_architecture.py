"""ARCHITECTURE.md names files, functions and folders that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "guss"
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
PLACES = sorted(set(re.findall(r"`([a-z_0-9/]+\.py): ([A-Za-z_.]+)`", TEXT)))


def names_in(path):
    """Functions, classes, and methods as Class.method."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return found


@pytest.mark.parametrize(("file", "name"), PLACES)
def test_the_path_of_a_step_exists(file, name):
    assert name in names_in(SOURCE / file)


def test_there_is_a_path_of_a_step():
    assert len(PLACES) >= 15


def test_a_name_that_is_not_there_is_found():
    assert "Planning.fly" not in names_in(SOURCE / "methods" / "planning.py")


def test_the_listing_has_all_files_and_folders_of_the_top():
    listing = TEXT.partition("src/guss/\n")[2].partition("```")[0]
    known = set(re.findall(r"([a-z_]+(?:\.py|/))", listing))
    folders = {f"{path.name}/" for path in SOURCE.iterdir() if any(path.glob("*.py"))}
    top = folders | {path.name for path in SOURCE.glob("*.py")}
    top = {name for name in top if name.endswith((".py", "/")) and not name.startswith("_")}
    assert top <= known, top - known


def test_every_file_that_is_mentioned_exists():
    mentioned = set(re.findall(r"`((?:[a-z_]+/)+[a-z_0-9]+\.py)`", TEXT))
    missing = [name for name in mentioned if not (SOURCE / name).exists() and not (ROOT / name).exists()]
    assert missing == []


@pytest.mark.parametrize(
    "package", ["envs", "models", "planners", "collect", "methods", "runs", "sweeps", "reports", "cli"]
)
def test_every_file_of_a_package_is_in_the_table(package):
    table = TEXT.partition("## Files of the packages")[2].partition("\n## ")[0]
    mine = table.partition(f"| `{package}/` ")[2].partition("\n| `")[0]
    named = set(re.findall(r"`([a-z_0-9]+\.py)`", mine))
    assert named == {path.name for path in (SOURCE / package).glob("*.py")} - {"__init__.py"}
