"""Which states are far from the data: against a plain search for the nearest neighbour."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import ACTIONS, make_task
from hypothesis import given
from hypothesis import strategies as st

from guss.constraint import Constraint
from guss.errors import GussError
from guss.models.oracle import Oracle
from guss.models.support import EDGE, NUM_POINTS, Support
from guss.planners import make_planner
from guss.planners.engine import plan

KEY = jax.random.key(0)
ROWS = 600  # one shape, one program


made = jax.jit(Support.of, static_argnums=3)
asked = jax.jit(lambda support, states: jax.vmap(support.unfamiliar)(states))


def support_of(rows, use=None, reach=3.0):
    use = np.ones(len(rows), bool) if use is None else use
    return made(jnp.asarray(rows, jnp.float32), jnp.asarray(use), KEY, reach)


def unfamiliar(support, states):
    return np.asarray(asked(support, jnp.asarray(states, jnp.float32))) > 0


@given(st.integers(2, ROWS), st.sampled_from([1, 4]), st.integers(0, 1000))
def test_the_distance_is_that_of_the_nearest_kept_state(count, size, seed):
    random = np.random.default_rng(seed)
    rows = random.normal(size=(ROWS, size)) * random.uniform(0.1, 100, size) + random.uniform(-50, 50, size)
    use = (random.uniform(size=ROWS) < 0.8) & (np.arange(ROWS) < count)
    use[:2] = True
    support = support_of(rows, use)
    points = np.asarray(support.points)[: min(use.sum(), NUM_POINTS)]
    standard = (rows - rows[use].mean(axis=0)) / rows[use].std(axis=0)
    assert all(np.abs(standard[use] - point).max(axis=1).min() < 1e-2 for point in points)
    states = rows[:50] + random.normal(size=(50, size)) * rows[use].std(axis=0)
    mine = (states - rows[use].mean(axis=0)) / rows[use].std(axis=0)
    nearest = np.sqrt(((mine[:, None] - points[None]) ** 2).sum(-1)).min(axis=1)
    clear = np.abs(nearest - float(support.radius)) > 0.02 * (1 + nearest)
    low, high = rows[use].min(axis=0), rows[use].max(axis=0)
    beyond = ((states < low - EDGE * (high - low)) | (states > high + EDGE * (high - low))).any(axis=1)
    np.testing.assert_array_equal(
        unfamiliar(support, states)[clear], (beyond | (nearest > float(support.radius)))[clear]
    )


def test_new_states_of_the_same_kind_are_familiar_and_others_are_not():
    """A uniform band: of 2,000 new states nearly all are familiar, of those three widths away none is.

    The radius is three times the 99 % quantile of distances between 256 points; a new state within the band is further
    than that from all points with a probability well below 1 %, so 40 or more of 2,000 happen less than once in 10⁶
    runs.
    """
    random = np.random.default_rng(3)
    support = support_of(random.uniform(-1, 1, (5000, 3)))
    assert unfamiliar(support, random.uniform(-1, 1, (2000, 3))).sum() < 40
    assert unfamiliar(support, random.uniform(-1, 1, (200, 3)) + 4.0).all()
    assert unfamiliar(support, np.full((1, 3), np.nan)).all()
    assert unfamiliar(Support.empty(3), np.zeros((1, 3))).all(), "nothing is familiar without data"


def test_a_model_that_cannot_say_is_refused_and_the_oracle_knows_everything():
    task = make_task(ACTIONS["continuous"])
    planner, strict = make_planner("s-rs", task, horizon=2, budget=10), task.replace(unknown_unsafe=True)
    done = plan(planner, Oracle.of(task), strict, np.full(2, 1e6), KEY)
    assert float(done.diagnostics.unfamiliar_share) == 0.0

    class Blind(Oracle):
        def unfamiliar(self, obs):
            return None

    with pytest.raises(GussError, match="needs a model with a method `unfamiliar`, which Blind does not define"):
        plan(planner, Blind.of(task), strict, np.zeros(2), KEY)
    assert np.isnan(float(plan(planner, Blind.of(task), task, np.zeros(2), KEY).diagnostics.unfamiliar_share))
    with pytest.raises(GussError, match="needs at least one constraint"):
        make_task(ACTIONS["continuous"], constraints=()).replace(unknown_unsafe=True)
    assert Constraint("cost").learned
