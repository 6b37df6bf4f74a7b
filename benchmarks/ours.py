"""The side of guss: `python -m benchmarks.ours KIND CASE SEEDS`.

plan      a whole plan
limit     the same rollouts of as many policies, scored, in one batch: no search, no archive, candidates given
fit       a whole fit
products  a bare chain of the matrix products of a gradient step, forward and backward: no loss, no optimiser
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from benchmarks.cases import FITS, PLANS, Case, model_of, planner_of, start_of, task_of, transitions_of
from benchmarks.worker import serve
from guss.models.training import Data, FitSettings, fit_model
from guss.planners.engine import plan_one
from guss.planners.rollouts import Particles, evaluate
from guss.task import Task
from guss.types import Model, Scores

Work = Callable[[], Any]


def inputs_of(case: Case, seeds: int) -> tuple[Task, Any, Any, Array, PRNGKeyArray]:
    """The task and the planner of a case; a model, a state and a key for each seed."""
    task = task_of(case)
    models = jax.tree.map(lambda *x: jnp.stack(x), *(model_of(case, task, i) for i in range(seeds)))
    obs, keys = jnp.stack([jnp.asarray(start_of(task))] * seeds), jax.random.split(jax.random.key(0), seeds)
    return task, planner_of(case, task), models, obs, keys


def planning(name: str, seeds: int) -> Work:
    """A whole plan for each of `seeds` states at once, a model for each."""
    task, planner, models, obs, keys = inputs_of(PLANS[name], seeds)
    many = jax.jit(jax.vmap(lambda model, obs, key: plan_one(planner, model, task, obs, key).action))
    return lambda: many(models, obs, keys).block_until_ready()


def limit(name: str, seeds: int) -> Work:
    """A lower bound for planners with as many plans: all plans in one batch."""
    case, key = PLANS[name], jax.random.key(0)
    task, planner, models, obs, keys = inputs_of(case, seeds)

    def ask(key: PRNGKeyArray) -> Any:
        state = planner.init(key, obs[0], planner.first_memory())
        return planner.ask(state, planner.draws(key, case.budget), case.budget)

    def one(model: Model, obs: Array, candidates: Any) -> Scores:
        return evaluate(planner, Particles.of(model), task, obs, key, candidates)[1]

    candidates = jax.jit(jax.vmap(ask))(keys)
    many = jax.jit(jax.vmap(one))
    return lambda: jax.block_until_ready(many(models, obs, candidates))


def fitting(name: str, seeds: int = 1) -> Work:
    """A whole fit, including the evaluation of held-out rows after every epoch."""
    case = FITS[name]
    obs, actions, next_obs = (jnp.asarray(x) for x in transitions_of(case))
    data = Data(obs, actions, next_obs, jnp.ones(case.rows, bool), jnp.asarray(case.rows, jnp.int32))
    settings = FitSettings(loss="nll", batch=case.batch, max_steps=case.steps, epochs=case.steps)
    models = jax.vmap(lambda _: model_of(case, task_of(case)))(jnp.arange(seeds))
    keys = jax.random.split(jax.random.key(0), seeds)
    many = jax.jit(jax.vmap(lambda model, key, data: fit_model(model, model, data, key, settings)[0], (0, 0, None)))
    return lambda: jax.block_until_ready(many(models, keys, data))


def products(name: str, seeds: int = 1) -> Work:
    """The matrix products of as many gradient steps."""
    case = FITS[name]
    net = model_of(case, task_of(case))
    first = jnp.concatenate([net.layers[0].weight, net.before], axis=1) if net.autoregressive else net.layers[0].weight
    weights = [first, *(layer.weight for layer in net.layers[1:])]
    x = jax.random.normal(jax.random.key(0), (first.shape[0], case.batch, first.shape[1]))
    transposed = lambda a: jnp.swapaxes(a, -1, -2)  # noqa: E731

    def step(weights: list[Array], _: None) -> tuple[list[Array], None]:
        layers = [x]
        for weight in weights:
            layers.append(jnp.matmul(layers[-1], weight))
        back, gradients = layers[-1], []
        for i in reversed(range(len(weights))):
            gradients.append(jnp.matmul(transposed(layers[i]), back))
            if i:
                back = jnp.matmul(back, transposed(weights[i]))
        return [w - 1e-9 * g for w, g in zip(weights, reversed(gradients), strict=True)], None

    chain = jax.jit(lambda weights: jax.lax.scan(step, weights, None, length=case.steps)[0])
    return lambda: jax.block_until_ready(chain(weights))


WORKS = {"plan": planning, "limit": limit, "fit": fitting, "products": products}

if __name__ == "__main__":
    serve(WORKS[sys.argv[1]](sys.argv[2], int(sys.argv[3])))
