"""Adapts any environment with Gymnasium's spaces, `reset` and `step` to vectors and a Task."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from guss.constraint import Constraint
from guss.envs.thread_worker import AnyWorker, Failure, Worker
from guss.envs.values import no_cost_error, reported_costs
from guss.envs.vector_steps import VectorSteps
from guss.errors import GussError
from guss.spaces import named
from guss.task import Task
from guss.types import Actions, ContinuousActions, DiscreteActions, Observations

PATIENCE = 60.0
"""Seconds that the first reset and the first step of an environment may take."""
MOST_NUMBERS = 512
"""An observation of more numbers than this is taken for an image, which the models here cannot learn."""


# ------------------------------------------------------------------------------------------------------------- spaces


def observations_of(space: Any) -> Observations:
    """Observations as a vector: Dict and Tuple are flattened, discrete values become one-hot."""
    kinds = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Dict, spaces.Tuple)
    flat = spaces.flatten_space(space) if _made_of(space, kinds) else None
    if not isinstance(flat, spaces.Box) or len(flat.shape) != 1:
        raise GussError(
            f"the observation space {space} cannot be flattened to a vector; guss accepts Box, Discrete, "
            f"MultiDiscrete, MultiBinary, and Dict and Tuple of them. Use a wrapper that extracts the relevant "
            f"numbers: gymnasium.wrappers.TransformObservation(env, function, Box(...))"
        )
    if not 1 <= flat.shape[0] <= MOST_NUMBERS:
        raise GussError(
            f"the observation space {space} has {flat.shape[0]} numbers; guss learns models of 1 to {MOST_NUMBERS}, "
            f"not of images. Use a wrapper that extracts a state vector (positions, speeds): "
            f"gymnasium.wrappers.TransformObservation(env, function, Box(...))"
        )
    low, high = np.asarray(flat.low, float), np.asarray(flat.high, float)
    still = ~(low < high)  # a number that never changes
    low, high = np.where(still, -np.inf, low), np.where(still, np.inf, high)
    return Observations(tuple(low.tolist()), tuple(high.tolist()), names=_names_of(space))


def _names_of(space: Any) -> tuple[str, ...] | None:
    """The keys of a Dict as the names of its numbers; None if a space has no keys."""
    if not isinstance(space, spaces.Dict):
        return None
    names: list[str] = []
    for key, part in space.items():
        inner, size = _names_of(part), int(spaces.flatdim(part))
        names += [f"{key}"] if size == 1 else [f"{key} {name}" for name in inner or range(size)]
    return tuple(names)


def _made_of(space: Any, kinds: tuple[type, ...]) -> bool:
    if isinstance(space, spaces.Dict):
        return all(_made_of(part, kinds) for part in space.values())
    if isinstance(space, spaces.Tuple):
        return all(_made_of(part, kinds) for part in space)
    return isinstance(space, kinds)


def actions_of(space: Any) -> Actions:
    """An action space as planners use it."""
    if isinstance(space, spaces.Discrete):
        return DiscreteActions((int(space.n),), (int(space.start),), scalar=True)
    if isinstance(space, spaces.MultiDiscrete):
        values, first = (tuple(int(x) for x in np.ravel(part)) for part in (space.nvec, space.start))
        return DiscreteActions(values, first)
    if isinstance(space, spaces.MultiBinary):
        return DiscreteActions((2,) * math.prod(space.shape))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low, high = np.ravel(space.low).astype(float), np.ravel(space.high).astype(float)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            bad = int(np.flatnonzero(~(np.isfinite(low) & np.isfinite(high)))[0])
            raise GussError(
                f"the action space {space} is not bounded in dimension {bad}, so no random action can be sampled. Set "
                f"finite bounds with a wrapper: gymnasium.wrappers.TransformAction(env, function, Box(low, high))"
            )
        return ContinuousActions(tuple(low.tolist()), tuple(high.tolist()))
    raise GussError(
        f"guss cannot plan in the action space {space}; it accepts a Box of floats, Discrete, MultiDiscrete and "
        f"MultiBinary. Use a wrapper with one of these spaces: "
        f"gymnasium.wrappers.TransformAction(env, function, space)"
    )


class Adapted(VectorSteps):
    """An environment as guss uses it: `VectorSteps`, and the properties of its spaces and wrappers."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observations, self.actions = observations_of(env.observation_space), actions_of(env.action_space)
        if self.action_start is not None and isinstance(self.actions, DiscreteActions):
            first = tuple(a + b for a, b in zip(self.actions.first, self.action_start, strict=True))
            self.actions = replace(self.actions, start=first)
        self.observations = named(self.observations, self._attribute("observation_names"))
        self.actions = named(self.actions, self._attribute("action_names"))

    def _attribute(self, name: str) -> Any:
        """An attribute of the environment or of one that it wraps; None if there is none."""
        has: Any = getattr(self.env, "has_wrapper_attr", lambda name: hasattr(self.env, name))
        get: Any = getattr(self.env, "get_wrapper_attr", lambda name: getattr(self.env, name))
        return get(name) if has(name) else None

    @property
    def hard_limits(self) -> tuple[str, ...]:
        """Names of costs that are hard limits, as `guss.envs.wrappers.RedButton` defines them."""
        return tuple(self._attribute("hard_limits") or ())

    @property
    def episode_length(self) -> int | None:
        """Its time limit in steps, if it has one."""
        spec = getattr(self.env, "spec", None)
        layer = self.env
        while layer is not None:
            if isinstance(layer, gymnasium.wrappers.TimeLimit):
                return int(layer._max_episode_steps)
            layer = getattr(layer, "env", None)
        return None if spec is None else getattr(spec, "max_episode_steps", None)


