"""The steps of TRPO and CPO: a linear gain, a linear constraint, a quadratic trust region (Achiam 2017, app. 10.2).

    maximise  g·x    subject to    c + b·x ≤ 0,    ½ x·Hx ≤ δ

H is only multiplied by vectors; its inverse is applied by conjugate gradients. CPO's step has a closed form in
two dual variables, λ of the trust region and ν of the constraint, once H⁻¹g and H⁻¹b are known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.sparse.linalg
from jaxtyping import Array, Bool, Float

Vector = Float[Array, "P"]
Product = Callable[[Vector], Vector]
TINY = 1e-8


def conjugate_gradient(product: Product, target: Vector, steps: int) -> Vector:
    """x with Hx ≈ target, after at most `steps` steps; stops when the residual vanishes."""
    return jax.scipy.sparse.linalg.cg(product, target, tol=0.0, atol=TINY, maxiter=steps)[0]


class Step(NamedTuple):
    """A step, and its case of the analysis."""

    x: Vector
    case: Float[Array, ""]
    """4: safe, and the cost does not change; 3: the whole trust region is safe; 2: safe now, a part of the region is
    not; 1: unsafe now, a part of the region is safe; 0: no part is, so the step only reduces the cost."""
    lam: Float[Array, ""]
    nu: Float[Array, ""]


def trpo_step(product: Product, g: Vector, delta: float, steps: int) -> Vector:
    """Without a constraint: √(2δ / g·H⁻¹g) H⁻¹g."""
    v = conjugate_gradient(product, g, steps)
    return jnp.sqrt(2.0 * delta / jnp.maximum(g @ v, TINY)) * v


def cpo_step(product: Product, g: Vector, b: Vector, c: Float[Array, ""], delta: float, steps: int) -> Step:
    """The whole case analysis of CPO, as one expression: every case is computed, one is selected."""
    v = conjugate_gradient(product, g, steps)
    w = conjugate_gradient(product, b, steps)
    q, r, s = g @ v, g @ w, b @ w
    flat = (b @ b <= TINY) & (c < 0.0)
    safe_s = jnp.maximum(s, TINY)
    big_a = jnp.maximum(q - r**2 / safe_s, 0.0)  # not negative, by Cauchy–Schwarz
    big_b = 2.0 * delta - c**2 / safe_s
    case = jnp.where(flat, 4.0, jnp.where(c < 0.0, jnp.where(big_b < 0.0, 3.0, 2.0), jnp.where(big_b >= 0.0, 1.0, 0.0)))

    # λ maximises the dual: one function if the constraint binds (λc + r > 0), another if it does not.
    free = jnp.sqrt(q / (2.0 * delta))
    bound = jnp.sqrt(big_a / jnp.maximum(big_b, TINY))
    edge = -r / jnp.where(jnp.abs(c) < TINY, jnp.where(c < 0.0, -TINY, TINY), c)
    one_side = jnp.maximum(edge, 0.0)
    binding = jnp.where(c < 0.0, jnp.minimum(bound, one_side), jnp.maximum(bound, one_side))
    loose = jnp.where(c < 0.0, jnp.maximum(free, one_side), jnp.minimum(free, one_side))
    dual_binding = -0.5 * (big_a / jnp.maximum(binding, TINY) + big_b * binding) + r * c / safe_s
    dual_loose = -0.5 * (q / jnp.maximum(loose, TINY) + 2.0 * delta * loose)
    empty = edge <= 0.0  # then one of the two has no λ
    dual_binding = jnp.where(empty & (c < 0.0), -jnp.inf, dual_binding)
    dual_loose = jnp.where(empty & (c >= 0.0), -jnp.inf, dual_loose)
    lam = jnp.where(dual_binding >= dual_loose, binding, loose)
    nu = jnp.maximum(lam * c + r, 0.0) / safe_s
    lam = jnp.where(case >= 3.0, free, lam)
    nu = jnp.where(case >= 3.0, 0.0, nu)

    towards = (v - jnp.where(case >= 3.0, 0.0, nu) * w) / jnp.maximum(lam, TINY)
    recovery = -jnp.sqrt(2.0 * delta / safe_s) * w
    x = jnp.where(case == 0.0, recovery, towards)
    return Step(x, case, jnp.where(case == 0.0, 0.0, lam), jnp.where(case == 0.0, jnp.sqrt(2.0 * delta / safe_s), nu))


def backtrack(
    accept: Callable[[Vector], Bool[Array, ""]], start: Vector, x: Vector, shrink: float, tries: int
) -> tuple[Vector, Float[Array, ""]]:
    """The first of start + x, start + shrink·x, … that is accepted, and its share of x; `start` and 0 if none is."""

    def step(i: Array, found: tuple[Vector, Array]) -> tuple[Vector, Array]:
        where, share = found
        now = jnp.float32(shrink) ** i.astype(jnp.float32)
        there = start + now * x
        take = (share == 0.0) & accept(there)
        return jnp.where(take, there, where), jnp.where(take, now, share)

    return jax.lax.fori_loop(0, tries, step, (start, jnp.zeros(())))
