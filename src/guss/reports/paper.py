"""The paper's own figures, to be shown beside ours."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("paper.toml").read_text())


def paper_figures(env: str, method: str) -> dict[str, list[float]]:
    """Table 1's measures of a method, each [mean, half-width]; empty where the paper has none."""
    found = _table().get(env.replace("-", "_"), {}).get(method.replace("-", "_"), {})
    return {name: list(pair) for name, pair in found.items()}
