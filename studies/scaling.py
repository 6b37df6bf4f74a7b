"""How sweeps scale: the speed of two workers beside one, and the memory of a worker over many episodes.

python studies/scaling.py speed       # results/sweeps/speed.json; about ten minutes on an otherwise idle machine
python studies/scaling.py memory      # results/sweeps/memory.json and memory.png; about ten minutes
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from guss.progress import make_console
from guss.reports.style import new_figure
from guss.runs.provenance import provenance
from guss.runs.store import write_json
from guss.sweeps.executors import cores, worker_command
from guss.sweeps.folder import SweepFolder
from guss.sweeps.study import make_study

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "results" / "sweeps"
MEMORY = {
    "env": "safe-toy",
    "method": "rs",
    "model": "oracle",
    "initial_episodes": 0,
    "seeds": [[seed] for seed in range(100)],
    "episodes": 100,
    "horizon": 3,
    "budget": 10,
}
"""10,000 short episodes in 100 runs."""


def run_all(study: Path, workers: int, out: Path) -> float:
    """Seconds of a sweep."""
    started = time.perf_counter()
    words = ["sweep", str(study), "--out", str(out), "--workers", str(workers), "--no-report", "--quiet"]
    subprocess.run([sys.executable, "-m", "guss", *words], check=True)
    return time.perf_counter() - started


def speed(most: int) -> None:
    """Time 24 short runs with one worker and with several; the records must agree."""
    study, seconds = ROOT / "studies" / "short_runs.toml", {1: 0.0, most: 0.0}
    with tempfile.TemporaryDirectory() as folder:
        run_all(study, most, Path(folder) / "warm")  # fills the compilation cache
        for workers in seconds:
            seconds[workers] = run_all(study, workers, Path(folder) / str(workers))
        records = [
            {path.parent.name: path.read_bytes() for path in sorted(Path(folder).glob(f"{workers}/*/episodes.jsonl"))}
            for workers in seconds
        ]
    assert len(records[0]) == 24
    assert records[0] == records[1], "the records differ"
    content = {"workers": most, "seconds": seconds, "share_of_sequential_time": seconds[most] / seconds[1]}
    save("speed", content | {"runs": 24, "records_equal": True})


def memory() -> None:
    """Resident memory of one worker, every second, over 10,000 short episodes."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = SweepFolder(Path(name), make_study(MEMORY))
        folder.store(provenance("studies/scaling.py"))
        process = subprocess.Popen([*worker_command(folder.out, "worker")], stderr=subprocess.DEVNULL)
        started = time.perf_counter()
        while process.poll() is None:
            status = Path(f"/proc/{process.pid}/status").read_text()
            kilobytes = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")]
            episodes = sum(each.done for each in folder.statuses())
            if kilobytes and episodes:
                rows.append((round(time.perf_counter() - started, 1), episodes, round(kilobytes[0] / 1024, 1)))
            time.sleep(1.0)
        assert process.returncode == 0
        assert all(each.state == "finished" for each in folder.statuses())
    late = [megabytes for _, episodes, megabytes in rows if episodes >= 2000]
    save("memory", {"study": MEMORY, "columns": ["seconds", "episodes", "megabytes"], "rows": rows[::3]}
         | {"largest_after_2000_episodes": max(late), "smallest_after_2000_episodes": min(late)})  # fmt: skip
    figure, axes = new_figure(1, 1, 6.0, 3.2)
    axes.plot([row[1] for row in rows], [row[2] for row in rows], lw=1.4)
    axes.set(xlabel="episodes", ylabel="resident memory of the worker [MB]", ylim=(0, 1.2 * max(late)), xlim=(0, None))
    axes.set_title("One worker, 100 runs of 100 short episodes", fontsize=10)
    figure.savefig(OUT / "memory.png", dpi=150, metadata={"Software": None})


def save(name: str, content: dict[str, Any]) -> None:
    """Store a result with its provenance, and print it."""
    OUT.mkdir(parents=True, exist_ok=True)
    command = shlex.join(["python", "studies/scaling.py", *sys.argv[1:]])
    write_json(OUT / f"{name}.json", {"provenance": provenance(command)} | content)
    make_console().print(json.dumps({key: value for key, value in content.items() if key != "rows"}, indent=2))


def main() -> None:
    """Measure one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "memory"])
    parser.add_argument("--workers", type=int, default=len(cores()))
    args = parser.parse_args()
    if args.what == "speed":
        speed(args.workers)
    else:
        memory()


if __name__ == "__main__":
    main()
