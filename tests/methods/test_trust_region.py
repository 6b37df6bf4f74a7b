"""CPO's step against a general solver, and its parts against what they should be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from guss.methods.trust_region import backtrack, conjugate_gradient, cpo_step, trpo_step

SIZE, DELTA = 6, 0.05


def instance(seed, condition=10.0):
    """A random quadratic model: g, b, c and a positive definite H."""
    random = np.random.default_rng(seed)
    turn = np.linalg.qr(random.normal(size=(SIZE, SIZE)))[0]
    h = turn @ np.diag(np.geomspace(1.0, condition, SIZE)) @ turn.T
    g, b = random.normal(size=(2, SIZE))
    scale = np.sqrt(2 * DELTA * b @ np.linalg.solve(h, b))  # how far the constraint can move within the trust region
    return g, b, float(random.uniform(-1.5, 1.5) * scale), h


def solved(g, b, c, h):
    """By SLSQP, from several starts; the least violation where nothing is feasible."""
    region = {"type": "ineq", "fun": lambda x: DELTA - 0.5 * x @ h @ x, "jac": lambda x: -h @ x}
    safe = {"type": "ineq", "fun": lambda x: -(c + b @ x), "jac": lambda x: -b}
    reach = c - np.sqrt(2 * DELTA * b @ np.linalg.solve(h, b))
    goal, constraints = (-g, [region, safe]) if reach <= 0 else (b, [region])
    starts = [np.zeros(SIZE), *np.random.default_rng(0).normal(size=(4, SIZE)) * 0.05]
    found = [
        minimize(lambda x: goal @ x, s, jac=lambda x: goal, constraints=constraints, options={"ftol": 1e-12})
        for s in starts
    ]
    good = [f for f in found if f.success]
    return min(good, key=lambda f: f.fun).x, reach <= 0


@jax.jit
def step_of(g, b, c, h):
    return cpo_step(lambda x: h @ x, g, b, c, DELTA, SIZE + 2)


@pytest.mark.parametrize("seed", range(60))
def test_the_step_is_the_solvers(seed):
    """Same gain within 1 %, constraint and trust region kept; recovery where no step is safe."""
    g, b, c, h = instance(seed)
    step = step_of(*(jnp.asarray(x, jnp.float32) for x in (g, b, c, h)))
    x = np.asarray(step.x, float)
    best, feasible = solved(g, b, c, h)
    assert 0.5 * x @ h @ x <= DELTA * 1.01
    if feasible:
        assert float(step.case) > 0
        assert c + b @ x <= 1e-3 * np.linalg.norm(b)
        assert g @ x >= g @ best - 0.01 * abs(g @ best) - 1e-3
    else:
        assert float(step.case) == 0
        np.testing.assert_allclose(b @ x, b @ best, rtol=1e-2)


def test_every_case_is_among_them():
    cases = {float(step_of(*(jnp.asarray(x, jnp.float32) for x in instance(seed))).case) for seed in range(60)}
    assert cases == {0.0, 1.0, 2.0, 3.0}
    g, _, _, h = instance(0)
    flat = step_of(*(jnp.asarray(x, jnp.float32) for x in (g, np.zeros(SIZE), -1.0, h)))
    assert float(flat.case) == 4.0
    free = trpo_step(lambda x: jnp.asarray(h, jnp.float32) @ x, jnp.asarray(g, jnp.float32), DELTA, SIZE + 2)
    np.testing.assert_allclose(flat.x, free, rtol=1e-3)


def test_conjugate_gradients_solve_and_stop():
    g, b, _, h = instance(3)
    for target in (g, b, np.zeros(SIZE)):
        x = conjugate_gradient(lambda x: jnp.asarray(h, jnp.float32) @ x, jnp.asarray(target, jnp.float32), 20)
        np.testing.assert_allclose(x, np.linalg.solve(h, target), rtol=1e-3, atol=1e-4)


def test_backtracking_takes_the_first_step_that_is_accepted():
    start, x = jnp.ones(2), jnp.asarray([1.0, 0.0])
    found, share = backtrack(lambda p: p[0] < 1.6, start, x, 0.8, 10)
    assert float(share) == pytest.approx(0.8**3)
    np.testing.assert_allclose(found, start + 0.8**3 * x, rtol=1e-6)
    found, share = backtrack(lambda p: p[0] < 0.0, start, x, 0.8, 10)
    assert float(share) == 0.0
    np.testing.assert_array_equal(found, start)
