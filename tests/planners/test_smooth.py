"""Plans with a price and a limit on the change of actions, against slow sums, for every kind of action."""

import itertools
from functools import cache

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import ACTIONS, make_task
from helpers.quick import few, in_turn
from helpers.short_runs import config, run_one, short_pendulum
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine import Crowd
from test_types import within

import guss.envs  # registers the ids of Gymnasium
from guss.agent import Agent
from guss.collect.datasets import read_trace
from guss.compilation import strong
from guss.errors import GussError
from guss.methods.settings import AgentSettings
from guss.models.oracle import Oracle
from guss.planners import PLANNERS, make_planner
from guss.planners.engine import plan, plan_one, plan_within
from guss.planners.rollouts import Particles, roll_out, score
from guss.planners.smooth_memory import LastAction, RateLimit, SmoothMemory, first_memory, price_of_change
from guss.runs.replay import Replay
from guss.runs.store import trace_path
from guss.runs.trainer import Trainer
from guss.types import ContinuousActions, Rollout, Transition

KEY, HORIZON, BUDGET = jax.random.key(0), 5, 60
SIX_VALUES = "examples/six_values.py:make_env"
WIDTH = np.asarray([3.0, 0.5])  # of the bounds of the continuous actions
ROUNDING = 1e-6
planners = pytest.mark.parametrize("name", few(PLANNERS, ("guss", "s-rs", "rcem", "s-mppi")))


@cache
def problem(kind="continuous", **smooth):
    return make_task(ACTIONS[kind]).replace(**smooth)


def solve(name, task, seed=0, planned=plan, **more):
    planner = make_planner(name, task, horizon=HORIZON, budget=BUDGET)
    return planned(planner, Oracle.of(task), task, np.zeros(2), jax.random.key(seed), **more)


def same(a, b):
    return jax.tree.all(jax.tree.map(lambda x, y: np.array_equal(x, y, equal_nan=x.dtype.kind == "f"), a, b))


def slow_change(actions, before, after):
    """The mean over dimensions of what changes from one action to the next."""
    pairs = list(zip(np.ravel(before).tolist(), np.ravel(after).tolist(), strict=True))
    if isinstance(actions, ContinuousActions):
        shares = [abs(b - a) / (actions.high[i] - actions.low[i]) for i, (a, b) in enumerate(pairs)]
    else:
        shares = [float(a != b) for a, b in pairs]
    return sum(shares) / len(shares)


def slow_price(task, taken, last):
    """`taken`: actions of the particles, [P][H]; `last`: None or the action before."""
    sums = []
    for mine in np.asarray(taken):
        steps = [*([] if last is None else [np.asarray(last)]), *mine]
        sums.append(sum(slow_change(task.actions, *pair) for pair in itertools.pairwise(steps)))
    return task.smoothness * sum(sums) / len(sums)


# ------------------------------------------------------------------------------------------------------------ price


@pytest.mark.parametrize("kind", ACTIONS)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**31 - 1), known=st.sampled_from([None, False, True]))
def test_the_price_is_that_of_the_slow_reference(kind, seed, known):
    task = problem(kind, smoothness=0.7)
    taken, before = _priced(kind, seed)
    last = None if known is None else LastAction(before, jnp.asarray(known))
    price = _price(task, Rollout(taken, taken, taken), last)
    np.testing.assert_allclose(price, slow_price(task, taken, before if known else None), rtol=1e-5, atol=1e-6)


_price = jax.jit(price_of_change)


def _priced(kind, seed):
    return problem(kind).actions.sample(jax.random.key(seed), (3, 4)), problem(kind).actions.sample(KEY)


@pytest.mark.parametrize(("name", "kind"), in_turn(PLANNERS, list(ACTIONS)))
def test_a_plan_earns_its_reward_less_the_price(name, kind):
    task = problem(kind, smoothness=0.3)
    first = solve(name, task)
    for result, last in ((first, None), (solve(name, task, 1, memory=first.memory), first.action)):
        steps = jax.tree.map(lambda x: np.asarray(x)[0], result.trajectory)
        rewards = sum(float(task.reward(*(jnp.asarray(x[t]) for x in steps))) for t in range(HORIZON))
        expected = rewards - slow_price(task, result.trajectory.action, last)
        np.testing.assert_allclose(result.diagnostics.reward, expected, rtol=1e-5, atol=1e-6)
        assert within(task.actions, result.action)
        assert result.action.dtype == task.actions.dtype


