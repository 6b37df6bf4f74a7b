"""Tables of stored runs, from results/report/ (`guss report results`), and of the paper's claims."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from docs.generator.parts import ROOT, load, number, p_below, p_value, pair, part, short
from guss.envs import make_task
from guss.reports.escapes import markdown_table
from guss.reports.paper import paper_figures, paper_methods
from guss.reports.run_summary import summarise_run
from guss.reports.style import label_of, label_of_env
from guss.runs.description import bundled_method
from guss.runs.store import read_lines

ENVS = ("safe-pendulum", "safe-acrobot", "safe-car-goal")
MEASURES = ("mar", "mrcp_ksteps", "unsafe_pct", "unsafe_trans_pct")
HEADS = ("method", "seeds × episodes", "MAR", "MRCP [k steps]", "p(unsafe) [%]", "transient [%]")
PLANNERS = ("guss", "s-rs", "rcem")
"""The safe planners of docs/choosing.md."""
POLICIES = ("safe-mbpo", "ppo-lagrangian", "cpo", "ppo", "trpo")


@cache
def rows(group: str, env: str) -> list[dict[str, Any]]:
    """The report's rows of an environment; `group`: a folder of results/, "runs" for the main table."""
    if group == "runs":
        table = load("results/report/table.json")[env.replace("-", "_")]
        return [row | {"method": name.replace("_", "-")} for name, row in table.items()]
    return [row for row in load("results/report/report.json")["groups"][group] if row["env"] == env]


def welch(group: str, env: str, a: str, b: str, measure: str, kind: str = "p_holm") -> float | None:
    """Welch's p-value between two methods; None if they were not tested."""
    report = load("results/report/report.json")
    tests = report["tests"] if group == "runs" else report["group_tests"][group]
    return next((t[kind] for t in tests[env] if t["measure"] == measure and {t["a"], t["b"]} == {a, b}), None)


@cache
def native_costs(*envs: str) -> tuple[str, ...]:
    """The costs that the Tasks of these environments measure: on the car, that of Safety Gym itself."""
    return tuple(cost.name for env in envs for cost in make_task(env).measured)


def native(row: dict[str, Any], cost: str) -> list[float | None]:
    """A measured cost of a row as [mean, half-width] in percent; None if the run did not record it."""
    return row.get("unsafe_pct_by_cost", {}).get(cost, [None, None])


def heads_of(*envs: str) -> list[str]:
    """HEADS, with the measured costs of these environments after p(unsafe)."""
    return [*HEADS[:5], *(f"native cost: p({cost}) [%]" for cost in native_costs(*envs)), *HEADS[5:]]


def measured(row: dict[str, Any], env: str = "", costs: tuple[str, ...] = ()) -> list[str]:
    """The measures of a row, each with the paper's in brackets.

    `costs`: names of columns for measured costs, after p(unsafe); empty where the environment `env` does not have it.
    """
    cells = []
    for name in MEASURES:
        paper = paper_figures(row["env"], row["method"]).get(name) if "env" in row else row["paper"].get(name)
        cells.append(pair(row[name]) + (f" [{short(paper[0])}]" if paper else ""))
    own = native_costs(env) if costs else ()
    return [*cells[:3], *(pair(native(row, cost)) if cost in own else "" for cost in costs), *cells[3:]]


def size(row: dict[str, Any]) -> str:
    """Seeds and episodes of a row."""
    return f"{row['seeds']} × {row['episodes']:,}"


STUDY = "guss sweep studies/main_table.toml --out results/runs"
RUN = "`guss run --env ENV --method METHOD --seeds 6 --out results/runs`"
PRESET = "`guss run --preset ENV-paper --method METHOD --seeds 6 --seed 0 --out results/{}`"
CAR = "`guss run --env safe-car-goal --method METHOD --seeds SEEDS --episodes EPISODES --out results/runs`"


