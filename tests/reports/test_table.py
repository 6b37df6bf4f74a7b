"""Which runs are found, what is told of those that are not whole, and the table that is made of them."""

import json
import math
import re

import numpy as np
import pytest
from helpers.stored import store

from guss.errors import GussError
from guss.reports.curves import binned, curve_of, far_apart, level_of
from guss.reports.inventory import gather, read_record
from guss.reports.paper import paper_figures, paper_methods
from guss.reports.run_summary import compare, per_seed, planning, pooled
from guss.reports.table import (
    against_table,
    cost_table,
    main_table,
    overview,
    rows_of,
    sure_table,
    to_json,
    to_latex,
    verdict_of,
)
from guss.runs import metrics

RISING = ((-6.0, -3.0, -1.0, -2.0), (-6.0, -2.0, -2.0, -2.0), (-5.0, -2.6, -2.6, -2.4))


@pytest.fixture
def folder(tmp_path):
    """Two safe methods, an unsafe one, random actions; GuSS earns most of the safe ones, S-RS is the safest."""
    store(tmp_path / "runs", "safe-pendulum", "guss", RISING, unsafe=0.5)
    store(tmp_path / "runs", "safe-pendulum", "s-rs", np.asarray(RISING) - 1.0, unsafe=0.1)
    store(tmp_path / "runs", "safe-pendulum", "rs", np.asarray(RISING) + 1.0, unsafe=3.0)
    store(tmp_path / "runs", "safe-pendulum", "random", [[-6.0] * 4, [-6.5] * 4, [-7.0] * 4], unsafe=1.0)
    return tmp_path


def row(rows, method):
    return next(row for row in rows if row.method == method)


def test_measures_are_those_of_the_appendix_by_hand(folder):
    rows = rows_of(gather(folder).records)
    mine = row(rows, "guss")
    assert per_seed(mine)["mar"].tolist() == [-1.5, -2.0, -2.5]
    assert per_seed(mine)["mrcp_ksteps"].tolist() == [0.6, 0.4, 0.8]
    assert mine.pair("mar") == [-2.0, round(metrics.interval([-1.5, -2.0, -2.5]).half_width, 4)]
    assert mine.measures["mar"]["pooled"] == round(metrics.interval([-1, -2, -2, -2, -2.6, -2.4]).half_width, 4)
    assert pooled(mine)["unsafe_trans_pct"].shape == (3,), "the first of four episodes, of three seeds"
    assert mine.measures["mrcp_ksteps"]["reached"] == 3
    assert row(rows, "s-rs").measures["mrcp_ksteps"]["reached"] == 1
    assert row(rows, "random").pair("mrcp_ksteps") == [None, None]
    assert [r.rank for r in rows] == metrics.pareto_ranks([-3.0, -2.0, -1.0, -6.5], [0.1, 0.5, 3.0, 1.0]).tolist()


def test_the_best_of_the_safe_methods_is_marked_and_no_other(folder):
    rows = rows_of(gather(folder).records)
    best = {name: [r.method for r in rows if r.measures[name]["best"]] for name in ("mar", "unsafe_pct", "mrcp_ksteps")}
    assert best == {"mar": ["guss"], "unsafe_pct": ["s-rs"], "mrcp_ksteps": ["guss"]}
    text = "\n".join(main_table(rows))
    assert "**−2.000 ± 0.475** [−2.2 ± 0.16]" in text
    assert text.index("S-RS") < text.index("| GuSS") < text.index("| RS") < text.index("| Random"), "the paper's order"
    assert "(1 of 3 seeds)" in text


