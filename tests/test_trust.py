"""Wrong results that nobody would notice: limits ignored, costs that are no numbers, unknown taken for safe."""

import gc
import threading

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from helpers.problems import ACTIONS, make_task

from guss import Agent, Constraint, Transition
from guss.collect.inputs import HostSystem
from guss.constraint import with_params
from guss.envs import EnvSpec
from guss.envs.adapters import Adapted, describe
from guss.envs.pendulum import SafePendulumEnv, pendulum_task
from guss.errors import GussError, GussWarning, UnknownNameError
from guss.models.factory import ModelSettings
from guss.models.training import FitSettings
from guss.runs.config import RunConfig
from guss.runs.trainer import Trainer

FIT = {"max_steps": 40, "warm_steps": 20}
SMALL = {"method": "s-rs", "horizon": 3, "budget": 30, "model_settings": {"hidden": (8,)}, "fit": FIT}


def beyond(obs, action, next_obs, limit):
    return next_obs[0] > limit


def limited_task(**changes):
    cost = Constraint("beyond", with_params(beyond, limit=0.05), stricter={"limit": -1.0})
    return make_task(ACTIONS["continuous"], constraints=(cost,)).replace(**changes)


# ------------------------------------------------------------------------------------ limits that change at run time


def test_a_limit_changed_at_run_time_is_obeyed_by_the_next_plan(tmp_path):
    """Also with a margin, after saving and loading, and without a new program."""
    settings = {"model": "oracle", "initial_episodes": 0, "method": "s-rs", "horizon": 4, "budget": 50}
    agent = Agent(limited_task(), planning_margin=0.01, **settings)
    obs = np.zeros(2, np.float32)
    agent.act(obs)
    before = float(agent.last_plan.safe_share)
    assert 0.0 < before < 1.0
    agent.set_constraint("beyond", limit=1e6)
    agent.act(obs)
    assert float(agent.last_plan.safe_share) == 1.0
    assert float(agent.planning_task.constraints[0].cost.params["limit"]) == pytest.approx(1e6 - 0.01)
    agent.observe(Transition(obs, agent.act(obs), None, None, np.full(2, 10.0)))  # steps are scored by it, too
    assert agent.reset() is None
    assert agent.history[-1].unsafe_pct == 0.0
    agent.set_constraint("beyond", limit=-1e6)
    agent.act(obs)
    assert float(agent.last_plan.safe_share) == 0.0
    agent.save(tmp_path / "agent.ckpt")
    again = Agent.load(tmp_path / "agent.ckpt", limited_task())
    again.act(obs)
    assert float(again.last_plan.safe_share) == 0.0


def test_a_task_cannot_be_replaced_behind_the_agents_back():
    agent = Agent(limited_task(), model="oracle", initial_episodes=0)
    with pytest.raises(AttributeError, match=r"read-only.*set_constraint"):
        agent.task = agent.task.update("beyond", limit=4.0)
    with pytest.raises(UnknownNameError, match="Did you mean 'beyond'"):
        agent.set_constraint("beyon", limit=1.0)
    with pytest.raises(UnknownNameError, match="parameter of 'beyond'"):
        agent.set_constraint("beyond", low=1.0)
    with pytest.raises(GussError, match="must be a number, got nan"):
        agent.set_constraint("beyond", limit=np.nan)
    with pytest.raises(UnknownNameError, match="constraint of task"):
        agent.set_constraint("reward", limit=1.0)
    learned = Agent(limited_task(step=None, reset=None), learned=("cost",), **SMALL)
    with pytest.raises(GussError, match="is learned from data"):
        learned.set_constraint("beyond", limit=1.0)


def test_the_threshold_of_a_learned_cost_is_a_constraint_parameter():
    agent = Agent(limited_task(step=None, reset=None, constraints=(Constraint("far"),)), **SMALL)
    agent.set_constraint("far", threshold=0.02)
    assert float(agent.planning_task.constraints[0].cost.params["threshold"]) == pytest.approx(0.02)
    with pytest.raises(GussError, match="must be a probability"):
        agent.set_constraint("far", threshold=1.5)


# ------------------------------------------------------------------------------------------- costs that are no numbers


