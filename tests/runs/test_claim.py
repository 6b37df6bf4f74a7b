"""Claims: one owner at a time, lost claims are taken over, and an owner that lost its claim writes nothing."""

import json
import multiprocessing
import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from guss.checkpoint import write_atomically
from guss.errors import GussError
from guss.runs import claim as claims
from guss.runs.claim import BEATS, EXPIRY, ClaimLostError, InUseError, Observer, claimed, owner_of
from guss.runs.run import remove_partial
from guss.runs.store import append_lines

OTHER = {"token": "t", "host": "elsewhere", "pid": 1, "boot": "another", "beat": "000000000000"}


def files_of(home):
    return sorted(path.name for path in home.iterdir())


def write_claim(home, number=1, **changes):
    home.mkdir(exist_ok=True)
    path = home / f"claim-{number:06d}"
    path.write_text(json.dumps(OTHER | changes) + "\n")
    return path


class Clock:
    """Stands for the clock of the observer."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(claims.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def test_a_claim_is_exclusive_and_released(tmp_path):
    home = tmp_path / "run"
    with claimed(home) as claim:
        claim.check()
        owner = owner_of(home)
        assert (owner.host, owner.pid, owner.ended) == (platform.node(), os.getpid(), False)
        with (
            pytest.raises(InUseError, match=f"in use by process {os.getpid()} on .*Wait until that process ends"),
            claimed(home),
        ):
            pass
        assert claim.held, "the other attempt changed nothing"
    assert owner_of(home) is None
    assert files_of(home) == []


def test_a_claim_of_another_machine_is_not_taken_over_by_a_single_run(tmp_path):
    path = write_claim(tmp_path)
    with pytest.raises(InUseError, match=f"process 1 on elsewhere.*cannot check.*remove {path}"), claimed(tmp_path):
        pass
    path.unlink()
    with claimed(tmp_path):
        pass


def test_the_claim_of_a_process_that_ended_on_this_machine_is_free_at_once(tmp_path):
    write_claim(tmp_path, boot=claims.boot_id())
    with claimed(tmp_path) as claim:
        assert claim.path.name == "claim-000002"
        assert files_of(tmp_path) == ["claim-000002"]


def test_partial_files_are_removed_by_the_owner_only(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    partial = tmp_path / "checkpoints" / "ep.ckpt.123.partial"
    partial.write_text("half")
    with claimed(tmp_path) as claim:
        taken_over(claim)
        with pytest.raises(ClaimLostError):
            remove_partial(tmp_path, claim)
        assert partial.exists()
    (tmp_path / "claim-000002").unlink()
    with claimed(tmp_path) as claim:
        remove_partial(tmp_path, claim)
    assert not partial.exists()


def test_a_sign_of_life_keeps_a_claim_and_none_loses_it(tmp_path, clock):
    path, observer = write_claim(tmp_path), Observer()
    assert BEATS > 6, "a few lost signs of life are no reason to take over"
    for beat in range(5):
        write_claim(tmp_path, beat=f"{beat:012d}")
        for _ in range(3):
            assert not observer.lost(owner_of(tmp_path))
            clock.now += EXPIRY / 3
    assert observer.lost(owner_of(tmp_path))
    assert not Observer().lost(owner_of(tmp_path)), "each observer waits on its own"
    with claimed(tmp_path, observer) as claim:
        assert not path.exists()
        claim.check()


def test_time_in_which_the_observer_did_not_look_does_not_count(tmp_path, clock):
    """A file server that stalled, or a machine that slept, stops signs of life and observers alike."""
    write_claim(tmp_path)
    observer = Observer()
    assert not observer.lost(owner_of(tmp_path))
    clock.now += 100 * EXPIRY
    assert not observer.lost(owner_of(tmp_path))


def test_no_live_claim_is_removed_with_a_lost_one(tmp_path):
    """A worker was killed while it claimed a run that another one owns."""
    with claimed(tmp_path) as claim:
        write_claim(tmp_path, 6, boot=claims.boot_id())
        with pytest.raises(InUseError), claimed(tmp_path):
            pass
        claim.check()


def test_a_claim_is_released_if_lost_ones_cannot_be_removed(tmp_path, monkeypatch):
    path = write_claim(tmp_path, boot=claims.boot_id())
    unlink = Path.unlink

    def fail(self, missing_ok=False):
        if self == path:
            raise OSError(5, "Input/output error")
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", fail)
    with pytest.raises(GussError, match="Input/output error"), claimed(tmp_path):
        pass
    assert files_of(tmp_path) == [path.name]


def test_the_wall_clock_does_not_matter(tmp_path, clock, monkeypatch):
    path, observer = write_claim(tmp_path), Observer()
    for jump in (-1e9, 1e9):
        monkeypatch.setattr(time, "time", lambda jump=jump: 1.7e9 + jump)
        os.utime(path, (1.7e9 + jump,) * 2)
        assert not observer.lost(owner_of(tmp_path))


def test_the_owner_gives_signs_of_life(tmp_path):
    with claimed(tmp_path, Observer(0.1)):
        first, until = owner_of(tmp_path).content, time.monotonic() + 30
        while owner_of(tmp_path).content == first:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert len(owner_of(tmp_path).content) == len(first)


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"{"])
def test_an_unreadable_claim_expires_like_any_other(tmp_path, clock, content):
    (tmp_path / "claim-000007").write_bytes(content)
    observer = Observer()
    with pytest.raises(InUseError, match=r"process \? on \?"), claimed(tmp_path, observer):
        pass
    for _ in range(3):
        clock.now += EXPIRY / 3
        lost = observer.lost(owner_of(tmp_path))
    assert lost
    with claimed(tmp_path, observer):
        assert files_of(tmp_path) == ["claim-000008"]


def taken_over(claim):
    """Another process takes over: the claim's file goes away, the next one appears."""
    claim.path.unlink()
    write_claim(claim.path.parent, 2)


