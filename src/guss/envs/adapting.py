"""Other people's environments: anything with Gymnasium's spaces, `reset` and `step`, as vectors and a Task.

find_env("safe-pendulum")            one of ours
find_env("my_module:make_env")       your own, from a module or a file (`plant.py:make_env`)
find_env("CartPole-v1")              a Gymnasium id
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from guss.constraint import Constraint
from guss.envs import ENVS, EnvSpec
from guss.envs.workers import Failure, Worker
from guss.envs.wrappers import cost_value, five_values
from guss.errors import GussError, UnknownNameError
from guss.loading import load_object
from guss.task import Task
from guss.types import Actions, ContinuousActions, DiscreteActions, Observations
from guss.usercode import check_user_code

PATIENCE = 60.0
"""Seconds that the first reset and the first step of an environment may take."""
MOST_NUMBERS = 512
"""An observation of more numbers than this is taken for a picture, which the models here cannot learn."""


# ------------------------------------------------------------------------------------------------------------- spaces


def observations_of(space: Any) -> Observations:
    """Observations as a vector: Dict and Tuple are flattened, choices become one-hot."""
    kinds = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Dict, spaces.Tuple)
    flat = spaces.flatten_space(space) if _made_of(space, kinds) else None
    if not isinstance(flat, spaces.Box) or len(flat.shape) != 1:
        raise GussError(
            f"the observation space {space} cannot be written as a vector of numbers; guss takes Box, Discrete, "
            f"MultiDiscrete, MultiBinary, and Dict and Tuple of them. Go on by a wrapper that gives the numbers that "
            f"matter: gymnasium.wrappers.TransformObservation(env, function, Box(...))"
        )
    if not 1 <= flat.shape[0] <= MOST_NUMBERS:
        raise GussError(
            f"the observation space {space} has {flat.shape[0]} numbers; guss learns models of 1 to {MOST_NUMBERS}, "
            f"not of pictures. Go on by a wrapper that gives the numbers that matter (positions, speeds): "
            f"gymnasium.wrappers.TransformObservation(env, function, Box(...))"
        )
    low, high = np.asarray(flat.low, float), np.asarray(flat.high, float)
    still = ~(low < high)  # a number that never changes
    low, high = np.where(still, -np.inf, low), np.where(still, np.inf, high)
    return Observations(tuple(low.tolist()), tuple(high.tolist()))


def _made_of(space: Any, kinds: tuple[type, ...]) -> bool:
    if isinstance(space, spaces.Dict):
        return all(_made_of(part, kinds) for part in space.values())
    if isinstance(space, spaces.Tuple):
        return all(_made_of(part, kinds) for part in space)
    return isinstance(space, kinds)


def actions_of(space: Any) -> Actions:
    """Actions as planners know them."""
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
                f"the action space {space} is not bounded in dimension {bad}, so no action can be drawn from it. Go on "
                f"by bounds that the system can take: gymnasium.wrappers.TransformAction(env, function, Box(low, high))"
            )
        return ContinuousActions(tuple(low.tolist()), tuple(high.tolist()))
    raise GussError(
        f"guss cannot plan for the action space {space}; it takes a Box of floats, Discrete, MultiDiscrete and "
        f"MultiBinary. Go on by a wrapper that takes one of them: "
        f"gymnasium.wrappers.TransformAction(env, function, space)"
    )


def _for_env(space: Any, action: Any) -> Any:
    """An action as the environment wants it; rounding to its type does not bring it out of its bounds."""
    if isinstance(space, spaces.Discrete):
        return int(action)
    shaped = np.asarray(action).reshape(space.shape).astype(space.dtype)
    return np.asarray(np.clip(shaped, space.low, space.high)) if isinstance(space, spaces.Box) else shaped


class Adapted:
    """Somebody's environment as guss sees it: vectors in and out, five values a step, the fifth with the costs."""

    def __init__(self, env: Any) -> None:
        missing = [name for name in ("observation_space", "action_space", "reset", "step") if not hasattr(env, name)]
        if missing:
            raise GussError(
                f"{type(env).__name__} is not an environment: it has no {' and no '.join(missing)} "
                f"(expected a gymnasium.Env, or something with the same parts)"
            )
        self.env = env
        self.observations, self.actions = observations_of(env.observation_space), actions_of(env.action_space)

    @property
    def hard_limits(self) -> tuple[str, ...]:
        """Names of costs that are hard limits, as `guss.envs.wrappers.RedButton` tells them."""
        has: Any = getattr(self.env, "has_wrapper_attr", lambda name: hasattr(self.env, name))
        get: Any = getattr(self.env, "get_wrapper_attr", lambda name: getattr(self.env, name))
        return tuple(get("hard_limits")) if has("hard_limits") else ()

    @property
    def episode_length(self) -> int | None:
        """After how many steps it ends its episodes, if it says."""
        spec = getattr(self.env, "spec", None)
        layer = self.env
        while layer is not None:
            if isinstance(layer, gymnasium.wrappers.TimeLimit):
                return int(layer._max_episode_steps)
            layer = getattr(layer, "env", None)
        return None if spec is None else getattr(spec, "max_episode_steps", None)

    def reset(self, seed: int | None) -> tuple[np.ndarray, dict[str, Any]]:
        """The first observation, and what else it says."""
        result = self.env.reset(seed=seed)
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
            raise GussError(
                f"reset of {_name(self.env)} must return (observation, info), as Gymnasium's, got "
                f"{type(result).__name__}"
            )
        return self._vector(result[0]), result[1]

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step; six values, as Safety-Gymnasium's (the cost third), become five."""
        result = self.env.step(_for_env(self.env.action_space, action))
        obs, reward, terminated, truncated, info = five_values(result, _name(self.env))
        if not isinstance(np.asarray(reward).item() if np.size(reward) == 1 else None, numbers.Real):
            raise GussError(f"the reward of {_name(self.env)} must be one number, got {reward!r}")
        return self._vector(obs), float(np.asarray(reward).item()), bool(terminated), bool(truncated), info

    def close(self) -> None:
        """Done with it."""
        if hasattr(self.env, "close"):
            self.env.close()

    def _vector(self, obs: Any) -> np.ndarray:
        space = self.env.observation_space
        try:
            plain = obs if isinstance(space, spaces.Box) else spaces.flatten(space, obs)
            flat = np.array(plain, np.float32).reshape(-1)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            raise GussError(
                f"{_name(self.env)} gave an observation that is not in its space {space}: {obs!r}"
            ) from error
        if flat.shape != (self.observations.size,):
            raise GussError(
                f"{_name(self.env)} gave an observation of {flat.size} numbers, its space {space} has "
                f"{self.observations.size}"
            )
        return flat


