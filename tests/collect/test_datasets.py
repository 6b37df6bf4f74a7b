"""Logged data in and out."""

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guss.agent import Agent
from guss.cli.main import parse
from guss.collect.datasets import (
    FORMATS,
    Dataset,
    find_traces,
    join,
    read_trace,
    read_traces,
    split_episodes,
    write_trace,
)
from guss.collect.inputs import InputChecker, costs_in_order
from guss.constraint import Constraint
from guss.envs import make_task
from guss.envs.pendulum import pendulum_task
from guss.errors import GussError
from guss.methods.planning import outcomes_of
from guss.runs.store import digest_of
from guss.types import Trajectory


def arrays(rows, seed=0, **more):
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(rows + 1, 3)).astype(np.float32)
    action = rng.uniform(-2, 2, size=(rows, 1)).astype(np.float32)
    return {"obs": obs[:-1], "action": action, "next_obs": obs[1:], **more}


def as_dataset(tmp_path, **held):
    np.savez(tmp_path / "log.npz", **held)
    return read_trace(tmp_path / "log.npz")


def read_rows(*arguments):
    """What a file holds, as a trajectory [N, …]."""
    return read_trace(*arguments).trajectory


@pytest.mark.parametrize("ending", FORMATS)
@given(lengths=st.lists(st.integers(1, 4), min_size=1, max_size=4), data=st.data())
def test_what_was_written_is_read_bit_by_bit(tmp_path_factory, ending, lengths, data):
    rows, folder = sum(lengths), tmp_path_factory.mktemp("t")
    ends = np.isin(np.arange(rows), np.cumsum(lengths) - 1)
    floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
    values = data.draw(st.lists(floats, min_size=rows, max_size=rows))
    skip = np.arange(rows) % 3 == 0
    cost = np.ones((rows, 2), np.float32)
    held = arrays(rows, reward=np.asarray(values, np.float32), cost=cost, truncated=ends, skip=skip)
    whole = as_dataset(folder, **held)
    write_trace(folder / f"copy{ending}", whole, seed=np.zeros(rows, int))
    copy = read_trace(folder / f"copy{ending}")
    assert copy.cost_names is None
    columns = dict(zip(Trajectory._fields[:-1], whole.trajectory[:-1], strict=True))
    assert all(isinstance(value, np.ndarray) and len(value) == rows for value in columns.values())
    for name, value in columns.items():
        np.testing.assert_array_equal(getattr(copy.trajectory, name).astype(value.dtype), value, err_msg=name)
    assert whole.trajectory.done.tolist() == ends.tolist()
    assert whole.trajectory.learnable.tolist() == (~skip).tolist()
    assert [each.num_rows for each in split_episodes(copy, 100)] == lengths
    halves = [n for k in lengths for n in [2] * (k // 2) + [1] * (k % 2)]
    assert [each.num_rows for each in split_episodes(copy, 2)] == halves
    np.testing.assert_array_equal(join(split_episodes(copy, 3)).trajectory.obs, copy.trajectory.obs)


def test_flags_are_written_as_booleans_whatever_they_came_as(tmp_path):
    obs, none = np.zeros((2, 1), np.float32), np.zeros(2, int)
    flags = {"terminated": np.asarray([0, 1]), "truncated": none, "stopped": none}
    rows = Trajectory(obs, obs, None, None, obs, **flags, valid=none + 1, learnable=np.asarray([1, 0]))
    write_trace(tmp_path / "log.npz", Dataset(rows))
    with np.load(tmp_path / "log.npz") as file:
        held = {name: file[name] for name in ("terminated", "truncated", "skip")}
    assert {value.dtype for value in held.values()} == {np.dtype(bool)}
    assert {name: value.tolist() for name, value in held.items()} == {
        "terminated": [False, True],
        "truncated": [False, False],
        "skip": [False, True],
    }


def test_a_plain_log_without_what_follows_is_enough(tmp_path):
    (tmp_path / "log.csv").write_text(
        "time,temperature,valve,run\n0,20.0,0.5,1\n1,20.5,0.75,1\n2,21.0,1,1\n0,19.0,-1,2\n1,18.0,-1,2\n"
    )
    rows = read_rows(tmp_path / "log.csv", {"obs": ["temperature"], "action": ["valve"], "episode": ["run"]})
    assert rows.obs.tolist() == [[20.0], [20.5], [19.0]]
    assert rows.next_obs.tolist() == [[20.5], [21.0], [18.0]]
    assert rows.action.tolist() == [[0.5], [0.75], [-1.0]]
    assert rows.done.tolist() == [False, True, True]
    assert rows.learnable.all()
    assert rows.reward is None


def test_words_for_yes_and_no_and_a_byte_order_mark(tmp_path):
    text = "\ufeffobs,action,next_obs,skip,terminated\n1,0,2,False,false\n2,0,3,TRUE,True\n5,0,6,0,1\n"
    (tmp_path / "log.csv").write_text(text)
    rows = read_rows(tmp_path / "log.csv")
    assert rows.learnable.tolist() == [True, False, True]
    assert rows.done.tolist() == [False, True, True]
    assert rows.obs.tolist() == [[1.0], [2.0], [5.0]]


def test_folders_are_read_in_order(tmp_path):
    for number in (10, 2, 1):
        np.savez(tmp_path / f"seed0-ep{number}.npz", **arrays(number))
    assert [path.stem for path in find_traces([tmp_path])] == ["seed0-ep1", "seed0-ep2", "seed0-ep10"]
    assert np.flatnonzero(read_traces([tmp_path]).trajectory.done).tolist() == [0, 2, 12]
    (tmp_path / "run" / "traces").mkdir(parents=True)
    with pytest.raises(GussError, match=r"no traces in .*/run/traces; looked for .npz, .csv, .parquet"):
        read_traces([tmp_path / "run"])
    with pytest.raises(GussError, match="no file with logged data was given"):
        read_traces([])


def test_one_column_may_stand_for_a_plain_number(tmp_path):
    task = make_task("safe-acrobot")
    obs = np.zeros((2, task.observations.size))
    data = as_dataset(tmp_path, obs=obs, action=np.asarray([[0.0], [2.0]]), next_obs=obs)
    action = InputChecker(task).rows(data).action
    assert action.shape == (2,)
    assert action.dtype == np.int32
    data = as_dataset(tmp_path, obs=obs, action=np.asarray([0.5, 1.0]), next_obs=obs)
    with pytest.raises(GussError, match=r"must be integers between 0 and 2, got 0.5 in row 0"):
        InputChecker(task).rows(data)


BAD = {
    "obs_0,action_0\n1,2\n3,x\n": r"line 3, column 'action_0': expected a number, got 'x'",
    "obs_0,action_0\n1,\n3,1\n": r"line 2, column 'action_0': expected a number, got ''",
    "obs_0,action_0\n1,2\n3\n": r"line 3: 1 values, but the header has 2 columns",
    "a,b\n1,2\n": r"has the columns a, b; a trace needs obs_0.*--columns obs=NAME",
    "obs_0,obs_2,action\n1,2,3\n": "must be numbered from 0 without gaps, got obs_0, obs_2",
    "obs,action,obs\n1,2,3\n": "column names must be unique",
    "obs,action\n": "is empty",
    "obs,action\n1,2\n": "has no column next_obs, and guss cannot derive it, because every episode has only one row",
    "": r"is empty: it has no columns",
}


@pytest.mark.parametrize("text", BAD)
def test_a_table_that_is_not_a_trace_is_told(tmp_path, text):
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(GussError, match=BAD[text]):
        read_trace(tmp_path / "log.csv")


def test_files_that_are_not_traces_are_told(tmp_path):
    with pytest.raises(GussError, match=r"ends in .npz, .csv, .parquet, got .*log\.txt"):
        read_trace(tmp_path / "log.txt")
    for ending in FORMATS:
        with pytest.raises(GussError, match="cannot read the trace"):
            read_trace(tmp_path / f"missing{ending}")
    for ending in (".npz", ".parquet"):
        (tmp_path / f"foreign{ending}").write_bytes(b"PK\x03\x04 not a trace")
        with pytest.raises(GussError, match="cannot read the trace"):
            read_trace(tmp_path / f"foreign{ending}")
    with (tmp_path / "plain.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(GussError, match="a single array without a name"):
        read_trace(tmp_path / "plain.npz")
    with pytest.raises(GussError, match=r"reward has shape \(2,\), but obs has 3 rows"):
        as_dataset(tmp_path, **arrays(3, reward=np.zeros(2)))
    with pytest.raises(GussError, match="action must hold numbers, got <U1"):
        as_dataset(tmp_path, obs=np.zeros(2), action=np.asarray(["a", "b"]))
    (tmp_path / "log.csv").write_text("obs,action\n1,2\n2,3\n")
    with pytest.raises(GussError, match=r"unknown column of .* 'temprature'"):
        read_trace(tmp_path / "log.csv", {"obs": ["temprature"]})
    with pytest.raises(GussError, match="unknown part of a trace: 'obz'"):
        read_trace(tmp_path / "log.csv", {"obz": ["obs"]})
    with pytest.raises(GussError, match="reward must be one column"):
        read_trace(tmp_path / "log.csv", {"reward": ["obs", "action"]})


def test_rows_that_a_task_cannot_have_are_told(tmp_path):
    held = arrays(3)
    held["action"][1] = 5.0
    with pytest.raises(GussError, match=r"between \[-2.0\] and \[2.0\], got \[5.0\] in row 1 \(and 0 more\)"):
        InputChecker(pendulum_task()).rows(as_dataset(tmp_path, **held))
    held = arrays(3)
    held["next_obs"][2, 1] = np.nan
    with pytest.raises(GussError, match=r"next_obs of the trace is not finite in row 2, sin\(angle\)"):
        InputChecker(pendulum_task()).rows(as_dataset(tmp_path, **held))


def test_nothing_in_a_trace_is_executed(tmp_path):
    np.savez(tmp_path / "log.npz", obs=np.asarray([print], object), action=np.zeros(1))
    with pytest.raises(GussError, match="cannot read the trace"):
        read_trace(tmp_path / "log.npz")


# ------------------------------------------------------------------------------------------------------ names of costs

HOT, WET = [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]
PARTS = {"obs": np.zeros((3, 3)), "action": np.zeros((3, 1)), "next_obs": np.zeros((3, 3)), "reward": np.zeros(3)}


def plant():
    """Two costs that are learned from what the data say."""
    return pendulum_task().replace(constraints=(Constraint("hot"), Constraint("wet")), name="plant")


def log_with(path, **costs):
    """A file whose costs have these names, in this order."""
    if path.suffix == ".npz":
        np.savez(path, **PARTS, **{name: np.asarray(column) for name, column in costs.items()})
        return path
    flat = {f"{part}_{i}": x[:, i] for part, x in PARTS.items() if x.ndim == 2 for i in range(x.shape[1])}
    table = flat | {"reward": PARTS["reward"]} | costs
    if path.suffix == ".csv":
        rows = zip(*table.values(), strict=True)
        path.write_text("\n".join([",".join(table), *(",".join(map(str, row)) for row in rows)]) + "\n")
    else:
        pyarrow.parquet.write_table(pyarrow.table(table), path)
    return path


@pytest.mark.parametrize("ending", FORMATS)
def test_costs_go_to_the_constraints_of_their_names(tmp_path, ending):
    task, path = plant(), tmp_path / f"log{ending}"
    swapped = read_trace(log_with(path, cost_wet=WET, cost_hot=HOT))
    assert swapped.cost_names == ("wet", "hot")
    cost = InputChecker(task).rows(swapped).cost
    np.testing.assert_array_equal(cost.T, [HOT, WET])
    outcomes = outcomes_of(task, InputChecker(task).dataset(swapped, num_seeds=2))
    assert outcomes.shape == (2, 1, 3, 4)
    for each in outcomes[:, 0]:
        np.testing.assert_array_equal(each[:, 1:3].T, [HOT, WET])
    for each in split_episodes(swapped, 2):
        np.testing.assert_array_equal(InputChecker(task).rows(each).cost[:, 0], each.trajectory.cost[:, 1])
    write_trace(tmp_path / f"copy{ending}", swapped)
    assert read_trace(tmp_path / f"copy{ending}").cost_names == ("wet", "hot")
    for costs in ({"cost_0": HOT, "cost_1": WET}, {"cost_1": WET, "cost_0": HOT}):
        numbered = read_trace(log_with(path, **costs))
        assert numbered.cost_names is None
        np.testing.assert_array_equal(InputChecker(task).rows(numbered).cost, cost)
    by_position = read_trace(log_with(path, cost_wet=WET, cost_hot=HOT), {"cost": ["cost_wet", "cost_hot"]})
    assert by_position.cost_names is None
    np.testing.assert_array_equal(InputChecker(task).rows(by_position).cost.T, [WET, HOT])


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("hot",), r"the trace names the costs hot, task 'plant' has hot, wet; .*--columns cost=NAME,NAME"),
        (("hot", "damp"), "the trace names the costs hot, damp, task 'plant' has hot, wet; they must be the same"),
        (("hot", "wet", "dry"), "the trace names the costs hot, wet, dry, task 'plant' has hot, wet; they must be"),
        (("Hot", "wet"), "the trace names the costs Hot, wet, task 'plant' has hot, wet; they must be the same"),
        (("", "wet"), r"names the columns of cost in more than one way \(cost, cost_wet\); .*--columns cost=NAME,NAME"),
        (("0", "wet"), r"in more than one way \(cost_0, cost_wet\); keep only cost, only cost_0, "),
        (("", "0"), r"in more than one way \(cost, cost_0\)"),
        (("0", "2"), "must be numbered from 0 without gaps"),
        (("0", "00"), "must be numbered from 0 without gaps"),
    ],
)
def test_costs_whose_names_do_not_say_which_they_are_are_refused(tmp_path, ending, names, words):
    path = tmp_path / f"log{ending}"
    log_with(path, **{f"cost_{name}" if name else "cost": HOT for name in names})
    with pytest.raises(GussError, match=words):
        InputChecker(plant()).rows(read_trace(path))


