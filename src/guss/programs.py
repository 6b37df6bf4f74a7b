"""Compiled programs that a process keeps.

On CPU, XLA maps every kernel of a program separately, with three memory mappings each, and JAX keeps thousands of
programs. Linux allows a process 65,530 mappings (`vm.max_map_count`); a learning run needs up to 1,600 that no other
run shares. When none are left, the next allocation aborts the process, often where JAX serialises a program.
"""

from __future__ import annotations

import gc
from pathlib import Path

MAPPINGS = Path("/proc/self/maps")
LIMIT = Path("/proc/sys/vm/max_map_count")


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