def _name(env: Any) -> str:
    return type(getattr(env, "unwrapped", env)).__name__


# -------------------------------------------------------------------------------------------------------------- costs


def reported_costs(info: dict[str, Any]) -> dict[str, float] | None:
    """The costs of one step by name: `info["costs"]`, or `info["cost"]` as "cost"; None if there are none."""
    if isinstance(info.get("costs"), dict) and info["costs"]:
        return {str(name): cost_value(value, f'info["costs"][{str(name)!r}]') for name, value in info["costs"].items()}
    return {"cost": cost_value(info["cost"])} if "cost" in info else None


def no_cost_error(name: str, info: dict[str, Any]) -> GussError:
    """What to say to an environment without a cost."""
    return GussError(
        f"the environment {name} does not say what is unsafe: `info` has {sorted(map(str, info)) or 'nothing'}; "
        f'expected info["cost"], 1 on an unsafe step and 0 elsewhere, or info["costs"] with several by name. Or '
        f"describe the cost in a Task (docs/own-env.md), or say --without-cost if nothing is unsafe"
    )


# --------------------------------------------------------------------------------------------------------- the Task


def describe(env: Adapted, name: str, *, episode_length: int | None = None, without_cost: bool = False) -> Task:
    """A Task of what an environment says of itself; reward, costs, behaviour and the end of episodes are learned.

    To know the names of its costs it is reset and stepped once, with the action nearest to zero.
    """
    length = episode_length or env.episode_length
    if length is None:
        raise GussError(
            f"the environment {name} does not say how long its episodes are: wrap it in "
            f"gymnasium.wrappers.TimeLimit(env, STEPS), or on the command line say --episode-length STEPS"
        )
    constraints: list[Constraint] = []
    if not without_cost:
        neutral = np.asarray(np.reshape(env.actions.neutral(), env.actions.shape), env.actions.dtype)
        info = first_step(env, name, neutral)
        told = reported_costs(info)
        if told is None:
            raise no_cost_error(name, info)
        constraints = [Constraint(each, hard=each in env.hard_limits) for each in told]
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


