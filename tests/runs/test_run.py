"""`guss.run` in Python: what it returns."""

import numpy as np
import pytest
from helpers.short_runs import ORIGIN, Stop, config, policy_config, run_one, stop_after

import guss
from guss.errors import GussError
from guss.reports.inventory import read_record
from guss.reports.run_summary import per_seed


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return guss.run(config(), tmp_path_factory.mktemp("runs"))


def test_a_run_has_typed_results(run):
    assert run.config == config()
    assert [(e.seed, e.episode) for e in run.episodes] == [(s, e) for e in range(3) for s in (3, 4)]
    assert [e.phase for e in run.episodes] == ["random"] * 2 + ["plan"] * 4
    assert all(e.steps == 25 and 0.0 <= e.unsafe_pct <= 100.0 for e in run.episodes)
    assert run.metrics.mar.shape == (2,)
    late = [np.mean([e.mean_reward for e in run.episodes if e.seed == s and e.episode >= 1]) for s in (3, 4)]
    np.testing.assert_allclose(run.metrics.mar, late, rtol=1e-12)


def test_the_measures_are_those_of_a_report(run):
    for name, values in per_seed(read_record(run.path)).items():
        np.testing.assert_array_equal(values, getattr(run.metrics, name))


def test_the_agent_of_a_run_acts(run):
    action = run.agent.act(np.asarray([1.0, 0.0, 0.0], np.float32))
    assert action.shape == (1,)
    assert abs(float(action[0])) <= 2.0
    assert run.agent.history[-1].mean_reward == run.episodes[-2].mean_reward  # of seed 3


def test_a_stored_run_is_opened_by_its_folder(run):
    again = guss.Run(str(run.path))
    assert again.episodes == run.episodes
    assert repr(again) == f"Run('{run.path}')"
    with pytest.raises(GussError, match="no-such"):
        guss.Run(run.path / "no-such")


def test_an_interrupted_run_has_the_episodes_that_it_finished_and_is_resumed(tmp_path):
    with pytest.raises(Stop):
        run_one(config(), tmp_path, ORIGIN, stop_after(0))
    (home,) = tmp_path.iterdir()
    assert {e.episode for e in guss.Run(home).episodes} == {0}
    assert {e.episode for e in guss.resume(home).episodes} == {0, 1, 2}


def test_a_policy_run_has_results_too(tmp_path):
    found = guss.run(policy_config(episodes=2), tmp_path)
    assert [e.phase for e in found.episodes] == ["policy"] * 4
    with pytest.raises(GussError, match="acts by a policy"):
        _ = found.agent


def test_a_config_is_made_as_by_the_command():
    made = guss.make_config("safe-pendulum", "rs", seeds=2, episodes=3, method_settings={}, fit={"max_steps": 50})
    assert made.seeds == (0, 1)
    assert made.fit.max_steps == 50
    assert made.horizon == guss.make_config("safe-pendulum").horizon  # the preset's
    assert guss.make_config("safe-pendulum", seeds=[7, 9]).seeds == (7, 9)
    with pytest.raises(GussError, match=r"Did you mean .guss."):
        guss.make_config("safe-pendulum", "gus")
    with pytest.raises(GussError, match="horizont"):
        guss.make_config("safe-pendulum", horizont=3)
