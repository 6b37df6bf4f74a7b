"""Why an agent chose its last action: `agent.explain()`.

`act` keeps only the chosen plan; `explain` repeats its search to obtain the other plans.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree, Shaped

from guss import keys as streams
from guss.envs.thresholds import find_thresholds
from guss.errors import GussError
from guss.planners.engine import Monitor, Plan, plan_one
from guss.planners.rollouts import Particles, predict_outcomes
from guss.task import Task
from guss.types import Outcomes, Planner, Rollout, Scores
from guss.validation import finite

ALIKE = 0.01
"""First actions of two plans are the same if they differ by at most this share of the action's range."""


class Decision(NamedTuple):
    """The result of an agent's `act`, and the inputs to repeat its search."""

    phase: str
    episode: int
    step: int
    obs: np.ndarray
    action: np.ndarray
    task: Task
    """The task that scores steps."""
    arguments: tuple[Any, ...] = ()
    """Arguments of `plan_all`, if the action was planned; arrays have a leading axis of length 1."""
    plan: Plan | None = None
    """Result of `plan_all`."""


@dataclass(frozen=True)
class RunnerUp:
    """The best plan with a different first action."""

    action: dict[str, float]
    reward: float
    """Predicted reward, summed over the steps of the plan."""
    cost: float
    hard: float

    @property
    def safe(self) -> bool:
        """No cost and no hard violation."""
        return self.cost <= 0 and self.hard <= 0


@dataclass(frozen=True)
class Approach:
    """How near a plan comes to a limit on one dimension."""

    constraint: str
    dimension: str
    limit: str
    """Such as "at most 75"."""
    low: float | None
    high: float | None
    reached: float
    """The predicted value nearest to the limit, or farthest beyond it, of any particle."""
    step: int
    """The step of the plan after which this value is reached, 1 to `horizon`."""


@dataclass(frozen=True)
class Explanation:
    """Why an action was chosen; `str()` returns it as a sentence. Rewards and costs are predictions.

    `agent.explain()` returns one. `episode`, `step`, `obs` and `action` (numbers by name) identify the decision;
    `horizon` is that of the plan. The other fields are described below.

    Example:
        >>> why = guss.Explanation("random", episode=0, step=3, obs={"angle": 0.1}, action={"torque": 1.5})
        >>> why.to_json()["action"]
        {'torque': 1.5}
    """

    phase: str
    """random, initial_policy or plan; in the first two, fields after `action` have their defaults."""
    episode: int
    step: int
    obs: dict[str, float]
    action: dict[str, float]
    horizon: int = 0
    evaluated: int = 0
    """Plans evaluated."""
    safe_share: float | None = None
    """Share of the evaluated plans that are predicted to be safe."""
    broken_share: float | None = None
    """Share of the evaluated plans whose prediction is not finite."""
    unfamiliar_share: float | None = None
    """Share of the chosen plan's predicted states that are far from all data; None: not estimated."""
    fallback: bool = False
    """No plan has a finite prediction: the action is the task's fallback action."""
    reward: float | None = None
    """Predicted reward of the chosen plan, summed over its steps; mean over particles."""
    costs: dict[str, float] = dataclasses.field(default_factory=dict)
    """Steps of the chosen plan that violate each constraint; maximum over particles."""
    safe: bool | None = None
    """Whether the chosen plan counts as safe: it has no cost, by the bounds and the risk measure over particles, and no
    hard violation."""
    path: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    """Predicted observations of the chosen plan, step by step; mean over particles."""
    approaches: tuple[Approach, ...] = ()
    """How near the plan comes to constraints that are limits on one dimension."""
    runner_up: RunnerUp | None = None
    ignores_cost: bool = False
    """Whether the planner compares plans only by their reward."""

    def to_json(self) -> dict[str, Any]:
        """As plain data; numbers that are not finite are None."""
        return finite(dataclasses.asdict(self))

    def __str__(self) -> str:
        chosen = f"Chose {_named_text(self.action)}"
        if self.phase in ("random", "initial_policy"):
            how = "at random" if self.phase == "random" else "by initial_policy"
            return f"{chosen} {how}: episode {self.episode} is an initial episode, in which nothing was planned."
        if self.fallback:
            return f"{chosen}, the fallback action: none of {self.evaluated} plans has a finite prediction."
        parts = [self._why(), *map(self._approach, self.approaches)]
        if self.unfamiliar_share:
            parts.append(f"{100 * self.unfamiliar_share:.0f} % of its predicted states are far from all data")
        if self.broken_share:
            parts.append(f"{100 * self.broken_share:.0f} % of all plans have no finite prediction")
        return f"{chosen}: {', '.join(parts)}; {self._rival()}."

    def _why(self) -> str:
        assert self.reward is not None
        assert self.safe_share is not None
        earned = f"{_per_step(self.reward, self.horizon)} per step over {self.horizon} steps"
        safe = round(self.safe_share * self.evaluated)
        counted = f"of {self.evaluated} plans {safe} {'is' if safe == 1 else 'are'} predicted safe"
        if not self.costs or self.ignores_cost:
            of = f"{counted}; " if self.costs else f"of {self.evaluated} plans "
            return f"{of}this one earns the most reward ({earned})"
        violated = [f"{name} on {count:.3g} of {self.horizon} steps" for name, count in self.costs.items() if count > 0]
        if violated and not self.safe:
            none = f"none of {self.evaluated} plans is predicted safe" if safe == 0 else counted
            return f"{none}; this one is the least unsafe ({', '.join(violated)}) and earns {earned}"
        some = f", although some of its predictions violate {', '.join(violated)}" if violated else ""
        return f"{counted}; of these, this one earns the most reward ({earned}){some}"

    def _approach(self, each: Approach) -> str:
        reached = f"{each.dimension} reaches {each.reached:.4g}"
        if each.low is None or each.high is None:
            return f"{reached} of {each.limit} at step {each.step}"
        inside = each.low <= each.reached <= each.high
        return f"{reached} at step {each.step}, {'within' if inside else 'beyond'} {each.limit}"

    def _rival(self) -> str:
        rival = self.runner_up
        if rival is None:
            return "no plan has a different first action"
        unsafe = "" if rival.safe or not self.costs else ", and is predicted unsafe"
        earned = _per_step(rival.reward, self.horizon)
        return f"the runner-up, {_named_text(rival.action)}, earns {earned}{unsafe}"