def test_a_part_is_of_one_kind_of_columns(tmp_path):
    (tmp_path / "log.csv").write_text("obs,obs_0,action\n1,2,3\n4,5,6\n")
    with pytest.raises(
        GussError, match=r"names the columns of obs in more than one way \(obs, obs_0\); keep only obs, only obs_0, "
    ):
        read_trace(tmp_path / "log.csv")
    assert read_rows(tmp_path / "log.csv", {"obs": ["obs_0"]}).obs.tolist() == [[2.0]]
    with pytest.raises(GussError, match="obs must be distinct columns, got obs, obs"):
        read_trace(tmp_path / "log.csv", {"obs": ["obs", "obs"]})


def test_an_array_may_be_named_like_a_column(tmp_path):
    np.savez(
        tmp_path / "log.npz", warm=np.asarray([1.0, 2.0]), valve=np.asarray([0.5, 0.5]), cold=np.asarray([3.0, 4.0])
    )
    rows = read_rows(tmp_path / "log.npz", {"obs": ["cold", "warm"], "action": ["valve"]})
    assert rows.obs.tolist() == [[3.0, 1.0]]
    np.savez(tmp_path / "log.npz", obs_0=np.zeros(2), obs_1=np.zeros(3), action=np.zeros(2))
    with pytest.raises(GussError, match=r"the columns of obs must be of one length, got the shapes \(2,\), \(3,\)"):
        read_trace(tmp_path / "log.npz")
    np.savez(tmp_path / "log.npz", **PARTS, cost_hot=np.zeros((3, 2)))
    with pytest.raises(GussError, match=r"cost_hot must have one number per row, got \(3, 2\)"):
        read_trace(tmp_path / "log.npz")


