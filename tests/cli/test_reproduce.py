"""`guss reproduce table1` and `all`, on the smallest cases; but for one, without figures and animations."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from guss import plugins
from guss.cli.reproduce import Toy
from guss.errors import GussError
from guss.reports import report
from guss.runs import animation, state_maps
from guss.runs.store import read_lines
from guss.sweeps import executors, study, worker

TINY = """
    extends = "safe-pendulum"
    episodes = 12
    horizon = 2
    budget = 20

    [model]
    hidden = [8]
    ensemble = 1

    [fit]
    max_steps = 20
    warm_steps = 10
"""
PLUGIN = """
    from guss import plugins

    presets = plugins._presets
    plugins._presets = lambda: presets() | {"safe-pendulum-quick": plugins.Path("tiny.toml")}
"""
TABLE = ("reproduce", "table1", "--preset", "quick", "--seeds", "1")
PENDULUM = (*TABLE, "--env", "safe-pendulum")


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Quick is quicker still."""
    (tmp_path / "tiny.toml").write_text(textwrap.dedent(TINY))
    presets = plugins._presets()
    monkeypatch.setattr(plugins, "_presets", lambda: presets | {"safe-pendulum-quick": tmp_path / "tiny.toml"})


@pytest.fixture
def table1(monkeypatch, tmp_path, guss_here, tiny):
    """The command in this process, without what takes long, animations and figures; notes what was to be made."""
    calls = []

    def draw_all(found, folder, tell):
        calls.append(("report", found.found.folder))
        return {}, []

    found = study.sweep_settings

    def settings(tables):
        return dataclasses.replace(found(tables), backoff=0.0)

    monkeypatch.setattr(report, "draw_all", draw_all)
    monkeypatch.setattr(worker, "write_animation", lambda home: calls.append(("animation", home)))
    monkeypatch.setattr(worker, "write_maps", lambda home: calls.append(("maps", home)))
    monkeypatch.setattr(study, "sweep_settings", settings)

    def run(*words, check=0):
        calls.clear()
        return guss_here(*words, "--workers", "1", check=check), list(calls)

    return run


def test_a_small_table_with_all_that_belongs_to_it(guss_here, tiny, tmp_path):
    """Nothing is left out: runs, maps, animations, figures and the page."""
    process = guss_here(*PENDULUM, "--methods", "random", "rs", "--episodes", "2", "--out", "out", check=0)
    homes = sorted((tmp_path / "out").glob("safe-pendulum-*"))
    for home in homes:
        assert animation.read_animation(home)["phase"] == ("random" if "random" in home.name else "plan")
        assert state_maps.read_maps(home)["episodes"] == 2
    table = json.loads((tmp_path / "out" / "report" / "table.json").read_text())["safe_pendulum"]
    assert {name: (row["seeds"], row["episodes"]) for name, row in table.items()} == {"random": (1, 2), "rs": (1, 2)}
    assert (tmp_path / "out" / "report" / "figures" / "states-safe-pendulum.png").exists()
    assert "only one seed of RS, Random" in process.stdout
    assert str(Path("out/report/report.html")) in process.stdout


def test_a_table_is_run_reported_and_not_run_twice(table1):
    process, calls = table1(*PENDULUM, "--methods", "random,rs")
    lines = process.stderr.splitlines()
    for method in ("rs", "random"):
        assert any(f"/2 safe-pendulum {method}: episode 12/12, reward -" in line for line in lines)
    assert lines[1].endswith("left")
    for word in ("Safe Pendulum", "Random", "RS", "MAR", "unsafe %", "report/report.html"):
        assert word in process.stdout
    out = Path("runs/reproduce-quick")
    random, rs = sorted(out.glob("safe-pendulum-*"))
    assert calls[:4] == [("maps", rs), ("animation", rs), ("maps", random), ("animation", random)]
    assert calls[4:] == [("report", out)]
    command = "guss reproduce table1 --preset quick --seeds 1 --env safe-pendulum --methods random,rs --workers 1"
    assert command in (out / "report" / "report.html").read_text()
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.jsonl")}
    process, calls = table1(*PENDULUM, "--methods", "random", "rs", "--no-animations", "--json")
    assert "safe-pendulum rs: already finished" in process.stderr
    found = json.loads(process.stdout)
    assert [(run["method"], run["seeds"], run["episodes"]) for run in found["runs"]] == [
        ("random", 1, 12),
        ("rs", 1, 12),
    ]
    assert found["files"][0] == str(out / "report" / "report.html")
    assert {call[0] for call in calls} == {"report"}
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.jsonl")} == before
    process, _ = table1(*PENDULUM, "--methods", "random", "--quiet")
    assert (process.stdout, process.stderr) == ("", "")


def test_a_killed_table_goes_on_and_ends_as_if_it_had_not_been(table1, tmp_path):
    """Random actions alone: that nothing else is lost either is tests/runs/test_resume.py's to say."""
    episodes = 120
    words = (*PENDULUM, "--methods", "random", "--episodes", episodes)
    table1(*words, "--out", "whole")
    shutil.copytree(os.environ["GUSS_CACHE_DIR"], tmp_path / "cache")  # what is killed may leave half a program
    (tmp_path / "plugin.py").write_text(textwrap.dedent(PLUGIN))
    words = [*map(str, words), "--out", "killed"]
    command = [sys.executable, "-m", "guss", *words, "--plugin", "plugin.py", "--workers", "1"]
    environment = os.environ | {"GUSS_CACHE_DIR": "cache"}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    lines = lambda: sum(path.read_bytes().count(b"\n") for path in tmp_path.glob("killed/*/episodes.jsonl"))  # noqa: E731
    while process.poll() is None and lines() < 3:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it should not have come to its end yet"
    left = lines()
    assert 3 <= left < episodes
    table1(*words)
    (whole,) = (tmp_path / "whole").glob("safe-*")
    again = tmp_path / "killed" / whole.name
    assert (again / "episodes.jsonl").read_bytes() == (whole / "episodes.jsonl").read_bytes()
    assert len(read_lines(again / "timings.jsonl")) == episodes


