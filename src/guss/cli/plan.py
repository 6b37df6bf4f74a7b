"""`guss plan`."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Annotated

from tyro.conf import arg

from guss.cli.options import Plugins, check_planners, prepare
from guss.cli.settings_flags import Defaults, SettingsCommand
from guss.errors import GussError


@dataclass
class PlanCommand(SettingsCommand):
    """Compute one plan with the true dynamics; print its first action, predicted reward, cost and final state.

    guss plan --env safe-toy --obs 2 3
    guss plan --method cem --horizon 20 --budget 200
    """

    env: str = "safe-toy"
    """An environment of `guss list`, or a custom Task or function that returns one: module:name or file.py:name."""
    seed: int = 0
    """Seed of the search."""
    obs: Annotated[tuple[float, ...] | None, arg(metavar="X", help_behavior_hint="")] = None
    """Observation to plan from. (default: the initial state of the environment)"""
    json: bool = False
    """Print JSON."""
    plugin: Plugins = ()

    @classmethod
    def defaults(cls, named: Namespace) -> Defaults:
        """The settings of the named planner."""
        from guss.methods.settings import AgentSettings

        method = named.method or "guss"
        check_planners([method], f"to train it: guss run --method {method}")
        settings = AgentSettings(method=method, horizon=50, budget=500)
        return Defaults(settings, ("method", "horizon", "budget", "method_settings"))

    def run(self) -> None:
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
        s = self.settings
        planner = make_planner(s.method, task, horizon=s.horizon, budget=s.budget, **asdict(s.method_settings))
        key_reset, key_plan = jax.random.split(jax.random.key(self.seed))
        if self.obs is None and task.reset is None:
            raise GussError(f"task {task.name!r} has no reset function; give the state to plan from with --obs")
        obs = np.asarray(self.obs, np.float32) if self.obs is not None else task.reset(key_reset)  # type: ignore[misc]
        result = plan(planner, Oracle.of(task), task, obs, key_plan)
        action, predicted = np.asarray(result.action).tolist(), np.asarray(result.trajectory.next_obs[0]).tolist()
        numbers = {name: np.asarray(value).item() for name, value in result.diagnostics._asdict().items()}
        if self.json:
            print(json.dumps({"action": action, **numbers, "predicted_obs": predicted}, indent=2))
            return
        d = SimpleNamespace(**numbers)
        print(f"action            {action}" + "  (fallback: no finite prediction)" * d.fallback)
        print(f"expected reward   {d.reward:.4g} over {s.horizon} steps")
        print(f"expected cost     {d.cost:g} unsafe steps beyond the bounds, {d.hard:g} violations of hard limits")
        print(f"plans evaluated   {d.evaluated}, of them {100 * d.safe_share:.1f} % safe")
        if d.occupancy:
            cells = f" of {task.grid.num_cells} cells filled" if planner.keeps_archive else " plans"
            print(f"archive           {d.occupancy}{cells}")
        if d.broken_share:
            print(f"warning           {100 * d.broken_share:.1f} % of plans: predictions not finite")
        if d.outside_share:
            print(f"warning           {100 * d.outside_share:.1f} % of plans: descriptors beyond the bounds")
        names = task.observations.names or [""] * len(predicted[-1])
        last = ", ".join(f"{name} {x:.4g}".strip() for name, x in zip(names, predicted[-1], strict=True))
        print(f"predicted end     ({last})")
