import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import ACTIONS, make_task, nowhere_unsafe

from guss.constraint import Constraint, as_function, with_params
from guss.envs.toy import ToyLayout, toy_task
from guss.errors import GussError
from guss.models.oracle import Oracle
from guss.planners import make_planner
from guss.planners.engine import plan
from guss.runs.compile_clock import CompileClock
from guss.task import Grid

ACTION = ACTIONS["continuous"]


def over(obs, action, next_obs, limit):
    return next_obs[0] > limit


def test_a_cost_of_the_wrong_shape_names_the_constraint_what_was_expected_and_what_came():
    with pytest.raises(GussError, match=r"constraint 'hot'.*must return a single number.*got shape \(2,\)"):
        make_task(ACTION, constraints=(Constraint("hot", lambda obs, action, next_obs: next_obs > 1.0),))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reward": lambda obs, action, next_obs: next_obs}, r"reward\(obs, action, next_obs\) must return a single"),
        ({"reward": lambda obs, action, next_obs: 1.0 if next_obs[0] > 0 else 0.0}, "cannot be traced by JAX"),
        ({"reward": lambda obs: obs[0]}, "cannot be traced by JAX: TypeError"),
        ({"step": lambda obs, action, key: obs[0]}, r"step.*must return shape \(2,\)"),
        ({"constraints": (Constraint("a", nowhere_unsafe), Constraint("a", nowhere_unsafe))}, "names must differ"),
        ({"fallback": (1.0,)}, r"fallback action must have shape \(2,\), got \(1,\)"),
    ],
)
def test_bad_task_functions_are_told_when_the_task_is_built(change, words):
    with pytest.raises(GussError, match=words):
        make_task(ACTION, **change)


@pytest.mark.parametrize(
    ("low", "high", "cells", "words"),
    [
        ((0.0, 1.0), (1.0, 1.0), (5, 5), r"dimension 1 must be finite with low < high, got \[1.0, 1.0\]"),
        ((0.0, np.nan), (1.0, 1.0), (5, 5), "dimension 1"),
        ((0.0, -np.inf), (1.0, 1.0), (5, 5), "finite"),
        ((0.0, 0.0), (1.0, 1.0), (5,), "one number of cells per dimension"),
        ((0.0, 0.0), (1.0, 1.0), (5, 0), "at least 1 cell"),
        ((0.0,) * 4, (1.0,) * 4, (50, 50, 50, 20_000), "more than 2147483647"),
    ],
)
def test_bad_descriptor_bounds_are_refused(low, high, cells, words):
    with pytest.raises(GussError, match=words):
        Grid(low, high, cells)


def test_a_task_function_must_be_callable():
    with pytest.raises(GussError, match="must be callable, got 3"):
        as_function(3)


def test_a_descriptor_must_match_its_grid():
    with pytest.raises(GussError, match=r"with 2 grid dimensions, must return shape \(2,\), got shape \(1,\)"):
        make_task(ACTION).replace(descriptor=lambda rollout: rollout.next_obs[-1, :1])


def test_large_grids_are_fine_up_to_the_int32_limit():
    grid = Grid((0.0,) * 4, (1.0,) * 4, (50,) * 4)
    assert grid.num_cells == 6_250_000
    assert int(grid.cell(jnp.ones(4))[0]) == 6_250_000 - 1


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -3.0, 7.0, 0.0, 1.0])
def test_every_descriptor_has_a_cell(value):
    cell, outside = Grid((0.0,), (1.0,), (10,)).cell(jnp.asarray([value], jnp.float32))
    assert 0 <= int(cell) < 10
    assert bool(outside) == (not np.isnan(value) and not 0.0 <= value <= 1.0)
    if not np.isnan(value):
        assert int(cell) == (9 if value >= 1.0 else 0)


def test_values_on_the_edge_of_a_cell_belong_to_the_one_that_begins_there():
    grid = Grid((0.0,), (50.0,), (50,))
    cells, _ = jax.jit(jax.vmap(grid.cell))(jnp.arange(50.0)[:, None])
    assert cells.tolist() == list(range(50))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Constraint("", nowhere_unsafe), "needs a name"),
        (lambda: Constraint("a", nowhere_unsafe, bound=-1.0), "0 or more"),
        (lambda: Constraint("a", nowhere_unsafe, bound=2.0, hard=True), "hard constraint has no bound"),
    ],
)
def test_bad_constraints_are_refused(make, words):
    with pytest.raises(GussError, match=words):
        make()


