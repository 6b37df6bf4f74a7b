"""`guss report`: all its files from stored records, whatever state they are in; a real page in a browser."""

import base64
import gzip
import io
import json
import re
import shutil
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from helpers.stored import store
from rich.console import Console

from guss.cli.table_display import print_report
from guss.reports.page import build_page, make_payload
from guss.reports.report import differences, draw_all, make_report, to_markdown, write_report

RESULTS = Path(__file__).resolve().parents[2] / "results"
RISING = np.asarray([[-6.0, -3.0, -1.0, -2.0], [-6.0, -2.0, -2.0, -2.0], [-5.0, -2.6, -2.6, -2.4]])
MAPS = {"schema": 1, "labels": ["x", "y"], "limits": [[0, 1], [0, 2]], "cells": [4, 5], "unsafe_zone": [[0.5, 1, 0, 2]],
        "visited": [[0, 0, 30], [3, 4, 2]], "unsafe": [[3, 4, 2]], "covered": [0.05, 0.1], "seeds": 3, "episodes": 2,
        "numbers": [0, 1]}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs as they come: whole, partial and broken ones, and a group."""
    folder = tmp_path_factory.mktemp("stored") / "results"
    store(folder / "runs", method="guss", rewards=RISING, unsafe=0.5)
    (folder / "runs").joinpath(sorted(p.name for p in (folder / "runs").iterdir())[0], "maps.json.gz").write_bytes(
        gzip.compress(json.dumps(MAPS).encode(), mtime=0)
    )
    broken = store(folder / "runs", method="s-rs", rewards=RISING - 1.0, unsafe=0.1, asked=50)
    for name in ("maps.json.gz", "animation.json.gz"):
        (broken / name).write_bytes(b"not gzip")
    store(folder / "runs", method="cpo", rewards=np.linspace(-6, -1, 90).reshape(3, 30), unsafe=2.0)
    store(folder / "runs", method="random", rewards=RISING * 0 - 6.0, unsafe=1.0)
    store(folder / "paper", method="guss", rewards=RISING, config={"horizon": 30, "model_settings": {"ensemble": 1}})
    (folder / "paper" / "README.md").write_text("# The paper's own settings\n")
    return folder


@pytest.fixture(scope="module")
def files(folder):
    """Made once: figures take seconds."""
    return write_report(folder)


def payload_in(html):
    return json.loads(re.search(r'<script[^>]*id="payload"[^>]*>(.*?)</script>', html, re.DOTALL)[1])


def test_it_makes_every_file_and_says_where(folder, files):
    out = folder / "report"
    assert files[0] == out / "report.html"
    assert all(path.stat().st_size > 500 for path in files)
    kinds = {"learning-safe-pendulum", "pareto-safe-pendulum", "model-safe-pendulum", "coverage-safe-pendulum",
             "states-safe-pendulum", "gallery"}  # fmt: skip
    figures = {path.name for path in files if path.parent.name == "figures"}
    assert figures == {f"{kind}.{end}" for kind in kinds for end in ("png", "svg")}
    drawn = (out / "figures" / "learning-safe-pendulum.svg").read_text()
    for colour in ("#0072b2", "#009e73", "#882255", "#c0392b"):
        assert colour in drawn, "a method keeps its colour; random actions are the red line"
    assert not [path for path in (folder / "runs").rglob("report*")], "nothing is written to the runs"


def test_what_cannot_be_shown_is_told_on_the_page_and_the_rest_is_there(folder, files):
    payload = payload_in(files[0].read_text())
    told = "\n".join(payload["missing"])
    assert "S-RS: 4 of 50 episodes were run" in told
    assert "S-RS: no state map" in told
    assert "S-RS: its animation cannot be read" in told
    assert "neither maps nor traces of" in told
    (env,) = payload["envs"]
    assert [row["method"] for row in env["rows"]] == ["s-rs", "guss", "cpo", "random"]
    assert env["curves"][0]["random"] == {"value": -6.0}
    assert env["curves"][0]["logx"], "30 episodes beside 4"
    assert {run["run"] for run in payload["runs"]} >= {row["run"] for row in env["rows"]}
    assert (files[0].parent / payload["runs"][0]["folder"]).is_dir()
    assert payload["groups"][0]["label"] == "The paper's own settings"
    assert base64.b64decode(env["figures"][0]["src"].partition(",")[2])


def test_groups_say_by_what_they_differ(folder):
    report = make_report(folder)
    (record,) = report.found.groups["paper"]
    assert differences(report, record) == ["horizon 30 instead of 10", "model.ensemble 1 instead of 5"]
    text = (folder / "report" / "table.md").read_text()
    assert "## The paper's own settings (`paper/`)" in text
    assert "horizon 30 instead of 10" in text


def test_what_all_runs_of_a_group_differ_by_is_told_once(tmp_path):
    for method in ("guss", "s-rs"):
        store(tmp_path / "runs", method=method)
        store(tmp_path / "long", method=method, name=method, config={"horizon": 30, "budget": len(method)})
        store(tmp_path / "odd", method=method, name=method, config={"budget": len(method + "!")})
    store(tmp_path / "runs", method="rs")
    store(tmp_path / "long", method="rs", name="rs", config={"horizon": 30})
    lines = to_markdown(make_report(tmp_path)).splitlines()
    told = [line for line in lines if "instead of" in line]
    assert told == [
        "- all: horizon 30 instead of 10",
        "- `s-rs` also: budget 4 instead of 100",
        "- `guss` also: budget 4 instead of 100",
        "- all: budget 5 instead of 100",
    ]


def test_methods_of_a_group_are_tested_against_each_other(tmp_path):
    for method, less in (("guss", 0.0), ("s-rs", 3.0)):
        store(tmp_path / "paper", method=method, rewards=RISING - less)
        store(tmp_path / "twice", method=method, rewards=RISING - less)
    store(tmp_path / "twice", name="safe-pendulum-guss-00000030", rewards=RISING, config={"horizon": 30})
    report = make_report(tmp_path)
    (mar,) = (t for t in report.groups["paper"].tests["safe-pendulum"] if t["measure"] == "mar")
    assert {mar["a"], mar["b"]} == {"guss", "s-rs"}
    assert abs(mar["difference"]) == 3.0
    assert 0.0 < mar["p"] < 0.01
    pairs = {(t["a"], t["b"]) for t in report.groups["twice"].tests["safe-pendulum"]}
    assert pairs == {("s-rs", "guss (horizon 30)"), ("s-rs", "guss (horizon 10)"),
                     ("guss (horizon 10)", "guss (horizon 30)")}  # fmt: skip
    assert to_markdown(report).count("Welch's t-test against GuSS") == 1


def test_the_same_records_give_the_same_bytes(folder, files, tmp_path):
    """Wherever they lie, and whatever lay in the report's folder before."""
    moved = shutil.copytree(folder, tmp_path / "results", ignore=shutil.ignore_patterns("report"))
    report, figures = make_report(moved), tmp_path / "figures"
    old = figures / "learning-elsewhere.png"
    figures.mkdir()
    old.write_bytes(b"of an earlier report")
    drawn, notes = draw_all(report, figures, lambda part: None)
    html = build_page(make_payload(report, moved / "report", drawn, notes, "guss report results"))
    made = {path.name: path for path in files}
    assert to_markdown(report) == made["table.md"].read_text()
    assert html == made["report.html"].read_text()
    for paths in drawn.values():
        assert all(path.read_bytes() == made[path.name].read_bytes() for path in paths)
    assert not old.exists()


