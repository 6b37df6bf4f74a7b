"""A GuSS plan in QDax: MAP-Elites on the same rollouts, the whole plan in one compiled program.

python -m benchmarks.peers.with_qdax CASE SEEDS
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from qdax.core.containers.mapelites_repertoire import compute_euclidean_centroids
from qdax.core.emitters.standard_emitters import MixingEmitter
from qdax.core.map_elites import MAPElites

from benchmarks.cases import PLANS, model_of, planner_of, start_of, task_of
from benchmarks.peers.scoring import fitness_and_descriptors
from benchmarks.worker import serve
from guss.planners import policy
from guss.planners.rollouts import Particles


def planning(name: str, seeds: int) -> Callable[[], Any]:
    """A whole plan for each of `seeds` states at once, a model for each; returns first actions."""
    case = PLANS[name]
    task = task_of(case)
    planner = planner_of(case, task)
    sizes, grid = planner.schedule(case.budget), task.grid
    assert len(set(sizes[1:])) == 1, "an emitter of QDax has one batch size"
    low, high = (jnp.asarray(bound, jnp.float32) for bound in (grid.low, grid.high))
    centroids = compute_euclidean_centroids(grid.cells, low, high)
    spread = planner.mutation_variance**0.5
    emitter = MixingEmitter(
        mutation_fn=lambda x, key: x + spread * jax.random.normal(key, x.shape),
        variation_fn=lambda x, y, key: x,  # never called
        variation_percentage=0.0,
        batch_size=sizes[1],
    )

    def plan(model: Any, obs: Any, key: Any, centroids: Any) -> Any:
        particles = Particles.of(model)
        key_model, key_first, key_init, key_search = jax.random.split(key, 4)

        def scoring(candidates: Any, key: Any) -> tuple[Any, Any, dict[str, Any]]:
            fitness, descriptors = fitness_and_descriptors(task, planner, particles, obs, key_model, candidates)
            return fitness[:, None], descriptors, {}

        search = MAPElites(scoring, emitter, metrics_function=lambda repertoire: {})
        first = policy.sample(key_first, planner.sizes, sizes[0], planner.sample_std)
        repertoire, state, _ = search.init(first, centroids, key_init)
        start = (repertoire, state, key_search)
        (repertoire, _, _), _ = jax.lax.scan(search.scan_update, start, None, length=len(sizes) - 1)
        best = repertoire.genotypes[jnp.argmax(repertoire.fitnesses[:, 0])]
        return planner.act(best, obs, jnp.zeros((), jnp.int32))

    models = jax.tree.map(lambda *x: jnp.stack(x), *(model_of(case, task, i) for i in range(seeds)))
    obs, keys = jnp.stack([jnp.asarray(start_of(task))] * seeds), jax.random.split(jax.random.key(0), seeds)
    many = jax.jit(jax.vmap(plan, (0, 0, 0, None)))  # centroids as an argument: millions of constants compile slowly
    return lambda: many(models, obs, keys, centroids).block_until_ready()


if __name__ == "__main__":
    serve(planning(sys.argv[1], int(sys.argv[2])))
