"""An environment in a thread of its own: a step that raises or takes too long is an answer, and not the end."""

from __future__ import annotations

import ctypes
import queue
import threading
from collections.abc import Callable
from typing import Any

from guss.errors import GussError


class Failure:
    """What went wrong in an environment, as an episode's record says it."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind, self.text = kind, text

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class _GiveUp(BaseException):
    """Raised inside a thread whose environment took too long: ends Python code that would never return."""


class Worker:
    """Makes an environment and calls it, all in one thread, as some environments want it.

    A thread cannot be killed. One that took too long is asked to give up, which ends a loop in Python; where it waits
    in foreign code it is left behind, and ends with the process.
    """

    def __init__(self, make: Callable[[], Any], *, owns: bool = True) -> None:
        """`owns`: close the environment when the worker goes; False for one that belongs to the caller."""
        self._calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        ends = (make, owns, self._calls, self._answers)  # not the worker itself: it may go while the thread waits
        self._thread = threading.Thread(target=_serve, args=ends, daemon=True, name="guss environment")
        self._thread.start()

    def __del__(self) -> None:
        self._calls.put(None)

    def ask(self, method: str, args: tuple[Any, ...]) -> None:
        """Begin a call."""
        self._calls.put((method, args))

    def answer(self, timeout: float) -> Any:
        """What the call returned, or a Failure."""
        try:
            return self._answers.get(timeout=timeout)
        except queue.Empty:
            self._give_up()
            return Failure("timeout", f"a step took longer than {timeout:g} s")

    def _give_up(self) -> None:
        number = self._thread.ident
        if number is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(number), ctypes.py_object(_GiveUp))


def _serve(make: Callable[[], Any], owns: bool, calls: queue.SimpleQueue[Any], answers: queue.SimpleQueue[Any]) -> None:
    env: Any = None
    try:
        while (call := calls.get()) is not None:
            method, args = call
            try:
                env = make() if env is None else env
                answers.put(getattr(env, method)(*args))
            except Exception as error:  # whatever somebody's environment raises; it is told, and recorded
                name = "" if isinstance(error, GussError) else f"{type(error).__name__}: "
                answers.put(Failure("error", f"{name}{error}".split("\n")[0]))
        if env is not None and owns:
            env.close()
    except _GiveUp:
        return