def test_the_command_shows_the_table(folder, files, guss_here, tmp_path):
    told = guss_here("report", folder / "paper", "--out", tmp_path / "out", "--json", check=0)
    assert json.loads(told.stdout)["safe_pendulum"]["guss"]["mar"] == [-2.0, 0.4748]
    assert (tmp_path / "out" / "report.html").exists()
    console = Console(width=120, file=io.StringIO())
    print_report(console, files)
    shown = console.file.getvalue()
    assert "-2.000 ± 0.475 [-2.2]" in shown
    assert "S-RS: 4 of 50 episodes were run" in shown
    assert "figures (12 files)" in shown
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "there is no run in" in guss_here("report", empty, check=2).stderr
    assert "there is no folder" in guss_here("report", tmp_path / "none", check=2).stderr
    assert not (empty / "report").exists()


def test_the_command_shows_measured_costs(tmp_path):
    store(tmp_path, method="guss", rewards=RISING, unsafe=0.5, measured=lambda seed, episode: {"hazard": 2.5})
    store(tmp_path, method="s-rs", rewards=RISING)
    console = Console(width=120, file=io.StringIO())
    print_report(console, write_report(tmp_path))
    shown = console.file.getvalue()
    assert "hazard %" in shown
    assert "2.500 ± 0.000" in shown
    assert "limit %" not in shown, "a single constraint is p(unsafe)"


