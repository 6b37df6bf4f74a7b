"""One side of a benchmark, in a separate process: prepares its work, then repeats it as often as the runner requests.

worker:  {"ready": true, "first_seconds": 1.2}      after the first call, which compiles
runner:  20
worker:  [0.0021, 0.0020, …]                        seconds of each of 20 calls
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any


def serve(work: Callable[[], Any]) -> None:
    """Answer the runner until it closes the pipe. `work` must block until its result is ready."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # output of libraries is not an answer
    started = time.perf_counter()
    work()
    _say(answers, {"ready": True, "first_seconds": time.perf_counter() - started})
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            started = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - started)
        _say(answers, seconds)


def _say(answers: Any, what: Any) -> None:
    answers.write(json.dumps(what) + "\n")
    answers.flush()