# --------------------------------------------------------------------------------------------------------- the Task


def describe(
    env: Adapted,
    name: str,
    *,
    episode_length: int | None = None,
    without_cost: bool = False,
    worker: AnyWorker | None = None,
) -> Task:
    """A Task from the spaces and attributes of an environment; reward, costs, behaviour and termination are learned.

    `worker` resets and steps it once, with the action nearest to zero, to find the names of its costs.
    """
    length = episode_length or env.episode_length
    if length is None:
        raise GussError(
            f"the environment {name} has no time limit, so its episode length is unknown: wrap it in "
            f"gymnasium.wrappers.TimeLimit(env, STEPS), or pass --episode-length STEPS"
        )
    constraints: list[Constraint] = []
    if not without_cost:
        neutral = np.asarray(np.reshape(env.actions.neutral(), env.actions.shape), env.actions.dtype)
        worker = worker or Worker(lambda: env, owns=False)
        asked(worker, f"the environment {name} fails on its first reset", "reset", 0)
        info = asked(worker, f"the environment {name} fails on its first step", "step", neutral)[4]
        try:
            reported = reported_costs(info)
        except GussError as error:
            raise GussError(f"the environment {name}, on its first step: {error}") from error
        if reported is None:
            raise no_cost_error(name, info)
        constraints = [Constraint(each, hard=each in env.hard_limits) for each in reported]
    return Task(
        name=name,
        observations=env.observations,
        actions=env.actions,
        reward=None,
        constraints=constraints,
        descriptor=None,
        grid=None,
        episode_length=length,
        learns_end=True,
    )


def asked(worker: AnyWorker, failing: str, method: str, *args: Any) -> Any:
    """The result of a worker's call; if it fails, a GussError that starts with `failing`."""
    worker.ask(method, args)
    answer = worker.answer(PATIENCE)
    if isinstance(answer, Failure):
        why = f"it took longer than {PATIENCE:g} s" if answer.kind == "timeout" else answer.text
        raise GussError(f"{failing}: {why}") from answer.error
    return answer


def check_spaces(env: Adapted, task: Task) -> None:
    """Raise GussError unless a user's Task and environment have the same observations and actions."""
    if env.observations.size != task.observations.size:
        raise GussError(
            f"task {task.name!r} has observations of shape ({task.observations.size},), the environment's space "
            f"{env.env.observation_space} has shape ({env.observations.size},) when flattened"
        )
    mine, theirs = task.actions, env.actions
    fits = type(mine) is type(theirs) and mine.shape == theirs.shape
    if fits and isinstance(mine, ContinuousActions) and isinstance(theirs, ContinuousActions):
        near = 1e-5 * (np.asarray(theirs.high) - np.asarray(theirs.low))
        ends = ((mine.low, theirs.low), (mine.high, theirs.high))
        fits = all((np.abs(np.asarray(a) - np.asarray(b)) <= near).all() for a, b in ends)
    elif fits and isinstance(mine, DiscreteActions) and isinstance(theirs, DiscreteActions):
        fits = (mine.num_values, mine.first, mine.scalar) == (theirs.num_values, theirs.first, theirs.scalar)
    if not fits:
        message = f"task {task.name!r} has the actions {mine}, the environment has {env.env.action_space}"
        if isinstance(mine, DiscreteActions) and isinstance(theirs, DiscreteActions) and mine.scalar != theirs.scalar:
            single = "a single number" if theirs.scalar else "an array of one number"
            message += f": its action is {single}, so write DiscreteActions({theirs.num_values}, start={theirs.first}, "
            message += f"scalar={theirs.scalar})"
        raise GussError(message)
