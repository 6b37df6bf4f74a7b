"""The paper's measures of one run, from its stored records."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from guss import metrics
from guss.runs.records import by_seed, read_lines

THRESHOLDS = {"safe-pendulum": -2.5, "safe-acrobot": 1.6}


def summarise_run(home: Path) -> dict[str, Any]:
    """MAR, MRCP, p(unsafe) and transient: `[mean, half-width of the 90 % interval over seeds]`, None if undefined."""
    config = json.loads((home / "config.json").read_text())["config"]
    episodes = read_lines(home / "episodes.jsonl")
    rewards, unsafe, steps = (by_seed(episodes, name) for name in ("mean_reward", "unsafe_pct", "steps"))
    threshold = THRESHOLDS.get(config["env"])
    pace = np.full(len(rewards), math.nan) if threshold is None else metrics.mrcp(rewards, steps, threshold)
    plain = lambda pair: [None if math.isnan(x) else round(x, 4) for x in pair]  # noqa: E731
    return {
        "env": config["env"],
        "method": config["method"],
        "seeds": rewards.shape[0],
        "episodes": rewards.shape[1],
        "threshold": threshold,
        "reached": int((~np.isnan(pace)).sum()),
        "mar": plain(metrics.interval(metrics.mar(rewards))),
        "mrcp_ksteps": plain(metrics.interval(pace / 1000)),
        "unsafe_pct": plain(metrics.interval(metrics.p_unsafe(unsafe))),
        "unsafe_trans_pct": plain(metrics.interval(metrics.p_unsafe_transient(unsafe))),
    }


def summarise_evaluation(found: Any) -> dict[str, Any]:
    """The frozen agent's mean reward and unsafe share: `[mean, half-width of the 90 % interval over seeds]`."""
    plain = lambda values: [None if math.isnan(x) else round(x, 4) for x in metrics.interval(values)]  # noqa: E731
    return {
        "seeds": found.mean_reward.shape[0],
        "episodes": found.mean_reward.shape[1],
        "trained_episodes": found.trained_episodes,
        "mean_reward": plain(found.mean_reward.mean(axis=1)),
        "unsafe_pct": plain(found.unsafe_pct.mean(axis=1)),
        "mean_reward_per_seed": found.mean_reward.mean(axis=1).round(4).tolist(),
        "unsafe_pct_per_seed": found.unsafe_pct.mean(axis=1).round(4).tolist(),
        "worst_episode_unsafe_pct": round(float(found.unsafe_pct.max()), 4),
    }
