"""The grid of behaviour cells; an archive keeps the best plans of each cell."""

from __future__ import annotations

import math
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from guss.errors import GussError

MAX_CELLS = 2**31 - 1
Vector = Sequence[float] | np.ndarray | Array


class Grid(eqx.Module):
    """The behaviour space: bounds for each of the B descriptor dimensions and a number of cells along each.

    `low`, `high`: B finite numbers each. `cells`: B numbers of cells; descriptors beyond the bounds fall in border
    cells. Raises GussError if lengths differ, bounds are not finite or in order, or there are more cells than an int32
    can index.

    Example:
        >>> grid = guss.Grid(low=(-1.0, -1.0), high=(1.0, 1.0), cells=(10, 10))
        >>> cell, outside = grid.cell(jnp.array([0.95, 3.0]))
        >>> int(cell), bool(outside)
        (99, True)
    """

    low: Float[Array, "B"]
    high: Float[Array, "B"]
    cells: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, low: Vector, high: Vector, cells: Sequence[int]) -> None:
        self.low = jnp.asarray(low, jnp.float32)
        self.high = jnp.asarray(high, jnp.float32)
        self.cells = tuple(int(n) for n in cells)

    def __check_init__(self) -> None:
        if self.low.ndim != 1 or self.low.shape != self.high.shape or self.low.shape != (len(self.cells),):
            raise GussError(
                f"descriptor bounds need one low, one high and one number of cells per dimension, "
                f"got {self.low.shape} low, {self.high.shape} high, {len(self.cells)} cells"
            )
        if not self.cells or min(self.cells) < 1:
            raise GussError(f"every descriptor dimension needs at least 1 cell, got {self.cells}")
        for i, (low, high) in enumerate(zip(self.low.tolist(), self.high.tolist(), strict=True)):
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise GussError(
                    f"descriptor bounds of dimension {i} must be finite with low < high, got [{low}, {high}]"
                )
        if math.prod(self.cells) > MAX_CELLS:
            raise GussError(
                f"a grid of {self.cells} has {math.prod(self.cells)} cells, more than {MAX_CELLS}, the largest int32; "
                f"use fewer cells per dimension"
            )

    @property
    def num_cells(self) -> int:
        """Total number of cells."""
        return math.prod(self.cells)

    def cell(self, descriptor: Float[Array, "B"]) -> tuple[Int[Array, ""], Bool[Array, ""]]:
        """The cell of a descriptor, and whether the descriptor lies beyond the bounds (then a border cell)."""
        counts = jnp.asarray(self.cells, jnp.float32)
        # Multiply, then divide: a value on the edge of a cell must not be rounded into the previous cell.
        position = jnp.floor((descriptor - self.low) * counts / (self.high - self.low))
        index = jnp.clip(jnp.nan_to_num(position), 0.0, counts - 1.0).astype(jnp.int32)
        strides = [math.prod(self.cells[i + 1 :]) for i in range(len(self.cells))]
        outside = jnp.any((descriptor < self.low) | (descriptor > self.high))
        return jnp.sum(index * jnp.asarray(strides, jnp.int32)), outside


def learned_grid(obs_size: int) -> Grid:
    """The grid of a learned behaviour: principal components, scaled to [−1, 1] by the observed range."""
    dims = min(2, obs_size)
    return Grid(low=(-1.0,) * dims, high=(1.0,) * dims, cells=(50,) * dims)
