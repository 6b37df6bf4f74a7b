"""`make bench`: guss and every peer side by side, taking turns, in one run. `--only pendulum` measures that anew.

Writes `results.json` (a list of case, ours_ms, peer, peer_ms, ratio, …), `details.json` (start-up, growth, machine),
`table.md` and `scaling.png`. guss runs in this interpreter, peers in the one that `--peers` names.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from guss.bench.cases import FITS, PLANS
from guss.bench.clock import LIMIT, Worker, compare, ours
from guss.bench.environments import environments
from guss.bench.scaling import AXES, measure
from guss.bench.startup import startup
from guss.bench.suite import label
from guss.reports.bench import draw_scaling, growth, markdown
from guss.runs.provenance import provenance

HERE = Path(__file__).resolve().parent
SEEDS = (1, 6)


def peers_of(name: str, seeds: int) -> dict[str, list[str]]:
    """Scripts and their arguments, by the peer's name."""
    found: dict[str, list[str]] = {}
    if name in FITS:
        fit = FITS[name]
        words = [fit.model, str(fit.batch), str(fit.steps), str(fit.rows)]
        script = ["with_torch_fit.py", *words]
        return {"PyTorch": [*script, "plain"], "PyTorch, tuned": script}
    method = PLANS[name].method
    if method == "guss":
        if name != "acrobot" or seeds == 1:  # QDax keeps all 50⁴ cells of the acrobot: 3.5 GB a seed
            found["QDax"] = ["with_qdax.py", name, str(seeds)]
        if seeds == 1:
            found["pyribs"] = ["with_ribs.py", name]
    elif seeds == 1 and method == "cem":
        found["mbrl-lib"] = ["with_torch.py", "mbrl", name]
        found["pytorch-icem"] = ["with_torch.py", "icem", name]
    elif seeds == 1 and method == "rs":
        found["pytorch-mppi"] = ["with_torch.py", "mppi", name]
    return found


def measure_case(name: str, seeds: int, peers_python: str, seconds: float, threads: int) -> list[dict[str, Any]]:
    """All of one case's rows."""
    kind, least = ("fit", "products") if name in FITS else ("plan", "limit")
    us = ours(kind, name, seeds, threads)
    them = {LIMIT: ours(least, name, seeds, threads)} | {
        peer: Worker([peers_python, *words], threads, cwd=str(HERE / "peers"))
        for peer, words in peers_of(name, seeds).items()
    }
    try:
        return [asdict(row) for row in compare(label(name, seeds), us, them, seconds, threads)]
    finally:
        for worker in (us, *them.values()):
            worker.close()


def check_same_jax(peers_python: str) -> None:
    """QDax and pyribs compute with the peers' JAX: with another version than ours, times would not compare."""
    try:
        say = [peers_python, "-c", "from importlib.metadata import version; print(version('jax'))"]
        theirs = subprocess.run(say, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"{peers_python} is not a Python with the peers and their JAX ({error}); `make bench` sets one up")
    if theirs != version("jax"):
        sys.exit(
            f"guss runs with jax {version('jax')}, its peers with jax {theirs}: their times would not compare. The "
            f"peers' versions are for Python 3.11; set up both with it: make bench PYTHON=python3.11"
        )


def main() -> None:
    """Measure, and write after every case, so that little is lost if it is stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", default=str(HERE.parent / ".venv-peers" / "bin" / "python"), help="their Python")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to")
    parser.add_argument("--only", nargs="*", default=[], help="cases, startup, environments, scaling; others stay")
    parser.add_argument("--seconds", type=float, default=8.0, help="for each case and number of seeds")
    parser.add_argument("--threads", type=int, default=1, help="of every process, ours and theirs")
    args = parser.parse_args()
    known = [*PLANS, *FITS, "startup", "environments", "scaling"]
    if unknown := set(args.only) - set(known):
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    wanted = lambda name: not args.only or name in args.only  # noqa: E731
    results, details = args.out / "results.json", args.out / "details.json"
    rows: list[dict[str, Any]] = json.loads(results.read_text()) if results.exists() else []
    more: dict[str, Any] = json.loads(details.read_text()) if details.exists() else {}

    def write() -> None:
        args.out.mkdir(parents=True, exist_ok=True)
        results.write_text(json.dumps(rows, indent=1) + "\n")
        details.write_text(json.dumps(more, indent=1) + "\n")
        (args.out / "table.md").write_text(markdown(rows, more))

    if any(wanted(name) for name in (*PLANS, *FITS)):
        check_same_jax(args.peers)
    words = ["benchmarks/run.py", *(w for w in sys.argv[1:] if "/" not in w and w not in ("--peers", "--out"))]
    for name in filter(wanted, [*PLANS, *FITS]):
        for seeds in SEEDS if name in PLANS else (1,):
            print(f"{label(name, seeds)} ...", flush=True)
            new = measure_case(name, seeds, args.peers, args.seconds, args.threads)
            case = label(name, seeds)
            order = [label(n, s) for n in (*PLANS, *FITS) for s in SEEDS]
            rows = sorted([r for r in rows if r["case"] != case] + new, key=lambda r: order.index(r["case"]))
            more.setdefault("provenance", {})[case] = provenance(shlex.join(words))
            write()
            for row in new:
                print(
                    f"  {row['ours_ms']:.3f} ms; {row['peer']} {row['peer_ms']:.3f} ms: {row['ratio']:.2f}", flush=True
                )
    if wanted("startup"):
        more["startup"] = startup()
        write()
    if wanted("environments"):
        more["environments"] = environments()
        more.setdefault("provenance", {})["environments"] = provenance(shlex.join(words))
        write()
    if wanted("scaling"):
        points = []
        for axis, values in AXES.items():
            for value in values:
                print(f"scaling: {axis} = {value:,} ...", flush=True)
                points.append(measure(axis, value, args.threads))
        more["scaling"], more["growth"] = points, growth(points)
        more.setdefault("provenance", {})["scaling"] = provenance(shlex.join(words))
        write()
        draw_scaling(points, args.out / "scaling")


if __name__ == "__main__":
    main()
