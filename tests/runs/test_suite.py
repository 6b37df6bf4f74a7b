"""Many runs: their order and forecast, going on after an interruption, one that fails among others."""

import io
import shutil
from functools import cache
from pathlib import Path

import pytest
from helpers.short_runs import ORIGIN, config, run_one
from rich.console import Console

from guss.cli.table_display import BatchProgress
from guss.errors import GussError
from guss.runs.checkpoints import FINAL
from guss.runs.lock import locked
from guss.runs.results import read_config
from guss.runs.store import read_lines
from guss.runs.suite import COMPILE, Batch, Job, expected_seconds
from guss.runs.table1 import ENVIRONMENTS, METHODS, NUM_SEEDS, PRESETS, table1_runs

RESULTS = Path(__file__).resolve().parents[2] / "results"


class Notes:
    """Who is told, and stops the batch where asked to."""

    def __init__(self, stop=None):
        self.told, self.stop = [], stop

    def start(self, job):
        self.told.append(("start", job.config.method, job.done))

    def episode(self, job):
        self.told.append(("episode", job.config.method, job.done))
        if self.told[-1][1:] == self.stop:
            raise KeyboardInterrupt

    def step(self, done):
        pass

    def make(self, job, name):
        self.told.append(("make", job.config.method, name))

    def end(self, job):
        self.told.append(("end", job.config.method, job.done))


def touch(name):
    return {name: lambda home: (home / name).write_text("made")}


