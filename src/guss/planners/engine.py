"""The engine: one compiled propose → roll out → update loop that all planners share.

plan(planner, model, task, obs, key)        a whole plan, one compiled program
plan_within(..., seconds)                   as many generations as a deadline allows, in compiled chunks
begin, advance, conclude                    the stages of both, for custom loops

All functions are written for one state; for a batch of states, apply `jax.vmap` to `plan_one`.
"""

from __future__ import annotations

import itertools
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from guss import risk
from guss.errors import GussError
from guss.planners import smooth_memory
from guss.planners.plans import Diagnostics as Diagnostics
from guss.planners.plans import Monitor as Monitor
from guss.planners.plans import Plan as Plan
from guss.planners.plans import Search, Tally
from guss.planners.rollouts import Particles, evaluate, predict_outcomes, roll_out, score, unfamiliar
from guss.planners.smooth_memory import RateLimit
from guss.task import Task
from guss.types import Model, Planner, Scores


def _begin(planner: Planner, monitor: Monitor, obs: Float[Array, "D"], key: PRNGKeyArray, memory: PyTree) -> Search:
    keys = jax.random.split(key, 2 + len(planner.schedule(planner.budget)))
    zero = jnp.zeros((), jnp.int32)
    memory, last = smooth_memory.split_memory(memory)
    return Search(
        obs=obs,
        state=planner.init(keys[0], obs, memory),
        generation=zero,
        tally=Tally(zero, zero, zero, zero),
        aux=monitor.init(),
        keys=keys[2:],
        key_model=keys[1],
        last=last,
    )


def _generation(
    planner: Planner,
    particles: Particles,
    task: Task,
    monitor: Monitor,
    search: Search,
    draws: PyTree,
    num: int,
    mesh: Mesh | None,
) -> Search:
    """One pass of the loop of Alg. 4, lines 9–15 (or 4–8 for the first): ask, roll out, score, tell."""
    candidates = planner.ask(search.state, draws, num)
    rollouts, scores = evaluate(planner, particles, task, search.obs, search.key_model, candidates, mesh, search.last)
    count = lambda mask: jnp.sum(mask, dtype=jnp.int32)  # noqa: E731
    new: tuple[Any, ...] = (num, count(scores.safe), count(~scores.finite), count(scores.outside))
    return search._replace(
        state=planner.tell(search.state, candidates, scores),
        generation=search.generation + 1,
        tally=Tally(*(a + b for a, b in zip(search.tally, new, strict=True))),
        aux=monitor.update(search.aux, rollouts, scores),
    )


def _advance(
    planner: Planner,
    model: Model,
    task: Task,
    monitor: Monitor,
    search: Search,
    sizes: tuple[int, ...],
    mesh: Mesh | None = None,
) -> Search:
    """Run generations of the given sizes; consecutive generations of equal size share one compiled loop body."""
    particles = Particles.of(model)
    for num, group in itertools.groupby(sizes):

        def body(search: Search, draws: PyTree, num: int = num) -> tuple[Search, None]:
            return _generation(planner, particles, task, monitor, search, draws, num, mesh), None

        keys = search.keys[search.generation + jnp.arange(len(list(group)), dtype=jnp.int32)]
        draws = jax.vmap(lambda key, num=num: planner.draws(key, num))(keys)  # all at once, before the loop
        search, _ = jax.lax.scan(body, search, draws)
    return search


def _conclude(planner: Planner, model: Model, task: Task, search: Search) -> Plan:
    """Alg. 4, lines 16–18: the best candidate, its first action, and its predicted trajectory.

    The chosen candidate is rolled out once more for its trajectory (together with the reserve, if there is one); the
    compiler removes this if the scores are known and the trajectory is not used.
    """
    particles, limit = Particles.of(model), RateLimit.of(task, search.last)
    best, reserve, known = planner.best(search.state), planner.reserve(search.state), planner.best_scores(search.state)
    finalists = jax.tree.map(lambda *x: jnp.stack(x), *([best] if reserve is None else [best, reserve]))
    trajectories = roll_out(planner, particles, search.obs, search.key_model, finalists, limit)
    if reserve is None and known is not None:
        chosen, chosen_scores, trajectory = best, known, jax.tree.map(lambda x: x[0], trajectories)
    else:
        scores = jax.vmap(partial(score, planner, particles, task, last=search.last))(trajectories)
        row = _pick(planner, scores)
        chosen, chosen_scores, trajectory = jax.tree.map(lambda x: x[row], (finalists, scores, trajectories))
    if planner.objective == "nothing":
        fallback = jnp.zeros((), bool)
    else:
        fallback = (search.tally.broken == search.tally.evaluated) | ~chosen_scores.finite
    action = planner.act(chosen, search.obs, jnp.zeros((), jnp.int32))
    total = jnp.maximum(search.tally.evaluated, 1).astype(jnp.float32)
    share = lambda part: part.astype(jnp.float32) / total  # noqa: E731
    far = unfamiliar(particles, trajectory)
    action = jnp.where(fallback, task.fallback, action)
    if limit is not None:
        action = limit.apply(action[None], limit.before(1))[0]
    return Plan(
        action=action,
        diagnostics=Diagnostics(
            evaluated=search.tally.evaluated,
            safe_share=share(search.tally.safe),
            broken_share=share(search.tally.broken),
            outside_share=share(search.tally.outside),
            unfamiliar_share=jnp.full((), jnp.nan) if far is None else jnp.mean(far),
            reward=chosen_scores.reward,
            cost=chosen_scores.cost,
            hard=chosen_scores.hard,
            occupancy=planner.occupancy(search.state),
            fallback=fallback,
        ),
        trajectory=trajectory,
        behaviour=predict_outcomes(particles, task, trajectory).descriptor,
        memory=smooth_memory.next_memory(task, planner.memory(search.state), action),
        aux=search.aux,
    )


