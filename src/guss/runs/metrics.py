"""Measures and tests of appendix D, as pure functions of the records.

Arrays are [S, N]: seeds by episodes, initial random episodes included. MR(τ) is an episode's mean reward.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

TRANSIENT_SHARE = 0.15
MEASURES = {"mean_reward": "mean reward per step", "return": "return of an episode"}
"""The meaning of MR by the name of a record's field; environments use one or the other."""


THRESHOLDS = {"safe-pendulum": -2.5, "safe-acrobot": 1.6, "safe-car-goal": 10.0, "safe-car-goal-full": 10.0}
"""MRCP thresholds, in the paper's measure for the environment: mean reward per step, or return of an episode."""


class RunMetrics(NamedTuple):
    """The paper's measures of every seed, and the jitter of its actions, [S]; NaN if undefined.

    Example:
        >>> metrics = guss.RunMetrics(*np.array([[-1.0, -2.0], [3.0, np.nan], [0.5, 1.5], [2.0, 4.0], [0.1, 0.2]]))
        >>> float(metrics.unsafe_pct.mean())
        1.0
    """

    mar: np.ndarray
    """Mean asymptotic reward."""
    mrcp_ksteps: np.ndarray
    """Mean reward convergence pace: thousands of real steps until the threshold is reached."""
    unsafe_pct: np.ndarray
    """Unsafe steps [%]."""
    unsafe_trans_pct: np.ndarray
    """Unsafe steps of the first 15 % of episodes [%]."""
    jitter: np.ndarray
    """Mean change of the action from step to step, as a share of its range, over the episodes of `mar`; NaN if the run
    was stored by a version that did not record it."""
    unsafe_pct_by_cost: Mapping[str, np.ndarray] = MappingProxyType({})
    """Steps that violate each constraint, and steps with each measured cost (`Task.measured`) [%], by name; empty if
    the records do not have them, because the only cost is that of one constraint."""


def run_metrics(
    rewards: ArrayLike,
    unsafe_pct: ArrayLike,
    steps: ArrayLike,
    threshold: float | None,
    by_cost: Mapping[str, ArrayLike] = MappingProxyType({}),
    jitter: ArrayLike | None = None,
) -> RunMetrics:
    """All measures of one run. `threshold`: of MRCP; None if the environment has none. `by_cost`: as `unsafe_pct`.
    `jitter`: None if it is not stored."""
    never = np.full(len(np.asarray(rewards)), np.nan)
    return RunMetrics(
        mar=mar(rewards),
        mrcp_ksteps=never if threshold is None else mrcp(rewards, steps, threshold) / 1000,
        unsafe_pct=p_unsafe(unsafe_pct, steps),
        unsafe_trans_pct=p_unsafe_transient(unsafe_pct, steps),
        jitter=never if jitter is None else asymptotic_jitter(jitter),
        unsafe_pct_by_cost={name: p_unsafe(shares, steps) for name, shares in by_cost.items()},
    )


class Interval(NamedTuple):
    """A mean and the half-width of its confidence interval."""

    mean: float
    half_width: float


