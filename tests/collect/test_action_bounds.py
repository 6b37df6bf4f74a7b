"""Actions lie within their bounds, whatever these are and whoever makes the actions; what is outside is refused."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from helpers.problems import ACTIONS, make_task
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from guss.agent import Agent
from guss.collect.datasets import Dataset, logged
from guss.collect.exploration import explore
from guss.collect.inputs import InputChecker
from guss.envs.adapters import Adapted
from guss.errors import GussError
from guss.methods.nets import Policy
from guss.methods.settings import AgentSettings
from guss.planners.distributions import centre, draw, perturb, refit, uniform
from guss.runs.fit import log_of_files, task_of
from guss.types import ContinuousActions, Transition

AWKWARD = 97.34602747664127  # no float32, and the nearest float32 is above it
sizes = st.floats(1e-9, 1e9) | st.sampled_from([0.0, 0.1, 1 / 3, AWKWARD, 16777217.0])
numbers = st.builds(lambda size, sign: sign * size, sizes, st.sampled_from([-1.0, 1.0]))


def made_by_everyone(actions, key):
    """Actions [N, A] in every way that planners, policies and exploration make them."""
    keys = jax.random.split(key, 5)
    dist = uniform(actions, 8, 1.0)
    normal = jax.random.normal(keys[0], (20, 8, len(actions.low)))
    elites = perturb(dist, actions, 3.0 * normal)
    fitted = refit(dist, actions, elites, jnp.ones(20), 0.1)
    outputs = jnp.linspace(-12.0, 12.0, 50).reshape(25, 2)
    policy = Policy.make(keys[1], 2, actions, (4,), 0.0)
    yield actions.sample(keys[2], (50,))
    yield jax.vmap(actions.from_outputs)(outputs)
    yield elites.reshape(-1, len(actions.low))
    yield draw(fitted, actions, keys[3], 10).reshape(-1, len(actions.low))
    yield centre(fitted, actions)
    yield jax.vmap(policy.executed)(2.0 * outputs)
    for how in ("smooth", "iid"):
        yield explore(actions, keys[4], 30, how)
    yield jnp.asarray([actions.neutral()], jnp.float32)


class Still(gymnasium.Env):
    """Takes what is in its action space, and notes it."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, space):
        self.action_space, self.taken = space, []

    def step(self, action):
        self.taken.append(action)
        return np.zeros(2, np.float32), 0.0, False, False, {"cost": 0.0}


@settings(max_examples=12)
@given(ends=st.lists(st.tuples(numbers, numbers), min_size=2, max_size=2), seed=st.integers(0, 2**31))
def test_actions_of_every_maker_lie_within_any_bounds(ends, seed):
    low, high = (tuple(pick(pair) for pair in ends) for pick in (min, max))
    steps = [np.spacing(np.float32(max(abs(a), abs(b)))) for a, b in zip(low, high, strict=True)]
    assume(all(b - a > 4 * step for a, b, step in zip(low, high, steps, strict=True)))
    actions = ContinuousActions(low, high)
    checker = InputChecker(make_task(actions))
    kinds = (np.float32, np.float64)
    boxes = [spaces.Box(np.asarray(low, kind), np.asarray(high, kind), dtype=kind) for kind in kinds]
    envs = [Adapted(Still(box)) for box in boxes]
    for made in made_by_everyone(actions, jax.random.key(seed)):
        array = np.asarray(made)
        assert array.dtype == np.float32
        assert ((array.astype(float) >= low) & (array.astype(float) <= high)).all()
        np.testing.assert_array_equal(checker.action(array[0], "a step"), array[0])
        for env in envs:
            env.step(array[-1])
            assert env.env.action_space.contains(env.env.taken[-1])
    rows = checker.rows(Transition(np.zeros((len(array), 2)), array, None, None, np.zeros((len(array), 2))))
    np.testing.assert_array_equal(rows.action, array)


