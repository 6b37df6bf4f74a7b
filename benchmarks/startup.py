"""Time before the first plan: imports, and compilation with a cold and a warm cache of compiled programs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from guss.errors import GussError

PLAN = ("-m", "guss", "plan", "--env", "safe-pendulum", "--horizon", "10", "--budget", "100", "--json")


def startup(repeats: int = 3) -> dict[str, float]:
    """Milliseconds from the start of a process to its end: the best of several, except for the cold cache (once)."""
    seconds = lambda *words, **env: min(_run(words, env) for _ in range(repeats))  # noqa: E731
    with tempfile.TemporaryDirectory() as cache:
        cold = _run(PLAN, {"GUSS_CACHE_DIR": cache})
        warm = seconds(*PLAN, GUSS_CACHE_DIR=cache)
    found = {
        "python": seconds("-c", "pass"),
        "import guss": seconds("-c", "import guss"),
        "import guss and jax": seconds("-c", "import guss, jax; jax.devices()"),
        "first plan, warm cache": warm,
        "first plan, cold cache": cold,
    }
    return {name: 1e3 * value for name, value in found.items()}


def _run(words: tuple[str, ...], env: dict[str, str]) -> float:
    started = time.perf_counter()
    done = subprocess.run([sys.executable, *words], env=os.environ | env, stdout=subprocess.DEVNULL)
    if done.returncode != 0:
        raise GussError(f"python {' '.join(words)} failed with exit code {done.returncode}: its errors are above")
    return time.perf_counter() - started
