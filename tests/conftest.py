"""Strict JAX, checked shapes: silent broadcasting and promotion are errors, every annotated shape is tested."""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import jax
import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_include_full_tracebacks_in_locations", False)  # programs are traced by the thousand

install_import_hook("guss", "typecheck.check")

from guss.compilation import release_programs  # noqa: E402
from guss.plugins import PLUGINS  # noqa: E402

# Commands that tests run keep their programs until the session ends. This process has its own in memory: it stores
# those alone that take long. Every worker has a folder of its own, because jax writes these files in place.
COMPILED = tempfile.TemporaryDirectory(prefix="guss-compiled-", ignore_cleanup_errors=True)
os.environ["GUSS_CACHE_DIR"] = COMPILED.name
jax.config.update("jax_compilation_cache_dir", COMPILED.name)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)

signal.signal(
    signal.SIGINT, signal.default_int_handler
)  # ignored in jobs of a shell's background, and by their children

ROOT = Path(__file__).resolve().parents[1]
COMMON = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}
settings.register_profile("guss", max_examples=60, **COMMON)
settings.load_profile("guss")


@pytest.fixture(scope="module", autouse=True)
def programs_within_limits():
    """Each file compiles hundreds of programs, and a process may keep only so many."""
    yield
    for thread in threading.enumerate():  # what is still compiled ahead must not disturb the next file
        if thread.name == "guss compiler":
            thread.join()
    release_programs()


def pytest_unconfigure():
    COMPILED.cleanup()


@pytest.fixture(scope="module", autouse=True)
def plugins_of_one_file():
    """Runs store the plugins of their process: those that another file's commands imported must not be among them."""
    yield
    PLUGINS.clear()


@pytest.fixture
def guss_command(tmp_path):
    """Run the real command line in a folder of its own; returns the finished process."""

    def run(*words, cwd=tmp_path, env=None, check=None, timeout=300):
        process = subprocess.run(
            [sys.executable, "-m", "guss", *map(str, words)],
            cwd=cwd,
            env=os.environ | {"COLUMNS": "120"} | (env or {}),
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check is not None:
            assert process.returncode == check, process.stdout + process.stderr
        return process

    return run


@pytest.fixture
def guss_here(tmp_path, monkeypatch, capfd):
    """The same in this process, for what does not need one of its own: nothing has to be imported or traced again."""
    from guss.cli.main import main

    def run(*words, check=None):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("COLUMNS", "120")
        monkeypatch.setattr(sys, "argv", ["guss", *map(str, words)])
        capfd.readouterr()
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code
        process = subprocess.CompletedProcess(words, code, *capfd.readouterr())
        if check is not None:
            assert process.returncode == check, process.stdout + process.stderr
        return process

    return run


@pytest.fixture
def record_result(request):
    """Write what a long test saw to results/tests/<name>.json, with commit and command."""

    def write(name, values):
        from guss.runs.provenance import provenance

        command = shlex.join(["make", "test-long"]) + f"  # {request.node.nodeid}"
        folder = ROOT / "results" / "tests"
        folder.mkdir(parents=True, exist_ok=True)
        content = {"test": request.node.nodeid, "provenance": provenance(command), **values}
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")

    return write
