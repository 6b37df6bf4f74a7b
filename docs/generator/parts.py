"""The registry of generated parts, and helpers that format numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PARTS: dict[str, Callable[[], str]] = {}
"""Functions that return the text of a part, by name."""


def part(name: str, *args: Any) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """Register a function that writes a part; repeated decorators with different arguments write several parts."""

    def register(function: Callable[..., str]) -> Callable[..., str]:
        if name in PARTS:
            raise ValueError(f"two functions write the part {name!r}")
        PARTS[name] = partial(function, *args)
        return function

    return register


@cache
def load(path: str) -> Any:
    """A stored JSON file."""
    return json.loads((ROOT / path).read_text())


def number(value: float | None, digits: int = 3) -> str:
    """A number with a minus sign (−); a dash for None."""
    return "–" if value is None else f"{value:,.{digits}f}".replace("-", "−")


def short(value: float) -> str:
    """A number in the format of the paper."""
    return f"{value:g}".replace("-", "−")


def pair(values: list[float | None], digits: int = 3) -> str:
    """`mean ± half-width`, or a dash."""
    mean, half = values
    if mean is None:
        return "–"
    return number(mean, digits) if half is None else f"{number(mean, digits)} ± {number(half, digits)}"


def p_value(p: float | None) -> str:
    """A p-value with two digits."""
    return "–" if p is None else f"{p:.2g}"


def p_below(p: float | None) -> str:
    """`p = VALUE`, for sentences."""
    return f"p = {p_value(p)}"
