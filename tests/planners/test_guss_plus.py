"""guss-plus against a slow reference in plain Python, and what it carries over from plan to plan."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import ACTIONS, make_task
from helpers.reference import Collection, Population, walk
from hypothesis import given, settings
from hypothesis import strategies as st

from guss.envs.toy import ToyLayout, toy_task
from guss.errors import GussError
from guss.models.oracle import Oracle
from guss.planners import make_planner
from guss.planners.engine import Monitor, advance, begin, conclude, plan, plan_one, plan_within
from guss.task import Grid

SIZE, HORIZON, BUDGET = 12, 6, 31
LAYOUT = ToyLayout(size=SIZE, start=(2, 2), goal=(10, 10), goal_radius=1, unsafe=((4, 6, 4, 6), (0, 1, 8, 9)))
TASK = toy_task(LAYOUT).replace(grid=Grid((0.0, 0.0), (SIZE, SIZE), (4, 4)))  # few cells: many collisions
SIZES = {"horizon": HORIZON, "budget": BUDGET, "num_initial": 10, "num_new": 7, "num_carried": 4}
PLANNER = make_planner("guss-plus", TASK, **SIZES)
SAFE_PARENTS = make_planner("guss-plus", TASK, **SIZES, parents="safe")
NOVELTY = make_planner("guss-plus", TASK, **SIZES, diversity="novelty", population=8, novelty_k=2)
LEARNED = {"diversity": "novelty", "descriptor": "pca"}
DIVERSITIES = {"grid": {}, "novelty": {"diversity": "novelty"}, "pca": LEARNED}
GRID = jnp.stack(jnp.meshgrid(*[jnp.arange(SIZE + 1.0)] * 2, indexing="ij"), -1)


@jax.jit
def tables(numbers):
    """Actions of every candidate at every step and in every position, [N, H, x, y, 2]."""
    act = jax.vmap(jax.vmap(PLANNER.act, (None, 0, None)), (None, 0, None))
    steps = jnp.arange(HORIZON, dtype=jnp.int32)
    return jax.vmap(jax.vmap(act, (None, None, 0)), (0, None, None))(numbers, GRID, steps)


def ranked(collection):
    """Elites from best to worst; of equal ones the first arrival."""
    return sorted(collection.cells.values(), key=lambda e: (e.hard, e.cost, -e.reward, e.arrival))


def slow_parents(planner, collection, lots, num):
    """Half random elites, half the best elites in turn; the best replace random ones that are missing."""
    best = ranked(collection)
    uniform = num - round(planner.greedy_share * num)
    eligible = [e for e in best if planner.parents == "all" or e.hard == e.cost == 0]
    parents = [entry.policy for entry in sorted(eligible, key=lambda e: -lots[e.arrival])[:uniform]]
    parents += [best[i % len(best)].policy for i in range(len(parents), uniform)]
    return np.stack(parents + [best[i % len(best)].policy for i in range(num - uniform)])


def cell_of(x, y):
    return min(x * 4 // SIZE, 3) * 4 + min(y * 4 // SIZE, 3)


def slow_plan(planner, keys, memory, start, areas, goal, collection, cell=cell_of):
    """A whole plan, one candidate at a time; yields the collection after each generation."""
    kinds = planner.representation
    for generation, num in enumerate(planner.schedule(BUDGET)):
        draws = planner.draws(keys[generation], num)
        if generation == 0:
            numbers = np.array(kinds.sample(draws.noise))
            for i in np.flatnonzero(memory.known):
                numbers[i] = kinds.next_step(jnp.asarray(memory.elites[i : i + 1]))[0]
        else:
            parents = jnp.asarray(slow_parents(planner, collection, np.asarray(draws.lots), num))
            numbers = np.asarray(parents + kinds.mutation(draws.noise, parents))
        for each, table in zip(numbers, np.asarray(tables(jnp.asarray(numbers))), strict=True):
            step = iter(range(HORIZON))
            act = lambda at, table=table, step=step: table[next(step)][at]  # noqa: E731
            reward, cost, (x, y) = walk(act, start, areas, goal, SIZE, HORIZON)
            collection.store(each, cell(x, y), 0, cost, reward, True)
        yield collection


position = st.integers(0, SIZE)
rectangle = st.tuples(position, position, position, position).map(lambda r: (*sorted(r[:2]), *sorted(r[2:])))


worlds = given(
    start=st.tuples(position, position),
    goal=st.tuples(position, position),
    areas=st.tuples(rectangle, rectangle),
    seed=st.integers(0, 2**31 - 1),
    warm=st.booleans(),
)


@settings(max_examples=25)
@worlds
@pytest.mark.parametrize("planner", [PLANNER, SAFE_PARENTS])
def test_whole_plans_agree_with_the_slow_reference(start, goal, areas, seed, warm, planner):
    task = TASK.update("reward", goal=goal).update("unsafe_area", areas=areas)
    model, key, obs = Oracle.of(task), jax.random.key(seed), jnp.asarray(start, jnp.float32)
    memory = plan(planner, model, task, obs, jax.random.key(1)).memory if warm else planner.first_memory()
    search = begin(planner, Monitor(), obs, key, memory)
    keys, slow = search.keys, None
    for num, slow in zip(
        planner.schedule(BUDGET),
        slow_plan(planner, keys, jax.device_get(memory), start, areas, goal, Collection()),
        strict=True,
    ):
        search = advance(planner, model, task, Monitor(), search, (num,))
        archive = jax.device_get(search.state.archive)
        rows = np.flatnonzero(archive.elite)
        assert sorted(archive.scores.cell[rows].tolist()) == sorted(slow.cells)
        for row in rows:
            entry = slow.cells[int(archive.scores.cell[row])]
            assert (row, archive.scores.cost[row], archive.scores.reward[row]) == (
                entry.arrival,
                entry.cost,
                entry.reward,
            )
            np.testing.assert_allclose(archive.candidates[row], entry.policy, rtol=1e-5, atol=1e-6)
    found, best = conclude(planner, model, task, search), ranked(slow)
    assert (float(found.diagnostics.cost), float(found.diagnostics.reward)) == (best[0].cost, best[0].reward)
    carried = best[: planner.num_carried]
    assert np.asarray(found.memory.known).tolist() == [i < len(carried) for i in range(planner.num_carried)]
    for numbers, entry in zip(np.asarray(found.memory.elites), carried, strict=False):
        np.testing.assert_allclose(numbers, entry.policy, rtol=1e-5, atol=1e-6)


@settings(max_examples=40)
@worlds
def test_whole_plans_with_novelty_agree_with_the_slow_reference(start, goal, areas, seed, warm):
    """The descriptor is the last position, in whole numbers; parents, survivors and what is carried over agree."""
    task = TASK.update("reward", goal=goal).update("unsafe_area", areas=areas)
    model, obs = Oracle.of(task), jnp.asarray(start, jnp.float32)
    memory = plan(NOVELTY, model, task, obs, jax.random.key(1)).memory if warm else NOVELTY.first_memory()
    search = begin(NOVELTY, Monitor(), obs, jax.random.key(seed), memory)
    slow = Population(NOVELTY.population, NOVELTY.novelty_k)
    states = slow_plan(NOVELTY, search.keys, jax.device_get(memory), start, areas, goal, slow, lambda x, y: (x, y))
    for num, _ in zip(NOVELTY.schedule(BUDGET), states, strict=True):
        search = advance(NOVELTY, model, task, Monitor(), search, (num,))
        archive = jax.device_get(search.state.archive)
        slow.survive(np.flatnonzero(archive.elite).tolist())
        for row, entry in slow.cells.items():
            found = (archive.scores.cost[row], archive.scores.reward[row], *archive.scores.descriptor[row])
            assert found == (entry.cost, entry.reward, *entry.cell)
            np.testing.assert_allclose(archive.candidates[row], entry.policy, rtol=1e-5, atol=1e-6)
    found, best = conclude(NOVELTY, model, task, search), ranked(slow)
    assert (float(found.diagnostics.cost), float(found.diagnostics.reward)) == (best[0].cost, best[0].reward)
    assert int(found.diagnostics.occupancy) == len(best) == NOVELTY.population
    assert np.asarray(found.memory.known).all()
    for numbers, entry in zip(np.asarray(found.memory.elites), best, strict=False):
        np.testing.assert_allclose(numbers, entry.policy, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["continuous", "discrete"])
@pytest.mark.parametrize(
    "changes",
    [{"candidates": "policy"}, {"candidates": "sequence"}, *DIVERSITIES.values()],
    ids=["policy", "sequence", *DIVERSITIES],
)
def test_every_representation_plans(changes, kind):
    """A plan that starts from the elites of a plan from the same state is at least nearly as good as that plan."""
    task = make_task(ACTIONS[kind])
    planner = make_planner("guss-plus", task, horizon=4, budget=60, num_initial=20, **changes)
    first = plan(planner, Oracle.of(task), task, np.zeros(2), jax.random.key(0))
    again = plan(planner, Oracle.of(task), task, np.zeros(2), jax.random.key(1), memory=first.memory)
    assert int(again.diagnostics.evaluated) == 60
    assert float(again.diagnostics.cost) <= float(first.diagnostics.cost)
    assert np.asarray(first.memory.known).any()


def broken(obs, action, key):
    return obs * jnp.nan


@pytest.mark.parametrize("changes", DIVERSITIES.values(), ids=DIVERSITIES)
def test_nothing_is_carried_over_from_a_plan_without_finite_predictions(changes):
    task = make_task(ACTIONS["continuous"], step=broken)
    planner = make_planner("guss-plus", task, horizon=4, budget=40, **changes)
    found = plan(planner, Oracle.of(task), task, np.zeros(2), jax.random.key(0))
    assert bool(found.diagnostics.fallback)
    assert not np.asarray(found.memory.known).any()


@pytest.mark.parametrize("changes", list(DIVERSITIES.values())[1:], ids=list(DIVERSITIES)[1:])
def test_plans_without_a_grid_in_chunks_and_in_batches_are_the_same_plans(changes):
    task = make_task(ACTIONS["continuous"])
    planner = make_planner("guss-plus", task, horizon=4, budget=60, num_initial=20, num_new=20, **changes)
    args, keys = (planner, Oracle.of(task), task), jax.random.split(jax.random.key(0))
    one = plan(*args, np.zeros(2), keys[0])
    chunks = plan_within(*args, np.zeros(2), keys[0], seconds=600, chunk=1)
    assert jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(a, b, equal_nan=True), one, chunks))
    many = jax.jit(jax.vmap(lambda key: plan_one(*args, jnp.zeros(2), key)))(keys)
    np.testing.assert_allclose(many.action[0], one.action, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(many.diagnostics.reward[0], one.diagnostics.reward, rtol=1e-4)


def broken_above(obs, action, key):
    return jnp.where(obs > 0.2, jnp.nan, obs + 0.1 * jnp.sum(action))


def test_components_are_those_of_the_first_generation_and_survive_broken_predictions():
    task = make_task(ACTIONS["continuous"], step=broken_above)
    planner = make_planner("guss-plus", task, horizon=4, budget=60, num_initial=20, components=2, **LEARNED)
    search = begin(planner, Monitor(), jnp.zeros(2), jax.random.key(0), planner.first_memory())
    first = advance(planner, Oracle.of(task), task, Monitor(), search, (20,))
    second = advance(planner, Oracle.of(task), task, Monitor(), first, (15,))
    assert 0 < int(first.tally.broken) < 20
    assert np.asarray(first.state.components.directions).any()
    assert jax.tree.all(jax.tree.map(np.array_equal, first.state.components, second.state.components))
    descriptors = np.asarray(second.state.archive.scores.descriptor)
    assert np.isfinite(descriptors).all()
    assert descriptors[20:35].any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"descriptor": "pca"}, "the grid's cells are regions of the task's descriptor"),
        ({**LEARNED, "components": 9}, "a trajectory of 4 steps has only 8 numbers"),
        ({**LEARNED, "components": 0}, "components"),
        ({"diversity": "cells"}, "diversity"),
        ({"diversity": "novelty", "population": 0}, "population"),
        ({"diversity": "novelty", "novelty_k": 0}, "novelty_k"),
        ({"num_carried": 30}, "do not fit into the first generation"),
        ({"budget": 20}, "smaller than the first generation"),
        ({"greedy_share": 1.5}, "greedy_share"),
        ({"candidates": "both"}, "candidates"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(GussError, match=message):
        make_planner("guss-plus", TASK, **({"horizon": 4, "budget": 50} | changes))
