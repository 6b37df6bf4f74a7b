"""The whole of `guss bench`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from guss.bench.cases import FITS, PLANS
from guss.bench.clock import LIMIT, Row, compare, ours
from guss.bench.environments import environments
from guss.bench.scaling import AXES, measure
from guss.bench.startup import startup
from guss.errors import UnknownNameError


def measure_all(
    parts: Iterable[str],
    cases: Iterable[str],
    seeds: Iterable[int],
    seconds: float,
    threads: int,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """`rows` of plans and fits against the limit, `startup` in milliseconds, `environments`, `scaling` by point."""
    parts, cases, seeds = tuple(parts), tuple(cases), tuple(seeds)
    for name in cases:
        if name not in PLANS and name not in FITS:
            raise UnknownNameError("case", name, [*PLANS, *FITS])
    wanted = lambda name: not cases or name in cases  # noqa: E731
    rows: list[Row] = []
    if "plans" in parts:
        for name in filter(wanted, PLANS):
            for count in seeds:
                say(f"plan {name}, {count} at once")
                rows += against_limit("plan", "limit", name, count, seconds, threads)
    if "fits" in parts:
        for name in filter(wanted, FITS):
            say(f"{name}")
            rows += against_limit("fit", "products", name, 1, seconds, threads)
    found: dict[str, Any] = {"rows": rows}
    if "startup" in parts:
        say("start-up")
        found["startup"] = startup()
    if "environments" in parts:
        say("environments")
        found["environments"] = environments()
    if "scaling" in parts:
        points = found["scaling"] = []
        for axis, values in AXES.items():
            for value in values:
                say(f"scaling: {axis} = {value:,}")
                points.append(measure(axis, value, threads))
    return found


def label(name: str, seeds: int) -> str:
    """A case's name in the results."""
    return name if seeds == 1 else f"{name} × {seeds} seeds"


def against_limit(kind: str, least: str, name: str, seeds: int, seconds: float, threads: int) -> list[Row]:
    """Ours beside what no one can beat."""
    us = ours(kind, name, seeds, threads)
    limit = ours(least, name, seeds, threads)
    try:
        return compare(label(name, seeds), us, {LIMIT: limit}, seconds, threads)
    finally:
        us.close()
        limit.close()
