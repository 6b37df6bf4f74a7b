import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import ACTIONS, make_task

from guss.envs.toy import SafeToyEnv, toy_task
from guss.errors import GussError
from guss.methods.planning import run_episodes
from guss.models.oracle import Oracle
from guss.planners import make_planner
from guss.runs.compile_clock import CompileClock

TASK = toy_task()
PLANNER = make_planner("cem", TASK, horizon=4, budget=50)
KEYS = jax.random.split(jax.random.key(0), 3)


def run(**options):
    return run_episodes(PLANNER, Oracle.of(TASK), TASK, KEYS, steps=6, **options)


def test_episodes_are_what_the_environment_says():
    trajectory = run()
    assert trajectory.obs.shape == (3, 1, 6, 2)
    assert trajectory.cost.shape == (3, 1, 6, 1)
    assert trajectory.valid.all()
    env = SafeToyEnv()
    for seed in range(3):
        obs, _ = env.reset()
        for t in range(6):
            now = jax.tree.map(lambda x, at=(seed, 0, t): x[at], trajectory)
            np.testing.assert_array_equal(now.obs, obs)
            obs, reward, _, _, info = env.step(now.action + 1)
            np.testing.assert_array_equal(now.next_obs, obs)
            assert (now.reward, now.cost[0]) == (reward, info["cost"])
    assert trajectory.aux.diagnostics.evaluated.shape == (3, 1, 6)
    assert (trajectory.aux.diagnostics.evaluated == 50).all()


def test_the_bits_do_not_depend_on_how_often_the_program_is_entered_and_progress_is_told():
    steps = []
    parts = run(steps_per_call=2, on_step=steps.append)
    assert steps == [2, 4, 6]
    whole = run()
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.array_equal(a, b)), whole, parts))


def test_a_second_episode_compiles_nothing():
    run()
    with CompileClock() as clock:
        run()
    assert clock.programs == 0


def test_what_cannot_be_run_is_told():
    with pytest.raises(GussError, match="steps_per_call must divide an episode's 6 steps, got 4"):
        run(steps_per_call=4)
    task = make_task(ACTIONS["continuous"]).replace(reset=None)
    planner = make_planner("rs", task, horizon=2, budget=5)
    with pytest.raises(GussError, match="has no reset function"):
        run_episodes(planner, Oracle.of(task), task, KEYS)
