"""The report page: one self-contained HTML file that makes no network requests.

`make_payload` returns its data: rows, curves, tests, figures and animations. `build_page` combines these data, as JSON,
with the files in `page_parts/`. The page's scripts insert texts of the data as text, never as HTML.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import guss
from guss.errors import GussError
from guss.reports.curves import curve_of, far_apart, level_of, panels_of, with_random_apart
from guss.reports.escapes import file_stem, one_line
from guss.reports.inventory import Record
from guss.reports.labels import compared_settings, flat
from guss.reports.sizes import sizes_of
from guss.reports.style import COLOURS
from guss.reports.table import Row
from guss.runs import metrics
from guss.runs.animation import read_animation
from guss.runs.description import bundled_env
from guss.runs.store import packed_json

if TYPE_CHECKING:
    from guss.reports.report import Report

HERO = "guss"
"""The method with which the tables compare all other methods; its animation is shown first."""
Drawn = dict[tuple[str, str], dict[Path, bytes]]
"""Files of figures with their contents, by (environment or "", kind)."""


def make_payload(report: Report, out: Path, drawn: Drawn, notes: list[str], command: str) -> dict[str, Any]:
    """The data of the page. `notes`: figures that could not be drawn, and why."""
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
        steps = sum(int(row.values("steps").sum()) for row in rows)
        methods = len({row.method for row in rows})
        runs = "" if methods == len(rows) else f", {len(rows)} settings"
        texts.append(f"{rows[0].env_label}: {methods} methods{runs}, {steps:,} real steps.")
    return texts


def _env(report: Report, env: str, rows: list[Row], drawn: Drawn, notes: list[str]) -> dict[str, Any]:
    animations = []
    for row in sorted(rows, key=lambda row: row.method != HERO):  # the page opens with the first animation
        try:
            animation = read_animation(row.home)
        except GussError as error:
            notes.append(f"{row.who}: its animation cannot be read: {report.found.brief(error)}.")
            continue
        if animation is not None:
            data = base64.b64encode(packed_json(animation)).decode()
            animations.append({"method": row.key, "label": row.label, "data": data})
    first, entry = rows[0], bundled_env(env)
    about = next((row.facts.env.about for row in rows if row.facts is not None), "")
    return {
        "id": stem_of(env),
        "name": env,
        "label": first.env_label,
        "about": about if entry is None else entry.summary,
        "reward": metrics.MEASURES[first.measure],
        "threshold": first.threshold,
        "verdict": report.verdicts[env],
        "sizes": sizes_of(rows),
        "rows": [_row(row) for row in rows],
        "curves": _curves(rows),
        "tests": report.tests[env],
        "figures": [_figure(kind, files) for (of, kind), files in drawn.items() if of == env and kind != "learning"],
        "animations": animations,
    }


def stem_of(env: str) -> str:
    """The name of an environment in file names and links; a custom environment gets a safe, unique name."""
    return file_stem(env, kept=bundled_env(env) is not None)


def _row(row: Row) -> dict[str, Any]:
    """`method` is the row's key in curves, tests and animations."""
    return {
        "method": row.key,
        "label": row.label,
        "section": row.section,
        "safe": row.safe,
        "color": row.style["color"],
        "dash": row.style["linestyle"],
        "run": row.where,
        "seeds": len(row.seeds),
        "episodes": row.done,
        "planned": row.config["episodes"],
        **{name: getattr(row, name) for name in ("rank", "measures", "plan_ms", "evaluations")},
        **{name: getattr(row, name) for name in ("by_cost", "measured", "jitter")},
    }


def _curves(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Curves of reward and unsafe steps by episode; random actions as a horizontal line."""
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
            "label": title.replace("`", ""),
            "envs": [
                {
                    "name": env,
                    "label": rows[0].env_label,
                    "sizes": sizes_of(rows),
                    "rows": [_row(row) for row in rows],
                    "tests": tests[env],
                }
                for env, rows in tables.items()
            ],
        }
        for name, (title, tables, tests) in report.groups.items()
    ]


def _figure(kind: str, files: dict[Path, bytes]) -> dict[str, Any]:
    """Title, caption and smallest file of a figure, the file as a data URL."""
    texts = tomllib.loads(_part("captions.toml"))[kind.rpartition("-")[2]]
    path, content = min(files.items(), key=lambda file: len(file[1]))
    mime = {".png": "image/png", ".svg": "image/svg+xml"}[path.suffix]
    return {**texts, "src": f"data:{mime};base64,{base64.b64encode(content).decode()}"}


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


# --------------------------------------------------------------------------------------------------------------- HTML

SCRIPTS = ("dom", "table", "axes", "chart", "curves", "panels", "player", "page")
"""Parts of the page's script, each after the parts that it uses."""


def build_page(payload: dict[str, Any]) -> str:
    """The HTML page for the data of `make_payload`."""
    try:
        data = json.dumps(payload, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as problem:
        raise GussError(
            f"the page's payload must be JSON with finite numbers: {problem}; use null for an undefined measure"
        ) from problem
    script = "\n".join([f"const COLOURS = {json.dumps(COLOURS)};", *(_part(f"{name}.js") for name in SCRIPTS)])
    fills = {
        "title": html.escape(one_line(payload.get("title") or "results")),
        "style": _part("page.css"),
        "data": data.replace("<", "\\u003c"),  # no </script> and no <!--
        "script": script,
        "script-hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    }
    return re.sub(r"\{\{([a-z-]+)\}\}", lambda mark: fills[mark[1]], _part("page.html"))


def _part(name: str) -> str:
    return (resources.files("guss.reports") / "page_parts" / name).read_text(encoding="utf-8").rstrip("\n")