def test_a_higher_price_gives_plans_that_change_less():
    changes = []
    for price in (0.0, 5.0, 500.0):
        task = problem(smoothness=price)
        taken = [np.asarray(solve("s-rs", task, seed).trajectory.action)[0] for seed in range(5)]
        changes.append(np.mean([np.abs(np.diff(each, axis=0)) / WIDTH for each in taken]))
    assert changes[0] > changes[1] > changes[2]


def test_particles_pay_their_mean_price():
    task = problem("continuous", smoothness=2.0)
    planner = make_planner("guss", task, horizon=HORIZON, budget=BUDGET)
    policies = planner.ask(planner.init(KEY, jnp.zeros(2), planner.first_memory()), planner.draws(KEY, 3), 3)
    crowd = Particles.of(Crowd())
    rollouts = jax.jit(lambda p: roll_out(planner, crowd, jnp.zeros(2), KEY, p))(policies)
    for i in range(3):
        one = jax.tree.map(lambda x, i=i: x[i], rollouts)
        free, paid = (score(planner, crowd, each, one) for each in (problem(), task))
        np.testing.assert_allclose(free.reward - paid.reward, slow_price(task, one.action, None), rtol=1e-3, atol=1e-4)


# -------------------------------------------------------------------------------------------------- without any of it


@planners
def test_without_price_and_limit_the_program_is_the_same(name):
    task = problem()
    assert not problem(smoothness=0.0, max_change=None).smooth
    planner = make_planner(name, task, horizon=HORIZON, budget=BUDGET)
    assert same(first_memory(planner, task), planner.first_memory())
    assert not isinstance(solve(name, task).memory, SmoothMemory)
    assert same(solve(name, task), solve(name, task, last_action=[0.5, 0.25])), "it does not matter"
    free = jax.make_jaxpr(lambda obs: plan_one(planner, Oracle.of(task), task, obs, KEY))(jnp.zeros(2))
    paid = problem(smoothness=0.1)
    assert str(free) != str(
        jax.make_jaxpr(lambda obs: plan_one(planner, Oracle.of(paid), paid, obs, KEY))(jnp.zeros(2))
    )


def test_the_widest_limit_changes_no_plan():
    free, limited = (solve("s-rs", problem(max_change=share)) for share in (None, 1.0))
    np.testing.assert_allclose(free.trajectory.action, limited.trajectory.action, atol=1e-6)


# ------------------------------------------------------------------------------------------------------------ limit


def steps_of(taken, last=None):
    """The largest change from step to step, as a share of the bounds."""
    taken = np.asarray(taken, np.float64)
    taken = taken if last is None else np.concatenate([np.asarray(last, np.float64)[None], taken])
    return (np.abs(np.diff(taken, axis=0)) / WIDTH).max()


@planners
@settings(max_examples=4)
@given(seed=st.integers(0, 2**31 - 1), share=st.sampled_from([0.02, 0.3]))
def test_plans_never_exceed_the_limit_from_the_applied_action_on(name, seed, share):
    task = problem(max_change=share)
    first = solve(name, task, seed)
    assert steps_of(first.trajectory.action[0]) <= share + ROUNDING
    second = solve(name, task, seed + 1, memory=first.memory)
    assert steps_of(second.trajectory.action[0], first.action) <= share + ROUNDING
    np.testing.assert_array_equal(second.action, second.trajectory.action[0, 0])
    corner = [1.0, 0.0]
    moved = solve(name, task, seed, last_action=corner)
    assert steps_of(moved.trajectory.action[0], corner) <= share + ROUNDING
    for each in (first, second, moved):
        assert within(task.actions, each.trajectory.action)


@planners
def test_closed_loop_actions_never_exceed_the_limit(name):
    task = problem()
    planner = make_planner(name, task, horizon=3, budget=60)
    keys = jax.random.split(KEY, 2)
    limited = problem(max_change=0.1, smoothness=0.2)
    found = guss.run_episodes(planner, Oracle.of(task), task, keys, planning_task=limited)
    assert max(steps_of(found.action[i, 0]) for i in range(2)) <= 0.1 + ROUNDING


