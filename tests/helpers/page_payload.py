"""A small payload of the report's page: two environments, a partial run, missing values, text that would be markup."""

import base64
import gzip
import json
import math

HOSTILE = "</script><b>x</b><!-- {{script}} & \"'"
PICTURE = (
    "data:image/svg+xml;base64,"
    + base64.b64encode(
        b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 20"><path d="M2 18L38 2" stroke="#08306b"/></svg>'
    ).decode()
)


def packed(animation):
    """An animation as the payload carries it."""
    return base64.b64encode(gzip.compress(json.dumps(animation).encode(), mtime=0)).decode()


def texts(plans, summary):
    """The texts of an animation: titles of its panels, the legend, the summary."""
    lines = [["safe", "safe plans"], ["unsafe", "unsafe plans"], ["chosen", "chosen plan"]] if plans else []
    return {
        "titles": {
            "system": "System (shaded: unsafe)",
            "plans": "Predicted trajectories" if plans else "Trajectory so far",
            "archive": "Archive: best plan per cell" if plans else "Best plan per behaviour cell",
            "course": "Episode (red dots: unsafe steps)",
        },
        "legend": [["past", "past"], *lines, ["zone", "unsafe zone"]],
        "summary": summary,
    }


def animation_over_time(method="guss", steps=40, every=2):
    """A pendulum that swings; its angle wraps at 180 degrees."""
    angle = [(200 * math.cos(0.15 * t) + 180) % 360 - 180 for t in range(steps + 1)]
    frames = []
    for t in range(0, steps, every):
        tip = [-math.sin(math.radians(angle[t])), math.cos(math.radians(angle[t]))]
        shapes = [["sector", 1.2, 0.35, 0.52, "#f0b0b0"], ["line", 0, 0, *tip, 0.16, "#1f77b4"]]
        shapes += [["disc", 0, 0, 0.05, "#3c3c3c"], ["ring", 1.22, 1.28, 0.35, 0.52, "#d62728"]]
        plans = [[angle[t] + spread * k for k in range(8)] for spread in range(-8, 9, 2)]
        frames.append({
            "step": t, "shapes": shapes, "now": angle[t],
            "safe": plans[:5], "unsafe": plans[5:], "chosen": plans[2],
            "cells": [[i, (i + t) % 20, i / 19] for i in range(20)], "risky": [[3, (t + 1) % 20], [4, (t + 2) % 20]],
            "ring": [0.0, (t % 20 - 10) / 2],
            "text": "5 of 9 plans predicted safe; chosen plan: safe, reward -12.30",
            "progress": ["no unsafe step so far", "1 unsafe step so far", "2 unsafe steps so far"][(t > 4) + (t > 5)],
        })  # fmt: skip
    return {
        "schema": 2, "env": "safe-pendulum", "method": method, "seed": 0, "episode": 14, "phase": "plan",
        "steps": steps, "mean_reward": -0.31, "return": -12.4, "unsafe_steps": 2,
        "verdict": "episode 14 of seed 0, plans recomputed: all actions match the stored actions",
        "world": [-1.3, 1.3],
        "axes": {"kind": "time", "labels": ["angle from upright [°]"], "limits": [[-180, 180]], "unsafe": [[20, 30]],
                 "horizon": 14, "points": [0, 2, 4, 6, 8, 10, 12, 14], "past": 20, "wraps": 180.0},
        "behaviour": {"labels": ["mean angle", "mean speed"], "extent": [-180, 180, -8, 8], "shape": [20, 20],
                      "kept": True},
        "course": {"label": "angle", "values": angle[1:], "unsafe": [5, 6], "limits": [-180, 180]},
        "path": angle[:-1], "frames": frames,
        **texts(True, f"Episode 14 of seed 0: mean reward -0.310, return -12.4, 2 of {steps} steps unsafe."),
    }  # fmt: skip


def animation_of_places(method="cem", steps=30, every=3):
    """Something that goes round on a map, its actions random: nothing is planned, no system to draw."""
    path = [[math.cos(0.2 * t), math.sin(0.2 * t)] for t in range(steps)]
    path[11] = None
    frames = [
        {"step": t, "shapes": [], "now": path[t] or [0, 0], "safe": [], "unsafe": [], "chosen": [], "cells": [],
         "risky": [], "ring": None, "text": "", "progress": f"{'1' if t >= 7 else 'no'} unsafe step so far"}
        for t in range(0, steps, every)
    ]  # fmt: skip
    return {
        "schema": 2, "env": "safe-car", "method": method, "seed": 1, "episode": 0, "phase": "random", "steps": steps,
        "mean_reward": 0.02, "return": 0.6, "unsafe_steps": 1, "verdict": HOSTILE, "world": None,
        "axes": {"kind": "place", "labels": ["x [m]", "y [m]"], "limits": [[-2, 2], [-2, 2]],
                 "unsafe": [[-0.5, 0.5, -0.5, 0.5]], "horizon": 0, "past": 20, "wraps": None},
        "behaviour": None,
        "course": {"label": "reward", "values": [0.01 * t for t in range(steps)], "unsafe": [7],
                   "limits": [-0.0008 * (steps - 1), 0.0108 * (steps - 1)]},
        "path": path, "frames": frames,
        **texts(False, f"Episode 0 of seed 1 (random actions): mean reward 0.020, 1 of {steps} steps unsafe."),
    }  # fmt: skip


