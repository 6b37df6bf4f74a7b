"""Short runs on environments of one's own, beside random actions."""

import json

QUICK = (
    "--horizon",
    10,
    "--budget",
    60,
    "--model.hidden",
    "24",
    "24",
    "--fit.max-steps",
    "600",
    "--fit.warm-steps",
    "200",
)


def beats_random(guss_command, folder, env, *more, seeds, episodes):
    """The last two episodes earn more than random actions do, at less than half of their unsafe steps."""
    words = ("run", "--env", env, "--seeds", seeds, "--episodes", episodes, "--against", "random", "--no-figures")
    guss_command(*words, *QUICK, *more, cwd=folder, check=0, timeout=500)
    ours, random = mean_of_last(folder, "guss", 2), mean_of_last(folder, "random", episodes)
    assert ours[0] > random[0]
    assert ours[1] < 0.5 * random[1]


def mean_of_last(folder, method, count):
    """Mean reward and unsafe share of the last `count` episodes of a run, over all seeds."""
    (home,) = [home for home in (folder / "runs").iterdir() if home.name.split("-")[-2] == method]
    rows = [json.loads(line) for line in (home / "episodes.jsonl").read_text().splitlines()]
    assert {row["status"] for row in rows} == {"ok"}
    mine = [row for row in rows if row["episode"] >= max(r["episode"] for r in rows) + 1 - count]
    return tuple(sum(row[name] for row in mine) / len(mine) for name in ("mean_reward", "unsafe_pct"))