def test_every_form_of_the_table_tells_the_same(folder):
    rows = rows_of(gather(folder).records)
    plain = to_json({"safe-pendulum": rows})["safe_pendulum"]
    assert set(plain) == {"guss", "s_rs", "rs", "random"}
    assert plain["s_rs"]["mar"][0] == -3.0
    assert (plain["guss"]["seeds"], plain["guss"]["episodes"]) == (3, 4)
    assert plain["guss"]["paper"]["mar"] == paper_figures("safe-pendulum", "guss")["mar"]
    assert plain["random"]["mrcp_ksteps"] == [None, None]
    store(folder / "other", "my_own.py:make_env", "guss")
    latex = to_latex({"safe-pendulum": rows, "my_own.py:make_env": rows_of(gather(folder / "other").records)})
    assert latex.count("{") == latex.count("}")
    assert r"$\boldsymbol{-2.000 \pm 0.475}$ & \textcolor{gray}{$-2.2 \pm 0.16$}" in latex
    assert all(
        line.count("&") == 9 for line in latex.splitlines() if line.endswith(r"\\") and "multicolumn" not in line
    )
    assert r"my-own" in latex
    assert len(sure_table(rows)) == 2 + 3 + len(rows)


def test_tests_are_corrected_and_told_from_either_side(folder):
    found = gather(folder)
    rows, tests = rows_of(found.records), compare(found.records)
    assert len(tests) == 3 * 6
    mar = {frozenset((t["a"], t["b"])): t for t in tests if t["measure"] == "mar"}
    one = mar[frozenset(("guss", "s-rs"))]
    assert abs(one["difference"]) == 1.0
    expected = metrics.welch_p([-1.5, -2.0, -2.5], [-2.5, -3.0, -3.5])
    assert one["p"] == pytest.approx(expected, rel=5e-3)
    all_of_mar = [t["p"] for t in tests if t["measure"] == "mar"]
    assert one["p_holm"] == pytest.approx(min(1.0, metrics.holm(all_of_mar)[all_of_mar.index(one["p"])]), rel=2e-2)
    lines = against_table(rows, tests, "guss")
    assert next(line for line in lines if line.startswith("| S-RS")).startswith("| S-RS | 1.000 |")
    assert next(line for line in lines if line.startswith("| RS")).startswith("| RS | −1.000 |")
    told = " ".join(verdict_of(rows, tests))
    assert "GuSS has the highest mean reward: −2.000" in told
    assert "S-RS has the fewest unsafe steps: 0.100" in told


def test_a_step_of_planning_is_timed_without_compiling(folder):
    mine = row(rows_of(gather(folder).records), "guss")
    assert planning(mine) == (round(1000 * 2.0 / (3 * 200), 3), 100 * 10 * 5), "the fastest episode of all seeds"
    assert planning(row(rows_of(gather(folder).records), "random")) == (None, None)


def test_what_is_missing_partial_or_mixed_is_told_and_the_rest_is_used(tmp_path):
    runs = tmp_path / "runs"
    store(runs, method="guss", rewards=[[-6.0, -1.0, -1.0], [-6.0, -1.0]], asked=50, seeds=[0, 3])
    store(runs, method="s-rs", rewards=[[-6.0, -2.0]], version="0.0.9", commit=40 * "b" + "-dirty", timings=False)
    store(runs, method="rs", name="safe-pendulum-rs-old", date="2025-01-01T00:00:00Z")
    store(runs, method="rs", name="safe-pendulum-rs-new")
    store(runs, method="cem", status="error: it fell over", cpu="another CPU")
    (store(runs, method="rcem") / "episodes.jsonl").write_text("")
    (store(runs, method="icem") / "config.json").write_text('{"schema": 1, "conf')
    (store(runs, method="mppi") / "episodes.jsonl").write_text('{"seed": 0}\n{not json}\n')
    store(runs, method="ps-me", schema=99)
    (runs / "odd").mkdir()
    (runs / "odd" / "config.json").write_text('{"something": "else"}')
    found = gather(tmp_path)
    assert {r.method for r in found.records} == {"guss", "s-rs", "rs", "cem"}
    assert row(rows_of(found.records), "rs").name == "safe-pendulum-rs-new"
    assert row(rows_of(found.records), "guss").done == 2
    told = "\n".join(found.notes)
    for text in (
        "Safe Pendulum, GuSS: 2 of 50 episodes were run",
        "GuSS: seed 3 has 2 of 3 episodes",
        "S-RS: no timings.jsonl",
        "RS: several runs with the same settings; safe-pendulum-rs-new is shown",
        "CEM: in 4 episodes the environment failed",
        "has no finished episode yet",
        "is not JSON",
        "is not JSON",
        "was written by a newer version of guss (schema 99; this version reads schemas up to",
        "odd/config.json is not the config of a run",
        "no run of Safe-MBPO, RCEM, CPO, PPO-Lagrangian, which the paper's table has",
        "no run of random actions",
        "the runs have different seeds",
        "only one seed of S-RS",
        "several versions of guss (0.0.9, 0.1.0)",
        "planning times are from several machines (S-RS, GuSS, RS: a CPU; CEM: another CPU)",
        "the source code of guss had no commit, or had uncommitted changes, in the runs of S-RS",
    ):
        assert text in told, text
    assert str(tmp_path) not in told
    tests = compare(found.records)
    assert all(t["p"] is None for t in tests if "s-rs" in (t["a"], t["b"])), "one seed"
    assert "only one seed, too few for a test" in " ".join(verdict_of(rows_of(found.records), tests))
    assert "| – |" in "\n".join(against_table(rows_of(found.records), tests, "guss"))


