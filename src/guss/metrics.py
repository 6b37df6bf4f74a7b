"""Measures and tests of appendix D, as pure functions of what was recorded.

Arrays are [S, N]: seeds by episodes, random episodes at the start included. MR(τ) is an episode's mean reward.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

TRANSIENT_SHARE = 0.15
MEASURES = {"mean_reward": "mean reward per step", "return": "return of an episode"}
"""What MR is for an environment, by the name of a record's field."""


class Interval(NamedTuple):
    """A mean and the half-width of its interval."""

    mean: float
    half_width: float


def mar(mean_reward: ArrayLike) -> np.ndarray:
    """Mean asymptotic reward of each seed: MR over episodes ⌊N/2⌋ + 1 … N."""
    rewards = _episodes(mean_reward)
    return rewards[:, rewards.shape[1] // 2 :].mean(axis=1)


def mrcp(mean_reward: ArrayLike, steps: ArrayLike, threshold: float) -> np.ndarray:
    """Mean reward convergence pace of each seed: real steps until MR first reaches the threshold; NaN if never."""
    rewards, counts = _episodes(mean_reward), _episodes(steps)
    total = np.cumsum(counts, axis=1)
    reached = rewards >= threshold
    first = total[np.arange(len(rewards)), reached.argmax(axis=1)].astype(float)
    return np.where(reached.any(axis=1), first, np.nan)


def p_unsafe(unsafe_pct: ArrayLike) -> np.ndarray:
    """Percentage of unsafe steps of each seed, over all episodes."""
    return _episodes(unsafe_pct).mean(axis=1)


def p_unsafe_transient(unsafe_pct: ArrayLike) -> np.ndarray:
    """Percentage of unsafe steps of each seed, over the first ⌈0.15 N⌉ episodes."""
    values = _episodes(unsafe_pct)
    count = math.ceil(round(TRANSIENT_SHARE * values.shape[1], 9))  # 0.15 · 20 is 3, not a little more
    return values[:, :count].mean(axis=1)


def interval(values: ArrayLike, level: float = 0.9) -> Interval:
    """Mean and Gaussian half-width over the values given (seeds, or seeds × episodes); NaN left out."""
    from scipy.special import ndtri  # the normal quantile; scipy.stats takes half a second to import

    kept = np.asarray(values, float).ravel()
    kept = kept[~np.isnan(kept)]
    if kept.size == 0:
        return Interval(math.nan, math.nan)
    if kept.size == 1:
        return Interval(float(kept[0]), math.nan)
    half = ndtri(0.5 + level / 2) * kept.std(ddof=1) / math.sqrt(kept.size)
    return Interval(float(kept.mean()), float(half))


def welch_p(a: ArrayLike, b: ArrayLike) -> float:
    """Two-sided Welch t-test: do the means differ?"""
    from scipy.stats import ttest_ind

    return float(ttest_ind(np.asarray(a, float), np.asarray(b, float), equal_var=False).pvalue)


def rank_sum_p(a: ArrayLike, b: ArrayLike) -> float:
    """Two-sided Wilcoxon rank-sum test of two samples; 10 against 10 fully separated give 1.6e-4."""
    from scipy.stats import ranksums

    return float(ranksums(np.asarray(a), np.asarray(b)).pvalue)


def pareto_ranks(reward: ArrayLike, unsafe: ArrayLike) -> np.ndarray:
    """Fronts of (reward up, unsafe down): 1 for what nothing dominates, 2 for what only front 1 dominates, …"""
    r, u = np.asarray(reward, float), np.asarray(unsafe, float)
    dominates = (r[:, None] >= r) & (u[:, None] <= u) & ((r[:, None] > r) | (u[:, None] < u))
    ranks = np.zeros(len(r), int)
    while (ranks == 0).any():
        left = ranks == 0
        front = left & ~(dominates & left[:, None]).any(axis=0)
        ranks[front] = ranks.max() + 1
    return ranks


def _episodes(values: ArrayLike) -> np.ndarray:
    array = np.asarray(values, float)
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"expected an array [seeds, episodes] with at least one episode, got shape {array.shape}")
    return array
