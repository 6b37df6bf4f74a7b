"""TensorBoard and W&B for real, read back from the files they write; nothing here needs a network."""

import importlib
import json
import math
import resource
import struct
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from guss.collect.episode_metrics import episode_metrics
from guss.collect.trajectories import from_columns
from guss.envs.pendulum import pendulum_task
from guss.errors import GussError
from guss.runs.loggers import check_writers, open_writers
from guss.runs.store import read_lines, store_iteration
from guss.runs.trainer import Iteration
from guss.types import Transition

STEPS, SEEDS = 25, (3, 4)
CONFIG = {"env": "pendulum", "seeds": [3, 4], "model_settings": {"hidden": [8]}}


def finish_episode(home, number, reward=0.0):
    """Store an episode as a run does, from given rewards and costs; returns its lines."""
    task = pendulum_task().replace(episode_length=STEPS)
    obs = np.zeros((STEPS, 2, 3), np.float32)
    cost = np.zeros((STEPS, 2, 1), np.float32)
    cost[: 5 * number, 1] = 1.0
    columns = Transition(
        obs=obs,
        action=np.zeros((STEPS, 2, 1), np.float32),
        reward=np.full((STEPS, 2), reward, np.float32) + np.asarray([0.0, 1.0], np.float32)[None],
        cost=cost,
        next_obs=obs,
    )
    trajectory = from_columns(task, Transition(*(np.swapaxes(x, 0, 1)[:, None] for x in columns)))
    timing = {"episode": number, "fit_seconds": 2.0, "plan_seconds": 3.5, "compile_seconds": 0.25}
    if number:
        timing |= {"nll": [-1.0, -2.0], "r2": [[0.9, 0.8, 0.7], [0.6, 0.5, 0.4]], "ks": [[0.1] * 3, [0.3] * 3]}
        timing |= {"r2_horizon": [[0.5, 0.5, 0.5], [0.25, 0.25, 0.25]], "best_epoch": [7, 8]}
    (home / "traces").mkdir(parents=True, exist_ok=True)
    summary = SimpleNamespace(phase="plan" if number else "random")
    found = Iteration(trajectory, episode_metrics(task, trajectory), {}, summary, timing)
    store_iteration(home, SEEDS, number, found, np.full(2, STEPS * (number + 1)))
    rows = [row for row in read_lines(home / "episodes.jsonl") if row["episode"] == number]
    return rows[-2:], timing


def expected(number, reward):
    """The curves of `finish_episode`, worked out by hand."""
    values = {
        "mean_reward/mean": reward + 0.5,
        "mean_reward/seed3": reward,
        "mean_reward/seed4": reward + 1.0,
        "unsafe_pct/mean": 10.0 * number,
        "unsafe_pct/seed3": 0.0,
        "unsafe_pct/seed4": 20.0 * number,
        "cost/unsafe_angle/mean": 2.5 * number,
        "cost/unsafe_angle/seed3": 0.0,
        "cost/unsafe_angle/seed4": 5.0 * number,
        "seconds/fit": 2.0,
        "seconds/plan": 3.5,
        "seconds/compile": 0.25,
    }
    model = {"model/nll": -1.5, "model/r2": 0.65, "model/ks": 0.2, "model/r2_horizon": 0.375}
    return values | (model if number else {})


def close_to(values, other):
    return values.keys() == other.keys() and all(math.isclose(values[k], other[k], rel_tol=1e-6) for k in values)


# --------------------------------------------------------------------------------------------------------- TensorBoard


def read_events(file):
    """All events of a TFRecord file, each checked by its checksums."""
    masked_crc32c = importlib.import_module("tensorboardX.record_writer").masked_crc32c
    event = importlib.import_module("tensorboardX.proto.event_pb2").Event
    data, events = file.read_bytes(), []
    while data:
        (size,) = struct.unpack("<Q", data[:8])
        body, rest = data[12 : 12 + size], data[12 + size :]
        assert struct.unpack("<I", data[8:12]) == (masked_crc32c(data[:8]),)
        assert struct.unpack("<I", rest[:4]) == (masked_crc32c(body),)
        events.append(event.FromString(body))
        data = rest[4:]
    return events


