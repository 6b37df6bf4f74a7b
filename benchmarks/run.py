"""`make bench`: compares the speed of guss with every peer, taking turns. In the root of the repository:

python -m benchmarks.run                                  everything, about 20 minutes; writes to benchmarks/
python -m benchmarks.run --only pendulum                  measure this case again, keep other results
python -m benchmarks.run --peers none --only pendulum     guss against the limit, without peers; writes nothing

Writes `results.json` (a list of case, ours_ms, peer, peer_ms, ratio, …), `details.json` (start-up, growth, machine),
`table.md` and `scaling.png`. guss runs in this interpreter, peers in the interpreter that `--peers` names.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from contextlib import ExitStack, closing
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.cases import FITS, PLANS, label
from benchmarks.clock import LIMIT, Worker, compare, row_text
from benchmarks.environments import environment_text, environments
from benchmarks.scaling import AXES, measure
from benchmarks.startup import startup
from benchmarks.tables import draw_scaling, growth, markdown
from guss.runs.provenance import provenance

HERE = Path(__file__).resolve().parent
NO_PEERS = "none"
SEEDS = (1, 6)
PARTS = [*PLANS, *FITS, "startup", "environments", "scaling"]


class Results:
    """All measurements so far; `folder`: where they are stored (None: nowhere); `command`: what makes them."""

    def __init__(self, folder: Path | None, command: str) -> None:
        self.folder, self.command = folder, command
        self.rows: list[dict[str, Any]] = self._stored("results.json") or []
        self.details: dict[str, Any] = self._stored("details.json") or {}

    def _stored(self, name: str) -> Any:
        path = None if self.folder is None else self.folder / name
        return None if path is None or not path.exists() else json.loads(path.read_text())

    def add_case(self, case: str, rows: list[dict[str, Any]]) -> None:
        """Replace the rows of a case."""
        order = [label(name, seeds) for name in (*PLANS, *FITS) for seeds in SEEDS]
        self.rows = sorted(
            [row for row in self.rows if row["case"] != case] + rows, key=lambda row: order.index(row["case"])
        )
        self.add(case)

    def add(self, part: str, **details: Any) -> None:
        """Store these details and their provenance; written at once, so that an interrupt loses little."""
        self.details |= details
        self.details.setdefault("provenance", {})[part] = provenance(self.command)
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "results.json").write_text(json.dumps(self.rows, indent=1) + "\n")
            (self.folder / "details.json").write_text(json.dumps(self.details, indent=1) + "\n")
            (self.folder / "table.md").write_text(markdown(self.rows, self.details))


def peers_of(name: str, seeds: int) -> dict[str, list[str]]:
    """Modules of `benchmarks.peers` and their arguments, by the peer's name."""
    if name in FITS:
        fit = FITS[name]
        words = ["with_torch_fit", fit.model, str(fit.batch), str(fit.steps), str(fit.rows)]
        return {"PyTorch": [*words, "plain"], "PyTorch, tuned": words}
    found: dict[str, list[str]] = {}
    method = PLANS[name].method
    if method == "guss":
        if name != "acrobot" or seeds == 1:  # QDax keeps all 50⁴ cells of the acrobot: 3.5 GB a seed
            found["QDax"] = ["with_qdax", name, str(seeds)]
        if seeds == 1:
            found["pyribs"] = ["with_ribs", name]
    elif seeds == 1 and method == "cem":
        found["mbrl-lib"] = ["with_torch", "mbrl", name]
        found["pytorch-icem"] = ["with_torch", "icem", name]
    elif seeds == 1 and method == "rs":
        found["pytorch-mppi"] = ["with_torch", "mppi", name]
    return found


def measure_case(name: str, seeds: int, peers_python: str, seconds: float, threads: int) -> list[dict[str, Any]]:
    """The rows of one case: guss against the limit and every peer."""
    kinds = ("fit", "products") if name in FITS else ("plan", "limit")
    our_command, limit = ([sys.executable, "-m", "benchmarks.ours", kind, name, str(seeds)] for kind in kinds)
    commands = {LIMIT: limit}
    if peers_python != NO_PEERS:
        for peer, (module, *words) in peers_of(name, seeds).items():
            commands[peer] = [peers_python, "-m", f"benchmarks.peers.{module}", *words]
    with ExitStack() as stack:
        us = stack.enter_context(closing(Worker(our_command, threads)))
        them = {peer: stack.enter_context(closing(Worker(words, threads))) for peer, words in commands.items()}
        return [asdict(row) for row in compare(label(name, seeds), us, them, seconds, threads)]


def check_same_jax(peers_python: str) -> None:
    """Exit if the peers have another JAX version: QDax and pyribs use it, so times would not be comparable."""
    try:
        say = [peers_python, "-c", "from importlib.metadata import version; print(version('jax'))"]
        theirs = subprocess.run(say, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(
            f"{peers_python} is not a Python interpreter with the peers and JAX ({error}); `make bench` sets one up"
        )
    if theirs != version("jax"):
        sys.exit(
            f"guss runs with jax {version('jax')}, its peers with jax {theirs}: their times are not comparable. The "
            f"peers' versions are for Python 3.11; set up both with it: make bench PYTHON=python3.11"
        )


def main() -> None:
    """Measure, print, and write after every case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peers = str(HERE.parent / ".venv-peers" / "bin" / "python")
    parser.add_argument(
        "--peers", default=peers, help=f"Python interpreter of the peers; {NO_PEERS}: only guss against the limit"
    )
    parser.add_argument("--out", type=Path, help="folder to write to (default: benchmarks/; without peers: none)")
    parser.add_argument("--only", nargs="*", default=[], choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--seconds", type=float, default=8.0, help="time for each case and number of seeds")
    parser.add_argument("--threads", type=int, default=1, help="threads of every process")
    args = parser.parse_args()
    wanted = args.only or PARTS
    cases = [name for name in (*PLANS, *FITS) if name in wanted]
    if cases and args.peers != NO_PEERS:
        check_same_jax(args.peers)
    words = ["--peers", NO_PEERS] * (args.peers == NO_PEERS) + ["--only", *args.only] * bool(args.only)
    words += ["--seconds", f"{args.seconds:g}", "--threads", str(args.threads)]  # no paths of this machine
    command = shlex.join(["python", "-m", "benchmarks.run", *words])
    results = Results(HERE if args.out is None and args.peers != NO_PEERS else args.out, command)
    for name in cases:
        for seeds in SEEDS if name in PLANS else (1,):
            print(f"{label(name, seeds)} ...", flush=True)
            rows = measure_case(name, seeds, args.peers, args.seconds, args.threads)
            results.add_case(label(name, seeds), rows)
            for row in rows:
                ours, peer, ratio = row_text(row)
                print(f"  {ours}; {row['peer']} {peer}: {ratio}", flush=True)
    if "startup" in wanted:
        results.add("startup", startup=startup())
        for name, ms in results.details["startup"].items():
            print(f"{name}: {ms:,.0f} ms", flush=True)
    if "environments" in wanted:
        results.add("environments", environments=environments())
        print(environment_text(results.details["environments"]), flush=True)
    if "scaling" in wanted:
        points = []
        for axis, values in AXES.items():
            for value in values:
                points.append(measure(axis, value, args.threads))
                ms, memory = points[-1]["ms"], points[-1]["program_mb"]
                print(f"{axis} {value:,}: {ms:,.2f} ms, {memory:,.1f} MB", flush=True)
        results.add("scaling", scaling=points, growth=growth(points))
        if results.folder is not None:
            draw_scaling(points, results.folder / "scaling")


if __name__ == "__main__":
    main()
