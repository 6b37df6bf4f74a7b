"""The agent on compiled tasks, on Gymnasium environments, and in a loop that somebody else owns."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import ACTIONS, make_task

from guss import Agent, Transition
from guss.envs.pendulum import SafePendulumEnv, pendulum_task
from guss.envs.toy import toy_task
from guss.errors import GussError
from guss.methods.settings import AgentSettings
from guss.runs.compile_clock import CompileClock
from guss.runs.config import make_config
from guss.types import ContinuousActions
from guss.validation import types_of

FIT = {"max_steps": 60, "warm_steps": 30}
SMALL = {"method": "rs", "horizon": 3, "budget": 20, "model_settings": {"hidden": (8,)}, "fit": FIT}
TASK = pendulum_task().replace(episode_length=12, step=None, reset=None)


def small(system=TASK, **settings):
    return Agent(system, **(SMALL | settings))


def drive(agent, env, episodes=1, steps=12):
    """The loop of somebody who owns the system."""
    for episode in range(episodes):
        obs, _ = env.reset(seed=episode)
        for t in range(steps):
            action = agent.act(obs)
            after, reward, _, _, info = env.step(action)
            agent.observe(Transition(obs, action, reward, [info["cost"]], after), end=t == steps - 1)
            obs = after


def test_a_loop_of_ones_own_gives_the_very_episode_of_the_compiled_task():
    task = toy_task().replace(episode_length=8)
    settings = {"model": "oracle", "initial_episodes": 0, "horizon": 5, "budget": 60, "seed": 3}
    compiled = Agent(task, **settings)
    compiled.learn(1)
    own = Agent(task, **settings)
    obs = np.asarray([5.0, 5.0])
    rewards = []
    for _ in range(8):
        action = own.act(obs)
        after = np.asarray(task.step(jnp.asarray(obs, jnp.float32), jnp.asarray(action), jax.random.key(0)))
        own.observe(Transition(obs, action, None, None, after))  # the task knows reward and cost
        rewards.append(float(-((after - 45.0) ** 2).sum()))
        obs = after
    assert own.history[0].mean_reward == compiled.history[0].mean_reward == pytest.approx(np.mean(rewards))
    assert own.episode == 1


@pytest.mark.parametrize("env", ["safe-pendulum", "safe-acrobot"])
@pytest.mark.parametrize("method", ["ppo", "safe-mbpo"])
def test_a_policy_has_the_settings_that_it_has_in_a_run(env, method):
    """Its own defaults and the preset of the environment; how many episodes a run has is none of an agent's."""
    if (env, method) == ("safe-acrobot", "safe-mbpo"):
        with pytest.raises(GussError, match="safe-mbpo supports only continuous actions"):
            Agent(env, method=method)
        return
    agent, run = Agent(env, method=method).settings, make_config(env, method)
    assert all(getattr(agent, name) == getattr(run, name) for name in types_of(AgentSettings))
    if method == "safe-mbpo":
        assert (agent.model, agent.model_settings.ensemble, agent.model_settings.deterministic) == ("dmdn", 5, False)


def test_learning_in_ones_own_loop():
    agent, env = small(), SafePendulumEnv()
    drive(agent, env, episodes=3)
    assert [e.phase for e in agent.history] == ["random", "plan", "plan"]
    assert [e.steps for e in agent.history] == [12, 12, 12]
    last = agent.history[-1]
    assert set(last.model) == {"nll", "r2", "ks", "r2_horizon"}
    assert last.fit_seconds > 0
    assert last.plan_seconds > 0
    assert agent.num_transitions == 36
    assert int(agent.last_plan.evaluated) == 20


def test_learning_on_a_gymnasium_environment_known_by_its_id():
    def agent():
        env = gymnasium.make("guss/SafeAcrobot-v0", max_episode_steps=15)
        return Agent(env, method="s-rs", horizon=2, budget=10, model_settings={"hidden": (8,)}, fit=FIT)

    told = []
    first = agent()
    news = first.learn(2, on_episode=told.append)
    assert news == told == first.history
    assert [(e.phase, e.steps) for e in news] == [("random", 15), ("plan", 15)]
    assert 0.0 <= news[0].mean_reward <= 4.0
    assert agent().learn(1)[0].mean_reward == news[0].mean_reward, "the same seed gives the same start and actions"


def test_learning_on_a_compiled_task_goes_on_and_stops_at_the_target():
    task = pendulum_task().replace(episode_length=12)
    agent = small(task)
    assert len(agent.learn(2)) == 2
    assert [e.episode for e in agent.learn(3, target=-100.0)] == [2], "one planned episode is enough"
    assert len(agent.learn(2, target=100.0)) == 2
    assert agent.episode == 5