SMALL = [config(episodes=4), config(method="random", episodes=2)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Both runs, never interrupted."""
    out = tmp_path_factory.mktemp("whole")
    batch, notes = Batch(SMALL, out), Notes()
    assert batch.run(ORIGIN, notes, touch("animation")) == []
    return batch, notes


def job_of(batch, method):
    return next(job for job in batch.jobs if job.config.method == method)


# ------------------------------------------------------------------------------------------------- the table's runs


@cache
def all_runs(preset):
    return table1_runs(ENVIRONMENTS, METHODS, preset, 0, NUM_SEEDS[preset], None)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_all_runs_but_those_that_cannot_be(preset):
    runs, left_out = all_runs(preset)
    pairs = [(run.env, run.method) for run in runs]
    assert len(set(pairs)) == len(pairs) == 26
    assert ("safe-acrobot", "safe-mbpo") not in pairs
    assert left_out == ["safe-mbpo on safe-acrobot: it needs continuous actions, and these are discrete"]
    for run in runs:
        if run.method in ("cpo", "ppo-lagrangian"):
            assert run.episodes % run.method_settings.num_envs == 0
        else:
            assert run.episodes <= {"best": 50, "paper": 100, "quick": 10}[preset]


def test_the_runs_have_the_settings_of_those_that_are_stored_here():
    stored = {
        "best": ("safe-pendulum-guss-6688d5e8", "safe-acrobot-cpo-e51f5e17", "safe-pendulum-safe-mbpo-e46e3c62"),
        "paper": ("safe-acrobot-guss-f0cb7f0b", "safe-pendulum-safe-mbpo-e46e3c62"),
    }
    for preset, names in stored.items():
        settings = [run.changed() for run in all_runs(preset)[0]]
        for name in names:
            (home,) = RESULTS.glob(f"*/{name}")
            assert read_config(home).changed() in settings, name


def test_cheap_runs_come_first(tmp_path):
    batch = Batch(all_runs("best")[0], tmp_path)
    place = {job.name: i for i, job in enumerate(batch.jobs)}
    of_pendulum = ["random", "cpo", "guss", "safe-mbpo"]
    assert sorted(of_pendulum, key=lambda method: place[f"safe-pendulum {method}"]) == of_pendulum
    for method in METHODS:
        assert place[f"safe-car-goal {method}"] > place[f"safe-pendulum {method}"] or method == "safe-mbpo"
    assert [job.config for job in batch.in_order] == all_runs("best")[0], "and are told of as they were asked for"


def test_other_episodes_are_not_for_model_free_methods():
    runs, _ = table1_runs(["safe-pendulum"], ["guss", "safe-mbpo", "random", "cpo"], "best", 3, 2, 7)
    assert [(run.method, run.episodes) for run in runs] == [("guss", 7), ("safe-mbpo", 7), ("random", 7), ("cpo", 1504)]
    assert runs[0].seeds == (3, 4)


def test_what_cannot_be_is_an_error_if_nothing_else_was_asked_for():
    with pytest.raises(GussError, match=r"nothing to run\. safe-mbpo on safe-acrobot: it needs continuous"):
        table1_runs(["safe-acrobot"], ["safe-mbpo"], "best", 0, 1, None)


# -------------------------------------------------------------------------------------------------------- forecasts


def test_work_grows_with_what_is_asked_for():
    total = lambda **changes: expected_seconds(config(**changes)).sum()  # noqa: E731
    assert total(method="random") < total(model="oracle") < total() < total(budget=40) < total(budget=40, horizon=9)
    assert total(seeds=(1, 2, 3, 4)) == pytest.approx(2 * total())
    each = expected_seconds(config(episodes=9))
    assert each[0] < each[1] < each[8], "the first acts at random, and more data take longer to fit"


def test_what_was_measured_corrects_the_forecast(tmp_path, whole):
    batch, _ = whole
    assert batch.work_done == batch.work
    assert batch.seconds_left == 0.0
    assert job_of(batch, "rs").seconds > 0.0
    job = Job(config(episodes=8), tmp_path)
    fresh = job.seconds_left(1.0)
    assert job.seconds_left(3.0) == pytest.approx(3 * fresh), "not begun: by the pace of the others"
    job.done, job.seconds = 4, 10 * job.expected[:4].sum()  # half of it took ten times as long as was thought
    rest = job.expected[4:].sum()
    assert rest < job.seconds_left(1.0) - COMPILE < 1.5 * rest, "a little is mostly overhead"
    job.expected, job.seconds = job.expected * 1e4, job.seconds * 1e4
    assert job.seconds_left(1.0) == pytest.approx(10 * 1e4 * rest, rel=0.05), "begun: by its own pace"


# ------------------------------------------------------------------------------------------------------ interruptions


def test_an_interrupted_batch_goes_on_and_ends_as_if_it_had_not_been(tmp_path, whole):
    finished, notes = whole
    assert notes.told[:3] == [("start", "random", 0), ("episode", "random", 1), ("episode", "random", 2)]
    assert notes.told[3:6] == [("make", "random", "animation"), ("end", "random", 2), ("start", "rs", 0)]
    with pytest.raises(KeyboardInterrupt):
        Batch(SMALL, tmp_path).run(ORIGIN, Notes(stop=("rs", 2)), touch("animation"))
    again, after = Batch(SMALL, tmp_path), Notes()
    assert job_of(again, "rs").done == 2
    assert 0 < again.work_done < again.work
    (job_of(again, "random").home / "animation").unlink()
    assert again.run(ORIGIN, after, touch("animation")) == []
    of_random = [("start", "random", 2), ("make", "random", "animation"), ("end", "random", 2)]
    assert after.told[:5] == [*of_random, ("start", "rs", 2), ("episode", "rs", 3)], "finished runs are not run again"
    for method in ("random", "rs"):
        home, ours = job_of(finished, method).home, job_of(again, method).home
        assert (ours / "episodes.jsonl").read_bytes() == (home / "episodes.jsonl").read_bytes()
        assert (ours / "animation").read_text() == "made"


def test_what_is_made_of_a_run_is_made_once(tmp_path, whole):
    out = shutil.copytree(whole[0].jobs[0].out, tmp_path / "out")
    batch = Batch(SMALL, out)
    made = []
    assert batch.run(ORIGIN, Notes(), {"animation": made.append, "map": made.append}) == []
    assert made == [job.home for job in batch.jobs], "the maps alone were missing"

    def fail(home):
        raise GussError("it has no picture")

    assert batch.run(ORIGIN, Notes(), {"picture": fail, **touch("map")}) == batch.jobs
    assert batch.jobs[0].troubles == ["no picture: it has no picture"]
    assert (batch.jobs[0].home / "map").exists(), "the others are made"
    shutil.rmtree(batch.jobs[1].home / "checkpoints")
    records_only = Batch(SMALL, out)
    assert records_only.jobs[1].finished
    assert records_only.run(ORIGIN, Notes(), {"picture": fail}) == [records_only.jobs[0]], "no picture of records alone"


def test_a_finished_run_without_its_final_model_gets_it(tmp_path, whole):
    out, notes = shutil.copytree(whole[0].jobs[0].out, tmp_path / "out"), Notes()
    batch = Batch(SMALL, out)
    final = job_of(batch, "rs").home / FINAL
    before = final.read_bytes()
    final.unlink()
    assert batch.run(ORIGIN, notes, touch("animation")) == []
    assert [told for told in notes.told if told[0] == "make"] == [("make", "rs", FINAL)]
    assert final.read_bytes() == before


def test_a_run_that_fails_is_told_and_the_others_run(tmp_path, whole):
    done = job_of(whole[0], "rs").home
    home = shutil.copytree(done, tmp_path / done.name)
    (home / "checkpoints" / "ep000004.ckpt").unlink()
    last = home / "checkpoints" / "ep000003.ckpt"
    last.write_bytes(last.read_bytes()[:-50])
    before = (home / "episodes.jsonl").read_bytes()
    batch, notes = Batch(SMALL, tmp_path), Notes()
    batch.jobs.reverse()  # it comes first
    (failed,) = batch.run(ORIGIN, notes, {})
    assert failed.home == home
    assert "ep000003.ckpt" in failed.troubles[0]
    assert (home / "episodes.jsonl").read_bytes() == before
    assert [told[1:] for told in notes.told if told[0] == "end"] == [("rs", 3), ("random", 2)]


def test_a_run_of_another_process_is_left_alone(tmp_path):
    batch = Batch(SMALL[1:], tmp_path)
    with locked(batch.jobs[0].home):
        (failed,) = batch.run(ORIGIN, Notes(), {})
    assert "is in use by process" in failed.troubles[0]
    assert not failed.begun


def test_a_run_that_another_process_finished_meanwhile_is_not_run_again(tmp_path):
    batch, notes = Batch(SMALL[1:], tmp_path), Notes()
    run_one(SMALL[1], tmp_path, ORIGIN)
    assert batch.run(ORIGIN, notes, {}) == []
    assert notes.told == [("start", "random", 2), ("end", "random", 2)]


def test_records_alone_are_never_lost(tmp_path, whole):
    done = job_of(whole[0], "rs").home
    home = shutil.copytree(done, tmp_path / done.name)
    shutil.rmtree(home / "checkpoints")
    lines = (home / "episodes.jsonl").read_text().splitlines(keepends=True)
    (home / "episodes.jsonl").write_text("".join(lines[:4]))
    (failed,) = Batch(SMALL[:1], tmp_path).run(ORIGIN, Notes(), {})
    assert failed.troubles == [
        f"{home} has 2 of 4 episodes and no checkpoint to resume from; move the folder away to start over"
    ]
    assert len(read_lines(home / "episodes.jsonl")) == 4
    (home / "timings.jsonl").write_text("no\n")
    (failed,) = Batch(SMALL[:1], tmp_path).run(ORIGIN, Notes(), {})
    assert "is not JSON" in failed.troubles[0]


def test_a_terminal_shows_one_bar_over_all(tmp_path):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=140)
    batch = Batch(SMALL[1:], tmp_path)
    with BatchProgress(console, batch) as progress:
        batch.run(ORIGIN, progress, {})
    text = screen.getvalue()
    assert "1/1 short-pendulum random: episode 2/2, reward -" in text
    assert "100 %" in text
    assert "about 0:00:" in text
