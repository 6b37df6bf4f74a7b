"""Methods: how to learn and act. `--method` names one: a planner, which plans in a learned model, or a policy.

planning       any planner with a learned model (Alg. 1)
random         random actions
base           what policies share
ppo            PPO, PPO-Lagrangian (on_policy: what on-policy methods share)
trpo, cpo      TRPO, CPO (trust_region: their step)
sac            SAC
safe_mbpo      SAC in a learned model
settings       everything that decides how a method learns and acts

Write your own: subclass `guss.Method`, decorate it with `@register_method("my-method")`.
"""

from __future__ import annotations

from guss.errors import GussError, UnknownNameError
from guss.method import Method
from guss.planners import PLANNERS
from guss.registry import Registry

METHODS: Registry[type[Method]] = Registry(
    "method",
    "guss.methods",
    tuple(f"guss.methods.{name}" for name in ("sac", "safe_mbpo", "ppo", "trpo", "cpo")),
)
register_method = METHODS.register


def method_names() -> list[str]:
    return [*PLANNERS.names(), *METHODS.names()]


def check_method(name: str) -> None:
    """Raise on a name that is not a method's, with the nearest one."""
    if not isinstance(name, str):
        raise GussError(f"settings.method must be text, got {name!r} ({type(name).__name__})")
    if name not in method_names():
        raise UnknownNameError("method", name, method_names())


def method_class(name: str) -> type[Method]:
    """The class of a method: planners share one."""
    if name in METHODS.names():
        return METHODS[name].item
    if PLANNERS[name].item.objective == "nothing":  # raises on unknown names
        from guss.methods.random import RandomActions

        return RandomActions
    from guss.methods.planning import Planning

    return Planning
