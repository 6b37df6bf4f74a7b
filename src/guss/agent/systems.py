"""The real system's side of an agent: what it is, one step of it, and checks of everything that comes from it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from guss.agent.hosting import derived_seed, told_costs
from guss.agent.traces import Trace
from guss.envs import ENVS, make_task
from guss.errors import GussError
from guss.task import Task
from guss.types import Actions, ContinuousActions, Transition


def resolve(system: Any, task: Task | None) -> tuple[Task, gymnasium.Env[Any, Any] | None]:
    """The Task of a system, and the Gymnasium environment to act on if it is one."""
    if isinstance(system, Task):
        if task is not None:
            raise GussError("a Task was given twice: as the system and as `task`")
        return system, None
    if isinstance(system, str) and "/" not in system:
        task = make_task(system) if task is None else task
        return task, None if task.reset is not None else gymnasium.make(ENVS[system].item.gym_id)
    env = gymnasium.make(system) if isinstance(system, str) else system
    if not isinstance(env, gymnasium.Env):
        raise GussError(
            f"an Agent's system is an environment's name, a Task or a Gymnasium environment, "
            f"got {type(system).__name__}"
        )
    if task is None:
        gym_id = None if env.spec is None else env.spec.id
        found = [entry for entry in ENVS if entry.item.gym_id == gym_id]
        if not found:
            raise GussError(
                f"nothing is known of the Gymnasium environment {gym_id or type(env.unwrapped).__name__!r}: describe "
                f"its reward, constraints and behaviour in a Task and give it as `task=`"
            )
        task = found[0].item.make_task()
    _check_spaces(env, task)
    return task, env


def _check_spaces(env: gymnasium.Env[Any, Any], task: Task) -> None:
    """The Task and the environment must speak of the same observations and actions."""
    shape = env.observation_space.shape
    if shape != (task.observations.size,):
        raise GussError(
            f"task {task.name!r} has observations of shape ({task.observations.size},), the environment {shape} "
            f"({env.observation_space}); flatten them with gymnasium.wrappers.FlattenObservation if they are nested"
        )
    space: Any = env.action_space
    if isinstance(task.actions, ContinuousActions):
        fits = isinstance(space, gymnasium.spaces.Box) and space.shape == task.actions.shape
        fits = fits and np.allclose(space.low, task.actions.low) and np.allclose(space.high, task.actions.high)
    elif task.actions.scalar:
        fits = isinstance(space, gymnasium.spaces.Discrete)
        fits = fits and (int(space.n), int(space.start)) == (task.actions.num_values[0], task.actions.first[0])
    else:
        fits = isinstance(space, gymnasium.spaces.MultiDiscrete) and space.shape == task.actions.shape
        fits = fits and np.array_equal(space.nvec, task.actions.num_values)
        fits = fits and np.array_equal(space.start, task.actions.first)
    if not fits:
        raise GussError(f"task {task.name!r} has the actions {task.actions}, the environment has {space}")


class HostSystem:
    """One step at a time: a Gymnasium environment, or a compiled task where its own controller runs in Python."""

    def __init__(self, task: Task, env: gymnasium.Env[Any, Any] | None) -> None:
        self.task, self.env = task, env

    def reset(self, key: PRNGKeyArray, seed: int, episode: int) -> np.ndarray:
        """The first observation; a Gymnasium environment gets a seed derived from (seed, episode)."""
        if self.env is None:
            assert self.task.reset is not None
            return np.asarray(self.task.reset(key))
        return self.env.reset(seed=derived_seed(seed, episode))[0]

    def step(self, obs: Any, action: np.ndarray, key: PRNGKeyArray, t: int) -> tuple[Transition, bool, bool]:
        """What the action did, whether the episode is over, and whether to learn from it."""
        if self.env is None:
            assert self.task.step is not None
            key_world = jax.random.split(jax.random.fold_in(key, t))[1]
            next_obs = np.asarray(_step(self.task, jnp.asarray(obs), jnp.asarray(action), key_world))
            return _transition(obs, action, None, None, next_obs), False, True
        next_obs, reward, terminated, truncated, info = self.env.step(action if action.shape else action.item())
        move = _transition(obs, action, reward, told_costs(self.task, info), next_obs)
        return move, bool(terminated or truncated), not info.get("skip", False)


def _transition(obs: Any, action: Any, reward: Any, cost: Any, next_obs: Any) -> Transition:
    fields: Any = [None if x is None else np.asarray(x) for x in (obs, action, reward, cost, next_obs)]
    return Transition(*fields)


@jax.jit
def _step(task: Task, obs: Any, action: Any, key: PRNGKeyArray) -> Any:
    assert task.step is not None
    return task.step(obs, action, key)


@jax.jit
def _judge(task: Task, obs: Any, action: Any, next_obs: Any) -> tuple[Any, Any]:
    return jnp.asarray(task.reward(obs, action, next_obs), jnp.float32), task.costs(obs, action, next_obs)


def check_finite(task: Task, moves: Transition, episode: int, seeds: Sequence[int]) -> None:
    """A compiled task's episodes [T, S, …] must be finite: name the episode, the step, the seed and the dimension."""
    for name in ("next_obs", "reward", "cost"):
        values = np.asarray(getattr(moves, name))
        if not np.isfinite(values).all():
            t, row, *rest = np.argwhere(~np.isfinite(values))[0].tolist()
            which = f", dimension {rest[0]}" if rest else ""
            if name == "cost":
                which = f", constraint {task.constraints[rest[0]].name!r}"
            raise GussError(
                f"{name} of task {task.name!r} is not finite in episode {episode}, step {t}, "
                f"seed {seeds[row]}{which}: {values[(t, row, *rest)]}. Episodes before are kept."
            )


