"""The report's page: one HTML file with everything in it, that asks nothing of the network.

The parts are in `page_parts/`; the payload goes in as JSON, and the page's scripts make text of it, never markup.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib.resources import files
from typing import Any

from guss.errors import GussError
from guss.reports.escapes import one_line
from guss.reports.style import COLOURS

SCRIPTS = ("dom", "table", "axes", "chart", "curves", "panels", "player", "page")
"""One script is made of these, each using what the ones before it define."""


def build_page(payload: dict[str, Any]) -> str:
    """The whole page, from what was compared."""
    _check_runs(payload)
    try:
        data = json.dumps(payload, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as problem:
        raise GussError(
            f"the page's payload must be JSON with finite numbers: {problem}; a measure that does not exist is null"
        ) from problem
    script = "\n".join([f"const COLOURS = {json.dumps(COLOURS)};", *(_part(f"{name}.js") for name in SCRIPTS)])
    fills = {
        "title": html.escape(one_line(payload.get("title") or "results")),
        "style": _part("page.css"),
        "data": data.replace("<", "\\u003c"),  # no end of a script, no comment
        "script": script,
        "script-hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    }
    return re.sub(r"\{\{([a-z-]+)\}\}", lambda mark: fills[mark[1]], _part("page.html"))


def _part(name: str) -> str:
    return (files("guss.reports") / "page_parts" / name).read_text(encoding="utf-8").rstrip("\n")


def _check_runs(payload: dict[str, Any]) -> None:
    """Numbers lead to the runs they are of."""
    known = {run["run"] for run in payload.get("runs", [])}
    envs = [env for part in (payload, *payload.get("groups", [])) for env in part.get("envs", [])]
    named = {row["run"] for env in envs for row in env["rows"] if row.get("run") is not None}
    if named - known:
        lost = ", ".join(sorted(named - known))
        raise GussError(f"the page's numbers lead to their runs, but the payload's `runs` has no entry for {lost}")