def test_a_method_that_is_not_known_here_has_its_row_too(tmp_path):
    store(tmp_path, "mine.py:make_env", "of-a-plugin")
    found = gather(tmp_path)
    (only,) = rows_of(found.records)
    assert (only.section, only.safe, only.plan_ms) == ("for comparison", False, None)
    assert verdict_of([only], []) == ["There is no safe method among these runs."]
    assert "| of-a-plugin | 1 × 4 |" in "\n".join(main_table([only]))


def test_groups_are_named_by_where_they_lie(folder):
    store(folder / "paper", method="guss")
    store(folder / "studies" / "deep", method="guss")
    found = gather(folder)
    assert list(found.groups) == ["paper", "studies/deep"]
    assert len(found.records) == 4
    with pytest.raises(GussError, match="there is no folder"):
        gather(folder / "nowhere")


def test_runs_are_found_whatever_the_folder(tmp_path):
    home = store(tmp_path, method="guss")
    assert [r.name for r in gather(tmp_path).records] == [home.name]
    assert read_record(home).env == "safe-pendulum"


def test_the_papers_methods_are_in_its_order():
    assert paper_methods("safe-acrobot") == ["s-rs", "guss", "rcem", "rs", "cem", "cpo", "ppo-lagrangian"]
    assert paper_methods()[:4] == ["s-rs", "guss", "safe-mbpo", "rcem"]
    assert paper_methods("mine") == []


def test_on_a_logarithmic_axis_pieces_grow_and_none_is_lost(tmp_path):
    values = np.arange(2 * 1500.0).reshape(2, 1500)
    for log in (False, True):
        middles, means = binned(values, log)
        assert len(middles) == len(means) <= 128
        ends = 2 * middles - np.insert(2 * np.cumsum(np.diff(np.insert(middles, 0, 0)))[:-1], 0, 0)
        assert ends.min() > 0
    middles, means = binned(values, log=True)
    pieces = np.diff(middles)
    assert pieces[-1] > 5 * pieces[0]
    np.testing.assert_allclose(binned(np.ones((3, 777)), log=True)[1], 1.0)
    short, long = store(tmp_path, method="guss"), store(tmp_path, method="cpo", rewards=[[-1.0] * 40])
    assert far_apart([read_record(short), read_record(long)])
    curve = curve_of(read_record(long), "unsafe_pct")
    assert math.isclose(curve.low[0], curve.high[0]), "one seed has no interval"


