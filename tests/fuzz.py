"""Random inputs for everything that guss reads: only documented errors may result.

    python tests/fuzz.py --count 100000                      all fuzzers; writes results/tests/fuzz.json
    python tests/fuzz.py --only presets --only npz --count 3000
    python tests/fuzz.py --only presets --index 17           one input, with its traceback

An input follows from --seed, the fuzzer's name and its index. Each fuzzer works in a process of its own: if an input
kills it, the next process continues after that input, which is reported.
"""

import argparse
import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]
SECONDS = 20
"""An input that takes longer is a defect."""
MEMORY = 24 * 2**30
"""Address space of a fuzzer, in bytes; an input that needs more is a defect."""
SHOWN = 5
"""Defects printed of each fuzzer."""


class Slow(BaseException):
    """An input took too long."""


def work(name: str, seed: int, start: int, stop: int) -> None:
    """The inputs of one fuzzer, a JSON line for each on standard output."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    from fuzzers import FUZZERS, attempt

    def too_slow(*_: Any) -> None:
        raise Slow

    signal.signal(signal.SIGALRM, too_slow)
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    with tempfile.TemporaryDirectory(prefix="guss-fuzz-", dir=_memory_disk()) as folder:
        fuzzer = FUZZERS[name](Path(folder))
        print(json.dumps({"ready": True}), file=out)
        for index in range(start, stop):
            signal.alarm(SECONDS)
            try:
                outcome, given, error = attempt(name, fuzzer, seed, index)
            except Slow as slow:
                outcome, given, error = "defect", "(see --index)", slow
            signal.alarm(0)
            row: dict[str, Any] = {"index": index, "outcome": outcome}
            if outcome == "defect":
                place = traceback.extract_tb(error.__traceback__)[-1] if error is not None else None
                row |= {"error": f"{type(error).__name__}: {error}"[:300], "input": repr(given)[:500]}
                row |= {"at": f"{Path(place.filename).name}:{place.lineno}" if place else ""}
            print(json.dumps(row), file=out)


def _memory_disk() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def fuzz(name: str, seed: int, count: int) -> dict[str, Any]:
    """All inputs of one fuzzer, in as many processes as it takes."""
    counts, defects, at, started = {"accepted": 0, "refused": 0}, [], 0, time.perf_counter()
    while at < count:
        words = [
            sys.executable,
            __file__,
            "--work",
            name,
            "--seed",
            str(seed),
            "--start",
            str(at),
            "--count",
            str(count),
        ]
        with tempfile.TemporaryFile("w+") as errors:
            with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
                assert process.stdout is not None
                ready = False
                for line in process.stdout:
                    row = json.loads(line)
                    if "ready" in row:
                        ready = True
                        continue
                    at = row.pop("index") + 1
                    outcome = row.pop("outcome")
                    if outcome == "defect":
                        defects.append({"index": at - 1, **row})
                        _show(name, defects)
                    else:
                        counts[outcome] += 1
                    if at % 1000 == 0:
                        print(f"{name}: {at} of {count}, {len(defects)} defects", flush=True)
            errors.seek(0)
            told = errors.read()[-800:]
        if not ready:
            raise SystemExit(f"the fuzzer {name} does not start:\n{told}")
        if at < count:
            defects.append({"index": at, "error": f"the process ended with code {process.returncode}", "at": told})
            _show(name, defects)
            at += 1
    seconds = time.perf_counter() - started
    told = ", ".join(f"{number} {outcome}" for outcome, number in counts.items())
    print(f"{name}: {count} inputs, {told}, {len(defects)} defects, {count / seconds:.0f}/s", flush=True)
    return {"inputs": count, **counts, "defects": defects, "seconds": round(seconds, 1)}


def _show(name: str, defects: list[dict[str, Any]]) -> None:
    if len(defects) <= SHOWN:
        print(f"{name}: DEFECT {json.dumps(defects[-1])}", flush=True)


def show_one(name: str, seed: int, index: int) -> None:
    """One input, with the traceback of what it raises."""
    from fuzzers import FUZZERS, attempt

    with tempfile.TemporaryDirectory(prefix="guss-fuzz-", dir=_memory_disk()) as folder:
        outcome, given, error = attempt(name, FUZZERS[name](Path(folder)), seed, index)
    print(f"{given!r}"[:5000])
    if error is not None:
        traceback.print_exception(error)
    print(outcome)


def main() -> int:
    """The exit code: 1 if any input gave something else than a documented error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="inputs in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", metavar="NAME")
    parser.add_argument("--index", type=int, help="this input alone, of one fuzzer")
    parser.add_argument("--out", type=Path, help="write a JSON record")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    os.environ.setdefault("NPROC", "1")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    if given.work:
        work(given.work, given.seed, given.start, given.count)
        return 0
    if given.index is not None:
        show_one(given.only[0], given.seed, given.index)
        return 0
    from fuzzers import FUZZERS

    from guss.runs.provenance import provenance

    names = given.only or list(FUZZERS)
    if unknown := [name for name in names if name not in FUZZERS]:
        parser.error(f"unknown fuzzer {unknown[0]}; known: {', '.join(FUZZERS)}")
    total = sum(FUZZERS[name].share for name in names)
    counts = {name: max(1, round(given.count * FUZZERS[name].share / total)) for name in names}
    counts[names[0]] += max(0, given.count - sum(counts.values()))
    found = {name: fuzz(name, given.seed, count) for name, count in counts.items()}
    defects = sum(len(each["defects"]) for each in found.values())
    if given.out is not None:
        command = shlex.join(["python", "tests/fuzz.py", *sys.argv[1:]])
        record = {"provenance": provenance(command), "seed": given.seed, "inputs": sum(counts.values())}
        record |= {"defects": defects, "fuzzers": found}
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(record, indent=2) + "\n")
    print(f"{sum(counts.values())} inputs, {defects} defects")
    return 1 if defects else 0


if __name__ == "__main__":
    sys.exit(main())
