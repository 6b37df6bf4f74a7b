"""`make test-pythons`: `make test` on every supported Python found here, with pinned and with the newest dependencies.

Each has its own environment (`.venv-3.13-pinned`, `.venv-3.13-newest`). `PYTHONS="3.12 3.13"` chooses versions. Ends
with a table; fails if a test does, or if no Python is found.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
KINDS = {"pinned": [], "newest": ["CONSTRAINTS="]}
HEAD = ("Python", "dependencies", "jax", "passed", "failed", "skipped", "seconds", "exit code")
SAY = "import sys; print('%d.%d' % sys.version_info[:2])"


def supported():
    """The versions that pyproject.toml names, such as 3.13."""
    return re.findall(r"Programming Language :: Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())


def interpreter(version):
    """A Python of that version that starts: on PATH, or the newest of pyenv; None if there is none."""
    candidates = [found] if (found := shutil.which(f"python{version}")) else []
    if pyenv := shutil.which("pyenv"):
        root = Path(subprocess.run([pyenv, "root"], capture_output=True, text=True, check=True).stdout.strip())
        installed = (root / "versions").glob(f"{version}.*/bin/python")
        candidates += sorted(map(str, installed), key=lambda path: [int(n) for n in re.findall(r"\d+", path)])[::-1]
    for path in candidates:  # pyenv's own python3.13 on PATH fails unless that version is chosen
        if subprocess.run([path, "-c", SAY], capture_output=True, text=True).stdout.strip() == version:
            return path
    return None


def outcome(report):
    """Passed, failed and skipped tests and the seconds of a JUnit report; dashes if there is none."""
    if not report.exists():
        return ["–"] * 4
    suite = ElementTree.parse(report).getroot().find("testsuite")
    total, *bad, skipped = (int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped"))
    return [total - sum(bad) - skipped, sum(bad), skipped, round(float(suite.get("time")))]


def test(python, version, kind):
    """A row of the table, and whether all went well."""
    name = f".venv-{version}-{kind}"
    if kind == "newest":
        (ROOT / name / ".installed").unlink(missing_ok=True)  # what is newest changes
    environment = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        environment["PYTEST_ADDOPTS"] = f"{os.environ.get('PYTEST_ADDOPTS', '')} --junitxml={report}"
        words = ["make", "test", f"PYTHON={python}", f"VENV={name}", *KINDS[kind]]
        code = subprocess.run(words, cwd=ROOT, env=environment).returncode
        found = outcome(report)
    say = "from importlib.metadata import version; print(version('jax'))"
    jax = subprocess.run([ROOT / name / "bin" / "python", "-c", say], capture_output=True, text=True).stdout.strip()
    return [version, kind, jax or "–", *found, code]


def table(rows):
    """Markdown, columns aligned."""
    rows = [[str(cell) for cell in row] for row in (HEAD, ["-"] * len(HEAD), *rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    fill = lambda cell, width: cell.ljust(width, "-" if cell == "-" else " ")  # noqa: E731
    return "\n".join("| " + " | ".join(map(fill, row, widths)) + " |" for row in rows)


def main(versions):
    rows = []
    for version in versions or supported():
        if python := interpreter(version):
            for kind in KINDS:
                print(f"Python {version}, {kind} dependencies: {python}", flush=True)
                rows.append(test(python, version, kind))
        else:
            print(f"no Python {version} here: neither python{version} on PATH nor one of pyenv's starts", flush=True)
    print(table(rows))
    sys.exit(0 if rows and all(row[-1] == 0 for row in rows) else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
