"""Small mistakes of a first hour that were silent or unclear."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest

import guss
from guss.collect.inputs import InputChecker
from guss.envs.values import no_cost_error
from guss.errors import GussError, GussWarning
from guss.models.unsafe_examples import examples_of
from guss.spaces import Observations


def make_agent():
    return guss.Agent("safe-pendulum", method="random")


def test_saving_within_an_episode_warns_that_its_steps_are_not_saved(tmp_path):
    agent, obs = make_agent(), np.asarray([1.0, 0.0, 0.0], np.float32)
    agent.observe(guss.Transition(obs, agent.act(obs), None, None, obs))
    with pytest.warns(GussWarning, match="1 steps of the open episode are not saved; call reset"):
        agent.save(tmp_path / "agent.ckpt")
    agent.reset()
    agent.save(tmp_path / "agent.ckpt")


def test_a_tuple_is_no_transition_and_a_constraint_needs_a_parameter():
    agent = make_agent()
    unchecked = getattr(
        InputChecker.transition, "__wrapped__", InputChecker.transition
    )  # as without the tests' type checks
    with pytest.raises(GussError, match=r"expected a guss.Transition\(obs, action, .*\), got tuple"):
        unchecked(InputChecker(agent.task), (np.zeros(3), np.zeros(1), 0.0, 0.0, np.zeros(3)), "step 0")
    with pytest.raises(GussError, match="changes nothing: give parameters"):
        agent.set_constraint("unsafe_angle")


def test_a_user_s_loop_gives_and_takes_the_actions_of_the_environment():
    """Its actions count from 0, those of its Task from −1."""
    env = gymnasium.make("guss/SafeToy-v0")
    agent = guss.Agent(env, method="random", seed=3)
    obs, _ = env.reset(seed=0)
    seen = set()
    for _ in range(12):
        action = agent.act(obs)
        assert env.action_space.contains(action)
        next_obs, *_ = env.step(action)
        agent.observe(guss.Transition(obs, action, None, None, next_obs))
        stored = agent._open.steps[-1].action
        np.testing.assert_array_equal(stored, np.asarray(action) - 1)
        seen |= set(np.ravel(action).tolist())
        obs = next_obs
    assert seen == {0, 1, 2}
    with pytest.raises(GussError, match="the action of episode 0"):
        agent.observe(guss.Transition(obs, np.asarray([3, 0], np.int32), None, None, obs))


def test_costs_that_are_missing_or_no_dict_are_named():
    assert "dict with all of them, 0 if the step is safe; got ['hot']" in str(no_cost_error("b", {"costs": {"hot": 1}}))
    assert "got list" in str(no_cost_error("b", {"costs": [1.0]}))


def test_a_side_that_ends_at_the_bound_of_the_space_is_not_warned_of():
    obs = np.linspace(0.0, 1.0, 400)[:, None]
    open_ended = Observations((-np.inf,), (np.inf,), names=("level",))
    bounded = Observations((0.0,), (1.0,), names=("level",))
    skewed = np.concatenate([obs[obs[:, 0] > 0.6], obs[:1]])
    event = skewed[:, 0] > 0.9
    assert examples_of("hot", skewed, event, bounded).warning is None
    assert examples_of("hot", skewed[:-1], event[:-1], open_ended).warning.startswith(
        "cost 'hot': all 40 unsafe states have level ≥ 0.902"
    )


def test_a_list_of_settings_given_twice_is_refused_instead_of_half_lost(guss_here):
    words = ("run", "--env", "safe-pendulum", "--model.hidden", "5", "--model.hidden", "8")
    assert "--model.hidden is given more than once" in guss_here(*words, check=2).stderr
    alone = guss_here("run", "--env", "safe-pendulum", "--model.particles", "5", check=2)
    assert "particles=5 needs a stochastic model" in alone.stderr
    assert "--columns names the columns of data files" in guss_here("run", "--columns", "obs=a", check=2).stderr


def test_a_thread_that_outlives_the_main_one_is_not_left_waiting(tmp_path):
    script = tmp_path / "late.py"
    script.write_text(
        "import threading, time\n"
        "from guss.compilation import Ahead\n"
        "class Slow:\n"
        "    def compile(self):\n"
        "        time.sleep(0.3)\n"
        "def late():\n"
        "    threading.main_thread().join()\n"
        "    ahead = Ahead()\n"
        "    for k in range(4):\n"
        "        ahead.start(str(k), Slow)\n"
        "    ahead.wait()\n"
        "    print('went on')\n"
        "threading.Thread(target=late).start()\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "went on\n", done.stderr
