"""Reports, packs and exports read files: no module, entry point or environment that a run names is imported."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from helpers.short_runs import run_one
from test_report import payload_in

from guss.envs import ENVS
from guss.envs.lookup import find_env
from guss.errors import GussError
from guss.models.factory import ModelSettings
from guss.models.training import FitSettings
from guss.plugins import load_module
from guss.runs.config import RunConfig
from guss.usercode import no_user_code

ENV = """
import gymnasium, numpy as np

class Plant(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-9.0, 9.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.t = np.zeros(2, np.float32), 0
        return self.x, {}

    def step(self, action):
        self.x, self.t = self.x + np.float32(action[0]), self.t + 1
        costs = {"level": float(self.x[0] > 0.5), "door": 0.0}
        return self.x, -float(abs(self.x[0])), False, self.t >= 6, {"costs": costs}

def make_a():
    return Plant()

def make_b():
    return Plant()
"""
MARKER = "import pathlib; pathlib.Path({marker!r}).write_text(__name__)\n"
POINTS = """
[guss.envs]
theirs = theirs:SPEC
[guss.planners]
theirs = theirs:Planner
[guss.models]
theirs = theirs:make
[guss.methods]
theirs = theirs:Baseline
"""
WATCHED = """
import json, sys
seen = []
def watch(event, args):
    what = {"import": 0, "open": 0, "compile": 1}
    if event in what:
        seen.append(f"{event} {args[what[event]]}")
    elif event == "exec":
        seen.append(f"exec {args[0].co_filename}")
sys.addaudithook(watch)
from guss.cli.main import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["guss", *words]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
assert any("episodes.jsonl" in line for line in seen), "else nothing was watched"
user = ("plant.py", "theirs.py", "import plant", "import theirs")
touched = [line for line in seen if any(name in line for name in user)]
print(json.dumps(touched))
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Real runs on two environments of a file; afterwards it, and an installed package, leave a mark when imported."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "plant.py").write_text(ENV)
    small = {
        "model_settings": ModelSettings(hidden=(8,)),
        "fit": FitSettings(epochs=2),
        "horizon": 3,
        "episode_length": 6,
    }
    for name in ("make_a", "make_b"):
        env = f"{folder / 'plant.py'}:{name}"
        run_one(
            RunConfig(env=env, method="random", seeds=(0, 1), episodes=2, hard=("door",), **small), folder / "runs", {}
        )
    marker = folder / "marker"
    (folder / "plant.py").write_text(MARKER.format(marker=str(marker)) + ENV)
    site = folder / "site"
    (site / "theirs-1.0.dist-info").mkdir(parents=True)
    (site / "theirs.py").write_text(MARKER.format(marker=str(marker)) + "SPEC = Planner = Baseline = make = None\n")
    (site / "theirs-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (site / "theirs-1.0.dist-info" / "entry_points.txt").write_text(POINTS)
    return folder


def test_no_code_that_a_run_names_is_imported(stored):
    a, b = sorted(path.name for path in (stored / "runs").iterdir())
    config = json.loads((stored / "runs" / a / "config.json").read_text())
    assert config["report"]["env"]["constraints"] == [{"name": "level", "hard": False}, {"name": "door", "hard": True}]
    commands = [
        ["report", "runs", "--out", "out"],
        ["pack", "runs", "--out", "small"],
        ["export", f"runs/{a}", "--out", "a.csv"],
    ]
    env = {
        "PYTHONPATH": f"{stored / 'site'}:{':'.join(filter(None, sys.path))}",
        "PATH": "/usr/bin:/bin",
        "HOME": str(stored),
    }
    words = [sys.executable, "-c", textwrap.dedent(WATCHED), json.dumps(commands)]
    process = subprocess.run(words, cwd=stored, env=env, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout.splitlines()[-1]) == []
    assert not (stored / "marker").exists()
    payload = payload_in((stored / "out" / "report.html").read_text())
    assert [env["label"] for env in payload["envs"]] == ["plant-make-a", "plant-make-b"]
    for env in payload["envs"]:
        assert [figure["title"] for figure in env["figures"]][1:] == [
            "State space covered",
            "Visited and unsafe states",
        ]
    assert (stored / "small" / a / "maps.json.gz").exists()
    assert "no animation: it needs code that is not part of guss" in process.stdout
    assert len((stored / "a.csv").read_text().splitlines()) == 1 + 2 * 2 * 6
    assert b != a


def test_a_report_of_environments_that_are_gone_says_what_is_missing(stored, tmp_path, guss_here):
    """A folder from before runs stored such facts: everything but the map of states."""
    import shutil

    runs = shutil.copytree(stored / "runs", tmp_path / "runs")
    for path in runs.glob("*/config.json"):
        config = json.loads(path.read_text())
        del config["report"]
        config["config"]["env"] = config["config"]["env"].replace("plant.py", "gone.py")
        path.write_text(json.dumps(config))
    guss_here("report", "runs", check=0)
    payload = payload_in((runs / "report" / "report.html").read_text())
    assert [env["label"] for env in payload["envs"]] == ["gone-make-a", "gone-make-b"]
    assert all(len(env["rows"]) == 1 and env["figures"] for env in payload["envs"])
    assert sum("no state map: the run is from an earlier version of guss" in note for note in payload["missing"]) == 2


@pytest.mark.parametrize("env", ["evil.py:make_env", "evil:make_env", "CartPole-v1", "evil.py", ":", "../evil.py:x"])
def test_where_user_code_is_forbidden_nothing_is_found(env, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text(MARKER.format(marker="marker") + "make_env = None\n")
    with no_user_code("a test"):
        with pytest.raises(GussError, match="is user code, and a test does not import user code"):
            find_env(env)
        with pytest.raises(GussError, match="is user code"):
            load_module("evil")
        assert "short-pendulum" not in ENVS.names()
        assert find_env("safe-pendulum").gym_id == "guss/SafePendulum-v0"
    assert not Path("marker").exists()


def test_help_says_which_commands_run_user_code(guss_here):
    for command, what in {"replay": "imports the environment", "eval": "Imports and steps the environment"}.items():
        assert what in " ".join(guss_here(command, "--help", check=0).stdout.split())
    told = " ".join(guss_here("report", "--help", check=0).stdout.split())
    assert "imports no environment and no plugin" in told
    assert "--plugin" not in told
