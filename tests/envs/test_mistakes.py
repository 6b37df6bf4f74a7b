"""Mistakes in a user's environment file: one line that says what is wrong, at once, wherever it is used."""

import sys
import textwrap

import gymnasium
import numpy as np
import pytest
from helpers.short_runs import resume_run, run_one

from guss.agent import Agent
from guss.collect.host import make_envs
from guss.collect.vector_envs import VectorEnvs
from guss.envs import EnvSpec
from guss.envs.lookup import find_env
from guss.envs.pendulum import pendulum_task
from guss.envs.thread_worker import Failure, Worker
from guss.errors import GussError, GussWarning
from guss.plugins import functions_in, load_module, load_object
from guss.runs.config import RunConfig
from guss.runs.sources import source_digests

BASE = """
import sys, time
import gymnasium
import numpy as np


class Base(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    first, values, ends = (np.zeros(2, np.float32), {}), None, None

    def __init__(self, calm=99, **parts):
        self.t, self.calm = 0, calm
        for name, part in parts.items():
            setattr(self, name, part)

    def reset(self, *, seed=None, options=None):
        return self.first() if callable(self.first) else self.first

    def step(self, action):
        self.t += 1
        good = np.zeros(2, np.float32), 0.0, False, False, {"cost": 0.0}
        if self.t <= self.calm:
            return good
        return self.values(good) if callable(self.values) else self.values

    def close(self):
        if self.ends is not None:
            self.ends()


def stop():
    raise KeyboardInterrupt


def fail():
    raise RuntimeError("no power\\n\\nsecond line")


def env(calm=0, **parts):
    return gymnasium.wrappers.TimeLimit(Base(calm, **parts), 8)
"""
MISTAKES = {
    "lambda: env(values=lambda good: sys.exit(3))": "fails on its first step: SystemExit: 3",
    "lambda: env(values=lambda good: stop())": "fails on its first step: KeyboardInterrupt",
    "lambda: env(first=lambda: sys.exit('bye'))": "fails on its first reset: SystemExit: bye",
    "lambda: sys.exit(4)": "could not create its environment: SystemExit: 4",
    "lambda: stop()": "could not create its environment: KeyboardInterrupt",
    "lambda: fail()": "could not create its environment: RuntimeError: no power$",
    "lambda: None": "got NoneType: is a `return` missing",
    "lambda a, b=2: env()": r"is called without arguments, but it takes \(a, b=2\)",
    "lambda: env(values=lambda good: (*good[:4], {'cost': None}))": r'step: info\["cost"\] must be one number.*None',
    "lambda: env(values=lambda good: (*good[:4], {'cost': 'x'}))": r'first step: info\["cost"\] must be one number.*x',
    "lambda: env(values=lambda good: (*good[:4], {'cost': {}}))": r'first step: info\["cost"\] must be one number.*{}',
    "lambda: env(values=lambda good: (*good[:4], {'cost': [[1], [1, 2]]}))": r'info\["cost"\] must be one number',
    "lambda: env(values=lambda good: (*good[:4], None))": "return `info` as a dict, its last value, got NoneType",
    "lambda: env(values=lambda good: good[:4])": "Gym before 0.26 returned 4",
    "lambda: env(values=lambda good: None)": "step must return .observation, reward",
    "lambda: env(values=lambda good: (good[0], None, *good[2:]))": "reward of Base must be one number, got None",
    "lambda: env(values=lambda good: (good[0], '1', *good[2:]))": "reward of Base must be one number, got '1'",
    "lambda: env(values=lambda good: (good[0], np.ones(3), *good[2:]))": "reward of Base must be one number",
    "lambda: env(values=lambda good: (*good[:2], np.ones(3), *good[3:]))": "`terminated` of Base must be True or Fa",
    "lambda: env(values=lambda good: ('x', *good[1:]))": "returned an observation that is not in its space",
    "lambda: env(first=np.zeros(2))": "must return a pair .observation, info., where info is a dict, got ndarray",
    "lambda: env(first=(np.zeros(2), None))": "got a pair with NoneType as info",
}


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    modules = dict(sys.modules)

    def write(make, name="mistakes.py"):
        (tmp_path / name).write_text(f"{BASE}\n\nmake_env = {make}\n")
        return f"{name}:make_env"

    yield write
    for name in set(sys.modules) - set(modules):
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize(("make", "told"), MISTAKES.items())
def test_a_mistake_is_one_line(write, make, told):
    with pytest.raises(GussError, match=told) as raised:
        find_env(write(make))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("make", "told"), [item for item in MISTAKES.items() if "values=" in item[0]])