def test_parameters_change_between_plans_without_compiling_again():
    task = make_task(ACTION, constraints=(Constraint("over", with_params(over, limit=0.3)),))
    planner = make_planner("guss", task, horizon=4, budget=40)
    first = plan(planner, Oracle.of(task), task, np.zeros(2), jax.random.key(0))
    with CompileClock() as clock:
        loose = task.update("over", limit=1e9)
        second = plan(planner, Oracle.of(loose), loose, np.zeros(2), jax.random.key(0))
    assert clock.programs == 0
    assert float(first.diagnostics.safe_share) < 1.0
    assert float(second.diagnostics.safe_share) == 1.0


def test_two_equal_tasks_share_one_compilation():
    def once():
        task = toy_task(ToyLayout())
        return plan(
            make_planner("s-rs", task, horizon=6, budget=20), Oracle.of(task), task, np.zeros(2), jax.random.key(1)
        )

    once()
    with CompileClock() as clock:
        once()
    assert clock.programs == 0


def test_updating_names_what_is_wrong():
    task = make_task(ACTION, constraints=(Constraint("over", with_params(over, limit=0.3)),))
    with pytest.raises(GussError, match="Did you mean 'over'"):
        task.update("ovr", limit=1.0)
    with pytest.raises(GussError, match="Did you mean 'limit'"):
        task.update("over", limt=1.0)
    with pytest.raises(GussError, match=r"must keep its shape \(\), got \(2,\)"):
        task.update("over", limit=(1.0, 2.0))


def test_policy_inputs_default_to_the_bounds_where_they_are_finite():
    known = toy_task().replace(policy_inputs=None).interface()
    assert known.obs_shift.tolist() == [25.0, 25.0]
    assert known.obs_scale.tolist() == [25.0, 25.0]
    unknown = make_task(ACTION).interface()
    assert unknown.obs_shift.tolist() == [0.0, 0.0]
    assert unknown.obs_scale.tolist() == [1.0, 1.0]


def test_a_task_without_dynamics_has_no_oracle():
    with pytest.raises(GussError, match="has no step function"):
        Oracle.of(make_task(ACTION, step=None))


def test_parameters_are_arrays_of_numbers():
    bound = with_params(over, limit=(1.0, 2), flag=True, count=3)
    assert {name: value.dtype for name, value in bound.params.items()} == {
        "limit": jnp.float32,
        "flag": jnp.bool_,
        "count": jnp.int32,
    }
    with pytest.raises(GussError, match="parameter 'limit' must be a number"):
        with_params(over, limit="hot")


# ------------------------------------------------------------------------------------------------------------ margins


def hot_task(**changes):
    hot = Constraint("hot", with_params(over, limit=27.0), stricter={"limit": -1.0})
    return make_task(ACTION, constraints=(hot, Constraint("never", nowhere_unsafe)), **changes)


def test_a_margin_makes_what_plans_see_stricter_and_nothing_else():
    task = hot_task()
    planned = task.with_margin({"hot": 0.5})
    assert float(planned.constraints[0].cost.params["limit"]) == 26.5
    assert float(task.constraints[0].cost.params["limit"]) == 27.0
    warm = jnp.asarray([26.7, 0.0])
    assert task.costs(warm, jnp.zeros(2), warm).tolist() == [0.0, 0.0]
    assert planned.costs(warm, jnp.zeros(2), warm).tolist() == [1.0, 0.0]
    assert jax.tree.structure(planned) == jax.tree.structure(task)  # compiles nothing anew


@pytest.mark.parametrize(
    ("margin", "words"),
    [
        (0.5, "'never' does not specify which of its parameters a planning margin changes"),
        ({"hto": 0.5}, "Did you mean 'hot'"),
        ({"hot": -0.1}, "'hot': a planning margin must be 0 or more, got -0.1"),
        ({"hot": np.nan}, "0 or more, got nan"),
    ],
)
def test_bad_margins_are_told(margin, words):
    with pytest.raises(GussError, match=words):
        hot_task().with_margin(margin)
    assert hot_task().with_margin(0.0)  # no margin is always possible


def test_a_margin_moves_parameters_that_there_are():
    with pytest.raises(GussError, match="Did you mean 'limit'"):
        Constraint("hot", with_params(over, limit=27.0), stricter={"limt": -1.0})