def test_what_is_committed_is_rebuilt_exactly():
    """`guss report results` gives the committed table, from committed records."""
    from pathlib import Path

    from guss.reports.report import everything, make_report, to_markdown

    results = Path(__file__).resolve().parents[2] / "results"
    report = make_report(results)
    committed = results / "report"
    assert to_markdown(report) == (committed / "table.md").read_text()
    assert json.loads(json.dumps(to_json(report.tables))) == json.loads((committed / "table.json").read_text())
    assert to_latex(report.tables) == (committed / "table.tex").read_text()
    assert json.loads(json.dumps(everything(report))) == json.loads((committed / "report.json").read_text())
    commits = [r.origin["commit"] for r in report.found.records]
    assert all(re.fullmatch("[0-9a-f]{40}", commit) for commit in commits), "results come from commits"


def test_systems_that_the_paper_does_not_have_are_shown_without_it(tmp_path):
    from guss.reports.report import make_report, to_markdown

    store(tmp_path / "runs", "my_own.py:make_env", "guss", RISING)
    text = to_markdown(make_report(tmp_path / "runs"))
    assert "paper" not in text
    assert "[–]" not in text
    rows = rows_of(gather(tmp_path).records)
    assert "gray" not in to_latex({"my_own.py:make_env": rows}).split("\\midrule")[1]


