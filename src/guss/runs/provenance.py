"""Provenance of a result: command, commit, versions, machine."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import guss


def provenance(command: str) -> dict[str, Any]:
    """The provenance to store with a result."""
    versions = {"guss": guss.__version__, "python": platform.python_version()}
    for name in ("jax", "jaxlib", "equinox", "numpy", "scipy", "gymnasium", "mujoco"):
        with contextlib.suppress(PackageNotFoundError):  # mujoco is an extra
            versions[name] = version(name)
    return {
        "command": command,
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "versions": versions,
        "machine": {
            "cpu": _cpu(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
        },
    }


def _commit() -> str | None:
    """The commit of the sources, with "-dirty" if they have uncommitted changes; None outside a checkout of guss."""
    here = Path(__file__).resolve().parent
    git = lambda *words: subprocess.run(["git", *words], cwd=here, capture_output=True, text=True)  # noqa: E731
    try:
        if git("ls-files", "--error-unmatch", "provenance.py").returncode != 0:
            return None
        sources = [f"../../../{name}" for name in ("src", "experiments", "examples", "studies")]
        changed = git("status", "--porcelain", "--", *sources).stdout.strip()
        return git("rev-parse", "HEAD").stdout.strip() + ("-dirty" if changed else "")
    except FileNotFoundError:  # no git on this machine
        return None


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
