"""Action jitter: its definition, and its way through records and reports."""

import io
import itertools
import json
import re

import numpy as np
import pytest
from helpers.problems import ACTIONS
from helpers.short_runs import config, run_one
from helpers.stored import store
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import guss
from guss.cli.display import print_run_summary
from guss.cli.table_display import _columns_of
from guss.collect.datasets import read_trace
from guss.collect.episode_metrics import action_jitter
from guss.errors import GussError
from guss.reports.inventory import read_record
from guss.reports.page import make_payload
from guss.reports.report import make_report, to_markdown
from guss.reports.run_summary import summarise_run
from guss.reports.table import to_json
from guss.runs.metrics import asymptotic_jitter
from guss.runs.rows import read_episodes
from guss.runs.store import trace_path
from guss.types import ContinuousActions


def slow_jitter(actions, taken):
    """One number of one step at a time."""
    changes = []
    for before, after in itertools.pairwise(taken):
        for i, (a, b) in enumerate(zip(np.ravel(before), np.ravel(after), strict=True)):
            if isinstance(actions, ContinuousActions):
                changes.append(abs(float(b) - float(a)) / (actions.high[i] - actions.low[i]))
            else:
                changes.append(float(a != b))
    return sum(changes) / len(changes)


@pytest.mark.parametrize("kind", ACTIONS)
@given(seed=st.integers(0, 2**31 - 1), steps=st.integers(2, 12))
def test_jitter_is_that_of_the_slow_reference_and_a_share(kind, seed, steps):
    actions, rng = ACTIONS[kind], np.random.default_rng(seed)
    if isinstance(actions, ContinuousActions):
        taken = rng.uniform(actions.low, actions.high, (steps, *actions.shape)).astype(np.float32)
        taken = actions.rounded(np.where(rng.random(taken.shape) < 0.2, actions.high, taken))
    else:
        first = np.reshape(actions.first, actions.shape)
        taken = (
            first + rng.integers(0, np.reshape(actions.num_values, actions.shape), (steps, *actions.shape))
        ).astype(np.int32)
    jitter = action_jitter(actions, taken)
    assert jitter == pytest.approx(slow_jitter(actions, taken), rel=1e-12)
    assert 0.0 <= jitter <= 1.0
    assert action_jitter(actions, np.repeat(taken[:1], 3, axis=0)) == 0.0


def test_the_largest_jitter_is_one_and_that_of_a_single_action_undefined():
    actions = ACTIONS["continuous"]
    ends = actions.rounded(np.asarray([actions.low, actions.high] * 4))
    assert action_jitter(actions, ends) == pytest.approx(1.0)
    assert action_jitter(actions, ends[:1]) is None
    assert action_jitter(ACTIONS["discrete"], np.asarray([0, 1, 1, 3, 3], np.int32)) == 0.5


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return run_one(config(), tmp_path_factory.mktemp("jitter"))


def test_a_record_has_the_jitter_of_its_trace_and_python_has_it_too(home):
    rows = read_episodes(home)
    for row in rows:
        trace = read_trace(trace_path(home, row["seed"], row["episode"])).trajectory
        taken = np.asarray(trace.action).reshape(-1, 1)
        assert row["jitter"] == pytest.approx(slow_jitter(ContinuousActions((-2.0,), (2.0,)), taken))
    run = guss.Run(home)
    assert [episode.jitter for episode in run.episodes] == [row["jitter"] for row in rows]
    late = [np.mean([row["jitter"] for row in rows if row["seed"] == seed and row["episode"] >= 1]) for seed in (3, 4)]
    np.testing.assert_allclose(run.metrics.jitter, late)
    assert summarise_run(home)["jitter"][0] == pytest.approx(np.mean(late), abs=1e-4)
    results = guss.load_results(home)
    assert results.runs["jitter"] == [pytest.approx(np.mean(late))]
    assert results.episodes["jitter"] == [row["jitter"] for row in rows]


def lines_with(home, values):
    """Give the lines of a stored run these jitters; ... leaves the key out."""
    path = home / "episodes.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines = [line if value is ... else line | {"jitter": value} for line, value in zip(lines, values, strict=True)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_runs_of_earlier_versions_have_none(tmp_path):
    home = store(tmp_path)
    assert np.isnan(guss.Run(home).metrics.jitter).all()
    assert guss.Run(home).episodes[0].jitter is None
    assert "jitter" not in summarise_run(home)
    assert "jitter" not in guss.load_results(tmp_path).runs
    lines_with(home, [..., 0.5, 0.5, 0.5])  # resumed by a later version: not an average of some episodes
    assert "jitter" not in summarise_run(home)


def test_episodes_of_a_single_step_do_not_count(tmp_path):
    home = store(tmp_path)
    lines_with(home, [0.9, 0.8, None, 0.25])
    assert guss.Run(home).metrics.jitter.tolist() == [0.25]
    lines_with(home, [None] * 4)
    assert np.isnan(guss.Run(home).metrics.jitter).all()
    assert summarise_run(home)["jitter"] == [None, None]
    np.testing.assert_array_equal(asymptotic_jitter([[0.5, 0.1, 0.3], [0.5, np.nan, np.nan]]), [0.2, np.nan])
    lines_with(home, ["much"] * 4)
    with pytest.raises(GussError, match=r"expected a number as 'jitter', got 'much'"):
        read_record(home)


def test_reports_have_a_column_if_a_run_has_it(tmp_path):
    store(tmp_path, method="rcem")
    assert "jitter" not in to_markdown(make_report(tmp_path))
    lines_with(store(tmp_path), [0.9, 0.8, 0.125, 0.25])
    report = make_report(tmp_path)
    text = to_markdown(report)
    assert "jitter: mean change of the action from step to step" in text
    [head] = [line for line in text.splitlines() if "| jitter |" in line]
    place = head.split(" | ").index("jitter")
    cells = {line.split(" | ")[0]: line.split(" | ")[place] for line in text.splitlines() if line.count(" | ") > place}
    assert cells["| GuSS"] == "0.188"
    assert cells["| RCEM"] == "–"
    table = to_json(report.tables)["safe_pendulum"]
    assert table["guss"]["jitter"] == [0.1875, None]
    assert "jitter" not in table["rcem"]
    [env] = make_payload(report, tmp_path, {}, [], "guss report")["envs"]
    assert [row["jitter"] for row in env["rows"] if row["method"] in ("guss", "rcem")] == [None, [0.1875, None]][::-1]
    printed = dict(_columns_of(list(table.values())))
    assert sorted(cell.plain for cell in printed["jitter"]) == ["0.188", "–"]


def test_the_summary_of_a_run_has_a_row_if_it_is_stored(tmp_path):
    shown = []
    for values in ([...] * 4, [0.9, 0.8, 0.125, 0.25]):
        home = store(tmp_path / str(len(shown)))
        lines_with(home, values)
        console = Console(file=io.StringIO(), width=120)
        print_run_summary(console, [summarise_run(home)], [])
        shown.append(console.file.getvalue())
    assert "jitter" not in shown[0]
    assert re.search(r"jitter +│ +0.188", shown[1])