def test_several_costs_have_their_own_columns(tmp_path):
    home = store(tmp_path, "plant.py:make_env", "guss", RISING, unsafe=3.0)
    lines = [json.loads(line) for line in (home / "episodes.jsonl").read_text().splitlines()]
    for line in lines:
        line["unsafe_pct_by_cost"] = {"seed": 1.0 + line["seed"], "too_hot": 2.5}
        line["costs"] = {"seed": 1.0, "too_hot": 2.5}
    (home / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = rows_of(gather(tmp_path).records)
    assert rows[0].by_cost == {"seed": [2.0, round(metrics.interval([1, 2, 3]).half_width, 4)], "too_hot": [2.5, 0.0]}
    assert "| GuSS | 2.000 ± 0.950 | 2.500 ± 0.000 |" in "\n".join(cost_table(rows))
    lines[0]["unsafe_pct_by_cost"] = [1.0]
    (home / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(GussError, match="unsafe_pct_by_cost"):
        read_record(home)


def inside(seed, episode):
    return {"hazard": float(10 * seed + episode)}


def test_a_measured_cost_has_a_column_and_a_dash_where_it_was_not_recorded(tmp_path):
    store(tmp_path, method="guss", rewards=RISING, unsafe=0.5, measured=inside)
    store(tmp_path, method="s-rs", rewards=np.asarray(RISING) - 1.0, unsafe=0.1)
    store(tmp_path / "acrobot", "safe-acrobot", "guss", RISING)
    rows = rows_of(gather(tmp_path).records)
    mine = row(rows, "guss")
    half = round(metrics.interval([1.5, 11.5, 21.5]).half_width, 4)
    assert (mine.measured, mine.by_cost) == (("hazard",), {"limit": [0.5, 0.0], "hazard": [11.5, half]})
    assert (row(rows, "s-rs").measured, row(rows, "s-rs").by_cost) == ((), {})
    lines = main_table(rows)
    assert "| p(unsafe) [%] ↓ | p(hazard) [%] ↓ | transient [%] ↓ |" in lines[0]
    cells = {line.split(" | ")[0]: line.split(" | ") for line in lines}
    assert cells["| GuSS"][4:6] == ["0.500 ± 0.000 [0.68 ± 0.59]", f"11.500 ± {half:.3f}"]
    assert cells["| S-RS"][5] == "–"
    assert cost_table(rows) == [], "a single constraint is p(unsafe)"
    plain = to_json({"safe-pendulum": rows})["safe_pendulum"]
    assert (plain["guss"]["unsafe_pct_by_cost"]["hazard"], plain["guss"]["measured"]) == ([11.5, half], ["hazard"])
    assert "measured" not in plain["s_rs"]
    other = rows_of(gather(tmp_path / "acrobot").records)
    latex = to_latex({"safe-pendulum": rows, "safe-acrobot": other}).splitlines()
    assert r"$p(\text{hazard})\,[\%] \downarrow$ \\" in latex[3]
    ends = [line.rpartition(" & ")[2] for line in latex if line.startswith(("GuSS", "S-RS"))]
    assert ends == [r"-- \\", rf"$11.500 \pm {half:.3f}$ \\", r" \\"], "not recorded, recorded, no such cost"
    assert all(line.count("&") == 10 for line in latex if line.startswith(("GuSS", "S-RS")))
    cells = {
        line.split(" | ")[0]: line.split(" | ") for line in overview({"safe-pendulum": rows, "safe-acrobot": other})
    }
    assert len(cells["| method"]) == 1 + 3 + 2
    assert (cells["| GuSS"][3], cells["| S-RS"][3], cells["| S-RS"][4]) == ("11.50", "–", "– [1.40]")
    verdict = verdict_of(rows, compare(gather(tmp_path).records[:2]))
    assert verdict[0].startswith(
        f"Of the safe methods, GuSS has the highest mean reward: −2.000 ± 0.475 (p(hazard) 11.500 ± {half:.3f} %)"
    )
    assert "p(hazard)" not in verdict[1], "S-RS has the fewest unsafe steps, and no measured cost"


def test_constraints_and_measured_costs_are_told_apart(tmp_path):
    home = store(tmp_path, method="guss", rewards=RISING, measured=inside)
    lines = [json.loads(line) for line in (home / "episodes.jsonl").read_text().splitlines()]
    changed = [line | {"costs": {"limit": 0.0, "too_hot": 1.0}} for line in lines]
    for line in changed:
        line["unsafe_pct_by_cost"] |= {"too_hot": 2.5}
    (home / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in changed))
    rows = rows_of(gather(tmp_path).records)
    assert rows[0].measured == ("hazard",)
    assert cost_table(rows)[0] == "| method | limit [%] | too_hot [%] |"
    (home / "episodes.jsonl").write_text(
        "".join(json.dumps(line | {"unsafe_pct_by_cost": None}) + "\n" for line in lines)
    )
    assert rows_of(gather(tmp_path).records)[0].by_cost == {}
    lines[-1].pop("unsafe_pct_by_cost")  # an episode of an earlier version
    (home / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert rows_of(gather(tmp_path).records)[0].by_cost == {}


def test_bands_of_percentages_stay_between_0_and_100(tmp_path):
    home = store(tmp_path, "plant.py:make_env", "guss", [[0.0, 0.0], [0.0, 0.0]], unsafe=[[100.0, 0.0], [60.0, 2.0]])
    curve = curve_of(read_record(home), "unsafe_pct")
    assert (curve.low >= 0.0).all()
    assert (curve.high <= 100.0).all()
    assert curve.high[0] == 100.0
    assert curve.low[1] == 0.0


def test_random_episodes_that_mar_counts_are_in_the_summary(tmp_path):
    from guss.reports.run_summary import summarise_run

    home = store(tmp_path, "plant.py:make_env", "guss", [[0.0] * 7])
    lines = [json.loads(line) | {"phase": "random"} for line in (home / "episodes.jsonl").read_text().splitlines()]
    for count, expected in ((1, 0), (3, 0), (5, 2), (7, 4)):
        planned = [line | ({} if i < count else {"phase": "plan"}) for i, line in enumerate(lines)]
        (home / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in planned))
        found = summarise_run(home)
        assert (found["mar_episodes"], found["mar_random_episodes"]) == (4, expected)


def test_unsafe_shares_of_curves_count_steps_as_progress_does(tmp_path):
    home = store(tmp_path, "plant.py:make_env", "guss", [[0.0], [0.0]], unsafe=[[100.0], [0.0]])
    lines = [json.loads(line) for line in (home / "episodes.jsonl").read_text().splitlines()]
    lines[0]["steps"], lines[1]["steps"] = 10, 30
    (home / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert curve_of(read_record(home), "unsafe_pct").mean.tolist() == [25.0]
    assert level_of(read_record(home), "unsafe_pct") == 25.0
