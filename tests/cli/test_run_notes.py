"""What `guss run` says beside its summary: how to resume it, and that nothing but random actions was asked for."""

import shlex

import pytest

from guss.cli.run_notes import resumable, resume_command
from guss.runs.rows import read_episodes

SMALL = ("--env", "safe-pendulum", "--seeds", 1, "--no-figures", "--quiet", "--method", "rs", "--model", "oracle")
SMALL += ("--horizon", 2, "--budget", 5)
RANDOM = ("--env", "safe-pendulum", "--seeds", 1, "--no-figures", "--quiet", "--method", "random", "--episodes", 1)


def test_a_run_of_random_episodes_alone_says_so_before_and_after(guss_here, tmp_path):
    process = guss_here("run", *SMALL, "--episodes", 1, "--out", "my runs", check=0)
    before, after = process.stderr.strip().splitlines()
    assert before.startswith(
        "guss: warning: all actions of this run will be random: --episodes is 1, and rs acts only after 1 random "
        "episode; increase"
    )
    assert after.startswith("guss: warning: all 1 episodes were random")
    (home,) = (tmp_path / "my runs").iterdir()
    words = shlex.split(after.partition("add episodes with ")[2])
    assert words == ["guss", "run", "--resume", str(home), "--episodes", "2"]
    assert guss_here(*words[1:], "--quiet", "--no-figures", check=0).stderr == ""
    assert [row["phase"] for row in read_episodes(home)] == ["random", "plan"]


def test_runs_that_are_meant_to_be_random_or_plan_say_nothing(guss_here):
    for words in (RANDOM, (*SMALL, "--episodes", 2)):
        assert guss_here("run", *words, check=0).stderr == ""


def test_an_interrupt_shows_the_command_that_resumes(guss_here, tmp_path, monkeypatch):
    from guss.runs.trainer import Trainer

    iterate = Trainer.iterate

    def interrupted(trainer, on_step=None):
        if trainer.done == 1:
            raise KeyboardInterrupt
        return iterate(trainer, on_step)

    monkeypatch.setattr(Trainer, "iterate", interrupted)
    process = guss_here("run", *SMALL, "--episodes", 2, "--out", "it's here", check=130)
    (home,) = (tmp_path / "it's here").iterdir()
    command = process.stderr.strip().partition("; resume with: ")[2]
    assert shlex.split(command) == ["guss", "run", "--resume", str(home)], "it works in any folder"
    process = guss_here(*shlex.split(command)[1:], "--quiet", check=130)
    assert command in process.stderr, "also when it was resumed"
    monkeypatch.setattr(Trainer, "iterate", iterate)
    guss_here(*shlex.split(command)[1:], "--quiet", "--no-figures", check=0)
    assert len(read_episodes(home)) == 2


def test_where_nothing_is_stored_there_is_nothing_to_resume(tmp_path):
    with pytest.raises(KeyboardInterrupt) as stop, resumable(tmp_path / "run"):
        raise KeyboardInterrupt
    assert not getattr(stop.value, "__notes__", ())
    assert resume_command(tmp_path) == f"guss run --resume {tmp_path}"