def test_only_broken_runs_are_an_error_that_names_them(tmp_path, guss_here):
    (store(tmp_path / "runs", method="guss", name="empty") / "episodes.jsonl").write_text("")
    process = guss_here("report", tmp_path / "runs", check=2)
    assert "there is no readable run in" in process.stderr
    assert "empty has no finished episode yet; it is left out" in process.stderr
    assert not (tmp_path / "runs" / "report").exists()


def test_the_committed_page_works_in_a_browser(open_page):
    """Real records: no errors, nothing fetched, the table sorts, an animation plays."""
    html = (RESULTS / "report" / "report.html").read_text()
    page = open_page(html)
    table = page.locator("#env-safe-pendulum .scrolls").first
    rows = lambda: table.locator("tbody tr:not(.section)").evaluate_all("r => r.map(x => x.dataset.method)")  # noqa: E731
    before = rows()
    assert {"guss", "s-rs", "safe-mbpo", "rcem", "rs", "cem", "cpo", "ppo-lagrangian", "random"} <= set(before)
    table.locator("thead button").nth(1).click()
    first = rows()
    table.locator("thead button").nth(1).click()
    assert first != before
    assert rows() != first
    animations = {env["name"]: {each["method"] for each in env["animations"]} for env in payload_in(html)["envs"]}
    for env in ("safe-pendulum", "safe-acrobot", "safe-car-goal"):
        assert {"guss", "s-rs", "rcem", "rs", "cem", "cpo", "ppo-lagrangian", "random"} <= animations[env], env
    page.locator("#env-safe-pendulum .player").scroll_into_view_if_needed()
    step = lambda: int(page.locator("#env-safe-pendulum .player input[type=range]").input_value())  # noqa: E731
    page.wait_for_function(
        "() => Number(document.querySelector('#env-safe-pendulum .player input[type=range]').value) > 0"
    )
    seen = step()
    page.wait_for_function(
        f"() => Number(document.querySelector('#env-safe-pendulum .player input[type=range]').value) != {seen}"
    )


def test_the_pareto_axis_is_linear_unless_values_span_orders_of_magnitude(tmp_path):
    from guss.reports.inventory import gather
    from guss.reports.pareto import draw_pareto
    from guss.reports.table import rows_of

    for folder, shares in (("near", (2.0, 12.0, 17.0)), ("none", (0.0, 0.0, 0.0)), ("far", (0.0, 0.05, 20.0))):
        for method, share in zip(("guss", "s-rs", "rs"), shares, strict=True):
            store(tmp_path / folder, "mine.py:make_env", method, [[-2.0 * len(method)] * 4], unsafe=share)
        figure = draw_pareto("mine.py:make_env", rows_of(gather(tmp_path / folder).records))
        (axes,) = figure.axes
        low, high = axes.get_xlim()
        ticks = [tick for tick in axes.get_xticks() if low <= tick <= high]
        assert axes.get_title() == "", "there is no second panel to tell it from"
        assert len(ticks) >= 4
        assert low <= 0.0 < max(shares) + 0.1 < high
        assert (axes.get_xscale() == "linear") == ("log scale" not in axes.get_xlabel()) == (folder != "far")
        plt.close(figure)


def test_an_extended_run_shows_what_extended_it(tmp_path):
    home = store(tmp_path / "runs", method="guss", rewards=RISING)
    stored = json.loads((home / "config.json").read_text())
    more = [{"episodes": 2, "target": None, "command": "guss run --resume x --episodes 4"}]
    (home / "config.json").write_text(json.dumps(stored | {"extended": more}))
    text = to_markdown(make_report(tmp_path / "runs"))
    assert "`guss run --env safe-pendulum --method guss && guss run --resume x --episodes 4`" in text


def test_the_learning_figure_tells_kinds_of_random_actions_apart(tmp_path):
    from guss.reports.curves import draw_learning
    from guss.reports.inventory import gather

    store(tmp_path, "mine.py:make_env", "guss", RISING, config={"explore": "smooth"})
    store(tmp_path, "mine.py:make_env", "random", RISING)
    planned, random = gather(tmp_path).records
    figure = draw_learning([planned], random)
    assert "episode 1: smooth random actions" in figure.legends[0].get_title().get_text()
    assert "Random (independent)" in [text.get_text() for text in figure.legends[0].get_texts()]
    plt.close(figure)
