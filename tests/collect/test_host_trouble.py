"""Environments that raise, hang, stay silent or must be stopped: the run survives, and says what happened."""

import time

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.short_runs import resume_run, run_one

from guss.agent import Agent
from guss.collect.host_envs import derived_seed
from guss.collect.worker_envs import MOST_FAILURES
from guss.constraint import Constraint
from guss.envs import ENVS, EnvSpec
from guss.envs.adapters import Adapted, describe
from guss.envs.thread_worker import Failure, Worker
from guss.envs.wrappers import RedButton
from guss.errors import GussError
from guss.models.factory import ModelSettings
from guss.models.training import FitSettings
from guss.runs.config import RunConfig
from guss.runs.store import read_lines, short_name
from guss.runs.trainer import Trainer
from guss.types import Transition

LENGTH = 12
ORIGIN = {"command": "test"}


class Slope(gymnasium.Env):
    """A ball that rolls away to the right; `trouble(env)` is called at every step."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    made = 0

    def __init__(self, trouble=lambda env: None, on_reset=lambda env: None, limited=True):
        self.trouble, self.on_reset, self.limited, self.episode = trouble, on_reset, limited, -1
        type(self).made += 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.t, self.start = float(self.np_random.uniform(-0.1, 0.1)), 0, seed
        self.episode += 1
        self.on_reset(self)
        return np.asarray([self.x], np.float32), {}

    def step(self, action):
        self.trouble(self)
        self.t += 1
        self.x += 0.1 + 0.03 * float(action[0])
        costs = {"far": float(self.x > 0.4), "edge": float(self.x > 0.7)}
        return np.asarray([self.x], np.float32), self.x, False, self.limited and self.t >= LENGTH, {"costs": costs}


def spec_of(**options):
    make = lambda: Adapted(Slope(**options))  # noqa: E731
    return EnvSpec("", lambda: describe(make(), "slope", episode_length=LENGTH), make_env=make)


def add(name, **options):
    ENVS.add(name, spec_of(**options), summary="for tests", origin=__name__)
    return name


def config(env, **changes):
    values = {
        "env": env,
        "method": "s-rs",
        "seeds": (3, 4),
        "episodes": 2,
        "horizon": 3,
        "budget": 8,
        "model": "dmdn",
        "model_settings": ModelSettings(hidden=(8,)),
        "fit": FitSettings(epochs=3),
    }
    return RunConfig(**(values | changes))


def falls_apart(env):
    """Episodes 0 and 2 of the second seed's environment break at step 5; it is made anew each time."""
    if env.t == 5 and env.start in BREAKS:
        raise ZeroDivisionError("the axle broke")


def freezes(env):
    if env.t == 5 and env.start in BREAKS:
        time.sleep(20)


def loops_forever(env):
    while env.t == 5 and env.start in BREAKS:
        env.x += 0.0


BREAKS: set[int] = set()


def break_in(*pairs):
    BREAKS.clear()
    BREAKS.update(derived_seed(seed, episode) for seed, episode in pairs)


@pytest.mark.parametrize(
    ("trouble", "status", "timeout"),
    [
        (falls_apart, "error: ZeroDivisionError: the axle broke", 60.0),
        (freezes, "timeout: a step took longer than 0.5 s", 0.5),
        (loops_forever, "timeout: a step took longer than 0.5 s", 0.5),
    ],
)
def test_a_run_survives_an_environment_that_breaks(tmp_path, trouble, status, timeout):
    """The episode is marked, what happened before is kept and learned from, the other seed goes on undisturbed."""
    break_in((4, 0), (4, 2))
    name = add(f"slope-{trouble.__name__.replace('_', '-')}", trouble=trouble)
    news = []
    home = run_one(config(name, episodes=3, step_timeout=timeout, method="random"), tmp_path, ORIGIN, news.append)
    rows = {(row["seed"], row["episode"]): row for row in read_lines(home / "episodes.jsonl")}
    assert [rows[4, e]["status"] for e in range(3)] == [status, "ok", status]
    assert [rows[4, e]["steps"] for e in range(3)] == [5, LENGTH, 5]
    assert [rows[3, e]["status"] for e in range(3)] == ["ok"] * 3
    assert [rows[3, e]["steps"] for e in range(3)] == [LENGTH] * 3
    assert rows[4, 2]["total_steps"] == 5 + LENGTH + 5
    assert "seed 4: the environment failed after 5 steps" in news[0].trouble[0]
    assert news[1].trouble == ()


def test_failures_count_only_one_after_another(tmp_path):
    """Also where the environment has no time limit of its own."""
    break_in(*((4, episode) for episode in range(0, 2 * MOST_FAILURES, 2)))
    name = add("slope-now-and-then", trouble=falls_apart, limited=False)
    home = run_one(config(name, episodes=2 * MOST_FAILURES, method="random"), tmp_path, ORIGIN)
    failed = [row["status"] != "ok" for row in read_lines(home / "episodes.jsonl") if row["seed"] == 4]
    assert failed == [True, False] * MOST_FAILURES


def test_what_was_seen_before_it_broke_is_learned_from(tmp_path):
    break_in((4, 0))
    trainer = Trainer(config(add("slope-learns", trouble=falls_apart)))
    trajectory = trainer.iterate().trajectory
    assert trajectory.learnable.sum(axis=2).tolist() == [[LENGTH], [5]]
    assert trajectory.truncated[1, 0].tolist() == [t == 4 for t in range(LENGTH)], "it ended with the last whole step"
    assert jax.device_get(trainer.state.data.use).sum(axis=1).tolist() == [LENGTH, 5]
    trainer.iterate()  # and planned with


