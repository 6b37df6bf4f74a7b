"""Random inputs for everything that guss reads: only documented errors may result.

    python tests/fuzz.py --count 100000                      all fuzzers; writes results/tests/fuzz.json
    python tests/fuzz.py --only presets --only npz --count 3000
    python tests/fuzz.py --only presets --index 17           one input, with its traceback

An input follows from --seed, the fuzzer's name and its index. Inputs are tried in another process: if one kills it, the
next process continues after that input, which is reported.
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


Job = tuple[str, int, int]
"""A fuzzer's name, its first input and the one after its last."""


def work(jobs: list[Job], seed: int) -> None:
    """All inputs of some fuzzers, a JSON line for each on standard output."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    from fuzzers import FUZZERS, attempt

    def too_slow(*_: Any) -> None:
        raise Slow

    signal.signal(signal.SIGALRM, too_slow)
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    for name, start, stop in jobs:
        with tempfile.TemporaryDirectory(prefix="guss-fuzz-", dir=_memory_disk()) as folder:
            fuzzer = FUZZERS[name](Path(folder))
            print(json.dumps({"name": name}), file=out)
            for index in range(start, stop):
                signal.alarm(SECONDS)
                try:
                    outcome, given, error = attempt(name, fuzzer, seed, index)
                except Slow as slow:
                    outcome, given, error = "defect", "(see --index)", slow
                signal.alarm(0)
                print(
                    json.dumps({"name": name, "index": index, "outcome": outcome} | _about(outcome, given, error)),
                    file=out,
                )


def _about(outcome: str, given: Any, error: BaseException | None) -> dict[str, str]:
    if outcome != "defect" or error is None:
        return {}
    place = traceback.extract_tb(error.__traceback__)[-1]
    told = {"error": f"{type(error).__name__}: {error}"[:300], "at": f"{Path(place.filename).name}:{place.lineno}"}
    return told | {"input": repr(given)[:500]}


def _memory_disk() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def fuzz(counts: dict[str, int], seed: int) -> dict[str, dict[str, Any]]:
    """All inputs of these fuzzers, in as many processes as it takes."""
    found: dict[str, dict[str, Any]] = {
        name: {"inputs": count, "accepted": 0, "refused": 0, "defects": []} for name, count in counts.items()
    }
    jobs: list[Job] = [(name, 0, count) for name, count in counts.items()]
    while jobs:
        words = [sys.executable, __file__, "--work", json.dumps(jobs), "--seed", str(seed)]
        with tempfile.TemporaryFile("w+") as errors:
            started = time.perf_counter()
            with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
                assert process.stdout is not None
                ready = None
                for line in process.stdout:
                    row = json.loads(line)
                    if (name := row.pop("name")) != ready:
                        ready, started = name, time.perf_counter()
                        jobs = jobs[[job[0] for job in jobs].index(name) :]
                        continue
                    jobs[0] = (name, row["index"] + 1, jobs[0][2])
                    _count(name, found[name], row)
                    if jobs[0][1] == jobs[0][2]:
                        _conclude(name, found[name], time.perf_counter() - started)
            errors.seek(0)
            told = errors.read()[-800:]
        name, at, stop = jobs[0]
        if ready != name:
            raise SystemExit(f"the fuzzer {name} does not start:\n{told}")
        if at < stop:
            row = {"index": at, "outcome": "defect", "error": f"the process ended with code {process.returncode}"}
            _count(name, found[name], row | {"at": told})
            jobs[0] = (name, at + 1, stop)
        jobs = [job for job in jobs if job[1] < job[2]]
    return found


def _count(name: str, found: dict[str, Any], row: dict[str, Any]) -> None:
    outcome = row.pop("outcome")
    if outcome != "defect":
        found[outcome] += 1
    else:
        found["defects"].append(row)
        if len(found["defects"]) <= SHOWN:
            print(f"{name}: DEFECT {json.dumps(row)}", flush=True)
    if (row["index"] + 1) % 1000 == 0:
        print(f"{name}: {row['index'] + 1} of {found['inputs']}, {len(found['defects'])} defects", flush=True)


def _conclude(name: str, found: dict[str, Any], seconds: float) -> None:
    found["seconds"] = round(seconds, 1)
    told = ", ".join(f"{found[outcome]} {outcome}" for outcome in ("accepted", "refused"))
    pace = f"{found['inputs'] / max(seconds, 1e-3):.0f}/s"
    print(f"{name}: {found['inputs']} inputs, {told}, {len(found['defects'])} defects, {pace}", flush=True)


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
    given = parser.parse_args()
    os.environ.setdefault("NPROC", "1")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    if given.work:
        work(json.loads(given.work), given.seed)
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
    found = fuzz(counts, given.seed)
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
