"""Files of agents and runs with a valid checksum and something wrong inside: an error names it, nothing is used."""

import json

import numpy as np
import pytest

from guss import Agent, checkpoint
from guss.agent_file import load_agent
from guss.errors import GussError
from guss.history import Episode
from guss.models.stored_report import report_from
from guss.runs.checkpoints import RUN_META

SMALL = {
    "model": "dmdn",
    "model_settings": {"hidden": [4]},
    "fit": {"max_steps": 5},
    "horizon": 3,
    "budget": 30,
    "preset": {},
}

SYSTEM = {"observation size": 3, "actions": {}, "constraints": ["unsafe_angle"], "learned outcomes": []}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("agent") / "agent.ckpt"
    agent = Agent("safe-pendulum", **SMALL)
    agent.learn(1)
    agent.save(path)
    return agent, path


def resealed(path, target, change):
    """The same file with `meta` changed and the checksum that belongs to it."""
    first, _, payload = path.read_bytes().partition(b"\n")
    header = json.loads(first)
    change(header)
    header["sha256"] = checkpoint._digest(header, payload)
    target.write_bytes(json.dumps(header).encode() + b"\n" + payload)
    return target


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("seed", "1", r"meta\.seed must be an integer, got '1'"),
        ("seed", -1, "the seed must be an integer from 0"),
        ("settings", [1], r"meta\.settings must be a table of settings, got \[1\]"),
        ("settings", {"horizon": "3"}, r"meta\.settings\.horizon must be an integer, got '3'"),
        ("settings", {"horizn": 3}, "Did you mean 'horizon'"),
        ("history", 5, r"meta\.history must be a list of entries, got 5"),
        ("history", [{"episode": 0}], r"meta\.history\[0\]\.phase is missing"),
        ("num_observed", None, r"meta\.num_observed must be an integer"),
        ("report", [1, [2]], "a stored report must be 7 or 12 numbers or lists"),
        ("report", {"a": 1}, "a stored report must be lists of numbers"),
        ("system", SYSTEM | {"observation size": "3"}, r"meta\.system\.observation size must be an integer"),
        ("system", {"observation size": 3}, r"meta\.system has no actions, constraints, learned outcomes"),
        ("system", SYSTEM | {"actions": {"kind": 3}}, r"meta\.system\.actions\.kind must be text"),
        ("constraints", {"unsafe_angle": {"low": [1, [2]]}}, "parameter 'low' of 'unsafe_angle' must be a number"),
        ("constraints", {"unsafe_angle": 3}, r"meta\.constraints\.unsafe_angle must be a table, got 3"),
    ],
)
def test_wrong_entries_behind_a_valid_checksum_are_named(stored, tmp_path, name, value, words):
    path = resealed(stored[1], tmp_path / "a.ckpt", lambda header: header["meta"].update({name: value}))
    with pytest.raises(GussError, match=words):
        Agent.load(path, "safe-pendulum")


@pytest.mark.parametrize("name", ["seed", "settings", "history", "report", "system", "constraints", "num_observed"])
def test_missing_entries_are_named(stored, tmp_path, name):
    path = resealed(stored[1], tmp_path / "a.ckpt", lambda header: header["meta"].pop(name))
    with pytest.raises(GussError, match=rf"a\.ckpt: meta has no {name}; it was not written"):
        load_agent(path)


def test_headers_that_are_not_tables_or_nested_too_deep_are_refused(stored, tmp_path):
    path = resealed(stored[1], tmp_path / "a.ckpt", lambda header: header.update(meta=[1]))
    with pytest.raises(GussError, match=r"meta must be a table, got \[1\]"):
        load_agent(path)
    path.write_bytes(checkpoint.START + b', "meta": ' + b"[" * 10**5 + b"\n")
    with pytest.raises(GussError, match="is not a checkpoint of guss"):
        load_agent(path)


@pytest.mark.long
def test_what_was_saved_after_thousands_of_episodes_is_loaded(stored, tmp_path):
    agent, _ = stored
    before = agent.history
    model = {"r2": [0.123456] * 20}
    agent.history = [Episode(i, "plan", 200, -1.5, 2.5, model=model) for i in range(8000)]
    try:
        agent.save(tmp_path / "long.ckpt")
    finally:
        agent.history = before
    assert (tmp_path / "long.ckpt").read_bytes().index(b"\n") > 2**20
    assert len(load_agent(tmp_path / "long.ckpt").meta["history"]) == 8000


def test_checkpoints_of_runs_say_what_they_must(tmp_path):
    meta = {"done": 1, "over": False, "config": {}, "steps": [5]}
    checkpoint.save(tmp_path / "a.ckpt", "run", meta | {"done": "1"}, {"x": np.zeros(3)})
    with pytest.raises(GussError, match=r"a\.ckpt: meta\.done must be an integer, got '1'"):
        checkpoint.load(tmp_path / "a.ckpt", "run").checked(RUN_META, ("done", "over"))
    checkpoint.save(tmp_path / "a.ckpt", "run", meta, {"x": np.zeros(3)})
    read = checkpoint.load(tmp_path / "a.ckpt", "run").checked(RUN_META, ("done", "over"))
    assert read.row(1, 3).arrays["['x']"].shape == (1,)
    with pytest.raises(GussError, match="must have one entry for each of the 2 seeds"):
        read.row(0, 2)


def test_reports_have_an_axis_of_seeds_where_they_are_of_runs():
    numbers = [[1.0, 2.0]] * 2 + [[[1.0], [2.0]]] * 2 + [[1, 1]] * 3
    assert report_from(numbers, (2,)).r2.shape == (2, 1)
    with pytest.raises(GussError, match="a stored report must be"):
        report_from(numbers, (3,))


def test_bounds_of_a_constraint_do_not_cross(stored):
    agent, _ = stored
    with pytest.raises(GussError, match=r"constraint 'unsafe_angle': low must not be above high, got 1\.0 and -1\.0"):
        agent.set_constraint("unsafe_angle", low=1, high=-1)
