"""The compiled functions of one agent: one call for a plan, no operations outside it; compiled ahead in threads."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from guss.collect.compiled import lower_episodes, with_model_inputs
from guss.compilation import AT_ONCE, Ahead
from guss.methods.learner import EVALUATION, Learner
from guss.planners.engine import Plan, plan_one
from guss.task import Task
from guss.types import Model, Planner


@partial(jax.jit, static_argnames="per_seed")
def plan_step(
    planner: Planner,
    models: Model,
    task: Task,
    obs: Float[Array, "D"],
    key: PRNGKeyArray,
    t: Int[Array, ""],
    memory: PyTree,
    per_seed: bool,
) -> Plan:
    """The plan of step `t`, with the random numbers that a compiled episode has there; `key`: of the episode's steps.

    `per_seed`: the models have a leading axis of length 1.
    """
    model, key = alone(models, per_seed), step_key(key, t)
    return plan_one(with_model_inputs(planner, model, task), model, task, obs, key, memory)


def alone(models: Model, per_seed: bool) -> Model:
    """The model of the only seed."""
    return jax.tree.map(lambda x: x[0], models) if per_seed else models


def step_key(key: PRNGKeyArray, t: Int[Array, ""]) -> PRNGKeyArray:
    """Of the key of an episode's steps, the key of the plan at step `t`."""
    return jax.random.split(jax.random.fold_in(key, t))[0]


@partial(jax.jit, compiler_options=AT_ONCE)
def episode_keys(key: PRNGKeyArray, episode: Int[Array, ""]) -> tuple[PRNGKeyArray, ...]:
    """Of an agent's key: for the episode, its reset, its steps, its random actions, and the fit before it."""
    key = jax.random.fold_in(key, episode)
    reset, steps = jax.random.split(key)
    return key, reset, steps, jax.random.split(key, 3)[1], jax.random.fold_in(key, 0)


class Programs:
    """What an agent compiles ahead: fits, single plans, whole episodes."""

    PLAN, EPISODES = "planner", "episodes"

    def __init__(self) -> None:
        self.ahead = Ahead()

    def started(self, episodes: bool) -> bool:
        """Whether plans, or whole episodes, are being compiled."""
        return self.ahead.has(self.EPISODES if episodes else self.PLAN)

    def start_fit(self, learner: Learner, key: PRNGKeyArray) -> None:
        """Begin with the fit; `key` as the fit will have it."""
        learner.compile_ahead(self.ahead, key[None])

    def start_plan(self, *arguments: Any) -> None:
        """Go on with `plan_step` for such arguments."""
        self.ahead.start(self.PLAN, lambda: plan_step.lower(*arguments))

    def start_episodes(self, planner: Planner, learner: Learner, task: Task, planned: Task, key: PRNGKeyArray) -> None:
        """Begin with episodes of a compiled task."""
        arguments = (planner, learner.models, task, key[None])
        how: Any = {"planned": planned, "per_seed": learner.per_seed}
        self.ahead.start(self.EPISODES, lambda: lower_episodes(*arguments, **how))

    def wait_plan(self) -> None:
        """Until a plan is compiled, if that was begun, and what evaluates the model after the episode."""
        self.ahead.wait(EVALUATION, self.PLAN)

    def wait_episodes(self) -> None:
        """The same for whole episodes."""
        self.ahead.wait(EVALUATION, self.EPISODES)