def mar(mean_reward: ArrayLike) -> np.ndarray:
    """Mean asymptotic reward of each seed: MR over episodes ⌊N/2⌋ + 1 … N."""
    rewards = _episodes(mean_reward)
    return rewards[:, rewards.shape[1] // 2 :].mean(axis=1)


def asymptotic_jitter(jitter: ArrayLike) -> np.ndarray:
    """Jitter of each seed: mean over episodes ⌊N/2⌋ + 1 … N with at least two steps; NaN if there are none."""
    values = _episodes(jitter)
    late = values[:, values.shape[1] // 2 :]
    known = ~np.isnan(late)
    count = known.sum(axis=1)
    return np.where(count > 0, np.where(known, late, 0.0).sum(axis=1) / np.maximum(count, 1), np.nan)


def mrcp(mean_reward: ArrayLike, steps: ArrayLike, threshold: float) -> np.ndarray:
    """Mean reward convergence pace of each seed: real steps until MR first reaches the threshold; NaN if never."""
    rewards, counts = _episodes(mean_reward), _episodes(steps)
    total = np.cumsum(counts, axis=1)
    reached = rewards >= threshold
    first = total[np.arange(len(rewards)), reached.argmax(axis=1)].astype(float)
    return np.where(reached.any(axis=1), first, np.nan)


def p_unsafe(unsafe_pct: ArrayLike, steps: ArrayLike) -> np.ndarray:
    """Percentage of unsafe steps of each seed, over the steps of all episodes."""
    values, weights = _episodes(unsafe_pct), _episodes(steps)
    weights = weights / np.maximum(weights.mean(axis=1, keepdims=True), 1e-9)  # all 1 if lengths are equal
    return (values * weights).mean(axis=1)


def p_unsafe_transient(unsafe_pct: ArrayLike, steps: ArrayLike) -> np.ndarray:
    """Percentage of unsafe steps of each seed, over the first ⌈0.15 N⌉ episodes."""
    values, lengths = _episodes(unsafe_pct), _episodes(steps)
    first = transient_episodes(values.shape[1])
    return p_unsafe(values[:, :first], lengths[:, :first])


def transient_episodes(episodes: int) -> int:
    """⌈0.15 N⌉: number of episodes in the transient phase."""
    return math.ceil(round(TRANSIENT_SHARE * episodes, 9))  # 0.15 · 20 is 3, not a little more


def interval(values: ArrayLike, level: float = 0.9) -> Interval:
    """Mean and Gaussian half-width over the values (seeds, or seeds × episodes); NaN is ignored."""
    from scipy.special import ndtri  # the normal quantile; scipy.stats takes half a second to import

    kept = np.asarray(values, float).ravel()
    kept = kept[~np.isnan(kept)]
    if kept.size == 0:
        return Interval(math.nan, math.nan)
    if kept.size == 1:
        return Interval(float(kept[0]), math.nan)
    half = ndtri(0.5 + level / 2) * kept.std(ddof=1) / math.sqrt(kept.size)
    return Interval(float(kept.mean()), float(half))


def iqm(values: ArrayLike, axis: int | None = None) -> Any:
    """Interquartile mean: the mean without the lowest and the highest quarter (of six values, one each)."""
    from scipy.stats import trim_mean

    return trim_mean(values, 0.25, axis)


def bootstrap_iqm(values: ArrayLike, level: float = 0.9, draws: int = 10_000) -> tuple[float, float]:
    """Bootstrap percentile interval of the interquartile mean (one value per seed); deterministic."""
    from scipy.stats import bootstrap

    if np.size(values) < 2:
        return math.nan, math.nan
    how: Any = {"confidence_level": level, "n_resamples": draws, "rng": np.random.default_rng(0)}
    low, high = bootstrap((values,), iqm, method="percentile", **how).confidence_interval
    return float(low), float(high)


def welch_p(a: ArrayLike, b: ArrayLike) -> float:
    """p-value of the two-sided Welch t-test of equal means; NaN if a sample has a single value.

    If both samples are constant, the p-value is 1 for equal means and 0 otherwise.
    """
    from scipy.stats import ttest_ind_from_stats  # `ttest_ind` warns about constant samples

    x, y = np.asarray(a, float), np.asarray(b, float)
    if min(x.size, y.size) < 2:
        return math.nan
    negligible = 1e-12 * max(np.abs(x).max(), np.abs(y).max())
    if max(x.std(), y.std()) <= negligible:
        return float(abs(x.mean() - y.mean()) <= negligible)
    sides = (value for z in (x, y) for value in (z.mean(), z.std(ddof=1), z.size))
    return float(ttest_ind_from_stats(*sides, equal_var=False).pvalue)


def holm(p_values: ArrayLike) -> np.ndarray:
    """p-values with Holm's correction: rejecting below α keeps the family-wise error rate at α.

    NaN stays NaN and is not counted as a test.
    """
    p = np.asarray(p_values, float)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    steps = p[order] * (len(order) - np.arange(len(order)))
    corrected = np.full(p.shape, math.nan)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return corrected


def rank_sum_p(a: ArrayLike, b: ArrayLike) -> float:
    """p-value of the two-sided Wilcoxon rank-sum test; two fully separated samples of 10 give 1.6e-4."""
    from scipy.stats import ranksums

    return float(ranksums(np.asarray(a), np.asarray(b)).pvalue)


def pareto_ranks(reward: ArrayLike, unsafe: ArrayLike) -> np.ndarray:
    """Pareto ranks for (reward ↑, unsafe ↓): 1 if not dominated, 2 if dominated only by front 1, …"""
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
