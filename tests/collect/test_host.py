"""Runs on Gymnasium environments: plans for all seeds in one call, steps by the host."""

import json

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.short_runs import resume_run, run_one

from guss.agent import Agent
from guss.collect.datasets import read_trace
from guss.collect.host import exploring, make_envs, play
from guss.collect.host_envs import cost_vector, derived_seed
from guss.collect.vector_envs import info_of
from guss.constraint import Constraint
from guss.envs import ENVS, EnvSpec
from guss.errors import GussError
from guss.models.factory import ModelSettings
from guss.models.training import FitSettings
from guss.runs.config import RunConfig
from guss.runs.store import read_lines, trace_path
from guss.runs.trainer import Trainer
from guss.task import Grid, Task
from guss.types import ContinuousActions, Observations

LENGTH = 20
ORIGIN = {"command": "test"}


class Cart(gymnasium.Env):
    """A point on a line, pushed left or right. It jumps home after step 5, and may end early or break."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, ends_beyond=np.inf, breaks_at=None, tells="cost"):
        self.ends_beyond, self.breaks_at, self.tells = ends_beyond, breaks_at, tells

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.t = self.np_random.uniform(-1, 1, 2), 0
        return self.state.astype(np.float32), {}

    def step(self, action):
        self.t += 1
        push = float(np.asarray(action).item())
        self.state = np.asarray([self.state[0] + 0.1 * self.state[1], self.state[1] + 0.3 * push])
        jumped = self.t == 5
        if jumped:
            self.state = np.zeros(2)
        if self.t == self.breaks_at:
            self.state = np.asarray([np.nan, 0.0])
        cost = float(self.state[0] > 1.0)
        info = {"cost": {"cost": cost}, "costs": {"costs": {"far": cost}}, "nothing": {}}[self.tells]
        over = bool(abs(self.state[0]) > self.ends_beyond)
        return self.state.astype(np.float32), -abs(float(self.state[0])), over, False, info | {"skip": jumped}


def cart_reward(obs, action, next_obs):
    return -jnp.abs(next_obs[0])


def cart_cost(obs, action, next_obs):
    return next_obs[0] > 1.0


def cart_descriptor(rollout):
    return rollout.next_obs[-1]


def cart_task():
    return Task(
        name="cart",
        observations=Observations(low=(-np.inf, -np.inf), high=(np.inf, np.inf)),
        actions=ContinuousActions((-1.0,), (1.0,)),
        reward=cart_reward,
        constraints=(Constraint("far", cart_cost),),
        descriptor=cart_descriptor,
        grid=Grid(low=(-2, -2), high=(2, 2), cells=(5, 5)),
        episode_length=LENGTH,
    )


def register(name, **options):
    gym_id = f"guss-tests/{name}-v0"
    gymnasium.register(gym_id, entry_point=lambda **more: Cart(**{**options, **more}), max_episode_steps=LENGTH)
    ENVS.add(name, EnvSpec(gym_id, cart_task), summary="for tests", origin=__name__)
    return gym_id


IDS = {
    "cart": register("cart"),
    "cart-ends": register("cart-ends", ends_beyond=0.6),
    "cart-breaks": register("cart-breaks", breaks_at=7),
    "cart-tells-all": register("cart-tells-all", tells="costs"),
    "cart-tells-nothing": register("cart-tells-nothing", tells="nothing"),
}


def config(**changes):
    values = {
        "env": "cart",
        "method": "s-rs",
        "seeds": (3, 4),
        "episodes": 3,
        "horizon": 3,
        "budget": 8,
        "model": "dmdn",
        "model_settings": ModelSettings(hidden=(8,)),
        "fit": FitSettings(epochs=3),
    }
    return RunConfig(**(values | changes))


def keys(seeds=2, num_envs=1):
    return jax.random.split(jax.random.key(0), (seeds, num_envs))


@pytest.mark.parametrize("num_envs", [1, 3])
def test_environments_stepped_together_do_what_single_ones_do(num_envs):
    envs = make_envs(cart_task(), ENVS["cart"].item, (3, 4), 60.0, num_envs)
    act = exploring(cart_task(), keys(2, num_envs), "smooth")
    trajectory, failures = play([(envs, act, ())], 2)
    assert failures == {}
    each = [act((), np.zeros((2 * num_envs, 2), np.float32), t) for t in range(LENGTH)]
    assert all(aux == () for _, _, aux in each)
    actions = np.stack([action for action, _, _ in each], axis=1).reshape(2, num_envs, LENGTH, 1)
    np.testing.assert_array_equal(trajectory.action, actions)
    assert trajectory.lengths.tolist() == [[LENGTH] * num_envs] * 2
    assert not trajectory.terminated.any()
    assert trajectory.truncated[..., -1].all()
    assert trajectory.done.sum() == 2 * num_envs
    for at in np.ndindex(2, num_envs):
        env = Cart()
        obs, _ = env.reset(seed=derived_seed((3, 4)[at[0]], 2 + at[1]))
        for t in range(LENGTH):
            now = jax.tree.map(lambda x, at=(*at, t): x[at], trajectory)
            np.testing.assert_array_equal(now.obs, obs)
            obs, reward, _, _, info = env.step(now.action)
            np.testing.assert_array_equal(now.next_obs, obs)
            np.testing.assert_allclose(now.reward, reward, rtol=1e-6)
            assert now.cost[0] == info["cost"]
            assert now.learnable == (not info["skip"])


@pytest.mark.parametrize("env", ["cart", "cart-tells-all", "cart-tells-nothing"])
def test_costs_are_the_environments_own_or_the_tasks(env):
    """By name, as a single number, or by the Task's functions where the environment tells none."""
    envs = make_envs(cart_task(), ENVS[env].item, (0, 1, 2), 60.0)
    trajectory, _ = play([(envs, lambda carries, obs, t: (np.ones((3, 1), np.float32), carries, ()), ())], 0)
    assert trajectory.cost.shape == (3, 1, LENGTH, 1)
    np.testing.assert_array_equal(trajectory.cost[..., 0], trajectory.next_obs[..., 0] > 1.0)
    assert trajectory.cost.any()


