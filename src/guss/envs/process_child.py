"""A process that runs one environment and answers calls until its parent ends. It does not import JAX itself."""

from __future__ import annotations

import ctypes
import os
import pickle
import queue
import signal
import sys
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import gymnasium

import guss  # noqa: F401  registers its Gymnasium ids
from guss.envs import ENVS, EnvSpec
from guss.envs.thread_worker import CLOSE_PATIENCE, Failure, about_close, close_env
from guss.envs.vector_steps import VectorSteps
from guss.errors import GussError, in_one_line
from guss.plugins import load_module, load_object

REPORTED = ("cost", "costs", "skip")
"""Entries of `info` that guss reads; of others only the names are sent, since not every value can be pickled."""


def serve(handle: int) -> None:
    """Create the environment that the first message names, then answer the calls that follow."""
    os.set_inheritable(handle, False)
    link = Connection(handle)
    name, plugins, parent = link.recv()
    if parent and sys.platform.startswith("linux"):
        _end_with(parent)
    calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(link, calls), daemon=True).start()
    env, closed = None, False
    try:
        env = make_steps(name, plugins)
        link.send_bytes(pickle.dumps(None))
    except BaseException as error:  # any exception of an environment, sys.exit() included
        link.send_bytes(_failure(error))
    while (call := calls.get()) is not None and env is not None:
        link.send_bytes(_answer(env, *call))
        closed = closed or call[0] == "close"
    if env is not None and not closed and (failure := close_env(env)) is not None:
        print(f"guss: warning: {about_close(failure)}", file=sys.stderr)
    sys.stdout.flush()
    os._exit(0)  # threads of the environment must not keep it alive


def make_steps(name: str, plugins: Sequence[str]) -> VectorSteps:
    """The environment of that name: a Gymnasium id, `module:function` or `file.py:function`, or a registered name."""
    if ":" in name:
        return _steps_of(load_object(name))
    if name not in gymnasium.registry:
        for plugin in plugins:
            load_module(plugin)
    if name in gymnasium.registry:
        return VectorSteps(gymnasium.make(name, disable_env_checker=True))
    return _steps_of(ENVS[name].item)


def _steps_of(found: Any) -> VectorSteps:
    if isinstance(found, EnvSpec):
        if found.make_env is not None:
            return found.make_env()
        return VectorSteps(gymnasium.make(found.gym_id, disable_env_checker=True))
    made = found()
    if isinstance(made, EnvSpec):
        return _steps_of(made)
    return VectorSteps(made[0] if isinstance(made, tuple) else made)


def _answer(env: VectorSteps, method: str, args: tuple[Any, ...]) -> bytes:
    """The result of a call, without values of `info` that guss does not read; or a Failure."""
    try:
        answer = getattr(env, method)(*args)
        if isinstance(answer, tuple) and isinstance(answer[-1], dict):
            info = {str(key): value if key in REPORTED else None for key, value in answer[-1].items()}
            answer = (*answer[:-1], info)
    except BaseException as error:  # any exception of an environment
        return _failure(error)
    try:
        return pickle.dumps(answer)
    except Exception as error:  # objects of the environment may define their own pickling
        return _failure(GussError(f"info has a value that cannot be sent to another process: {in_one_line(error)}"))


def _failure(error: BaseException) -> bytes:
    return pickle.dumps(Failure("error", in_one_line(error)))


def _receive(link: Connection, calls: queue.SimpleQueue[Any]) -> None:
    """Put calls into the queue; end the process when the link closes."""
    try:
        while True:
            calls.put(link.recv())
    except (EOFError, OSError):
        calls.put(None)
        time.sleep(CLOSE_PATIENCE)
        os._exit(1)


def _end_with(parent: int) -> None:
    """Kill this process when the parent's main thread ends, even while the environment hangs."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # the parent has already ended
        os._exit(1)
