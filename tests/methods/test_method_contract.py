"""What everything that `--method` takes must do, a custom method too. Registering a method is enough to be tested."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import ACTIONS, make_task
from helpers.quick import long_unless
from helpers.short_runs import resume_run, run_one

import guss
from guss import keys as streams
from guss.agent import Agent
from guss.collect.host import act_all, begin_all
from guss.envs import ENVS, EnvSpec
from guss.envs.adapters import Adapted
from guss.errors import GussError
from guss.methods import METHODS, method_class, method_names
from guss.methods.random import RandomActions
from guss.methods.settings import AgentSettings
from guss.models.training import FitSettings
from guss.planners import PLANNERS
from guss.plugins import load_module
from guss.runs.checkpoints import newest_checkpoint
from guss.runs.config import RunConfig
from guss.runs.evaluation import evaluate_run
from guss.runs.extension import Extension
from guss.runs.store import read_lines
from guss.runs.trainer import Trainer
from guss.types import Trajectory, Transition

if "GUSS_TEST_PLUGIN" in os.environ:  # a method of your own, held to the same contract
    load_module(os.environ["GUSS_TEST_PLUGIN"])

PLUGIN = Path(__file__).parents[1] / "helpers" / "steady.py"
CUSTOM = "steady"
SEEDS, STEPS = (3, 4), 5
REWARDS = json.loads((Path(__file__).parents[1] / "data" / "method_rewards.json").read_text())
"""Mean rewards of two iterations, by seed and episode."""
TASK = make_task(ACTIONS["continuous"])
names = pytest.mark.parametrize("name", [*method_names(), CUSTOM])
QUICK = ("random", "rs", "guss", "ppo", "sac", CUSTOM)
"""Planners share a method, and so do most policies: what is alike for all is quick for one of each kind."""
few = pytest.mark.parametrize(
    "name",
    [
        long_unless(name in QUICK or not (PLANNERS if name in PLANNERS.names() else METHODS)[name].bundled, name)
        for name in [*method_names(), CUSTOM]
    ],
)


def add_env(name, make_env=None):
    ENVS.add(name, EnvSpec("", lambda: TASK, make_env=make_env), summary="for tests", origin=__name__)


class Drift(gymnasium.Env):
    """The same system, as an environment: it ends itself once it is far enough."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Box(*(np.asarray(x, np.float32) for x in ACTIONS["continuous"].bounds()))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = np.zeros(2, np.float32)
        return self.x, {}

    def step(self, action):
        self.x = self.x + np.float32(0.1 * np.sum(action))
        return self.x, float(self.x.sum()), bool(self.x[0] < -0.6), False, {"cost": float(self.x[0] > 0.3)}


@pytest.fixture(scope="module", autouse=True)
def registered():
    """The custom method and the environments; other files of the same process do not see them."""
    load_module(str(PLUGIN))
    add_env("contract")
    add_env("contract-host", lambda: Adapted(gymnasium.wrappers.TimeLimit(Drift(), STEPS)))
    yield
    METHODS._entries.pop(CUSTOM)
    for name in ("contract", "contract-host"):
        ENVS._entries.pop(name)


def is_random(name):
    return method_class(name) is RandomActions


def config(name, **changes):
    """A run as small as can be."""
    values = {"env": "contract", "method": name, "seeds": SEEDS, "fit": FitSettings(epochs=2), "model": "dmdn"}
    cls = method_class(name)
    values["model_settings"] = {"hidden": (4,)} | ({"ensemble": 2} if cls.model_based and not cls.plans else {})
    if cls.plans:
        values |= {"horizon": 3, "budget": 60}
    elif not is_random(name):
        known = {field.name for field in dataclasses.fields(cls)}
        small = {"hidden": (8,), "batch": 4, "num_envs": 2, "branches": 4, "updates_per_round": 5, "horizon": 2}
        values["method_settings"] = {key: value for key, value in small.items() if key in known}
    return RunConfig(**(values | {"episodes": 4} | changes))


TRAINED = {}


def trained(name):
    """A trainer after two iterations, and these; made once for each method."""
    if name not in TRAINED:
        trainer = Trainer(config(name))
        first = trainer.state
        TRAINED[name] = (trainer, first, [trainer.iterate() for _ in range(2)])
        if trainer.method.plans:
            trainer.prepare(trainer.done)
    return TRAINED[name]


