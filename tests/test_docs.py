"""What README and docs say is true: Python blocks and commands run, links lead somewhere, generated parts are fresh."""

import dataclasses
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from docs.generator.pages import PageError, found_parts, rewritten
from docs.generator.reference import settings_table
from guss.models.training import FitSettings

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(language):
    for page in PAGES:
        for i, match in enumerate(re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)):
            yield pytest.param(match, id=f"{page.relative_to(ROOT)}-{i}")


def commands():
    for param in blocks("bash"):
        for line in param.values[0].splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0] == "guss":
                yield pytest.param(words[1:], id=" ".join(words))


@pytest.mark.parametrize("code", list(blocks("python")))
def test_python_blocks_run(code):
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize("words", list(commands()))
def test_commands_exist_and_the_short_ones_run(words, guss_command, tmp_path):
    from guss.cli.main import parse

    parse(words)
    if words[0] in ("list", "plan"):
        guss_command(*words, cwd=ROOT, check=0)
    elif words[0] == "run" and "--plugin" in words:
        small = ("--method", "rs", "--seeds", "1", "--episodes", "2", "--horizon", "2", "--budget", "20")
        guss_command(*words, *small, "--no-figures", "--out", tmp_path, cwd=ROOT, check=0)
    elif "--plugin" in words:
        guss_command(*words, "--steps", "2", "--horizon", "3", "--out", tmp_path, cwd=ROOT, check=0)


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"^make ([a-z-]+)", page.read_text(), re.MULTILINE):
            assert f"\n{target}:" in makefile, f"{page.name} names make {target}"


def anchors(page):
    """Of the headings of a page, as GitHub writes them."""
    found = []
    for heading in re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "]", heading).lower()).replace(" ", "-")
        found.append(slug if slug not in found else f"{slug}-{found.count(slug)}")
    return found


def broken_links(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        target, _, anchor = link.partition("#")
        if link.startswith(("https://", "http://")):
            continue
        path = page.parent / target if target else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_anchors_lead_somewhere(page):
    assert list(broken_links(page)) == []


def test_a_broken_link_and_a_broken_anchor_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# `a`: one\n[x](#a-one) [y](page.md#a-one) [z](page.md#two) [w](other.md)\n```\n# two\n```\n")
    assert list(broken_links(page)) == ["page.md#two", "other.md"]


def test_generated_parts_are_fresh():
    process = subprocess.run([sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr


def test_a_changed_number_is_found():
    page = ROOT / "docs" / "cooling.md"
    changed = page.read_text().replace("| 2.620 |", "| 2.610 |")
    assert changed != page.read_text()
    assert rewritten(changed, "docs/cooling.md") == page.read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- begin sped --><!-- end sped -->", "page.md:1: no generated part is called 'sped'; there are: speed"),
        ("\n<!-- begin speed -->", "`begin speed` has no end"),
        ("<!-- begin speed --><!-- begin models --><!-- end models -->", "expected `end speed`, found `begin models`"),
        ("<!-- end speed -->", "expected a begin, found `end speed`"),
    ],
)
def test_a_wrong_marker_is_an_error(text, message):
    with pytest.raises(PageError, match=re.escape(message)):
        list(found_parts(text, "page.md"))


def test_a_part_within_a_sentence_stays_there():
    text = "takes <!-- begin speed -->1<!-- end speed --> ms"
    assert rewritten(text, "page.md", {"speed": "2"}) == text.replace("1", "2")
    assert rewritten(text, "page.md", {"speed": "2\n3"}).startswith("takes <!-- begin speed -->\n\n2\n3\n\n<!--")


def test_a_new_setting_appears_in_its_table():
    added = dataclasses.make_dataclass(
        "Added", [("momentum", float, dataclasses.field(default=0.9, metadata={"help": "Of SGD."}))],
        bases=(FitSettings,), frozen=True,
    )  # fmt: skip
    new = set(settings_table(added, "fit.").splitlines()) - set(settings_table(FitSettings, "fit.").splitlines())
    assert new == {"| `--fit.momentum` | `0.9` | Of SGD. |"}
    assert "`--fit.learning-rate`" in (ROOT / "docs" / "settings.md").read_text()


def test_the_stored_toy_results_can_be_rebuilt_from_their_records():
    from guss.reports.toy import summarise
    from guss.runs.toy import load_toy

    home = ROOT / "results" / "toy"
    rebuilt = json.loads(json.dumps(summarise(*load_toy(home))))
    assert rebuilt == json.loads((home / "summary.json").read_text())
    assert re.fullmatch("[0-9a-f]{40}", rebuilt["provenance"]["commit"]), "results come from a commit, not from changes"


def test_the_project_speaks_of_itself_alone():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    foreign = re.compile("|".join(["/" + "root/", "/" + "work/", "/" + "tmp/bash", "pypi" + r"\.org", "/" + "home/"]))
    for name in tracked:
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".json", ".txt", ".svg", ""} and path.is_file():
            found = foreign.search(path.read_text(errors="ignore"))
            assert not found, f"{name}: {found.group()}"
