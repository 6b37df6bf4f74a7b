"""Figures of the learned model's errors, and of the environments.

Each `draw_…` returns a matplotlib figure, or None if the records lack the data for it.
"""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np

from guss.envs import ENVS
from guss.reports.escapes import plot_text
from guss.reports.inventory import Record
from guss.reports.style import label_of_env, legend_below, new_figure


def draw_model(records: list[Record]) -> Any:
    """Unexplained variance of the model one step ahead and at the planning horizon, and its calibration, by episode."""
    panels: tuple[tuple[str, str, str, bool], ...] = (
        ("r2", "one step ahead, held-out data", "unexplained variance, 1 − R²", True),
        ("r2_horizon", "at the planning horizon, next episode", "unexplained variance, 1 − R²", True),
        ("ks", "calibration, held-out data", "Kolmogorov–Smirnov distance\nfrom a calibrated prediction", False),
    )
    lines = [(record, errors) for record in records if (errors := _model_errors(record))]
    panels = tuple(panel for panel in panels if any(panel[0] in errors for _, errors in lines))
    if not panels:
        return None
    figure, (axes,) = new_figure(len(panels), 1, 3.7 * len(panels), 3.7, squeeze=False)
    for panel, (field, title, label, unexplained) in zip(axes, panels, strict=True):
        for record, errors in lines:
            if field not in errors:
                continue
            number, values = errors[field]
            values = np.clip(1.0 - values, 1e-6, None) if unexplained else values
            low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=1)
            style = record.style
            panel.fill_between(number, low, high, color=style["color"], alpha=0.10, lw=0)
            panel.plot(number, middle, lw=1.4, **style)
        if unexplained:
            panel.set_yscale("log")
            panel.axhline(1.0, color="#888888", lw=0.8, ls="--", label="predicting the mean")
            panel.set_ylim(top=min(panel.get_ylim()[1], 30.0))
        else:
            panel.set_ylim(bottom=0.0)
        panel.set(xlabel="episode", ylabel=label)
        panel.set_title(title, fontsize=10)
    figure.suptitle(f"{plot_text(records[0].env_label)}: errors of the learned model")
    title = "median over seeds, mean over dimensions; bands: the middle half of the seeds; lower is better"
    legend_below(figure, axes[0], 8, title=title)
    return figure


def _model_errors(record: Record) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By field: episode numbers [N] and values [N, S], means over dimensions; episodes with NaN are left out."""
    found = {}
    for field in ("r2", "r2_horizon", "ks"):
        rows = {row["episode"] + 1: np.asarray(row[field], float) for row in record.timings if row.get(field)}
        kept = {n: v.reshape(len(v), -1).mean(axis=1) for n, v in rows.items() if not np.isnan(v).any()}
        if kept:
            found[field] = (np.asarray(list(kept)), np.stack(list(kept.values())))
    return found


# ----------------------------------------------------------------------------------------------------------- gallery

POSES = {
    "safe-toy": [5.0, 5.0],
    "safe-pendulum": [np.cos(2.2), np.sin(2.2), 0.0],
    "safe-acrobot": [np.cos(0.9), np.sin(0.9), np.cos(0.6), np.sin(0.6), 0.0, 0.0],
    "safe-car-goal": [*[0.0] * 10, 0.9, 0.6, 0.55, 0.3, 0.92, 0.25, 0.4, 0.3, 0.6, 0.35, 0.5, 0.3],
}
"""The observation drawn of each environment; the car's: its motion, the position of the goal, ten lidar readings."""


def draw_gallery(envs: list[str]) -> Any:
    """The environments, with their unsafe zones in red (toy world: grey)."""
    shown = [env for env in envs if env in POSES]
    if not shown:
        return None
    figure, axes = new_figure(len(shown), 1, 3.1 * len(shown), 4.2, squeeze=False)
    for panel, env in zip(axes[0], shown, strict=True):
        view: Any = ENVS[env].item.view
        panel.imshow(view.picture(np.asarray(POSES[env])))
        panel.set(xticks=[], yticks=[])
        panel.spines[:].set_visible(False)
        panel.set_title(label_of_env(env), fontsize=10)
        panel.set_xlabel(textwrap.fill(ENVS[env].summary, 40), fontsize=8)
    notes = [("grey (toy world) and red" if "safe-toy" in shown else "red") + ": unsafe", "green: goal or tip"]
    notes += ["arcs around the car: hazards sensed by its lidar"] * ("safe-car-goal" in shown)
    figure.supxlabel("; ".join(notes), fontsize=8, color="#555555")
    return figure