# Compiled: one after the other, the operations of a method take longer than all that they compute. The method is an
# argument, so that tests share programs.
INIT, BEGIN, ACT = (
    jax.jit(lambda method, *arguments, do=do: getattr(method, do)(*arguments)) for do in ("init", "begin", "act")
)
UPDATE = jax.jit(lambda method, *arguments: method.update(*arguments))


def update(method, *arguments):
    """Of one seed; methods that fit models do so from Python."""
    fits = type(method).update_all is not guss.Method.update_all
    return method.update(*arguments) if fits else UPDATE(method, *arguments)


def seed_of(tree, row):
    """Slices made by numpy, which compiles nothing."""
    return jax.tree.map(lambda x: x[row] if is_key(x) else jnp.asarray(np.asarray(x)[row]), tree)


def is_key(x):
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def types(tree):
    return jax.tree.map(lambda x: (jnp.shape(x), jnp.asarray(x).dtype), tree)


def assert_finite(tree):
    for path, x in jax.tree_util.tree_leaves_with_path(tree):
        array = np.zeros(()) if is_key(x) else np.asarray(x)
        name = jax.tree_util.keystr(path)
        unknown = name.endswith("unfamiliar_share")  # NaN: the model cannot say
        assert array.dtype.kind != "f" or np.isfinite(array).all() or unknown, name


def assert_close(one, other, **tolerance):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(one), jax.tree.leaves(other), strict=True):
        if is_key(a):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_allclose(a, b, err_msg=jax.tree_util.keystr(path), **tolerance)


def assert_legal(actions):
    low, high = map(np.asarray, TASK.actions.bounds())
    assert actions.dtype == TASK.actions.dtype
    assert actions.shape[-1:] == TASK.actions.shape
    assert ((np.asarray(actions) >= low) & (np.asarray(actions) <= high)).all()


# ------------------------------------------------------------------------------------------------------- for one seed


@few
def test_one_seed_begins_acts_and_updates(name):
    """Carries and states keep their types: otherwise every step, or every episode, is compiled again."""
    trainer, _, iterations = trained(name)
    method = trainer.method
    assert isinstance(method, guss.Method)
    state = INIT(method, jax.random.key(0))
    assert_finite(state)
    acting = method.acting(state)
    first = carry = BEGIN(method, acting, jax.random.key(1))  # NaN may say that there is no plan before
    obs = np.zeros(2, np.float32)
    for t in range(2):
        action, carry, aux = ACT(method, acting, carry, obs, jax.random.key(t))
        assert action.shape == TASK.actions.shape
        assert_legal(action)
        assert_finite((carry, aux))
        assert types(carry) == types(first)
        obs = obs + np.float32(0.1)
    updated, metrics = update(method, state, seed_of(iterations[1].trajectory, 0), jax.random.key(2))
    assert types(updated) == types(state)
    assert jax.tree.structure(updated) == jax.tree.structure(state)
    assert_finite(updated)
    for measure, value in metrics.items():
        assert np.ndim(value) == 0 or measure == "r2_horizon"
        assert np.isfinite(value).all() or measure.startswith(("model_", "r2_"))  # NaN if too little was held out


def keys_of(method, seeds):
    return jax.random.split(jax.random.key(9), (seeds, method.num_envs))


# -------------------------------------------------------------------------------------------- all seeds, in the trainer


@names
def test_the_trainer_collects_whole_legal_finite_trajectories(name):
    trainer, first, iterations = trained(name)
    method = trainer.method
    shape = (len(SEEDS), method.num_envs, STEPS)
    for number, each in enumerate(iterations):
        trajectory = each.trajectory
        assert isinstance(trajectory, Trajectory)
        assert trajectory.obs.shape == trajectory.next_obs.shape == (*shape, 2)
        assert trajectory.cost.shape == (*shape, 1)
        assert trajectory.action.shape == (*shape, *TASK.actions.shape)
        for field in ("reward", "terminated", "truncated", "stopped", "valid", "learnable"):
            assert getattr(trajectory, field).shape == shape, field
        assert trajectory.valid.all()
        assert trajectory.done.sum() == len(SEEDS) * method.num_envs
        assert_legal(trajectory.action)
        assert_finite(trajectory)
        acts = not is_random(name) and (number > 0 or not method.explores_first)
        assert all(x.shape[:3] == shape for x in jax.tree.leaves(trajectory.aux))
        assert each.summary.phase == (method.phase if acts else "random")
        assert each.failures == {}
        assert [len(seed) for seed in each.metrics] == [method.num_envs] * len(SEEDS)
    assert trainer.done == 2 * method.num_envs
    assert trainer.steps.tolist() == [2 * method.num_envs * STEPS] * len(SEEDS)
    assert types(first) == types(trainer.state)
    assert_finite(trainer.state)
    assert all(x.shape[0] == len(SEEDS) for x in jax.tree.leaves(trainer.state))
    assert trainer.ready == (not is_random(name))
    learned = not jax.tree.all(jax.tree.map(np.array_equal, jax.device_get(first), jax.device_get(trainer.state)))
    assert learned == (not is_random(name))