def test_the_rollout_is_the_slow_one_with_clipped_actions():
    task, last = problem(max_change=0.1), np.asarray([0.5, 0.25], np.float32)
    planner = make_planner("rs", task, horizon=HORIZON, budget=BUDGET)
    wanted = task.actions.sample(KEY, (4, HORIZON))
    limit = RateLimit.of(task, LastAction(jnp.asarray(last), jnp.ones((), bool)))
    found = jax.jit(lambda actions: roll_out(planner, Particles.of(Oracle.of(task)), jnp.zeros(2), KEY, actions, limit))
    rollouts = found(wanted)
    for i in range(4):
        before, obs = last.astype(float), np.zeros(2)
        for t in range(HORIZON):
            before = np.clip(np.asarray(wanted)[i, t], before - 0.1 * WIDTH, before + 0.1 * WIDTH)
            obs = obs + 0.1 * before.sum()
            np.testing.assert_allclose(rollouts.action[i, 0, t], before, atol=1e-5)
            np.testing.assert_allclose(rollouts.next_obs[i, 0, t], obs, atol=1e-5)


def nowhere(obs, action, key):
    return obs * jnp.nan


def test_the_fallback_action_obeys_the_limit_too():
    task = make_task(ACTIONS["continuous"], step=nowhere).replace(max_change=0.1)
    result = solve("s-rs", task, last_action=[1.0, 0.5])
    assert bool(result.diagnostics.fallback)
    np.testing.assert_allclose(result.action, [0.7, 0.45], atol=1e-6)  # on its way to (0, 0)
    np.testing.assert_array_equal(solve("s-rs", task).action, [0.0, 0.0])


@pytest.mark.parametrize("smooth", [{"smoothness": 0.3}, {"max_change": 0.1}])
def test_plans_in_chunks_and_of_many_states_are_the_same(smooth):
    task = problem(**smooth)
    first = solve("guss", task)
    chunks = solve("guss", task, planned=lambda *a, **more: plan_within(*a, seconds=600, chunk=3, **more))
    assert same(first, chunks)
    again = [solve("guss", task, 1, memory=memory) for memory in (first.memory, chunks.memory)]
    assert same(*again)
    planner = make_planner("guss", task, horizon=HORIZON, budget=BUDGET)
    many = jax.jit(
        jax.vmap(lambda memory: plan_one(planner, Oracle.of(task), task, jnp.zeros(2), jax.random.key(1), memory))
    )
    np.testing.assert_allclose(
        many(jax.tree.map(lambda x: x[None], first.memory)).action[0], again[0].action, atol=1e-5
    )
    types = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), tree)  # noqa: E731
    assert types(strong(first_memory(planner, task))) == types(first.memory), "else the second plan is compiled again"


# ----------------------------------------------------------------------------------------------------- wrong values


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        ("continuous", {"smoothness": -0.1}, r"task 'problem': smoothness must be finite and at least 0, got -0\.1"),
        ("continuous", {"smoothness": float("nan")}, "smoothness must be a finite number"),
        ("continuous", {"max_change": 0.0}, r"max_change must be more than 0 and at most 1, .*; got 0\.0"),
        ("continuous", {"max_change": 1.5}, r"got 1\.5"),
        ("discrete", {"max_change": 0.1}, r"task 'problem': max_change needs continuous actions, got DiscreteActions"),
    ],
)
def test_wrong_values_of_a_task_are_named(kind, values, words):
    with pytest.raises(GussError, match=words):
        make_task(ACTIONS[kind]).replace(**values)


@pytest.mark.parametrize("last", [[0.0], [5.0, 0.0], [np.nan, 0.0], 0.0])
def test_a_wrong_last_action_is_named(last):
    with pytest.raises(GussError, match=r"task 'problem': last_action must be an action of ContinuousActions"):
        solve("rs", problem(max_change=0.1), last_action=last)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"smoothness": -1.0}, r"settings\.smoothness must be at least 0, got -1\.0"),
        ({"max_change": 0.0}, r"settings\.max_change must be more than 0 and at most 1, got 0\.0"),
        ({"max_change": 2.0}, r"settings\.max_change must be more than 0 and at most 1, got 2\.0"),
    ],
)
def test_wrong_settings_are_named(values, words):
    with pytest.raises(GussError, match=words):
        AgentSettings(**values)


def test_a_limit_on_discrete_actions_is_refused_in_compiled_tasks_and_host_environments():
    with pytest.raises(GussError, match="max_change needs continuous actions"):
        Trainer(config(env="safe-acrobot", max_change=0.1))
    with pytest.raises(GussError, match="max_change needs continuous actions"):
        Agent(gymnasium.make("guss/SafeAcrobot-v0"), max_change=0.1)
    with pytest.raises(GussError, match="max_change needs continuous actions"):
        Agent(SIX_VALUES, max_change=0.1)


# --------------------------------------------------------------------------------------------------- agents and runs