def test_reported_costs_are_taken_by_name():
    info = {"costs": {"far": np.asarray([0.0, 1.0]), "other": np.asarray([5.0, 5.0])}, "cost": np.asarray([9.0, 9.0])}
    assert [cost_vector(cart_task(), info_of(info, i, 2)).tolist() for i in range(2)] == [[0.0], [1.0]]
    marked = {"cost": np.asarray([0.0, 1.0]), "_cost": np.asarray([False, True])}  # the first reported none
    assert cost_vector(cart_task(), info_of(marked, 0, 2)) is None
    assert cost_vector(cart_task(), info_of(marked, 1, 2)).tolist() == [1.0]
    assert cost_vector(cart_task(), {"cost": 1.0}).tolist() == [1.0]
    assert cost_vector(cart_task(), {"costs": {"other": 1.0}}) is None


def test_what_is_skipped_is_not_learned_from(tmp_path):
    home = run_one(config(), tmp_path, ORIGIN)
    trainer = Trainer(config())
    trainer.iterate()
    data = jax.device_get(trainer.state.data)
    assert data.filled.tolist() == [LENGTH] * 2
    assert data.use[:, :LENGTH].sum(axis=1).tolist() == [LENGTH - 1] * 2
    assert not data.use[:, 4].any()  # the jump
    stored = read_trace(trace_path(home, 3, 0)).trajectory
    assert np.flatnonzero(~stored.learnable).tolist() == [4]


