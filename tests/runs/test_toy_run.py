import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from guss.errors import GussError
from guss.reports.toy import summarise, write_toy_report
from guss.runs.toy import ToyConfig, is_finished, load_toy, run_method, run_toy

SETTINGS = {"cem": {"num_elites": 5}, "guss": {"warm_start": False}}  # of guss as in the paper
SMALL = {"steps": 4, "horizon": 3, "budget": 30, "settings": SETTINGS}
ORIGIN = {"command": "test", "commit": None, "versions": {}}


def config(*methods, **changes):
    return ToyConfig(**({"methods": methods, "seeds": (0, 1)} | SMALL | changes))


def names(home):
    return sorted(path.name for path in home.rglob("*") if path.is_file())


def test_records_summary_and_figures(tmp_path):
    home = run_toy(config("guss", "cem"), tmp_path, ORIGIN)
    summary, files = write_toy_report(home)
    assert sorted(f.name for f in files) == [
        "exploration.png", "exploration.svg", "summary.json", "trajectories.png", "trajectories.svg",
    ]  # fmt: skip
    assert all(file.stat().st_size > 1000 for file in files)
    assert json.loads((home / "summary.json").read_text()) == summary
    for method in ("guss", "cem"):
        m = summary["methods"][method]
        assert m["seeds"] == 2
        assert m["reached"] == 0  # four steps are not enough
        assert len(m["cost_per_seed"]) == 2
        assert isinstance(m["safe_plan_share"], float)
        assert isinstance(m["coverage"], float)
        assert len(m["coverage_per_seed"]) == 2
        assert len(m["coverage_per_step"]) == 4
        assert np.isclose(m["coverage"], np.mean(m["coverage_per_seed"]), atol=1e-6)
        assert m["plans_per_step"] == 30
    assert set(summary["p_values"]) == {"cem"}
    assert set(summary["p_values"]["cem"]) >= {"safe_plan_share", "coverage"}


def test_coverage_counts_the_safe_cells_that_safe_plans_visit():
    """By hand: one random plan a step from (5, 5); its path is known from the record of what was taken."""
    record = run_method(config("random", budget=1, horizon=1), "random")
    cells = lambda points: {tuple(np.minimum(p, 49)) for p in points.astype(int)}  # noqa: E731
    safe_total = 51 * 51  # at most; the true number is the denominator used below
    for seed in range(2):
        path = record["position"][1:, seed]
        visited = len(cells(path[: len(path)]))
        share = record["coverage"][-1, seed]
        denominator = visited / share
        assert abs(denominator - round(denominator)) < 1e-3
        assert 500 < denominator < safe_total
        assert (np.diff(record["coverage"][:, seed]) >= 0).all()


def test_an_interrupted_experiment_goes_on_and_a_finished_one_starts_anew(tmp_path):
    told = []
    note = lambda method, stored: told.append((method, stored))  # noqa: E731
    home = run_toy(config("rs", "random"), tmp_path, ORIGIN, note)
    (home / "records" / "random.npz").unlink()  # as if killed before the second method was done
    assert not is_finished(home, config("rs", "random"))
    before = (home / "records" / "rs.npz").stat().st_mtime_ns
    run_toy(config("rs", "random"), tmp_path, ORIGIN, note)
    assert told[2:] == [("rs", True), ("random", False)]
    assert (home / "records" / "rs.npz").stat().st_mtime_ns == before
    write_toy_report(home)
    assert is_finished(home, config("rs", "random"))
    assert not is_finished(home, config("rs", "random", budget=31))
    assert not is_finished(tmp_path, config("rs", "random"))
    run_toy(config("rs", "random"), tmp_path, ORIGIN, note)
    assert told[4:] == [("rs", False), ("random", False)]
    (home / "summary.json").unlink(missing_ok=True)
    run_toy(config("rs", "random", budget=31), tmp_path, ORIGIN, note)
    assert told[6:] == [("rs", False), ("random", False)], "other settings must not be mixed"