@names
def test_the_same_settings_give_the_same_bits_and_seeds_differ(name):
    _, _, iterations = trained(name)
    again = Trainer(config(name))
    for each in iterations:
        other = again.iterate().trajectory
        assert jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(a, b, equal_nan=True), each.trajectory, other))
    assert not np.array_equal(iterations[1].trajectory.action[0], iterations[1].trajectory.action[1])


@pytest.mark.parametrize("name", method_names())
def test_rewards_are_those_of_earlier_versions(name):
    """Up to what compilers and machines round differently. `python tests/compare_commits.py` compares the bits."""
    _, _, iterations = trained(name)
    found = [each.trajectory.reward.mean(axis=2).tolist() for each in iterations]
    np.testing.assert_allclose(found, REWARDS[name], rtol=1e-3, atol=1e-3, err_msg=json.dumps(found))


@few
def test_all_seeds_at_once_are_the_seeds_one_by_one(name):
    """To rounding; but for `prepare`, in which models of all seeds are fitted together."""
    trainer, _, iterations = trained(name)
    method, states = trainer.method, trainer.state
    keys = streams.of_seeds(SEEDS)
    every = method.init_all(keys)
    for row, key in enumerate(keys):
        assert_close(seed_of(every, row), INIT(method, key), rtol=1e-5, atol=1e-6)
    acting, episodes = method.acting(states), keys_of(method, len(SEEDS))
    key_steps, carries = begin_all(method, acting, episodes)
    obs = np.full((*episodes.shape, 2), 0.1, np.float32)
    actions, _, _ = act_all(method, acting, key_steps, carries, jnp.asarray(obs), np.int32(3))
    for row, env in np.ndindex(episodes.shape):
        state = seed_of(acting, row)
        carry = BEGIN(method, state, episodes[row, env])
        key = streams.act(streams.steps(episodes[row, env]), 3)
        action, _, _ = ACT(method, state, carry, obs[row, env], key)
        np.testing.assert_allclose(actions[row, env], action, rtol=1e-3, atol=1e-4)
    trajectory = jax.tree.map(jnp.asarray, iterations[1].trajectory)
    updated, _ = method.update_all(states, trajectory, keys)
    for row, key in enumerate(keys):
        alone, _ = update(method, seed_of(states, row), seed_of(trajectory, row), key)
        assert_close(seed_of(updated, row), alone, rtol=1e-2, atol=1e-3)


@few
def test_a_deployed_method_acts_with_the_same_state(name):
    trainer, _, _ = trained(name)
    deployed, acting = trainer.method.deployed(), trainer.method.acting(trainer.state)
    assert isinstance(deployed, guss.Method)
    assert bool(eqx.tree_equal(deployed.deployed(), deployed)), "deploying twice changes nothing"
    assert types(deployed.acting(trainer.state)) == types(acting)
    keys = keys_of(trainer.method, len(SEEDS))[:, :1]
    one, two = (trainer.collector.collect(deployed, acting, keys)[0] for _ in range(2))
    assert_legal(one.action)
    assert_finite(one)
    np.testing.assert_array_equal(one.action, two.action)


@pytest.mark.parametrize("name", [CUSTOM, "guss", "ppo", "sac"])
def test_environments_of_the_host_are_learned_from_alike(name):
    """Episodes end early here; what comes after is padding."""
    trainer = Trainer(config(name, env="contract-host"))
    for number in range(2):
        trajectory = trainer.iterate().trajectory
        assert trajectory.valid.shape == (len(SEEDS), trainer.method.num_envs, STEPS)
        assert_legal(trajectory.action[trajectory.valid])
        acts = number > 0 or not trainer.method.explores_first
        assert bool(jax.tree.leaves(trajectory.aux)) == (acts and name != "sac")
        assert all(x.shape[:3] == trajectory.valid.shape for x in jax.tree.leaves(trajectory.aux))
        assert (trajectory.done.sum(axis=2) == 1).all()
        assert_finite(trainer.state)


# ---------------------------------------------------------------------------------------------------- a custom method


