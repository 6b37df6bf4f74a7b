"""The paper's measures of one run, from its stored records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from guss.files import writing
from guss.reports.curves import draw_learning
from guss.reports.inventory import Record, identified, read_record
from guss.reports.run_metrics import by_cost, interval_pair, per_seed
from guss.reports.style import save_figure
from guss.runs.rows import num_random


def summarise_run(home: Path) -> dict[str, Any]:
    """MAR, MRCP, p(unsafe) and transient: `[mean, half-width of the 90 % interval over seeds]`, None if undefined."""
    return summarise_record(read_record(home))


def summarise_record(record: Record) -> dict[str, Any]:
    """The same of a run that has been read."""
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
    } | {name: interval_pair(values) for name, values in found.items()}


def summarise_evaluation(found: Any) -> dict[str, Any]:
    """The frozen agent's mean reward and unsafe share: `[mean, half-width of the 90 % interval over seeds]`."""
    reward, unsafe = found.mean_reward, found.unsafe_pct  # [S, E]
    return {
        "seeds": reward.shape[0],
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
    """The learning curves of the first run, beside those of the others, in its folder; returns the PNG."""
    folder = records[0].home / "figures"
    with writing(folder):
        folder.mkdir(exist_ok=True)
    return list(save_figure(draw_learning(identified(records)), folder / "learning"))[:1]
