"""The real system of an agent: its Task and environment, single steps, and checks of all data from it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from guss.collect.datasets import Columns, Dataset, read_traces, with_costs
from guss.collect.host_envs import derived_seed, needed_costs
from guss.collect.trajectories import logged
from guss.envs import ENVS, EnvSpec
from guss.envs.adapters import Adapted, check_spaces, describe
from guss.envs.lookup import as_maker, find_env
from guss.envs.values import NotAnEnvironmentError, calling
from guss.errors import GussError, warn
from guss.spaces import Names, named
from guss.task import END, Task
from guss.types import Actions, ContinuousActions, Trajectory, Transition


def resolve(system: Any, task: Task | None) -> tuple[Task, Adapted | None]:
    """The Task of a system, and its environment if it has one; functions that the Task lacks are learned."""
    if isinstance(system, Task):
        if task is not None:
            raise GussError("a Task was passed twice, as the system and as `task`; pass only one")
        return system, None
    by_name = isinstance(system, str) and not ("/" in system and system in gymnasium.registry)
    spec = find_env(system) if by_name else system
    if isinstance(spec, EnvSpec):
        task = spec.make_task() if task is None else task
        if spec.make_env is None and task.reset is not None:
            return task, None
        name = system if by_name else f"task {task.name!r}"
        return task.with_end(hosted=True), calling(f"{name} could not create its environment", as_maker(spec))
    try:
        made = calling(f"{system} cannot be created", gymnasium.make, system) if isinstance(system, str) else system
        env = Adapted(made)
    except NotAnEnvironmentError as error:
        what = f"the class {system.__name__}: create an instance first" if isinstance(system, type) else None
        raise GussError(
            f"an Agent's system must be an environment's name, a Task or a Gymnasium environment, "
            f"got {what or type(system).__name__} ({error})"
        ) from error
    if task is None:
        spec_of_env = getattr(env.env, "spec", None)
        gym_id = getattr(spec_of_env, "id", None)
        found = [entry for entry in ENVS if entry.item.gym_id == gym_id]
        name = gym_id or type(getattr(env.env, "unwrapped", env.env)).__name__
        task = found[0].item.make_task() if found else describe(env, name)
    check_spaces(env, task)
    return task.with_end(hosted=True), env


def check_steps(task: Task, env: Adapted | None) -> None:
    """Raise GussError unless the system can be stepped."""
    if env is None and (task.step is None or task.reset is None):
        raise GussError(
            f"task {task.name!r} has no step and reset functions, so the Agent cannot step it: give the Agent a "
            f"Gymnasium environment, or step the system yourself with act(obs) and observe(transition)"
        )


def with_names(task: Task, obs_names: Names, action_names: Names) -> Task:
    """The task with these names of dimensions, such as a log's columns, unless it already has names."""
    spaces = named(task.observations, obs_names), named(task.actions, action_names)
    if spaces[0] is task.observations and spaces[1] is task.actions:
        return task
    return task.replace(observations=spaces[0], actions=spaces[1])


def read_logged(task: Task, traces: Iterable[Any], columns: Columns | None) -> tuple[list[Transition | Dataset], Task]:
    """Logged data from files and batches, and the task with the names of their columns."""
    if isinstance(traces, str | Path) or not isinstance(traces, Iterable):
        raise GussError(f"`traces` must be a list of files and batches, got {traces!r}: write traces=[{traces!r}]")
    given = list(traces)
    if columns and all(isinstance(trace, tuple) for trace in given):
        raise GussError(f"`columns` names the columns of files in `traces`, but there is no file among {len(given)}")
    found: list[Any] = [trace if isinstance(trace, tuple) else read_traces([trace], columns) for trace in given]
    for trace in found:
        task = with_names(task, trace.obs_names, trace.action_names) if isinstance(trace, Dataset) else task
    return found, task


