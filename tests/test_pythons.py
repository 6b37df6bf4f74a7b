"""What `make test` and `make test-pythons` are made of."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pythons
import xla_flags

ROOT = Path(__file__).resolve().parents[1]
GIVEN = {"MAKEFLAGS", "MFLAGS", "PYTHON", "VENV", "CONSTRAINTS"}  # by a `make test` around these tests


def test_flags_that_this_jaxlib_does_not_have_are_left_out_and_named():
    quick = re.search(r"^QUICK := (.*)$", (ROOT / "Makefile").read_text(), re.M)[1].split()
    flags = [*quick, "--xla_no_such_flag=1"]
    done = subprocess.run([sys.executable, xla_flags.__file__, *flags], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    known = done.stdout.split()
    assert "--xla_backend_optimization_level=0" in known
    unknown = [flag for flag in flags if flag not in known]
    assert "--xla_no_such_flag=1" in unknown
    assert f"does not know {' '.join(unknown)}:" in done.stderr


def test_every_python_that_may_install_guss_is_tested_and_has_pins():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    first, after = (int(n) for n in re.fullmatch(r">=3\.(\d+),<3\.(\d+)", project["requires-python"]).groups())
    assert pythons.supported() == [f"3.{minor}" for minor in range(first, after)]
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r'[\w.-]+==[\w.]+(; python_version (<|>=) "3\.12")?', line) for line in pins)
    both = {line.split("==")[0] for line in pins if "<" in line}
    assert both == {line.split("==")[0] for line in pins if ">=" in line}
    assert {"jax", "jaxlib", "numpy"} <= both


def test_an_interpreter_that_does_not_start_is_not_taken(tmp_path, monkeypatch):
    """As pyenv's python3.13 on PATH while another version is chosen."""
    version = "{}.{}".format(*sys.version_info)
    shims, real = tmp_path / "shims", tmp_path / "real"
    for folder in (shims, real):
        folder.mkdir()
    shim = shims / f"python{version}"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(shims))
    assert pythons.interpreter(version) is None
    (real / f"python{version}").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(real))
    assert pythons.interpreter(version) == str(real / f"python{version}")
    assert pythons.interpreter("3.1") is None


def test_the_table_counts_what_failed_and_what_left_no_report(tmp_path):
    report = tmp_path / "report.xml"
    tests = tmp_path / "test_four.py"
    tests.write_text(
        "import pytest\ndef test_a(): pass\ndef test_b(): pass\ndef test_c(): assert False\n"
        "def test_d(): pytest.skip('no')\n"
    )
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, f"--junitxml={report}", tests]
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    assert subprocess.run([sys.executable, *words], capture_output=True, cwd=tmp_path, env=alone).returncode == 1
    assert pythons.outcome(report)[:3] == [2, 1, 1]
    assert pythons.outcome(tmp_path / "none.xml") == ["–"] * 4
    lines = pythons.table([["3.13", "pinned", "0.12", *pythons.outcome(report), 1]]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert re.split(r" *\| *", lines[-1])[1:7] == ["3.13", "pinned", "0.12", "2", "1", "1"]


def test_an_environment_of_another_python_is_not_used(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    venv.create(tmp_path / ".venv", with_pip=False)
    (tmp_path / ".venv" / ".installed").touch()
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho Python 3.99.0\n")
    other.chmod(0o755)
    alone = {name: value for name, value in os.environ.items() if name not in GIVEN}

    def steps(*words):
        done = subprocess.run(["make", "-n", "setup", *words], cwd=tmp_path, env=alone, capture_output=True, text=True)
        return done.stdout

    assert "venv --clear" not in steps()
    assert "venv --clear" not in steps(f"PYTHON={sys.executable}")
    assert f"{other} -m venv --clear .venv" in steps(f"PYTHON={other}")
    assert "--constraint" not in steps(f"PYTHON={other}", "CONSTRAINTS=")
    assert "venv --clear .venv-new" in steps("VENV=.venv-new")
