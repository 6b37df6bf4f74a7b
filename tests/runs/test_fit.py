"""`guss fit`: models of logged data, and those of a stored run."""

import json
import shutil

import numpy as np
import pytest
from helpers.short_runs import ORIGIN, config, resume_run, run_one, short_pendulum

from guss import checkpoint
from guss.agent import Agent
from guss.cli.export import ExportCommand
from guss.cli.main import parse
from guss.collect.datasets import read_trace, read_traces, write_trace
from guss.errors import GussError
from guss.methods.settings import AgentSettings
from guss.models.evaluation import plain
from guss.models.factory import ModelSettings
from guss.models.training import FitSettings
from guss.runs.checkpoints import newest_checkpoint
from guss.runs.fit import fit_log, log_of_files, log_of_run, save_models, task_of
from guss.runs.store import digest_of, read_lines


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A run of two seeds whose fits go on from each other."""
    return run_one(config(episodes=4), tmp_path_factory.mktemp("stored"), ORIGIN)


def models_of(path, kind):
    return {name: x for name, x in checkpoint.load(path, kind).arrays.items() if name.startswith(".models")}


def test_a_model_fitted_to_the_traces_is_the_one_of_the_run(stored, tmp_path):
    log = log_of_run(stored)
    state, told = fit_log(log, in_turn=True, test=True)
    files = save_models(tmp_path, log, state, told[-1])
    assert [path.name for path in files] == ["seed3.ckpt", "seed4.ckpt"]
    run = models_of(newest_checkpoint(stored).path, "run")
    assert len(run) > 5
    for i, path in enumerate(files):
        mine = models_of(path, "agent")
        assert set(mine) == set(run)
        for name, array in mine.items():
            assert array[0].tobytes() == run[name][i].tobytes(), name
    timings = [row for row in read_lines(stored / "timings.jsonl") if "r2" in row]
    assert [news.episodes for news in told] == [row["episode"] for row in timings] == [1, 2, 3]
    for news, row in zip(told, timings, strict=True):
        np.testing.assert_array_equal(np.asarray(news.report.r2).round(5), np.asarray(row["r2"], np.float32))
        np.testing.assert_array_equal(news.r2_horizon.round(5), np.asarray(row["r2_horizon"], np.float32))


def test_one_fit_from_scratch_is_the_one_of_a_run_that_fits_from_scratch(tmp_path, guss_here):
    """Through the command line and a table: what `guss export` wrote, `guss fit` reads, and the weights agree."""
    settings = config(episodes=3, seeds=(7,), fit=FitSettings(epochs=3, warm_start=False))
    home = run_one(settings, tmp_path / "runs", ORIGIN)
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "from guss.envs.pendulum import pendulum_task\nmake = lambda: pendulum_task().replace(episode_length=25)\n"
    )
    table = tmp_path / "log.csv"
    assert guss_here("export", home, "--out", table, check=0).stdout == f"75 transitions of 3 episodes: {table}\n"
    assert table.read_text().splitlines()[0].split(",")[8:10] == ["cost_unsafe_angle", "terminated"]
    with pytest.raises(GussError, match="--overwrite replaces it"):
        ExportCommand(home, table).run()
    with pytest.raises(GussError, match="unknown seed of the run: '8'"):
        ExportCommand(home, tmp_path / "other.csv", seeds=(8,)).run()
    (tmp_path / "empty.toml").write_text("")
    words = ["fit", "--env", f"{plugin}:make", "--data", "log.csv", "--seed", "7", "--horizon", "3"]
    words += ["--model.hidden", "8", "--fit.epochs", "3", "--fit.no-warm-start", "--preset", "empty.toml"]
    process = guss_here(*words, check=0)
    assert "2 episodes, 50 transitions: R²" in process.stderr
    assert "Low accuracy in cos(angle)" in process.stdout
    summary = json.loads((tmp_path / "models" / "log" / "fit.json").read_text())
    assert (summary["task"], summary["rows"], summary["episodes"]) == ("safe-pendulum", 50, 2)
    assert len(summary["r2_horizon"]) == 3
    assert summary["provenance"]["command"].startswith("guss fit --env")
    mine = models_of(tmp_path / "models" / "log" / "model.ckpt", "agent")
    whole = models_of(newest_checkpoint(home).path, "run")
    for name, array in mine.items():
        np.testing.assert_allclose(array, whole[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_fitted_model_acts_and_goes_on_learning(stored, tmp_path):
    task = short_pendulum()
    trace = read_traces([stored])
    settings = AgentSettings(
        method="rs", horizon=3, budget=20, model_settings=ModelSettings(hidden=(8,)), fit=FitSettings(epochs=3)
    )
    log = log_of_files(trace, task, settings, seed=5)
    state, told = fit_log(log, in_turn=False, test=False)
    assert [news.rows for news in told] == [200]
    assert told[0].r2_horizon is None
    (path,) = save_models(tmp_path, log, state, told[-1])
    agent = Agent.load(path, task)
    assert agent.phase == "plan"
    assert agent.act([1.0, 0.0, 0.0]).shape == (1,)
    np.testing.assert_array_equal(agent.fit().r2, np.asarray(told[-1].report.r2)[0])
    agent.learn(1)
    assert agent.num_transitions == 225
    assert Agent.load(path, task.replace(name="another name")).phase == "plan"
    narrow = task.replace(actions=type(task.actions)((-1.0,), (1.0,)))
    with pytest.raises(
        GussError,
        match=r"actions continuous \(low \[-2.0\], high \[2.0\]\); task .* has actions continuous \(low \[-1.0",
    ):
        Agent.load(path, narrow)


def test_data_alone_make_a_model_that_is_judged(stored):
    trace = read_traces([stored])
    task = task_of(trace)
    assert task.episode_length == 25
    assert task.observations.size == 3
    _, told = fit_log(
        log_of_files(trace, task, AgentSettings(horizon=3, fit=FitSettings(epochs=3)), 0), in_turn=False, test=True
    )
    assert told[0].episodes == 7
    assert told[0].r2_horizon.shape == (1, 3)
    one = read_trace(stored / "traces" / "seed3-ep0.npz")
    assert task_of(one).episode_length == 5, "one long log comes in pieces, so that one can be kept for judging"
    costs = np.concatenate([one.trajectory.cost] * 2, axis=1)
    for names, known in ((None, ["cost 0", "cost 1"]), (("b", "a"), ["b", "a"])):
        data = one._replace(trajectory=one.trajectory._replace(cost=costs), cost_names=names)
        several = task_of(data)
        assert [constraint.name for constraint in several.constraints] == known
        log_of_files(data, several, AgentSettings(), 0)


def test_a_run_starts_from_logged_data_and_keeps_them(stored, tmp_path):
    data = read_trace(stored / "traces" / "seed3-ep0.npz")
    settings = config(episodes=2, initial_episodes=0, data=digest_of(data), data_rows=25)
    home = run_one(settings, tmp_path, ORIGIN, data=data)
    assert [row["phase"] for row in read_lines(home / "episodes.jsonl")] == ["plan"] * 4
    arrays = newest_checkpoint(home).arrays
    assert [arrays[name].tolist() for name in (".fits", ".fitted", ".data.filled")] == [[2, 2], [50, 50], [75, 75]]
    assert arrays[".data.use"].shape == (2, 75)
    assert log_of_run(home, 0).episodes == [], "what the first episode was planned with"
    _, told = fit_log(log_of_run(home), in_turn=True, test=True)
    timings = read_lines(home / "timings.jsonl")
    assert [plain(news.report.nll) for news in told] == [row["nll"] for row in timings]
    before = (home / "episodes.jsonl").read_bytes()
    shutil.rmtree(home / "checkpoints")  # as if killed before the first one
    (home / "episodes.jsonl").write_bytes(b"".join(before.splitlines(keepends=True)[:2]))
    resume_run(home)
    assert (home / "episodes.jsonl").read_bytes() == before
    rows = data.trajectory
    write_trace(home / "data.npz", data._replace(trajectory=rows._replace(obs=rows.obs + 1)))
    with pytest.raises(GussError, match="was altered"):
        resume_run(home)


def test_what_cannot_be_is_told(stored, tmp_path):
    with pytest.raises(GussError, match="or logged data; got initial_episodes 0"):
        config(initial_episodes=0)
    with pytest.raises(GussError, match="learns nothing, so logged data have no effect"):
        config(method="random", data="0", data_rows=1)
    with pytest.raises(GussError, match="they differ"):
        run_one(config(data="0", data_rows=1), tmp_path, ORIGIN)
    with pytest.raises(GussError, match=r"first 5 episodes of .*: it has 4 finished episodes"):
        log_of_run(stored, 5)
    with pytest.raises(GussError, match="is not a run"):
        log_of_run(tmp_path)
    trace = read_trace(stored / "traces" / "seed3-ep0.npz")
    with pytest.raises(GussError, match="the data have a single episode"):
        fit_log(log_of_files(trace, short_pendulum(), AgentSettings(), 0), in_turn=False, test=True)
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "fit.json").write_text("{}")
    with pytest.raises(GussError, match="already contains a fit; --overwrite replaces it"):
        parse(["fit", "--data", f"{stored}/traces", "--out", str(tmp_path)]).run()
    with pytest.raises(GussError, match="with the settings of the run; leave out --horizon"):
        parse(["fit", "--data", str(stored), "--horizon", "3"]).run()
    with pytest.raises(GussError, match="Did you mean 'safe-pendulum'"):
        parse(["fit", "--data", f"{stored}/traces", "--env", "safe-pendulun"]).run()
    with pytest.raises(GussError, match="--columns takes PART=NAME,NAME, such as obs=temperature,pressure; got 'obs'"):
        parse(["fit", "--data", f"{stored}/traces", "--columns", "obs"]).run()
