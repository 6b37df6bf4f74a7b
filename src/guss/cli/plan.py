"""`guss plan`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

from guss.cli.options import Plugins, parse_settings, prepare
from guss.errors import GussError


@dataclass
class Plan:
    """Plan once from one state and show the action, what the planner expects of it, and how it was found."""

    env: str = "safe-toy"
    """A registered environment, or your own: module:name or file.py:name of a Task or a function that returns one."""
    method: str = "guss"
    """The planner; see `guss list`."""
    horizon: int = 50
    """H: steps of a plan."""
    budget: int = 500
    """M: plans evaluated."""
    seed: int = 0
    """Seed of the search."""
    obs: Annotated[tuple[float, ...] | None, arg(metavar="X", help_behavior_hint="")] = None
    """The state to plan from; by default the task's own start."""
    set: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE")] = ()
    """Settings of the planner, such as num_new=10 (`guss list --settings` shows them)."""
    json: bool = False
    """Print JSON."""
    plugin: Plugins = ()

    def run(self) -> None:
        """Plan and print."""
        prepare(self.plugin)
        import jax
        import numpy as np

        from guss.envs.lookup import find_env
        from guss.models.oracle import Oracle
        from guss.planners import make_planner
        from guss.planners.engine import plan
        from guss.validation import check_seed

        task = find_env(self.env).make_task()
        check_seed(self.seed, "--seed")
        planner = make_planner(self.method, task, horizon=self.horizon, budget=self.budget, **parse_settings(self.set))
        key_reset, key_plan = jax.random.split(jax.random.key(self.seed))
        if self.obs is None and task.reset is None:
            raise GussError(f"task {task.name!r} has no reset function; give the state to plan from with --obs")
        obs = np.asarray(self.obs, np.float32) if self.obs is not None else task.reset(key_reset)  # type: ignore[misc]
        result = plan(planner, Oracle.of(task), task, obs, key_plan)
        numbers = {name: np.asarray(value).item() for name, value in result.diagnostics._asdict().items()}
        shown = {
            "action": np.asarray(result.action).tolist(),
            **numbers,
            "predicted_obs": np.asarray(result.trajectory.next_obs[0]).tolist(),
        }
        if self.json:
            print(json.dumps(shown, indent=2))
            return
        d = result.diagnostics
        lines = [
            f"action            {shown['action']}" + ("  (fallback: no usable prediction)" if bool(d.fallback) else ""),
            f"expected reward   {float(d.reward):.4g} over {self.horizon} steps",
            f"expected cost     {float(d.cost):g} unsafe steps beyond the bounds, {float(d.hard):g} hard violations",
            f"plans evaluated   {int(d.evaluated)}, of them {100 * float(d.safe_share):.1f} % safe",
        ]
        if int(d.occupancy):
            lines.append(f"archive           {int(d.occupancy)} of {task.grid.num_cells} cells filled")
        for share, what in (
            (d.broken_share, "predictions not finite"),
            (d.outside_share, "descriptors beyond the bounds"),
        ):
            if float(share) > 0:
                lines.append(f"warning           {100 * float(share):.1f} % of plans: {what}")
        names = task.observations.names
        ends = zip(names or task.observations.labels, shown["predicted_obs"][-1], strict=True)
        last = ", ".join(f"{name} {x:.4g}" if names else f"{x:.4g}" for name, x in ends)
        print("\n".join([*lines, f"predicted end     ({last})"]))
