"""How much electricity the learned controller of examples/cooling_plant.py saves, and how safe it is.

    python studies/cooling.py --tune --out results/cooling     # tune the other controllers, on days from 1000 up
    python studies/cooling.py --out results/cooling            # compare GuSS with them on the same days, seeds 0 to 5
    python studies/cooling.py --draw --out results/cooling     # redraw the figure from stored records

Every seed learns separately, and is then evaluated on ten new days. Writes tuning.json, or
summary.json, day.json (the first of those days), table.md and a figure.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from guss.collect.host_envs import derived_seed
from guss.plugins import load_module
from guss.reports.style import new_canvas, save_figure, style_of
from guss.runs.provenance import provenance

plant: Any = load_module(str(Path(__file__).resolve().parents[1] / "examples" / "cooling_plant.py"))

Controller = Callable[[np.ndarray], np.ndarray]
MOST_UNSAFE = 0.1  # percent of the time, when tuning
NEW_DAYS = 10_000  # number of the first evaluation day; learning uses days from 0 up


# ------------------------------------------------------------------------------------------- other controllers


def integrating(setpoint: Any, gain: Any, per_step: Any) -> Controller:
    """A thermostat with an integral term, which holds its setpoint at any load."""
    held: Any = 0.0

    def control(obs: np.ndarray) -> np.ndarray:
        nonlocal held
        off = obs[..., :1] - setpoint
        held = np.clip(held + per_step * off, 0.0, 1.0)
        return np.clip(gain * off + held, 0.0, 1.0)

    return control


def with_load(setpoint: Any, gain: Any, per_kw: Any) -> Controller:
    """A thermostat with feed-forward of the load."""
    return lambda obs: np.clip(gain * (obs[..., :1] - setpoint) + per_kw * obs[..., 1:2], 0.0, 1.0)


def plain(setpoint: Any, gain: Any) -> Controller:
    """The thermostat of the example."""
    return lambda obs: plant.thermostat(obs, setpoint, gain)


class Rival(NamedTuple):
    """A controller to compare with, and its values for tuning."""

    title: str
    sees: str
    make: Callable[..., Controller]
    tried: dict[str, np.ndarray]


SETPOINTS, GAINS = np.arange(22.0, 26.96, 0.1), np.geomspace(0.05, 2.0, 38)
RIVALS = {
    "thermostat": Rival("thermostat", "temperature", plain, {"setpoint": SETPOINTS, "gain": GAINS}),
    "integrating": Rival(
        "thermostat with an integral",
        "temperature",
        integrating,
        {"setpoint": SETPOINTS, "gain": GAINS[::2], "per_step": np.geomspace(0.001, 0.3, 14)},
    ),
    "with_load": Rival(
        "thermostat with load feed-forward",
        "temperature, load",
        with_load,
        {"setpoint": SETPOINTS, "gain": GAINS[::2], "per_kw": np.arange(0.0, 0.061, 0.0025)},
    ),
}


def tune(rival: Rival, days: list[int]) -> dict[str, Any]:
    """The settings with the least energy that are unsafe for at most MOST_UNSAFE percent of the time."""
    grid = [x.reshape(-1, 1) for x in np.meshgrid(*rival.tried.values(), indexing="ij")]
    spent, hot = np.zeros(len(grid[0])), np.zeros(len(grid[0]))
    for seed in days:
        env = plant.make_env()
        room = np.full((len(grid[0]), 1), env.reset(seed=seed)[0][0])
        control = rival.make(*grid)
        for t, noise in enumerate(env.noise):
            now = np.full_like(room, env.load[t]), np.full_like(room, env.outside[t])
            cooling = control(np.concatenate([room, *now], axis=1))
            room = plant.warmed(room, *now, cooling) + noise
            spent += plant.FULL_POWER * cooling[:, 0] ** 3 * plant.HOURS / len(days)
            hot += 100 * (room[:, 0] > plant.LIMIT) / len(days) / plant.STEPS
    best = int(np.argmin(np.where(hot <= MOST_UNSAFE, spent, np.inf)))
    chosen = {name: round(float(x[best, 0]), 4) for name, x in zip(rival.tried, grid, strict=True)}
    return {"settings": chosen, "kwh": float(spent[best]), "unsafe_pct": float(hot[best]), "tried": len(spent)}


# ------------------------------------------------------------------------------------------------------- the study


def days_of(controller: Callable[[], Controller], seed: int, count: int) -> list[dict[str, Any]]:
    """A controller on the new days of a seed."""
    rows = []
    for day in range(count):
        seen, actions = plant.operate(controller(), derived_seed(seed, NEW_DAYS + day))
        kwh, hot = plant.evaluate(seen, actions)
        rows.append({"seed": seed, "day": day, "kwh": float(kwh), "unsafe_pct": float(hot), "trace": (seen, actions)})
    return rows


def learned(seed: int, episodes: int, days: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Records of the days of learning, and of the new days after it."""
    agent = plant.make_agent(seed)
    history = agent.learn(episodes)
    lessons = [
        {"seed": seed, "day": e.episode, "phase": e.phase, "kwh": -24 * e.mean_reward, "unsafe_pct": e.unsafe_pct}
        for e in history
    ]

    def fresh() -> Controller:
        agent.reset()
        return agent.act

    return lessons, days_of(fresh, seed, days)


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over all days, and by seed."""
    seeds = sorted({row["seed"] for row in rows})
    mean = lambda name, chosen: float(np.mean([row[name] for row in chosen]))  # noqa: E731
    each = [[row for row in rows if row["seed"] == seed] for seed in seeds]
    return {
        "kwh": mean("kwh", rows),
        "unsafe_pct": mean("unsafe_pct", rows),
        "worst_day_unsafe_pct": max(row["unsafe_pct"] for row in rows),
        "kwh_per_seed": [mean("kwh", own) for own in each],
        "unsafe_pct_per_seed": [mean("unsafe_pct", own) for own in each],
    }


def table(results: dict[str, Any]) -> str:
    """The table of docs/cooling.md."""
    reference = results["thermostat"]
    lines = ["| controller | observes | kWh a day | saved | unsafe time |", "|---|---|---:|---:|---:|"]
    for name, found in results.items():
        rival = RIVALS.get(name)
        title, sees = (rival.title, rival.sees) if rival else ("**GuSS, learned**", "temperature, load, outside")
        saved = "–" if found is reference else f"{100 * (1 - found['kwh'] / reference['kwh']):.1f} %"
        lines.append(f"| {title} | {sees} | {found['kwh']:.3f} | {saved} | {found['unsafe_pct']:.3f} % |")
    return "\n".join(lines).replace("| -", "| −") + "\n"


COLOURS = {"thermostat": "#D55E00", "integrating": "#E69F00", "with_load": "#009E73", "guss": style_of("guss")["color"]}


def draw(days: dict[str, Any], results: dict[str, Any]) -> Any:
    """One day under the thermostat and under GuSS, and the means over all days."""
    figure = new_canvas(11, 6.6, 150)
    left, right = ["room"] * 3 + ["load"] * 2 + ["power"] * 3, ["energy"] * 4 + ["unsafe"] * 4
    axes = figure.subplot_mosaic([list(pair) for pair in zip(left, right, strict=True)], width_ratios=(2.3, 1))
    hours = np.arange(plant.STEPS + 1) * plant.HOURS
    lines = {"thermostat": ("thermostat", "--"), "guss": ("GuSS, learned", "-")}
    for name, (label, line) in lines.items():
        seen, actions = days[name]
        spent = plant.evaluate(seen, actions)[0]
        look: dict[str, Any] = {"color": COLOURS[name], "linestyle": line, "lw": 1.4}
        axes["room"].plot(hours, seen[:, 0], label=label, **look)
        power = plant.FULL_POWER * actions**3
        axes["power"].plot(hours[:-1], power, label=f"{label}: {spent:.2f} kWh this day", **look)
    seen = days["guss"][0]
    top = max(plant.LIMIT + 0.5, *(day[0][:, 0].max() + 0.1 for day in days.values()))
    low = min(day[0][:, 0].min() for day in days.values()) - 0.6  # room for the legend
    axes["room"].axhspan(plant.LIMIT, top, color="#c84646", alpha=0.25, lw=0)
    axes["room"].text(0.2, plant.LIMIT + 0.12, f"unsafe above {plant.LIMIT:g} °C", color="#8c2020")
    axes["room"].set(ylabel="room [°C]", ylim=(low, top), title="One day, the same for both")
    axes["load"].fill_between(hours, seen[:, 1], step="post", color="#999999", lw=0, label="heat of the servers [kW]")
    axes["load"].plot(hours, seen[:, 2], color="black", lw=1, ls=":", label="outside air [°C]")
    axes["load"].set(ylabel="kW, °C", ylim=(0, 31))
    axes["power"].set(ylabel="fans draw [kW]", xlabel="hour of the day", ylim=(0, 1.25 * axes["power"].get_ylim()[1]))
    for name in ("room", "load", "power"):
        axes[name].set(xlim=(0, 24), xticks=range(0, 25, 3))
        axes[name].legend(loc="lower right" if name == "room" else "upper left", frameon=False, ncols=2, fontsize=8)
    titles = {name: rival.title.replace(" with ", "\nwith ") for name, rival in RIVALS.items()} | {
        "guss": "GuSS,\nlearned"
    }
    heads = {"energy": "electricity [kWh a day; dots: seeds]", "unsafe": "time above the limit [%]"}
    for name, measure in (("energy", "kwh"), ("unsafe", "unsafe_pct")):
        reference = results["thermostat"][measure]
        for row, method in enumerate(results):
            value, each = results[method][measure], results[method][f"{measure}_per_seed"]
            axes[name].barh(row, value, color=COLOURS[method], height=0.62)
            shown, end = f"{value:.3f}", value
            if name == "energy":
                axes[name].plot(each, np.full(len(each), row), "o", color="black", ms=2.5, alpha=0.7)
                saved = 100 * (1 - value / reference)
                shown = f"{value:.2f}" + ("" if method == "thermostat" else f" ({-saved:+.0f} %)".replace("-", "−"))
                end = max(value, *each)
            axes[name].annotate(shown, (end, row), (4, 0), textcoords="offset points", va="center")
        axes[name].set(yticks=range(len(results)), yticklabels=[titles[method] for method in results])
        axes[name].set_title(heads[name], fontsize=9)
        axes[name].invert_yaxis()
        axes[name].margins(x=0.45 if name == "energy" else 0.2)
        axes[name].tick_params(axis="y", length=0)
    return figure


def compare(out: Path, seeds: range, episodes: int, days: int, origin: dict[str, Any]) -> None:
    """Run all controllers on the same days and store the results."""
    tuned = json.loads((out / "tuning.json").read_text())["rivals"]
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, rival in RIVALS.items():
        make = lambda rival=rival, name=name: rival.make(**tuned[name]["settings"])  # noqa: E731
        rows[name] = [row for seed in seeds for row in days_of(make, seed, days)]
    lessons, rows["guss"] = [], []
    for seed in seeds:
        started = time.perf_counter()
        lesson, own = learned(seed, episodes, days)
        lessons += lesson
        rows["guss"] += own
        kwh, hot = (np.mean([row[name] for row in own]) for name in ("kwh", "unsafe_pct"))
        print(f"seed {seed}: {kwh:.3f} kWh, {hot:.3f} % unsafe, {time.perf_counter() - started:.0f} s", flush=True)
    plainly = lambda array, digits: np.round(np.asarray(array, float), digits).tolist()  # noqa: E731
    first = {}
    for name, many in rows.items():
        traces = [row.pop("trace") for row in many]
        first[name] = {"seen": plainly(traces[0][0], 3), "actions": plainly(traces[0][1], 4)}
    (out / "day.json").write_text(json.dumps(first) + "\n")
    results = {name: summarise(many) for name, many in rows.items()}
    (out / "table.md").write_text(table(results))
    print(table(results))
    content = {"provenance": origin, "settings": plant.SETTINGS, "episodes": episodes, "results": results}
    content |= {"days": rows, "learning": lessons}
    (out / "summary.json").write_text(json.dumps(content, indent=1) + "\n")


def main() -> None:
    """Tune the other controllers, or compare with them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/cooling"))
    parser.add_argument("--tune", action="store_true", help="tune the other controllers and store their settings")
    parser.add_argument("--draw", action="store_true", help="only draw stored results")
    parser.add_argument("--first-seed", type=int, default=0, help="1000 or more: for choosing settings")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--episodes", type=int, default=8, help="days of learning")
    parser.add_argument("--days", type=int, default=10, help="new days of evaluation for each seed")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    origin = provenance(shlex.join(["python", "studies/cooling.py", *sys.argv[1:]]))
    if args.tune:
        days = list(range(1000, 1060))
        found = {name: tune(rival, days) for name, rival in RIVALS.items()}
        print(json.dumps(found, indent=1))
        content = {"provenance": origin, "days": [days[0], days[-1]], "most_unsafe_pct": MOST_UNSAFE, "rivals": found}
        (args.out / "tuning.json").write_text(json.dumps(content, indent=1) + "\n")
        return
    if not args.draw:
        compare(args.out, range(args.first_seed, args.first_seed + args.seeds), args.episodes, args.days, origin)
    results = json.loads((args.out / "summary.json").read_text())["results"]
    days = json.loads((args.out / "day.json").read_text())
    shown = {name: (np.asarray(day["seen"]), np.asarray(day["actions"])) for name, day in days.items()}
    save_figure(draw(shown, results), args.out / "cooling")


if __name__ == "__main__":
    main()