def curves(home):
    """What TensorBoard shows: {step: values}; a session's start takes back all from its step on."""
    shown = []
    files = [read_events(file) for file in (home / "tensorboard").iterdir()]
    for events in sorted(files, key=lambda events: events[0].wall_time):
        for event in events:
            if event.HasField("session_log"):
                assert event.session_log.status == event.session_log.START
                shown = [(step, values) for step, values in shown if step < event.step]
            if event.HasField("summary"):
                shown.append((event.step, {value.tag: value.simple_value for value in event.summary.value}))
    assert len({step for step, _ in shown}) == len(shown), "an episode is shown twice"
    return dict(shown)


def test_tensorboard_has_every_episode_as_soon_as_it_is_over(tmp_path):
    with open_writers(["tensorboard"], tmp_path, CONFIG, 0) as writers:
        for number in range(3):
            writers.episode(*finish_episode(tmp_path, number, reward=-number))
            shown = curves(tmp_path)
            assert list(shown) == [STEPS * (n + 1) for n in range(number + 1)]
            assert close_to(shown[STEPS * (number + 1)], expected(number, -number))


def test_a_resumed_run_shows_no_episode_twice(tmp_path):
    for done, reward in [(0, -1.0), (2, -7.0), (1, -9.0)]:  # the last one from the checkpoint before the last
        with open_writers(["tensorboard"], tmp_path, CONFIG, done) as writers:
            for number in range(done, 3):
                writers.episode(*finish_episode(tmp_path, number, reward))
        shown = curves(tmp_path)
        assert list(shown) == [STEPS, 2 * STEPS, 3 * STEPS]
        assert all(close_to(shown[STEPS * (number + 1)], expected(number, reward)) for number in range(done, 3))
        assert close_to(shown[STEPS], expected(0, -1.0))
    files = sorted((tmp_path / "tensorboard").iterdir(), key=lambda file: file.name[-6:])
    starts = [event.step for file in files for event in read_events(file) if event.HasField("session_log")]
    assert starts == [STEPS, 2 * STEPS, 3 * STEPS]


@contextmanager
def full_disk(size):
    """No file may grow beyond this many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_told_and_the_records_stay(tmp_path):
    with (  # noqa: PT012
        pytest.raises(GussError, match=r"cannot log to tensorboard: .*too large.*`guss run --resume") as caught,
        open_writers(["tensorboard"], tmp_path, CONFIG, 0) as writers,
    ):
        writers.episode(*finish_episode(tmp_path, 0))
        rows, timing = finish_episode(tmp_path, 1)
        (file,) = (tmp_path / "tensorboard").iterdir()
        with full_disk(file.stat().st_size + 10):
            writers.episode(rows, timing)
    assert isinstance(caught.value.__cause__, OSError)
    assert len(read_lines(tmp_path / "episodes.jsonl")) == 4


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "tensorboard").write_text("")
    with (
        pytest.raises(GussError, match=r"cannot log to tensorboard: .*File exists"),
        open_writers(["tensorboard"], tmp_path, CONFIG, 0),
    ):
        pass


# ----------------------------------------------------------------------------------------------------------------- W&B


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """W&B without network, account, system figures, or anything outside of the test's folder."""
    for name in ("WANDB_PROJECT", "WANDB_API_KEY", "WANDB_RUN_ID", "WANDB_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_X_DISABLE_STATS", "true")
    monkeypatch.setenv("WANDB_X_DISABLE_MACHINE_INFO", "true")
    wandb = importlib.import_module("wandb")
    yield wandb
    wandb.teardown()