def test_files_are_joined_by_the_names_of_their_costs(tmp_path):
    log_with(tmp_path / "1.csv", cost_wet=WET, cost_hot=HOT)
    log_with(tmp_path / "2.npz", cost_hot=HOT, cost_wet=WET)
    joined = read_traces([tmp_path])
    assert joined.cost_names == ("wet", "hot")
    np.testing.assert_array_equal(joined.trajectory.cost.T, [WET + WET, HOT + HOT])
    log_with(tmp_path / "3.csv", cost_hot=HOT, cost_damp=WET)
    with pytest.raises(GussError, match=r"3.csv names the costs hot, damp, .*1.csv has wet, hot; they must be"):
        read_traces([tmp_path])
    log_with(tmp_path / "3.csv", cost_0=HOT, cost_1=WET)
    with pytest.raises(GussError, match=r"3.csv names the costs \(none\), .*1.csv has wet, hot"):
        read_traces([tmp_path])
    log_with(tmp_path / "3.csv", cost=HOT)
    with pytest.raises(GussError, match=r"cost has shape \[3, 2\] in .*1.csv and has shape \[3, 1\] in .*3.csv"):
        read_traces([tmp_path])
    log_with(tmp_path / "3.csv")
    with pytest.raises(GussError, match=r"cost has shape \[3, 2\] in .*1.csv and is missing in .*3.csv"):
        read_traces([tmp_path])


