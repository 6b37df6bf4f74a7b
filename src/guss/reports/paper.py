"""The values of the paper's Table 1, shown next to ours."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("paper.toml").read_text())


def paper_figures(env: str, method: str) -> dict[str, list[float]]:
    """Table 1's measures of a method, each [mean, half-width]; {} if the paper has none."""
    found = _table().get(env.replace("-", "_"), {}).get(method.replace("-", "_"), {})
    return {name: list(pair) for name, pair in found.items()}


def paper_methods(env: str | None = None) -> list[str]:
    """The methods of Table 1, or of one environment in it, in the table's order: safe methods first."""
    table = _table()
    parts = table.values() if env is None else [table.get(env.replace("-", "_"), {})]
    longest_first = sorted(parts, key=len, reverse=True)
    return list(dict.fromkeys(name.replace("_", "-") for part in longest_first for name in part))
