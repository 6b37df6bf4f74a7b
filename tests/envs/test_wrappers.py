"""Wrappers: what acts when, what is observed, what is told; and that wrapped environments are proper ones."""

import copy
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

import guss
from guss.collect.host_envs import cost_vector
from guss.envs.pendulum import SafePendulumEnv, pendulum_task
from guss.envs.wrappers import ActionDelay, ActionRateLimit, FiveValues, ObservationHistory, RedButton
from guss.errors import GussError


class Recorder(gymnasium.Env):
    """Observes the step and the sum of what acted; writes down what acted; reuses its observation's array."""

    def __init__(self, actions=None, observations=None):
        self.observation_space = observations or Box(-1000.0, 1000.0, (2,), np.float32)
        self.action_space = actions or Box(np.float32([-1, 0]), np.float32([1, 2]))
        self.obs = np.zeros(2, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.acted = []
        self.obs[:] = 0.0
        return self.obs, {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.acted.append(action)
        self.obs += np.asarray([1.0, np.sum(action)], np.float32)
        return self.obs, 1.0, False, False, {"cost": 0.25}


def vectors(low, high):
    pair = st.tuples(*(st.floats(a, b, width=32) for a, b in zip(low, high, strict=True)))
    return st.lists(pair.map(np.float32), min_size=1, max_size=12)


ACTIONS = vectors((-1.0, 0.0), (1.0, 2.0))


# ----------------------------------------------------------------------------------------------------- all of them


class Six:
    """As Safety-Gymnasium's: six values, and no gymnasium.Env."""

    def __init__(self):
        self.env = SafePendulumEnv()
        self.observation_space, self.action_space = self.env.observation_space, self.env.action_space
        self.colour = "blue"

    def reset(self, seed=None, options=None):
        return self.env.reset(seed=seed, options=options)

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, np.float64(info["cost"] + 1.0), terminated, truncated, {"told": True}


WRAPPED = {
    "history": lambda: ObservationHistory(SafePendulumEnv(), 4),
    "delay": lambda: ActionDelay(SafePendulumEnv(), 2),
    "delay, hidden": lambda: ActionDelay(SafePendulumEnv(), 2, show=False),
    "delay, discrete": lambda: ActionDelay(gymnasium.make("CartPole-v1").unwrapped, 3),
    "rate": lambda: ActionRateLimit(SafePendulumEnv(), 0.3),
    "red button": lambda: RedButton(SafePendulumEnv(), lambda obs, action, next_obs: abs(next_obs[2]) > 1.5),
    "five values": lambda: FiveValues(Six()),
    "all": lambda: ObservationHistory(
        ActionRateLimit(RedButton(FiveValues(Six()), lambda obs, action, next_obs: False), [0.5]), 2
    ),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_a_wrapped_environment_is_a_proper_one(name):
    with warnings.catch_warnings():
        for advice in ("is different from the unwrapped version", "recommend using a symmetric", "probably too"):
            warnings.filterwarnings("ignore", f".*{advice}")  # on the environments inside
        check_env(WRAPPED[name](), skip_render_check=True)


def walk(env, seed, steps=30):
    env.action_space.seed(seed)
    seen = [env.reset(seed=seed)[0]]
    for _ in range(steps):
        obs, reward, terminated, _, _ = env.step(env.action_space.sample())
        seen.append(np.append(obs, reward))
        if terminated:
            break
    return np.concatenate(seen)


@pytest.mark.parametrize("name", WRAPPED)
def test_the_same_seed_gives_the_same_episode_also_after_another_one(name):
    env = WRAPPED[name]()
    first = walk(env, 3)
    walk(env, 4, steps=7)  # breaks off in the middle
    np.testing.assert_array_equal(walk(env, 3), first)
    np.testing.assert_array_equal(walk(WRAPPED[name](), 3), first)
    np.testing.assert_array_equal(walk(copy.deepcopy(env), 3), first)


@pytest.mark.parametrize("wrap", [lambda e: ActionDelay(e, 2), lambda e: ActionRateLimit(e, 0.3), ObservationHistory])
def test_registered_environments_keep_a_spec_that_makes_them_again(wrap):
    env = wrap(gymnasium.make("guss/SafePendulum-v0", disable_env_checker=True))
    again = gymnasium.make(env.spec, disable_env_checker=True)
    assert again.observation_space == env.observation_space
    np.testing.assert_array_equal(walk(again, 1), walk(env, 1))


# ------------------------------------------------------------------------------------------------------- histories


@given(ACTIONS, st.integers(1, 5))
def test_a_history_is_the_last_observations_oldest_first(actions, steps):
    env, plain = ObservationHistory(Recorder(), steps), Recorder()
    seen = [plain.reset()[0].copy()] * steps
    np.testing.assert_array_equal(env.reset()[0], np.concatenate(seen))
    for action in actions:
        seen.append(plain.step(action)[0].copy())
        obs = env.step(action)[0]
        np.testing.assert_array_equal(obs, np.concatenate(seen[-steps:]))
        assert env.observation_space.contains(obs)


# ------------------------------------------------------------------------------------------------- delays and rates


@given(ACTIONS, st.integers(1, 4), st.booleans())
def test_a_delayed_action_acts_that_many_steps_later_and_is_shown_until_then(actions, steps, show):
    env = ActionDelay(Recorder(), steps, show)
    obs, _ = env.reset()
    line = [np.zeros(2, np.float32)] * steps + actions
    for t, action in enumerate(actions):
        np.testing.assert_array_equal(obs[2:], np.concatenate(line[t : t + steps]) if show else [])
        given_action = action.copy()
        obs, _, _, _, info = env.step(given_action)
        given_action[:] = -1.0  # whoever acts may reuse the array
        np.testing.assert_array_equal(info["applied_action"], line[t])
        assert env.observation_space.contains(obs)
    np.testing.assert_array_equal(env.unwrapped.acted, line[: len(actions)])
    assert obs.shape == ((2 + 2 * steps,) if show else (2,))


def test_what_acts_before_the_first_action():
    low = Box(np.float32([0.5, -2]), np.float32([1, -1]))
    cases = [(low, None, [0.5, -1.0]), (low, [0.75, -2.0], [0.75, -2.0]), (Discrete(3, start=5), None, 5)]
    cases += [(Discrete(3, start=5), 6, 6), (MultiDiscrete([3, 4]), None, [0, 0])]
    for space, idle, expected in cases:
        env = ActionDelay(Recorder(space), 2, idle=idle)
        obs, _ = env.reset()
        env.step(space.sample())
        np.testing.assert_array_equal(env.unwrapped.acted[0], expected)
        np.testing.assert_array_equal(obs[2:], np.tile(np.float32(expected), 2))


def test_discrete_actions_are_shown_as_their_numbers():
    env = ActionDelay(Recorder(Discrete(3, start=5)), 2)
    env.reset()
    env.step(6)
    np.testing.assert_array_equal(env.step(7)[0][2:], [6, 7])
    np.testing.assert_array_equal(env.observation_space.low[2:], [5, 5])
    np.testing.assert_array_equal(env.observation_space.high[2:], [7, 7])


@given(ACTIONS, st.floats(0.01, 3.0), st.booleans())
def test_limited_actions_change_by_no_more_and_go_as_near_as_they_may(actions, per_step, show):
    env = ActionRateLimit(Recorder(), per_step, show)
    obs, _ = env.reset()
    last = np.zeros(2, np.float32)
    for action in actions:
        np.testing.assert_array_equal(obs[2:], last if show else [])
        obs, _, _, _, info = env.step(action)
        now = info["applied_action"]
        assert (abs(now - last) <= per_step + 1e-6).all()
        arrived, short = abs(now - action) < 1e-6, abs(action - last) > per_step
        assert (arrived | short).all()
        assert (abs(action - now) <= abs(action - last) + 1e-6).all()
        np.testing.assert_array_equal(env.unwrapped.acted[-1], now)
        assert env.observation_space.contains(obs)
        last = now


def test_a_rate_for_each_dimension_and_actions_out_of_bounds():
    env = ActionRateLimit(Recorder(), [0.1, 5.0])
    env.reset()
    np.testing.assert_allclose(env.step([1.0, 9.0])[4]["applied_action"], [0.1, 2.0])


# ------------------------------------------------------------------------------------------------------ red buttons


def after(count):
    return lambda obs, action, next_obs: next_obs[0] >= count


def test_a_red_button_ends_the_episode_and_says_so():
    env = RedButton(Recorder(), after(2))
    assert env.reset()[1]["costs"] == {"red_button": 0.0}
    *_, terminated, truncated, info = env.step(env.action_space.sample())
    assert (terminated, truncated) == (False, False)
    assert info == {"cost": 0.25, "costs": {"cost": 0.25, "red_button": 0.0}}
    *_, terminated, _, info = env.step(env.action_space.sample())
    assert terminated is True
    assert info == {"cost": 0.25, "costs": {"cost": 0.25, "red_button": 1.0}, "hard_stop": "red_button"}


def test_a_limit_sees_both_observations_though_the_array_is_reused():
    seen = []
    env = RedButton(Recorder(), lambda *step: seen.append(copy.deepcopy(step)) or False)
    env.reset()
    for _ in range(3):
        env.step(np.float32([0.5, 1.0]))
    assert [(obs[0], next_obs[0]) for obs, _, next_obs in seen] == [(0, 1), (1, 2), (2, 3)]


def test_several_red_buttons_are_told_apart():
    inner = RedButton(SafePendulumEnv(), lambda obs, action, next_obs: next_obs[2] > 0, "fast")
    env = RedButton(ActionDelay(inner), lambda obs, action, next_obs: next_obs[2] > 0, "also_fast")
    assert env.hard_limits == ("fast", "also_fast")
    assert gymnasium.wrappers.TimeLimit(env, 9).get_wrapper_attr("hard_limits") == ("fast", "also_fast")
    env.reset(options={"state": (0.5, 1.0)})
    *_, terminated, _, info = env.step(np.zeros(1))
    assert terminated
    assert info["hard_stop"] == "fast"
    assert info["costs"] == {"unsafe_angle": info["cost"], "fast": 1.0, "also_fast": 1.0}
    with pytest.raises(GussError, match="a wrapper inside already has a hard limit 'fast'"):
        RedButton(inner, after(2), "fast")


def test_an_agent_is_told_of_a_red_button_in_its_task():
    def fast(obs, action, next_obs):
        return abs(next_obs[2]) > 7.9

    env = RedButton(SafePendulumEnv(), fast, "fast")
    task = pendulum_task().replace(step=None, reset=None, episode_length=20)
    hard = guss.Constraint("fast", lambda obs, action, next_obs: abs(next_obs[2]) > 7.9, hard=True)
    task = task.replace(constraints=(*task.constraints, hard))
    env.reset(options={"state": (0.5, 1.0)})
    info = env.step(np.zeros(1))[4]
    np.testing.assert_array_equal(cost_vector(task, info), [info["cost"], 0.0])
    assert guss.Agent(env, task=task, method="random").learn(1)[0].steps <= 20


@pytest.mark.parametrize("verdict", [np.asarray([True, False]), np.asarray([True]), 1.0, 0, None, "yes"])
def test_a_limit_that_is_no_truth_value_is_told(verdict):
    env = RedButton(Recorder(), lambda obs, action, next_obs: verdict)
    env.reset()
    with pytest.raises(GussError, match=r"limit 'red_button' of RedButton must return True or False, got .*\.any\(\)"):
        env.step(env.action_space.sample())


@pytest.mark.parametrize("verdict", [True, np.bool_(True), np.asarray(True)])
def test_what_a_truth_value_is(verdict):
    env = RedButton(Recorder(), lambda obs, action, next_obs: verdict)
    env.reset()
    assert env.step(env.action_space.sample())[2] is True


# ------------------------------------------------------------------------------------------------------ six values


def test_six_values_become_five_with_the_cost_among_info():
    env = FiveValues(Six())
    env.reset(seed=0)
    obs, reward, terminated, truncated, info = env.step(np.zeros(1))
    assert obs.shape == (3,)
    assert (terminated, truncated) == (False, False)
    assert isinstance(reward, float)
    assert type(info["cost"]) is float
    assert info["cost"] in (1.0, 2.0)
    assert info["told"]
    assert env.colour == "blue"
    assert env.render() is None
    env.close()
    with pytest.raises(AttributeError):
        env.nothing_of_that_name  # noqa: B018


def test_an_agent_takes_an_environment_with_six_values():
    task = pendulum_task().replace(step=None, reset=None, episode_length=5)
    agent = guss.Agent(FiveValues(Six()), task=task, method="random")
    assert agent.learn(1)[0].unsafe_pct == 100.0


@given(st.lists(st.floats(-2, 2, width=32), min_size=1, max_size=10))
def test_five_values_pass_through(actions):
    env, plain = FiveValues(SafePendulumEnv()), SafePendulumEnv()
    np.testing.assert_array_equal(env.reset(seed=1)[0], plain.reset(seed=1)[0])
    for action in actions:
        ours, theirs = env.step(np.float32([action])), plain.step(np.float32([action]))
        np.testing.assert_array_equal(ours[0], theirs[0])
        assert ours[1:] == theirs[1:]


class Odd(Six):
    def reset(self, seed=None):
        return np.zeros(3)

    def step(self, action):
        return np.zeros(3), 0.0, False, {}


def test_other_numbers_of_values_are_told():
    env = FiveValues(Odd())
    with pytest.raises(GussError, match=r"reset of Odd must return a pair \(observation, info\), .*got ndarray"):
        env.reset()
    with pytest.raises(GussError, match=r"step of Odd must return .*got 4 values; Gym before"):
        env.step([0.0])
    with pytest.raises(GussError, match="dict is not an environment: it has no observation_space and no action_space"):
        FiveValues({})


# ---------------------------------------------------------------------------------------------------------- errors


PICTURES = Box(0, 255, (4, 4, 3), np.uint8)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ObservationHistory(Recorder(observations=PICTURES)), "ObservationHistory needs.*FlattenObservation"),
        (lambda: ObservationHistory(Recorder(observations=Dict(a=Discrete(2)))), "vectors.*got Dict.*Flatten"),
        (lambda: ObservationHistory(Recorder(), 0), "steps must be an integer of at least 1, got 0"),
        (lambda: ActionDelay(Recorder(), -1), "ActionDelay: steps must be .* got -1"),
        (lambda: ActionDelay(Recorder(observations=PICTURES)), r"ActionDelay\(show=True\) needs.*FlattenObservation"),
        (lambda: ActionDelay(Recorder(Dict(a=Discrete(2)))), "ActionDelay needs actions that are.*got Dict"),
        (lambda: ActionDelay(Recorder(), idle=[5.0, 0.0]), r"idle must be an action of Box.*got \[5.0, 0.0\]"),
        (lambda: ActionDelay(Recorder(), idle=0.0), r"idle must be finite and of shape \(2,\), got 0.0"),
        (lambda: ActionRateLimit(Recorder(Discrete(2)), 1), r"continuous actions \(a Box\), got Discrete"),
        (lambda: ActionRateLimit(Recorder(), 0.0), "per_step must be positive.*got 0.0"),
        (lambda: ActionRateLimit(Recorder(), [1.0, 1.0, 1.0]), r"one for each of the \(2,\)"),
        (lambda: ActionRateLimit(Recorder(), np.nan), "per_step must be positive.*got nan"),
    ],
)
def test_what_does_not_fit_is_told_when_it_is_wrapped(make, words):
    with pytest.raises(GussError, match=words):
        make()


@pytest.mark.parametrize("action", [[0.0], [np.nan, 0.0], [[0.0, 0.0]]])
def test_an_action_that_is_none_is_told_before_it_is_kept(action):
    for env in (ActionDelay(Recorder()), ActionRateLimit(Recorder(), 1.0)):
        env.reset()
        with pytest.raises(GussError, match=r"the action must be finite and of shape \(2,\)"):
            env.step(action)
        np.testing.assert_array_equal(env.step([0.5, 0.5])[0][2:], [0.5, 0.5])


def test_a_cost_that_has_the_red_buttons_name_is_told():
    env = RedButton(SafePendulumEnv(), lambda obs, action, next_obs: False, "unsafe_angle")
    with pytest.raises(GussError, match="the environment already has a cost 'unsafe_angle'"):
        env.reset()
