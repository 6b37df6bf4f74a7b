"""Risk measures: how the costs that a model's particles predict for a plan become one cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float

from guss.errors import GussError, UnknownNameError

LEVELS: dict[str, tuple[str, str, Callable[[float], bool]] | None] = {
    "worst": None,
    "mean": None,
    "cvar": ("cvar:0.4", "more than 0 and at most 1", lambda level: 0.0 < level <= 1.0),
    "share": ("share:0.2", "at least 0 and less than 1", lambda level: 0.0 <= level < 1.0),
}
"""For each measure with a level: an example, the range of the level, and whether a level is in it."""
DIGITS = 9
"""Rounding of level · P, so that 0.07 · 100 counts as 7 particles."""


@dataclass(frozen=True)
class RiskMeasure:
    """The mean of some of the costs of P particles, in descending order.

    worst      the largest cost
    mean       all costs
    cvar:α     the ⌈α·P⌉ largest costs (conditional value at risk)
    share:δ    the next cost after the ⌊δ·P⌋ largest ones: 0 if at most a share δ of the particles has a cost (a chance
               constraint, estimated from particles; the value at risk)
    """

    name: str
    level: float | None = None

    @classmethod
    def parse(cls, text: str) -> RiskMeasure:
        """The measure that a setting such as `worst` or `cvar:0.4` names; `str(measure)` is the setting."""
        name, colon, given = text.partition(":")
        if name not in LEVELS:
            raise UnknownNameError("risk measure", name, LEVELS)
        about = LEVELS[name]
        if about is None:
            if colon:
                raise GussError(f"risk {text!r}: the measure {name} has no level; write {name!r}")
            return cls(name)
        example, allowed, is_allowed = about
        try:
            level = float(given)
        except ValueError:
            level = math.nan
        if not is_allowed(level):
            got = repr(given) if colon else "none"
            raise GussError(f"risk {text!r}: {name} needs a level {allowed}, such as {example}; got {got}")
        return cls(name, level)

    def __str__(self) -> str:
        return self.name if self.level is None else f"{self.name}:{self.level:.12g}"

    def ranks(self, count: int) -> tuple[int, int]:
        """The costs that count, from the first to before the second rank, in descending order; `count`: P."""
        if self.name == "mean":
            return 0, count
        if self.level is None:
            return 0, 1
        particles = round(self.level * count, DIGITS)
        if self.name == "cvar":
            return 0, max(1, math.ceil(particles))
        left_out = min(math.floor(particles), count - 1)
        return left_out, left_out + 1

    def __call__(self, costs: Float[Array, "P"]) -> Float[Array, ""]:
        """The cost of a plan from its costs under all particles."""
        count = costs.shape[0]
        first, last = self.ranks(count)
        if (first, last) == (0, 1):
            return jnp.max(costs)
        if (first, last) == (0, count):
            return jnp.mean(costs)
        return jnp.mean(jnp.sort(costs)[count - last : count - first])
