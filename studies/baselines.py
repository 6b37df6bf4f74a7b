"""The baselines' stored runs as a table beside the paper's figures, and as curves beside GuSS and random actions.

    python studies/baselines.py --out results/baselines

The runs themselves: `guss run --env ENV --method METHOD --seeds 6 --out results/baselines` (the car: `--seeds 3`).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from guss.reports.paper import paper_figures
from guss.reports.run import draw_learning, summarise_run
from guss.reports.style import save_figure

ROOT = Path(__file__).resolve().parents[1]
ENVS = ("safe-pendulum", "safe-acrobot", "safe-car-goal")
METHODS = ("safe-mbpo", "ppo-lagrangian", "cpo", "ppo", "trpo")
MEASURES = ("mar", "mrcp_ksteps", "unsafe_pct", "unsafe_trans_pct")


def cell(ours: list[float | None], paper: list[float] | None) -> str:
    """Mean ± half-width, and the paper's mean in brackets."""
    mean, half = ours
    told = "–" if mean is None else f"{mean:.3f} ± {0.0 if half is None else half:.3f}"
    return f"{told} [{'–' if paper is None else f'{paper[0]:g}'}]".replace("-", "−")


def row(summary: dict[str, Any]) -> str:
    """A run as a row of the table."""
    paper = paper_figures(summary["env"], summary["method"])
    cells = [cell(summary[name], paper.get(name)) for name in MEASURES]
    return (
        f"| {summary['env']} | {summary['method']} | {summary['seeds']} | {summary['episodes']} | {' | '.join(cells)} |"
    )


def main() -> None:
    """Write table.md and a figure for each environment."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "baselines")
    out = parser.parse_args().out
    homes = {home: summarise_run(home) for home in sorted(out.iterdir()) if (home / "config.json").exists()}
    lines = [
        "| env | method | seeds | episodes | MAR | MRCP [k steps] | p(unsafe) [%] | transient [%] |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for env in ENVS:
        mine = {s["method"]: home for home, s in homes.items() if s["env"] == env}
        ordered = [mine[method] for method in METHODS if method in mine]
        lines += [row(homes[home]) for home in ordered]
        planned = [next((ROOT / "results" / "runs").glob(f"{env}-{name}-*")) for name in ("guss", "random")]
        shown = [mine[name] for name in METHODS[:3] if name in mine]
        save_figure(draw_learning([*planned, *shown]), out / env)
    (out / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