def test_the_custom_method_learns_what_earns_reward():
    """Reward grows with the sum of the action, most of which is its first dimension: that moves from −0.5 upwards."""
    trainer = Trainer(config(CUSTOM, episodes=60, method_settings={"num_envs": 2, "rate": 2.0}))
    while not trainer.over:
        trainer.iterate()
    assert (np.asarray(trainer.state.bias)[:, 0] > 0.5).all()
    assert trainer.state.filled.tolist() == [60 * STEPS] * len(SEEDS)
    assert trainer.state.rewards.shape == (len(SEEDS), 60 * STEPS)


def test_the_custom_methods_carry_goes_from_step_to_step():
    _, _, iterations = trained(CUSTOM)
    np.testing.assert_array_equal(
        iterations[0].trajectory.aux["step"], np.broadcast_to(np.arange(STEPS), (len(SEEDS), 2, STEPS))
    )


def test_settings_of_a_custom_method_are_checked():
    with pytest.raises(GussError, match=r"unknown setting of method 'steady': 'rat'. Did you mean 'rate'"):
        AgentSettings(method=CUSTOM, method_settings={"rat": 1.0})
    with pytest.raises(GussError, match=r"steady runs 2 episodes per seed in parallel"):
        Trainer(config(CUSTOM, episodes=5))


def test_a_stopped_and_an_extended_run_of_a_custom_method_end_as_whole_ones(tmp_path):
    """Buffers of an extended run grow by zeros."""
    origin = {"command": "test"}
    whole = run_one(config(CUSTOM, episodes=8), tmp_path / "whole", origin)

    def stop(summary):
        if summary.episode >= 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_one(config(CUSTOM, episodes=8), tmp_path / "part", origin, stop)
    (part,) = (tmp_path / "part").iterdir()
    resume_run(part)
    assert_same_records(part, whole)
    evaluation = evaluate_run(whole, 2)
    assert evaluation.mean_reward.shape == (len(SEEDS), 2)
    assert evaluation.trained_episodes == 8
    np.testing.assert_array_equal(evaluation.mean_reward[:, 0], evaluation.mean_reward[:, 1], "without noise")
    resume_run(part, more=Extension(episodes=10))
    longer = run_one(config(CUSTOM, episodes=10), tmp_path / "longer", origin)
    assert newest_checkpoint(part).arrays[".rewards"].shape == (len(SEEDS), 10 * STEPS)
    assert_same_records(part, longer)


def assert_same_records(one, other):
    assert (one / "episodes.jsonl").read_bytes() == (other / "episodes.jsonl").read_bytes()
    mine, theirs = (newest_checkpoint(home).arrays for home in (one, other))
    assert set(mine) == set(theirs)
    for name, array in mine.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


# ------------------------------------------------------------------------------------------------- on the command line

RUN = ("run", "--env", "safe-pendulum", "--plugin", PLUGIN, "--method", CUSTOM, "--seeds", 2, "--episodes", 8)
QUIET = ("--quiet", "--no-figures", "--method.rate", "1.0")


def command(*words):
    return [sys.executable, "-m", "guss", *map(str, words)]


