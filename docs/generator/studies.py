"""Tables of the toy experiment, the car, the cooling plant, policies with known solutions, and benchmarks."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from benchmarks.tables import markdown
from docs.generator.parts import ROOT, load, number, p_value, pair, part
from guss.reports.escapes import markdown_table
from guss.reports.style import label_of, label_of_env
from guss.runs.metrics import holm, welch_p
from studies.guss_plus import ALONE, DIVERSITY, METHODS, TASKS, TOY_BUDGETS, VARIANTS, Case, key_of


def records(command: str, origin: dict[str, Any]) -> str:
    """The line below a table: command, commit and date of its records."""
    if not re.fullmatch("[0-9a-f]{40}", origin["commit"]):
        raise ValueError(f"records of {command} come from uncommitted changes: {origin['commit']}")
    return f"Records: {command}, commit {origin['commit'][:12]}, {origin['date'][:10]}."


def made(origin: dict[str, Any]) -> str:
    """The same with the command that is stored."""
    return records(f"`{origin['command']}`", origin)


# ----------------------------------------------------------------------------------------------------------------- toy


def percent(share: float) -> str:
    """A share in percent with one digit."""
    return f"{100 * share:.1f} %"


@part("toy-results")
def toy() -> str:
    """All methods in the toy world."""
    summary, cells = load("results/toy/summary.json"), []
    for name, m in summary["methods"].items():
        steps = float(np.mean(m["cost_per_seed"]))
        shares = [percent(m[measure]) for measure in ("safe_plan_share", "coverage", "coverage_of_step")]
        p = summary["p_values"].get(name)
        text = (
            "–" if p is None else ", ".join(f"{p[x]:.2g}" for x in ("safe_plan_share", "coverage", "coverage_of_step"))
        )
        cells.append([label_of(name), f"{m['reached']}/{m['seeds']}", number(steps, 1), *shares, text])
    heads = [
        "method",
        "goal reached",
        "unsafe steps",
        "safe plans",
        "coverage",
        "coverage of a step",
        "p-values against GuSS",
    ]
    command = "`guss reproduce toy --out results`, stored in `results/toy/summary.json`"
    return "\n".join([*markdown_table(heads, cells, rule="---:"), "", records(command, summary["provenance"])])


@part("planners-measured")
def planners_measured() -> str:
    """Planners beyond the paper, with the true dynamics."""
    stored, cells = load("results/planners/summary.json"), []
    for name, row in stored["methods"].items():
        toy, pendulum = row["toy"], row["pendulum"]
        cells.append([
            f"`{name}`", f"{toy['reached']} of {toy['seeds']}", number(toy["unsafe_steps"], 1),
            number(toy["mean_reward"], 0), percent(toy["safe_plan_share"]), percent(toy["coverage"]),
            pair(pendulum["mean_reward"]), pair(pendulum["unsafe_pct"]),
        ])  # fmt: skip
    heads = [
        "method", "toy: seeds at the goal", "unsafe steps", "reward per step", "safe plans", "coverage",
        "pendulum: reward per step (3 episodes)", "unsafe steps [%]",
    ]  # fmt: skip
    command = "`python studies/planners.py --out results/planners`"
    return "\n".join([*markdown_table(heads, cells, rule="---:"), "", records(command, stored["provenance"])])


# ------------------------------------------------------------------------------------------------------------- cooling


@part("cooling-results")
def cooling() -> str:
    """Electricity and unsafe time of all controllers."""
    table = (ROOT / "results/cooling/table.md").read_text().strip()
    origin = load("results/cooling/summary.json")["provenance"]
    return f"{table}\n\n{made(origin)}"


@part("cooling-days")
def cooling_days() -> str:
    """The same by day and by seed."""
    stored = load("results/cooling/summary.json")
    days, results = stored["days"], stored["results"]
    heads = [
        "GuSS against",
        "days with less electricity",
        "saved, by seed",
        "days with unsafe time: GuSS, the other controller",
    ]
    names = {
        "thermostat": "thermostat",
        "integrating": "thermostat with an integral",
        "with_load": "thermostat with load feed-forward",
    }
    cells = []
    for key, name in names.items():
        pairs = list(zip(days["guss"], days[key], strict=True))
        fewer = sum(ours["kwh"] < theirs["kwh"] for ours, theirs in pairs)
        each = zip(results["guss"]["kwh_per_seed"], results[key]["kwh_per_seed"], strict=True)
        saved = sorted(100 * (1 - ours / theirs) for ours, theirs in each)
        unsafe = [sum(day["unsafe_pct"] > 0 for day in days[who]) for who in ("guss", key)]
        cells.append(
            [
                name,
                f"{fewer} of {len(pairs)}",
                f"{number(saved[0], 0)} to {number(saved[-1], 0)} %",
                f"{unsafe[0]}, {unsafe[1]}",
            ]
        )
    return "\n".join([*markdown_table(heads, cells, rule="---:"), "", f"Records: `{stored['provenance']['command']}`."])


@part("cooling-learning")
def cooling_learning() -> str:
    """Unsafe time while GuSS learns."""
    rows = load("results/cooling/summary.json")["learning"]
    phases = {"initial_policy": "observing the thermostat", "plan": "planning"}
    cells = []
    for phase, name in phases.items():
        mine = [row for row in rows if row["phase"] == phase]
        cells.append([name, str(len(mine)), f"{np.mean([row['unsafe_pct'] for row in mine]):.2f} %"])
    command = load("results/cooling/summary.json")["provenance"]["command"]
    heads = ["while learning", "days of all seeds", "unsafe time"]
    return "\n".join([*markdown_table(heads, cells, rule="---:"), "", f"Records: `{command}`."])


@part("cooling-tuning")
def cooling_tuning() -> str:
    """Settings of the other controllers."""
    stored, cells = load("results/cooling/tuning.json"), []
    for name, rival in stored["rivals"].items():
        settings = ", ".join(f"{key} {value}" for key, value in rival["settings"].items())
        cells.append([name.replace("_", " "), settings, f"{rival['tried']:,}", f"{rival['unsafe_pct']:.3f} %"])
    heads = ["controller", "settings", "settings tried", "unsafe time on the tuning days"]
    return "\n".join([*markdown_table(heads, cells), "", made(stored["provenance"])])


# ----------------------------------------------------------------------------------------------------------------- car


@part("car-models")
def car_models() -> str:
    """Held-out R² of models of the car."""
    table = (ROOT / "results/car/models.md").read_text().strip()
    origin = load("results/car/models.json")["provenance"]
    return f"{table}\n\n{made(origin)}"


@part("car-margins")
def car_margins() -> str:
    """Reward against safety by planning margin."""
    table = (ROOT / "results/car/margins.md").read_text().strip()
    origin = load("results/car/margins.json")["provenance"]
    return f"{table}\n\n{made(origin)}"


@part("car-parked")
def car_parked() -> str:
    """The longest time that a car of GuSS stood still."""
    return str(load("results/car/parked.json")["methods"]["guss"]["longest"]["still"]["still"])


@part("car-episodes")
def car_episodes() -> str:
    """How many planned episodes of GuSS are stored."""
    return str(load("results/car/parked.json")["methods"]["guss"]["episodes"])


# ------------------------------------------------------------------------------------------------------------ policies


def spread(values: list[float], digits: int = 3) -> str:
    """`MIN to MAX`."""
    return f"{number(min(values), digits)} to {number(max(values), digits)}"


def long_test(name: str) -> tuple[dict[str, Any], str]:
    """Records of `make test-long`, and the line below their table."""
    found = load(f"results/tests/{name}.json")
    return found, records("`make test-long`", found["provenance"])


@part("known-answer-ppo", "pendulum-ppo", "ppo", "−172 ± 104 (RL Baselines3 Zoo, 100 k steps)")
@part("known-answer-sac", "pendulum-sac", "sac", "−157 ± 89 (RL Baselines3 Zoo, 20 k steps)")
def known_pendulum(name: str, method: str, published: str) -> str:
    """Returns on Pendulum-v1 and published returns."""
    found, source = long_test(name)
    returns = found["returns"]
    row = [f"`{method}`", str(len(returns)), number(float(np.mean(returns)), 1), spread(returns, 1), published]
    heads = ["Pendulum-v1", "seeds", "mean return", "by seed", "published"]
    return "\n".join([*markdown_table(heads, [row], rule="---:"), "", source])


@part("known-answer-limits")
def known_limits() -> str:
    """Policies on a problem whose best policy within the limit is known."""
    cells, source = [], ""
    for name in ("ppo", "ppo-lagrangian", "cpo"):
        found, source = long_test(f"worth-{name}")
        window = f"last {found['mean_of_last']} of {found['turns']}"
        cells.append([f"`{name}`", window, spread(found["reward_to_best"]), spread(found["cost_to_limit"])])
    heads = ["method", "iterations averaged", "reward / best reward, by seed", "cost / limit, by seed"]
    return "\n".join([*markdown_table(heads, cells, rule="---:"), "", source])


@part("omnisafe")
def omnisafe() -> str:
    """PPO-Lagrangian here and in OmniSafe."""
    stored, cells = load("benchmarks/policies.json")["ppo_lagrangian"], []
    for compared in stored["rows"]:
        for who in ("guss", "omnisafe"):
            row = compared[who]
            measures = [
                number(row["last_reward_per_step"]),
                number(row["last_unsafe_percent"], 2),
                number(row["all_unsafe_percent"], 2),
            ]
            ratio = f"{compared['ratio']:.0f} ×" if who == "guss" else "1"
            cells.append([str(row["seed"]), who, *measures, f"{row['steps_per_second']:,.0f}", ratio])
    heads = [
        "seed",
        "library",
        "reward per step, last 10 %",
        "unsafe steps [%], last 10 %",
        "unsafe steps [%], all",
        "steps per second",
        "speed",
    ]
    command = f"`{stored['provenance']['command']}`"
    return "\n".join([*markdown_table(heads, cells, rule="---:"), "", records(command, stored["provenance"])])


@part("ppo-speed")
def ppo_speed() -> str:
    """Steps per second of PPO."""
    stored = load("benchmarks/policies.json")["ppo"]
    cells = [[str(row["threads"]), f"{row['steps_per_second_once_compiled']:,.0f}"] for row in stored["rows"]]
    heads = ["threads", "steps per second of `ppo`, once compiled"]
    return "\n".join(
        [
            *markdown_table(heads, cells, rule="---:"),
            "",
            made(stored["provenance"]),
        ]
    )


# ---------------------------------------------------------------------------------------------------------- benchmarks


@part("benchmarks")
def benchmarks() -> str:
    """All tables of `make bench`."""
    return markdown(load("benchmarks/results.json"), load("benchmarks/details.json")).strip()


SPEED = (
    ("pendulum", "QDax"),
    ("pendulum-cem", "mbrl-lib"),
    ("rs-3000x30", "pytorch-mppi"),
    ("fit-darmdn-2k", "PyTorch"),
)
WORK = {
    "pendulum": "quality-diversity plan, 100 × 10 steps",
    "pendulum-cem": "cross-entropy plan, 100 × 10 steps",
    "rs-3000x30": "random-shooting plan, 3,000 × 30 steps",
    "fit-darmdn-2k": "model fit, 2,000 transitions",
}


@part("speed")
def speed() -> str:
    """Some of the benchmarks, for the README."""
    found = {(row["case"], row["peer"]): row for row in load("benchmarks/results.json")}
    cells = []
    for case, peer in SPEED:
        row = found[case, peer]
        cells.append(
            [WORK[case], peer, f"{row['peer_ms']:,.1f} ms", f"{row['ours_ms']:,.1f} ms", f"{row['ratio']:.1f} ×"]
        )
    policies = load("benchmarks/policies.json")["ppo_lagrangian"]["rows"]
    ours, theirs = (np.mean([row[who]["steps_per_second"] for row in policies]) for who in ("guss", "omnisafe"))
    least = math.floor(min(row["ratio"] for row in policies))
    cells.append(
        [
            "PPO-Lagrangian training, each library with its defaults",
            "OmniSafe",
            f"{theirs:,.0f} steps/s",
            f"{ours:,.0f} steps/s",
            f"{least} ×",
        ]
    )
    heads = ["task, one thread", "library", "its time or speed", "guss", "speed-up"]
    command = "`make bench`, `python benchmarks/policies.py --peer PYTHON`"
    return "\n".join([*markdown_table(heads, cells, rule="---:"), "", f"Records: `benchmarks/*.json`; {command}."])


# ----------------------------------------------------------------------------------------------------------- guss-plus


def _measured(row: dict[str, Any]) -> list[str]:
    """Reward, unsafe steps and, in the toy world, the seeds that reached the goal; the error if a method cannot run."""
    if "error" in row:
        return ["budget too small", "–", "–"]
    reward, reached = np.asarray(row["reward"]), row.get("reached")
    digits = 3 if np.abs(reward).max() < 100 else 0
    error = reward.std(ddof=1) / math.sqrt(reward.size)
    goal = "–" if reached is None else f"{sum(reached)} of {len(reached)}"
    return [pair([reward.mean(), error], digits), number(float(np.mean(row["unsafe_pct"])), 3), goal]


def _rows(case: Case) -> dict[str, Any]:
    """Entries of a case in results/guss-plus, by the end of their names."""
    start = f"{key_of(case)} "
    entries = load("results/guss-plus/summary.json")["entries"]
    return {name.removeprefix(start): row for name, row in entries.items() if name.startswith(start)}


def _task_of(case: Case) -> str:
    label = "Cooling plant" if "cooling" in case.env else label_of_env(case.env)
    return f"{label}, {case.horizon} steps, {case.budget} plans"


def _made_by_study() -> str:
    return made(load("results/guss-plus/summary.json")["provenance"])


def _compared(names: dict[str, str], first: tuple[str, str], what: str) -> str:
    """A table of all tasks; `names`: the entries of each row and their labels; `first`: the row to compare with."""
    cells = []
    for case in TASKS:
        rows = {name: row for name, row in _rows(case).items() if name in (first[0], *names)}
        known = [name for name in names if "reward" in rows[name]]
        tests = holm([welch_p(rows[first[0]]["reward"], rows[name]["reward"]) for name in known])
        p = dict(zip(known, tests, strict=True))
        task = _task_of(case)
        for name, label in ({first[0]: first[1]} | names).items():
            cells.append([task, label, *_measured(rows[name]), p_value(p.get(name))])
            task = ""
    heads = ["task, horizon, budget", what, "mean reward", "unsafe steps [%]", "goal reached", "p"]
    return "\n".join([*markdown_table(heads, cells, rule="---:"), "", _made_by_study()])


@part("guss-plus-results")
def guss_plus_results() -> str:
    """guss-plus and the other safe planners."""
    names = {name: f"`{name}`" for name in METHODS if name != "guss-plus"}
    return _compared(names, ("guss-plus", "`guss-plus`"), "planner")


@part("guss-plus-ablation")
def guss_plus_ablation() -> str:
    """guss-plus with one change at a time."""
    return _compared({f"guss-plus: {name}": name for name in VARIANTS}, ("guss-plus", "`guss-plus`"), "change")


@part("guss-plus-alone")
def guss_plus_alone() -> str:
    """Each idea alone."""
    first, *others = ALONE
    return _compared({f"alone: {name}": name for name in others}, (f"alone: {first}", first), "idea")


@part("guss-plus-diversity")
def guss_plus_diversity() -> str:
    """How much reward guss-plus loses without a hand-designed behaviour space."""
    cells = []
    for case in TASKS:
        rows, task = _rows(case), _task_of(case)
        grid, random = (float(np.mean(rows[name]["reward"])) for name in ("guss-plus", "random"))
        for name in ("guss-plus", *(f"guss-plus: {each}" for each in DIVERSITY)):
            lost = 100 * (grid - float(np.mean(rows[name]["reward"]))) / (grid - random)
            label = name.removeprefix("guss-plus: ") if ":" in name else "grid, descriptor of the task"
            loss = "–" if name == "guss-plus" else f"{number(lost, 1)} %"
            cells.append([task, label, *_measured(rows[name]), loss])
            task = ""
    heads = ["task, horizon, budget", "diversity", "mean reward", "unsafe steps [%]", "goal reached", "lost"]
    return "\n".join([*markdown_table(heads, cells, rule="---:"), "", _made_by_study()])


@part("guss-plus-toy-budgets")
def guss_plus_toy_budgets() -> str:
    """The smallest budget with which each planner solves the toy world."""
    cells = []
    for method in METHODS:
        solved = [
            "reward" in (row := _rows(case)[method]) and all(row["reached"]) and not any(row["unsafe_pct"])
            for case in TOY_BUDGETS
        ]
        budgets = [case.budget for case, done in zip(TOY_BUDGETS, solved, strict=True) if done]
        cells.append([f"`{method}`", str(budgets[0]) if budgets else "–", ", ".join(map(str, budgets)) or "–"])
    heads = ["planner", "smallest budget", "all budgets"]
    return "\n".join([*markdown_table(heads, cells, rule="---:"), "", _made_by_study()])