def table(group: str, env: str, command: str, p: bool = True, only: tuple[str, ...] = ()) -> str:
    """A row for each run of an environment. `p`: adds Welch's p-values against GuSS."""
    heads = heads_of(env) + (["p: MAR", "p: p(unsafe)"] if p else [])
    cells = []
    for row in rows(group, env):
        if not only or row["method"] in only:
            tests = [p_value(welch(group, env, "guss", row["method"], m)) for m in ("mar", "unsafe_pct")] if p else []
            cells.append([row["label"], size(row), *measured(row, env, native_costs(env)), *tests])
    source = f"Records: `results/{group}/`, made by {command}."
    about = [sizes(env), ""] if group == "runs" else []
    return "\n".join([*markdown_table(heads, cells, rule="---:"), "", *about, source])


@part("sizes-safe-car-goal", ENVS[2])
def sizes(env: str) -> str:
    """Seeds and episodes of the rows of the main table, as the report states them."""
    return " ".join(load("results/report/report.json")["sizes"][env])


part("results-safe-pendulum", "runs", ENVS[0], RUN)(table)
part("results-safe-acrobot", "runs", ENVS[1], RUN)(table)
part("results-safe-car-goal", "runs", ENVS[2], CAR)(table)
part("results-paper-safe-pendulum", "paper", ENVS[0], PRESET.format("paper"))(table)
part("results-paper-safe-acrobot", "paper", ENVS[1], PRESET.format("paper"))(table)
part("results-paper-safe-car-goal", "paper", ENVS[2], PRESET.format("paper"), False)(table)
SILU = (
    "`guss run --preset safe-acrobot-paper --method METHOD --seeds 6 --seed 0 --model.activation silu "
    "--out results/paper-silu`"
)
part("results-paper-silu", "paper-silu", ENVS[1], SILU)(table)
HORIZON = (
    "`guss run --env safe-pendulum --method METHOD --seeds 6 --seed 0 --episodes 50 --out results/horizon10` "
    "at commit d29ec09464df, whose preset had a horizon of 10, one DARMDN and no warm start"
)
part("results-horizon10", "horizon10", ENVS[0], HORIZON, False)(table)


def shown() -> dict[tuple[str, str], dict[str, Any]]:
    """The rows of the README's table by environment and method, in the order of its methods."""
    found = {(env, row["method"]): row for env in ENVS for row in rows("runs", env)}
    methods = (*(name for name in paper_methods() if name != "rs"), "random")
    return {(env, method): found[env, method] for method in methods for env in ENVS if (env, method) in found}


@part("overview-seeds")
def overview_seeds() -> str:
    """How many seeds the rows of the README's table have."""
    counts = {row["seeds"] for row in shown().values()}
    return f"{min(counts)} seeds" if len(counts) == 1 else f"{min(counts)} to {max(counts)} seeds"


@part("overview-episodes")
def overview_episodes() -> str:
    """The episodes of each method in the README's table, by environment."""
    found: dict[str, list[str]] = {}
    for method in dict.fromkeys(method for _, method in shown()):
        counts = {env: row["episodes"] for (env, name), row in shown().items() if name == method}
        found.setdefault(_by_env(counts), []).append(label_of(method))
    listed = "; ".join(f"{', '.join(labels)}: {text}" for text, labels in found.items())
    lengths = {env: make_task(env).episode_length for env in ENVS}
    return f"Episodes of each seed: {listed}. Steps of an episode: {_by_env(lengths)}."


def _by_env(counts: dict[str, int]) -> str:
    """The number of the first environment, and the environments with another one."""
    first = next(iter(counts.values()))
    others = [f"{label_of_env(env)}: {count:,}" for env, count in counts.items() if count != first]
    return f"{first:,} ({', '.join(others)})" if others else f"{first:,}"


