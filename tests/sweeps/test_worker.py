"""Workers in this process: order, resumption, failures, retries, and what they note."""

import json
import os
import shutil

import numpy as np
import pytest
from helpers.short_runs import ORIGIN, assert_same_run, config, run_one

from guss.errors import GussError
from guss.runs import run as runs
from guss.runs.checkpoints import FINAL
from guss.runs.claim import claimed
from guss.runs.rows import read_timings
from guss.runs.store import read_lines
from guss.sweeps import worker as workers
from guss.sweeps.folder import SweepFolder, counts, open_sweep
from guss.sweeps.forecast import COMPILE, Pace, expected_seconds, seconds_until_done
from guss.sweeps.study import PlannedRun, Study, SweepSettings, make_study
from guss.sweeps.worker import Worker

SMALL = [config(method="random", episodes=2), config(episodes=4)]
RS, RANDOM = SMALL[1], SMALL[0]


def sweep(out, configs=SMALL, **settings):
    planned = tuple(PlannedRun(each, {}, tuple(expected_seconds(each).tolist())) for each in configs)
    folder = SweepFolder(out, Study(SweepSettings(**{"backoff": 0.0} | settings), planned))
    folder.store(ORIGIN)
    return folder


def work(folder, on_episode=None):
    worker = Worker(folder, "tester")
    if on_episode is not None:
        worker.on_episode = on_episode
    worker.work()
    return folder


def states(folder):
    return {each.planned.config.method: each.state for each in folder.statuses()}


def home_of(folder, method):
    return next(run.home(folder.out) for run in folder.study.runs if run.config.method == method)


