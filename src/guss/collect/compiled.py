"""Closed-loop episodes on compiled tasks: whole episodes, all seeds, one program."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray, PyTree

from guss.errors import GussError
from guss.planners.engine import Diagnostics, Monitor, plan_one
from guss.task import Task
from guss.types import Model, Planner, Transition


class Walk(NamedTuple):
    """An episode under way, for one seed."""

    obs: Float[Array, "D"]
    memory: PyTree
    key: PRNGKeyArray


class EpisodeStep(NamedTuple):
    """What one step of an episode leaves behind."""

    transition: Transition
    diagnostics: Diagnostics
    seen: PyTree  # what the monitor saw while planning


def _start(planner: Planner, task: Task, key: PRNGKeyArray) -> Walk:
    assert task.reset is not None
    key_reset, key_steps = jax.random.split(key)
    return Walk(task.reset(key_reset), planner.first_memory(), key_steps)


def with_model_inputs(planner: Planner, model: Model, task: Task) -> Planner:
    """The planner with policy inputs standardised by the model, if the task leaves them open."""
    scale = model.policy_inputs()
    if task.policy_inputs is not None or scale is None:
        return planner
    return eqx.tree_at(lambda p: (p.interface.obs_shift, p.interface.obs_scale), planner, scale)


def _step(
    planner: Planner, task: Task, planned: Task, monitor: Monitor, t: Array, model: Model, walk: Walk
) -> tuple[Walk, EpisodeStep]:
    """Alg. 1, lines 13–15: plan, act on the real system, store the transition.

    `planned` is the task as plans are judged by, with its margins.
    """
    assert task.step is not None
    key_plan, key_world = jax.random.split(jax.random.fold_in(walk.key, t))
    planner = with_model_inputs(planner, model, task)
    plan = plan_one(planner, model, planned, walk.obs, key_plan, walk.memory, monitor)
    next_obs = task.step(walk.obs, plan.action, key_world)
    transition = Transition(
        obs=walk.obs,
        action=plan.action,
        reward=task.reward_of(walk.obs, plan.action, next_obs),
        cost=task.costs(walk.obs, plan.action, next_obs),
        next_obs=next_obs,
    )
    return Walk(next_obs, plan.memory, walk.key), EpisodeStep(transition, plan.diagnostics, plan.seen)


@jax.jit
def _start_all(planner: Planner, task: Task, keys: Key[Array, "S"]) -> Walk:
    return jax.vmap(partial(_start, planner, task))(keys)


@partial(jax.jit, static_argnames=("num_steps", "per_seed"), donate_argnames="walks")
def _walk_all(
    planner: Planner,
    model: Model,
    task: Task,
    planned: Task,
    monitor: Monitor,
    walks: Walk,
    start: Array,
    num_steps: int,
    per_seed: bool,
) -> tuple[Walk, EpisodeStep]:
    def body(walks: Walk, t: Array) -> tuple[Walk, EpisodeStep]:
        step = partial(_step, planner, task, planned, monitor, t)
        return jax.vmap(step, in_axes=(0 if per_seed else None, 0))(model, walks)

    return jax.lax.scan(body, walks, start + jnp.arange(num_steps, dtype=jnp.int32))


def run_episodes(
    planner: Planner,
    model: Model,
    task: Task,
    keys: Key[Array, "S"],
    *,
    steps: int | None = None,
    monitor: Monitor | None = None,
    planned: Task | None = None,
    per_seed: bool = False,
    steps_per_call: int | None = None,
    on_progress: Callable[[int], Any] | None = None,
) -> EpisodeStep:
    """One whole episode for every key, as one compiled program; arrays come back as [T, S, …].

    `planned`: the task as plans are to see it, where that is stricter (`Task.with_margin`).

    `per_seed`: the model's arrays have a leading axis S, a model for each key; otherwise all share it.

    With `steps_per_call` the program is entered several times, so that `on_progress(steps done)` can be shown and
    Ctrl-C works; it must divide the episode, and the bits do not depend on it.
    """
    for name in ("step", "reset"):
        if getattr(task, name) is None:
            raise GussError(f"task {task.name!r} has no {name} function, so its episodes cannot be compiled")
    steps = task.episode_length if steps is None else steps
    each = steps if steps_per_call is None else steps_per_call
    if steps < 1 or each < 1 or steps % each:
        raise GussError(f"steps_per_call must divide the episode: got {each} for {steps} steps")
    monitor = Monitor() if monitor is None else monitor
    planned = task if planned is None else planned
    walks = _start_all(planner, task, keys)
    parts = []
    for start in range(0, steps, each):
        begin = jnp.asarray(start, jnp.int32)
        walks, part = _walk_all(planner, model, task, planned, monitor, walks, begin, each, per_seed)
        parts.append(jax.block_until_ready(part))
        if on_progress is not None:
            on_progress(start + each)
    return jax.tree.map(lambda *x: jnp.concatenate(x), *parts)


def lower_episodes(
    planner: Planner, model: Model, task: Task, keys: Key[Array, "S"], *, planned: Task, per_seed: bool
) -> Any:
    """What `run_episodes` calls with such arguments, to be compiled."""
    walks = jax.eval_shape(_start_all, planner, task, keys)
    begin, each = np.int32(0), task.episode_length
    return _walk_all.lower(planner, model, task, planned, Monitor(), walks, begin, each, per_seed)
