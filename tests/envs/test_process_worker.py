"""Environments in processes: hangs are killed, crashes are recorded, nothing stays behind, and results are the same."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from helpers.short_runs import run_one

from guss.envs.process_worker import ProcessWorker
from guss.envs.thread_worker import Failure
from guss.errors import GussError
from guss.runs.config import RunConfig
from guss.runs.store import read_lines
from guss.runs.trainer import Trainer

ORIGIN = {"command": "test"}
LENGTH = 6
PLANT = """
import ctypes, os, signal, subprocess, sys, time
import gymnasium
import numpy as np
from pathlib import Path

HERE = Path(__file__).parent


class Plant(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, trouble=None):
        self.trouble = trouble

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.t = self.np_random.normal(size=2), 0
        return self.x.astype(np.float32), {"not sendable": lambda: None}

    def step(self, action):
        self.t += 1
        if self.t == 4 and self.trouble is not None and not (HERE / "broken").exists():
            (HERE / "broken").write_text(str(os.getpid()))
            self.trouble()
        self.x = self.x + 0.1 * np.asarray([action[0], self.np_random.normal()])
        info = {"cost": np.array([float(self.x[0] > 1.0)]), "not sendable": lambda: None}
        return self.x.astype(np.float32), -abs(float(self.x[0])), False, False, info


def limited(trouble=None):
    return gymnasium.wrappers.TimeLimit(Plant(trouble), 6)


def make_env():
    return limited()


def hangs():
    return limited(lambda: ctypes.PyDLL(None).sleep(1000))  # with Python's lock held: no other thread can run


def exits():
    return limited(lambda: os._exit(7))


def is_killed():
    return limited(lambda: os.kill(os.getpid(), signal.SIGKILL))


def has_a_child():
    def leave():
        if not os.fork():
            time.sleep(1000)
        os._exit(7)

    return limited(leave)


class Light(Plant):
    def step(self, action):
        return *super().step(action)[:1], float("jax" in sys.modules), False, False, {"cost": lambda: None}


def light():
    return Light()
"""


@pytest.fixture
def plant(tmp_path, monkeypatch):
    (tmp_path / "plant.py").write_text(PLANT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def config(function, **changes):
    values = {"env": f"plant.py:{function}", "method": "random", "seeds": (3, 4), "episodes": 2, "horizon": 3}
    return RunConfig(**(values | changes))


def gone(pid, seconds=20.0):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


def asked(worker, method, *args, timeout=30.0):
    worker.ask(method, args)
    return worker.answer(timeout)


def test_processes_and_threads_give_the_same_bits(plant):
    homes = [run_one(config("make_env", env_process=p), plant / "runs", ORIGIN) for p in (False, True)]
    assert homes[0] != homes[1]
    for name in ("episodes.jsonl", *(f"traces/{path.name}" for path in (homes[0] / "traces").iterdir())):
        assert (homes[0] / name).read_bytes() == (homes[1] / name).read_bytes(), name
    assert "env_process" not in config("make_env").changed()


@pytest.mark.parametrize(
    ("env", "status"),
    [
        ("hangs", "timeout: a step took longer than 1 s"),
        ("exits", "error: its process ended with exit code 7"),
        ("is_killed", "error: its process was killed by signal 9 (SIGKILL)"),
        ("has_a_child", "error: its process ended with exit code 7"),
    ],
)
def test_a_process_that_hangs_or_dies_loses_one_episode(plant, env, status):
    home = run_one(config(env, env_process=True, step_timeout=1.0, seeds=(3,)), plant / "runs", ORIGIN)
    rows = read_lines(home / "episodes.jsonl")
    assert [(row["status"], row["steps"]) for row in rows] == [(status, 3), ("ok", LENGTH)]
    assert gone((plant / "broken").read_text())


def test_a_child_imports_no_jax_and_says_what_cannot_be_sent(plant):
    worker = ProcessWorker("plant.py:light")
    obs, info = asked(worker, "reset", 0)
    assert (obs.dtype, obs.shape, info) == (np.float32, (2,), {"not sendable": None})
    answer = asked(worker, "step", np.zeros(1, np.float32))
    assert isinstance(answer, Failure)
    assert "info has a value that cannot be sent to another process" in answer.text
    code = "import sys, guss.envs.process_child; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_cannot_be_made_is_an_answer(plant):
    answer = asked(ProcessWorker("plant.py:make"), "reset", 0)
    assert isinstance(answer, Failure)
    assert "Did you mean 'make_env'" in answer.text


def test_children_end_with_a_worker_that_is_dropped(plant):
    worker = ProcessWorker("plant.py:make_env")
    assert not isinstance(asked(worker, "reset", 0), Failure)
    pid = worker._process.pid
    del worker
    assert gone(pid)


def test_children_end_with_a_parent_that_is_killed(plant):
    """Also one whose environment hangs and holds Python's lock."""
    script = """
        import numpy as np
        from guss.envs.process_worker import ProcessWorker
        idle, hanging = ProcessWorker("plant.py:make_env"), ProcessWorker("plant.py:hangs")
        for worker in (idle, hanging):
            worker.ask("reset", (0,))
            worker.answer(30.0)
        print(idle._process.pid, flush=True)
        for _ in range(4):
            hanging.ask("step", (np.zeros(1, np.float32),))
            hanging.answer(1000.0)
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent, parent.stdout:
        idle = int(parent.stdout.readline())
        while not (plant / "broken").exists() or not (plant / "broken").read_text():
            time.sleep(0.05)
        parent.kill()
    assert gone(idle)
    assert gone((plant / "broken").read_text())


def test_an_interrupt_of_the_user_ends_the_run_and_its_processes(plant):
    words = "run --env plant.py:hangs --env-process --method random --seeds 1 --episodes 2 --no-figures"
    run = subprocess.Popen([sys.executable, "-m", "guss", *words.split()], stderr=subprocess.PIPE, text=True)
    while not (plant / "broken").exists() or not (plant / "broken").read_text():
        assert run.poll() is None
        time.sleep(0.05)
    os.kill(run.pid, signal.SIGINT)
    _, told = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "guss: interrupted" in told
    assert "Traceback" not in told
    assert gone((plant / "broken").read_text())


def test_compiled_episodes_need_no_process():
    with pytest.raises(GussError, match=r"--env-process applies to environments that are stepped in Python"):
        Trainer(config("x", env="safe-pendulum", env_process=True))


def test_an_environment_is_checked_in_its_process(plant, guss_here):
    found = guss_here("check-env", "plant.py:hangs", "--env-process", "--step-timeout", 1, check=2)
    assert "a step took longer than 1 s" in " ".join(found.stdout.split())
