"""The compiled planner against the slow one: the same random numbers, whole plans, elite by elite.

The toy world's sums are whole numbers, so scores are exact in float32 and must agree exactly.
"""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.reference import Collection, walk
from hypothesis import given, settings
from hypothesis import strategies as st

from guss.envs.toy import ToyLayout, toy_task
from guss.models.oracle import Oracle
from guss.planners import make_planner, policy
from guss.planners.engine import Monitor, advance, begin, conclude
from guss.task import Grid

SIZE, HORIZON, BUDGET = 12, 6, 31  # 31: the last generation is cut
LAYOUT = ToyLayout(size=SIZE, start=(2, 2), goal=(10, 10), goal_radius=1, unsafe=((4, 6, 4, 6), (0, 1, 8, 9)))
TASK = toy_task(LAYOUT).replace(grid=Grid((0.0, 0.0), (SIZE, SIZE), (4, 4)))  # few cells: many collisions
PLANNERS = {
    name: make_planner(name, TASK, horizon=HORIZON, budget=BUDGET, num_initial=10, num_new=4)
    for name in ("guss", "map-elites")
}


@partial(jax.jit, static_argnums=(1, 2))
def draws(key, num, sizes):
    """The random numbers of one generation: a lot in (−1, 1) for every row, then normal noise for every parameter."""
    lowest = float(np.nextafter(np.float32(-1), np.float32(0)))
    count = num * policy.num_parameters(sizes)
    unit = jax.random.uniform(key, (BUDGET + count,), minval=lowest, maxval=1.0)
    return unit[:BUDGET], (np.sqrt(2.0, dtype=np.float32) * jax.lax.erf_inv(unit[BUDGET:])).reshape(num, -1)


@cache
def tables(name):
    """What every policy of a generation does in every position."""
    grid = jnp.stack(jnp.meshgrid(*[jnp.arange(SIZE + 1.0)] * 2, indexing="ij"), -1)
    act = lambda params: jax.vmap(jax.vmap(lambda obs: PLANNERS[name].act(params, obs, jnp.zeros((), jnp.int32))))(grid)  # noqa: E731
    return jax.jit(jax.vmap(act))


def slow_generations(name, start, areas, goal, key):
    """Alg. 4 with Alg. 5 and 6 (or Alg. 2 with Alg. 3), one policy at a time; yields the collection as it grows."""
    planner = PLANNERS[name]
    collection = Collection(safety=name == "guss")
    for generation, (num, key_now) in enumerate(zip(planner.schedule(BUDGET), key, strict=True)):
        lots, noise = jax.device_get(draws(key_now, num, planner.sizes))
        if generation == 0:
            policies = list(noise)
        else:
            parents = [entry.policy for entry in collection.select(num, lots)]
            policies = [parent + np.float32(0.05**0.5) * e for parent, e in zip(parents, noise, strict=False)]
            policies += list(np.float32(1.05**0.5) * noise[len(parents) :])  # sampled, N(0, 1), and mutated
        moves = np.asarray(tables(name)(np.stack(policies)))
        for params, table in zip(policies, moves, strict=True):
            reward, cost, (x, y) = walk(lambda at, table=table: table[at], start, areas, goal, SIZE, HORIZON)
            cell = min(x * 4 // SIZE, 3) * 4 + min(y * 4 // SIZE, 3)
            collection.store(params, cell, 0, cost, reward, True)
        yield collection


def assert_same(archive, collection):
    archive = jax.device_get(archive)
    rows = np.flatnonzero(archive.elite)
    cells = archive.scores.cell[rows]
    assert sorted(cells.tolist()) == sorted(collection.cells)
    for row, cell in zip(rows, cells, strict=True):
        entry = collection.cells[int(cell)]
        assert (archive.scores.cost[row], archive.scores.reward[row]) == (entry.cost, entry.reward)
        assert row == entry.arrival
        np.testing.assert_allclose(archive.candidates[row], entry.policy, rtol=1e-5, atol=1e-6)


position = st.integers(0, SIZE)
rectangle = st.tuples(position, position, position, position).map(lambda r: (*sorted(r[:2]), *sorted(r[2:])))
worlds = st.fixed_dictionaries(
    {
        "start": st.tuples(position, position),
        "goal": st.tuples(position, position),
        "areas": st.tuples(rectangle, rectangle),
        "seed": st.integers(0, 2**31 - 1),
    }
)


def agree(name, world):
    """One whole plan both ways; returns how many cells were filled and how many policies were safe elites."""
    planner, monitor = PLANNERS[name], Monitor()
    task = TASK.update("reward", goal=world["goal"]).update("unsafe_area", areas=world["areas"])
    model = Oracle.of(task)
    start, key = jnp.asarray(world["start"], jnp.float32), jax.random.key(world["seed"])
    search = begin(planner, monitor, start, key, planner.first_memory())
    slow = slow_generations(name, world["start"], world["areas"], world["goal"], search.keys)
    for num, collection in zip(planner.schedule(BUDGET), slow, strict=True):
        search = advance(planner, model, task, monitor, search, (num,))
        assert_same(search.state, collection)
    plan = conclude(planner, model, task, search)
    best = collection.best()
    x, y = world["start"]
    assert plan.action.tolist() == np.asarray(tables(name)(best.policy[None]))[0, x, y].tolist()
    assert float(plan.diagnostics.reward) == best.reward
    if name == "guss":
        assert float(plan.diagnostics.cost) == best.cost
    assert int(plan.diagnostics.evaluated) == BUDGET
    return len(collection.cells), len(collection.eligible())


@pytest.mark.parametrize("name", PLANNERS)
@settings(max_examples=60)
@given(world=worlds)
def test_whole_plans_agree_with_the_slow_reference(name, world):
    agree(name, world)


@pytest.mark.long
@pytest.mark.parametrize("name", PLANNERS)
def test_thousands_of_whole_plans_agree_with_the_slow_reference(name, record_result):
    seen = []

    @settings(max_examples=3000)
    @given(world=worlds)
    def many(world):
        seen.append(agree(name, world))

    many()
    assert len(seen) >= 2000
    filled, safe = np.asarray(seen).T
    record_result(
        f"reference-{name}",
        {
            "agreed": True,
            "plans": len(seen),
            "policies": len(seen) * BUDGET,
            "mean_cells_filled": float(filled.mean()),
            "share_of_plans_without_safe_elites": float((safe == 0).mean()),
        },
    )