def _per_step(reward: float, horizon: int) -> str:
    return f"{reward / horizon:.4g}"


def _named_text(action: dict[str, float]) -> str:
    return ", ".join(f"{name} = {value:.3g}" for name, value in action.items())


# --------------------------------------------------------------------------------------------------------- the search


class _Found(NamedTuple):
    """Every plan that was evaluated, [M, …]."""

    action: Shaped[Array, "..."]  # its first action
    hard: Float[Array, "M"]
    cost: Float[Array, "M"]
    reward: Float[Array, "M"]
    finite: Array


class _Beginnings(Monitor):
    """A monitor that keeps the first action and the scores of every plan."""

    num_plans: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)

    def init(self) -> tuple[Int[Array, ""], _Found]:
        number = jnp.zeros((self.num_plans,))
        action = jnp.zeros((self.num_plans, *self.shape), self.dtype)
        return jnp.zeros((), jnp.int32), _Found(action, number, number, number, number > 0)

    def update(self, aux: PyTree, rollouts: Rollout, scores: Scores) -> PyTree:
        count, found = aux
        new = _Found(rollouts.action[:, 0, 0], scores.hard, scores.cost, scores.reward, scores.finite)
        write = lambda rows, more: jax.lax.dynamic_update_slice_in_dim(rows, more, count, axis=0)  # noqa: E731
        return count + new.reward.shape[0], jax.tree.map(write, found, new)


@jax.jit
def _search_again(
    method: Any, states: PyTree, memory: PyTree, obs: Array, keys: Key[Array, "1"], t: Array, path: Rollout
) -> tuple[_Found, Outcomes]:
    state, memory, obs, key = jax.tree.map(lambda x: x[0], (states, memory, obs, keys))
    actions = method.task.actions
    monitor = _Beginnings(method.planner.budget, actions.shape, actions.dtype)
    planner, model, task = method.plan_inputs(state)
    found = plan_one(planner, model, task, obs, streams.act(key, t), memory, monitor).aux[1]
    return found, predict_outcomes(Particles.of(model), task, path)