class Drifting(gymnasium.Env):
    """Position drifts by the action. Reports `costs[t]` at step t, 0 afterwards; counts its steps and closings."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, costs=(), ends_at=None):
        self.costs, self.ends_at, self.steps, self.closed = costs, ends_at, 0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.t = float(self.np_random.uniform(-0.1, 0.1)), 0
        return np.asarray([self.x], np.float32), {}

    def step(self, action):
        self.x += 0.1 * float(action[0])
        cost = self.costs[self.t] if self.t < len(self.costs) else 0.0
        self.t += 1
        self.steps += 1
        ended = self.ends_at is not None and self.t >= self.ends_at
        return np.asarray([self.x], np.float32), 1.0, ended, False, {"cost": cost}

    def close(self):
        self.closed += 1


@pytest.mark.parametrize("bad", [np.nan, None, np.inf, -1.0, "1.0", {"a": 1.0}, np.asarray([1.0, 0.0])], ids=repr)
def test_a_cost_that_is_no_number_stops_a_run_at_that_step(bad):
    made = []

    def make():
        made.append(Drifting(costs=(0.0, 0.0, bad)))
        return Adapted(made[-1])

    spec = EnvSpec("", lambda: describe(Adapted(Drifting()), "drifting", episode_length=10), make_env=make)
    from guss.envs import ENVS

    ENVS.add("drifting-test", spec, summary="a test's", origin="test")
    config = RunConfig(env="drifting-test", seeds=(0,), episodes=2, hard=("cost",), **settings_of("s-rs"))
    loop = Trainer(config)
    with pytest.raises(GussError, match=r"episode 0, step 2, seed 0: info\[\"cost\"\].*Earlier episodes are kept"):
        loop.iterate()
    assert made[-1].steps == 3, "the system was driven on"


def settings_of(method):
    return {
        "method": method, "horizon": 2, "budget": 10, "model_settings": ModelSettings(hidden=(4,)),
        "fit": FitSettings(max_steps=20), "initial_episodes": 1,
    }  # fmt: skip


@pytest.mark.parametrize("bad", [np.nan, None, "unsafe"], ids=repr)
def test_a_cost_that_is_no_number_stops_an_agent_at_that_step(bad):
    env = Drifting(costs=(0.0, 0.0, bad))
    env.spec = gymnasium.envs.registration.EnvSpec("Drifting-v0", max_episode_steps=10)
    with pytest.raises(GussError, match=r"info\[\"cost\"\]"):
        Agent(env, hard=("cost",), **SMALL).learn(1)
    assert env.steps == 1 + 3  # one to learn the names of its costs


def test_a_cost_may_be_any_kind_of_number():
    task = limited_task(step=None, reset=None)
    for cost in (1, True, np.float32(1.0), np.asarray([1.0]), np.asarray(1)):
        env = Adapted(Drifting(costs=(cost,)))
        env.reset(0)
        system = HostSystem(task, env)
        move, *_ = system.step(np.zeros(1), np.zeros(1, np.float32), jax.random.key(0), 0)
        assert move.cost.tolist() == [1.0]


def test_an_agent_does_not_close_the_environment_it_was_given():
    before = set(threading.enumerate())
    env = Drifting()
    env.spec = gymnasium.envs.registration.EnvSpec("Drifting-v0", max_episode_steps=5)
    agent = Agent(env, **SMALL)
    agent.learn(1)
    del agent
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=10.0)
        assert not thread.is_alive()
    assert env.closed == 0
    env.reset(seed=0)
    env.step(np.zeros(1))


# --------------------------------------------------------------------------------------------- the end of an episode


def test_the_end_is_learned_wherever_somebody_elses_system_is_acted_on():
    def one(obs, action, next_obs):
        return 1.0

    def never(obs, action, next_obs):
        return 0.0

    known = describe(Adapted(Drifting()), "drifting", episode_length=20).replace(
        reward=one, constraints=(Constraint("never", never),), learns_end=None
    )
    ends = "end of an episode"
    env = Drifting(ends_at=6)
    agent = Agent(env, task=known, **SMALL)
    assert ends in agent.planning_task.unknown
    agent.learn(2)
    assert [e.steps for e in agent.history] == [6, 6]
    ended = np.asarray(agent.state.data.outcomes)[0, :12, -1]
    assert ended.tolist() == [0.0] * 5 + [1.0] + [0.0] * 5 + [1.0]
    assert ends in Agent(known, **SMALL).planning_task.unknown  # a loop of the user's
    assert ends not in Agent(known.replace(learns_end=False), **SMALL).planning_task.unknown
    assert ends not in Agent(pendulum_task(), **SMALL).planning_task.unknown  # never ends early
    simulated = make_task(ACTIONS["continuous"])
    assert ends not in Agent(simulated, **SMALL).planning_task.unknown
    assert ends not in Agent(simulated, model="oracle").planning_task.unknown
    known = known.replace(step=lambda obs, action, key: obs, reset=lambda key: jnp.zeros(1))
    assert ends in Agent(env, task=known, **SMALL).planning_task.unknown, (
        "an environment is acted on, not the simulation"
    )


@pytest.mark.long
def test_a_model_of_a_simulation_is_deployed_on_the_system_itself(tmp_path):
    """Whether the end of episodes was learned belongs to the model, not to the system that it is loaded for."""
    simulated = Agent(limited_task(), **SMALL)
    simulated.learn(2)
    simulated.save(tmp_path / "agent.ckpt")
    plant = limited_task(step=None, reset=None, name="the plant")
    with pytest.warns(GussWarning, match="does not predict early ends of episodes"):
        agent = Agent.load(tmp_path / "agent.ckpt", plant)
    assert agent.act(np.zeros(2)).shape == (2,)
    agent.save(tmp_path / "again.ckpt")
    assert Agent.load(tmp_path / "again.ckpt", limited_task()).act(np.zeros(2)).shape == (2,)


def test_an_agent_refuses_negative_costs():
    agent = Agent(limited_task(step=None, reset=None), hard=("beyond",), **SMALL)
    action = agent.act(np.zeros(2))
    with pytest.raises(GussError, match="must be 0 or more"):
        agent.observe(Transition(np.zeros(2), action, 0.0, [-1.0], np.zeros(2)))
    with pytest.raises(GussError, match="must be a number, got 'a'"):
        agent.set_constraint("beyond", limit="a")


def test_logged_data_need_no_reward_and_cost_where_the_task_knows_them():
    """Also where the end of episodes is learned from them; what must be learned and is missing is an error."""
    task = limited_task(step=None, reset=None)
    agent = Agent(task, initial_episodes=0, **SMALL)
    random = np.random.default_rng(0)
    obs = random.normal(size=(30, 2)).astype(np.float32)
    rows = Transition(obs, random.uniform(0.0, 0.5, (30, 2)).astype(np.float32), None, None, obs)
    agent.remember(rows)
    assert agent.fit() is not None
    blank = Agent(task.replace(constraints=(Constraint("beyond"),)), initial_episodes=0, **SMALL)
    with pytest.raises(
        GussError, match=r"must learn the cost of beyond from data, .* lack it: add the column `cost_beyond`, or"
    ):
        blank.remember(rows._replace(reward=np.zeros(30)))
    blank = Agent(task.replace(constraints=(Constraint("beyond"),), reward=None), initial_episodes=0, **SMALL)
    with pytest.raises(GussError, match="must learn the reward and the cost of beyond"):
        blank.remember(rows)
    with pytest.raises(GussError, match="must learn the reward from data, but"):
        blank.remember(rows._replace(cost=np.zeros((30, 1))))


def test_a_warning_points_at_the_line_that_called_guss(tmp_path):
    agent = Agent(limited_task(step=None, reset=None), **SMALL)
    agent.observe(Transition(np.zeros(2), agent.act(np.zeros(2)), 0.0, [0.0], np.zeros(2)))
    with pytest.warns(GussWarning, match="are not saved") as caught:
        agent.save(tmp_path / "agent.ckpt")
    assert caught[0].filename == __file__


def test_costs_of_a_transition_may_be_given_by_name():
    agent = Agent(limited_task(step=None, reset=None), **SMALL)
    move = Transition(np.zeros(2), agent.act(np.zeros(2)), 0.0, {"beyond": 1.0, "other": 0.0}, np.zeros(2))
    with pytest.raises(
        GussError, match=r"\(constraints beyond\) must name every constraint, got cold: beyond is missing"
    ):
        agent.observe(move._replace(cost={"cold": 1.0}))
    agent.observe(move, end=True)
    assert agent.history[-1].unsafe_by_cost == {"beyond": 100.0}


# ---------------------------------------------------------------------------------------------- unknown is not safe


def test_an_agent_warns_where_its_data_hold_no_unsafe_example():
    env = SafePendulumEnv()
    task = pendulum_task().replace(step=None, reset=None, episode_length=12, constraints=(Constraint("hot"),))
    agent = Agent(task, **SMALL)
    obs, _ = env.reset(seed=0)
    for _ in range(12):
        action = agent.act(obs)
        after, reward, *_ = env.step(action)
        agent.observe(Transition(obs, action, reward, [0.0], after))
        obs = after
    with pytest.warns(GussWarning, match="none of 12 observed states is unsafe"):
        agent.act(obs)


def test_unfamiliar_states_are_reported_and_count_as_unsafe_if_asked_for():
    """Logs of a narrow band: plans that leave it are guesses, though the classifier calls all of it safe."""
    random = np.random.default_rng(0)
    obs = random.uniform(-1.0, 1.0, (300, 2)).astype(np.float32)
    action = random.uniform((-2.0, 0.0), (1.0, 0.5), (300, 2)).astype(np.float32)
    after = obs + 0.1 * action.sum(axis=1, keepdims=True)
    rows = Transition(obs, action, obs.sum(axis=1), np.zeros((300, 1)), after)
    task = limited_task(step=None, reset=None, reward=None, constraints=(Constraint("far"),))
    shares = {}
    for asked in (False, True):
        agent = Agent(task, initial_episodes=0, unknown_unsafe=asked, **(SMALL | {"fit": {"max_steps": 600}}))
        agent.remember(rows)
        with pytest.warns(GussWarning, match="none of 300"):
            agent.act(np.zeros(2))
        inside = agent.last_plan
        agent.act(np.full(2, 30.0))
        shares[asked] = (inside, agent.last_plan)
    for inside, outside in shares.values():
        assert float(inside.unfamiliar_share) < 0.4
        assert float(outside.unfamiliar_share) == 1.0
    assert float(shares[False][1].safe_share) == 1.0
    assert float(shares[True][1].safe_share) == 0.0
    assert float(shares[True][1].cost) > 0.0
    assert float(shares[True][0].safe_share) > 0.2
    assert float(shares[False][1].reward) <= 3 * (obs.sum(axis=1).max() * 1.1 + 0.5), "rewards beyond any observed"