def guss_in(folder, *words, check=0):
    done = subprocess.run(command(*words), cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == check, done.stdout + done.stderr
    return done


def home_in(folder):
    (home,) = (folder / "runs").iterdir()
    return home


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A whole run by the command line, in a process that knows of the method by its plugin alone."""
    folder = tmp_path_factory.mktemp("stored")
    guss_in(folder, *RUN, *QUIET)
    return home_in(folder)


def test_a_plugins_method_is_run(stored):
    rows = read_lines(stored / "episodes.jsonl")
    assert [(row["seed"], row["episode"]) for row in rows] == [(s, e) for e in range(8) for s in (0, 1)]
    assert {row["phase"] for row in rows} == {"policy"}
    timings = read_lines(stored / "timings.jsonl")
    assert [set(timing["policy"]) for timing in timings] == [{"mean_reward", "moved"}] * 4
    about = json.loads((stored / "config.json").read_text())
    assert about["config"]["method"] == CUSTOM
    assert about["config"]["method_settings"] == {"rate": 1.0, "num_envs": 2}
    unknown = guss_in(stored.parent, "run", "--env", "safe-pendulum", "--method", CUSTOM, check=2)
    assert "unknown method 'steady'" in unknown.stderr
    assert "--plugin FILE" in unknown.stderr


def test_a_plugins_method_is_resumed_after_a_kill(stored, tmp_path):
    """The run names its plugin: `--resume` needs none."""
    run = subprocess.Popen(command(*RUN, *QUIET), cwd=tmp_path)
    until = time.monotonic() + 200
    while not list(tmp_path.glob("runs/*/checkpoints/ep*.ckpt")):
        assert run.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < until
        time.sleep(0.005)
    run.send_signal(signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    home = home_in(tmp_path)
    assert newest_checkpoint(home).meta["done"] < 8
    guss_in(tmp_path, "run", "--resume", home, "--quiet", "--no-figures")
    assert_same_records(home, stored)


def test_a_plugins_method_is_evaluated(stored):
    """Also in a process that does not name the plugin."""
    found = json.loads(guss_in(stored.parent, "eval", stored, "--episodes", 2, "--json").stdout)
    with_plugin = guss_in(stored.parent, "eval", stored, "--episodes", 2, "--json", "--plugin", PLUGIN).stdout
    assert json.loads(with_plugin) == found
    trainer_side = evaluate_run(stored, 2)
    assert trainer_side.mean_reward.shape == (2, 2)
    assert np.isfinite(trainer_side.mean_reward).all()


# ------------------------------------------------------------------------------------------------------------- agents


def test_an_agent_learns_and_acts_by_the_custom_method(tmp_path):
    """Whole episodes, a loop of one's own, a file: all continue alike; an agent's buffers grow as it needs them."""
    agent = Agent(TASK, method=CUSTOM, seed=1, method_settings={"rate": 1.0})
    assert [(episode.phase, episode.steps) for episode in agent.learn(3)] == [("policy", STEPS)] * 3
    agent.save(tmp_path / "agent.ckpt")
    other = Agent.load(tmp_path / "agent.ckpt", TASK)
    assert_close(other.state, agent.state, rtol=0)
    for each in (agent, other):
        obs, over = np.zeros(2, np.float32), False
        while not over:
            action = each.act(obs)
            assert_legal(action)
            next_obs = obs + np.float32(0.1 * action.sum())
            over = each.observe(Transition(obs, action, None, None, next_obs))
            obs = next_obs
    assert_close(other.state, agent.state, rtol=0)
    assert int(agent.state.filled[0]) == 4 * STEPS
    agent.learn(8)
    assert int(agent.state.filled[0]) == 12 * STEPS
    assert agent.state.rewards.shape == (1, 16 * STEPS)
    assert (np.asarray(agent.state.rewards)[0, 12 * STEPS :] == 0.0).all()
    agent.save(tmp_path / "agent.ckpt")
    again = Agent.load(tmp_path / "agent.ckpt", TASK)
    assert_close(again.state, agent.state, rtol=0)
    assert agent.learn(1)[0].mean_reward == again.learn(1)[0].mean_reward


@pytest.mark.long
def test_replay_buffers_of_an_agent_keep_every_step():
    small = {"hidden": (8,), "batch": 4, "updates": 0.2}
    agent = Agent(TASK, method="sac", method_settings=small, initial_episodes=1, explore="iid")
    obs = []
    for _ in range(11):
        agent.learn(1)
        data = agent.state.data
        obs.append(np.asarray(data.next_obs)[0, int(data.filled[0]) - STEPS : int(data.filled[0])])
    assert int(agent.state.data.filled[0]) == 11 * STEPS <= agent.state.data.use.shape[1]
    np.testing.assert_array_equal(np.asarray(agent.state.data.next_obs)[0, : 11 * STEPS], np.concatenate(obs))


LOAD = """
import sys
from guss import Agent
from guss.plugins import load_module
load_module(sys.argv[1])
small = {"model_settings": {"hidden": (4,)}, "fit": {"max_steps": 5}, "model": "dmdn", "horizon": 3, "budget": 20}
for method in ("steady", "rs", "random"):
    agent = Agent("safe-pendulum", method=method, preset={}, **small)
    agent.learn(2)
    agent.save("agent.ckpt")
    print(method, Agent.load("agent.ckpt", "safe-pendulum").learn(1)[0].mean_reward == agent.learn(1)[0].mean_reward)
"""


@pytest.mark.long
def test_agents_are_loaded_with_the_compilers_own_options(tmp_path):
    """These tests choose a level of optimisation for all programs, which hides those that choose one themselves."""
    plain = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    words = [sys.executable, "-c", LOAD, str(PLUGIN)]
    done = subprocess.run(words, cwd=tmp_path, env=plain, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == ["steady True", "rs True", "random True"], done.stderr
