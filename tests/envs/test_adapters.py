"""Other people's environments: spaces, six values, costs, names; and what is said where one cannot be used."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from guss.envs import ENVS, EnvSpec
from guss.envs.adapters import Adapted, actions_of, check_spaces, describe, observations_of
from guss.envs.lookup import as_maker, find_env, spec_of
from guss.envs.pendulum import SafePendulumEnv, pendulum_task
from guss.errors import GussError
from guss.task import Task
from guss.types import ContinuousActions, DiscreteActions


class Room:
    """Duck-typed, with anything for spaces and step."""

    def __init__(self, observed=None, acted=None, step=None, info=None, length=20):
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32) if observed is None else observed
        self.action_space = spaces.Discrete(2) if acted is None else acted
        self.told, self.made, self.info = [], step, {"cost": 1.0} if info is None else info
        self.spec = type("Spec", (), {"max_episode_steps": length})()

    def reset(self, *, seed=None, options=None):
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        self.told.append(action)
        obs = self.observation_space.sample()
        return (obs, 0.5, False, False, dict(self.info)) if self.made is None else self.made(obs)


NESTED = spaces.Dict(
    {
        "place": spaces.Box(-2, 2, (2,), np.float32),
        "gear": spaces.Discrete(3),
        "pair": spaces.Tuple([spaces.MultiBinary(2)]),
    }
)


@pytest.mark.parametrize(
    ("space", "size"),
    [
        (spaces.Box(-1, 1, (3,), np.float32), 3),
        (spaces.Box(-1, 1, (2, 3), np.float64), 6),
        (spaces.Discrete(4), 4),
        (spaces.MultiDiscrete([2, 3]), 5),
        (NESTED, 2 + 3 + 2),
    ],
)
def test_observations_are_vectors(space, size):
    env = Adapted(Room(observed=space))
    assert env.observations.size == size
    for seed in range(3):
        obs, _ = env.reset(seed)
        assert obs.shape == (size,)
        assert obs.dtype == np.float32
        sampled = env.step(np.asarray(1, np.int32))[0]
        assert sampled.shape == (size,)
    low, high = env.observations.low, env.observations.high
    assert all(a <= x <= b for a, x, b in zip(low, obs, high, strict=True))


def test_a_number_without_room_to_move_is_no_hindrance():
    found = observations_of(spaces.Box(np.asarray([0.0, 3.0]), np.asarray([1.0, 3.0]), dtype=np.float64))
    assert found.low == (0.0, -np.inf)


ACTIONS = [
    (spaces.Discrete(3, start=-1), DiscreteActions((3,), (-1,), scalar=True), -1, -1),
    (spaces.MultiDiscrete([2, 4]), DiscreteActions((2, 4)), [1, 3], [1, 3]),
    (spaces.MultiBinary(3), DiscreteActions((2, 2, 2)), [1, 0, 1], [1, 0, 1]),
    (spaces.Box(-1, 2, (2,), np.float32), ContinuousActions((-1.0, -1.0), (2.0, 2.0)), [0.5, 1], [0.5, 1]),
    (spaces.Box(0, 1, (2, 2), np.float64), ContinuousActions((0.0,) * 4, (1.0,) * 4), [0, 1, 0, 1], [[0, 1], [0, 1]]),
]


@pytest.mark.parametrize(("space", "known", "action", "given"), ACTIONS, ids=lambda x: str(x)[:20])
def test_actions_reach_the_environment_as_its_space_wants_them(space, known, action, given):
    assert actions_of(space) == known
    room = Room(acted=space)
    Adapted(room).step(np.asarray(action, known.dtype))
    np.testing.assert_array_equal(room.told[-1], given)
    assert space.contains(room.told[-1])


@pytest.mark.parametrize(
    ("space", "told"),
    [
        (spaces.Text(5), "cannot be flattened to a vector.*TransformObservation"),
        (spaces.Sequence(spaces.Discrete(2)), "cannot be flattened to a vector"),
        (spaces.Dict({"word": spaces.Text(3)}), "cannot be flattened to a vector"),
        (spaces.Box(0, 255, (64, 64, 3), np.uint8), "12288 numbers.*not of images.*TransformObservation"),
    ],
    ids=["text", "sequence", "nested", "picture"],
)
def test_observations_that_cannot_be_used_are_told_how_to_go_on(space, told):
    with pytest.raises(GussError, match=told):
        observations_of(space)


def test_actions_that_cannot_be_used_are_told_how_to_go_on():
    with pytest.raises(GussError, match=r"not bounded in dimension 1.*TransformAction"):
        actions_of(spaces.Box(np.asarray([-1.0, -np.inf]), np.asarray([1.0, np.inf]), dtype=np.float64))
    for space in (spaces.Dict({"a": spaces.Discrete(2)}), spaces.Box(0, 3, (2,), np.int32), spaces.Text(3)):
        with pytest.raises(GussError, match="cannot plan in the action space"):
            actions_of(space)


def test_unbounded_observations_are_fine():
    task = describe(Adapted(Room(observed=spaces.Box(-np.inf, np.inf, (2,), np.float32))), "room")
    assert task.observations.low == (-np.inf, -np.inf)


def test_six_values_become_five():
    env = Adapted(Room(step=lambda obs: (obs, 1.0, np.asarray([0.0, 2.0])[1], True, False, {"more": 3})))
    obs, reward, terminated, truncated, info = env.step(np.asarray(0))
    assert (reward, terminated, truncated, info) == (1.0, True, False, {"more": 3, "cost": 2.0})
    assert obs.shape == (2,)


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (lambda obs: (obs, 0.0, False, {}), r"step of Room must return.*got 4 values; Gym before"),
        (lambda obs: None, "got NoneType"),
        (lambda obs: (obs, np.zeros(2), False, False, {}), "reward of Room must be one number"),
        (lambda obs: (obs[:1], 0.0, False, False, {}), "an observation of 1 numbers, its space .* has 2"),
        (lambda obs: ("hot", 0.0, False, False, {}), "not in its space.*'hot'"),
    ],
)
def test_steps_that_make_no_sense_are_told(step, told):
    with pytest.raises(GussError, match=told):
        Adapted(Room(step=step)).step(np.asarray(0))


def test_what_is_no_environment_is_told():
    with pytest.raises(GussError, match="int is not an environment: it has no observation_space and no action_space"):
        Adapted(3)
    env = Adapted(Room())
    env.env.reset = lambda seed=None: np.zeros(2)
    with pytest.raises(GussError, match=r"reset of Room must return a pair \(observation, info\).*got ndarray"):
        env.reset(0)


# ----------------------------------------------------------------------------------------------------------- the Task


def test_a_task_of_what_an_environment_says():
    task = describe(Adapted(Room(info={"costs": {"hot": 0.0, "loud": 1.0}, "cost": 1.0})), "room")
    assert [c.name for c in task.constraints] == ["hot", "loud"]
    assert task.episode_length == 20
    assert task.unknown == ("reward", "cost of hot", "cost of loud", "end of an episode", "behaviour")


def test_a_missing_cost_is_told_or_waived():
    with pytest.raises(GussError, match=r"does not report a cost: `info` has \['heat'\].*--without-cost"):
        describe(Adapted(Room(info={"heat": 1})), "room")
    assert describe(Adapted(Room(info={"heat": 1})), "room", without_cost=True).constraints == ()


def test_a_missing_length_is_told_or_given():
    with pytest.raises(GussError, match="has no time limit, so its episode length is unknown: wrap it in gymnasium"):
        describe(Adapted(Room(length=None)), "room")
    assert describe(Adapted(Room(length=None)), "room", episode_length=7).episode_length == 7
    limited = gymnasium.wrappers.TimeLimit(SafePendulumEnv(), 33)
    assert Adapted(limited).episode_length == 33


# ---------------------------------------------------------------------------------------------------------- the names


def test_names_are_ours_gymnasiums_or_the_users(tmp_path, monkeypatch):
    assert find_env("safe-pendulum") is ENVS["safe-pendulum"].item
    assert find_env("guss/SafePendulum-v0") is ENVS["safe-pendulum"].item
    cart = find_env("CartPole-v1", without_cost=True)
    assert cart.make_task().episode_length == 500
    assert as_maker(cart)().reset(0)[0].shape == (4,)
    (tmp_path / "mine_here.py").write_text(
        "from guss.envs.pendulum import SafePendulumEnv, pendulum_task\n"
        "def make_env():\n    return SafePendulumEnv(), pendulum_task().replace(step=None, reset=None)\n"
        "task = pendulum_task()\n"
        "env = SafePendulumEnv()\n"
        "number = 3\n"
        "def wrong():\n    return SafePendulumEnv(), 3\n"
    )
    monkeypatch.chdir(tmp_path)
    pair = find_env("mine_here.py:make_env")
    assert pair.make_task().unknown == ()
    assert as_maker(pair)().observations.size == 3
    assert find_env("mine_here.py:task").make_task().name == "safe-pendulum"
    for name, told in {
        "mine_here.py:env": "pass a function that creates one, since every seed needs its own",
        "mine_here.py:number": "must be a function that returns an environment, or a guss.Task, got int",
        "mine_here.py:wrong": "or a guss.Task, got int",
        "mine_here.py:make": "Did you mean 'make_env'",
        "safe-pendulm": "Did you mean 'safe-pendulum'",
        "CartPole-v7": "Did you mean 'CartPole-v",
    }.items():
        with pytest.raises(GussError, match=told):
            find_env(name)
    with pytest.raises(GussError, match="defines the episode length and the cost"):
        find_env("safe-pendulum", episode_length=3)


def test_a_task_of_other_spaces_is_told():
    other = pendulum_task().replace(actions=ContinuousActions((-1.0,), (1.0,)), step=None, fallback=None)
    with pytest.raises(GussError, match=r"has the actions .*high=\(1\.0,\).*the environment has Box"):
        spec_of(lambda: (SafePendulumEnv(), other), "mine")
    assert isinstance(spec_of(pendulum_task(), "mine"), EnvSpec)
    assert isinstance(spec_of(pendulum_task, "mine").make_task(), Task)


def test_dimensions_are_named_by_the_keys_of_a_dict_or_by_the_environment():
    part = spaces.Box(-1.0, 1.0, (2,), np.float32)
    space = spaces.Dict({"gripper": spaces.Dict({"force": spaces.Box(-1.0, 1.0, (1,), np.float32)}), "place": part})
    assert observations_of(space).names == ("gripper", "place 0", "place 1")
    assert observations_of(part).names is None
    env = gymnasium.make("Pendulum-v1")
    env.unwrapped.observation_names, env.unwrapped.action_names = ("cos", "sin", "speed"), ["torque"]
    adapted = Adapted(env)
    assert adapted.observations.labels == ("cos", "sin", "speed")
    assert adapted.actions.labels == ("torque",)
    fewer = gymnasium.wrappers.TransformObservation(env, lambda obs: obs[:2], spaces.Box(-1.0, 1.0, (2,), np.float32))
    assert Adapted(fewer).observations.names is None, "a wrapper changed what the names describe"


def test_a_discrete_action_that_is_an_array_suggests_a_number():
    cart = Adapted(gymnasium.make("CartPole-v1"))
    task = describe(cart, "cart", without_cost=True)
    check_spaces(cart, task)
    told = r"its action is a single number, so write DiscreteActions\(\(2,\), start=\(0,\), scalar=True\)"
    with pytest.raises(GussError, match=told):
        check_spaces(cart, task.replace(actions=DiscreteActions((2,)), fallback=None))