@pytest.mark.filterwarnings("ignore::guss.errors.GussWarning")
def test_what_fails_is_told_at_the_end_and_the_rest_is_reported(table1, tmp_path):
    words = (*PENDULUM, "--methods", "random", "rs", "--out", "out")
    table1(*PENDULUM, "--methods", "random", "--out", "out")
    (home,) = (tmp_path / "out").glob("safe-pendulum-random-*")
    shutil.rmtree(home / "checkpoints")
    (home / "checkpoints").mkdir()
    (home / "checkpoints" / "ep000001.ckpt").write_bytes(b"no")
    process, calls = table1(*words, check=2)
    assert "guss: error: not all steps succeeded; repeat the command to try again:" in process.stderr
    path = Path("out") / home.name / "checkpoints" / "ep000001.ckpt"
    assert f"guss: error: safe-pendulum random: failed 3 times: {path} is not a checkpoint" in process.stderr
    assert "Traceback" not in process.stderr
    assert "RS" in process.stdout
    assert calls[-1][0] == "report"
    (home / "checkpoints" / "ep000001.ckpt").unlink()
    process, _ = table1(*words, check=2)
    assert "has records of 12 episodes and no checkpoint to resume from" in process.stderr
    shutil.rmtree(home)
    table1(*words)


def test_an_interruption_says_how_to_go_on(table1, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(executors, "run_local", stop)
    process, calls = table1(*PENDULUM, "--methods", "random", check=130)
    assert process.stderr.endswith("interrupted; finished episodes are kept; repeat the same command to resume\n")
    assert calls == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--env", "safe-pendulm"], "environment of Table 1: 'safe-pendulm'. Did you mean 'safe-pendulum'?"),
        (["--methods", "gus"], "unknown method 'gus'. Did you mean 'guss'?"),
        (["--seeds", "0"], "at least 1 seed"),
        (["--env", "safe-acrobot", "--methods", "safe-mbpo"], "nothing to run. safe-mbpo on safe-acrobot"),
    ],
)
def test_bad_words_are_told_before_anything_is_done(guss_here, tmp_path, words, message):
    process = guss_here("reproduce", "table1", *words, check=2)
    assert message in process.stderr
    assert not (tmp_path / "runs").exists()


def test_the_car_is_left_out_where_its_simulator_is_missing_unless_it_is_asked_for(table1, monkeypatch):
    def missing():
        raise GussError("SafeCar-Goal needs MuJoCo, the extra `car`: pip install 'guss[car]'")

    monkeypatch.setattr("guss.envs.car_world.load_mujoco", missing)
    process, _ = table1(*TABLE, "--methods", "random", "safe-mbpo", "--env", "safe-car-goal", check=2)
    assert process.stderr == "guss: error: SafeCar-Goal needs MuJoCo, the extra `car`: pip install 'guss[car]'\n"
    process, _ = table1(*TABLE, "--methods", "random", "--json")
    assert "left out: safe-car-goal: SafeCar-Goal needs MuJoCo" in process.stderr
    found = json.loads(process.stdout)
    assert [run["env"] for run in found["runs"]] == ["safe-pendulum", "safe-acrobot"]
    assert found["left_out"] == ["safe-car-goal: SafeCar-Goal needs MuJoCo, the extra `car`: pip install 'guss[car]'"]


def test_all_is_the_table_then_the_toy_world_then_one_report(table1, monkeypatch):
    toys = []

    def reproduce(self, again=True):
        toys.append((self.preset, self.seed, self.out, again))
        if self.seed == 5:
            raise GussError("it fell over")

    monkeypatch.setattr(Toy, "reproduce", reproduce)
    words = ("reproduce", "all", "--env", "safe-pendulum", "--methods", "random", "--seeds", "1", "--episodes", "1")
    _, calls = table1(*words, "--preset", "quick", "--out", "out")
    assert toys == [("quick", 0, Path("out"), False)]
    assert [call[0] for call in calls] == ["maps", "animation", "report"]
    process, calls = table1(*words, "--seed", "5", check=2)
    assert toys[1:] == [("paper", 5, Path("runs/reproduce-best"), False)]
    assert "guss: error: toy: it fell over" in process.stderr
    assert calls[-1][0] == "report"

    def nothing(folder, out, command, on_part):
        raise GussError("there is no run")

    monkeypatch.setattr(report, "write_report", nothing)
    process, _ = table1(*words, "--seed", "5", check=2)
    assert process.stderr.splitlines()[-2:] == [
        "guss: error: toy: it fell over",
        "guss: error: no report: there is no run",
    ]


def test_help_teaches(guss_here):
    text = guss_here("reproduce", "--help", check=0).stdout
    assert "Start with `guss reproduce table1 --preset quick`" in text
    text = " ".join(guss_here("reproduce", "table1", "--help", check=0).stdout.split())
    for words in ("Duration on one core", "it skips finished runs", "ppo-lagrangian", "--no-animations"):
        assert words in text