@given(numbers, numbers, st.floats(0.001, 1e3))
def test_bounds_themselves_are_actions_and_what_is_beyond_them_is_refused(one, other, far):
    low, high = min(one, other), max(one, other)
    assume(high - low > 1e-5 * max(abs(low), abs(high)))
    checker = InputChecker(make_task(ContinuousActions((low,), (high,))))
    for bound in (low, high):
        action = checker.action([bound], "a step")
        assert low <= float(action[0]) <= high
        assert abs(float(action[0]) - bound) <= 2 * np.spacing(np.float32(max(abs(low), abs(high))))
    for beyond in (high + far * (high - low), low - far * (high - low)):
        with pytest.raises(GussError, match=r"the action of a step must be between \["):
            checker.action([beyond], "a step")


@pytest.mark.parametrize("method", ["guss", pytest.param("icem", marks=pytest.mark.long)])
def test_an_agent_takes_back_its_own_actions(method):
    task = make_task(ContinuousActions((-AWKWARD, 1e-9), (AWKWARD, 3e-9)))
    agent = Agent(task, method=method, model="oracle", horizon=3, budget=60, initial_episodes=0)
    obs = np.full(2, 1e4, np.float32)  # far out, where policies saturate
    for _ in range(20):
        action = agent.act(obs)
        assert (np.abs(action[0].astype(float)) <= AWKWARD) & (1e-9 <= float(action[1]) <= 3e-9)
        agent.observe(Transition(obs, action, None, None, obs))
    assert agent.episode == 4


@pytest.mark.parametrize("scale", [1e-9, 1.0, AWKWARD, 1e9])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_bounds_found_in_data_fit_these_data(scale, kind):
    rng = np.random.default_rng(0)
    action = (scale * rng.uniform(-1, 1, (30, 3))).astype(kind)
    action[:, 1] = scale * 1.1  # never changes
    action[:, 2] = 0.0
    obs, ends = rng.normal(size=(30, 2)), np.arange(30) % 10 == 9
    data = Dataset(logged(obs, action, obs, end=ends))
    log = log_of_files(data, task_of(data), AgentSettings(), 0)
    used = np.concatenate([each.action[0, 0] for each in log.episodes])
    np.testing.assert_allclose(used, action, rtol=2e-7)
    low, high = (np.asarray(x) for x in log.task.actions.bounds())
    assert np.ptp((used[:, 0] - low[0]) / (high[0] - low[0])) > 0.9, "models are shown all of the range"


def test_bounds_that_no_float32_can_fill_are_refused():
    for low, high in ((1e9, 1e9 + 1.0), (AWKWARD, np.nextafter(AWKWARD, 98.0)), (0.0, 1e-40), (1e-42, 2e-42)):
        with pytest.raises(GussError, match=r"dimension 0 are too close for float32.*shift or scale"):
            ContinuousActions((low,), (high,))
    for low, high in ((-3e38, 3e38), (0.0, 1e300), (2.5e38, 3e38)):
        with pytest.raises(GussError, match=r"dimension 0 must be within ±1.7e\+38"):
            ContinuousActions((low,), (high,))


def test_a_fallback_is_an_action_too():
    actions = ContinuousActions((0.0,), (AWKWARD,))
    assert float(make_task(actions, fallback=(AWKWARD,)).fallback[0]) <= AWKWARD
    with pytest.raises(GussError, match=r"the fallback action \[-1.0\] is not in ContinuousActions"):
        make_task(actions, fallback=(-1.0,))


def test_a_task_with_other_bounds_than_its_environment_is_refused():
    space = spaces.Box(-1e-9, 1e-9, (2,), np.float64)
    with pytest.raises(GussError, match="has the actions"):
        Agent(Still(space), task=make_task(ContinuousActions((-5e-9,) * 2, (5e-9,) * 2)))


def test_whole_numbers_are_not_made_by_cutting():
    checker = InputChecker(make_task(ACTIONS["discrete"]))
    for action in (1.7, 2**32 + 1, 4, -1):
        with pytest.raises(GussError, match="must be integers between 0 and 3, got"):
            checker.action(action, "a step")
