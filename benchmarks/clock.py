"""The clock: workers in separate processes take turns, so other load on the machine affects all alike."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from guss.errors import GussError

LIMIT = "limit"


@dataclass(frozen=True)
class Row:
    """One line of the results: milliseconds, best and median of all turns.

    `ratio`: how many times faster than the peer guss is; against the limit, the time of guss over the limit.
    """

    case: str
    ours_ms: float
    peer: str
    peer_ms: float
    ratio: float
    ours_median_ms: float
    peer_median_ms: float
    ours_first_ms: float
    peer_first_ms: float
    turns: int
    threads: int


def row_text(row: dict[str, Any]) -> tuple[str, str, str]:
    """The times of guss and of the peer, and their ratio."""
    ours, peer = (f"{row[f'{who}_ms']:.2f} ms ({row[f'{who}_median_ms']:.2f})" for who in ("ours", "peer"))
    return ours, peer, f"{row['ratio']:.2f} × the limit" if row["peer"] == LIMIT else f"{row['ratio']:.1f} × faster"


class Worker:
    """A process that repeats its work on request (`benchmarks.worker`)."""

    def __init__(self, command: Sequence[str], threads: int) -> None:
        self.command = " ".join(command)
        env = os.environ | dict.fromkeys(("NPROC", "OMP_NUM_THREADS", "BENCH_THREADS"), str(threads))
        try:
            self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        except OSError as error:
            raise GussError(f"cannot start {self.command}: {error.strerror}") from error
        self.seconds: list[float] = []
        self.first_seconds = float(self._hear()["first_seconds"])

    def _hear(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.close()
            code = self.process.returncode
            raise GussError(f"{self.command} ended with exit code {code}: its errors are above")
        return json.loads(line)

    def turn(self, times: int) -> None:
        """Repeat the work `times` times."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{times}\n")
        self.process.stdin.flush()
        self.seconds += self._hear()

    def close(self) -> None:
        """End the process."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.wait()


def compare(case: str, us: Worker, peers: dict[str, Worker], seconds: float, threads: int) -> list[Row]:
    """All workers take turns until `seconds` are over, at least three each; a turn is about a twentieth of a second."""
    workers = [us, *peers.values()]
    for worker in workers:
        worker.turn(1)
    counts = [max(1, round(0.05 / worker.seconds[0])) for worker in workers]
    for worker in workers:
        worker.seconds.clear()
    deadline = time.monotonic() + seconds
    turns = 0
    while turns < 3 or time.monotonic() < deadline:
        for worker, count in zip(workers, counts, strict=True):
            worker.turn(count)
        turns += 1
    best = lambda worker: 1e3 * min(worker.seconds)  # noqa: E731
    middle = lambda worker: 1e3 * statistics.median(worker.seconds)  # noqa: E731
    return [
        Row(
            case=case,
            ours_ms=best(us),
            peer=name,
            peer_ms=best(worker),
            ratio=best(us) / best(worker) if name == LIMIT else best(worker) / best(us),
            ours_median_ms=middle(us),
            peer_median_ms=middle(worker),
            ours_first_ms=1e3 * us.first_seconds,
            peer_first_ms=1e3 * worker.first_seconds,
            turns=turns,
            threads=threads,
        )
        for name, worker in peers.items()
    ]
