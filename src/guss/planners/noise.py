"""Temporally correlated (coloured) noise."""

import numpy as np


def colouring(horizon: int, exponent: float) -> np.ndarray:
    """The matrix [H, H] that turns white noise into noise whose power falls as frequency^−exponent.

    Columns are cosines and sines of all frequencies k = 0 … H/2, scaled by max(k, 1)^(−exponent/2) (Timmer 1995, as in
    Pinneri 2020); every step has variance 1.
    """
    t, columns = np.arange(horizon), []
    for k in range(horizon // 2 + 1):
        scale = max(k, 1) ** (-exponent / 2.0)
        if k in (0, horizon / 2):  # one column instead of two: half the power
            columns.append(scale * np.sqrt(0.5) * np.cos(2.0 * np.pi * k * t / horizon))
        else:
            columns += [scale * f(2.0 * np.pi * k * t / horizon) for f in (np.cos, np.sin)]
    matrix = np.stack(columns, axis=1)
    return (matrix / np.sqrt(np.sum(matrix**2, axis=1, keepdims=True))).astype(np.float32)
