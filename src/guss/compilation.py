"""Compiled programs: a cache on disk, compilation ahead in threads, release when there are too many.

On CPU, XLA maps every kernel of a program separately, with three memory mappings each, and JAX keeps thousands of
programs. Linux allows a process 65,530 mappings (`vm.max_map_count`); a learning run needs up to 1,600 that no other
run shares. When none are left, the next allocation aborts the process, often while JAX serialises a program.
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
_own_level = LEVEL in os.environ.get("XLA_FLAGS", "")  # a level set by the user is kept
QUICKLY = {} if _own_level else {LEVEL: 2}
"""Compiler options for programs that gain nothing from more optimisation: they compile up to four times faster and run
nearly as fast. Not for the fit of the dynamics and for plans, whose compilation hardly gets shorter."""
AT_ONCE = {} if _own_level else {LEVEL: 0}
"""For programs that run briefly and rarely: fastest compilation, slow execution. The last digits may differ."""


def release_programs() -> bool:
    """Drop all compiled programs if this process uses more than half of the memory mappings it may have.

    Called at the start of a run, an evaluation, a replay or an agent. Programs that are needed again are recompiled or
    loaded from the cache on disk. Returns whether programs were dropped. Systems without such a limit keep them.
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

    The folder is GUSS_CACHE_DIR, or the user's cache folder; GUSS_CACHE_DIR=off disables the cache. A cache that the
    user has configured in JAX is kept.
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
    """Call this at the start of a run, an evaluation, a replay or an agent."""
    use_compilation_cache()
    release_programs()


def strong(tree: Any) -> Any:
    """The tree without weakly typed arrays, which JAX creates from Python numbers.

    If the first call of a program receives weak types and later calls do not, it is compiled twice.
    """
    import jax
    import jax.numpy as jnp

    return jax.tree.map(lambda x: jnp.asarray(x, x.dtype) if getattr(x, "weak_type", False) else x, tree)


class Ahead:
    """Programs that are compiled in threads before they are called.

    JAX caches the result of `jitted.lower(*arguments).compile()`, and a call with such arguments finds it. Tracing and
    lowering run in Python, so threads take turns, in the order in which programs were started; compilation does not.
    """

    def __init__(self) -> None:
        self._futures: dict[str, Future[Any]] = {}

    def start(self, name: str, lower: Callable[[], Any]) -> None:
        """Compile the program that `lower()` returns, after programs started earlier; `name` identifies it."""
        if name not in self._futures:
            self._futures[name] = Future()
            _queue.put(self._futures[name], lower)

    def has(self, name: str) -> bool:
        """Whether a program of that name was started."""
        return name in self._futures

    def wait(self, *names: str, on_wait: Callable[[str], Any] | None = None) -> None:
        """Wait until these programs are ready, by default all; errors of their compilation are raised here.

        `on_wait(name)` is called for each program that is not ready yet.
        """
        for name in names or tuple(self._futures):
            if name in self._futures:
                future = self._futures[name]
                if on_wait is not None and not future.done():
                    on_wait(name)
                if future.exception() is not None:
                    del self._futures[name]  # the next call compiles it, or raises again
                future.result()


class _Queue:
    """Jobs in order, and threads that run while there are jobs."""

    most_threads = 2
    """XLA compiles one program with several threads; the second thread here traces while the first waits for XLA."""

    def __init__(self) -> None:
        self._lock, self._turn = threading.Lock(), threading.Lock()
        self._jobs: collections.deque[tuple[Future[Any], Callable[[], Any]]] = collections.deque()
        self._threads, self._usual = 0, 0.005

    def put(self, future: Future[Any], lower: Callable[[], Any]) -> None:
        if not threading.main_thread().is_alive():  # Python 3.12 starts no more threads: callers compile by calling
            future.set_result(None)
            return
        with self._lock:
            self._jobs.append((future, lower))
            if self._threads == 0:  # the main thread steps environments and must not wait for tracing
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual, 0.0005))
            if self._threads < self.most_threads:
                self._threads += 1
                threading.Thread(target=self._work, name="guss compiler").start()

    def _work(self) -> None:
        """Run jobs until none are left or the program ends: a thread inside XLA must not be killed."""
        while True:
            with self._turn:
                with self._lock:
                    if not threading.main_thread().is_alive():  # callers that still wait compile by calling
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
                except BaseException as error:  # raised by `wait`
                    future.set_exception(error)
                    continue
            try:
                lowered.compile()  # JAX caches the result
                future.set_result(None)
            except BaseException as error:
                future.set_exception(error)


_queue = _Queue()
