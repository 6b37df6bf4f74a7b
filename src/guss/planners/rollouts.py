"""Rollouts of candidates in a model, and their scores.

All functions are written for one state; `engine.py` calls them for every generation of a plan.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from guss import risk
from guss.errors import GussError
from guss.planners import smooth_memory
from guss.planners.smooth_memory import LastAction, RateLimit
from guss.task import Task
from guss.types import Model, Outcomes, Planner, Rollout, Scores


class Particles(eqx.Module):
    """A model in its layout for planning (see `Model.prepare`)."""

    model: Model
    axis: Literal[0] | None = eqx.field(static=True)
    """The axis of the particles in the model's arrays; None if all particles share the arrays."""
    count: int = eqx.field(static=True)
    """P: the number of particles, of all members of an ensemble together."""
    scale: Float[Array, "D"] | None
    """Standard deviation of the training data; None if the model has none."""

    @classmethod
    def of(cls, model: Model) -> Particles:
        """Prepare a model. Call this once per plan, outside its loops, which would repeat it in every pass."""
        inputs = model.policy_inputs()
        return cls(*model.prepare(), model.num_particles, None if inputs is None else inputs[1])

    @property
    def numbers(self) -> Int[Array, "P"]:
        """The index that `Model.predict` receives for each particle: 0 … P − 1; within its member if axis is 0."""
        return jnp.arange(self.count, dtype=jnp.int32) // (self.count // self.model.num_particles)


def roll_out(
    planner: Planner,
    particles: Particles,
    obs: Float[Array, "D"],
    key: PRNGKeyArray,
    candidates: PyTree,
    limit: RateLimit | None = None,
) -> Rollout:
    """ROLLOUT of Alg. 4 for N candidates: H steps for each of the model's P particles, [N, P, H, …].

    The keys do not depend on the candidate: all plans of a search share their noise (common random numbers). With a
    `limit`, each action is the nearest to that of the candidate that the limit allows.
    """

    def particle(model: Model, index: Int[Array, ""], key: PRNGKeyArray) -> Rollout:
        def step(
            now: tuple[PyTree, Array, PyTree], coming: tuple[Array, PRNGKeyArray]
        ) -> tuple[tuple[PyTree, Array, PyTree], tuple[Array, Array]]:
            (states, obs, last), (t, key_step) = now, coming
            actions = jax.vmap(planner.act, (0, 0, None))(candidates, obs, t)
            if limit is not None:
                actions = limit.apply(actions, last)
                last = limit.after(actions)
            states = jax.vmap(model.predict, (0, 0, None, None))(obs if plain else states, actions, key_step, index)
            next_obs = jax.vmap(model.decode)(states)
            return (None if plain else states, next_obs, last), (actions, next_obs)

        num = jax.tree.leaves(candidates)[0].shape[0]
        everyone = lambda x: jnp.broadcast_to(x[None], (num, *x.shape))  # noqa: E731
        start = everyone(obs)
        plain = model.plain_state  # the observation is the whole state
        states = None if plain else jax.tree.map(everyone, model.encode(obs))
        last = None if limit is None else limit.before(num)
        steps = (jnp.arange(planner.horizon, dtype=jnp.int32), jax.random.split(key, planner.horizon))
        _, (actions, next_obs) = jax.lax.scan(step, (states, start, last), steps)
        return Rollout(jnp.concatenate([start[None], next_obs[:-1]]), actions, next_obs)  # [H, N, …]

    keys = jax.random.split(key, particles.count)
    rollouts = jax.vmap(particle, (particles.axis, 0, 0))(particles.model, particles.numbers, keys)  # [P, H, N, …]
    return jax.tree.map(lambda x: jnp.moveaxis(x, 2, 0), rollouts)


def predict_outcomes(particles: Particles, task: Task, rollout: Rollout) -> Outcomes:
    """Reward and cost of every particle's trajectory [P, H, …], and the mean of their descriptors, [B]."""
    each = jax.vmap(lambda model, one: model.outcomes(task, one), (particles.axis, 0))(particles.model, rollout)
    if task.unknown_unsafe:
        if (far := unfamiliar(particles, rollout)) is None:
            name = type(particles.model).__name__
            raise GussError(f"unknown_unsafe needs a model with a method `unfamiliar`, which {name} does not define")
        each = each._replace(cost=jnp.maximum(each.cost, far[..., None]))
    if task.disagreement is not None:
        apart = disagreeing(particles, task.disagreement, rollout)
        each = each._replace(cost=jnp.maximum(each.cost, apart[None, :, None]))
    return each._replace(descriptor=jnp.mean(each.descriptor, axis=0))