def test_the_first_episodes_may_be_the_users_own_controller():
    calls = []

    def brake(obs):
        calls.append(obs)
        return [-0.1 * obs[2]]

    agent, env = small(initial_policy=brake, initial_episodes=2), SafePendulumEnv()
    drive(agent, env, episodes=3)
    assert [e.phase for e in agent.history] == ["initial_policy", "initial_policy", "plan"]
    assert len(calls) == 24
    np.testing.assert_allclose(agent.state.data.action[0, :24, 0], [-0.1 * obs[2] for obs in calls], atol=1e-6)
    compiled = small(pendulum_task().replace(episode_length=12), initial_policy=brake)
    assert [e.phase for e in compiled.learn(2)] == ["initial_policy", "plan"]
    with pytest.raises(GussError, match=r"action of initial_policy in episode 0, step 0 must be between \[-2"):
        small(initial_policy=lambda obs: [7.0]).act(np.zeros(3))


def test_logged_traces_come_first(tmp_path):
    rng = np.random.default_rng(0)
    obs, action = rng.normal(size=(300, 3)), rng.uniform(-2, 2, size=(300, 1))
    np.savez(tmp_path / "log.npz", obs=obs, action=action, next_obs=obs + 0.1)
    agent = small(traces=[tmp_path / "log.npz", Transition(obs[:5], action[:5], None, None, obs[:5])])
    assert agent.num_transitions == 305
    assert agent.phase == "plan"
    assert np.isfinite(agent.act(np.zeros(3))).all()
    assert small(traces=[tmp_path / "log.npz"], initial_episodes=1).phase == "random"
    np.savez(tmp_path / "short.npz", obs=obs)
    with pytest.raises(GussError, match="has no action; it holds obs"):
        small(traces=[tmp_path / "short.npz"])
    np.savez(tmp_path / "objects.npz", obs=np.asarray([{}], object))
    with pytest.raises(GussError, match="cannot read the trace"):
        small(traces=[tmp_path / "objects.npz"])
    with pytest.raises(GussError, match=r"action of the trace must have shape \(300, 1\)"):
        small(traces=[Transition(obs, action[:7], None, None, obs)])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"next_obs": [0.0, 1.0]}, r"next_obs of episode 1, step 3 must have shape \(3,\) .* got \(2,\)"),
        ({"next_obs": [0.0, np.nan, 0.0]}, "next_obs of episode 1, step 3 is not finite in sin\\(angle\\)"),
        ({"reward": np.nan}, "the reward of episode 1, step 3 is not finite"),
        ({"cost": [np.inf]}, r"cost of episode 1, step 3 \(constraints unsafe_angle\) is not finite in unsafe_angle"),
        ({"cost": [0.0, 0.0]}, r"cost of episode 1, step 3 .* must have shape \(1,\)"),
        ({"action": [9.0]}, "action of episode 1, step 3 must be between"),
        ({"obs": "up"}, "obs of episode 1, step 3 must be numbers of shape"),
    ],
)
def test_what_cannot_be_used_is_told_and_loses_nothing(change, words):
    agent, env = small(), SafePendulumEnv()
    drive(agent, env)
    good = Transition([1.0, 0.0, 0.0], [0.5], -1.0, [0.0], [1.0, 0.0, 0.0])
    for _ in range(3):
        agent.observe(good)
    with pytest.raises(GussError, match=words):
        agent.observe(good._replace(**change))
    agent.observe(good, end=True)
    assert [e.steps for e in agent.history] == [12, 4]


def test_bad_observations_are_told_before_they_are_acted_on():
    agent = small()
    with pytest.raises(GussError, match=r"observation of episode 0, step 0 must have shape \(3,\)"):
        agent.act(np.zeros(4))
    with pytest.raises(GussError, match="observation of episode 0, step 0 is not finite in speed"):
        agent.act([0.0, 1.0, np.nan])


def test_a_model_that_diverges_is_told_and_the_episodes_stay():
    agent, env = small(fit={"max_steps": 200, "learning_rate": 1e20, "loss": "nll"}), SafePendulumEnv()
    with pytest.raises(GussError, match=r"the fit before episode 1 diverged \(seeds \[0\]"):
        drive(agent, env, episodes=2)
    assert len(agent.history) == 1


def test_episodes_of_any_length_compile_nothing_and_the_buffers_grow():
    agent, env = small(), SafePendulumEnv()
    drive(agent, env, episodes=2)
    drive(agent, env, steps=7)
    with CompileClock() as clock:
        drive(agent, env, steps=5)
        agent.act(np.asarray([1.0, 0.0, 0.0]))
    assert clock.programs == 0
    before = np.asarray(agent.state.data.obs[0, :36])
    for episode in range(7):
        drive(agent, env, steps=12 - episode)
    assert agent.state.data.use.shape[1] == 2 * 8 * 12
    np.testing.assert_array_equal(agent.state.data.obs[0, :36], before)
    assert int(agent.state.data.filled[0]) == agent.num_transitions == 12 + 12 + 7 + 5 + sum(12 - e for e in range(7))


