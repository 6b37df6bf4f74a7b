"""A few hundred random inputs for everything that guss reads; `make fuzz` tries 100,000."""

import json
import subprocess
import sys
from pathlib import Path

FUZZ = Path(__file__).with_name("fuzz.py")


def test_random_inputs_give_documented_errors_alone(tmp_path):
    """In another process, as commands run: the type checker of these tests would refuse wrong types first."""
    words = [sys.executable, FUZZ, "--count", "300", "--seed", "1", "--out", tmp_path / "fuzz.json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "fuzz.json").read_text())
    assert record["inputs"] >= 300
    assert record["provenance"]["command"].startswith("python tests/fuzz.py --count 300")
    for name, found in record["fuzzers"].items():
        assert found["accepted"] + found["refused"] == found["inputs"], name


def test_a_defect_is_found(tmp_path):
    """What is not documented is reported with its index: a fuzzer that cannot fail shows nothing."""
    sys.path.insert(0, str(FUZZ.parent))
    try:
        from fuzzers import Fuzzer, attempt
    finally:
        sys.path.remove(str(FUZZ.parent))

    class Broken(Fuzzer):
        def make(self, rng):
            return rng.random()

        def run(self, given, rng):
            raise KeyError("missing")

    first, again = (attempt("broken", Broken(tmp_path), 3, 5) for _ in range(2))
    assert first[0] == "defect"
    assert isinstance(first[2], KeyError)
    assert first[1] == again[1] != attempt("broken", Broken(tmp_path), 3, 6)[1]