def test_a_mistake_in_a_later_step_is_one_line_for_an_agent(write, make, told):
    made = load_object(write(make.replace("env(values", "env(calm=3, values")))()
    agent = Agent(made, method="random", horizon=3)
    if "stop()" in make:
        with pytest.raises(KeyboardInterrupt):  # may be the user's
            agent.learn(1)
        return
    with pytest.raises(GussError, match=told.rpartition("step: ")[2]):
        agent.learn(1)


def test_a_mistake_is_one_line_on_the_command_line(write, guss_here):
    for words in (("run", "--env"), ("check-env",)):
        told = guss_here(*words, write("lambda: fail()", "broken.py"), check=2).stderr
        assert told == "guss: error: broken.py:make_env could not create its environment: RuntimeError: no power\n"
    told = guss_here("check-env", write("lambda: env(calm=3, values=lambda good: sys.exit(3))"), check=2)
    assert "SystemExit: 3" in told.stdout


def test_environments_that_cannot_be_closed_are_warned_of(write, monkeypatch):
    monkeypatch.setattr("guss.envs.thread_worker.CLOSE_PATIENCE", 0.2)
    for ends, told in (("fail", "RuntimeError: no power$"), ("lambda: time.sleep(99)", "it took longer than 0.2 s")):
        with pytest.warns(GussWarning, match=f"close.. of the environment failed.*: {told}"):
            find_env(write(f"lambda: env(calm=99, ends={ends})", f"{'fail' * (ends == 'fail')}ends.py"))


def test_a_worker_survives_what_ends_programs():
    class Odd:
        def exit(self):
            sys.exit(3)

        def interrupt(self):
            raise KeyboardInterrupt

        def close(self):
            """Nothing to close."""

    worker = Worker(Odd)
    for method, expected in (("exit", "error: SystemExit: 3"), ("interrupt", "error: KeyboardInterrupt")) * 2:
        worker.ask(method, ())
        answer = worker.answer(10.0)
        assert isinstance(answer, Failure)
        assert str(answer) == expected


def test_what_is_not_an_environment_is_no_system(write):
    class Thing:
        """Nothing of an environment."""

    for system in (3, None, Thing(), lambda: None, object()):
        with pytest.raises(GussError, match=f"an Agent's system must be .*got {type(system).__name__}"):
            Agent(system)
    with pytest.raises(GussError, match="got the class Env: create an instance first"):
        Agent(gymnasium.Env)
    with pytest.raises(GussError, match="unknown environment 'nobody/Nothing-v0'"):
        Agent("nobody/Nothing-v0")
    agent = Agent(f"./{write('lambda: env(calm=99)', 'in_a_folder.py')}", method="random", horizon=3)
    assert agent.task.episode_length == 8


# ------------------------------------------------------------------------------------------------ vector environments


class Pair(gymnasium.vector.VectorEnv):
    """Two environments; `wrong` is what its steps return, or what it raises."""

    metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.DISABLED}  # noqa: RUF012
    wrong = None

    def __init__(self, num_envs=2, **options):
        self.num_envs = num_envs

    def reset(self, *, seed=None, options=None):
        return np.zeros((2, 3), np.float32), {}

    def step(self, actions):
        if isinstance(self.wrong, BaseException):
            raise self.wrong
        no = np.zeros(2, bool)
        good = [np.zeros((2, 3), np.float32), np.zeros(2), no, no, {"cost": np.zeros(2)}]
        return tuple(good[: len(self.wrong)] if isinstance(self.wrong, str) else [*good[:4], self.wrong])


gymnasium.register("test/Pair-v0", entry_point="test_mistakes:Pair", vector_entry_point=Pair, max_episode_steps=200)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"cost": None}, r'info\["cost"\] must have one number for each of the 2 environments, got None'),
        ({"cost": "ab"}, "must have one number for each of the 2 environments, got 'ab'"),
        ({"cost": [0.0, None]}, r'seed 1: info\["cost"\] must be one number.*None'),
        ({"cost": np.zeros(3)}, "must have one number for each of the 2 environments"),
        ({"costs": {"unsafe_angle": 1.0}}, r'info\["costs"\]\[.unsafe_angle.\] must have one number for each'),
        (None, "must return `info` as a dict"),
        ("four", "got 4 values; Gym before 0.26 returned 4"),
        (SystemExit(3), "fail in episode 0, step 0: SystemExit: 3. Earlier episodes are kept"),
        (ValueError("no power"), "fail in episode 0, step 0: ValueError: no power"),
    ],
)
def test_mistakes_of_vector_environments_are_one_line(monkeypatch, wrong, told):
    monkeypatch.setattr(Pair, "wrong", wrong)
    task = pendulum_task().replace(step=None, reset=None)
    envs = make_envs(task, EnvSpec("test/Pair-v0", lambda: task), (0, 1), 60.0)
    assert isinstance(envs, VectorEnvs)
    obs = envs.reset(0)
    with pytest.raises(GussError, match=told):
        envs.step(obs, np.zeros((2, 1), np.float32), np.ones(2, bool), 0, 0)