def test_settings_without_effect_are_neither_stored_nor_used():
    policy = AgentSettings(method="ppo", smoothness=0.5, max_change=0.1)
    assert {"smoothness", "max_change"} <= set(policy.unused)
    assert "smoothness" not in policy.to_json()
    planned = policy.tasks(short_pendulum())[1]
    assert not planned.smooth
    assert {"smoothness", "max_change"} <= set(AgentSettings(method="random").unused)
    assert AgentSettings().changed() == {}
    assert AgentSettings(smoothness=0.5).changed() == {"smoothness": 0.5}


def test_a_run_obeys_its_limit_stores_it_and_is_replayed(tmp_path):
    smooth = config(method="guss", method_settings={"num_initial": 10}, max_change=0.1, smoothness=0.5, episodes=2)
    home = run_one(smooth, tmp_path)
    for seed in smooth.seeds:
        taken = np.asarray(read_trace(trace_path(home, seed, 1)).trajectory.action).ravel()
        assert np.abs(np.diff(taken)).max() <= 0.4 + 1e-5
    replay = Replay(home, 1, 4)
    assert len(list(replay.steps())) == 25
    assert replay.verdict().endswith("all actions match the stored actions")
    path = trace_path(home, 4, 1)  # actions that the plans would not choose
    with path.open("rb") as file:
        columns = dict(np.load(file))
    columns["action"] = np.where(np.arange(25)[:, None] % 2, -1.5, 1.5).astype(np.float32)
    np.savez(path, **columns)
    found = [float(step.snapshot.action[0]) for step in Replay(home, 1, 4).steps()]
    away = np.abs(np.asarray(found[1:]) - columns["action"][:-1, 0])
    assert away.max() <= 0.4 + 1e-5, "plans follow the stored actions"
    stored = guss.Run(home).config
    assert (stored.max_change, stored.smoothness) == (0.1, 0.5)
    task, planned = stored.tasks(short_pendulum())
    assert (task.smooth, planned.max_change, planned.smoothness) == (False, 0.1, 0.5)


def smooth_agent(system, **more):
    fit = {"max_steps": 20, "warm_steps": 10}
    return Agent(
        system, method="s-rs", horizon=3, budget=12, initial_episodes=1, initial_steps=0, model="dmdn", fit=fit, **more
    )


def test_an_agent_on_a_host_environment_obeys_the_limit():
    env = gymnasium.make("guss/SafePendulum-v0", max_episode_steps=12)
    seen = []
    agent = smooth_agent(env, max_change=0.05)
    act = agent.act
    agent.act = lambda obs: seen.append((agent.phase, act(obs))) or seen[-1][1]
    agent.learn(2)
    taken = np.asarray([action for phase, action in seen if phase == "plan"]).ravel()
    assert len(taken) == 12
    assert np.abs(np.diff(taken)).max() <= 0.05 * 4 + 1e-5


@pytest.mark.filterwarnings("ignore:cost 'cost'")  # few unsafe examples
def test_an_agent_on_a_six_value_environment_has_a_price():
    dear, free = (smooth_agent(SIX_VALUES, smoothness=price) for price in (1e4, 0.0))
    for agent in (dear, free):
        agent.learn(2)
    assert [agent.history[-1].phase for agent in (dear, free)] == ["plan", "plan"]
    assert dear.history[-1].jitter < free.history[-1].jitter


def test_an_agent_continues_from_the_action_that_was_applied():
    """The operator moved the actuator: the next action starts from there."""
    agent = Agent(
        short_pendulum(), method="s-rs", model="oracle", initial_episodes=0, horizon=3, budget=12, max_change=0.05
    )
    obs = np.asarray([1.0, 0.0, 0.0], np.float32)
    agent.act(obs)
    agent.observe(Transition(obs, np.asarray([2.0], np.float32), None, None, obs))
    assert abs(float(agent.act(obs)[0]) - 2.0) <= 0.05 * 4 + 1e-5
    agent.observe(Transition(obs, np.asarray([-2.0], np.float32), None, None, obs), end=True)
    assert not np.asarray(agent._carry.last.known).any(), "a new episode has no last action"
    wide = [float(agent.act(obs)[0]) for _ in range(2)]
    assert abs(wide[1] - wide[0]) <= 0.05 * 4 + 1e-5


def test_an_agent_with_a_limit_is_saved_and_loaded(tmp_path):
    agent = Agent(short_pendulum(), method="s-rs", model="oracle", horizon=3, budget=12, max_change=0.05)
    agent.save(tmp_path / "agent.ckpt")
    loaded = Agent.load(tmp_path / "agent.ckpt", short_pendulum())
    assert loaded.settings.max_change == 0.05
    assert loaded.planning_task.max_change == 0.05
