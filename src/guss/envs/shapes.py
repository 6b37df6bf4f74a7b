"""Drawings as lists of shapes, for browsers and for a small canvas that needs no window system.

("disc", x, y, radius, colour)
("line", x0, y0, x1, y1, width, colour)              with round ends
("rect", x0, x1, y0, y1, colour)
("sector", radius, start, stop, colour)              of a disc around the origin
("ring", inner, outer, start, stop, colour)          a sector without its middle

Angles are in radians from upright and grow to the left; y points upwards; colours are "#rrggbb".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from guss.errors import UnknownNameError

Shape = tuple[Any, ...]
UNSAFE, INK = "#f0b0b0", "#3c3c3c"
KINDS = ("disc", "line", "rect", "sector", "ring")


def paint(shapes: Iterable[Shape], world: tuple[float, float], pixels: int = 500) -> np.ndarray:
    """Draw shapes in the region [low, high]² as a square RGB image, later shapes over earlier ones."""
    canvas = Canvas(world, pixels)
    for kind, *numbers, colour in shapes:
        if kind not in KINDS:
            raise UnknownNameError("shape", str(kind), KINDS)
        canvas.image[getattr(canvas, kind)(*numbers)] = tuple(bytes.fromhex(colour[1:]))
    return canvas.image


class Canvas:
    """A square image of a region; each method returns the mask of pixels that a shape covers."""

    def __init__(self, world: tuple[float, float], pixels: int) -> None:
        axis = np.linspace(*world, pixels)
        self.x, self.y = axis[None, :], axis[::-1][:, None]
        self.squared, self.angle = self.x**2 + self.y**2, np.arctan2(-self.x, self.y)
        self.image = np.full((pixels, pixels, 3), 255, np.uint8)

    def rect(self, x0: float, x1: float, y0: float, y1: float) -> np.ndarray:
        return (self.x >= x0) & (self.x <= x1) & (self.y >= y0) & (self.y <= y1)

    def disc(self, x: float, y: float, radius: float) -> np.ndarray:
        return (self.x - x) ** 2 + (self.y - y) ** 2 <= radius**2

    def sector(self, radius: float, start: float, stop: float) -> np.ndarray:
        """A slice of a disc around the origin."""
        return self.ring(0.0, radius, start, stop)

    def ring(self, inner: float, outer: float, start: float, stop: float) -> np.ndarray:
        """A slice of a ring around the origin."""
        between = (self.squared >= inner**2) & (self.squared <= outer**2)
        return between & ((self.angle - start) % (2.0 * np.pi) <= stop - start)

    def line(self, x0: float, y0: float, x1: float, y1: float, width: float) -> np.ndarray:
        """A line with round ends."""
        dx, dy = x1 - x0, y1 - y0
        along = ((self.x - x0) * dx + (self.y - y0) * dy) / max(dx * dx + dy * dy, 1e-12)
        along = np.clip(along, 0.0, 1.0)
        return (self.x - x0 - along * dx) ** 2 + (self.y - y0 - along * dy) ** 2 <= (width / 2) ** 2
