"""A program of a user, with types: `mypy --strict` accepts it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array

import guss
from guss import Constraint, ContinuousActions, Grid, Observations, Plan, Results, Rollout, RunConfig, Task

SIZE = 2


def step(obs: Array, action: Array, key: Array) -> Array:
    """A point that is pushed."""
    return obs + 0.1 * action


def reset(key: Array) -> Array:
    """It starts at the origin."""
    return jnp.zeros(SIZE)


def reward(obs: Array, action: Array, next_obs: Array) -> Array:
    """To the right is better."""
    return next_obs[0]


def too_far(obs: Array, action: Array, next_obs: Array, limit: Array) -> Array:
    """Beyond the limit is unsafe."""
    return next_obs[0] > limit


def where(rollout: Rollout) -> Array:
    """Where a plan leads."""
    return rollout.next_obs[-1]


def make_task(limit: float) -> Task:
    """The task with a limit."""
    return Task(
        "point",
        Observations(low=(-1.0,) * SIZE, high=(1.0,) * SIZE, names=("x", "y")),
        ContinuousActions(low=(-1.0,) * SIZE, high=(1.0,) * SIZE),
        reward,
        [Constraint("too_far", guss.with_params(too_far, limit=limit), stricter={"limit": -1.0})],
        where,
        Grid(low=(-1.0,) * SIZE, high=(1.0,) * SIZE, cells=(10, 10)),
        episode_length=10,
        step=step,
        reset=reset,
    )


def plan(task: Task) -> Plan:
    """One plan with the true dynamics."""
    planner = guss.make_planner("rs", task, horizon=3, budget=8)
    found: Plan = guss.plan(planner, guss.Oracle.of(task), task, jnp.zeros(SIZE), jax.random.key(0))
    return found


def config() -> RunConfig:
    """Settings of a run."""
    return guss.make_config("safe-toy", "guss", seeds=2, episodes=3, budget=20)


def mean_of(results: Results) -> float:
    """Of a table's column."""
    values: list[float] = [value for value in results.runs["mar"] if value is not None]
    return sum(values) / len(values)


def main() -> tuple[Plan, RunConfig]:
    """All but training."""
    try:
        guss.make_task("nowhere")
    except guss.GussError as error:
        print(error)
    return plan(make_task(limit=0.5)), config()


def train(folder: str) -> guss.RunMetrics:
    """What a user does when there is time."""
    agent: guss.Agent = guss.Agent(make_task(0.5), seed=0, budget=20)
    episodes: list[guss.Episode] = agent.learn(3)
    print(episodes[-1].mean_reward, agent.explain())
    return guss.run(config(), folder).metrics


if __name__ == "__main__":
    main()
