"""CartPole on a short track: the stored runs give the numbers of docs/own-env.md, and the example runs."""

import json
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
RUNS = sorted((ROOT / "results" / "cartpole").glob("*/run.json"))


def line_of(folder):
    """A row of the page's table: mean return and unsafe steps of the last 10 episodes, unsafe steps of all."""
    rows = [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]
    seeds = sorted({row["seed"] for row in rows})
    column = lambda name: np.asarray([[row[name] for row in rows if row["seed"] == seed] for seed in seeds])  # noqa: E731
    returns, unsafe, steps = (column(name) for name in ("return", "unsafe_steps", "steps"))
    assert (len(seeds), returns.shape[1]) == (3, 25)
    last = 100 * unsafe[:, -10:].sum() / steps[:, -10:].sum()
    return f"{returns[:, -10:].mean():.0f} | {last:.2f} | {100 * unsafe.sum() / steps.sum():.2f} |"


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.parent.name)
def test_the_page_shows_what_was_run(path):
    page = (ROOT / "docs" / "own-env.md").read_text()
    stored = json.loads(path.read_text())
    command = stored["provenance"]["command"].partition(" --out")[0]
    assert f"| `{command} --initial-steps 0` | {line_of(path.parent)}" in page, "what these runs did by default then"


def test_four_runs_are_stored():
    assert len(RUNS) == 4


def test_the_example_learns_when_episodes_end(guss_command, tmp_path):
    small = ("--episodes", 3, "--horizon", 3, "--budget", 30, "--fit.max-steps", "60", "--model.hidden", "8")
    small += ("--initial-steps", 0)  # the second episode is planned, however early the first ended
    env = ROOT / "examples" / "cartpole.py:known"
    guss_command("run", "--env", env, "--seeds", 1, *small, "--out", tmp_path, "--no-figures", "--quiet", check=0)
    (home,) = tmp_path.glob("cartpole-known-guss-*")
    assert "cost_recall" in (home / "timings.jsonl").read_text()  # the classifier of the end was evaluated
