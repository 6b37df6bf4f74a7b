"""The action before a plan, for tasks in which the change of actions has a price or a limit (`Task.smooth`).

The memory from plan to plan then includes the last action; without price and limit, it is that of the planner alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree, Shaped

from guss.errors import GussError
from guss.task import Task
from guss.types import Actions, AnyArray, Planner, Rollout


class LastAction(NamedTuple):
    """The action that was applied last."""

    action: Shaped[AnyArray, "..."]
    known: Bool[AnyArray, "..."]
    """False at the start of an episode: there was no action."""


class SmoothMemory(NamedTuple):
    """`Plan.memory` of a smooth task."""

    planner: PyTree
    """The memory of the planner."""
    last: LastAction


def first_memory(planner: Planner, task: Task) -> PyTree:
    """The memory for the first plan of an episode."""
    memory = planner.first_memory()
    return SmoothMemory(memory, _no_action(task)) if task.smooth else memory


def next_memory(task: Task, memory: PyTree, action: Array) -> PyTree:
    """The memory for the next plan; `memory`: that of the planner, `action`: the action to apply."""
    return SmoothMemory(memory, LastAction(action, jnp.ones((), bool))) if task.smooth else memory


def split_memory(memory: PyTree) -> tuple[PyTree, LastAction | None]:
    """The memory of the planner, and the last action if the task is smooth."""
    return memory if isinstance(memory, SmoothMemory) else (memory, None)


def with_last_action(planner: Planner, task: Task, memory: PyTree | None, action: Any) -> PyTree:
    """The memory for a plan after an action that the user gives; unchanged if the action is None or has no effect."""
    if action is None or not task.smooth:
        return memory
    array = np.asarray(action)
    if array.shape != task.actions.shape or task.actions.outside(array).any():
        raise GussError(f"task {task.name!r}: last_action must be an action of {task.actions}, got {array.tolist()}")
    own = planner.first_memory() if memory is None else split_memory(memory)[0]
    return next_memory(task, own, jnp.asarray(task.actions.rounded(array)))


def with_applied_action(memory: PyTree, action: Any) -> PyTree:
    """The memory on the host, with any leading axes, after the system applied this action, perhaps another one."""
    if not isinstance(memory, SmoothMemory):
        return memory
    now, known = (np.asarray(x) for x in memory.last)
    applied = np.asarray(action, now.dtype).reshape(now.shape)
    return memory._replace(last=LastAction(applied, np.ones_like(known)))


def price_of_change(task: Task, rollout: Rollout, last: LastAction | None) -> Float[Array, ""]:
    """`task.smoothness` times the change of actions, summed over the steps of a plan; mean over particles."""
    change: Any = jax.vmap(jax.vmap(lambda before, after: jnp.mean(task.actions.change(before, after))))
    actions = rollout.action  # [P, H, …]
    changed = jnp.sum(change(actions[:, :-1], actions[:, 1:]), axis=1)
    if last is not None:
        before = jnp.broadcast_to(last.action, actions[:, :1].shape)
        changed = changed + jnp.where(last.known, change(before, actions[:, :1])[:, 0], 0.0)
    return task.smoothness * jnp.mean(changed)


class RateLimit(NamedTuple):
    """The limit on the change of actions in a rollout."""

    actions: Actions
    share: float
    last: LastAction

    @classmethod
    def of(cls, task: Task, last: LastAction | None) -> RateLimit | None:
        """The task's limit, after this action; None if it has none."""
        if task.max_change is None:
            return None
        return cls(task.actions, task.max_change, _no_action(task) if last is None else last)

    def before(self, num: int) -> LastAction:
        """The last action before the first step, for each of `num` candidates."""
        return LastAction(jnp.broadcast_to(self.last.action, (num, *self.actions.shape)), self.last.known)

    def after(self, actions: Float[Array, "N A"]) -> LastAction:
        """The last action, after a step with these actions."""
        return LastAction(actions, jnp.ones((), bool))

    def apply(self, actions: Float[Array, "N A"], last: LastAction) -> Float[Array, "N A"]:
        """The nearest actions that the limit allows."""
        limited = jax.vmap(lambda action, before: self.actions.limited(action, before, self.share))  # type: ignore[union-attr]
        return jnp.where(last.known, limited(actions, last.action), actions)


def _no_action(task: Task) -> LastAction:
    return LastAction(task.fallback, jnp.zeros((), bool))
