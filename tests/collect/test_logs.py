"""Logs as people have them: time stamps and notes between the numbers, columns with names, no flags."""

import warnings

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from guss import Agent
from guss.collect.datasets import read_traces
from guss.collect.inputs import InputChecker
from guss.constraint import Constraint
from guss.errors import GussError, GussWarning
from guss.runs.fit import task_of
from guss.task import Grid, Task
from guss.types import ContinuousActions, Observations

COLUMNS = {"obs": ["temperature", "pressure"], "action": ["valve"]}
SMALL = {"method": "rs", "horizon": 3, "budget": 10, "model_settings": {"hidden": (8,)}, "fit": {"max_steps": 30}}


def write_csv(path, rows=12, **more):
    rng = np.random.default_rng(0)
    columns = {"when": [f"2026-01-01T00:{i:02d}" for i in range(rows)], "note": ["ok"] * rows}
    columns |= {name: rng.uniform(0, 1, rows).tolist() for name in ("temperature", "pressure", "valve")} | more
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


def plant(**more):
    about = {"reward": lambda o, a, n: n[0], "constraints": [Constraint("hot", lambda o, a, n: n[0] > 2.0)]}
    about |= {"descriptor": lambda rollout: rollout.next_obs[-1, :1], "grid": Grid((0.0,), (1.0,), (5,))}
    bounds = {"observations": Observations((-np.inf,) * 2, (np.inf,) * 2), "actions": ContinuousActions((0.0,), (1.0,))}
    return Task(name="plant", **bounds, **about, episode_length=5, **more)


def test_text_that_is_not_needed_is_mentioned_once_for_all_files(tmp_path):
    for i in range(3):
        write_csv(tmp_path / f"{i}.csv")
    with pytest.warns(GussWarning, match=r"0\.csv: columns without numbers are ignored: when, note$") as caught:
        data = read_traces([tmp_path], COLUMNS)
    assert len(caught) == 1
    assert data.trajectory.obs.shape == (33, 2)
    table = {"when": ["a", "b", None], "temperature": [1.0, 2.0, 3.0], "pressure": [1, 2, 3], "valve": [0.1, 0.2, 0.3]}
    pyarrow.parquet.write_table(pyarrow.table(table), tmp_path / "log.parquet")
    with pytest.warns(GussWarning, match=r"log\.parquet: columns without numbers are ignored: when$"):
        read_traces([tmp_path / "log.parquet"], COLUMNS)


def test_text_that_is_needed_is_an_error_that_names_column_and_row(tmp_path):
    path = write_csv(tmp_path / "log.csv", valve=[0.5, 0.5, "open", *[0.5] * 9])
    with pytest.raises(GussError, match=r"log\.csv, line 4, column 'valve': expected a number, got 'open'"):
        read_traces([path], COLUMNS)


def test_names_of_columns_become_names_of_dimensions(tmp_path):
    path = write_csv(tmp_path / "log.csv", terminated=[0] * 12)
    with pytest.warns(GussWarning, match="are ignored: when, note"):
        agent = Agent(plant(), traces=[path], columns=COLUMNS, **SMALL)
    assert agent.task.observations.names == ("temperature", "pressure")
    assert agent.task.actions.labels == ("valve",)
    assert agent.num_transitions == 11
    assert agent.settings.initial_episodes == 0
    with pytest.raises(GussError, match="step 0 is not finite in pressure"):
        agent.act([0.5, np.nan])
    named = Observations((-np.inf,) * 2, (np.inf,) * 2, names=("mine", "too"))
    with pytest.warns(GussWarning, match="are ignored: when, note"):
        other = Agent(plant().replace(observations=named), traces=[path], columns=COLUMNS, **SMALL)
    assert other.task.observations.names == ("mine", "too"), "a Task's own names come first"
    with pytest.warns(GussWarning, match="are ignored: when, note"):
        task = task_of(read_traces([path], COLUMNS))
    assert task.observations.labels == ("temperature", "pressure")


def test_columns_without_a_file_are_an_error():
    with pytest.raises(GussError, match="`columns` names the columns of files in `traces`"):
        Agent(plant(), columns=COLUMNS, **SMALL)


def test_data_that_do_not_say_where_the_system_ended_are_warned_of_where_that_is_learned(tmp_path):
    numbers = {"when": [0.0] * 12, "note": [0.0] * 12}
    silent = read_traces([write_csv(tmp_path / "silent.csv", **numbers)], COLUMNS)
    told = read_traces([write_csv(tmp_path / "told.csv", **numbers, terminated=[0] * 12)], COLUMNS)
    with pytest.warns(GussWarning, match=r"no column `terminated`.*never ends an episode itself"):
        InputChecker(plant(learns_end=True)).rows(silent)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        InputChecker(plant(learns_end=True)).rows(told)
        InputChecker(plant(learns_end=False)).rows(silent)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("a",), "expected 2, one for each dimension, got 1"),
        (("a", "a"), "must be distinct, non-empty texts"),
        (("a", " "), "must be distinct, non-empty texts"),
    ],
)
def test_names_that_do_not_fit_are_errors(names, text):
    with pytest.raises(GussError, match=text):
        Observations((0.0, 0.0), (1.0, 1.0), names=names)


def test_names_change_neither_equality_nor_what_is_written():
    plain, named = (ContinuousActions((0.0,), (1.0,), names=names) for names in (None, ("valve",)))
    assert plain == named
    assert hash(plain) == hash(named)
    assert repr(plain) == repr(named)
    assert named.names == ("valve",)
    assert Observations((0.0, 0.0), (1.0, 1.0)).labels == ("dimension 0", "dimension 1")
