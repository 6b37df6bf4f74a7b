"""Runs that are interrupted, killed, in use or out of room."""

import itertools
import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from helpers.short_runs import ORIGIN, Stop, assert_same_run, config, resume_run, run_one, stop_after

from guss.errors import GussError
from guss.runs.checkpoints import newest_checkpoint
from guss.runs.claim import claimed
from guss.runs.evaluation import evaluate_run
from guss.runs.store import read_lines

EPISODES = 4


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was never interrupted."""
    return run_one(config(episodes=EPISODES), tmp_path_factory.mktemp("whole"), ORIGIN)


@pytest.mark.parametrize("episode", [0, 2])
def test_an_interrupted_run_ends_as_if_it_had_not_been(tmp_path, whole, episode):
    with pytest.raises(Stop):
        run_one(config(episodes=EPISODES), tmp_path, ORIGIN, stop_after(episode))
    (home,) = tmp_path.iterdir()
    with (home / "episodes.jsonl").open("a") as file:
        file.write('{"episode": 3, "half a li')
    told = []
    resume_run(home, told.append)
    assert [news.episode for news in told] == list(range(episode + 1, EPISODES))
    assert_same_run(home, whole)
    assert len(read_lines(home / "timings.jsonl")) == EPISODES
    resume_run(home, told.append)
    assert len(told) == EPISODES - episode - 1, "a finished run stays as it is"


def test_what_was_recorded_after_the_last_checkpoint_is_done_again(tmp_path, whole):
    home = shutil.copytree(whole, tmp_path / "run")
    (home / "checkpoints" / f"ep{EPISODES:06d}.ckpt").unlink()
    told = []
    resume_run(home, told.append)
    assert [news.episode for news in told] == [EPISODES - 1]
    assert_same_run(home, whole)


def test_a_run_killed_before_its_first_checkpoint_begins_anew(tmp_path, whole):
    home = shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(home / "checkpoints")
    for name, count in (("episodes.jsonl", 2), ("timings.jsonl", 1)):  # the first episode of two seeds
        (home / name).write_bytes(b"".join((home / name).read_bytes().splitlines(keepends=True)[:count]))
    resume_run(home)
    assert_same_run(home, whole)


def test_a_damaged_checkpoint_is_told_and_the_one_before_is_offered(tmp_path, whole):
    home = shutil.copytree(whole, tmp_path / "run")
    last = home / "checkpoints" / f"ep{EPISODES:06d}.ckpt"
    content = bytearray(last.read_bytes())
    content[-100] ^= 1
    last.write_bytes(content)
    before = (home / "episodes.jsonl").read_bytes()
    with pytest.raises(GussError, match=r"checksum does not match.* after 3 episodes, is valid: .*--previous` resumes"):
        resume_run(home)
    assert (home / "episodes.jsonl").read_bytes() == before
    resume_run(home, previous=True)
    assert_same_run(home, whole)
    last.write_bytes(b"no")
    (home / "checkpoints" / f"ep{EPISODES - 1:06d}.ckpt").write_bytes(b"no")
    with pytest.raises(GussError, match=f"ep{EPISODES:06d}.ckpt is not a checkpoint of guss$"):
        resume_run(home)


def test_a_checkpoint_of_another_run_is_told(tmp_path, whole):
    home = shutil.copytree(whole, tmp_path / "run")
    stored = json.loads((home / "config.json").read_text())
    stored["config"]["budget"] = 21
    (home / "config.json").write_text(json.dumps(stored))
    with pytest.raises(GussError, match="was written with other settings"):
        resume_run(home)


def test_stored_runs_are_not_lost(tmp_path):
    home = run_one(config(model="oracle", episodes=2), tmp_path, ORIGIN)
    before = (home / "episodes.jsonl").read_bytes()
    with pytest.raises(
        GussError, match=r"settings \(2 of 2 episodes\); resume it with `guss run --resume .*`, or replace it with --ov"
    ):
        run_one(config(model="oracle", episodes=2), tmp_path, ORIGIN)
    assert (home / "episodes.jsonl").read_bytes() == before
    run_one(config(model="oracle", episodes=2), tmp_path, ORIGIN, overwrite=True)
    assert (home / "episodes.jsonl").read_bytes() == before
    with pytest.raises(GussError, match=r"is not a run: cannot read its config\.json"):
        resume_run(tmp_path)


def test_a_second_process_is_told_and_changes_nothing(tmp_path, whole, guss_command):
    home = shutil.copytree(whole, tmp_path / "run")
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    with claimed(home):
        process = guss_command("run", "--resume", home, "--plugin", plugin(tmp_path), check=2)
    assert f"in use by process {os.getpid()}" in process.stderr
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before


def test_resuming_takes_no_other_settings(whole, guss_here):
    process = guss_here("run", "--resume", whole, "--horizon", "5", "--seed", "9", check=2)
    assert "leave out --horizon, --seed" in process.stderr
    assert "--previous chooses the checkpoint to resume from" in guss_here("run", "--previous", check=2).stderr


def test_a_frozen_agent_is_evaluated_on_new_starts_and_learns_nothing(tmp_path, whole, guss_here):
    home = shutil.copytree(whole, tmp_path / "run")
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    first = json.loads(guss_here("eval", home, "--episodes", "3", "--json", check=0).stdout)
    assert (first["seeds"], first["episodes"], first["trained_episodes"]) == (2, 3, EPISODES)
    assert -17.0 < first["mean_reward"][0] < 0.0
    stored = json.loads((home / "eval.json").read_text())
    assert stored.pop("provenance")["command"].startswith("guss eval")
    assert stored == first
    (home / "eval.json").unlink()
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before
    found = evaluate_run(home, 3)
    np.testing.assert_allclose(found.mean_reward.mean(axis=1), first["mean_reward_per_seed"], atol=2e-2)
    learned = {row["mean_reward"] for row in read_lines(home / "episodes.jsonl")}
    assert not learned & set(found.mean_reward.ravel().tolist()), "other starts than in the run"
    with pytest.raises(GussError, match="evaluate at least 1 episode"):
        evaluate_run(home, 0)
    shutil.rmtree(home / "checkpoints")
    with pytest.raises(GussError, match="has no checkpoint to load"):
        evaluate_run(home, 1)


# ------------------------------------------------------------------------------------------------- processes killed


def plugin(folder):
    """The short pendulum, as a user's own environment."""
    path = folder / "short_env.py"
    path.write_text(
        textwrap.dedent("""
            from guss.envs import ENVS, EnvSpec
            from guss.envs.pendulum import pendulum_task

            ENVS.add("short-pendulum", EnvSpec("none", lambda: pendulum_task().replace(episode_length=25)),
                     summary="for tests", origin="short_env")
        """)
    )
    return path


