"""Costs that a Task only measures: they are recorded and reported, and change nothing else."""

import json

import numpy as np
import pytest
from helpers.short_runs import ORIGIN, add, config, run_one, short_pendulum

import guss
from guss.collect.datasets import read_episode
from guss.constraint import Constraint, with_params
from guss.errors import GussError
from guss.reports.inventory import gather
from guss.reports.report import make_report, to_markdown
from guss.runs.evaluation import evaluate_run
from guss.runs.rows import measured_costs
from guss.runs.store import read_lines, trace_path


def too_fast(obs, action, next_obs, limit):
    return abs(next_obs[2]) > limit


def measured_pendulum():
    return short_pendulum(measured=(Constraint("fast", with_params(too_fast, limit=1.0)),))


def only_measured_pendulum():
    return short_pendulum(constraints=(), measured=(Constraint("fast", with_params(too_fast, limit=1.0)),))


add("measured-pendulum", measured_pendulum)
add("only-measured-pendulum", only_measured_pendulum)


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    out = tmp_path_factory.mktemp("measured")
    return [run_one(config(env=env, model="oracle", initial_episodes=0), out, ORIGIN)
            for env in ("short-pendulum", "measured-pendulum")]  # fmt: skip


def test_a_measured_cost_is_recorded_and_changes_nothing_else(homes):
    plain, measured = (read_lines(home / "episodes.jsonl") for home in homes)
    shares = [row.pop("unsafe_pct_by_cost") for row in measured]
    assert measured == plain
    assert len({share["fast"] for share in shares}) > 1
    for row, share in zip(measured, shares, strict=True):
        trace = read_episode(trace_path(homes[1], row["seed"], row["episode"]))
        assert share == {"unsafe_angle": row["unsafe_pct"], "fast": 100 * np.mean(abs(trace.next_obs[:, 2]) > 1.0)}


def test_a_report_shows_it_next_to_the_constraint(homes):
    found = gather(homes[1].parent)
    assert {record.env for record in found.records} == {"short-pendulum", "measured-pendulum"}
    text = to_markdown(make_report(homes[1].parent))
    assert "| p(unsafe) [%] ↓ | p(fast) [%] ↓ |" in text
    assert "p(fast): percentage of steps with the cost fast, which plans do not use" in text
    assert json.loads((homes[1] / "config.json").read_text())["config"]["env"] == "measured-pendulum"


def test_metrics_and_evaluations_have_it(homes):
    plain, measured = (guss.Run(home).metrics for home in homes)
    assert dict(plain.unsafe_pct_by_cost) == {}
    rows = read_lines(homes[1] / "episodes.jsonl")
    expected = [np.mean([row["unsafe_pct_by_cost"]["fast"] for row in rows if row["seed"] == s]) for s in (3, 4)]
    np.testing.assert_allclose(measured.unsafe_pct_by_cost["fast"], expected)
    np.testing.assert_array_equal(measured.unsafe_pct_by_cost["unsafe_angle"], measured.unsafe_pct)
    assert set(evaluate_run(homes[1], 1).unsafe_by_cost) == {"unsafe_angle", "fast"}
    assert evaluate_run(homes[0], 1).unsafe_by_cost == {}


def test_it_is_recorded_without_any_constraint(tmp_path):
    home = run_one(config(env="only-measured-pendulum", model="oracle", initial_episodes=0), tmp_path, ORIGIN)
    rows = read_lines(home / "episodes.jsonl")
    assert all(row["costs"] == {} and list(row["unsafe_pct_by_cost"]) == ["fast"] for row in rows)
    assert measured_costs(rows) == ("fast",)
    found = evaluate_run(home, 1)
    assert (list(found.unsafe_by_cost), found.measured) == (["fast"], ("fast",))


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (Constraint("learned"), "a measured cost needs a function of"),
        (Constraint("unsafe_angle", with_params(too_fast, limit=1.0)), "constraint names must differ"),
        (Constraint("wrong", lambda obs, action, next_obs: next_obs), "'wrong'"),
    ],
)
def test_a_bad_measured_cost_is_one_sentence(constraint, message):
    with pytest.raises(GussError, match=message):
        short_pendulum(measured=(constraint,))
