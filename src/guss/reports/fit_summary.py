"""Summaries of fitted models as plain numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from guss.models.evaluation import plain
from guss.runs.fit import FitSummary, Log


def summarise_fit(log: Log, fits: list[FitSummary]) -> dict[str, Any]:
    """The errors of the last fit per dimension, and of every fit; means over seeds."""
    last = fits[-1]
    return {
        "task": log.task.name,
        "dimensions": list(log.task.observations.labels),
        "model": log.settings.model,
        "seeds": list(log.seeds),
        "episodes": last.episodes,
        "rows": last.rows,
        "held_out_rows": int(np.asarray(last.report.held_out).mean()),
        "horizon": log.settings.horizon,
        **{name: _mean(getattr(last.report, name)) for name in ("nll", "r2", "ks")},
        "r2_horizon": _mean(last.r2_horizon),
        "outcomes": _outcomes(log, last),
        "unsafe_examples": {each.name: each.to_json() for each in (last.examples or [[]])[0]},
        "seconds": round(sum(fit.seconds for fit in fits), 2),
        "fits": [
            {
                "episodes": fit.episodes,
                "rows": fit.rows,
                "nll": _mean(fit.report.nll),
                "r2": _mean(fit.report.r2),
                "r2_horizon": _mean(fit.r2_horizon),
            }
            for fit in fits
        ],
    }


def _mean(values: Any) -> Any:
    """The mean over seeds; None for no values."""
    return None if values is None else plain(np.asarray(values, float).mean(axis=0))


def _outcomes(log: Log, last: FitSummary) -> dict[str, dict[str, Any]]:
    """Errors of the learned reward, costs and end of episodes by name; means over seeds."""
    report = last.report.outcome
    if report is None:
        return {}
    found: dict[str, dict[str, Any]] = {}
    if log.task.reward is None:
        found["reward"] = {"r2": _mean(report.reward_r2)}
    names = [name for name in log.task.unknown if name not in ("reward", "behaviour")]
    columns = (report.cost_error, report.cost_calibration, report.cost_recall)
    for i, name in enumerate(names):
        figures = {key: _mean(x[:, i]) for key, x in zip(("log_loss", "calibration", "recall"), columns, strict=True)}
        counts = [each[i].unsafe for each in last.examples if i < len(each)]
        found[name] = figures | ({"examples": float(np.mean(counts))} if counts else {})
    return found
