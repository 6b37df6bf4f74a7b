"""A report on runs whose names are written against it: files stay in its folder, text stays text, nothing runs."""

import io
import json
import re

import pytest
from helpers.stored import store
from markdown_it import MarkdownIt
from rich.console import Console
from test_labels import add_facts
from test_report import MAPS, RISING, payload_in

from guss.cli.table_display import print_report
from guss.reports.report import write_report
from guss.runs.store import write_packed

SCRIPT = '</script><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
ENVS = [
    "../../../escaped",
    f"x{SCRIPT}|`a` $\\frac{{\n\u202e\ud800:make_env",
    "/absolute/中文\\input{x}.py:" + "long" * 100,
]
METHOD = f"_m$x|`{SCRIPT}` \\input{{x}} ~^ [b](javascript:alert)"
GROUP = "g|`<b>x` $"
COST = f"c|_$`{SCRIPT}` \\input{{x}} [b](javascript:alert)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile") / "deep" / "down" / "`|<i>results"
    for i, env in enumerate(ENVS):
        home = store(folder, env, METHOD, RISING, name=f"run-{i} `|<b>", config={"note": SCRIPT, "horizon": 5},
                     measured=lambda seed, episode: {COST: 1.5})  # fmt: skip
        write_packed(home / "maps.json.gz", MAPS | {"labels": ["$\\bad{", f"{SCRIPT}"]})
    store(folder, ENVS[0], METHOD, RISING + 1, name="more", config={"note": f"{SCRIPT}2", "$|`": SCRIPT})
    add_facts(store(folder, ENVS[0], "guss", RISING, name="facts"))
    store(folder, ENVS[0], "random", RISING, name="[red]random[bold]")
    store(folder / GROUP, ENVS[1], METHOD, RISING, name="one")
    store(folder / GROUP, ENVS[1], METHOD, RISING, name="two")
    (folder / GROUP / "README.md").write_bytes(b"# `code` <script>x</script> | \xff\n")
    for path in folder.rglob("config.json"):
        stored = json.loads(path.read_text())
        stored["provenance"] |= {"command": f"guss run\n`|{SCRIPT}", "commit": f"|{SCRIPT}", "date": SCRIPT}
        path.write_text(json.dumps(stored))
    return folder


@pytest.fixture(scope="module")
def files(folder):
    return write_report(folder, folder / "out")


def test_every_file_is_in_the_reports_folder(folder, files):
    out = folder / "out"
    assert all(path.resolve().parent in (out.resolve(), (out / "figures").resolve()) for path in files)
    figures = {path.name for path in files if path.parent.name == "figures"}
    for kind in ("learning", "pareto", "model", "states"):
        assert len([name for name in figures if name.startswith(f"{kind}-") and name.endswith(".png")]) == len(ENVS)
    top = folder.parents[2]
    assert [path.name for path in top.iterdir()] == ["deep"], "nothing is written beside it"
    assert all(re.fullmatch(r"[A-Za-z0-9-]+\.(png|svg)", name) for name in figures)


def test_markdown_and_latex_hold_text(files):
    text = (files[0].parent / "table.md").read_text()
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    kinds = {child.type for token in tokens for child in token.children or ()} | {token.type for token in tokens}
    assert not {"html_inline", "html_block", "link_open", "image", "blockquote_open"} & kinds
    rows = [line for line in text.splitlines() if line.startswith("|")]
    widths = {len(re.findall(r"(?<!\\)\|", re.sub(r"\\\\", "", row))) for row in rows}
    assert widths <= {5, 7, 8, 10, 11, 14}, "no row has more cells than its table"
    latex = (files[0].parent / "table.tex").read_text()
    assert latex.isascii()
    assert "\\input" not in latex
    assert latex.count("{") == latex.count("}")
    lines = [line for line in latex.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert all(len(re.findall(r"(?<!\\)&", line)) == 10 for line in lines)


def test_the_page_shows_them_and_runs_nothing(files, open_page):
    html = files[0].read_text()
    payload = payload_in(html)
    page = open_page(html)
    page.wait_for_timeout(300)
    assert page.evaluate("window.hacked") is None
    assert page.locator("main script, main img[src=x], main b > i").count() == 0
    assert page.locator("section.env").count() == len(ENVS)
    shown = page.locator("section.env h2").all_text_contents()
    assert len(set(shown)) == len(ENVS)
    assert page.locator(".run").count() == len(payload["runs"]) == len({run["run"] for run in payload["runs"]})
    assert SCRIPT in page.locator(".run .command code").first.text_content()
    (env,) = [env for env in payload["envs"] if env["name"] == ENVS[0]]
    labels = [row["label"] for row in env["rows"]]
    assert len(set(labels)) == 4
    assert "GuSS" in labels


def test_the_terminal_shows_them(files):
    console = Console(width=200, file=io.StringIO())
    print_report(console, files)
    shown = console.file.getvalue()
    assert "_m$x|`</script>" in shown
    assert "\x1b" not in shown


def test_values_that_are_no_numbers_leave_a_run_out_and_are_told(tmp_path):
    store(tmp_path, "mine.py:make_env", "guss", RISING)
    for i, (field, value) in enumerate([("mean_reward", "$x$"), ("steps", None), ("return", float("nan"))]):
        home = store(tmp_path, "mine.py:make_env", "s-rs", RISING, name=f"bad-{i}")
        row = json.loads((home / "episodes.jsonl").read_text().splitlines()[0]) | {field: value}
        (home / "episodes.jsonl").write_text(json.dumps(row) + "\n")
    bad = store(tmp_path, "mine.py:make_env", "s-rs", RISING, name="bad-config")
    (bad / "config.json").write_text((bad / "config.json").read_text().replace('"machine": {', '"machine": 3, "m": {'))
    maps = store(tmp_path, "mine.py:make_env", "s-rs", RISING, name="bad-maps")
    write_packed(maps / "maps.json.gz", MAPS | {"cells": [10**9, 10**9]})
    payload = payload_in(write_report(tmp_path)[0].read_text())
    told = "\n".join(payload["missing"])
    for name in ("bad-0", "bad-1", "bad-2", "bad-config"):
        assert re.search(rf"{name}/[a-z.]+.* it is left out", told), name
    assert "its cells, limits and counts are inconsistent" in told
