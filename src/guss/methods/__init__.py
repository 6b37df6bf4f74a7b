"""Methods that the paper compares with, and that learn a policy instead of planning. One file each, in JAX.

base           what they all are: a policy that learns from whole episodes
nets           networks, Adam, scaling; Gaussian and categorical policies
episodes       several of every seed at once, compiled or by the host
on_policy      advantages and value functions: what ppo and cpo share
ppo            PPO, PPO-Lagrangian
cpo            TRPO, CPO
trust_region   their steps
sac            SAC
safe_mbpo      SAC in a learned model, where what is unsafe is worth less than anything
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from guss.planners import checked_settings
from guss.registry import Registry
from guss.task import Task

if TYPE_CHECKING:
    from guss.methods.base import Baseline

BASELINES: Registry[type[Baseline]] = Registry(
    "baseline",
    "guss.methods",
    tuple(f"guss.methods.{name}" for name in ("sac", "safe_mbpo", "ppo", "cpo")),
)
register_baseline = BASELINES.register


def make_baseline(name: str, task: Task, settings: dict[str, Any], **fields: Any) -> Baseline:
    """The baseline of that name for a task, with its own settings, and the fields that a run gives it."""
    cls = BASELINES[name].item
    return cls(task, **fields, **checked_settings("baseline", name, cls, settings))