def _pick(planner: Planner, scores: Scores) -> Int[Array, ""]:
    """The finalist to execute, 0 or 1: the best, unless the reserve is safer (see `Planner.reserve`)."""
    first, last = (jax.tree.map(lambda x, i=i: x[i], scores) for i in (0, -1))
    instead = ~first.finite & last.finite
    if planner.objective in ("penalty", "cost"):
        instead |= risk.better(last._replace(reward=first.reward), first)
    return instead.astype(jnp.int32)


def plan_one(
    planner: Planner,
    model: Model,
    task: Task,
    obs: Float[Array, "D"],
    key: PRNGKeyArray,
    memory: PyTree | None = None,
    monitor: Monitor | None = None,
    mesh: Mesh | None = None,
) -> Plan:
    """PLAN(p̂, s_t, H, M) of Alg. 1, not compiled: call it inside a function that is compiled."""
    monitor = Monitor() if monitor is None else monitor
    memory = smooth_memory.first_memory(planner, task) if memory is None else memory
    search = _begin(planner, monitor, obs, key, memory)
    search = _advance(planner, model, task, monitor, search, planner.schedule(planner.budget), mesh)
    return _conclude(planner, model, task, search)


_plan = jax.jit(plan_one, static_argnames="mesh")
begin = jax.jit(_begin)
advance = jax.jit(_advance, static_argnames="sizes")
conclude = jax.jit(_conclude)


def check_obs(task: Task, obs: Any) -> Float[Array, "D"]:
    """The observation as an array; raises GussError if its shape or a value is wrong."""
    array = np.asarray(obs, np.float32)
    if array.shape != (task.observations.size,):
        raise GussError(
            f"task {task.name!r}: an observation must have shape ({task.observations.size},), got {array.shape}; "
            f"plan for one state at a time, or vmap `plan_one` over a batch"
        )
    if not np.isfinite(array).all():
        bad = ", ".join(task.observations.labels[i] for i in np.flatnonzero(~np.isfinite(array)))
        raise GussError(f"task {task.name!r}: the observation is not finite in {bad}: {array.tolist()}")
    return jnp.asarray(array)


def plan(
    planner: Planner,
    model: Model,
    task: Task,
    obs: Any,
    key: PRNGKeyArray,
    memory: PyTree | None = None,
    monitor: Monitor | None = None,
    mesh: Mesh | None = None,
    last_action: Any = None,
) -> Plan:
    """One plan from one observation, as one compiled program.

    `planner`: searches for a plan. `model`: predicts it. `task`: scores it. `obs` [D]: the current observation. `key`:
    a JAX random key. `memory`: `Plan.memory` of the episode's last plan; None for the first plan. `monitor`: collects
    data about the search. With a `mesh` (`jax.make_mesh((jax.device_count(),), ("plans",))`), the candidates of every
    generation are divided among its devices; the plan is the same up to rounding. `last_action`: the action that was
    applied before, if it is not that of the plan with this `memory`; only used with `task.smoothness` or
    `task.max_change`.

    Returns a Plan. Raises GussError if `obs` or `last_action` has the wrong shape or is not valid.

    Example:
        >>> task = guss.make_task("safe-toy")
        >>> planner = guss.make_planner("rs", task, horizon=2, budget=4)
        >>> plan = guss.plan(planner, guss.Oracle.of(task), task, [5.0, 5.0], jax.random.key(0))
        >>> plan.action.shape, bool(plan.diagnostics.fallback)
        ((2,), False)
    """
    memory = smooth_memory.with_last_action(planner, task, memory, last_action)
    return _plan(planner, model, task, check_obs(task, obs), key, memory, monitor, mesh)


def plan_within(
    planner: Planner,
    model: Model,
    task: Task,
    obs: Any,
    key: PRNGKeyArray,
    seconds: float,
    chunk: int = 8,
    memory: PyTree | None = None,
    monitor: Monitor | None = None,
    last_action: Any = None,
) -> Plan:
    """The best plan found before the deadline: chunks of `chunk` generations until `seconds` have passed.

    The first chunk always runs. If all generations run, the plan equals that of `plan`. The first call compiles the
    chunks, so call it once before timing matters. `planner`, `model`, `task`, `obs`, `key`, `memory`, `monitor`,
    `last_action` and the result are as for `plan`. Raises GussError like `plan`, and if `chunk` < 1 or `seconds` is
    negative.

    Example:
        >>> task = guss.make_task("safe-toy")
        >>> planner = guss.make_planner("rs", task, horizon=2, budget=4)
        >>> plan = guss.plan_within(planner, guss.Oracle.of(task), task, [5.0, 5.0], jax.random.key(0), seconds=1.0)
        >>> int(plan.diagnostics.evaluated)
        4
    """
    if chunk < 1 or not 0.0 <= seconds < float("inf"):
        raise GussError(
            f"chunk must be at least 1, seconds finite and at least 0; got chunk={chunk}, seconds={seconds}"
        )
    deadline = time.monotonic() + seconds
    monitor = Monitor() if monitor is None else monitor
    memory = smooth_memory.with_last_action(planner, task, memory, last_action)
    memory = smooth_memory.first_memory(planner, task) if memory is None else memory
    search = begin(planner, monitor, check_obs(task, obs), key, memory)
    sizes = planner.schedule(planner.budget)
    for start in range(0, len(sizes), chunk):
        search = jax.block_until_ready(advance(planner, model, task, monitor, search, sizes[start : start + chunk]))
        if time.monotonic() >= deadline:
            break
    return conclude(planner, model, task, search)
