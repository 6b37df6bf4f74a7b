"""The paper's measures of one run, from its stored records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from guss.files import writing
from guss.reports.curves import draw_learning
from guss.reports.inventory import Record, identified, read_record
from guss.reports.run_metrics import by_cost, per_seed, plain
from guss.reports.style import save_figure
from guss.runs import metrics
from guss.runs.metrics import THRESHOLDS
from guss.runs.rows import num_random


def summarise_run(home: Path) -> dict[str, Any]:
    """MAR, MRCP, p(unsafe) and transient: `[mean, half-width of the 90 % interval over seeds]`, None if undefined."""
    return summarise_record(read_record(home))


def summarise_record(record: Record) -> dict[str, Any]:
    """The same of a run that has been read."""
    found = per_seed(record)
    counted = range(record.done // 2, record.done)
    random = (
        0 if record.method == "random" else len(range(counted.start, min(num_random(record.episodes), record.done)))
    )
    return {
        "env": record.env,
        "method": record.method,
        "seeds": len(record.seeds),
        "episodes": record.done,
        "measure": record.measure,
        "mar_episodes": len(counted),
        "mar_random_episodes": random,
        "threshold": THRESHOLDS.get(record.env),
        "reached": int((~np.isnan(found["mrcp_ksteps"])).sum()),
        "unsafe_pct_by_cost": {name: plain(metrics.interval(values)) for name, values in by_cost(record).items()},
    } | {name: plain(metrics.interval(values)) for name, values in found.items()}


def summarise_evaluation(found: Any) -> dict[str, Any]:
    """The frozen agent's mean reward and unsafe share: `[mean, half-width of the 90 % interval over seeds]`."""
    return {
        "seeds": found.mean_reward.shape[0],
        "episodes": found.mean_reward.shape[1],
        "trained_episodes": found.trained_episodes,
        "ends_early": bool(found.steps.min() < found.episode_length),
        "steps": plain(metrics.interval(found.steps.mean(axis=1))),
        "return": plain(metrics.interval((found.mean_reward * found.steps).mean(axis=1))),
        "mean_reward": plain(metrics.interval(found.mean_reward.mean(axis=1))),
        "unsafe_pct_by_cost": {
            name: plain(metrics.interval(shares.mean(axis=1))) for name, shares in found.unsafe_by_cost.items()
        },
        "unsafe_pct": plain(metrics.interval(found.unsafe_pct.mean(axis=1))),
        "mean_reward_per_seed": found.mean_reward.mean(axis=1).round(4).tolist(),
        "unsafe_pct_per_seed": found.unsafe_pct.mean(axis=1).round(4).tolist(),
        "worst_episode_unsafe_pct": round(float(found.unsafe_pct.max()), 4),
    }


def write_figures(records: list[Record]) -> list[Path]:
    """The learning curves of the first run, beside those of the others, in its folder; returns the PNG."""
    folder = records[0].home / "figures"
    with writing(folder):
        folder.mkdir(exist_ok=True)
    return list(save_figure(draw_learning(identified(records)), folder / "learning"))[:1]