def test_episodes_may_end_early_each_for_itself(tmp_path):
    home = run_one(config(env="cart-ends", seeds=(0, 1, 2, 3), method="random"), tmp_path, ORIGIN)
    rows = read_lines(home / "episodes.jsonl")
    steps = {(row["seed"], row["episode"]): row["steps"] for row in rows}
    assert len(set(steps.values())) > 1
    assert min(steps.values()) < LENGTH
    for row in rows:
        with np.load(trace_path(home, row["seed"], row["episode"])) as file:
            trace = dict(file)
        count = row["steps"]
        assert len(trace["reward"]) == count
        assert row["total_steps"] == sum(steps[row["seed"], e] for e in range(row["episode"] + 1))
        np.testing.assert_allclose(row["return"], trace["reward"].sum(), rtol=1e-5)
        assert trace["terminated"].any() == (abs(trace["next_obs"][-1, 0]) > 0.6)
        assert trace["terminated"][-1] ^ trace["truncated"][-1]
        inside = np.abs(trace["next_obs"][:-1, 0]) <= 0.6
        assert inside.all()  # nothing after its end


def test_an_interrupted_run_ends_as_if_it_never_was(tmp_path):
    whole = run_one(config(), tmp_path / "whole", ORIGIN)

    def stop(news):
        if news.episode == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_one(config(), tmp_path / "part", ORIGIN, stop)
    (part,) = (tmp_path / "part").iterdir()
    resume_run(part)
    for name in ("episodes.jsonl",):
        assert (part / name).read_text() == (whole / name).read_text()
    assert len(read_lines(whole / "episodes.jsonl")) == 6


def test_steps_are_told_while_an_episode_goes(tmp_path):
    told = []
    run_one(config(episodes=1, method="random"), tmp_path, ORIGIN, on_step=told.append)
    assert told == list(range(1, LENGTH + 1))


def test_an_observation_that_is_not_finite_is_told(tmp_path):
    told = r"task 'cart' is not finite in episode 0, step 6, seed 3, dimension 0: nan"
    with pytest.raises(GussError, match=told):
        run_one(config(env="cart-breaks"), tmp_path, ORIGIN)


def test_an_agent_takes_a_host_environment_by_name():
    """Also where the environment says what not to learn from."""
    agent = Agent(
        "cart", method="s-rs", horizon=3, budget=8, model="dmdn", model_settings={"hidden": (8,)}, fit={"epochs": 3}
    )
    (first,) = agent.learn(1)
    assert first.steps == LENGTH
    assert jax.device_get(agent.state.data.use)[0, :LENGTH].sum() == LENGTH - 1
    agent.learn(1)
    assert agent.history[-1].phase == "plan"


def test_margins_are_planned_with_and_not_judged_by():
    """A run with a margin stores costs as they are, and says in its config what the margin was."""
    strict = config(env="safe-pendulum", planning_margin=0.2, model="oracle", method="s-rs")
    trainer = Trainer(strict)
    wide = {name: float(value) for name, value in trainer.planning_task.constraints[0].cost.params.items()}
    narrow = {name: float(value) for name, value in trainer.task.constraints[0].cost.params.items()}
    assert np.isclose(wide["low"], narrow["low"] - 0.2)
    assert np.isclose(wide["high"], narrow["high"] + 0.2)
    assert json.loads(json.dumps(strict.to_json()))["planning_margin"] == 0.2
    assert "planning_margin" not in config().changed()


@pytest.mark.parametrize("env", ["cart", "cart-ends"])
def test_overlapping_changes_nothing_but_the_time(env):
    """Two halves, planned for in turns, do what all of them do together; 3 seeds make unequal halves."""
    ways = [config(env=env, seeds=(3, 4, 5), overlap=overlap) for overlap in (False, True)]
    together, halves = (Trainer(way) for way in ways)
    assert [envs.seeds for envs in halves.collector.env_groups] == [(3, 4), (5,)]
    for _ in range(2):
        one, other = (trainer.iterate().trajectory for trainer in (together, halves))
        for name in ("terminated", "truncated", "stopped", "valid", "learnable"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
        for mine, theirs in zip(one[:5], other[:5], strict=True):
            np.testing.assert_allclose(mine[one.valid], theirs[one.valid], atol=1e-4)
    assert ways[1].to_json()["overlap"]
    assert "overlap" not in ways[0].changed()
