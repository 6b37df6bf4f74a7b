"""Finds environments by name: bundled environments, Gymnasium ids, and functions in user files.

find_env("safe-pendulum")            a bundled environment
find_env("my_module:make_env")       a function of a module or a file (`plant.py:make_env`)
find_env("CartPole-v1")              a Gymnasium id
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import gymnasium

from guss.envs import ENVS, EnvSpec
from guss.envs.adapters import Adapted, asked, check_spaces, describe
from guss.envs.process_worker import ProcessWorker
from guss.envs.thread_worker import AnyWorker, Worker, about_close, close_by
from guss.errors import GussError, warn
from guss.plugins import functions_in, load_object, located
from guss.task import Task
from guss.usercode import check_user_code
from guss.validation import convert

HOW = "Name a custom one as file.py:function or module:function; `guss list` shows bundled environments"


def find_env(
    name: str,
    *,
    episode_length: int | None = None,
    without_cost: bool = False,
    process: bool = False,
    folder: Path | None = None,
) -> EnvSpec:
    """The environment of that name: a bundled name, a Gymnasium id, or `module:function` (or `file.py:function`).

    The function returns a Gymnasium environment, a pair (environment, Task) if reward and cost are known, or a Task
    with `step` and `reset`, whose episodes are then compiled. `process`: an environment that must be stepped to
    describe it is stepped in its own process. `folder`: the folder to search for its module or file before the current
    one.
    """
    convert(name, str, "the environment's name")
    ours = {entry.item.gym_id: entry.item for entry in ENVS} | {entry.name: entry.item for entry in ENVS}
    if name not in ours:
        check_user_code(f"the environment {name!r}")
        return _custom(name, Path.cwd(), folder, episode_length, without_cost, process)
    if episode_length is not None or without_cost:
        raise GussError(
            f"the Task of {name} defines the episode length and the cost, so --episode-length and --without-cost do "
            f"not apply"
        )
    return ours[name]


@cache
def _custom(
    name: str, cwd: Path, folder: Path | None, episode_length: int | None, without_cost: bool, process: bool
) -> EnvSpec:
    """Cached, since a description takes a reset and a step."""
    source = name
    if ":" in name:
        found, source = load_object(name, folder), located(name, folder)
    elif name in gymnasium.registry:
        found = partial(make_gymnasium, name)
    else:
        raise unknown_env(name)
    child = source if process else None
    spec = spec_of(found, name, episode_length=episode_length, without_cost=without_cost, process=child)
    return replace(spec, source=source)


EXTRAS = {"imageio": "mujoco", "mujoco": "mujoco", "Box2D": "box2d", "swig": "box2d", "pygame": "classic-control",
          "ale_py": "atari", "cv2": "other", "moviepy": "other"}  # fmt: skip
"""Extras of Gymnasium by the modules that they install."""


def make_gymnasium(name: str) -> Any:
    """An environment by its Gymnasium id; an error names the extra of Gymnasium whose module is missing."""
    try:
        return gymnasium.make(name, disable_env_checker=True)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        raise GussError(f"{error}; Gymnasium installs it with: pip install 'gymnasium[{extra}]'") from error


def unknown_env(name: str) -> GussError:
    """The error for an unknown environment name, with suggestions."""
    if name.endswith(".py"):
        if not Path(name).is_file():
            return GussError(f"there is no file {name!r}; a custom environment is named file.py:function")
        found = functions_in(Path(name))
        choice = f": {' or '.join(f'{name}:{each}' for each in found)}" if found else f", as in {name}:make_env"
        return GussError(f"{name!r} is a file: name the function in it that creates the environment{choice}")
    known = [*(entry.name for entry in ENVS), *gymnasium.registry]
    lower = {each.lower(): each for each in known}
    like = name.lower().replace("_", "-")
    near = difflib.get_close_matches(like, lower, n=3, cutoff=0.8) or difflib.get_close_matches(like, lower, n=1)
    hint = f" Did you mean {' or '.join(repr(lower[each]) for each in near)}?" if near else ""
    return GussError(f"unknown environment {name!r}.{hint} {HOW}; Gymnasium ids of other packages need --plugin MODULE")


class _First:
    """Creates and tests an environment in one thread: some must be used in the thread that created them."""

    def __init__(self, found: Callable[[], Any]) -> None:
        self.found = found
        self.env: Any = None

    def make(self) -> Any:
        return self.found()

    def adapt(self, env: Any) -> Adapted:
        self.env = Adapted(env)
        return self.env

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)  # reset, step, close


def spec_of(
    found: Any, name: str, *, episode_length: int | None = None, without_cost: bool = False, process: str | None = None
) -> EnvSpec:
    """The EnvSpec of the object behind a name. `process`: the name by which a child process creates and tests it."""
    if isinstance(found, EnvSpec):
        return found
    if isinstance(found, Task):
        return EnvSpec("", lambda: found)
    if isinstance(found, gymnasium.Env):
        raise GussError(f"{name} is an environment; pass a function that creates one, since every seed needs its own")
    if not callable(found):
        raise GussError(
            f"{name} must be a function that returns an environment, or a guss.Task, got {type(found).__name__}"
        )
    _check_arguments(found, name)
    here = Worker(partial(_First, found), owns=False)
    made = asked(here, f"{name} could not create its environment", "make")
    if isinstance(made, Task | EnvSpec):
        return spec_of(made, name)
    first, known = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if (known is not None and not isinstance(known, Task)) or not hasattr(first, "step"):
        raise GussError(
            f"{name} must return an environment, a pair (environment, guss.Task) or a guss.Task, got "
            f"{type(first if known is None else known).__name__}" + (": is a `return` missing?" if made is None else "")
        )
    env: Adapted = asked(here, name, "adapt", first)
    try:
        if known is None:
            worker: AnyWorker = here if process is None else ProcessWorker(process)
            task = describe(env, name, episode_length=episode_length, without_cost=without_cost, worker=worker)
        else:
            task = known.with_end(hosted=True)
            check_spaces(env, task)
    finally:
        if (failure := close_by(here)) is not None:
            warn(about_close(failure))

    def make_env() -> Adapted:
        again = found()
        return Adapted(again[0] if known is not None else again)

    return EnvSpec("", lambda: task, make_env=make_env)


def _check_arguments(found: Any, name: str) -> None:
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        raise GussError(
            f"{name} is called without arguments, but it takes {inspect.signature(found)} ({error}): write a function "
            f"that supplies them, such as `def make_env(): return {name.rpartition(':')[2]}(...)`"
        ) from error
    except ValueError:  # no signature is available: the call will show it
        return


def as_maker(spec: EnvSpec) -> Callable[[], Adapted]:
    """A function that creates the environment."""
    if spec.make_env is not None:
        return spec.make_env
    return lambda: Adapted(gymnasium.make(spec.gym_id, disable_env_checker=True))
