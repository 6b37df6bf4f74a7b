"""`make wheel-test`: the wheel, built from the sdist, does what users try first, on every supported Python.

Each Python gets a new environment with the wheel alone, in an empty folder outside the source tree: `guss --help`,
`guss list`, `guss init`, a run of one seed on the toy world, and a report. Writes results/tests/wheel.json.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from pythons import interpreter, supported

ROOT = Path(__file__).resolve().parents[1]
TOY_RUN = (
    "run --env safe-toy --model oracle --horizon 10 --budget 50 --seeds 1 --episodes 1 --initial-episodes 0 --quiet"
)
COMMANDS = ("--help", "list", "list --settings", "init project", TOY_RUN, "report runs")


def call(*words, cwd, **environment):
    """Run a program; its output is shown if it fails."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(list(map(str, words)), cwd=cwd, env=clean | environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def contents(wheel):
    """Names and checksums of the files of a wheel."""
    with zipfile.ZipFile(wheel) as files:
        return {each.filename: each.CRC for each in files.infolist() if not each.filename.endswith("RECORD")}


def build(folder):
    """The wheel, built from the sdist, and the sdist."""
    call(sys.executable, "-m", "venv", folder / "build", cwd=folder)
    python = folder / "build" / "bin" / "python"
    call(python, "-m", "pip", "install", "--quiet", "build", cwd=folder)
    call(python, "-m", "build", "--outdir", folder / "dist", ROOT, cwd=folder)  # the wheel is built from the sdist
    call(python, "-m", "build", "--wheel", "--outdir", folder / "direct", ROOT, cwd=folder)
    (wheel,), (direct,) = (folder / "dist").glob("*.whl"), (folder / "direct").glob("*.whl")
    assert contents(wheel) == contents(direct), "the sdist lacks files that the wheel needs"
    return wheel


def smoke(python, wheel, folder):
    """Seconds of each command in a new environment that has the wheel and its dependencies."""
    call(python, "-m", "venv", folder / "venv", cwd=folder)
    place, bin_ = folder / "empty", folder / "venv" / "bin"
    place.mkdir()
    constraints = ("--constraint", ROOT / "constraints.txt")
    call(bin_ / "python", "-m", "pip", "install", "--quiet", *constraints, wheel, cwd=place)
    seconds = {}
    for words in COMMANDS:
        started = time.perf_counter()
        call(bin_ / "guss", *words.split(), cwd=place, HOME=str(folder))
        seconds[words] = round(time.perf_counter() - started, 2)
    return seconds


def main():
    results = {}
    with tempfile.TemporaryDirectory(prefix="guss-wheel-") as folder:
        wheel = build(Path(folder))
        for version in supported():
            if (python := interpreter(version)) is None:
                sys.exit(f"no Python {version} found")
            place = Path(folder) / version
            place.mkdir()
            results[version] = smoke(python, wheel, place)
            print(f"Python {version}: {len(COMMANDS)} commands passed", flush=True)
        found = {"wheel": wheel.name, "files": len(contents(wheel)), "seconds": results}
    sys.path.insert(0, str(ROOT / "src"))
    from guss.runs.provenance import provenance

    about = {"provenance": provenance("make wheel-test")}
    (ROOT / "results" / "tests" / "wheel.json").write_text(json.dumps(about | found, indent=2) + "\n")


if __name__ == "__main__":
    main()