@part("choosing-planners")
def choosing_planners() -> str:
    """Safe planners on all environments, for docs/choosing.md."""
    heads = ["planner"]
    for env in ENVS:
        heads += [label_of_env(env), "unsafe [%]", *["native cost [%]"] * len(native_costs(env))]
    found, cells = shown(), []
    for method in PLANNERS:
        line = [f"`{method}`"]
        for env in ENVS:
            row = found[env, method]
            line += [pair(row["mar"]), pair(row["unsafe_pct"])]
            line += [pair(native(row, cost)) for cost in native_costs(env)]
        budget = load(f"results/runs/{found[ENVS[2], method]['run']}/config.json")["config"]["budget"]
        cells.append([*line, f"{budget:,}"])
    return "\n".join(markdown_table([*heads, "plans per step on the car"], cells, rule="---:"))


@part("car-native")
def car_native() -> str:
    """The native cost of GuSS on the car."""
    (row,) = [row for row in rows("runs", ENVS[2]) if row["method"] == "guss"]
    found = native(row, *native_costs(ENVS[2]))
    return "not recorded" if found[0] is None else f"{pair(found)} %"


@part("car-safe-mbpo-episodes", "safe-mbpo")
def car_episodes(method: str) -> str:
    """The episodes of a method on the car."""
    (row,) = [row for row in rows("runs", ENVS[2]) if row["method"] == method]
    return f"{row['episodes']:,}"


@part("results-overview")
def overview() -> str:
    """Reward and unsafe steps on the paper's three environments, for the README."""
    found = shown()
    safe = {method for _, method in found if (kind := bundled_method(method)) is not None and kind.safe}
    heads, cells = ["method"], []
    for env in ENVS:
        heads += [f"{label_of_env(env)}: MAR", "unsafe [%]", *["native cost [%]"] * len(native_costs(env))]
    for method in dict.fromkeys(method for _, method in found):
        line = [label_of(method)]
        for env in ENVS:
            for name, best in (("mar", max), ("unsafe_pct", min)):
                row = found.get((env, method))
                value = None if row is None else row[name][0]
                top = best(r[name][0] for (e, m), r in found.items() if e == env and m in safe)
                line.append(f"**{number(value, 2)}**" if value == top and method in safe else number(value, 2))
            line += [number(None if row is None else native(row, cost)[0], 2) for cost in native_costs(env)]
        cells.append(line)
    command = f"`{STUDY}` executes the runs, and `guss report results` writes the table"
    return "\n".join([*markdown_table(heads, cells, rule="---:"), "", f"Records: `results/runs/`; {command}."])


@part("results-policies")
def policies() -> str:
    """Methods that learn a policy, on all environments."""
    costs, cells = native_costs(*ENVS), []
    for env in ENVS:
        by_name = {row["method"]: row for row in rows("runs", env)}
        cells += [
            [label_of_env(env), by_name[name]["label"], size(by_name[name]), *measured(by_name[name], env, costs)]
            for name in POLICIES
            if name in by_name
        ]
    heads = ["environment", *heads_of(*ENVS)]
    command = "`guss run --env ENV --method METHOD --seeds SEEDS --out results/runs`"
    return "\n".join([*markdown_table(heads, cells, rule="---:"), "", f"Records: `results/runs/`, made by {command}."])


@part("results-smooth")
def smooth() -> str:
    """Reward and jitter for prices and limits on the change of actions."""
    cells = []
    for path in (ROOT / "results/smooth").glob("*/config.json"):
        config, found = load(str(path.relative_to(ROOT)))["config"], summarise_run(path.parent)
        price, limit = config["smoothness"], config["max_change"]
        measures = [pair(found[name]) for name in ("mar", "jitter", "unsafe_pct")]
        key = (config["method"], limit is not None, price, -(limit or 0.0))
        cells.append(
            (key, [label_of(config["method"]), f"{price:g}", "–" if limit is None else f"{limit:g}", *measures])
        )
    heads = ["method", "price (`smoothness`)", "limit (`max_change`)", "MAR", "jitter", "p(unsafe) [%]"]
    command = (
        "`guss run --env safe-pendulum --method METHOD --model oracle --seed 1000 --seeds 6 --initial-episodes 0 "
        "--episodes 8 --out runs/smooth`"
    )
    table = markdown_table(heads, [each for _, each in sorted(cells)], rule="---:")
    note = f"Records: `results/smooth/`, made by {command} with `--smoothness PRICE` or `--max-change LIMIT`."
    return "\n".join([*table, "", note])