def test_an_agent_and_a_run_start_from_costs_by_name(tmp_path, monkeypatch):
    path = log_with(tmp_path / "log.csv", cost_wet=WET, cost_hot=HOT)
    agent = Agent(plant(), traces=[path], method="rs", horizon=2, budget=4, model_settings={"hidden": [4]})
    np.testing.assert_array_equal(np.asarray(agent.state.data.outcomes)[0, :3, 1:3].T, [HOT, WET])
    (tmp_path / "own.py").write_text(
        "from guss.constraint import Constraint\nfrom guss.envs.pendulum import pendulum_task\n"
        "make = lambda: pendulum_task().replace(constraints=(Constraint('hot'), Constraint('wet')), name='plant')\n"
    )
    monkeypatch.chdir(tmp_path)
    data = parse(["run", "--env", "own.py:make", "--data", str(path)])._data()
    assert data.cost_names is None
    np.testing.assert_array_equal(data.trajectory.cost.T, [HOT, WET])
    plain = read_trace(log_with(tmp_path / "plain.csv", cost_0=HOT, cost_1=WET))
    assert digest_of(data) == digest_of(plain), "in the order of the constraints, names make no difference"
    named = read_trace(path)
    assert digest_of(named) != digest_of(named._replace(cost_names=("hot", "wet")))
    assert costs_in_order(plant(), plain) is plain


