"""Measures and tests, as pure functions of records."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def rank_sum_p(a: ArrayLike, b: ArrayLike) -> float:
    """Two-sided Wilcoxon rank-sum test of two samples; 10 against 10 fully separated give 1.6e-4."""
    from scipy.stats import ranksums

    return float(ranksums(np.asarray(a), np.asarray(b)).pvalue)