def unfamiliar(particles: Particles, rollout: Rollout) -> Float[Array, "P H"] | None:
    """Which predicted states are far from the training data; None if the model does not define it."""
    each: Any = jax.vmap(lambda model, obs: jax.vmap(model.unfamiliar)(obs), (particles.axis, 0))
    return each(particles.model, rollout.next_obs)


def disagreeing(particles: Particles, threshold: float, rollout: Rollout) -> Float[Array, "H"]:
    """At which steps the particles' predictions differ by more than `threshold` standard deviations of the data."""
    name = type(particles.model).__name__
    if particles.count < 2:
        raise GussError(
            f"disagreement={threshold:g} compares predictions of several ensemble members, but the model {name} "
            f"predicts a plan once: use an ensemble, such as ensemble=5 (--model.ensemble 5)"
        )
    if particles.scale is None:
        raise GussError(
            f"disagreement={threshold:g} is measured in standard deviations of the training data, and the model {name} "
            f"has none: define its `policy_inputs`"
        )
    apart = jnp.std(rollout.next_obs, axis=0) > threshold * particles.scale[None]
    return jnp.any(apart, axis=1).astype(jnp.float32)


def score(
    planner: Planner, particles: Particles, task: Task, rollout: Rollout, last: LastAction | None = None
) -> Scores:
    """Reward, cost and cell of one plan, from its predicted trajectories [P, H, …]; `last`: the action before it."""
    rewards, costs, descriptor = predict_outcomes(particles, task, rollout)
    reward = jnp.mean(jnp.sum(rewards, axis=1))
    if task.smoothness:
        reward = reward - smooth_memory.price_of_change(task, rollout, last)
    finite = jnp.isfinite(reward)
    for part in (rollout.next_obs, costs, descriptor):
        finite &= jnp.all(jnp.isfinite(part))
    hard, cost = risk.plan_cost(task, costs, planner.over_particles)
    cell, outside = task.grid.cell(descriptor)
    return risk.make_scores(hard, cost, reward, cell, finite, outside, planner.describe(rollout, descriptor))


def evaluate(
    planner: Planner,
    particles: Particles,
    task: Task,
    obs: Float[Array, "D"],
    key: PRNGKeyArray,
    candidates: PyTree,
    mesh: Mesh | None = None,
    last: LastAction | None = None,
) -> tuple[Rollout, Scores]:
    """Roll out and score N candidates; each device of the mesh takes an equal part of them."""

    def part(
        particles: Particles, task: Task, obs: Array, key: PRNGKeyArray, last: LastAction | None, candidates: PyTree
    ) -> Any:
        rollouts = roll_out(planner, particles, obs, key, candidates, RateLimit.of(task, last))
        return rollouts, jax.vmap(partial(score, planner, particles, task, last=last))(rollouts)

    if mesh is None:
        return part(particles, task, obs, key, last, candidates)
    mesh = Mesh(mesh.devices, mesh.axis_names)  # replaces the axis types of the given mesh by the defaults
    num = jax.tree.leaves(candidates)[0].shape[0]
    extra = -num % mesh.size  # repeat the last candidate so that all parts are equal; removed below
    fill = lambda x: jnp.concatenate([x, jnp.broadcast_to(x[-1:], (extra, *x.shape[1:]))])  # noqa: E731
    shared, split = PartitionSpec(), PartitionSpec(mesh.axis_names)
    # Only rollouts are sharded. The search is small and replicated on every device; without these constraints before
    # and after the rollouts, the compiler would shard it too, including its random numbers.
    everywhere = lambda tree: jax.lax.with_sharding_constraint(tree, NamedSharding(mesh, shared))  # noqa: E731
    spread = jax.shard_map(part, mesh=mesh, in_specs=(shared,) * 5 + (split,), out_specs=split, check_vma=False)
    outcome = spread(particles, task, obs, key, last, jax.tree.map(fill, everywhere(candidates)))
    return jax.tree.map(lambda x: x[:num], everywhere(outcome))