WARM = {"safe-pendulum-guss-1b2e4638"}
"""Runs with a warm start by the default of their commit, whose configs do not contain the setting."""


@part("results-oracle")
def oracle() -> str:
    """Planners with the true dynamics."""
    cells = []
    for env in ENVS[:2]:
        for row in rows("oracle", env):
            config = load(f"results/oracle/{row['run']}/config.json")["config"]
            preset = re.search(r"--preset (\S+)", row["command"])
            warm = config.get("method_settings", config.get("planner", {})).get("warm_start", row["run"] in WARM)
            cells.append([
                label_of_env(env), label_of(row["method"]), f"`{preset[1] if preset else env}`", str(config["horizon"]),
                "–" if row["method"].endswith("rs") else "yes" if warm else "no",
                pair(row["mar"]), pair(row["unsafe_pct"]),
            ])  # fmt: skip
    heads = ["environment", "method", "preset", "horizon", "warm start", "MAR", "p(unsafe) [%]"]
    command = "`guss run --preset PRESET --method METHOD --model oracle --seeds 6 --episodes 50 --out results/oracle`"
    return "\n".join(
        [*markdown_table(heads, cells, rule="---:"), "", f"Records: `results/oracle/`, made by {command}."]
    )


CHANGES = {
    "safe-acrobot-rs-5ef8b87e": "nothing",
    "safe-acrobot-rs-d6ac9a38": "`--fit.epochs 5000 --fit.max-steps 4000 --fit.warm-steps 1500 "
    "--fit.learning-rate 3e-3 --fit.patience 200` (as the default preset)",
    "safe-acrobot-rs-b5a24169": "`--fit.loss beta_nll`",
    "safe-acrobot-rs-31ab2d42": "`--fit.validation 1e-6` (no validation split: the last epoch is kept)",
    "safe-acrobot-rs-7276d45d": "`--model.activation tanh`",
    "safe-acrobot-rs-79e9492c": "`--model.activation silu`",
}


@part("results-acrobot-model")
def acrobot_model() -> str:
    """Random shooting on the acrobot with the paper's settings, one of them changed at a time."""
    by_run = {row["run"]: row for row in rows("acrobot-model", "safe-acrobot")}
    cells = []
    for run, change in CHANGES.items():
        home = ROOT / "results" / "acrobot-model" / run
        best = [epoch for line in read_lines(home / "timings.jsonl") for epoch in line.get("best_epoch", [])]
        row = by_run.pop(run)
        cells.append([change, *(pair(row[name]) for name in MEASURES[:3]), f"{np.mean(best):.0f}"])
    if by_run:
        raise ValueError(f"results/acrobot-model has runs that CHANGES does not name: {', '.join(by_run)}")
    heads = ["changed", *HEADS[2:5], "best epoch"]
    command = (
        "`guss run --preset safe-acrobot-paper --method rs --seeds 6 --seed 1000 --episodes 25 "
        "--out results/acrobot-model` and the flags of the row"
    )
    return "\n".join(
        [*markdown_table(heads, cells, rule="---:"), "", f"Records: `results/acrobot-model/`, made by {command}."]
    )


@part("results-model-r2")
def model_r2() -> str:
    """How well GuSS's models of the acrobot predict at the planning horizon."""
    cells = []
    for group, name in (("paper", "the paper's settings"), ("runs", "the default preset")):
        (run,) = [row["run"] for row in rows(group, "safe-acrobot") if row["method"] == "guss"]
        stored = {line["episode"]: line for line in read_lines(ROOT / "results" / group / run / "timings.jsonl")}
        r2 = [np.median(np.mean(np.asarray(stored[e]["r2_horizon"], float), axis=1)) for e in (10, 20)]
        cells.append([name, *(f"{value:.2f}" for value in r2)])
    heads = ["R² ten steps ahead, median of 6 seeds", "fit to 10 episodes", "fit to 20 episodes"]
    command = "`r2_horizon` in `timings.jsonl` of GuSS in `results/paper/` and `results/runs/`"
    return "\n".join([*markdown_table(heads, cells, rule="---:"), "", f"Records: {command}."])