def measure(mean, half=0.2, best=False, paper=None, **more):
    """A measure with all that is told of it."""
    return {"mean": mean, "half": half, "pooled": 0.06, "iqm": mean + 0.01, "iqm_low": mean - 0.2,
            "iqm_high": mean + 0.2, "best": best, "paper": paper, **more}  # fmt: skip


def row(env, method, section, mar, mrcp, unsafe, **more):
    """A method's row of the table."""
    label, color, dash = {
        "guss": ("GuSS", "#0072B2", "-"),
        "s-rs": ("S-RS", "#009E73", "--"),
        "cem": ("CEM", "#D55E00", "-."),
        "odd": (HOSTILE, "url(https://example.org/x)", ":"),
    }[method]
    return {
        "method": method, "label": label, "section": section, "safe": section == "safe planners", "color": color,
        "dash": dash, "run": f"{env}-{method}-0123abcd", "seeds": 6, "episodes": 50, "planned": 50, "rank": 1,
        "measures": {"mar": mar, "mrcp_ksteps": mrcp, "unsafe_pct": unsafe, "unsafe_trans_pct": unsafe},
        "plan_ms": 3.1, "evaluations": 1200,
    } | more  # fmt: skip


def environment(name, label):
    """An environment with four methods, one of them partial and with nothing measured."""
    rows = [
        row(name, "guss", "safe planners", measure(-1.532, 0.284, True, [-2.2, 0.16]),
            measure(1.5, 0.1, True, reached=4), measure(0.004, 0.001, True)),
        row(name, "s-rs", "safe planners", measure(-1.6), measure(12.0, 2.0), measure(0.5), episodes=15, rank=2),
        row(name, "cem", "planners", measure(-0.9), measure(2.2), measure(20.9, 8.86, paper=[20.07, 9.11]),
            plan_ms=0.52, evaluations=500),
        row(name, "odd", "others", None, None, None, plan_ms=None, evaluations=None, rank=None, seeds=1, episodes=3),
    ]  # fmt: skip
    episodes = list(range(1, 21))
    lines = []
    for shift, method in enumerate(["guss", "s-rs", "cem"]):
        mean = [-6 + 4 * (1 - 0.8**e) + 0.3 * shift for e in episodes]
        lines.append({"method": method, "x": episodes, "mean": mean, "low": [m - 0.4 for m in mean],
                      "high": [m + 0.4 for m in mean]})  # fmt: skip
    lines[2] |= {"mean": [None, *lines[2]["mean"][1:]], "low": [None] * 20, "high": [None] * 20}
    reward = {"title": "reward", "ylabel": "mean reward per step", "floor": None, "lines": lines, "logx": False,
              "level": {"value": -2.5, "label": "the paper's threshold"}, "random": {"value": -6.2}}  # fmt: skip
    share = {"title": "unsafe steps", "ylabel": "unsafe steps [%]", "floor": 0, "logx": True, "level": None,
             "random": {"value": 5.0}, "lines": [
                 {"method": "guss", "x": episodes, "mean": [4 * 0.9**e for e in episodes], "low": [0.0] * 20,
                  "high": [5 * 0.9**e for e in episodes]}]}  # fmt: skip
    animations = [animation_over_time("guss"), animation_of_places("cem")]
    return {
        "name": name, "label": label, "about": "Angles from 20° to 30° are unsafe.", "reward": "mean reward per step",
        "threshold": -2.5, "verdict": ["GuSS is the best safe method: MAR -1.53.", HOSTILE], "rows": rows,
        "sizes": ["All rows have 6 seeds: 0–5.", HOSTILE],
        "curves": [reward, share],
        "tests": [
            {"measure": "mar", "a": "guss", "b": "s-rs", "difference": 0.068, "p": 0.00001, "p_holm": 0.00004,
             "p_pooled": 0.9},
            {"measure": "unsafe_pct", "a": "guss", "b": "odd", "difference": None, "p": None, "p_holm": None,
             "p_pooled": None},
        ],
        "figures": [{"title": "Pareto fronts", "caption": HOSTILE, "src": PICTURE}],
        "animations": [{"method": each["method"], "label": each["method"], "data": packed(each)}
                       for each in animations],
    }  # fmt: skip


def payload():
    """The whole of it."""
    envs = [environment("safe-pendulum", "Safe Pendulum"), environment("safe-car", HOSTILE)]
    group = {"name": "safe-pendulum", "label": "Safe Pendulum", "rows": envs[0]["rows"][:2]}
    runs = [
        {"run": row["run"], "folder": f"../runs/{row['run']}", "command": f"guss run --note '{HOSTILE}'",
         "commit": "5d21d51", "date": "2026-11-16T01:24:42Z", "machine": "two cores",
         "versions": "guss 0.1.0, jax 0.10.2",
         "seeds": [0, 1, 2, 3, 4, 5], "episodes": row["episodes"], "settings": "horizon 12, budget 100"}
        for env in envs for row in env["rows"]
    ]  # fmt: skip
    runs[0]["folder"] = "javascript:alert(1)"
    return {
        "title": f"results {HOSTILE}", "version": "0.1.0", "command": "guss report results",
        "about": ["Two environments, six seeds of fifty episodes each."],
        "missing": ["S-RS on Safe Pendulum: 15 of 50 episodes."], "envs": envs,
        "groups": [{"name": "paper", "label": "With the paper's own settings", "envs": [group]}],
        "figures": [{"title": "Toy", "caption": "Cells reached.", "src": PICTURE}], "runs": runs,
    }  # fmt: skip
