"""Cost of a plan, aggregated over steps, constraints and particles, and the comparison of plans.

Plans are always compared lexicographically: fewer hard violations, then lower cost, then higher reward. In a tie, the
earlier plan is kept. Cost and reward are never combined into one number.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from guss.risk_measures import RiskMeasure
from guss.task import Task
from guss.types import WORST, Scores


def plan_cost(
    task: Task, costs: Float[Array, "P H C"], over_particles: str = "worst"
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Hard violations and cost of a plan: c = Σ_i max(0, Σ_k C_i(s_{t+k}) − l_i), aggregated over particles.

    The risk measure is that of the Task or, if it has none, `over_particles`. Hard violations are always the maximum.
    """
    steps = jnp.sum(costs, axis=1)  # [P, C]
    soft = jnp.asarray(task.soft, bool)[None, :]
    bounds = jnp.stack([c.bound for c in task.constraints])[None, :] if task.constraints else jnp.zeros((1, 0))
    hard = jnp.sum(jnp.where(soft, 0.0, steps), axis=1)
    cost = jnp.sum(jnp.where(soft, jnp.maximum(steps - bounds, 0.0), 0.0), axis=1)
    measure = RiskMeasure.parse(over_particles if task.risk is None else task.risk)
    return jnp.max(hard), measure(cost)


def make_scores(
    hard: Float[Array, ""],
    cost: Float[Array, ""],
    reward: Float[Array, ""],
    cell: Int[Array, ""],
    finite: Bool[Array, ""],
    outside: Bool[Array, ""],
    descriptor: Float[Array, "F"] | None = None,
) -> Scores:
    """Scores of one plan; the worst possible if its prediction was not finite."""
    return Scores(
        hard=jnp.where(finite, hard, WORST),
        cost=jnp.where(finite, cost, WORST),
        reward=jnp.where(finite, reward, -WORST),
        cell=cell,
        finite=finite,
        outside=outside & finite,
        descriptor=None if descriptor is None else jnp.where(finite, descriptor, 0.0),
    )


def no_scores() -> Scores:
    """Scores worse than those of any plan."""
    no, zero, worst = jnp.zeros((), bool), jnp.zeros((), jnp.int32), jnp.asarray(WORST)
    return Scores(worst, worst, -worst, zero, no, no)


def better(a: Scores, b: Scores) -> Bool[Array, "..."]:
    """Whether a is strictly better than b (Alg. 5, line 6, with the hard level before it)."""
    by_reward = (a.cost == b.cost) & (a.reward > b.reward)
    return (a.hard < b.hard) | ((a.hard == b.hard) & ((a.cost < b.cost) | by_reward))


def covers(a: Scores, b: Scores) -> Bool[Array, "..."]:
    """Whether a is at least as good as b: fewer hard violations; or as many, with no more cost and no less reward.

    a dominates b if a covers b and b does not cover a; if both cover each other, they are equal.
    """
    return (a.hard < b.hard) | ((a.hard == b.hard) & (a.cost <= b.cost) & (a.reward >= b.reward))


def best_index(scores: Scores, among: Bool[Array, "N"] | None = None) -> Int[Array, ""]:
    """Index of the best plan (Alg. 4, lines 16–17); in a tie, of the first one. 0 if `among` has no true entry.

    `scores`: the scores of N plans. `among`: a mask [N] of plans to choose from; None: plans with finite predictions.
    Returns an integer array of shape ().

    Example:
        >>> zero, no = jnp.zeros(3), jnp.zeros(3, bool)
        >>> cost, reward = jnp.array([1.0, 0.0, 0.0]), jnp.array([9.0, 1.0, 2.0])
        >>> int(guss.best_index(guss.Scores(zero, cost, reward, zero, finite=~no, outside=no)))
        2
    """
    left = scores.finite if among is None else among
    left = left & (scores.hard == jnp.min(jnp.where(left, scores.hard, WORST)))
    left = left & (scores.cost == jnp.min(jnp.where(left, scores.cost, WORST)))
    left = left & (scores.reward == jnp.max(jnp.where(left, scores.reward, -WORST)))
    return jnp.argmax(left)


def reward_only(scores: Scores) -> Scores:
    """The scores for a planner that ignores safety."""
    nothing = jnp.where(scores.finite, 0.0, WORST)
    return scores._replace(hard=nothing, cost=nothing)
