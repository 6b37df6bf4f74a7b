"""`guss.load_results`: runs and episodes as columns."""

import math
import re

import pyarrow
import pytest
from helpers.stored import store

import guss
from guss.reports.inventory import read_record
from guss.reports.run_summary import per_seed

REWARDS = ((-6.0, -2.0, -1.0, -3.0), (-5.0, -4.0, -2.0, -2.0))


@pytest.fixture
def folder(tmp_path):
    settings = {"method_settings": {"num_new": 7}, "model_settings": {"hidden": [8, 8]}}
    store(tmp_path, name="b", rewards=REWARDS, unsafe=((50.0, 10.0, 0.0, 0.0), (30.0, 0.0, 0.0, 4.0)), config=settings)
    store(tmp_path / "deep" / "er", name="a", method="rs", env="safe-acrobot", rewards=((0.0, 1.0), (0.0, 2.0)))
    return tmp_path


def test_a_run_has_a_row_with_its_settings_and_measures(folder):
    runs = guss.load_results(folder).runs
    assert {len(column) for column in runs.values()} == {2}
    row = {name: column[0] for name, column in runs.items()}
    assert (row["run"], row["env"], row["method"], row["path"]) == ("b", "safe-pendulum", "guss", str(folder / "b"))
    assert (row["seeds"], row["episodes"], row["measure"]) == (2, 4, "mean_reward")
    assert (row["horizon"], row["method.num_new"], row["model.hidden"]) == (10, 7, "[8, 8]")
    assert row["mar"] == pytest.approx((-2.0 + -2.0) / 2)  # episodes 3 and 4 of 4
    assert row["unsafe_pct"] == pytest.approx((15.0 + 8.5) / 2)
    assert row["unsafe_trans_pct"] == pytest.approx((50.0 + 30.0) / 2)  # the first of 4 episodes
    assert row["mrcp_ksteps"] == pytest.approx((0.4 + 0.6) / 2)  # −2.5 is reached in episodes 2 and 3 of 200 steps
    expected = per_seed(read_record(folder / "b"))
    assert all(row[name] == pytest.approx(values.mean()) for name, values in expected.items())


def test_what_a_run_does_not_have_is_none(folder):
    runs = guss.load_results(folder).runs
    assert runs["run"] == ["b", "deep/er/a"]
    assert runs["method.num_new"] == [7, None]
    store(folder, name="c", rewards=((-9.0, -9.0),))
    assert math.isclose(guss.load_results(folder).runs["mrcp_ksteps"][0], 0.5)
    assert guss.load_results(folder).runs["mrcp_ksteps"][1] is None  # never reached


def test_measured_costs_are_columns_of_both_tables(tmp_path):
    store(tmp_path, name="new", rewards=REWARDS, measured=lambda seed, episode: {"hazard": float(4 * seed + episode)})
    store(tmp_path, name="old", rewards=REWARDS)
    results = guss.load_results(tmp_path)
    assert results.runs["run"] == ["new", "old"]
    assert (results.runs["unsafe_pct.hazard"], results.runs["unsafe_pct.limit"]) == ([3.5, None], [0.0, None])
    assert results.episodes["unsafe_pct.hazard"] == [0.0, 4.0, 1.0, 5.0, 2.0, 6.0, 3.0, 7.0] + [None] * 8


def test_an_episode_has_a_row_for_each_seed(folder):
    episodes = guss.load_results(str(folder)).episodes
    assert {len(column) for column in episodes.values()} == {2 * 4 + 2 * 2}
    rows = [dict(zip(episodes, values, strict=True)) for values in zip(*episodes.values(), strict=True)]
    [one] = [row for row in rows if (row["run"], row["seed"], row["episode"]) == ("b", 1, 3)]
    assert (one["env"], one["method"], one["phase"], one["steps"]) == ("safe-pendulum", "guss", "plan", 200)
    assert (one["mean_reward"], one["return"], one["unsafe_pct"], one["status"]) == (-2.0, -400.0, 4.0, "ok")
    assert [row["phase"] for row in rows if row["episode"] == 0] == ["random"] * 4


def test_columnar_libraries_take_the_tables_of_runs_with_several_constraints():
    results = guss.load_results("results/oracle")
    assert {"cost.unsafe_angle", "cost.too_high"} <= set(results.episodes)
    assert results.skipped == ()
    for table in (results.runs, results.episodes):
        arrow = pyarrow.table(table)
        assert arrow.num_rows == len(table["run"])
        assert arrow.column_names == list(table)
        assert not any(pyarrow.types.is_nested(kind) for kind in arrow.schema.types)


def test_a_single_run_and_several_with_the_same_settings(folder):
    single = guss.load_results(folder / "b")
    assert single.runs["run"] == ["b"]
    store(folder / "again", name="b", rewards=REWARDS)
    assert guss.load_results(folder).runs["run"] == ["again/b", "b", "deep/er/a"]


def test_runs_that_cannot_be_read_are_named_and_the_others_are_kept(folder):
    (folder / "b" / "episodes.jsonl").write_text("not JSON\n")
    store(folder, name="empty", rewards=((),))
    results = guss.load_results(folder)
    assert results.runs["run"] == ["deep/er/a"]
    assert [bool(re.search(text, why)) for text, why in zip(("not JSON", "no finished"), results.skipped, strict=True)]
    assert "b/episodes.jsonl" in results.skipped[0]
    assert "empty has no finished episode yet" in results.skipped[1]


def test_a_folder_that_is_not_there_is_an_error_and_an_empty_one_is_empty(tmp_path):
    with pytest.raises(guss.GussError, match="there is no folder"):
        guss.load_results(tmp_path / "nowhere")
    assert guss.load_results(tmp_path) == guss.Results({}, {}, ())


def test_no_environment_or_plugin_of_a_run_is_imported(tmp_path):
    marker, module = tmp_path / "marker", tmp_path / "theirs.py"
    module.write_text(f"import pathlib\npathlib.Path({str(marker)!r}).write_text('imported')\n")
    store(tmp_path, name="x", env=f"{module}:make_env", method="theirs", rewards=((1.0, 2.0),))
    assert guss.load_results(tmp_path).runs["method"] == ["theirs"]
    assert not marker.exists()
