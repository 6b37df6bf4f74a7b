"""Places that cannot be written to: one line, exit code 2, before anything is computed, and nothing is left behind."""

import errno
import os
import shutil
import sys
from pathlib import Path

import pytest
from helpers.short_runs import run_one

from guss.checkpoint import sync_folder
from guss.cli.main import raised_by_guss
from guss.errors import GussError
from guss.files import check_file, check_folder, writing
from guss.runs.checkpoints import newest_checkpoint
from guss.runs.claim import claimed, owner_of
from guss.runs.config import RunConfig

ORIGIN = {"command": "a test"}
PLACES = {
    "file/below": "Not a directory",
    "file": "File exists",
    "loop": "Too many levels of symbolic links",
    "loop/below": "Too many levels of symbolic links",
    "x" * 300: "File name too long",
    "/proc/nowhere": "No such file or directory",
    "/sys/nowhere": "(Operation not permitted|Permission denied|Read-only)",
}
IDS = [place[:12] for place in PLACES]


def config(**changes):
    small = {"env": "safe-pendulum", "method": "random", "model": "oracle", "seeds": (0,), "episodes": 3}
    return RunConfig(**small | changes)


@pytest.fixture
def bad_places(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("kept")
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.chdir(tmp_path)
    yield
    assert (tmp_path / "file").read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "loop"], "nothing is left behind"


@pytest.mark.parametrize("place", PLACES, ids=IDS)
def test_a_folder_that_cannot_be_written_to(bad_places, place):
    with pytest.raises(GussError, match=rf"cannot write .*: {PLACES[place]}"):
        check_folder(Path(place))
    with pytest.raises(GussError, match="cannot write"):
        check_file(Path(place) / "name.csv")


def test_a_folder_that_can_be_is_not_created(tmp_path, bad_places):
    check_folder(Path("new/er/folder"))
    check_file(Path("new/file.csv"))
    check_file(Path("file"))
    with pytest.raises(GussError, match="it is a folder, not a file"):
        check_file(tmp_path)
    with pytest.raises(GussError, match="it is a device, not a file"):
        check_file(Path("/dev/null"))


COMMANDS = {
    "run": ("run", "--method", "random", "--seeds", 1, "--episodes", 1, "--out"),
    "fit": ("fit", "--data", "missing.csv", "--out"),
    "toy": ("reproduce", "toy", "--preset", "quick", "--methods", "rs", "--out"),
    "table1": ("reproduce", "table1", "--preset", "quick", "--env", "safe-pendulum", "--out"),
    "init": ("init",),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("place", PLACES, ids=IDS)
def test_commands_check_their_folder_first(bad_places, guss_here, command, place):
    process = guss_here(*COMMANDS[command], place, check=2)
    (line,) = process.stderr.strip().splitlines()
    assert line.startswith("guss: error: cannot write ")
    assert process.stdout == ""


FILES = {
    "export": ("export", "run", "--out"),
    "replay": ("replay", "run", "--out"),
    "pack": ("pack", "run", "--out"),
    "report": ("report", "runs", "--out"),
}


@pytest.mark.parametrize("command", FILES)
def test_commands_check_their_file_first(tmp_path, guss_here, command):
    sys.path.insert(0, str(Path(__file__).parent / "reports"))
    from helpers.stored import store

    shutil.copytree(store(tmp_path / "runs", name="run"), tmp_path / "run")
    (tmp_path / "file").write_text("")
    for place in ("file/out.gif", "/proc/nowhere/out.gif", "x" * 300 + "/out.gif"):
        process = guss_here(*FILES[command], place, check=2)
        (line,) = process.stderr.strip().splitlines()
        assert line.startswith("guss: error: cannot write "), line


def test_a_run_checks_its_folder_before_it_compiles(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("guss.runs.run.Trainer", lambda *_: pytest.fail("this may compile"))
    with pytest.raises(GussError, match="cannot write"):
        run_one(config(), tmp_path / "file", ORIGIN)


@pytest.mark.parametrize("how", ["renamed", "deleted", "a file now"])
def test_a_folder_that_goes_away_during_the_run_is_an_error_that_says_so(tmp_path, how):
    (tmp_path / "runs").mkdir()

    def go_away(news):
        (home,) = (tmp_path / "runs").iterdir()
        if how == "renamed":
            home.rename(tmp_path / "moved")
        else:
            shutil.rmtree(home)
        if how == "a file now":
            home.write_text("")

    with pytest.raises(GussError, match=r"cannot write .*safe-pendulum-random-.*: (No such file|Not a dir)"):
        run_one(config(), tmp_path / "runs", ORIGIN, go_away)
    if how == "renamed":
        assert newest_checkpoint(tmp_path / "moved").meta["done"] == 1
        assert owner_of(tmp_path / "moved").ended, "its process has released it"


def test_a_claim_hides_no_error_and_removes_no_other_claim(tmp_path):
    home = tmp_path / "run"

    def replace_folder():
        with claimed(home):
            home.rename(tmp_path / "moved")
            home.mkdir()
            (home / "claim-000001").write_text("another's")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        replace_folder()
    assert (home / "claim-000001").read_text() == "another's"


def test_an_error_is_ours_only_if_our_code_called_what_raised_it(tmp_path):
    with pytest.raises(OSError) as ours:  # noqa: PT011
        Path(tmp_path / "no" / "file").read_text()
    assert not raised_by_guss(ours.value), "called by this test"
    with pytest.raises(OSError) as theirs:  # noqa: PT011
        sync_folder(tmp_path / "no")
    assert raised_by_guss(theirs.value), "called by a part of guss outside of cli/"
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(GussError, match=r"cannot write here: No space left on device \(free"), writing(Path("here")):
        raise full