def always(env):
    if env.t == 3:
        raise RuntimeError("no power")


def immediately(env):
    if Slope.made > 1:  # the first is only described
        raise RuntimeError("no power")


def test_an_environment_that_keeps_breaking_ends_the_run(tmp_path):
    name = add("slope-always", trouble=always)
    told = f"fails in {MOST_FAILURES} consecutive episodes .*RuntimeError: no power.*Earlier episodes are kept"
    with pytest.raises(GussError, match=told):
        run_one(config(name, episodes=9, method="random"), tmp_path, ORIGIN)
    (home,) = tmp_path.iterdir()
    assert len(read_lines(home / "episodes.jsonl")) == 2 * (MOST_FAILURES - 1)
    with pytest.raises(GussError, match="fails in"):  # it can be gone on with, if it were mended
        resume_run(home)


@pytest.mark.parametrize(("when", "told"), [("trouble", "fails on the first step"), ("on_reset", "cannot be reset")])
def test_an_environment_that_cannot_begin_is_told_at_once(tmp_path, when, told):
    Slope.made = 0
    name = add(f"slope-never-{when.replace('_', '-')}", **{when: immediately})
    with pytest.raises(GussError, match=f"{told} .*RuntimeError: no power"):
        run_one(config(name, method="random"), tmp_path, ORIGIN)


def test_a_worker_tells_and_goes_on():
    class Odd:
        def ask(self, x):
            if x < 0:
                raise ValueError("no")
            return 2 * x

        def close(self):
            """Nothing to close."""

    worker = Worker(Odd)
    for x, expected in ((1, 2), (-1, "error: ValueError: no"), (3, 6)):
        worker.ask("ask", (x,))
        answer = worker.answer(10.0)
        assert (str(answer) if isinstance(answer, Failure) else answer) == expected


# ------------------------------------------------------------------------------------------------------ the red button


@pytest.mark.parametrize("method", ["random", pytest.param("s-rs", marks=pytest.mark.long)])
def test_a_hard_limit_ends_the_episode_also_of_random_actions(tmp_path, method):
    add("slope-edge")
    home = run_one(config("slope-edge", hard=("edge",), method=method), tmp_path, ORIGIN)
    rows = read_lines(home / "episodes.jsonl")
    random = [row for row in rows if row["phase"] == "random"]
    assert all(row["hard_stop"] for row in random)
    assert all(row["steps"] < LENGTH and row["costs"]["edge"] == 1.0 for row in random)
    assert all(row["status"] == "ok" for row in rows)
    soft = run_one(config("slope-edge", method="random"), tmp_path / "soft", ORIGIN)
    assert not any(row["hard_stop"] for row in read_lines(soft / "episodes.jsonl"))


def test_hard_limits_of_compiled_tasks_end_episodes_too(tmp_path):
    """Steps after the stop are computed and thrown away: they are not recorded and not learned from."""
    trainer = Trainer(config("safe-pendulum", hard=("unsafe_angle",), seeds=tuple(range(6)), method="random"))
    for _ in range(2):
        trajectory = trainer.iterate().trajectory
        violated = trajectory.cost[..., 0] > 0
        for i in range(6):
            stop = np.flatnonzero(violated[i, 0])
            assert trajectory.stopped[i, 0].any() == (len(stop) > 0)
            assert trajectory.lengths[i, 0] == (stop[0] + 1 if len(stop) else 200)
            assert trajectory.learnable[i, 0].sum() == trajectory.lengths[i, 0]
            assert np.flatnonzero(trajectory.done[i, 0]).tolist() == [trajectory.lengths[i, 0] - 1]
    assert not np.asarray(trainer.task.soft).any()


def test_an_unknown_hard_limit_is_told():
    with pytest.raises(GussError, match=r"'unsafe'\. Did you mean 'unsafe_angle'"):
        Trainer(config("safe-pendulum", hard=("unsafe",)))


def test_an_agent_stops_and_says_so():
    env = gymnasium.wrappers.TimeLimit(RedButton(Slope(), lambda obs, action, next_obs: next_obs[0] > 0.5), 30)
    agent = Agent(env, method="random")
    assert [(c.name, c.hard) for c in agent.task.constraints] == [("far", False), ("edge", False), ("red_button", True)]
    (episode,) = agent.learn(1)
    assert episode.hard_stop
    assert episode.steps < 8
    own = Agent(agent.task, method="random")  # one's own loop is told, too
    obs, _ = env.reset(seed=0)
    over = False
    while not over:
        action = own.act(obs)
        next_obs, reward, _, _, info = env.step(action)
        costs = [info["costs"][name] for name in ("far", "edge", "red_button")]
        over = own.observe(Transition(obs, action, reward, costs, next_obs))
        obs = next_obs
    assert own.history[-1].hard_stop


def beyond(obs, action, next_obs):
    return next_obs[0] > 0.5


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ("safe-pendulum", "safe-pendulum"),
        ("a/guss/plant.py:make_env", "plant"),
        ("my.plant_two:make_cold", "my-plant-two-make-cold"),
        ("ALE/Pong-v5", "ALE-Pong-v5"),
    ],
)
def test_runs_are_named_by_what_ran(env, name, tmp_path):
    assert short_name(env) == name


def test_hard_limits_and_soft_ones_are_one_setting_apart():
    task = ENVS["safe-pendulum"].item.make_task()
    assert task.with_hard(["unsafe_angle"]).constraints[0].hard
    bounded = task.replace(constraints=(Constraint("b", beyond, bound=3.0),)).with_hard(["b"])
    assert float(bounded.constraints[0].bound) == 0.0
    assert jnp.array_equal(task.with_hard(()).constraints[0].bound, task.constraints[0].bound)
