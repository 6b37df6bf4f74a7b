"""A GuSS plan in pyribs: a grid archive and a Gaussian emitter; guss compiles the rollouts.

python -m benchmarks.peers.with_ribs CASE
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from ribs.archives import GridArchive
from ribs.emitters import GaussianEmitter
from ribs.schedulers import Scheduler

from benchmarks.cases import PLANS, model_of, planner_of, start_of, task_of
from benchmarks.peers.scoring import fitness_and_descriptors
from benchmarks.worker import serve
from guss.planners import policy
from guss.planners.rollouts import Particles


def planning(name: str) -> Callable[[], np.ndarray]:
    """A whole plan, from an empty archive to the first action of its best policy."""
    case = PLANS[name]
    task = task_of(case)
    planner = planner_of(case, task)
    model, obs, key = model_of(case, task), jnp.asarray(start_of(task)), jax.random.key(0)
    sizes, grid = planner.schedule(case.budget), task.grid
    assert len(set(sizes[1:])) == 1, "an emitter of pyribs has one batch size"
    ranges = list(zip(map(float, grid.low), map(float, grid.high), strict=True))
    size = policy.num_parameters(planner.sizes)
    rng = np.random.default_rng(0)

    particles = jax.jit(Particles.of)(model)  # once, so that pyribs does not repeat the layout in every batch
    scoring = jax.jit(
        lambda particles, candidates: fitness_and_descriptors(task, planner, particles, obs, key, candidates)
    )
    act = jax.jit(lambda best: planner.act(best, obs, jnp.zeros((), jnp.int32)))

    def plan() -> np.ndarray:
        first = rng.normal(0.0, planner.sample_std, (sizes[0], size))
        archive = GridArchive(solution_dim=size, dims=grid.cells, ranges=ranges, dtype=np.float32)
        spread = planner.mutation_variance**0.5
        emitter = GaussianEmitter(archive, sigma=spread, initial_solutions=first, batch_size=sizes[1])
        scheduler = Scheduler(archive, [emitter])
        for _ in sizes:
            fitness, descriptors = scoring(particles, scheduler.ask())
            scheduler.tell(np.asarray(fitness), np.asarray(descriptors))
        return np.asarray(act(archive.best_elite["solution"]))

    return plan


if __name__ == "__main__":
    serve(planning(sys.argv[1]))
