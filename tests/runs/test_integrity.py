"""Records that were lost or altered, code that changed, and what is on disk when."""

import json
import os
import shutil
import warnings

import numpy as np
import pytest
from helpers.short_runs import ORIGIN, config, resume_run, run_one

from guss import checkpoint
from guss.errors import GussError, GussWarning
from guss.runs.checkpoints import newest_checkpoint
from guss.runs.evaluation import evaluate_run
from guss.runs.replay import Replay
from guss.runs.store import read_lines, trace_path

EPISODES = 4
PLANT = """
from guss.envs.pendulum import pendulum_task
from params import LENGTH

def make():
    return pendulum_task().replace(episode_length=LENGTH)
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run that learns nothing, so that it is quick."""
    return run_one(config(method="random", episodes=EPISODES), tmp_path_factory.mktemp("whole"), ORIGIN)


def content(home):
    return {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}


def lines_changed(change, name="episodes.jsonl"):
    def damage(home):
        lines = (home / name).read_text().splitlines(keepends=True)
        (home / name).write_text("".join(change(lines)))

    return damage


def cut(path):
    path.write_bytes(path.read_bytes()[:-30])


def without_two_steps(home):
    with trace_path(home, 4, 1).open("rb") as file:
        held = dict(np.load(file))
    with trace_path(home, 4, 1).open("wb") as file:
        np.savez(file, **{name: value[:-2] for name, value in held.items()})


def wrong(line, expected, got):
    return rf"episodes\.jsonl, line {line}: expected {expected}, got {got}; .*missing, repeated, out of order"