def test_unfinished_episodes_are_kept_by_a_reset_and_steps_can_be_left_out():
    agent = small()
    move = Transition([1.0, 0.0, 0.0], [0.5], -1.0, [1.0], [1.0, 0.0, 0.0])
    agent.observe(move, use=False)
    agent.observe(move)
    agent.reset()
    assert (agent.history[0].steps, agent.history[0].unsafe_pct) == (2, 100.0)
    assert np.asarray(agent.state.data.use[0, :3]).tolist() == [False, True, False]
    agent.reset()
    assert agent.episode == 1


@pytest.mark.parametrize("kind", [pytest.param("discrete", marks=pytest.mark.long), "multi-discrete"])
def test_actions_of_every_kind_reach_the_environment(kind):
    seen = []

    class Env(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
        action_space = {
            "discrete": gymnasium.spaces.Discrete(4),
            "multi-discrete": gymnasium.spaces.MultiDiscrete([3, 2], start=[-1, 5]),
        }[kind]

        def reset(self, *, seed=None, options=None):
            return np.zeros(2), {}

        def step(self, action):
            assert self.action_space.contains(action)
            seen.append(action)
            return np.full(2, float(len(seen) % 5)), 1.0, len(seen) % 5 == 0, False, {}

    agent = small(Env(), task=make_task(ACTIONS[kind]))
    episodes = agent.learn(2)
    assert [e.steps for e in episodes] == [5, 5]
    assert episodes[0].unsafe_pct == 80.0, "without a cost in info, the task's function says"


def test_what_does_not_fit_is_told():
    with pytest.raises(GussError, match="Did you mean 'safe-pendulum'"):
        Agent("safe-pendulun")
    with pytest.raises(GussError, match="the environment CartPole-v1 does not report a cost"):
        Agent(gymnasium.make("CartPole-v1"))
    with pytest.raises(GussError, match=r"observations of shape \(3,\), the environment's space .* has shape \(4,\)"):
        Agent(gymnasium.make("CartPole-v1"), task=TASK)
    with pytest.raises(GussError, match="has the actions ContinuousActions"):
        Agent(SafePendulumEnv(), task=TASK.replace(actions=ContinuousActions((-1.0,), (1.0,)), fallback=np.zeros(1)))
    with pytest.raises(GussError, match="got int"):
        Agent(3)
    with pytest.raises(GussError, match="so the Agent cannot step it"):
        small().learn(1)
    with pytest.raises(GussError, match="no transitions to fit a model to"):
        small(initial_episodes=0).act(np.zeros(3))
    with pytest.raises(GussError, match="learn at least 1 episode"):
        small(pendulum_task()).learn(0)


def test_a_saved_agent_goes_on_as_if_it_had_never_stopped(tmp_path):
    agent, env = small(), SafePendulumEnv()
    drive(agent, env)
    obs = np.random.default_rng(0).normal(size=(100, 3))  # more than the first buffers hold
    agent.remember(Transition(obs, obs[:, :1].clip(-2, 2), None, None, obs))
    agent.fit()
    agent.save(tmp_path / "agent.ckpt")
    loaded = Agent.load(tmp_path / "agent.ckpt", TASK)
    assert loaded.history == agent.history
    assert loaded.settings == agent.settings
    for obs in ([1.0, 0.0, 0.0], [0.0, 1.0, -2.0]):
        np.testing.assert_array_equal(loaded.act(obs), agent.act(obs))
    drive(agent, env)
    drive(loaded, env)
    assert loaded.history[-1].mean_reward == agent.history[-1].mean_reward
    with pytest.raises(
        GussError,
        match=r"stored observation size 3 and actions .* and constraints unsafe_angle; task 'problem' has obs",
    ):
        Agent.load(tmp_path / "agent.ckpt", make_task(ACTIONS["continuous"]))
    (tmp_path / "agent.ckpt").write_bytes(b"something else")
    with pytest.raises(GussError, match="is not a checkpoint of guss"):
        Agent.load(tmp_path / "agent.ckpt", TASK)


def test_learning_shows_its_progress_if_asked_or_on_a_terminal(capsys):
    shown = Agent("safe-pendulum", **SMALL | {"model": "oracle", "initial_episodes": 1, "budget": 5})
    shown.learn(1)
    assert capsys.readouterr().err == "", "no terminal, nothing asked for"
    shown.learn(1, progress=True)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("episode 1/1 (plan): reward")
    assert shown.history[-1].episode_return == pytest.approx(200 * shown.history[-1].mean_reward)
    assert shown.history[-1].unsafe_by_cost == {"unsafe_angle": shown.history[-1].unsafe_pct}
