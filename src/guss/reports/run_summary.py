"""Measures of appendix D for stored runs, with their uncertainty, planning times, and tests between runs."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from guss.files import writing
from guss.reports.curves import draw_learning
from guss.reports.inventory import Record, identified, read_record
from guss.reports.style import save_figure
from guss.runs import metrics
from guss.runs.rows import measured_costs, num_random, shares_by_cost
from guss.runs.store import by_seed_if_stored

MEASURES = ("mar", "mrcp_ksteps", "unsafe_pct", "unsafe_trans_pct")
"""The paper's measures, by their names in files."""
COMPARED = ("mar", "unsafe_pct", "unsafe_trans_pct")
"""Measures with tests between methods; MRCP is undefined for seeds that do not reach the threshold."""


def per_seed(record: Record) -> dict[str, np.ndarray]:
    """The paper's measures of every seed, and jitter if it is stored, [S]; NaN if undefined."""
    rewards, unsafe, steps = (record.values(name) for name in (record.measure, "unsafe_pct", "steps"))
    jitter = by_seed_if_stored(record.episodes, "jitter")
    found = metrics.run_metrics(rewards, unsafe, steps, record.threshold, jitter=jitter)
    names = (*MEASURES, "jitter") if jitter is not None else MEASURES
    return {name: getattr(found, name) for name in names}


def by_cost(record: Record) -> dict[str, np.ndarray]:
    """Unsafe steps of every seed by constraint, and steps with each measured cost [%].

    Empty if they are not stored, because the only cost is that of one constraint.
    """
    shares = shares_by_cost(record.episodes)
    return {name: metrics.p_unsafe(values, record.values("steps")) for name, values in shares.items()}


def pooled(record: Record) -> dict[str, np.ndarray]:
    """The values behind each measure, pooled over the episodes of all seeds, as the paper's small p-values suggest."""
    rewards = record.values(record.measure)
    unsafe = record.values("unsafe_pct")
    return {
        "mar": rewards[:, rewards.shape[1] // 2 :].ravel(),
        "unsafe_pct": unsafe.ravel(),
        "unsafe_trans_pct": unsafe[:, : metrics.transient_episodes(unsafe.shape[1])].ravel(),
    }


def json_numbers(values: Any, digits: int = 4) -> list[float | None]:
    """Rounded numbers for JSON; None for NaN."""
    return [None if math.isnan(x) else round(float(x), digits) for x in values]


def interval_pair(values: Any) -> list[float | None]:
    """`[mean, half-width of the 90 % interval]` for JSON; None if undefined."""
    return json_numbers(metrics.interval(values))


def planning(record: Record) -> tuple[float | None, int | None]:
    """Milliseconds per planned step of one seed, without compilation, and predicted transitions per step.

    The time is that of the fastest episode, which other work on the machine disturbed least. None for methods that do
    not plan.
    """
    config = record.config
    if record.kind is None or not record.kind.plans:
        return None, None
    net = config.get("model_settings") if config.get("model") != "oracle" else None
    net = net if isinstance(net, dict) else {}
    sizes = [config.get("budget"), config.get("horizon"), net.get("ensemble", 1), net.get("particles", 1)]
    evaluations = math.prod(sizes) if all(isinstance(size, int) for size in sizes) else None
    lengths = Counter[int]()
    for row in record.episodes:
        lengths[row["episode"]] += row["steps"] if row["phase"] == "plan" else 0
    quick = [
        1000 * row["plan_seconds"] / lengths[row["episode"]]
        for row in record.timings
        if lengths[row["episode"]] and not row.get("compiled_programs")
    ]
    return (round(min(quick), 3) if quick else None), evaluations


def compare(records: list[Record]) -> list[dict[str, Any]]:
    """Welch's test between all pairs of rows on one environment, with Holm's correction for the number of pairs.

    Over seeds, and over the pooled episodes of all seeds. p is None if a row has a single seed.
    """
    mine, all_of = {r.key: per_seed(r) for r in records}, {r.key: pooled(r) for r in records}
    pairs = list(combinations(mine, 2))
    rows = []
    for measure in COMPARED:
        over_seeds = [metrics.welch_p(mine[a][measure], mine[b][measure]) for a, b in pairs]
        over_all = [metrics.welch_p(all_of[a][measure], all_of[b][measure]) for a, b in pairs]
        columns = zip(pairs, over_seeds, metrics.holm(over_seeds), over_all, metrics.holm(over_all), strict=True)
        for (a, b), p, corrected, p_all, corrected_all in columns:
            difference = mine[a][measure].mean() - mine[b][measure].mean()
            found = {"p": p, "p_holm": corrected, "p_pooled": p_all, "p_pooled_holm": corrected_all}
            rows.append(
                {"measure": measure, "a": a, "b": b, "difference": round(float(difference), 4)}
                | {name: None if math.isnan(x) else float(f"{x:.3g}") for name, x in found.items()}
            )
    return rows


def summarise_run(home: Path) -> dict[str, Any]:
    """The measures of `per_seed`: `[mean, half-width of the 90 % interval over seeds]`, None if undefined."""
    return summarise_record(read_record(home))


def summarise_record(record: Record) -> dict[str, Any]:
    """`summarise_run` for a record."""
    found = per_seed(record)
    counted = range(record.done // 2, record.done)
    random = 0 if record.method == "random" else num_random(record.episodes)
    return {
        "env": record.env,
        "method": record.method,
        "seeds": len(record.seeds),
        "episodes": record.done,
        "measure": record.measure,
        "mar_episodes": len(counted),
        "mar_random_episodes": sum(episode < random for episode in counted),
        "threshold": record.threshold,
        "reached": int((~np.isnan(found["mrcp_ksteps"])).sum()),
        "unsafe_pct_by_cost": {name: interval_pair(values) for name, values in by_cost(record).items()},
        "measured": measured_costs(record.episodes),
    } | {name: interval_pair(values) for name, values in found.items()}


def summarise_evaluation(found: Any) -> dict[str, Any]:
    """Measures of an evaluation: `[mean, half-width of the 90 % interval over seeds]`."""
    reward, unsafe = found.mean_reward, found.unsafe_pct  # [S, E]
    return {
        "seeds": reward.shape[0],
        "measured": list(found.measured),
        "episodes": reward.shape[1],
        "trained_episodes": found.trained_episodes,
        "ends_early": bool(found.steps.min() < found.episode_length),
        "steps": interval_pair(found.steps.mean(axis=1)),
        "return": interval_pair((reward * found.steps).mean(axis=1)),
        "mean_reward": interval_pair(reward.mean(axis=1)),
        "unsafe_pct_by_cost": {
            name: interval_pair(shares.mean(axis=1)) for name, shares in found.unsafe_by_cost.items()
        },
        "unsafe_pct": interval_pair(unsafe.mean(axis=1)),
        "mean_reward_per_seed": reward.mean(axis=1).round(4).tolist(),
        "unsafe_pct_per_seed": unsafe.mean(axis=1).round(4).tolist(),
        "worst_episode_unsafe_pct": round(float(unsafe.max()), 4),
    }


def write_figures(records: list[Record]) -> list[Path]:
    """Draw the learning curves of all these runs in the folder of the first run; returns the PNG."""
    folder = records[0].home / "figures"
    with writing(folder):
        folder.mkdir(exist_ok=True)
    return list(save_figure(draw_learning(identified(records)), folder / "learning"))[:1]