def test_an_owner_that_lost_its_claim_writes_nothing(tmp_path):
    records, checkpoint = tmp_path / "episodes.jsonl", tmp_path / "ep.ckpt"
    with claimed(tmp_path) as claim:
        append_lines(records, [{"a": 1}], claim)
        write_atomically(checkpoint, b"old", claim)
        taken_over(claim)
        with pytest.raises(ClaimLostError, match="another process took over"):
            append_lines(records, [{"a": 2}], claim)
        with pytest.raises(ClaimLostError, match="writes nothing more"):
            write_atomically(checkpoint, b"new", claim)
    assert (records.read_text(), checkpoint.read_bytes()) == ('{"a": 1}\n', b"old")
    assert files_of(tmp_path) == ["claim-000002", "ep.ckpt", "episodes.jsonl"], "and does not release the other's claim"


def test_an_owner_that_is_stopped_between_check_and_write_has_no_effect(tmp_path, monkeypatch):
    """The next owner replaces the records, and removes partial files, before it writes."""
    records, checkpoint = tmp_path / "episodes.jsonl", tmp_path / "ep.ckpt"
    with claimed(tmp_path) as claim:
        append_lines(records, [{"a": 1}], claim)
        check = claim.check

        def checked_then_stopped():
            check()
            taken_over(claim)
            for path in tmp_path.glob("*.partial"):
                path.unlink()
            write_atomically(records, records.read_bytes())

        monkeypatch.setattr(claim, "check", checked_then_stopped)
        append_lines(records, [{"a": 2}], claim)
        assert records.read_text() == '{"a": 1}\n'
        (tmp_path / "claim-000002").rename(claim.path)
        claim.path.write_bytes(json.dumps({"token": claim.token}).encode())
        with pytest.raises(GussError, match=r"cannot write .*ep\.ckpt"):
            write_atomically(checkpoint, b"new", claim)
    assert not checkpoint.exists()


def test_threads_that_race_for_a_claim_own_it_one_after_the_other(tmp_path):
    owners, most = [], []

    def race(number):
        for _ in range(25):
            try:
                with claimed(tmp_path / "run") as claim:
                    owners.append(number)
                    most.append(len(owners))
                    time.sleep(0.001)
                    claim.check()
                    owners.remove(number)
            except InUseError:
                time.sleep(0.001)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(race, range(4)))
    assert most
    assert max(most) == 1
    assert files_of(tmp_path / "run") == []


def count_up(home, counter, rounds):
    """Add one to a number in a file, `rounds` times, each under a claim."""
    done = 0
    while done < rounds:
        try:
            with claimed(home) as claim:
                number = int(counter.read_text())
                time.sleep(0.0005)
                claim.check()
                counter.write_text(str(number + 1))
                done += 1
        except InUseError:
            time.sleep(0.0005)


def test_processes_that_race_for_a_claim_lose_no_update(tmp_path):
    counter = tmp_path / "counter"
    counter.write_text("0")
    context = multiprocessing.get_context("spawn")
    racers = [context.Process(target=count_up, args=(tmp_path / "run", counter, 40)) for _ in range(3)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert [racer.exitcode for racer in racers] == [0, 0, 0]
    assert counter.read_text() == "120"
