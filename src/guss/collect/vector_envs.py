"""Environments of a Gymnasium id that has a vector environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from jaxtyping import Float

from guss.collect.host_envs import HostEnvs, Step, costs_of, needed_costs
from guss.envs.values import calling, five_values, reset_values
from guss.errors import GussError
from guss.task import Task
from guss.types import Transition


class VectorEnvs(HostEnvs):
    """Environments of a Gymnasium id that has a vector environment."""

    def __init__(self, task: Task, gym_id: str, seeds: Sequence[int], num_envs: int) -> None:
        super().__init__(task, seeds, num_envs)
        how: Any = {"vectorization_mode": "vector_entry_point", "autoreset_mode": AutoresetMode.DISABLED}
        make = partial(gymnasium.make_vec, gym_id, num_envs=len(self.seeds), **how)
        self.envs: Any = self._called("cannot be created", make)
        self.over = np.zeros(len(self.seeds), bool)

    def _called(self, failing: str, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call the environments in the main thread: their exceptions end the run, and Ctrl-C works."""
        who = f"the environments of task {self.task.name!r} {failing}"
        return calling(who, function, *args, after=". Earlier episodes are kept.", **options)

    def _reported(self, info: dict[str, Any], episode: int, t: int) -> np.ndarray | None:
        costs: dict[str, Any] = {name: info[name] for name in ("cost", "_cost", "costs", "_costs") if name in info}
        found = []
        for row in range(len(self.seeds)):
            with self._naming(episode, t, row):
                found.append(needed_costs(self.task, info_of(costs, row, len(self.seeds)), self.task.name))
        known = [each for each in found if each is not None]
        return np.stack(known) if len(known) == len(found) else None

    def _numbers(self, what: str, values: Any, failing: str) -> np.ndarray:
        """A copy: environments may reuse their arrays."""
        try:
            return np.array(values, np.float32)
        except (TypeError, ValueError) as error:
            text = f"the environments of task {self.task.name!r} {failing}: {what} must be numbers, got {values!r}"
            raise GussError(f"{text}. Earlier episodes are kept.") from error

    def reset(self, episode: int) -> Float[np.ndarray, "N D"]:
        self.over = np.zeros(len(self.seeds), bool)
        failing = f"cannot be reset for episode {episode}"
        values = self._called(failing, self.envs.reset, seed=self.resets(episode))
        obs, _ = reset_values(values, repr(self.task.name))
        return self._start(self._numbers("observations", obs, failing), episode)

    def step(self, obs: np.ndarray, actions: np.ndarray, running: np.ndarray, episode: int, t: int) -> Step:
        """Step all at once; steps of an environment after its end are ignored."""
        failing = f"fail in episode {episode}, step {t}"
        if self.over.any():  # environments that ended must be reset before others can continue
            self._called(failing, self.envs.reset, options={"reset_mask": self.over})
        values = self._called(failing, self.envs.step, actions)
        next_obs, reward, terminated, truncated, info = five_values(values, f"{self.task.name!r}, as a vector,")
        flags = (terminated, truncated, info.get("skip", False))
        *ends, skip = (np.broadcast_to(np.asarray(flag, bool), self.over.shape) for flag in flags)
        self.over = ends[0] | ends[1]
        next_obs, reward = self._numbers("observations", next_obs, failing), self._numbers("rewards", reward, failing)
        cost = self._reported(info, episode, t)
        if cost is None:
            cost = np.asarray(costs_of(self.task, obs, actions, next_obs), np.float32)
        return self._taken(Transition(obs, actions, reward, cost, next_obs), ends, skip, running, t), {}


def info_of(info: dict[str, Any], row: int, count: int, where: str = "info") -> dict[str, Any]:
    """What a vector environment reports of one of `count` members: `_cost` marks the members that reported a `cost`."""
    found: dict[str, Any] = {}
    for name, value in info.items():
        mark, here = np.asarray(info.get(f"_{name}", True)), f'{where}["{name}"]'
        if str(name).startswith("_") or not (mark if mark.ndim == 0 else mark[row]):
            continue
        if isinstance(value, dict):
            found[name] = info_of(value, row, count, here)
        elif isinstance(value, np.ndarray | list | tuple) and len(value) == count:
            found[name] = value[row]
        else:
            raise GussError(f"{here} must have one number for each of the {count} environments, got {value!r}")
    return found
