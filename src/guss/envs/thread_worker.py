"""An environment in its own thread: a step that raises or times out returns a Failure."""

from __future__ import annotations

import contextvars
import ctypes
import queue
import threading
import warnings
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from guss.errors import GussWarning, in_one_line

CLOSE_PATIENCE = 5.0
"""Seconds that `close` of an environment may take."""


class Failure:
    """An error or timeout of an environment, as episode records state it."""

    def __init__(self, kind: str, text: str, error: BaseException | None = None) -> None:
        self.kind, self.text, self.error = kind, text, error

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """From an environment's exception; `SystemExit` and `KeyboardInterrupt` are treated like any other."""
        return cls("error", in_one_line(error), error)

    @classmethod
    def timeout(cls, what: str, seconds: float) -> Failure:
        """A call that exceeded its timeout."""
        return cls("timeout", f"{what} took longer than {seconds:g} s")

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@runtime_checkable
class AnyWorker(Protocol):
    """Calls an environment in a thread (`Worker`) or in a process (`guss.envs.process_worker`)."""

    lost: bool
    """Whether it timed out or died, so that it no longer answers."""

    def ask(self, method: str, args: tuple[Any, ...]) -> None:
        """Start a call."""

    def answer(self, timeout: float) -> Any:
        """The result of the call, or a Failure."""


class _GiveUp(BaseException):
    """Raised inside a thread whose environment timed out: ends Python code that would never return."""


class Worker:
    """Creates an environment and calls it, all in one thread, as some environments require.

    A thread cannot be killed. After a timeout an exception is raised in it, which ends a loop in Python; a thread that
    waits in foreign code is abandoned, and ends with the process.
    """

    def __init__(self, make: Callable[[], Any], *, owns: bool = True) -> None:
        """`owns`: close the environment when the worker is deleted; False if it belongs to the caller."""
        self.lost = False
        self._calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        ends = (make, owns, self._calls, self._answers)  # not the worker: it may be deleted while the thread waits
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(_serve, *ends), daemon=True, name="guss environment")
        self._thread.start()

    def __del__(self) -> None:
        self._calls.put(None)

    def ask(self, method: str, args: tuple[Any, ...]) -> None:
        self._calls.put((method, args))

    def answer(self, timeout: float) -> Any:
        """The result of the call, or a Failure."""
        try:
            return self._answers.get(timeout=timeout)
        except queue.Empty:
            self.lost = True
            thread = ctypes.c_ulong(self._thread.ident or 0)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(_GiveUp))
            return Failure.timeout("a step", timeout)


def _serve(make: Callable[[], Any], owns: bool, calls: queue.SimpleQueue[Any], answers: queue.SimpleQueue[Any]) -> None:
    env: Any = None
    try:
        while (call := calls.get()) is not None:
            method, args = call
            try:
                env = make() if env is None else env
                answers.put(getattr(env, method)(*args))
            except _GiveUp:
                raise
            except BaseException as error:  # any exception of an environment; Ctrl-C only reaches the main thread
                answers.put(Failure.of(error))
        if env is not None and owns and (failure := close_env(env)) is not None:
            warnings.warn(about_close(failure), GussWarning, stacklevel=1)
    except _GiveUp:
        return


def close_env(env: Any) -> Failure | None:
    """Close an environment that is no longer needed."""
    try:
        env.close()
    except _GiveUp:
        raise
    except BaseException as error:  # see _serve
        return Failure.of(error)
    return None


def close_by(worker: AnyWorker) -> Failure | None:
    """Close a worker's environment, with a timeout."""
    if worker.lost:
        return None
    worker.ask("close", ())
    answer = worker.answer(CLOSE_PATIENCE)
    return answer if isinstance(answer, Failure) else None


def about_close(failure: Failure) -> str:
    """The warning if `close` failed."""
    why = f"it took longer than {CLOSE_PATIENCE:g} s" if failure.kind == "timeout" else failure.text
    return f"close() of the environment failed, which affects no result: {why}"