class HostSystem:
    """Steps one system: a Gymnasium environment, or a Task with `step` and `reset`."""

    def __init__(self, task: Task, env: Adapted | None) -> None:
        self.task, self.env = task, env

    def reset(self, key: PRNGKeyArray, seed: int, episode: int) -> np.ndarray:
        """The first observation; a Gymnasium environment gets a seed derived from (seed, episode)."""
        if self.env is None:
            assert self.task.reset is not None
            return np.asarray(self.task.reset(key))
        failing = f"the environment {self.task.name!r} cannot be reset for episode {episode}"
        return calling(failing, self.env.reset, derived_seed(seed, episode))[0]

    def step(self, obs: Any, action: np.ndarray, key: PRNGKeyArray, t: int) -> tuple[Transition, bool, bool, bool]:
        """The transition, whether the system ended the episode, whether it is over, and whether to learn from it."""
        if self.env is None:
            assert self.task.step is not None
            key_world = jax.random.split(jax.random.fold_in(key, t))[1]
            next_obs = np.asarray(_step(self.task, jnp.asarray(obs), jnp.asarray(action), key_world))
            return _transition(obs, action, None, None, next_obs), False, False, True
        failing = f"the environment {self.task.name!r} fails in step {t}"
        inward = InputChecker(self.task, self.env).inward(action)
        next_obs, reward, terminated, truncated, info = calling(failing, self.env.step, inward)
        cost = needed_costs(self.task, info, f"{self.task.name} (step {t})")
        move = _transition(obs, action, reward, cost, next_obs)
        return move, terminated, terminated or truncated, not info.get("skip", False)


def _transition(obs: Any, action: Any, reward: Any, cost: Any, next_obs: Any) -> Transition:
    return Transition(*(None if x is None else np.asarray(x) for x in (obs, action, reward, cost, next_obs)))


@jax.jit
def _step(task: Task, obs: Any, action: Any, key: PRNGKeyArray) -> Any:
    assert task.step is not None
    return task.step(obs, action, key)


@jax.jit
def _reward_and_costs(task: Task, obs: Any, action: Any, next_obs: Any) -> tuple[Any, Any]:
    return task.reward_of(obs, action, next_obs), task.costs(obs, action, next_obs)