NO_LINE = "no readable line"
DAMAGES = {
    "a lost line": (
        lines_changed(lambda x: x[:3] + x[4:]),
        wrong(4, "episode 1 of seed 4", "episode 2 of seed 3"),
    ),
    "many": (lines_changed(lambda x: x[:2]), wrong(3, "episode 1 of seed 3", NO_LINE)),
    "no lines": (lambda home: (home / "episodes.jsonl").unlink(), r"episodes\.jsonl is missing"),
    "a line twice": (
        lines_changed(lambda x: x[:3] + x[2:]),
        wrong(4, "episode 1 of seed 4", "episode 1 of seed 3"),
    ),
    "another order": (
        lines_changed(lambda x: [x[1], x[0], *x[2:]]),
        wrong(1, "episode 0 of seed 3", "episode 0 of seed 4"),
    ),
    "no JSON": (lines_changed(lambda x: [*x[:2], "{no\n", *x[3:]]), wrong(3, "episode 1 of seed 3", NO_LINE)),
    "one more line": (lines_changed(lambda x: [*x[:2], "{no\n", *x[2:]]), wrong(3, "episode 1 of seed 3", NO_LINE)),
    "another number": (lines_changed(lambda x: [x[0].replace("25", "24", 1), *x[1:]]), "was altered: its checksum"),
    "a lost timing": (
        lines_changed(lambda x: x[1:], "timings.jsonl"),
        r"timings\.jsonl, line 1: expected episode 0, got episode 1;",
    ),
    "a lost trace": (lambda home: trace_path(home, 3, 2).unlink(), r"the trace .*seed3-ep2\.npz is missing"),
    "half a trace": (lambda home: cut(trace_path(home, 3, 2)), r"cannot read the trace .*seed3-ep2\.npz"),
    "a short trace": (without_two_steps, r"seed4-ep1\.npz has 23 steps, its line in episodes\.jsonl has 25"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_lost_and_altered_records_are_an_error_and_nothing_is_changed(tmp_path, whole, name):
    damage, expected = DAMAGES[name]
    home = shutil.copytree(whole, tmp_path / "run")
    damage(home)
    before = content(home)
    with pytest.raises(GussError, match=f"after {EPISODES} episodes: .*{expected}.* Nothing was changed.* --overwrite"):
        resume_run(home)
    assert content(home) == before


def test_the_checkpoint_before_is_offered_where_it_helps(tmp_path, whole, guss_here):
    home = shutil.copytree(whole, tmp_path / "run")
    lines_changed(lambda x: x[:-1])(home)
    told = guss_here("run", "--resume", home, "--quiet", "--no-figures", check=2).stderr
    assert f"line {2 * EPISODES}: expected episode {EPISODES - 1} of seed 4, got no readable line" in told
    assert f"The first {EPISODES - 1} episodes are complete: `guss run --resume {home} --previous`" in told
    resume_run(home, previous=True)
    assert (home / "episodes.jsonl").read_bytes() == (whole / "episodes.jsonl").read_bytes()


def test_later_lines_are_dropped_whatever_they_hold(tmp_path, whole):
    home = shutil.copytree(whole, tmp_path / "run")
    with (home / "episodes.jsonl").open("a") as file:
        file.write('{"seed": 3, "episode": 4}\nno JSON\n{"episode": 4, "half a li')
    resume_run(home)
    assert (home / "episodes.jsonl").read_bytes() == (whole / "episodes.jsonl").read_bytes()


def test_a_checkpoint_without_checksums_of_the_records_is_read_and_lost_lines_are_found(tmp_path, whole):
    home = shutil.copytree(whole, tmp_path / "run")
    stored = newest_checkpoint(home)
    assert set(stored.meta["records"]) == {"episodes.jsonl", "timings.jsonl"}
    del stored.meta["records"]
    checkpoint.save(stored.path, "run", stored.meta, {})
    resume_run(home)
    lines_changed(lambda x: x[1:])(home)
    with pytest.raises(GussError, match="line 1: expected episode 0 of seed 3, got episode 0 of seed 4"):
        resume_run(home)


def test_records_are_on_disk_before_the_checkpoint_and_its_name_after(tmp_path, monkeypatch):
    calls = []
    sync, replace = os.fsync, os.replace

    def synced(descriptor):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        calls.append(("sync", os.path.basename(path), os.path.getsize(path)))
        sync(descriptor)

    def replaced(source, target):
        calls.append(("rename", target.name, 0))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    home = run_one(config(method="random", episodes=2), tmp_path, ORIGIN)
    names = [call[:2] for call in calls]
    for name in ("episodes.jsonl", "timings.jsonl"):
        sizes = [call[2] for call in calls if call[:2] == ("sync", name)]
        assert len(sizes) == 2
        assert sizes[-1] == (home / name).stat().st_size, "synced with its last line in it"
    for done in (1, 2):
        written = names.index(("rename", f"ep{done:06d}.ckpt"))
        (what, name), stem = names[written - 1], f"ep{done:06d}.ckpt."
        assert what == "sync"
        assert name.startswith(stem)
        assert name.endswith(".partial")
        assert names[written + 1] == ("sync", "checkpoints"), "a rename lasts once its folder is synced"
        for name in ("episodes.jsonl", "timings.jsonl"):
            assert names[:written].count(("sync", name)) == done
        for seed in (3, 4):
            trace = names.index(("rename", f"seed{seed}-ep{done - 1}.npz"))
            assert names[trace + 1] == ("sync", "traces")
            assert trace < names.index(("sync", "episodes.jsonl")) or done == 2
    assert ("sync", home.name) in names
    assert ("sync", home.parent.name) in names


# ---------------------------------------------------------------------------------------------------- code that changed


@pytest.fixture(scope="module")
def plant(tmp_path_factory):
    """An environment of two files, and a run on it."""
    folder = tmp_path_factory.mktemp("plant")
    (folder / "plant_of_two.py").write_text(PLANT)
    (folder / "params.py").write_text("LENGTH = 25\n")
    (folder / "unrelated.py").write_text("")
    home = run_one(config(env=f"{folder / 'plant_of_two.py'}:make", episodes=2), folder / "runs", ORIGIN)
    return folder, home


def test_a_run_knows_the_code_of_its_environment_wherever_it_lies(plant, tmp_path):
    _, home = plant
    about = json.loads((home / "config.json").read_text())
    assert list(about["sources"]) == ["environment"]
    assert list(about["sources"]["environment"]) == ["params.py", "plant_of_two.py"]
    assert "sources" not in about["config"], "the name of a run's folder does not depend on it"
    bundled = run_one(config(env="safe-pendulum", method="random", episodes=1), tmp_path, ORIGIN)
    assert json.loads((bundled / "config.json").read_text())["sources"] == {}


def test_code_that_changed_is_warned_of(plant, guss_command):
    folder, home = plant
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resume_run(home)
        evaluate_run(home, 1)
        (folder / "unrelated.py").write_text("x = 1\n")
        resume_run(home)
    (folder / "params.py").write_text("LENGTH = 25  # as before, but who knows\n")
    uses = (lambda: resume_run(home), lambda: evaluate_run(home, 1), lambda: Replay(home, 1, None))
    for use in uses:
        with pytest.warns(GussWarning, match=r"the environment of .* has changed since the run started \(params\.py\)"):
            use()
    process = guss_command("eval", home, "--episodes", "1", "--quiet", check=0)
    assert process.stderr.startswith("guss: warning: the environment of ")
    assert len(process.stderr.splitlines()) == 1
    (folder / "params.py").write_text("LENGTH = 25\n")
    evaluate_run(home, 1)


def test_a_run_from_before_is_not_warned_of(plant, tmp_path):
    home = shutil.copytree(plant[1], tmp_path / "run")
    about = json.loads((home / "config.json").read_text())
    del about["sources"]
    (home / "config.json").write_text(json.dumps(about))
    resume_run(home)
    assert len(read_lines(home / "episodes.jsonl")) == 4


def test_a_package_is_followed_through_relative_and_absolute_imports(tmp_path, monkeypatch):
    package = tmp_path / "rig_of_tests"
    (package / "parts").mkdir(parents=True)
    files = {
        "__init__.py": "",
        "envs.py": "from .physics import make\nimport numpy\nimport guss.task\n",
        "physics.py": "from rig_of_tests.parts import arm\nfrom guss.envs.pendulum import pendulum_task as make\n",
        "parts/__init__.py": "",
        "parts/arm.py": "from .. import limits\n",
        "limits.py": "",
        "tools.py": "",
    }
    for name, text in files.items():
        (package / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    home = run_one(config(env="rig_of_tests.envs:make", method="random", episodes=1), tmp_path / "runs", ORIGIN)
    found = json.loads((home / "config.json").read_text())["sources"]["environment"]
    assert list(found) == sorted(f"rig_of_tests/{name}" for name in files if name != "tools.py")


def test_records_without_a_checkpoint_are_not_erased(tmp_path):
    home = run_one(config(episodes=3), tmp_path, ORIGIN)
    for path in (home / "checkpoints").iterdir():
        path.unlink()
    before = {path.name: path.read_bytes() for path in home.iterdir() if path.is_file()}
    with pytest.raises(GussError, match="records of 3 episodes and no checkpoint to resume from; nothing was changed"):
        resume_run(home)
    assert {path.name: path.read_bytes() for path in home.iterdir() if path.is_file()} == before
