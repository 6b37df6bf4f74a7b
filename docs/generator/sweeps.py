"""Measured properties of sweeps: speed, faults, memory, and the cost of the paper's table."""

from __future__ import annotations

from docs.generator.parts import ROOT, load, number, part
from docs.generator.studies import made
from guss.reports.escapes import markdown_table
from guss.reports.inventory import read_record
from guss.sweeps.forecast import seconds_until_done

HOUR = 3600.0


@part("sweep-measurements")
def measurements() -> str:
    """A list of what was measured."""
    return "\n".join((_speed(), _faults(), _memory()))


def _speed() -> str:
    """Two workers compared with one."""
    found = load("results/sweeps/speed.json")
    seconds = found["seconds"]
    workers = str(found["workers"])
    text = (
        f"- **Speed**: {found['runs']} short runs take {number(seconds['1'], 0)} s with one worker and "
        f"{number(seconds[workers], 0)} s with {workers} workers on {workers} cores: "
        f"{number(100 * found['share_of_sequential_time'], 0)} % of the time, with the same records."
    )
    return f"{text} {made(found['provenance'])}"


def _faults() -> str:
    """Injected faults."""
    found = load("results/tests/faults.json")
    kinds = ", ".join(f"{count} × {kind}" for kind, count in found["faults"].items())
    text = (
        f"- **Faults**: {found['total']} faults in one study of {number(found['episodes'], 0)} episodes ({kinds}): no "
        f"finished episode was lost or repeated, and the records equal those of a study without faults. In "
        f"{found['episodes_that_an_environment_failed_in']} episodes, the environment itself failed; they are "
        f"recorded as failed."
    )
    return f"{text} {made(found['provenance'])}"


def _memory() -> str:
    """Memory of a worker."""
    found = load("results/sweeps/memory.json")
    low, high = (number(found[f"{name}_after_2000_episodes"], 0) for name in ("smallest", "largest"))
    last = number(found["rows"][-1][1], 0)
    text = f"- **Memory**: from episode 2,000 to episode {last} of a worker, it uses {low} to {high} MB."
    return f"{text} {made(found['provenance'])}"


@part("sweep-cost")
def cost() -> str:
    """Core-hours of the table by environment, and its duration with several numbers of cores."""
    found: dict[str, list[float]] = {}
    for home in sorted((ROOT / "results" / "runs").glob("safe-*")):
        record = read_record(home)
        spent = sum(line["fit_seconds"] + line["plan_seconds"] for line in record.timings)
        found.setdefault(record.env, []).append(spent)
    rows = []
    for name, seconds in [*found.items(), ("all", [x for each in found.values() for x in each])]:
        durations = [seconds_until_done(seconds, workers) for workers in (2, 16, 96)]
        rows.append(
            [name, str(len(seconds)), *(f"{number(x / HOUR, 1)} h" for x in (sum(seconds), max(seconds), *durations))]
        )
    heads = ["environment", "runs", "core time", "longest run", "2 cores", "16 cores", "96 cores"]
    return "\n".join(markdown_table(heads, rows, rule="---:"))