# ----------------------------------------------------------------------------------------------------- files and names


@pytest.mark.parametrize("stem", ["random", "types", "guss", "jax", "my.env", "my-env"])
def test_a_file_may_have_any_name(write, tmp_path, stem):
    """It takes no other module's place, and finds those beside it."""
    before = sys.modules.get(stem)
    name = write("lambda: env(calm=99)", f"{stem}.py")
    path = tmp_path / f"{stem}.py"
    path.write_text(f"import helper_beside\n{path.read_text()}")
    (tmp_path / "helper_beside.py").write_text("value = 1\n")
    (tmp_path / "colorsys.py").write_text("raise RuntimeError('not the one of the standard library')\n")
    sys.modules.pop("colorsys", None)
    module = load_module(name.partition(":")[0])
    assert sys.modules.get(stem) is before
    assert load_module(str(path)) is module is sys.modules[module.__name__]
    assert not module.__name__.startswith("guss.")
    assert module.__name__ not in ("guss", "jax")
    import colorsys

    assert hasattr(colorsys, "rgb_to_hsv")
    assert find_env(name).make_task().episode_length == 8
    run = RunConfig(env=name, method="random", seeds=(0,), episodes=1)
    assert set(source_digests(run)["environment"]) == {f"{stem}.py", "helper_beside.py"}
    home = run_one(run, tmp_path, {"command": "test"})
    assert resume_run(home) == run


def test_a_file_with_a_free_name_keeps_it(write, tmp_path):
    """So that `pickle`, and processes that its code starts, find it."""
    write("lambda: env(calm=99)", "boiler_room.py")
    module = load_module("boiler_room.py")
    assert module.__name__ == "boiler_room"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "boiler_room.py").write_text("value = 2\n")
    assert load_module("other/boiler_room.py").value == 2
    assert load_module("boiler_room.py") is module


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def f(:\n", r"importing 'half.py' failed: SyntaxError: invalid syntax \(half.py, line 1\)"),
        ("import sys\nsys.exit(2)\n", "importing 'half.py' failed: SystemExit: 2"),
        ("value = 1\nvalue / 0\n", "importing 'half.py' failed: ZeroDivisionError"),
        ("import not_there\n", "importing 'half.py' failed: ModuleNotFoundError: No module named 'not_there'"),
    ],
)
def test_a_file_that_cannot_be_imported_is_told_each_time(write, tmp_path, text, told):
    (tmp_path / "half.py").write_text(text)
    for _ in range(2):
        with pytest.raises(GussError, match=told):
            find_env("half.py:make_env")


def test_a_file_without_a_function_suggests_those_in_it(write, tmp_path):
    (tmp_path / "boiler.py").write_text(
        textwrap.dedent(
            """
            raise RuntimeError("must not be imported")
            class Boiler(gymnasium.Env): pass
            def make_env(size=3): pass
            def helper(x): pass
            def _hidden(): pass
            """
        )
    )
    assert functions_in(tmp_path / "boiler.py") == ["make_env", "Boiler"]
    with pytest.raises(GussError, match=r"is a file: name the function .*: boiler.py:make_env or boiler.py:Boiler$"):
        find_env("boiler.py")
    with pytest.raises(GussError, match=r"there is no file 'boilr.py'"):
        find_env("boilr.py")


def test_unknown_names_are_answered_by_the_nearest_ones(guss_here):
    told = guss_here("run", "--env", "safe-pendulm", check=2).stderr
    assert "unknown environment 'safe-pendulm'. Did you mean 'safe-pendulum'" in told
    assert "file.py:function" in told
    assert len(told) < 400
    assert "unknown environment 'xyzzy'. Name a custom one as" in guss_here("run", "--env", "xyzzy", check=2).stderr
    assert "--plugin FILE" in guss_here("run", "--method", "gus", check=2).stderr
    assert "--plugin FILE" in guss_here("run", "--model", "darmd", check=2).stderr