class InputChecker:
    """Converts user data to arrays of the right shape; errors name the episode and the dimension."""

    def __init__(self, task: Task, env: Adapted | None = None) -> None:
        """`env`: the user's environment, whose discrete actions may start at another value than the task's."""
        self.task = task
        self.start = None if env is None else env.action_start

    def outward(self, action: Any) -> np.ndarray:
        """An action of the task in the values of the user's environment."""
        array = np.asarray(action)  # also of a NumPy scalar
        return array if self.start is None else array - np.asarray(self.start, array.dtype)

    def inward(self, action: Any) -> Any:
        """An action of the user's environment in the values of the task."""
        return action if self.start is None else np.asarray(action) + np.asarray(self.start)

    def obs(self, value: Any, where: str) -> np.ndarray:
        space = self.task.observations
        return self._array(value, (space.size,), np.float32, f"the observation of {where}", space.labels)

    def action(self, value: Any, where: str) -> np.ndarray:
        """One action, within its bounds; rounding errors beyond them are clipped."""
        return self._action(self.inward(value), (), where)

    def transition(self, move: Transition, where: str) -> Transition:
        """One transition; the task's functions fill in reward and cost if they are None."""
        if not isinstance(move, Transition):
            raise GussError(
                f"{where}: expected a guss.Transition(obs, action, reward, cost, next_obs), got {type(move).__name__}"
            )
        cost = move.cost
        if isinstance(cost, Mapping):  # info["costs"]
            cost = self._listed(cost, where)
        found = self._checked(move._replace(action=self.inward(move.action), cost=cost), (), where)
        if found.reward is None or found.cost is None:
            known = jax.device_get(_reward_and_costs(self.task, found.obs, found.action, found.next_obs))
            pairs = zip((found.reward, found.cost), known, strict=True)
            reward, cost = (task if given is None else given for given, task in pairs)
            found = self._checked(found._replace(reward=reward, cost=cost), (), where)
        return found

    def dataset(self, data: Transition | Dataset, num_seeds: int = 1) -> Trajectory:
        """Logged transitions [N, …], checked and repeated for every seed as one episode: [S, 1, N, …]."""
        found = self.rows(data)
        return jax.tree.map(lambda x: np.broadcast_to(x, (num_seeds, 1, *x.shape)), found)

    def rows(self, data: Transition | Dataset) -> Trajectory:
        """Logged transitions [N, …], checked. Reward and cost may be None."""
        if isinstance(data, Dataset):
            self._warn_of_missing_end(data)
            trajectory = costs_in_order(self.task, data).trajectory
        else:
            trajectory = logged(data.obs, data.action, data.next_obs, data.reward, data.cost)
        action, count = np.asarray(trajectory.action), len(np.asarray(trajectory.obs))
        shape = (count, *self.task.actions.shape)
        if action.size == math.prod(shape):
            action = action.reshape(shape)  # one column may represent a scalar, several columns an array
        given = Transition(trajectory.obs, action, trajectory.reward, trajectory.cost, trajectory.next_obs)
        return trajectory._replace(**self._checked(given, (count,), "the trace")._asdict())

    def _checked(self, given: Transition, lead: tuple[int, ...], where: str) -> Transition:
        """Transitions with the leading axes `lead`; reward and cost may be None."""
        space, names = self.task.observations, [constraint.name for constraint in self.task.constraints]
        obs, next_obs = (
            self._array(value, (*lead, space.size), np.float32, f"{name} of {where}", space.labels)
            for name, value in (("obs", given.obs), ("next_obs", given.next_obs))
        )
        action = self._action(given.action, lead, where)
        reward, cost = given.reward, given.cost
        if reward is not None:
            reward = self._array(reward, lead, np.float32, f"the reward of {where}")
        if cost is not None:
            about = f"the cost of {where} (constraints {', '.join(names)})"
            cost = self._array(cost, (*lead, len(names)), np.float32, about, names)
            if (cost < 0).any():
                *row, k = np.argwhere(cost < 0)[0].tolist()
                place = "".join(f"row {i}, " for i in row) + f"constraint {names[k]!r}"
                raise GussError(f"the cost of {where} must be 0 or more (0 is safe), got {cost[(*row, k)]} in {place}")
        return _transition(obs, action, reward, cost, next_obs)

    def _listed(self, costs: Mapping[str, Any], where: str) -> list[Any]:
        """Costs by name in the order of the task's constraints."""
        names = [constraint.name for constraint in self.task.constraints]
        if missing := [name for name in names if name not in costs]:
            raise GussError(
                f"the cost of {where} (constraints {', '.join(names)}) must name every constraint, got "
                f"{', '.join(map(str, costs)) or 'nothing'}: {', '.join(missing)} is missing"
            )
        return [costs[name] for name in names]

    def _action(self, values: Any, lead: tuple[int, ...], where: str) -> np.ndarray:
        actions, what = self.task.actions, f"the action of {where}"
        labels = actions.labels if actions.shape else ()
        array = self._array(values, (*lead, *actions.shape), np.float64, what, labels)
        outside = actions.outside(array).reshape(math.prod(lead), -1).any(axis=1)
        if outside.any():
            row = int(np.argmax(outside))
            message = f"{what} must be {_range(actions)}, got {array.reshape(-1, *actions.shape)[row].tolist()}"
            if lead:
                message += f" in row {row} (and {int(outside.sum()) - 1} more); clip them, or widen the task's actions"
            raise GussError(message)
        return actions.rounded(array)

    def _warn_of_missing_end(self, data: Dataset) -> None:
        if not data.knows_end and END in self.task.unknown:
            warn(
                f"the logged data have no column `terminated`, so the model of task {self.task.name!r} learns that the "
                f"system never ends an episode itself: add the column (1 on the last row of an episode that the system "
                f"ended, 0 elsewhere), or disable this with Task(learns_end=False)"
            )

    def _array(
        self, value: Any, shape: tuple[int, ...], dtype: Any, what: str, labels: Sequence[str] = ()
    ) -> np.ndarray:
        """Finite numbers of that shape; `labels`: names along the last axis."""
        try:
            with np.errstate(over="ignore"):  # becomes infinite, which is rejected below
                array = np.asarray(value, dtype)
        except (TypeError, ValueError) as error:
            raise GussError(f"{what} must be numbers of shape {shape}, got {value!r}: {error}") from error
        if array.shape != shape:
            raise GussError(f"{what} must have shape {shape} for task {self.task.name!r}, got {array.shape}")
        if not np.isfinite(array).all():
            bad = np.argwhere(~np.isfinite(array))[0].tolist()
            places = [f"row {i}" for i in (bad[:-1] if labels else bad)] + [labels[i] for i in bad[-1:] if labels]
            which = f" in {', '.join(places)}" if places else ""
            raise GussError(f"{what} is not finite{which}: {np.array2string(array, threshold=20)}")
        return array


def costs_in_order(task: Task, data: Dataset) -> Dataset:
    """The data with costs in the order of the task's constraints: by name, if the file names them."""
    if data.cost_names is None:
        return data
    names = [constraint.name for constraint in task.constraints]
    return with_costs(data, names, f"task {task.name!r}")._replace(cost_names=None)


def _range(actions: Actions) -> str:
    """The range of actions as text."""
    if isinstance(actions, ContinuousActions):
        return f"between {list(actions.low)} and {list(actions.high)}"
    low, count = (np.asarray(x).reshape(actions.shape) for x in (actions.first, actions.num_values))
    return f"integers between {low.tolist()} and {(low + count - 1).tolist()}"
