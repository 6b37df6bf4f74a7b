"""Methods learn and act. `--method` names one: a planner, which plans in a learned model, or a policy.

planning       any planner with a learned model (Alg. 1)
random         random actions
base           common base of policies
ppo            PPO, PPO-Lagrangian (on_policy: common base of on-policy methods)
trpo, cpo      TRPO, CPO (trust_region: their policy update)
sac            SAC
safe_mbpo      SAC in a learned model
settings       settings of agents and runs

Custom methods: subclass `guss.Method` and decorate the class with `@register_method("my-method")`.
"""

from __future__ import annotations

from typing import Any

from guss.errors import GussError, UnknownNameError
from guss.method import Method
from guss.planners import PLANNERS
from guss.registry import Entry, Registry

METHODS: Registry[type[Method]] = Registry(
    "method", "guss.methods", tuple(f"guss.methods.{name}" for name in ("sac", "safe_mbpo", "ppo", "trpo", "cpo"))
)
register_method = METHODS.register


def method_names() -> list[str]:
    return [*PLANNERS.names(), *METHODS.names()]


def check_method(name: str) -> None:
    """Raise on an unknown method name; the error suggests the nearest name."""
    if not isinstance(name, str):
        raise GussError(f"settings.method must be text, got {name!r} ({type(name).__name__})")
    if name not in method_names():
        raise UnknownNameError("method", name, method_names())


def method_entry(name: str) -> Entry[Any]:
    """The entry of a policy or a planner, whose item is its class; raises on an unknown name."""
    check_method(name)
    return METHODS[name] if name in METHODS.names() else PLANNERS[name]


def method_class(name: str) -> type[Method]:
    """The class of a method; planners share the class Planning."""
    if name in METHODS.names():
        return METHODS[name].item
    if PLANNERS[name].item.objective == "nothing":  # raises on unknown names
        from guss.methods.random import RandomActions

        return RandomActions
    from guss.methods.planning import Planning

    return Planning