@part("results-learned")
def learned() -> str:
    """Known against learned reward, cost and behaviour."""
    known = {row["method"]: row for row in rows("runs", "safe-pendulum")}
    (everything,) = rows("own", "safe-pendulum")
    named = {"known": known["guss"], "learned": everything, "– (random actions)": known["random"]}
    cells = [[name, size(row), *(pair(row[m]) for m in MEASURES)] for name, row in named.items()]
    heads = ["reward, cost and behaviour", *HEADS[1:]]
    return "\n".join(
        [*markdown_table(heads, cells, rule="---:"), "", f"Records: `results/own/`, made by `{everything['command']}`."]
    )


# -------------------------------------------------------------------------------------------------------------- claims


@cache
def claims() -> list[dict[str, str]]:
    """The paper's claims, in order."""
    return tomllib.loads(Path(__file__).with_name("claims.toml").read_text())["claim"]


def figure(env: str, expression: str) -> str:
    """The value of an expression in claims.toml, which documents the syntax."""
    if env == "toy":
        return toy_figure(expression)
    group, _, rest = expression.rpartition("/")
    name, _, measure = rest.rpartition(".")
    group = group or "runs"
    unit = "" if measure in ("mar", "mrcp_ksteps") else " %"
    if group == "table1":
        return short(paper_figures(env, name)[measure][0]) + unit
    if group in ("p", "p-pooled"):
        return p_below(welch("runs", env, "guss", name, measure, {"p": "p_holm", "p-pooled": "p_pooled"}[group]))
    if group.startswith("p:"):
        return p_below(welch(group[2:], env, "guss", name, measure))
    (row,) = [row for row in rows(group, env) if name in (row["method"], row["run"].removeprefix(f"{env}-"))]
    value = row[measure] if measure in MEASURES else native(row, measure)
    return "not recorded" if value[0] is None and measure not in MEASURES else pair(value) + unit


def toy_figure(expression: str) -> str:
    """The same for the toy experiment, whose values are in results/toy/summary.json."""
    summary = load("results/toy/summary.json")
    name, _, measure = expression.rpartition(".")
    if name.startswith("p/"):
        return p_below(summary["p_values"][name[2:]][measure])
    found = summary["methods"][name]
    if measure == "reached":
        return f"{found['reached']} of {found['seeds']} seeds"
    if measure == "unsafe_steps":
        return number(float(np.mean(found["cost_per_seed"])), 1)
    if measure == "least_safe":
        return f"{100 * min(found['safe_plan_share_per_step']):.0f} %"
    return f"{100 * found[measure]:.1f} %"


@part("claims-toy", "toy")
@part("claims-safe-pendulum", "safe-pendulum")
@part("claims-safe-acrobot", "safe-acrobot")
@part("claims-safe-car-goal", "safe-car-goal")
def claims_of(env: str) -> str:
    """The paper's claims about an environment, with our verdicts and values."""
    cells = []
    for i, claim in enumerate(claims(), start=1):
        if claim["env"] == env:
            shown = re.sub(r"\{([^}]+)\}", lambda found: figure(env, found[1]), claim["figure"])
            cells.append([str(i), claim["claim"], claim["verdict"], shown])
    source = (
        "`guss reproduce toy --out results`, `results/toy/summary.json`"
        if env == "toy"
        else f"`{STUDY}` and `guss report results`, `results/report/`"
    )
    return "\n".join(
        [*markdown_table(["#", "claim of the paper", "here", "figures"], cells), "", f"Records: {source}."]
    )