class Checked:
    """What comes from outside, as arrays of the right shape; or an error that names the episode and the dimension."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def obs(self, value: Any, where: str, name: str = "the observation") -> np.ndarray:
        """One observation."""
        return self._array(value, (self.task.observations.size,), np.float32, f"{name} of {where}")

    def action(self, value: Any, where: str) -> np.ndarray:
        """One action, within its bounds."""
        actions = self.task.actions
        array = self._array(value, actions.shape, np.dtype(actions.dtype), f"the action of {where}")
        low, high = _range(actions)
        if not ((array >= low - 1e-6) & (array <= high + 1e-6)).all():
            raise GussError(
                f"the action of {where} must be between {low.tolist()} and {high.tolist()}, got {array.tolist()}"
            )
        return array

    def transition(self, move: Transition, where: str) -> Transition:
        """One transition; the task's functions fill in reward and cost where they are None."""
        obs = self.obs(move.obs, where, "obs")
        action = self.action(move.action, where)
        next_obs = self.obs(move.next_obs, where, "next_obs")
        reward: Any = move.reward
        cost: Any = move.cost
        if reward is None or cost is None:
            known = jax.device_get(_judge(self.task, obs, action, next_obs))
            reward, cost = (
                mine if mine is not None else task for mine, task in zip((reward, cost), known, strict=True)
            )
        names = [constraint.name for constraint in self.task.constraints]
        reward = self._array(reward, (), np.float32, f"the reward of {where}")
        cost = self._array(cost, (len(names),), np.float32, f"the cost of {where} (constraints {', '.join(names)})")
        return _transition(obs, action, reward, cost, next_obs)

    def batch(self, trace: Transition | Trace) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Observations, actions and next observations of a logged trace, [N, …]."""
        count = len(np.asarray(trace.obs))
        size, actions = self.task.observations.size, self.task.actions
        action, shape = np.asarray(trace.action), (count, *actions.shape)
        if action.size == count * math.prod(actions.shape):
            action = action.reshape(shape)  # one column may stand for a plain number, several for an array
        if actions.dtype == jnp.int32 and not (action == np.round(action)).all():
            raise GussError(f"actions of task {self.task.name!r} are whole numbers, the trace has others")
        action = self._array(action, shape, np.dtype(actions.dtype), "action of the trace")
        low, high = _range(actions)
        outside = ((action < low - 1e-6) | (action > high + 1e-6)).reshape(count, -1).any(axis=1)
        if outside.any():
            row = int(np.argmax(outside))
            raise GussError(
                f"action of the trace must be between {low.tolist()} and {high.tolist()}, got {action[row].tolist()} "
                f"in row {row} (and {int(outside.sum()) - 1} more); clip them, or widen the task's actions"
            )
        return (
            self._array(trace.obs, (count, size), np.float32, "obs of the trace"),
            action,
            self._array(trace.next_obs, (count, size), np.float32, "next_obs of the trace"),
        )

    def _array(self, value: Any, shape: tuple[int, ...], dtype: Any, what: str) -> np.ndarray:
        try:
            array = np.asarray(value, dtype)
        except (TypeError, ValueError) as error:
            raise GussError(f"{what} must be numbers of shape {shape}, got {value!r}: {error}") from error
        if array.shape != shape:
            raise GussError(f"{what} must have shape {shape} for task {self.task.name!r}, got {array.shape}")
        if not np.isfinite(array).all():
            bad = np.argwhere(~np.isfinite(array))[0].tolist()
            which = f" in dimension {bad[0] if len(bad) == 1 else bad}" if bad else ""
            raise GussError(f"{what} is not finite{which}: {np.array2string(array, threshold=20)}")
        return array


def _range(actions: Actions) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(actions, ContinuousActions):
        return np.asarray(actions.low), np.asarray(actions.high)
    low, count = (np.asarray(x).reshape(actions.shape) for x in (actions.first, actions.num_values))
    return low, np.asarray(low + count - 1)
