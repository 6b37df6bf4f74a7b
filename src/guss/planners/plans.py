"""The state of a search, the monitor that observes it, and the plan that it returns."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree, Shaped

from guss.planners.smooth_memory import LastAction
from guss.types import Rollout, Scores


class Monitor(eqx.Module):
    """Observes a search: it receives every rollout and score, and cannot change the search.

    Subclass it and override `init` and `update`; `Plan.aux` is what the last `update` returned.

    Example:
        >>> class Best(guss.Monitor):
        ...     def init(self):
        ...         return jnp.float32(-jnp.inf)
        ...     def update(self, aux, rollouts, scores):
        ...         return jnp.maximum(aux, scores.reward.max())
        >>> task = guss.make_task("safe-toy")
        >>> planner, key = guss.make_planner("rs", task, horizon=2, budget=4), jax.random.key(0)
        >>> plan = guss.plan(planner, guss.Oracle.of(task), task, [5.0, 5.0], key, monitor=Best())
        >>> bool(plan.aux == plan.diagnostics.reward)
        True
    """

    def init(self) -> PyTree:
        """The initial `aux`, before the first generation."""
        return ()

    def update(self, aux: PyTree, rollouts: Rollout, scores: Scores) -> PyTree:
        """The `aux` after one more generation; rollouts are [N, P, H, …], scores [N]."""
        return aux


class Tally(NamedTuple):
    """Counts over the plans evaluated so far."""

    evaluated: Int[Array, ""]
    safe: Int[Array, ""]
    broken: Int[Array, ""]  # prediction not finite
    outside: Int[Array, ""]  # descriptor beyond its bounds


class Search(NamedTuple):
    """A search in progress: everything needed to continue or to conclude it."""

    obs: Float[Array, "D"]
    state: PyTree
    generation: Int[Array, ""]
    tally: Tally
    aux: PyTree
    keys: Key[Array, "generations"]
    key_model: PRNGKeyArray
    last: LastAction | None
    """The action before the plan, if it matters."""


class Diagnostics(NamedTuple):
    """Scores of a plan and statistics of its search; every field is a scalar array.

    `evaluated`: number of plans. `safe_share`, `broken_share`, `outside_share`: shares of them without predicted cost,
    without a finite prediction, with a descriptor beyond the grid. `unfamiliar_share`: share of the chosen plan's
    predicted states far from the data, NaN if not known. `reward` (minus the price of `Task.smoothness`), `cost` and
    `hard` violations of the chosen plan. `occupancy`: filled cells of the archive. `fallback`: no prediction was
    usable, and the action is the task's fallback.

    Example:
        >>> task = guss.make_task("safe-toy")
        >>> planner = guss.make_planner("rs", task, horizon=2, budget=4)
        >>> int(guss.plan(planner, guss.Oracle.of(task), task, [5.0, 5.0], jax.random.key(0)).diagnostics.evaluated)
        4
    """

    evaluated: Int[Array, ""]  # plans evaluated
    safe_share: Float[Array, ""]  # share of them with no cost and no hard violation
    broken_share: Float[Array, ""]  # share of them whose prediction was not finite
    outside_share: Float[Array, ""]  # share of them whose descriptor lay beyond its bounds
    unfamiliar_share: Float[Array, ""]  # share of the chosen plan's predicted states far from the data; NaN: not known
    reward: Float[Array, ""]  # of the chosen plan, summed over its steps, minus the price of changes
    cost: Float[Array, ""]  # of the chosen plan
    hard: Float[Array, ""]  # hard violations of the chosen plan
    occupancy: Int[Array, ""]  # filled cells of the archive, 0 if there is none
    fallback: Bool[Array, ""]  # no finite prediction: the action is the task's fallback


class Plan(NamedTuple):
    """The next action, diagnostics of the plan, and its predicted trajectory.

    `action` [A]; `diagnostics`; `trajectory`, the predicted `Rollout` [P, H, …]; `behaviour`, its descriptor [B];
    `memory`, for the next plan of the episode, which includes the action if the task has a `smoothness` or a
    `max_change`; `aux`, what the monitor returned.

    Example:
        >>> task = guss.make_task("safe-toy")
        >>> planner = guss.make_planner("rs", task, horizon=2, budget=4)
        >>> plan = guss.plan(planner, guss.Oracle.of(task), task, [5.0, 5.0], jax.random.key(0))
        >>> plan.action.shape, plan.trajectory.next_obs.shape
        ((2,), (1, 2, 2))
    """

    action: Shaped[Array, "..."]
    diagnostics: Diagnostics
    trajectory: Rollout  # predicted, [P, H, …]
    behaviour: Float[Array, "B"]  # descriptor of that trajectory
    memory: PyTree  # input of the next plan
    aux: PyTree  # what the monitor returned
