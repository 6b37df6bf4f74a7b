"""Runs as files alone: records that look like those of `guss run`, made of numbers that a test chooses."""

import json

import numpy as np

VERSIONS = {"guss": "0.1.0", "jax": "0.10.2"}


def store(folder, env="safe-pendulum", method="guss", rewards=((-6.0, -2.0, -1.0, -1.0),), unsafe=0.0, **more):
    """A run with the mean rewards of its seeds [S][N], unsafe steps in percent (a number, or as rewards); its folder.

    `more`: asked (episodes), seeds, name, date, steps, version, commit, cpu, timings (False: none), config (settings),
    measured (function of seed and episode: percentages of the Task's measured costs by name).
    """
    seeds = list(more.get("seeds", range(len(rewards))))
    name = more.get("name", f"{env}-{method}-{abs(hash((env, method, more.get('date')))) % 16**8:08x}")
    home, steps = folder / name, more.get("steps", 200)
    home.mkdir(parents=True)
    longest = max(len(row) for row in rewards)
    config = {"env": env, "method": method, "seeds": seeds, "episodes": more.get("asked", longest), "target": None}
    config |= {"initial_episodes": 1, "horizon": 10, "budget": 100, "model": "dmdn", "model_settings": {"ensemble": 5}}
    origin = {"command": f"guss run --env {env} --method {method}", "commit": more.get("commit", 40 * "a")}
    origin |= {
        "date": more.get("date", "2026-01-01T00:00:00Z"),
        "machine": {"cpu": more.get("cpu", "a CPU"), "cores": 2},
    }
    origin["versions"] = VERSIONS | {"guss": more.get("version", "0.1.0")}
    stored = {"schema": more.get("schema", 1), "config": config | more.get("config", {}), "provenance": origin}
    (home / "config.json").write_text(json.dumps(stored))
    lines = []
    for episode in range(longest):
        for i, seed in enumerate(seeds):
            if episode < len(rewards[i]):
                reward, risk = rewards[i][episode], unsafe if np.isscalar(unsafe) else unsafe[i][episode]
                row = {"seed": seed, "episode": episode, "phase": "random" if episode == 0 else "plan", "steps": steps}
                row |= {"total_steps": steps * (episode + 1), "return": steps * reward, "mean_reward": reward}
                row |= {"unsafe_steps": round(steps * risk / 100), "unsafe_pct": risk, "costs": {}, "hard_stop": False}
                if "measured" in more:
                    row |= {"costs": {"limit": 0.0}}
                    row |= {"unsafe_pct_by_cost": {"limit": risk} | more["measured"](seed, episode)}
                lines.append(row | {"status": more.get("status", "ok")})
    (home / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if more.get("timings", True):
        timing = [{"episode": e, "fit_seconds": 1.0, "plan_seconds": 2.0 + (e == 2), "compile_seconds": 1.0 * (e == 1),
                   "compiled_programs": int(e == 1)} for e in range(longest)]  # fmt: skip
        for row in timing[1:]:
            row |= {"r2": [[0.9, 0.99]] * len(seeds), "ks": [[0.1, 0.2]] * len(seeds)}
            row |= {"r2_horizon": [[0.5, 0.7]] * len(seeds), "nll": [-1.0] * len(seeds)}
        (home / "timings.jsonl").write_text("".join(json.dumps(row) + "\n" for row in timing))
    return home
