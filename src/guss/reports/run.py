"""The paper's measures of one run, from its stored records."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from guss import metrics
from guss.envs import ENVS
from guss.reports.style import new_figure, save_figure, style_of
from guss.runs.records import by_seed, read_lines, short_name

THRESHOLDS = {"safe-pendulum": -2.5, "safe-acrobot": 1.6, "safe-car-goal": 10.0, "safe-car-goal-full": 10.0}
"""Of MRCP, in the measure that the paper has for the environment: mean reward per step, or an episode's return."""


def measure_of(env: str, episodes: list[dict[str, Any]]) -> str:
    """What an episode's reward is called by: "mean_reward" or "return", a field of its record.

    An environment of the user's own whose episodes end early is measured by returns: to last longer is to earn more.
    """
    if env in ENVS.names():
        return "return" if ENVS[env].item.measure == "return" else "mean_reward"
    return "return" if len({row["steps"] for row in episodes if row["status"] == "ok"}) > 1 else "mean_reward"


def summarise_run(home: Path) -> dict[str, Any]:
    """MAR, MRCP, p(unsafe) and transient: `[mean, half-width of the 90 % interval over seeds]`, None if undefined."""
    config = json.loads((home / "config.json").read_text())["config"]
    episodes = read_lines(home / "episodes.jsonl")
    measure = measure_of(config["env"], episodes)
    rewards, unsafe, steps = (by_seed(episodes, name) for name in (measure, "unsafe_pct", "steps"))
    threshold = THRESHOLDS.get(config["env"])
    pace = np.full(len(rewards), math.nan) if threshold is None else metrics.mrcp(rewards, steps, threshold)
    plain = lambda pair: [None if math.isnan(x) else round(x, 4) for x in pair]  # noqa: E731
    return {
        "env": config["env"],
        "method": config["method"],
        "seeds": rewards.shape[0],
        "episodes": rewards.shape[1],
        "measure": measure,
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


MOST_POINTS = 128


def thinned(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Curves [S, N] as at most MOST_POINTS points: the number of each episode, or of the last of several, and means.

    A policy that learns from a thousand episodes is seen better in means of some at a time.
    """
    count = values.shape[1]
    each = -(-count // MOST_POINTS)
    ends = np.append(np.arange(each, count, each), count)
    parts = np.split(values, ends[:-1], axis=1)
    return ends, np.stack([part.mean(axis=1) for part in parts])


def draw_learning(homes: list[Path]) -> Any:
    """How reward rises and unsafe steps vanish, episode by episode: a line per run, all of one environment."""
    figure, (reward, unsafe) = new_figure(2, 1, 9.6, 3.9)
    configs = [json.loads((home / "config.json").read_text())["config"] for home in homes]
    measure = measure_of(configs[0]["env"], read_lines(homes[0] / "episodes.jsonl"))
    panels = ((reward, measure, metrics.MEASURES[measure]), (unsafe, "unsafe_pct", "unsafe steps [%]"))
    longest, shortest = 2, math.inf
    for i, (home, config) in enumerate(zip(homes, configs, strict=True)):
        episodes = read_lines(home / "episodes.jsonl")
        for axes, field, _ in panels:
            number, columns = thinned(by_seed(episodes, field))
            mean, half = (np.asarray(x) for x in zip(*(metrics.interval(column) for column in columns), strict=True))
            half, style = np.nan_to_num(half), style_of(config["method"], i)
            low = mean - half if field == measure else np.maximum(mean - half, 0.0)
            axes.fill_between(number, low, mean + half, color=style["color"], alpha=0.18, lw=0)
            axes.plot(number, mean, marker="o", ms=3 if len(mean) <= MOST_POINTS / 2 else 0, lw=1.6, **style)
            longest, shortest = max(longest, int(number[-1])), min(shortest, int(number[-1]))
    for axes, _, label in panels:
        axes.set(xlabel="episode", ylabel=label, xlim=(1, longest))
        if longest > 5 * shortest:  # a planner beside a policy that needs thousands
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:,.0f}")
        else:
            axes.xaxis.get_major_locator().set_params(integer=True)
    first = configs[0]
    threshold = THRESHOLDS.get(first["env"])
    if threshold is not None:
        reward.axhline(threshold, color="#888888", lw=0.8, ls="--")
        reward.annotate("the paper's threshold", (longest, threshold), (-2, -9), textcoords="offset points", ha="right",
                        fontsize=7, color="#444444", zorder=5,
                        bbox={"fc": "white", "ec": "none", "alpha": 0.75, "pad": 0.5})  # fmt: skip
    unsafe.set_ylim(bottom=0.0)
    random = first.get("initial_episodes", 0)
    how = "" if not random or first["method"] == "random" else f" (episode 1{f' to {random}' * (random > 1)} at random)"
    reward.set_title(f"{short_name(first['env'])}: reward{how}")
    unsafe.set_title("safety")
    counts = sorted({len(config["seeds"]) for config in configs})
    several = f"mean of {' or '.join(map(str, counts))} seeds, bands: 90 % intervals"
    bands = several if counts[-1] > 1 else "one seed"
    handles, labels = reward.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, title=bands)
    return figure


def write_figures(homes: list[Path]) -> list[Path]:
    """The learning curves of the first run, beside those of the others, in its folder."""
    folder = homes[0] / "figures"
    folder.mkdir(exist_ok=True)
    return save_figure(draw_learning(homes), folder / "learning")[:1]
