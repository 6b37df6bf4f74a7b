"""A small canvas for `render`: shapes on a picture, without a window system."""

from __future__ import annotations

import numpy as np

Colour = tuple[int, int, int]
UNSAFE: Colour = (240, 176, 176)
INK: Colour = (60, 60, 60)


class Canvas:
    """A square picture of the region [low, high]², y upwards."""

    def __init__(self, low: float, high: float, pixels: int = 500) -> None:
        axis = np.linspace(low, high, pixels)
        self.x, self.y = axis[None, :], axis[::-1][:, None]
        self.image = np.full((pixels, pixels, 3), 255, np.uint8)

    def paint(self, where: np.ndarray, colour: Colour) -> None:
        """Colour the pixels of a mask."""
        self.image[where] = colour

    def rectangle(self, x0: float, x1: float, y0: float, y1: float, colour: Colour) -> None:
        """A filled rectangle."""
        self.paint((self.x >= x0) & (self.x <= x1) & (self.y >= y0) & (self.y <= y1), colour)

    def disc(self, centre: np.ndarray, radius: float, colour: Colour) -> None:
        """A filled circle."""
        self.paint((self.x - centre[0]) ** 2 + (self.y - centre[1]) ** 2 <= radius**2, colour)

    def sector(self, radius: float, start: float, stop: float, colour: Colour) -> None:
        """A slice of a disc around the origin; angles from upright, growing to the left, in radians."""
        angle = np.arctan2(-self.x, self.y)
        self.paint((self.x**2 + self.y**2 <= radius**2) & (angle >= start) & (angle <= stop), colour)

    def line(self, start: np.ndarray, stop: np.ndarray, width: float, colour: Colour) -> None:
        """A line with round ends."""
        direction = np.asarray(stop, float) - start
        along = ((self.x - start[0]) * direction[0] + (self.y - start[1]) * direction[1]) / max(
            direction @ direction, 1e-12
        )
        along = np.clip(along, 0.0, 1.0)
        distance = (self.x - start[0] - along * direction[0]) ** 2 + (self.y - start[1] - along * direction[1]) ** 2
        self.paint(distance <= (width / 2) ** 2, colour)
