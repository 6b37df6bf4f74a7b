"""Measures the time that JAX spends on compilation, to separate it from execution time."""

from __future__ import annotations

import threading
from typing import Any

import jax.monitoring

_COMPILED = "/jax/core/compile/backend_compile_duration"  # compiled, or fetched from the persistent cache
_LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"


class CompileClock:
    """Within `with CompileClock() as clock:`, `clock.seconds` accumulates lowering and compilation time.

    `clock.programs` counts the programs that were compiled or fetched from the persistent cache. Compilation in other
    threads is included only with `all_threads`.
    """

    def __init__(self, *, all_threads: bool = False) -> None:
        self._thread = None if all_threads else threading.get_ident()
        self.seconds = 0.0
        self.programs = 0

    def _listen(self, event: str, duration_secs: float, **_: Any) -> None:
        if self._thread not in (None, threading.get_ident()):
            return
        if event in (_COMPILED, _LOWERED):
            self.seconds += duration_secs
        if event == _COMPILED:
            self.programs += 1

    def __enter__(self) -> CompileClock:
        jax.monitoring.register_event_duration_secs_listener(self._listen)
        return self

    def __exit__(self, *error: object) -> None:
        jax.monitoring.unregister_event_duration_listener(self._listen)
