"""Runs that get more episodes than they were begun with."""

import json
import shutil

import numpy as np
import pytest
from helpers.short_runs import ORIGIN, Stop, assert_same_run, config, policy_config, resume_run, run_one, stop_after

from guss.agent import Agent
from guss.errors import GussError
from guss.reports.inventory import read_record
from guss.reports.run_summary import summarise_run
from guss.runs.checkpoints import final_models, newest_checkpoint
from guss.runs.evaluation import evaluate_run
from guss.runs.extension import Extension
from guss.runs.pack import pack_run
from guss.runs.replay import Replay
from guss.runs.results import read_config
from guss.runs.rows import read_episodes

FIRST, ALL = 2, 4
ORIGIN_LATER = {"command": "guss run --resume", "commit": "abc", "date": "now", "machine": {}}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run_one(config(episodes=FIRST), tmp_path_factory.mktemp("finished"), ORIGIN)


@pytest.fixture(scope="module")
def longer(tmp_path_factory, finished):
    home = shutil.copytree(finished, tmp_path_factory.mktemp("longer") / finished.name)
    resume_run(home, more=Extension(ALL, origin=ORIGIN_LATER))
    return home


def records(home):
    return {path.name: path.read_bytes() for path in home.rglob("*") if path.is_file()}


def test_a_finished_run_is_extended_and_keeps_what_it_has(finished, longer, tmp_path):
    before, after = ((home / "episodes.jsonl").read_bytes() for home in (finished, longer))
    assert after.startswith(before)
    assert len(read_episodes(longer)) == 2 * ALL
    stored = json.loads((longer / "config.json").read_text())
    assert stored["config"]["episodes"] == ALL
    assert stored["extended"] == [
        {"episodes": FIRST, "target": None, "command": "guss run --resume", "commit": "abc", "date": "now"}
    ]
    assert final_models(longer, ALL) is not None
    assert summarise_run(longer)["episodes"] == ALL
    assert read_record(longer).command == f"{ORIGIN['command']} && guss run --resume", "both are needed to repeat it"
    straight = newest_checkpoint(run_one(config(episodes=ALL), tmp_path, ORIGIN))
    for name, array in newest_checkpoint(longer).arrays.items():  # programs of other sizes round differently
        np.testing.assert_allclose(array, straight.arrays[name], rtol=1e-3, atol=1e-4, err_msg=name)


def test_it_is_put_to_work_replayed_and_packed_like_any_other(finished, longer, tmp_path):
    assert evaluate_run(longer, 1).trained_episodes == ALL
    assert Agent.from_run(longer).episode == ALL
    for episode in (1, ALL - 1):
        replay = Replay(longer, episode, None)
        list(replay.steps())
        assert replay.matching == replay.replanned > 0, "also of models that are fitted again"
    pack_run(finished, tmp_path, with_animation=False)
    assert pack_run(longer, tmp_path, with_animation=False).episodes == ALL
    with pytest.raises(GussError, match="contains more of this run"):
        pack_run(finished, tmp_path, with_animation=False)
    with pytest.raises(GussError, match="is a packed run"):
        resume_run(tmp_path / longer.name, more=Extension(9))


def test_an_interrupted_extension_is_resumed(finished, longer, tmp_path):
    for episode in (None, FIRST):
        home = shutil.copytree(finished, tmp_path / f"{episode}" / "run")
        with pytest.raises(Stop):
            resume_run(home, stop_after(episode), on_step=None, more=Extension(ALL)) if episode else interrupt(home)
        assert read_config(home).episodes == ALL
        if episode is None:
            assert final_models(home, FIRST) is not None, "nothing is lost before there is more"
            assert evaluate_run(home, 1).trained_episodes == FIRST
        resume_run(home)
        assert_same_run(home, longer)


def interrupt(home):
    """Before its first new episode is over."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("guss.runs.trainer.Trainer.iterate", raise_stop)
        resume_run(home, more=Extension(ALL))


def raise_stop(*_):
    raise Stop


def test_fewer_episodes_are_refused_and_nothing_is_changed(finished, tmp_path, guss_here):
    home = shutil.copytree(finished, tmp_path / "run")
    before = records(home)
    process = guss_here("run", "--resume", home, "--episodes", "1", check=2)
    assert f"a run of {FIRST} episodes, of which {FIRST} are finished; --episodes is the new total" in process.stderr
    assert "got 1" in process.stderr
    assert (
        "leave out --against" in guss_here("run", "--resume", home, "--episodes", 9, "--against", "rs", check=2).stderr
    )
    assert records(home) == before
    resume_run(home, more=Extension(FIRST))
    assert records(home) == before


def test_what_was_made_of_its_records_is_made_again(finished, tmp_path):
    home = shutil.copytree(finished, tmp_path / "run")
    for name in ("maps.json.gz", "animation.json.gz"):
        (home / name).write_bytes(b"old")
    resume_run(home, more=Extension(FIRST + 1))
    assert not (home / "maps.json.gz").exists()
    assert not (home / "animation.json.gz").exists()


def test_a_run_that_reached_its_target_needs_another_one(tmp_path):
    home = run_one(config(model="oracle", target=-1e9, episodes=5), tmp_path, ORIGIN)
    assert newest_checkpoint(home).meta["done"] == 2
    with pytest.raises(GussError, match=r"stopped after 2 of 5 episodes because it reached its target of -1000000"):
        resume_run(home, more=Extension(6))
    resume_run(home)
    assert newest_checkpoint(home).meta["done"] == 2
    resume_run(home, more=Extension(4 + 2, float("inf")))
    assert newest_checkpoint(home).meta["done"] == 6
    assert read_config(home).target is None
    resume_run(home, more=Extension(target=-1e9, episodes=9))
    assert newest_checkpoint(home).meta["done"] == 7
    stored = json.loads((home / "config.json").read_text())["extended"]
    assert [(each["episodes"], each["target"]) for each in stored] == [(5, -1e9), (6, None)]


@pytest.mark.parametrize("method", ["ppo-lagrangian", "sac", "safe-mbpo", "random"])
def test_every_method_is_extended(tmp_path, method):
    settings = {"method_settings": {}} if method == "random" else {}
    home = run_one(policy_config(method, episodes=2, **settings), tmp_path, ORIGIN)
    before = (home / "episodes.jsonl").read_bytes()
    resume_run(home, more=Extension(4))
    assert (home / "episodes.jsonl").read_bytes().startswith(before)
    assert len(read_episodes(home)) == 8
    assert newest_checkpoint(home).meta["done"] == 4


def test_a_number_that_its_method_cannot_have_changes_nothing(tmp_path):
    home = run_one(policy_config(episodes=2), tmp_path, ORIGIN)
    before = records(home)
    with pytest.raises(GussError, match="must be a multiple of 2, such as 2 or 4; got 3"):
        resume_run(home, more=Extension(3))
    assert records(home) == before


def test_the_command_extends_a_run(guss_here, tmp_path):
    words = ("--env", "safe-pendulum", "--method", "random", "--seeds", 1, "--episodes", 1, "--no-figures", "--quiet")
    guss_here("run", *words, check=0)
    (home,) = (tmp_path / "runs").iterdir()
    guss_here("run", "--resume", home, "--episodes", 2, "--quiet", check=0)
    assert [row["episode"] for row in read_episodes(home)] == [0, 1]
    assert (home / "figures" / "learning.png").exists()