def events(folder, method):
    run = next(run for run in folder.study.runs if run.config.method == method)
    return [row["event"] for row in read_lines(folder._attempts_of(run))]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Both runs, never interrupted."""
    return work(sweep(tmp_path_factory.mktemp("whole")))


def test_all_runs_are_executed_the_longest_first(whole):
    assert states(whole) == {"rs": "finished", "random": "finished"}
    random, rs = ((home_of(whole, method) / "config.json").stat().st_mtime_ns for method in ("random", "rs"))
    assert rs < random
    assert events(whole, "rs") == ["start", "finish"]
    assert counts(whole.statuses()) == {"finished": 2, "running": 0, "waiting": 0, "failed": 0, "given up": 0}


def test_each_program_is_compiled_by_one_worker(tmp_path):
    """Of equally long runs, two workers take those with different programs, then those with the same."""
    configs = [config(budget=budget, seeds=(seed,)) for budget in (20, 21) for seed in (1, 2)]
    folder = sweep(tmp_path, configs)
    first, second = Worker(folder), Worker(folder)
    (one, *_) = first._in_order(folder.statuses())
    with claimed(one.home):
        first._compile_seconds[workers._program(one)] = 1.0
        (other, *_) = second._in_order(folder.statuses())
        assert workers._program(other) != workers._program(one)
        with claimed(other.home):
            second._compile_seconds[workers._program(other)] = 1.0
            for worker, mine in ((first, one), (second, other)):
                free = [each for each in worker._in_order(folder.statuses()) if each.state == "waiting"]
                assert workers._program(free[0]) == workers._program(mine)


@pytest.mark.parametrize("seconds", [0.01, 1e4])
def test_a_short_run_comes_first_only_if_that_saves_a_long_compilation(tmp_path, seconds):
    short, compiled, long = (config(budget=budget, seeds=(seed,)) for budget, seed in ((20, 1), (20, 2), (200, 1)))
    folder = sweep(tmp_path, [short, compiled, long])
    worker = Worker(folder)
    worker._compile_seconds[workers._program(folder.status(folder.study.runs[1]))] = seconds
    first = worker._in_order(folder.statuses())[0].planned.config.budget
    assert first == (200 if seconds < 1.0 else 20)


def test_what_another_worker_compiled_does_not_count(tmp_path, whole):
    """A worker that was lost after the last episode leaves timings of its compilation, and a run to finish."""
    folder = sweep(shutil.copytree(whole.out, tmp_path / "out"), [RS])
    attempts = folder._attempts_of(folder.study.runs[0])
    attempts.write_bytes(attempts.read_bytes().splitlines(keepends=True)[0])
    worker = Worker(folder)
    worker.work()
    assert states(folder) == {"rs": "finished"}
    assert sum(row["compile_seconds"] for row in read_timings(home_of(folder, "rs"))) > 0.1
    assert max(worker._compile_seconds.values()) < 0.01


def test_compilation_in_threads_counts(tmp_path):
    """Programs of plans are compiled in threads while random episodes run."""
    folder = sweep(tmp_path, [config(budget=23)])
    worker = Worker(folder)
    worker.work()
    in_main_thread = sum(row["compile_seconds"] for row in read_timings(home_of(folder, "rs")))
    assert max(worker._compile_seconds.values()) > in_main_thread


def test_a_sweep_runs_as_single_runs_do(whole, tmp_path):
    for each in SMALL:
        assert_same_run(home_of(whole, each.method), run_one(each, tmp_path, ORIGIN))


def test_an_interrupted_worker_notes_it_and_the_next_one_resumes(tmp_path, whole):
    def stop(news):
        if news.episode == 1:
            raise KeyboardInterrupt

    folder = sweep(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        work(folder, stop)
    assert states(folder) == {"rs": "waiting", "random": "waiting"}
    work(folder)
    assert events(folder, "rs") == ["start", "stop", "start", "finish"]
    for method in ("rs", "random"):
        assert_same_run(home_of(folder, method), home_of(whole, method))


def test_finished_runs_are_not_executed_again(tmp_path, whole):
    folder = sweep(shutil.copytree(whole.out, tmp_path / "out"))
    before = {path: path.stat().st_mtime_ns for path in folder.out.rglob("*") if path.parent.name != "sweep"}
    work(folder)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_run_of_guss_run_counts(tmp_path):
    run_one(RANDOM, tmp_path, ORIGIN)
    folder = sweep(tmp_path, [RANDOM])
    assert states(folder) == {"random": "finished"}
    assert not folder._attempts_of(folder.study.runs[0]).exists()


def test_a_finished_run_without_its_final_model_gets_it(tmp_path, whole):
    folder = sweep(shutil.copytree(whole.out, tmp_path / "out"))
    final = home_of(folder, "rs") / FINAL
    before = final.read_bytes()
    final.unlink()
    folder._attempts_of(folder.study.runs[1]).unlink()
    work(folder)
    assert final.read_bytes() == before


def test_a_failing_run_is_given_up_and_the_others_are_executed(tmp_path, monkeypatch, capsys):
    new_run = runs.new_run

    def failing(run_config, *args, **more):
        if run_config.method == "rs":
            raise RuntimeError("it exploded\nin two lines")
        return new_run(run_config, *args, **more)

    monkeypatch.setattr(workers, "new_run", failing)
    folder = sweep(tmp_path)
    with pytest.warns(UserWarning, match="short-pendulum rs: RuntimeError: it exploded"):
        work(folder)
    assert states(folder) == {"rs": "given up", "random": "finished"}
    rows = read_lines(folder._attempts_of(folder.study.runs[1]))
    assert [row["event"] for row in rows] == ["fail"] * 3
    assert "in two lines" in rows[0]["traceback"]
    monkeypatch.setattr(workers, "new_run", new_run)
    work(folder)
    assert states(folder)["rs"] == "given up", "only a new start of the sweep tries it again"
    work(sweep(tmp_path))
    assert states(folder) == {"rs": "finished", "random": "finished"}


def test_failures_count_only_while_no_episode_is_finished(tmp_path, monkeypatch):
    failed = []

    def fail(news):
        if news.episode > 0 and len(failed) < 6 and news.episode not in failed[-1:]:
            failed.append(news.episode)
            raise GussError("the plant is away")

    folder = sweep(tmp_path, [RS], attempts=2)
    with pytest.warns(UserWarning, match="the plant is away"):
        work(folder, fail)
    assert failed == [1, 2, 3], "each episode failed once"
    assert states(folder) == {"rs": "finished"}


def test_a_failed_run_waits_before_it_is_tried_again(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(workers.time, "monotonic", lambda: now[0])
    folder = sweep(tmp_path, [RANDOM], backoff=5.0)
    run, worker = folder.study.runs[0], Worker(folder)
    waits = []
    for _ in range(2):
        folder.note(run, "fail", error="no")
        began = now[0]
        while not worker._is_free(folder.status(run)):
            now[0] += 1.0
        waits.append(now[0] - began)
    assert waits == [5.0, 20.0]


def test_a_run_that_another_worker_has_claimed_is_left_alone(tmp_path):
    folder = sweep(tmp_path, [RANDOM])
    run, worker = folder.study.runs[0], Worker(folder)
    with claimed(run.home(tmp_path)):
        status = folder.status(run)
        assert status.state == "running"
        assert not worker._is_free(status)
        assert not worker._attempt(status), "it was claimed after the look"
    assert worker._is_free(folder.status(run))


def test_a_worker_that_lost_its_claim_goes_on_with_other_runs(tmp_path, whole):
    lost = []

    def lose(news):
        if news.episode == 1 and not lost:
            lost.append(True)
            (claim,) = home_of(folder, "rs").glob("claim-*")
            claim.unlink()

    folder = sweep(tmp_path)
    with pytest.warns(UserWarning, match="another process took over"):
        work(folder, lose)
    for method in ("rs", "random"):
        assert_same_run(home_of(folder, method), home_of(whole, method))
    assert events(folder, "rs") == ["start", "start", "finish"]


def test_workers_that_are_lost_again_and_again_end_a_run(tmp_path):
    folder = sweep(tmp_path, [RANDOM])
    run = folder.study.runs[0]
    for number in range(10):
        assert folder.status(run).state == "waiting", number
        folder.note(run, "start", worker="w", done=0)
    assert folder.status(run).state == "given up"
    folder.note(run, "start", worker="w", done=1)
    assert (folder.attempts(run).lost, folder.attempts(run).open) == (0, True), "an episode was finished in between"


def test_a_damaged_checkpoint_costs_one_episode(tmp_path, whole):
    folder = sweep(tmp_path, [RS])

    def stop(news):
        if news.episode == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work(folder, stop)
    last = home_of(folder, "rs") / "checkpoints" / "ep000003.ckpt"
    last.write_bytes(last.read_bytes()[:-50])
    with pytest.warns(UserWarning, match="The previous checkpoint, after 2 episodes, is valid"):
        work(folder)
    assert_same_run(home_of(folder, "rs"), home_of(whole, "rs"))
    starts = [row["done"] for row in read_lines(folder._attempts_of(folder.study.runs[0])) if row["event"] == "start"]
    assert starts == [0, 2]


def test_records_without_a_checkpoint_are_never_lost(tmp_path, whole):
    shutil.copytree(home_of(whole, "rs"), tmp_path / home_of(whole, "rs").name)
    folder = sweep(tmp_path, [RS], attempts=1)
    home = home_of(folder, "rs")
    shutil.rmtree(home / "checkpoints")
    (home / "checkpoints").mkdir()
    before = (home / "episodes.jsonl").read_bytes()
    with pytest.warns(UserWarning, match="no checkpoint to resume from"):
        work(folder)
    assert states(folder) == {"rs": "given up"}
    assert (home / "episodes.jsonl").read_bytes() == before


def test_another_process_opens_the_same_study_without_its_environments(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "preset.toml").write_text('extends = "safe-pendulum"')
    (tmp_path / "plant.py").write_text("from guss.envs.pendulum import pendulum_task as make_env")
    tables = {"env": ["plant.py:make_env", "safe-acrobot"], "method": ["rs", "random"], "horizon": [3, 4]}
    study = make_study(tables | {"preset": "preset.toml", "sweep": {"attempts": 2}})
    SweepFolder(tmp_path / "out", study).store(ORIGIN)
    for name in ("preset.toml", "plant.py"):
        (tmp_path / name).unlink()
    again = open_sweep(tmp_path / "out")
    assert again.study.settings == study.settings
    assert [run.config.changed() for run in again.study.runs] == [run.config.changed() for run in study.runs]
    assert [run.home(tmp_path) for run in again.study.runs] == [run.home(tmp_path) for run in study.runs]
    assert [run.name for run in again.study.runs] == [run.name for run in study.runs]
    assert again.origin == ORIGIN


@pytest.mark.parametrize("content", [None, "no", "[]", '{"schema": 9}', '{"schema": 1}'])
def test_a_folder_without_a_study_is_one_sentence(tmp_path, content):
    if content is not None:
        (tmp_path / "sweep").mkdir()
        (tmp_path / "sweep" / "study.json").write_text(content)
    with pytest.raises(GussError, match=r"study\.json"):
        open_sweep(tmp_path)


def test_incomplete_lines_of_attempts_are_skipped(tmp_path):
    folder = sweep(tmp_path, [RANDOM])
    run = folder.study.runs[0]
    folder.note(run, "fail", error="first")
    with folder._attempts_of(run).open("ab") as file:
        file.write(b'{"event": "fai\n\xff\n[]\n{"event": "stop"')
    assert folder.attempts(run).failures == 1
    work(folder)
    assert states(folder) == {"random": "finished"}


def test_a_folder_that_cannot_be_written_to_for_a_while_does_not_end_the_worker(tmp_path, monkeypatch):
    folder, note, refused = sweep(tmp_path, [RANDOM]), SweepFolder.note, []

    def refuse(self, run, event, **more):
        if len(refused) < 3:
            refused.append(event)
            raise GussError("cannot write: No space left on device")
        note(self, run, event, **more)

    monkeypatch.setattr(SweepFolder, "note", refuse)
    with pytest.warns(UserWarning, match="No space left"):
        work(folder)
    assert refused == ["start", "fail", "start"]
    assert states(folder) == {"random": "finished"}


def test_files_for_reports_are_made_even_if_the_worker_was_interrupted_before(tmp_path, monkeypatch):
    folder, write = sweep(tmp_path, [RANDOM]), workers.write_maps

    def interrupted(home):
        raise KeyboardInterrupt

    monkeypatch.setattr(workers, "write_maps", interrupted)
    with pytest.raises(KeyboardInterrupt):
        work(folder)
    assert states(folder) == {"random": "waiting"}
    monkeypatch.setattr(workers, "write_maps", write)
    work(sweep(tmp_path, [RANDOM]))
    assert (home_of(folder, "random") / "maps.json.gz").exists()
    assert events(folder, "random") == ["start", "stop", "start", "finish"]


def test_files_that_cannot_be_made_are_notes_of_a_finished_run(tmp_path, monkeypatch):
    def fail(home):
        raise GussError("it has no plane")

    monkeypatch.setattr(workers, "write_maps", fail)
    (status,) = work(sweep(tmp_path, [RANDOM])).statuses()
    assert (status.state, status.attempts.notes) == ("finished", ("no maps.json.gz: it has no plane",))


def test_a_worker_ends_with_the_process_that_started_it(tmp_path, monkeypatch):
    monkeypatch.setenv(workers.PARENT, str(os.getppid()))
    worker = Worker(sweep(tmp_path, [RANDOM]))
    worker._check_parent()
    monkeypatch.setattr(workers.os, "getppid", lambda: 1)
    with pytest.raises(KeyboardInterrupt):
        worker.work()
    assert events(worker.folder, "random") == ["start", "stop"]


def test_a_worker_ends_even_if_that_process_ended_before_the_worker_was_ready(tmp_path, monkeypatch):
    monkeypatch.setenv(workers.PARENT, "1" if os.getppid() != 1 else "2")
    with pytest.raises(KeyboardInterrupt):
        work(sweep(tmp_path, [RANDOM]))
    assert workers.PARENT not in os.environ, "processes that a run starts have another parent"


# -------------------------------------------------------------------------------------------------------- forecasts


def test_expected_time_grows_with_the_work():
    total = lambda **changes: expected_seconds(config(**changes)).sum()  # noqa: E731
    assert total(method="random") < total(model="oracle") < total() < total(budget=40) < total(budget=40, horizon=9)
    assert total(seeds=(1, 2, 3, 4)) == pytest.approx(2 * total())
    each = expected_seconds(config(episodes=9))
    assert each[0] < each[1] < each[8], "the first acts at random, and more data take longer to fit"
    assert COMPILE > 0


def test_measured_time_corrects_the_forecast(whole, tmp_path):
    pace, home = Pace(), home_of(whole, "rs")
    assert pace.of("any") == 1.0
    expected = expected_seconds(RS)
    pace.look(home, expected * 1e-4, 4)
    assert pace.of(home.name) > 1.0
    slow = Pace()
    slow.look(home, expected * 1e-6, 4)
    assert slow.of("another run") == pytest.approx(pace.of("another run"), rel=0.1), "little work, little weight"


def test_a_forecast_reads_timings_of_older_runs(tmp_path):
    lines = ({"episode": 0, "plan_seconds": 60.0}, {"episode": 1, "plan_seconds": 60.0, "compile_seconds": None})
    (tmp_path / "timings.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    pace = Pace()
    pace.look(tmp_path, np.ones(2), 2)
    assert pace.of(tmp_path.name) > 2.0


@pytest.mark.parametrize(
    ("left", "count", "seconds"), [([], 2, 0.0), ([3.0], 2, 3.0), ([3, 3, 2, 2, 2], 2, 7.0), ([5, 1, 1], 9, 5.0)]
)
def test_time_until_done_with_some_workers(left, count, seconds):
    assert seconds_until_done(left, count) == seconds
