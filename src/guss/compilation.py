"""Compiled programs: kept on disk between processes, compiled ahead in threads, dropped when there are too many.

On CPU, XLA maps every kernel of a program separately, with three memory mappings each, and JAX keeps thousands of
programs. Linux allows a process 65,530 mappings (`vm.max_map_count`); a learning run needs up to 1,600 that no other
run shares. When none are left, the next allocation aborts the process, often where JAX serialises a program.
"""

from __future__ import annotations

import collections
import gc
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

MAPPINGS = Path("/proc/self/maps")
LIMIT = Path("/proc/sys/vm/max_map_count")
LEVEL = "xla_backend_optimization_level"
_own_level = LEVEL in os.environ.get("XLA_FLAGS", "")  # a level that the user has chosen stays
QUICKLY = {} if _own_level else {LEVEL: 2}
"""Compiler options for programs that gain nothing by more: compiled in down to a quarter of the time, nearly as fast.
Not for the fit of the dynamics and for plans, whose compilation hardly gets shorter."""
AT_ONCE = {} if _own_level else {LEVEL: 0}
"""For programs that run briefly and rarely: compiled fastest, slow to run. The last digits may differ."""


def release_programs() -> bool:
    """Drop all compiled programs if this process uses more than half of the memory mappings it may have.

    Called where something new begins: a run, an evaluation, a replay, an agent. What is needed again is compiled again,
    or loaded from the cache on disk. Returns whether programs were dropped. Systems without such a limit keep them.
    """
    if not LIMIT.exists():
        return False
    with MAPPINGS.open("rb") as file:
        used = sum(1 for _ in file)
    if 2 * used < int(LIMIT.read_text()):
        return False
    import jax

    jax.clear_caches()
    gc.collect()
    return True


def use_compilation_cache() -> None:
    """Keep compiled programs on disk, so that the next process need not compile them again.

    In GUSS_CACHE_DIR, or the user's cache folder; GUSS_CACHE_DIR=off: not at all. A cache that the user has configured
    in JAX stays as it is.
    """
    import jax

    chosen = os.environ.get("GUSS_CACHE_DIR") or str(
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "guss" / "jax"
    )
    if chosen == "off" or getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    jax.config.update("jax_compilation_cache_dir", chosen)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)


def begin_programs() -> None:
    """To be called where something new begins: a run, an evaluation, a replay, an agent."""
    use_compilation_cache()
    release_programs()


def strong(tree: Any) -> Any:
    """The arrays with types of their own instead of those that JAX takes from Python numbers ("weak" ones).

    Where the first call of a program gets weak types and the next ones do not, it is compiled twice.
    """
    import jax
    import jax.numpy as jnp

    return jax.tree.map(lambda x: jnp.asarray(x, x.dtype) if getattr(x, "weak_type", False) else x, tree)


class Ahead:
    """Programs that are compiled in threads before they are called.

    JAX keeps what `jitted.lower(*arguments).compile()` makes, and a call with such arguments finds it. Tracing and
    lowering are Python, so threads take turns with them, in the order in which programs were started; compiling is not.
    """

    def __init__(self) -> None:
        self._futures: dict[str, Future[Any]] = {}

    def start(self, name: str, lower: Callable[[], Any]) -> None:
        """Compile the program that `lower()` returns, after those started before; `name` says what it is for."""
        if name not in self._futures:
            self._futures[name] = Future()
            _queue.put(self._futures[name], lower)

    def has(self, name: str) -> bool:
        """Whether a program of that name was started."""
        return name in self._futures

    def wait(self, *names: str, on_wait: Callable[[str], Any] | None = None) -> None:
        """Until the programs of these names are ready, or all; what their compilation raised is raised here.

        `on_wait(name)` is called for each that is not ready yet.
        """
        for name in names or tuple(self._futures):
            if name in self._futures:
                future = self._futures[name]
                if on_wait is not None and not future.done():
                    on_wait(name)
                if future.exception() is not None:
                    del self._futures[name]  # the next call compiles it, or says again what is wrong
                future.result()


class _Queue:
    """Jobs in order, and threads for as long as there are any."""

    most_threads = 2
    """XLA uses several threads for one program itself; another of ours traces while the others wait for XLA."""

    def __init__(self) -> None:
        self._lock, self._turn = threading.Lock(), threading.Lock()
        self._jobs: collections.deque[tuple[Future[Any], Callable[[], Any]]] = collections.deque()
        self._threads, self._usual = 0, 0.005

    def put(self, future: Future[Any], lower: Callable[[], Any]) -> None:
        with self._lock:
            self._jobs.append((future, lower))
            if self._threads == 0:  # the main thread steps environments, and must not wait for those that trace
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual, 0.0005))
            if self._threads < self.most_threads:
                self._threads += 1
                threading.Thread(target=self._work, name="guss compiler").start()

    def _work(self) -> None:
        """Until nothing is left, or the program wants to end: a thread inside XLA must not be killed."""
        while True:
            with self._turn:
                with self._lock:
                    if not threading.main_thread().is_alive():  # whoever still waits compiles by calling
                        for future, _ in self._jobs:
                            future.set_result(None)
                        self._jobs.clear()
                    if not self._jobs:
                        self._threads -= 1
                        if self._threads == 0:
                            sys.setswitchinterval(self._usual)
                        return
                    future, lower = self._jobs.popleft()
                try:
                    lowered = lower()
                except BaseException as error:  # raised where the program is waited for
                    future.set_exception(error)
                    continue
            try:
                lowered.compile()  # JAX keeps it
                future.set_result(None)
            except BaseException as error:
                future.set_exception(error)


_queue = _Queue()