# ---------------------------------------------------------------------------------------------------- the explanation


def explain(decision: Decision | None) -> Explanation:
    """The explanation of a decision; raises GussError if there is none."""
    if decision is None:
        raise GussError(
            "there is no action to explain yet: explain() explains the last act(obs), so call act first. Whole "
            "episodes that learn() runs as one compiled program do not call act"
        )
    task, labels = decision.task, decision.task.observations.labels
    action = _named(task.actions.labels, decision.action)
    about = (decision.phase, decision.episode, decision.step, _named(labels, decision.obs), action)
    if decision.plan is None:
        return Explanation(*about)
    plan: Plan = jax.tree.map(lambda x: x[0], decision.plan)
    found, outcomes = jax.device_get(_search_again(*decision.arguments, plan.trajectory))
    planner, figures = decision.arguments[0].planner, jax.device_get(plan.diagnostics)
    path = np.asarray(plan.trajectory.next_obs)  # [P, H, D]
    unfamiliar = float(figures.unfamiliar_share)
    unsafe = (np.asarray(outcomes.cost) > 0).sum(axis=1).max(axis=0)  # maximum over particles
    return Explanation(
        *about,
        horizon=planner.horizon,
        evaluated=int(figures.evaluated),
        safe_share=float(figures.safe_share),
        broken_share=float(figures.broken_share),
        unfamiliar_share=None if math.isnan(unfamiliar) else unfamiliar,
        fallback=bool(figures.fallback),
        reward=float(figures.reward),
        costs=_named([constraint.name for constraint in task.constraints], unsafe),
        safe=bool(figures.cost <= 0.0 and figures.hard <= 0.0),
        path=dict(zip(labels, path.mean(axis=0).astype(float).T.tolist(), strict=True)),
        approaches=_approaches(task, decision, path),
        runner_up=_runner_up(planner, task, decision.action, found),
        ignores_cost=planner.objective in ("nothing", "reward"),
    )


def _named(labels: Sequence[str], values: Any) -> dict[str, float]:
    return dict(zip(labels, np.ravel(values).astype(float).tolist(), strict=True))


def _approaches(task: Task, decision: Decision, path: np.ndarray) -> tuple[Approach, ...]:
    """The predicted value nearest to each limit, or farthest beyond it."""
    states = np.concatenate([decision.obs[None], path.reshape(-1, path.shape[-1])])
    states = states[np.isfinite(states).all(axis=1)]
    actions = np.repeat(decision.action[None], len(states), axis=0)
    found = []
    for each in find_thresholds(task, states, actions):
        values = path[..., each.dim]  # [P, H]
        room = np.minimum(values - each.low, each.high - values)
        if np.isnan(room).all():  # no particle has a prediction
            continue
        particle, step = np.unravel_index(np.nanargmin(room), room.shape)
        low, high = (end if math.isfinite(end) else None for end in (each.low, each.high))
        dimension, reached = task.observations.labels[each.dim], float(values[particle, step])
        found.append(Approach(each.constraint, dimension, each.text(), low, high, reached, int(step) + 1))
    return tuple(found)


def _runner_up(planner: Planner, task: Task, action: np.ndarray, found: _Found) -> RunnerUp | None:
    """The best plan with a different first action, by the planner's objective."""
    first = found.action.astype(float).reshape(len(found.reward), -1)
    low, high = (getattr(task.actions, end, None) for end in ("low", "high"))
    near = 0.5 if low is None or high is None else ALIKE * (np.asarray(high) - np.asarray(low))
    other = (np.abs(first - np.ravel(action)) > near).any(axis=1) & found.finite
    if not other.any():
        return None
    safety = (found.hard, found.cost) if planner.objective in ("cost", "penalty") else ()
    best = int(np.lexsort([-found.reward, *reversed(safety), ~other])[0])
    scores = (float(each[best]) for each in (found.reward, found.cost, found.hard))
    return RunnerUp(_named(task.actions.labels, found.action[best]), *scores)
