"""An environment in its own process, which can be killed: for steps that hang in foreign code or end the process."""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from multiprocessing.connection import Connection, Pipe
from typing import Any

from guss.envs.thread_worker import CLOSE_PATIENCE, Failure
from guss.plugins import PLUGINS

START_PATIENCE = 60.0
"""Seconds that a process may take to start and create its environment."""
START = "import sys; sys.path[:] = {path!r}; from guss.envs.process_child import serve; serve({handle})"

_WORKERS: weakref.WeakSet[ProcessWorker] = weakref.WeakSet()
_ENDING: list[tuple[subprocess.Popen[bytes], float]] = []
"""Processes that were asked to end, and their deadlines."""


class ProcessWorker:
    """Calls an environment in a child process. After a timeout it is killed, with the processes that it started.

    `name`: by which the child finds the environment: a Gymnasium id, `module:function`, `file.py:function`.
    """

    def __init__(self, name: str) -> None:
        _reap()
        self._link, theirs = Pipe()
        code = START.format(path=[os.getcwd() if part == "" else part for part in sys.path], handle=theirs.fileno())
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C must reach only the parent, which manages its environments
        )
        theirs.close()
        weakref.finalize(self, _end, self._process, self._link).atexit = False  # see _end_all
        _WORKERS.add(self)
        self._started, self.lost = False, False
        self._failure: Failure | None = None
        parent = os.getpid() if threading.current_thread() is threading.main_thread() else 0
        self._send((name, tuple(PLUGINS), parent))

    def ask(self, method: str, args: tuple[Any, ...]) -> None:
        self._send((method, args))

    def answer(self, timeout: float) -> Any:
        """The result of the call, or a Failure."""
        if not self._started:
            made = self._receive(START_PATIENCE, "creating the environment")
            self._started = True
            if isinstance(made, Failure):
                self._fail(made)
        return self._receive(timeout, "a step") if self._failure is None else self._failure

    def _fail(self, failure: Failure) -> Failure:
        self._failure, self.lost = failure, True
        return failure

    def _send(self, message: Any) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has ended: `answer` reports how
            self._link.send(message)

    def _receive(self, timeout: float, what: str) -> Any:
        until = time.monotonic() + timeout
        try:
            while not self._link.poll(max(0.0, min(0.5, until - time.monotonic()))):
                if self._process.poll() is not None and not self._link.poll():
                    raise EOFError  # a process that it started holds the link open
                if time.monotonic() >= until:
                    _kill(self._process)
                    return self._fail(Failure.timeout(what, timeout))
            return pickle.loads(self._link.recv_bytes())
        except (EOFError, ConnectionResetError):
            return self._fail(Failure("error", _cause_of_death(self._process)))
        except (pickle.UnpicklingError, AttributeError, ImportError) as error:
            return Failure("error", f"its answer cannot be unpickled here: {error}")


def _cause_of_death(process: subprocess.Popen[bytes]) -> str:
    try:
        code = process.wait(CLOSE_PATIENCE)
    except subprocess.TimeoutExpired:
        _kill(process)
        return "its process closed the connection to guss"
    _kill_group(process.pid)  # processes that it started may still run
    if code < 0:
        names = {int(each): f" ({each.name})" for each in signal.Signals}
        return f"its process was killed by signal {-code}{names.get(-code, '')}"
    return f"its process ended with exit code {code}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the process and those that it started."""
    if process.poll() is None:
        _kill_group(process.pid)
        process.wait()


def _kill_group(number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(number, signal.SIGKILL)


def _end(process: subprocess.Popen[bytes], link: Connection) -> None:
    """Let the process close its environment, until a deadline."""
    link.close()
    _ENDING.append((process, time.monotonic() + CLOSE_PATIENCE + 1.0))


def _reap() -> None:
    """Remove processes that have ended and kill those past their deadline, with all that they started."""
    for _ in range(len(_ENDING)):
        process, until = _ENDING.pop(0)
        if process.poll() is None and time.monotonic() <= until:
            _ENDING.append((process, until))
            continue
        _kill_group(process.pid)
        process.wait()


@atexit.register
def _end_all() -> None:
    """At exit, let all workers close their environments at the same time."""
    for worker in list(_WORKERS):
        _end(worker._process, worker._link)
    while _ENDING:
        time.sleep(0.01)
        _reap()