def command(folder, *words, episodes, fit):
    """A run of so many episodes; or to go on with one."""
    settings = ["--env", "short-pendulum", "--method", "rs", "--seeds", "2", "--seed", "3", "--horizon", "3"]
    settings += ["--episodes", str(episodes)]
    settings += ["--budget", "20", "--model.hidden", "8", *fit, "--out", str(folder / "runs")]
    chosen = list(map(str, words)) if words else settings
    return [sys.executable, "-m", "guss", "run", *chosen, "--quiet", "--no-figures", "--plugin", str(plugin(folder))]


def finished(folder):
    """Episodes in the records, however much of them is there yet."""
    (path,) = list(folder.glob("runs/short-*/episodes.jsonl")) or [None]
    return 0 if path is None else path.read_bytes().count(b"\n") // 2


def environment(folder):
    """Programs are kept apart from those of other tests: what is killed may leave half of one."""
    return os.environ | {"GUSS_CACHE_DIR": str(folder / "cache")}


def kill_and_resume(tmp_path, whole, kills, seed, **settings):
    """Kill one run at random moments, again and again, then let it end; returns how many episodes each kill left."""
    draw, episodes = random.Random(seed), settings["episodes"]
    left = []

    def words():
        configs = list(tmp_path.glob("runs/short-*/config.json"))
        return ("--resume", configs[0].parent) if configs else ()

    for _ in range(kills):
        process = subprocess.Popen(
            command(tmp_path, *words(), **settings), env=environment(tmp_path), start_new_session=True
        )
        if draw.random() < 1 / 3:  # while it gets going
            time.sleep(draw.uniform(0.1, 6.0))
        else:  # in the midst of its work, some episodes later
            wanted = finished(tmp_path) + draw.randint(0, episodes // (2 * kills))
            while finished(tmp_path) < wanted and process.poll() is None:
                time.sleep(0.002)
            time.sleep(draw.uniform(0.0, 0.4))
        assert process.poll() is None, "it should not have come to its end yet"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        left.append(finished(tmp_path))
    subprocess.run(command(tmp_path, *words(), **settings), check=True, env=environment(tmp_path))
    (home,) = (tmp_path / "runs").iterdir()
    assert_same_run(home, whole)
    lines = read_lines(home / "episodes.jsonl")
    assert [(e["seed"], e["episode"]) for e in lines] == [(s, e) for e in range(episodes) for s in (3, 4)]
    return left


def test_a_killed_run_ends_as_if_it_had_not_been(tmp_path):
    """The run it is compared with is one of this process; what the killed process compiled, the next one loads."""
    whole = run_one(config(episodes=8), tmp_path / "whole", ORIGIN)
    assert len(kill_and_resume(tmp_path, whole, kills=1, seed=0, episodes=8, fit=("--fit.epochs", "3"))) == 1


@pytest.mark.long
def test_a_run_killed_twenty_times_ends_as_if_it_had_not_been(tmp_path, record_result):
    settings = {"episodes": 120, "fit": ("--fit.max-steps", "300")}
    (tmp_path / "whole").mkdir()
    subprocess.run(command(tmp_path / "whole", **settings), check=True, env=environment(tmp_path))
    (whole,) = (tmp_path / "whole" / "runs").iterdir()
    left = kill_and_resume(tmp_path, whole, kills=20, seed=1, **settings)
    assert len(left) == 20
    assert all(b >= a - 1 for a, b in itertools.pairwise(left)), "an episode is lost at most until it is done again"
    assert len(set(left)) > 5, "it was killed at many places"
    seen = {"kills": len(left), "episodes": 120, "episodes_finished_at_each_kill": left}
    record_result("kill_and_resume", seen | {"episodes_jsonl_equal": True, "final_weights_equal": True})


# -------------------------------------------------------------------------------------------------------- no room left


@pytest.mark.long  # mounting needs rights; without them a device that is always full stands for the disk, below
def test_a_full_disk_is_told_everything_finished_is_readable_and_the_run_goes_on_with_room(tmp_path, whole):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=76k", "tmpfs", small], capture_output=True, text=True)
    assert mounted.returncode == 0, f"a small tmpfs cannot be mounted here: {mounted.stderr.strip()}"
    try:
        with pytest.raises(GussError, match="No space left on device"):
            run_one(config(episodes=EPISODES), small, ORIGIN)
        (home,) = small.iterdir()
        done = len(read_lines(home / "episodes.jsonl")) // 2
        assert 0 < done < EPISODES
        assert newest_checkpoint(home).meta["done"] > 0
        for path in (home / "traces").glob("*.npz"):
            with path.open("rb") as file:
                assert np.load(file)["obs"].shape == (25, 3)
        subprocess.run(["mount", "-o", "remount,size=10m", small], check=True)
        resume_run(home)
        assert_same_run(home, whole)
    finally:
        subprocess.run(["umount", small], check=False)


@pytest.mark.parametrize("name", ["checkpoints/ep000003.ckpt", "traces/seed4-ep2.npz"])
def test_no_room_for_one_file_loses_at_most_the_episode_under_way(tmp_path, whole, name, monkeypatch):
    """A device that is always full stands for the disk: no rights are needed for it."""
    monkeypatch.setattr(secrets, "token_hex", lambda size: "token")

    def fill(stage):
        partial = home / f"{name}.token.partial"
        if not partial.is_symlink():
            partial.symlink_to("/dev/full")

    with pytest.raises(Stop):
        run_one(config(episodes=EPISODES), tmp_path, ORIGIN, stop_after(1))
    (home,) = tmp_path.iterdir()
    with pytest.raises(GussError, match=f"cannot write .*{name}: No space left on device"):
        resume_run(home, on_stage=fill)
    assert newest_checkpoint(home).meta["done"] == 2
    assert len(read_lines(home / "episodes.jsonl")) >= 4
    resume_run(home)
    assert_same_run(home, whole)
