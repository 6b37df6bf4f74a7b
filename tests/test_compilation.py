"""Compiled programs: dropped when there are too many, compiled ahead in threads, compiled once, kept on disk."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import guss
from guss import compilation
from guss.compilation import Ahead, release_programs
from guss.errors import GussError
from guss.plugins import load_object
from guss.runs.compile_clock import CompileClock
from guss.runs.config import RunConfig, config_from
from guss.runs.trainer import Trainer
from guss.types import Transition

pytestmark = pytest.mark.filterwarnings("ignore::guss.errors.GussWarning")  # few unsafe examples, on purpose
SIX_VALUES = f"{Path(__file__).resolve().parents[1]}/examples/six_values.py:make_env"


def make_env():
    return load_object(SIX_VALUES)()


@pytest.fixture
def compiled():
    """A program that stands for all others."""
    program = jax.jit(lambda x: 2.0 * x)
    program(jnp.ones(3))
    assert program._cache_size() == 1
    return program


@pytest.fixture
def few_mappings(tmp_path, monkeypatch):
    """A system that allows fewer mappings than this process has."""
    (tmp_path / "max_map_count").write_text("100\n")
    monkeypatch.setattr(compilation, "LIMIT", tmp_path / "max_map_count")


def test_programs_are_kept_while_there_is_room(compiled, tmp_path, monkeypatch):
    (tmp_path / "max_map_count").write_text("100000000\n")
    monkeypatch.setattr(compilation, "LIMIT", tmp_path / "max_map_count")
    assert not release_programs()
    assert compiled._cache_size() == 1


def test_programs_are_kept_where_the_system_has_no_limit(compiled, tmp_path, monkeypatch):
    monkeypatch.setattr(compilation, "LIMIT", tmp_path / "missing")
    assert not release_programs()
    assert compiled._cache_size() == 1


def test_programs_give_their_mappings_back_and_are_compiled_again(compiled, few_mappings):
    def mappings():
        with compilation.MAPPINGS.open("rb") as file:
            return sum(1 for _ in file)

    kept = [jax.jit(lambda x, k=k: jnp.sin(x) + k) for k in range(20)]
    for program in kept:
        program(jnp.ones(3))
    before = mappings()
    assert release_programs()
    assert compiled._cache_size() == 0
    assert mappings() < before - 20
    assert compiled(jnp.ones(3)).tolist() == [2.0, 2.0, 2.0]


def test_a_new_run_makes_room(compiled, few_mappings):
    Trainer(RunConfig(env="safe-pendulum", method="rs", seeds=(0,), episodes=1, horizon=3, budget=10))
    assert compiled._cache_size() == 0


def test_a_new_agent_makes_room(compiled, few_mappings):
    guss.Agent("safe-pendulum", method="rs", horizon=3, budget=10)
    assert compiled._cache_size() == 0


# ------------------------------------------------------------------------------------------------- compiled ahead


def test_what_is_compiled_ahead_is_not_compiled_by_the_call():
    program, ahead = jax.jit(lambda x: jnp.cos(x) - 3.0), Ahead()
    ahead.start("cosine", lambda: program.lower(jnp.ones(7)))
    ahead.wait("cosine")
    with CompileClock(all_threads=True) as clock:
        program(np.zeros(7, np.float32))
    assert clock.programs == 0


def test_a_program_is_compiled_once_by_name_and_shown_while_it_is_waited_for():
    ahead, go, made, shown = Ahead(), threading.Event(), [], []

    class Slow:
        def compile(self):
            go.wait(30)
            made.append(1)

    ahead.start("slow one", Slow)
    ahead.start("slow one", Slow)
    ahead.wait(on_wait=lambda name: (shown.append(name), go.set()))
    assert (shown, made) == (["slow one"], [1])
    ahead.wait(on_wait=shown.append)
    assert shown == ["slow one"]


def test_many_programs_started_at_once_are_all_compiled():
    done = []
    for round_ in range(20):
        ahead = Ahead()
        for k in range(5):
            ahead.start(str(k), lambda k=k, r=round_: SimpleNamespace(compile=lambda: done.append((r, k))))
        ahead.wait()
    assert len(done) == 100


def test_what_goes_wrong_ahead_is_raised_where_it_is_waited_for():
    ahead = Ahead()
    ahead.start("broken", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ahead.wait("broken")


def test_a_process_ends_without_compiling_what_is_left(tmp_path):
    script = tmp_path / "end.py"
    script.write_text(
        "import time\n"
        "from guss.compilation import Ahead\n"
        "ahead = Ahead()\n"
        "for k in range(6):\n"
        "    ahead.start(str(k), lambda: (time.sleep(0.5), print('compiled')))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stdout.count("compiled") <= 2  # those that two threads had begun


@pytest.fixture(scope="module")
def small_agent():
    """An agent for an environment whose reward and cost are learned, after its random episodes."""
    settings = dict(horizon=4, budget=30, model_settings={"hidden": [8]}, fit={"max_steps": 40, "warm_steps": 20})
    agent = guss.Agent(make_env(), initial_episodes=1, **settings)
    agent.learn(1)
    return agent


OBS = np.asarray([1.0, 0.0, 0.3], np.float32)


def test_nothing_is_compiled_after_the_first_planned_action(small_agent):
    small_agent.act(OBS)
    with CompileClock(all_threads=True) as clock:
        small_agent.act(OBS)  # its memory comes from the first plan
        small_agent.reset()
        small_agent.learn(2)  # fits, plans and evaluates the model
    assert clock.programs == 0


def test_warm_up_compiles_first_and_later_plans_and_changes_nothing(small_agent, tmp_path):
    small_agent.fit()
    small_agent.save(tmp_path / "agent.ckpt")
    jax.clear_caches()
    agent, other = (guss.Agent.load(tmp_path / "agent.ckpt", make_env()) for _ in range(2))
    agent.warm_up(OBS)
    with CompileClock(all_threads=True) as clock:
        actions = [agent.act(OBS) for _ in range(3)]
    assert clock.programs == 0
    assert [other.act(OBS).tolist() for _ in range(3)] == [action.tolist() for action in actions]
    with pytest.raises(GussError, match="warm_up"):
        agent.warm_up(OBS[:2])


def test_the_fit_to_larger_buffers_is_compiled_before_they_are_needed(small_agent):
    size = small_agent.state.data.use.shape[1]
    while small_agent.num_transitions + 2 * small_agent.task.episode_length <= size:
        small_agent.remember(Transition(*(np.zeros((100, *s)) for s in ((3,), (), (), (1,), (3,)))))
    small_agent.reset()
    small_agent.learn(1)
    small_agent._ahead.wait()
    with CompileClock(all_threads=True) as clock:
        small_agent.learn(1)
        small_agent.fit()
    assert small_agent.state.data.use.shape[1] == 2 * size
    assert clock.programs <= 3  # doubling, counting and appending; the fits are ready


@pytest.mark.parametrize("env", ["safe-pendulum", pytest.param(SIX_VALUES, marks=pytest.mark.long)])
def test_runs_compile_nothing_after_the_first_planned_episode(env):
    how = dict(horizon=4, budget=30, model_settings={"hidden": [8]}, fit={"max_steps": 40, "warm_steps": 20})
    config = config_from({"initial_episodes": 1}, "guss", env, (0, 1), episodes=4, **how)
    loop, stages = Trainer(config), []
    loop.on_stage = stages.append
    for _ in range(2):
        loop.iterate()
    assert "fitting the model" in stages
    with CompileClock(all_threads=True) as clock:
        for _ in range(2):
            loop.iterate()
        loop.prepare_final()
    assert clock.programs == 0


# ------------------------------------------------------------------------------------------------- the cache on disk

USES_THE_LIBRARY = """
import jax
{first}
import guss
agent = guss.Agent("safe-pendulum", method="random")
print(jax.config.jax_compilation_cache_dir)
"""


@pytest.mark.parametrize(
    ("first", "env", "expected"),
    [
        ("", {"XDG_CACHE_HOME": "/nowhere"}, "/nowhere/guss/jax"),
        pytest.param("", {"GUSS_CACHE_DIR": "/mine"}, "/mine", marks=pytest.mark.long),
        ("", {"GUSS_CACHE_DIR": "off"}, "None"),
        pytest.param("", {"JAX_COMPILATION_CACHE_DIR": "/users"}, "/users", marks=pytest.mark.long),
        ("jax.config.update('jax_compilation_cache_dir', '/own')", {}, "/own"),
    ],
)
def test_programs_that_import_guss_have_a_cache_unless_they_configured_one(first, env, expected):
    outer = {name: value for name, value in os.environ.items() if name != "GUSS_CACHE_DIR"}
    script = USES_THE_LIBRARY.format(first=first)
    done = subprocess.run([sys.executable, "-c", script], env=outer | env, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines()[-1] == expected, done.stderr