def first_step(env: Adapted, name: str, action: np.ndarray) -> dict[str, Any]:
    """What an environment says on its first step; one that cannot be reset or stepped is told."""
    worker = Worker(lambda: env, owns=False)
    for method, args in (("reset", (0,)), ("step", (action,))):
        worker.ask(method, args)
        answer = worker.answer(PATIENCE)
        if isinstance(answer, Failure):
            raise GussError(f"the environment {name} fails on its first {method}: {answer}")
    return answer[4]


def check_spaces(env: Adapted, task: Task) -> None:
    """A user's Task and environment must speak of the same observations and actions."""
    if env.observations.size != task.observations.size:
        raise GussError(
            f"task {task.name!r} has observations of shape ({task.observations.size},), the environment's space "
            f"{env.env.observation_space} makes ({env.observations.size},)"
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
        raise GussError(f"task {task.name!r} has the actions {mine}, the environment has {env.env.action_space}")


# ------------------------------------------------------------------------------------------------------- finding them


def find_env(
    name: str, *, episode_length: int | None = None, without_cost: bool = False, folder: Path | None = None
) -> EnvSpec:
    """The environment of that name: one of ours, a Gymnasium id, or `module:function` (or `file.py:function`).

    The function returns a Gymnasium environment, a pair (environment, Task) where reward and cost are known, or a Task
    with `step` and `reset`, whose episodes are then compiled. `folder`: where its module or file is looked for first;
    then in the current one.
    """
    ours = {entry.item.gym_id: entry.item for entry in ENVS} | {entry.name: entry.item for entry in ENVS}
    if name not in ours:
        check_user_code(f"the environment {name!r}")
        return _own(name, Path.cwd(), folder, episode_length, without_cost)
    if episode_length is not None or without_cost:
        raise GussError(f"{name} is described already: --episode-length and --without-cost are for others")
    return ours[name]


@cache
def _own(name: str, cwd: Path, folder: Path | None, episode_length: int | None, without_cost: bool) -> EnvSpec:
    """Looked at once in a process: to describe an environment is to touch it."""
    if ":" in name:
        found = load_object(name, folder)
    elif name in gymnasium.registry:
        found = partial(gymnasium.make, name, disable_env_checker=True)
    else:
        raise UnknownNameError("environment", name, [*(e.name for e in ENVS), *gymnasium.registry])
    return spec_of(found, name, episode_length=episode_length, without_cost=without_cost)


def spec_of(found: Any, name: str, *, episode_length: int | None = None, without_cost: bool = False) -> EnvSpec:
    """The EnvSpec of what a name stands for."""
    if isinstance(found, EnvSpec):
        return found
    if isinstance(found, Task):
        return EnvSpec("", lambda: found)
    if isinstance(found, gymnasium.Env):
        raise GussError(f"{name} is an environment; give a function that makes one, since every seed needs its own")
    if not callable(found):
        raise GussError(
            f"{name} must be a function that makes an environment, or a guss.Task, got {type(found).__name__}"
        )
    made = found()
    if isinstance(made, Task | EnvSpec):
        return spec_of(made, name)
    first, known = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if (known is not None and not isinstance(known, Task)) or not hasattr(first, "step"):
        raise GussError(
            f"{name} must return an environment, a pair (environment, guss.Task) or a guss.Task, got "
            f"{type(first if known is None else known).__name__}"
        )

    def make_env() -> Adapted:
        again = found()
        return Adapted(again[0] if known is not None else again)

    env = Adapted(first)
    try:
        if known is None:
            task = describe(env, name, episode_length=episode_length, without_cost=without_cost)
        else:
            task = known.with_end(hosted=True)
            check_spaces(env, task)
    finally:
        env.close()
    return EnvSpec("", lambda: task, make_env=make_env)


def as_maker(spec: EnvSpec) -> Callable[[], Adapted]:
    """A function that makes one more of them."""
    if spec.make_env is not None:
        return spec.make_env
    return lambda: Adapted(gymnasium.make(spec.gym_id, disable_env_checker=True))
