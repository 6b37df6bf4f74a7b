"""What the page is told: rows, curves, tests, figures and films as plain data."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import guss
from guss import metrics
from guss.envs import ENVS
from guss.errors import GussError
from guss.reports.curves import curve_of, far_apart, level_of
from guss.reports.gathering import Record
from guss.reports.measuring import THRESHOLDS, measure_of
from guss.reports.style import label_of, label_of_env, style_of
from guss.reports.table import Row, verdict_of
from guss.runs.films import NAME as FILM
from guss.runs.films import read_film

if TYPE_CHECKING:
    from guss.reports.report import Report

HERO = "guss"
"""The method that others are tested against in the tables, and whose film is shown first."""
Drawn = dict[tuple[str, str], list[Path]]

CAPTIONS = {
    "pareto": (
        "Pareto fronts",
        "MAR against unsafe steps, here and in the paper. Methods on the same line are of the same rank: none of them "
        "is both better and safer than another (Fig. 5 of the paper).",
    ),
    "model": (
        "The learned model",
        "How much of the variance the model does not explain, one step and a whole plan ahead, and how far its "
        "predicted spread is from a calibrated one, by episode. Medians over seeds.",
    ),
    "coverage": ("State space covered", "Share of the map's cells visited by the end of every stored episode."),
    "states": (
        "Where it was, and where it was unsafe",
        "All steps, and the unsafe ones, of the episodes stored step by step. Brighter: more of them; pink: unsafe.",
    ),
    "gallery": ("The environments", "What is unsafe is red, in the toy world grey; a goal is green."),
    "exploration": (
        "The toy world: exploration with a perfect model",
        "Fig. 2 of the paper: the world, safe plans, safe space explored, reward and cost by step.",
    ),
    "trajectories": ("The toy world: paths", "Appendix B of the paper: the paths of all seeds, unsafe steps in red."),
}


def make_payload(report: Report, out: Path, drawn: Drawn, notes: list[str], command: str) -> dict[str, Any]:
    """All that the page shows. `notes`: what could not be drawn."""
    from guss.reports.report import all_records

    notes = [*report.found.notes, *notes]
    envs = [_env(report, env, rows, drawn, notes) for env, rows in report.tables.items()]
    return {
        "title": report.name,
        "version": guss.__version__,
        "command": command,
        "about": _about(report),
        "missing": notes,
        "envs": envs,
        "groups": _groups(report),
        "figures": [_figure(kind, files) for (env, kind), files in drawn.items() if not env],
        "runs": [_run(record, out) for record in all_records(report)],
    }


def _about(report: Report) -> list[str]:
    told = []
    for env, rows in report.tables.items():
        steps = sum(int(row.record.values("steps").sum()) for row in rows)
        told.append(f"{label_of_env(env)}: {len(rows)} methods, {steps:,} real steps.")
    return told


def _env(report: Report, env: str, rows: list[Row], drawn: Drawn, notes: list[str]) -> dict[str, Any]:
    films = []
    for row in sorted(rows, key=lambda row: row.method != HERO):  # the first is shown first
        try:
            film = read_film(row.record.home)
        except GussError as error:
            notes.append(f"{label_of_env(env)}, {row.label}: its film cannot be shown: {report.found.brief(error)}.")
            continue
        if film is not None:
            data = base64.b64encode((row.record.home / FILM).read_bytes()).decode()
            films.append({"method": row.method, "label": row.label, "data": data})
    return {
        "name": env,
        "label": label_of_env(env),
        "about": ENVS[env].summary if env in ENVS.names() else "",
        "reward": metrics.MEASURES[measure_of(env, rows[0].record.episodes)],
        "threshold": THRESHOLDS.get(env),
        "verdict": verdict_of(env, rows, report.tests[env]),
        "rows": [_row(row) for row in rows],
        "curves": _curves(env, rows),
        "tests": report.tests[env],
        "figures": [_figure(kind, files) for (of, kind), files in drawn.items() if of == env and kind != "learning"],
        "films": films,
    }


def _row(row: Row) -> dict[str, Any]:
    record, style = row.record, style_of(row.method)
    return {
        "method": row.method,
        "label": row.label,
        "section": row.section,
        "safe": row.safe,
        "color": style["color"],
        "dash": style["linestyle"],
        "run": record.name,
        "seeds": len(record.seeds),
        "episodes": record.done,
        "planned": record.asked,
        "rank": row.rank,
        "measures": row.measures,
        "plan_ms": row.plan_ms,
        "evaluations": row.evaluations,
    }


def _curves(env: str, rows: list[Row]) -> list[dict[str, Any]]:
    """Reward and unsafe steps by episode; random actions as a level."""
    measure = measure_of(env, rows[0].record.episodes)
    random = next((row.record for row in rows if row.method == "random"), None)
    acting = [row.record for row in rows if row.record is not random] or [row.record for row in rows]
    threshold = THRESHOLDS.get(env)
    panels = (
        ("reward", metrics.MEASURES[measure], measure, None),
        ("unsafe steps", "unsafe steps [%]", "unsafe_pct", 0),
    )
    return [
        {
            "title": title,
            "ylabel": label,
            "floor": floor,
            "lines": [_line(record, field, far_apart(acting)) for record in acting],
            "level": {"value": threshold, "label": "the paper's threshold"}
            if title == "reward" and threshold
            else None,
            "random": None if random is None else {"value": _short(level_of(random, field) or 0.0)},
            "logx": far_apart(acting),
        }
        for title, label, field, floor in panels
    ]


def _line(record: Record, field: str, log: bool) -> dict[str, Any]:
    curve = curve_of(record, field, log)
    values = {name: [_short(v) for v in getattr(curve, name)] for name in ("mean", "low", "high")}
    return {"method": record.method, "label": label_of(record.method), "x": curve.number.tolist()} | values


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _groups(report: Report) -> list[dict[str, Any]]:
    from guss.reports.report import group_title

    return [
        {
            "name": name,
            "label": group_title(report, name),
            "envs": [
                {
                    "name": env,
                    "label": label_of_env(env),
                    "rows": [_row(row) for row in rows],
                    "tests": report.group_tests[name].get(env, []),
                }
                for env, rows in tables.items()
            ],
        }
        for name, tables in report.groups.items()
    ]


def _figure(kind: str, files: list[Path]) -> dict[str, Any]:
    """The smaller of its files, inlined."""
    title, caption = CAPTIONS[kind.rpartition("-")[2]]
    smallest = min(files, key=lambda path: path.stat().st_size)
    mime = {".png": "image/png", ".svg": "image/svg+xml"}[smallest.suffix]
    data = base64.b64encode(smallest.read_bytes()).decode()
    return {"title": title, "caption": caption, "src": f"data:{mime};base64,{data}"}


def _run(record: Record, out: Path) -> dict[str, Any]:
    from guss.reports.report import flat, machine_of

    origin = record.origin
    settings = {k: v for k, v in record.config.items() if k not in ("env", "method", "seeds", "episodes")}
    return {
        "run": record.name,
        "folder": Path(os.path.relpath(record.home, out)).as_posix(),
        "command": origin.get("command", "not stored"),
        "commit": origin.get("commit") or "not stored",
        "date": origin.get("date", "not stored"),
        "machine": machine_of(record),
        "versions": ", ".join(f"{name} {value}" for name, value in origin.get("versions", {}).items()),
        "seeds": record.seeds,
        "episodes": record.done,
        "settings": ", ".join(f"{name} {value}" for name, value in flat(settings).items()),
    }
