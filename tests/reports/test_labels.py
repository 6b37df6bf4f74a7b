"""Rows and figures are kept apart by what they are: environment, method and settings."""

import io
import json

import numpy as np
import pytest
from helpers.stored import store
from rich.console import Console
from test_report import MAPS, RISING, payload_in

from guss.reports.escapes import file_stem
from guss.reports.inventory import by_env, gather
from guss.reports.labels import ADDED, json_keys, name_envs, name_rows, settings_key
from guss.reports.report import make_report, to_markdown, write_report
from guss.reports.table import rows_of, to_json, to_latex
from guss.runs.config import make_config
from guss.runs.store import write_packed

A, B = file_stem("mine.py:make_a"), file_stem("mine.py:make_b")
SAFE = {"plans": True, "policy": False, "safe": True, "model_based": True, "origin": "my_planner"}


def add_facts(home, **more):
    """What a run of a plugin's planner on somebody's environment stores."""
    env = {"label": "mine", "about": "", "episode_length": 200, "measure": None, "map": None}
    env |= {"constraints": [{"name": "limit", "hard": False}]}
    path = home / "config.json"
    facts = {"env": env, "method": SAFE, "plugins": ["my_planner.py"]}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"report": facts} | more))
    return home


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two environments of one file; GuSS with two horizons on the first; one setting run twice."""
    folder = tmp_path_factory.mktemp("stored") / "results"
    for horizon, better in ((20, 0.5), (3, 0.0)):
        home = store(
            folder, "mine.py:make_a", "guss", RISING + better, name=f"a-guss-{horizon}", config={"horizon": horizon}
        )
        write_packed(home / "maps.json.gz", MAPS | {"limits": [[0, horizon], [0, 2]]})
    store(folder, "mine.py:make_a", "s-rs", RISING - 1.0, name="a-s-rs")
    store(folder, "mine.py:make_b", "guss", RISING * 2, name="b-guss", seeds=[0, 1, 2])
    store(folder, "mine.py:make_b", "guss", RISING[:1] * 2, name="b-guss-again", seeds=[7])
    return folder


def test_every_setting_has_its_row_and_says_what_differs(folder):
    report = make_report(folder)
    rows = report.tables["mine.py:make_a"]
    assert [(row.key, row.label) for row in rows] == [
        ("s-rs", "S-RS"), ("guss (horizon 3)", "GuSS (horizon 3)"), ("guss (horizon 20)", "GuSS (horizon 20)")
    ]  # fmt: skip
    assert [row.measures["mar"]["mean"] for row in rows] == [-3.0, -2.0, -1.5]
    plain = to_json(report.tables)
    assert set(plain) == {"mine.py:make_a", "mine.py:make_b"}
    assert set(plain["mine.py:make_a"]) == {"s_rs", "guss_horizon_3", "guss_horizon_20"}
    assert set(plain["mine.py:make_b"]) == {"guss"}, "a method with one setting keeps its name"
    pairs = {(t["a"], t["b"]) for t in report.tests["mine.py:make_a"] if t["measure"] == "mar"}
    assert pairs == {
        ("s-rs", "guss (horizon 3)"),
        ("s-rs", "guss (horizon 20)"),
        ("guss (horizon 3)", "guss (horizon 20)"),
    }
    assert "GuSS (horizon 20)" in to_latex(report.tables)
    text = to_markdown(report)
    assert "GuSS (horizon 20) has the highest mean reward: −1.500" in text
    (glance,) = [
        line for line in text.splitlines() if line.startswith("| GuSS (horizon 20) | ") and line.count("|") == 6
    ]
    assert glance.split(" | ")[3] == "–", "it was not run on the second environment"
    styles = [(row.style["color"], row.style["linestyle"]) for row in rows]
    assert len(set(styles)) == 3


def test_runs_that_differ_in_seeds_alone_are_one_row_and_a_note(folder):
    found = gather(folder)
    assert [r.name for r in by_env(found.records)["mine.py:make_b"]] == ["b-guss"]
    told = [note for note in found.notes if "several runs" in note]
    assert told == [
        "mine-make-b, GuSS: several runs with the same settings; b-guss is shown (most episodes, or latest), "
        "b-guss-again is not."
    ]


def test_figures_and_page_keep_environments_and_settings_apart(folder):
    files = write_report(folder)
    figures = {path.name for path in files if path.parent.name == "figures"}
    kinds = {"learning", "pareto", "model"}
    for env in (A, B):
        assert {f"{kind}-{env}.png" for kind in kinds} <= figures
    assert {name for name in figures if name.startswith("states")} == {
        f"states-{A}.png", f"states-{A}.svg"
    }  # fmt: skip
    assert not any(name.startswith("coverage") for name in figures), "two planes have no cells in common"
    payload = payload_in(files[0].read_text())
    assert any("counted on different planes" in note for note in payload["missing"])
    first, second = payload["envs"]
    assert (first["id"], second["id"]) == (A, B)
    keys = [row["method"] for row in first["rows"]]
    assert keys == ["s-rs", "guss (horizon 3)", "guss (horizon 20)"]
    assert [line["method"] for line in first["curves"][0]["lines"]] == keys
    assert len({(row["color"], row["dash"]) for row in first["rows"]}) == 3


def test_a_plugins_safe_planner_stays_one_without_the_plugin(tmp_path):
    store(tmp_path, "mine.py:make_env", "s-rs", RISING)
    add_facts(store(tmp_path, "mine.py:make_env", "my-planner", RISING + 1.0))
    (other, mine) = rows_of(gather(tmp_path).records)
    assert (mine.method, mine.section, mine.safe) == ("my-planner", other.section, True)
    assert mine.measures["mar"]["best"]
    assert mine.plan_ms is not None
    assert mine.evaluations == 100 * 10 * 5


def test_all_runs_of_an_environment_are_measured_alike(tmp_path):
    """Episodes of one ended early: their mean reward must not stand beside returns."""
    short = store(tmp_path, "mine.py:make_env", "guss", RISING, steps=200)
    store(tmp_path, "mine.py:make_env", "s-rs", RISING, steps=200)
    lines = [json.loads(line) for line in (short / "episodes.jsonl").read_text().splitlines()]
    lines[0]["steps"] = 50
    (short / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = gather(tmp_path)
    assert {record.measure for record in found.records} == {"return"}
    assert {row.measures["mar"]["mean"] for row in rows_of(found.records)} == {-400.0}


def test_damaged_facts_are_told(tmp_path):
    add_facts(store(tmp_path, "mine.py:make_env", "guss", RISING), report={"env": {}})
    store(tmp_path, "mine.py:make_env", "s-rs", RISING)
    found = gather(tmp_path)
    assert [record.method for record in found.records] == ["s-rs"]
    assert any("config.json.report.env.label is missing" in note for note in found.notes)


def test_names_are_different_whatever_the_settings():
    config = {"env": "e", "method": "guss", "seeds": [0, 1], "episodes": 5}
    many = [config | {f"setting_{i}": (i == j) for i in range(9)} for j in range(9)]
    names = name_rows(many, [f"run-{i}" for i in range(9)])
    assert len({name.label for name in names}) == len({name.key for name in names}) == 9
    assert [name.label for name in name_rows([config, config | {"seeds": [2]}], ["x", "y"])] == [
        "GuSS (seeds 0–1, 5 episodes)", "GuSS (seed 2, 5 episodes)"
    ]  # fmt: skip
    assert [name.label for name in name_rows([config, config], ["x", "y"])] == [
        "GuSS (seeds 0–1, 5 episodes), x", "GuSS (seeds 0–1, 5 episodes), y"
    ]  # fmt: skip
    oracle = [config | {"model": "oracle", "horizon": h, "model_settings": {"hidden": [h]}} for h in (5, 10)]
    assert [name.key for name in name_rows(oracle, ["x", "y"])] == ["guss (horizon 5)", "guss (horizon 10)"]
    assert len(set(json_keys(["a-b", "a_b", "a (b)", "a (b!)"]))) == 4
    assert name_envs({"a/plant.py:make_env": "plant", "b/plant.py:make_env": "plant", "safe-toy": "Toy world"}) == {
        "a/plant.py:make_env": "a/plant.py:make_env", "b/plant.py:make_env": "b/plant.py:make_env",
        "safe-toy": "Toy world",
    }  # fmt: skip
    long = name_envs({f"{'x' * 100}{i}": f"{'x' * 100}{i}" for i in range(2)})
    assert len(set(long.values())) == 2


def test_a_gymnasium_id_of_ours_is_the_environment_itself(tmp_path):
    store(tmp_path, "guss/SafePendulum-v0", "guss", RISING, name="one")
    store(tmp_path, "safe-pendulum", "s-rs", RISING, name="two")
    assert list(make_report(tmp_path).tables) == ["safe-pendulum"]


def test_a_dot_in_a_name_does_not_cut_it(tmp_path):
    from guss.reports.style import new_figure, save_figure

    saved = [save_figure(new_figure(1, 1, 1, 1)[0], tmp_path / name) for name in ("toy.v1-a", "toy.v1-b")]
    files = [next(iter(each)).name for each in saved]
    assert files == ["toy.v1-a.png", "toy.v1-b.png"]


def test_maps_of_runs_without_a_plane_share_one(tmp_path):
    """Where an environment has no map of its own, the runs of a report are counted by the same cells."""
    from guss.reports.report import read_all_maps

    for method, scale in (("guss", 1.0), ("s-rs", 5.0)):
        home = add_facts(store(tmp_path, "mine.py:make_env", method, RISING[:1]))
        (home / "traces").mkdir()
        for episode in range(4):
            obs = scale * np.random.default_rng(episode).normal(size=(200, 3)).astype(np.float32)
            zero = np.zeros((200, 1), np.float32)
            arrays = {"obs": obs, "next_obs": obs, "action": zero, "reward": zero[:, 0], "cost": 1.0 * (obs[:, :1] > 0)}
            np.savez(home / "traces" / f"seed0-ep{episode}.npz", **arrays)
    found = read_all_maps(gathered := gather(tmp_path), gathered.records, notes := [])
    (first, second) = (maps for _, maps in found)
    assert notes == []
    assert first["limits"] == second["limits"]
    assert len(second["visited"]) != len(first["visited"])
    assert sum(n for _, _, n in first["unsafe"]) > 0


def test_logged_data_are_named_by_their_rows_and_not_by_their_digest():
    config = {"env": "e", "method": "guss", "seeds": [0], "episodes": 5, "initial_episodes": 2, "initial_steps": 200}
    logged = config | {"initial_episodes": 0, "initial_steps": None, "data": "89be8f604a6b" * 5, "data_rows": 600}
    labels = lambda *configs: [name.label for name in name_rows(configs, "abc"[: len(configs)])]  # noqa: E731
    assert labels(config, logged) == ["GuSS (no logged data)", "GuSS (600 logged rows)"]
    other = logged | {"data": "0123456789ab" * 5}
    assert labels(logged, other) == ["GuSS (600 logged rows 89be8f)", "GuSS (600 logged rows 012345)"]
    assert labels(logged, other | {"data_rows": 70}) == ["GuSS (600 logged rows)", "GuSS (70 logged rows)"]
    assert labels(logged, logged | {"initial_episodes": 3}) == [
        "GuSS (initial_episodes 0)", "GuSS (initial_episodes 3)"
    ]  # fmt: skip


def test_long_labels_leave_the_numbers_of_the_terminal_table_whole(tmp_path):
    from guss.cli.table_display import print_report

    for i in range(2):
        more = {f"a_setting_with_a_long_name_{j}": f"value {i} " + 40 * "x" for j in range(3)}
        home = store(tmp_path, "mine.py:make_env", "guss", RISING, name=f"run-{i}", config=more)
        lines = [json.loads(line) for line in (home / "episodes.jsonl").read_text().splitlines()]
        costs = {"temperature_of_the_upper_vessel": 1.0, "too_hot": 2.0}
        lines = [json.dumps(line | {"unsafe_pct_by_cost": costs}) + "\n" for line in lines]
        (home / "episodes.jsonl").write_text("".join(lines))
    files = write_report(tmp_path)
    for width in (80, 120):
        console = Console(width=width, file=io.StringIO())
        print_report(console, [file for file in files if file.parent.name != "figures"])
        shown = console.file.getvalue()
        assert shown.count("-2.000 ± 0.475") == 2, shown
        assert shown.count("2.000 ± 0.000") == 2, shown
        assert "GuSS" in shown


@pytest.mark.parametrize("method", ["guss", "ppo"])
def test_runs_stored_before_a_setting_existed_are_the_same_row(method):
    """A setting that the stored config does not have, and its default in a new one, are no difference."""
    new = make_config("safe-pendulum", method, seeds=2).to_json()
    old = {name: value for name, value in new.items() if name not in ADDED}
    assert settings_key(old) == settings_key(new)
    assert settings_key(old) != settings_key(new | {"max_change": 0.1})
    assert all("default" not in name.label for name in name_rows([old, new], ["x", "y"]))
