"""The data of the page: rows, curves, tests, figures and animations as plain data."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import guss
from guss.errors import GussError
from guss.reports.curves import curve_of, far_apart, level_of, panels_of, with_random_apart
from guss.reports.escapes import file_stem
from guss.reports.inventory import Record
from guss.reports.labels import compared_settings, flat
from guss.reports.table import Row
from guss.runs import metrics
from guss.runs.animation import read_animation
from guss.runs.description import bundled_env
from guss.runs.store import packed_json

if TYPE_CHECKING:
    from guss.reports.report import Report

HERO = "guss"
"""The method that others are tested against in the tables, and whose animation is shown first."""
Drawn = dict[tuple[str, str], dict[Path, bytes]]
"""By (environment or "", kind): the files of a figure, with their contents."""

CAPTIONS = {
    "pareto": (
        "Pareto fronts",
        "MAR against unsafe steps. Methods on the same line are of the same rank: none of them "
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
        "runs": [_run(record, out) for record in report.found.all_records],
    }


def _about(report: Report) -> list[str]:
    texts = []
    for rows in report.tables.values():
        steps = sum(int(row.record.values("steps").sum()) for row in rows)
        methods = len({row.method for row in rows})
        runs = "" if methods == len(rows) else f", {len(rows)} settings"
        texts.append(f"{rows[0].record.env_label}: {methods} methods{runs}, {steps:,} real steps.")
    return texts


def _env(report: Report, env: str, rows: list[Row], drawn: Drawn, notes: list[str]) -> dict[str, Any]:
    animations = []
    for row in sorted(rows, key=lambda row: row.method != HERO):  # the first is shown first
        try:
            animation = read_animation(row.record.home)
        except GussError as error:
            notes.append(f"{row.record.who}: its animation cannot be shown: {report.found.brief(error)}.")
            continue
        if animation is not None:
            data = base64.b64encode(packed_json(animation)).decode()
            animations.append({"method": row.key, "label": row.label, "data": data})
    first, entry = rows[0].record, bundled_env(env)
    about = next((row.record.facts.env.about for row in rows if row.record.facts is not None), "")
    return {
        "id": stem_of(env),
        "name": env,
        "label": first.env_label,
        "about": about if entry is None else entry.summary,
        "reward": metrics.MEASURES[first.measure],
        "threshold": first.threshold,
        "verdict": report.verdicts[env],
        "rows": [_row(row) for row in rows],
        "curves": _curves([row.record for row in rows]),
        "tests": report.tests[env],
        "figures": [_figure(kind, files) for (of, kind), files in drawn.items() if of == env and kind != "learning"],
        "animations": animations,
    }


def stem_of(env: str) -> str:
    """An environment's name in file names and addresses: a bundled one's own, for others a safe and unique one."""
    return file_stem(env, kept=bundled_env(env) is not None)


def _row(row: Row) -> dict[str, Any]:
    """`method` is the row's key: what curves, tests and animations are found by."""
    record, style = row.record, row.record.style
    return {
        "method": row.key,
        "label": row.label,
        "section": row.section,
        "safe": row.safe,
        "color": style["color"],
        "dash": style["linestyle"],
        "run": record.where,
        "seeds": len(record.seeds),
        "episodes": record.done,
        "planned": record.asked,
        "rank": row.rank,
        "measures": row.measures,
        "plan_ms": row.plan_ms,
        "evaluations": row.evaluations,
        "by_cost": row.by_cost,
    }


def _curves(records: list[Record]) -> list[dict[str, Any]]:
    """Reward and unsafe steps by episode; random actions as a level."""
    acting, random = with_random_apart(records)
    log, threshold = far_apart(acting), records[0].threshold
    goal = {"value": threshold, "label": "the paper's threshold"} if threshold else None
    titles, floors, levels = ("reward", "unsafe steps"), (None, 0), (goal, None)
    return [
        {
            "title": title,
            "ylabel": label,
            "floor": floor,
            "lines": [_line(record, field, log) for record in acting],
            "level": level,
            "random": None if random is None else {"value": _short(level_of(random, field))},
            "logx": log,
        }
        for title, floor, level, (field, label) in zip(titles, floors, levels, panels_of(records[0]), strict=True)
    ]


def _line(record: Record, field: str, log: bool) -> dict[str, Any]:
    curve = curve_of(record, field, log)
    values = {name: [_short(v) for v in getattr(curve, name)] for name in ("mean", "low", "high")}
    return {"method": record.key, "label": record.label, "x": curve.number.tolist()} | values


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _groups(report: Report) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "label": report.group_titles[name],
            "envs": [
                {
                    "name": env,
                    "label": rows[0].record.env_label,
                    "rows": [_row(row) for row in rows],
                    "tests": report.group_tests[name].get(env, []),
                }
                for env, rows in tables.items()
            ],
        }
        for name, tables in report.groups.items()
    ]


def _figure(kind: str, files: dict[Path, bytes]) -> dict[str, Any]:
    """The smaller of its files, inlined."""
    title, caption = CAPTIONS[kind.rpartition("-")[2]]
    path, content = min(files.items(), key=lambda file: len(file[1]))
    mime = {".png": "image/png", ".svg": "image/svg+xml"}[path.suffix]
    return {"title": title, "caption": caption, "src": f"data:{mime};base64,{base64.b64encode(content).decode()}"}


def _run(record: Record, out: Path) -> dict[str, Any]:
    origin = record.origin
    return {
        "run": record.where,
        "folder": Path(os.path.relpath(record.home, out)).as_posix(),
        "command": record.command or "not stored",
        "commit": str(origin.get("commit") or "not stored"),
        "date": str(origin.get("date", "not stored")),
        "machine": record.machine,
        "versions": ", ".join(f"{name} {value}" for name, value in origin.get("versions", {}).items()),
        "seeds": record.seeds,
        "episodes": record.done,
        "settings": ", ".join(f"{name} {value}" for name, value in flat(compared_settings(record.config)).items()),
        "plugins": ", ".join(record.facts.plugins) if record.facts is not None else "",
    }