def read_wandb(file):
    """All records of a .wandb file: LevelDB's log format, 32 KiB blocks of fragments (checksum, size, kind, data)."""
    importlib.import_module("wandb").teardown()  # its process writes the last of it shortly after a run's end
    record = importlib.import_module("wandb.proto.wandb_internal_pb2").Record
    data, at, records, parts = file.read_bytes(), 7, [], b""
    assert data[:4] == b":W&B"
    while at < len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + 7])
        parts += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a whole record, or its last fragment
            records.append(record.FromString(parts))
            parts = b""
    return records


def history(records):
    """W&B's rows: {step: values}."""
    rows = {}
    for record in records:
        if record.HasField("history"):
            items = {"/".join(item.nested_key) or item.key: item.value_json for item in record.history.item}
            values = {name: json.loads(value) for name, value in items.items() if not name.startswith("_")}
            rows[record.history.step.num] = values
    return rows


def test_wandb_has_every_episode_under_the_name_of_the_run(tmp_path, offline):
    home = tmp_path / "pendulum-guss-0123abcd"
    home.mkdir()
    with open_writers(["wandb", "tensorboard", "wandb"], home, CONFIG, 0) as writers:
        for number in range(2):
            writers.episode(*finish_episode(home, number, reward=-number))
        assert offline.run is None, "the calling program's own W&B run is left alone"
    (file,) = (home / "wandb").glob("offline-run-*/run-pendulum-guss-0123abcd.wandb")
    records = read_wandb(file)
    rows = history(records)
    assert list(rows) == [STEPS, 2 * STEPS]
    assert all(close_to(rows[STEPS * (n + 1)], expected(n, -n)) for n in range(2))
    assert list(curves(home)) == list(rows)
    (run,) = (record.run for record in records if record.HasField("run"))
    assert (run.project, run.display_name, run.run_id) == ("guss", home.name, home.name)
    stored = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert {name: stored[name] for name in CONFIG} == CONFIG
    assert [record.exit.exit_code for record in records if record.HasField("exit")] == [0]


def test_an_error_of_the_run_is_told_as_it_is_and_wandb_has_the_run_as_failed(tmp_path, offline, monkeypatch):
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    with pytest.raises(GussError, match="diverged"), open_writers(["wandb"], tmp_path, CONFIG, 2):
        raise GussError("the model diverged")
    (file,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    records = read_wandb(file)
    assert [record.run.project for record in records if record.HasField("run")] == ["mine"]
    assert [record.exit.exit_code for record in records if record.HasField("exit")] == [1]


def test_what_wandb_refuses_is_told(tmp_path, offline):
    with (  # noqa: PT012
        pytest.raises(GussError, match=r"cannot log to wandb: .*finished.*records are kept"),
        open_writers(["wandb"], tmp_path, CONFIG, 0) as writers,
    ):
        writers.opened["wandb"].run.finish()
        writers.episode(*finish_episode(tmp_path, 0))
    assert len(read_lines(tmp_path / "episodes.jsonl")) == 2
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "wandb").write_text("")
    words = r"cannot log to wandb: .*Not a directory.*set WANDB_MODE=offline"
    with pytest.raises(GussError, match=words), open_writers(["wandb"], blocked, CONFIG, 0):
        pass


# ------------------------------------------------------------------------------------------------------ what is missing


@pytest.mark.parametrize(("name", "package"), [("tensorboard", "tensorboardX"), ("wandb", "wandb")])
def test_a_missing_package_is_told_with_its_extra(tmp_path, monkeypatch, name, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(GussError, match=rf"needs the package {package}.*pip install 'guss\[{name}\]'"):
        check_writers([name])
    with open_writers([], tmp_path, CONFIG, 0) as writers:  # what is not asked for is not imported
        writers.episode(*finish_episode(tmp_path, 0))


def test_a_misspelt_writer_is_told(tmp_path):
    with (
        pytest.raises(GussError, match=r"unknown logger 'tensorbord'. Did you mean 'tensorboard'\?"),
        open_writers(["tensorbord"], tmp_path, CONFIG, 0),
    ):
        pass