# ------------------------------------------------------------------------------------------- numbers that say something


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"terminated": [0, np.nan, 0]}, r"terminated must be 0 or 1 \(false or true\) in every row, got nan in row 1"),
        ({"truncated": [0, 0, 2]}, r"truncated must be 0 or 1 \(false or true\) in every row, got 2 in row 2"),
        ({"skip": [-1, 0, 0]}, r"skip must be 0 or 1 \(false or true\) in every row, got -1 in row 0"),
        ({"episode": [0, 0, np.nan]}, "episode must be finite in every row, got nan in row 2"),
        ({"seed": [0, np.inf, 0]}, "seed must be finite in every row, got inf in row 1"),
        ({"cost": [0, np.nan, 0]}, r"cost of the trace \(constraints hot\) is not finite in row 1, hot"),
        ({"cost": [0, 1, -1]}, "cost of the trace must be 0 or more .* got -1.0 in row 2, constraint 'hot'"),
        ({"cost": ["a", "b", "c"]}, "cost must hold numbers, got <U1"),
        ({"reward": [0, 1e300, 1]}, "reward of the trace is not finite in row 1"),
        ({"episode": np.zeros((3, 2))}, r"episode must have one number per row, got shape \(3, 2\)"),
    ],
)
def test_marks_and_costs_that_mean_nothing_are_refused(tmp_path, columns, words):
    held = PARTS | {"cost": np.zeros(3)} | {name: np.asarray(value) for name, value in columns.items()}
    with pytest.raises(GussError, match=words):
        InputChecker(plant().replace(constraints=(Constraint("hot"),))).rows(as_dataset(tmp_path, **held))


def test_the_nearest_part_of_a_trace_is_suggested(tmp_path):
    np.savez(tmp_path / "log.npz", **arrays(5))
    for name, meant in (("observation", "obs"), ("actions", "action"), ("next_observation", "next_obs")):
        with pytest.raises(GussError, match=f"Did you mean '{meant}'"):
            read_trace(tmp_path / "log.npz", {name: ["x"]})