def test_a_killed_process_loses_at_most_the_method_under_way(tmp_path):
    words = ["--methods", "rs", "guss", "--seeds", "2", "--steps", "4", "--horizon", "3", "--budget", "30"]
    command = [sys.executable, "-m", "guss", "reproduce", "toy", *words, "--out", str(tmp_path)]
    # What is killed must not leave half a program for others, and has to compile guss, which is time to kill it in.
    alone = os.environ | {"GUSS_CACHE_DIR": "off"}
    process = subprocess.Popen(command, env=alone, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    first = tmp_path / "toy" / "records" / "rs.npz"
    limit = time.monotonic() + 120
    while not first.exists() and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.02)
    assert process.poll() is None, "the process ended before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    kept = first.read_bytes()
    assert not (tmp_path / "toy" / "summary.json").exists()
    again = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0, again.stderr
    assert "rs (1/2): from the interrupted run" in again.stderr
    assert first.read_bytes() == kept
    assert set(json.loads((tmp_path / "toy" / "summary.json").read_text())["methods"]) == {"rs", "guss"}


def test_bad_records_are_told(tmp_path):
    home = run_toy(config("rs"), tmp_path, ORIGIN)
    record = home / "records" / "rs.npz"
    record.write_bytes(record.read_bytes()[:100])
    with pytest.raises(GussError, match=r"record of 'rs'.*cannot be read"):
        load_toy(home)
    (home / "config.json").write_text("{")
    with pytest.raises(GussError, match=r"config.json is not JSON"):
        load_toy(home)
    with pytest.raises(GussError, match=r"cannot read its config.json"):
        load_toy(tmp_path / "elsewhere")


def test_the_report_can_be_made_again_from_the_records_alone(tmp_path):
    home = run_toy(config("rs"), tmp_path, ORIGIN)
    first, _ = write_toy_report(home)
    assert summarise(*load_toy(home)) == first
    assert first["p_values"] == {}, "without GuSS there is nothing to compare with"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"methods": ()}, "needs distinct methods"),
        ({"methods": ("rs", "rs")}, "needs distinct methods"),
        ({"seeds": ()}, "needs distinct seeds"),
        ({"steps": 0}, "at least 1 step"),
    ],
)
def test_bad_experiments_are_told(change, words):
    with pytest.raises(GussError, match=words):
        config("rs", **change)


# ------------------------------------------------------------------------------------------------ the paper's claims


def check_claims(summary, seeds):
    """What Sec. 5.1 claims, with the counts scaled to the number of seeds."""
    m = summary["methods"]
    assert m["guss"]["reached"] == seeds
    assert sum(m["guss"]["cost_per_seed"]) == 0
    assert m["s-rs"]["reached"] <= seeds // 10
    assert m["rcem"]["reached"] <= seeds // 10
    assert m["cem"]["reached"] >= 0.9 * seeds
    assert all(cost > 0 for cost in m["cem"]["cost_per_seed"])
    for rival in ("s-rs", "rcem", "cem"):
        for measure in ("safe_plan_share", "coverage"):
            assert m["guss"][measure] > m[rival][measure]
            if seeds >= 10:
                assert summary["p_values"][rival][measure] < 1.8e-4


def test_the_papers_claims_hold_on_three_seeds(guss_command, tmp_path):
    words = ["--seeds", "3", "--methods", "guss", "s-rs", "rcem", "cem", "--out", tmp_path, "--quiet"]
    # 1,200 plans: unlike elsewhere, what is optimised a little is done sooner.
    flags = os.environ.get("XLA_FLAGS", "").replace("optimization_level=0", "optimization_level=1")
    guss_command("reproduce", "toy", *words, env={"XLA_FLAGS": flags}, check=0)
    check_claims(json.loads((tmp_path / "toy" / "summary.json").read_text()), seeds=3)


@pytest.mark.long
def test_the_papers_claims_hold_on_ten_seeds(guss_command, tmp_path, record_result):
    started = time.monotonic()
    guss_command("reproduce", "toy", "--out", tmp_path, "--quiet", env={"GUSS_CACHE_DIR": "off"}, check=0)
    seconds = time.monotonic() - started
    summary = json.loads((tmp_path / "toy" / "summary.json").read_text())
    check_claims(summary, seeds=10)
    keys = ("reached", "cost_per_seed", "safe_plan_share", "coverage", "coverage_of_step")
    methods = {name: {k: m[k] for k in keys} for name, m in summary["methods"].items()}
    record_result("toy", {"seconds_cold": round(seconds, 1), "methods": methods, "p_values": summary["p_values"]})
