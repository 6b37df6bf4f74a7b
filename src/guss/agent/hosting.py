"""Episodes on Gymnasium environments, one for each seed: plans of all seeds in one compiled call, steps by the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from guss.agent.episodes import with_model_inputs
from guss.agent.exploration import explore
from guss.errors import GussError
from guss.planners.engine import Monitor, Plan, plan_one
from guss.task import Task
from guss.types import Actions, Model, Planner, Transition


class Played(NamedTuple):
    """One episode of every seed. Where one was over early, what follows is padding that nobody may look at."""

    moves: Transition  # [T, S, …]
    use: Bool[np.ndarray, "T S"]  # to be learned from
    length: Int[np.ndarray, "S"]
    terminated: Bool[np.ndarray, "S"]  # ended by the environment itself, not by the clock

    @classmethod
    def whole(cls, moves: Transition) -> Played:
        """Of a compiled task: every episode is as long as can be, and every transition can be learned from."""
        steps, seeds = np.shape(moves.reward)
        return cls(moves, np.ones((steps, seeds), bool), np.full(seeds, steps), np.zeros(seeds, bool))


class Fleet:
    """One environment for each seed, stepped together."""

    def __init__(self, task: Task, gym_id: str, seeds: Sequence[int]) -> None:
        self.task, self.seeds = task, tuple(seeds)
        spec = gymnasium.spec(gym_id)
        mode = "sync" if spec.vector_entry_point is None else "vector_entry_point"
        own: dict[str, Any] = {"autoreset_mode": AutoresetMode.DISABLED}
        extra: dict[str, Any] = {"vector_kwargs": own} if mode == "sync" else own
        self.envs = gymnasium.make_vec(gym_id, num_envs=len(self.seeds), vectorization_mode=mode, **extra)

    def reset(self, episode: int) -> Float[np.ndarray, "S D"]:
        """First observations: each environment gets a seed derived from (seed, episode)."""
        seeds: Any = [derived_seed(seed, episode) for seed in self.seeds]
        return self._finite(self.envs.reset(seed=seeds)[0], episode, -1)

    def step(
        self, obs: np.ndarray, actions: np.ndarray, episode: int, t: int
    ) -> tuple[Transition, np.ndarray, np.ndarray, np.ndarray]:
        """What the actions did: transitions [S, …], whom not to learn from, who has terminated, who is over."""
        next_obs, reward, terminated, truncated, info = self.envs.step(actions)
        next_obs = self._finite(next_obs, episode, t)
        cost = told_costs(self.task, info)
        if cost is None:
            cost = np.asarray(_costs_of(self.task, obs, actions, next_obs))
        moves: Any = (obs, actions, np.asarray(reward, np.float32), np.asarray(cost, np.float32), next_obs)
        skip = np.broadcast_to(np.asarray(info.get("skip", False), bool), terminated.shape)
        return Transition(*moves), skip, terminated, terminated | truncated

    def begin_again(self, rows: Bool[np.ndarray, "S"]) -> None:
        """Environments that are over must be reset before the others can go on; what they do then does not count."""
        self.envs.reset(options={"reset_mask": rows})

    def _finite(self, obs: Any, episode: int, t: int) -> np.ndarray:
        array = np.array(obs, np.float32)  # a copy: environments may reuse theirs
        if not np.isfinite(array).all():
            row, column = np.argwhere(~np.isfinite(array))[0]
            when = "at its start" if t < 0 else f"step {t}"
            raise GussError(
                f"the observation of task {self.task.name!r} is not finite in episode {episode}, {when}, seed "
                f"{self.seeds[row]}, dimension {column}: {array[row, column]}. Episodes before are kept."
            )
        return array


def derived_seed(seed: int, episode: int) -> int:
    """The seed that an environment is reset with for an episode."""
    return int(np.random.SeedSequence([seed, episode]).generate_state(1)[0])


def told_costs(task: Task, info: dict[str, Any]) -> np.ndarray | None:
    """The environment's own costs [..., C], if it tells them in a way that fits the task."""
    names = [constraint.name for constraint in task.constraints]
    told = info.get("costs")
    if isinstance(told, dict) and set(names) <= set(told):
        return np.stack([np.asarray(told[name], np.float32) for name in names], axis=-1)
    if len(names) == 1 and "cost" in info:
        return np.asarray(info["cost"], np.float32)[..., None]
    return None


@jax.jit
def _costs_of(task: Task, obs: Array, actions: Array, next_obs: Array) -> Array:
    return jax.vmap(task.costs)(obs, actions, next_obs)


@partial(jax.jit, static_argnames="per_seed")
def plan_all(
    planner: Planner,
    models: Model,
    task: Task,
    obs: Float[Array, "S D"],
    keys: Key[Array, "S"],
    memory: PyTree,
    t: Int[Array, ""],
    per_seed: bool,
    monitor: Monitor | None = None,
) -> Plan:
    """A plan for every seed, with the random numbers of step `t` of an episode."""

    def one(model: Model, obs: Array, key: Array, memory: PyTree) -> Plan:
        key_plan = jax.random.split(jax.random.fold_in(key, t))[0]
        return plan_one(with_model_inputs(planner, model, task), model, task, obs, key_plan, memory, monitor)

    return jax.vmap(one, in_axes=(0 if per_seed else None, 0, 0, 0))(models, obs, keys, memory)


@partial(jax.jit, static_argnums=(0, 1, 3))
def _random_actions(actions: Actions, steps: int, keys: Key[Array, "S"], how: str) -> Array:
    return jax.vmap(lambda key: explore(actions, jax.random.split(key, 3)[1], steps, how))(keys)


Actor = Callable[[np.ndarray, int], Any]
"""Observations [S, D] and the step to actions [S, …]; they may still be under way when it returns."""


def planning_actor(planner: Planner, models: Model, task: Task, keys: Key[Array, "S"], per_seed: bool) -> Actor:
    """Acts by plans; `task` as the planner is to see it, `keys` those of the episode."""
    keys_steps = jax.vmap(lambda key: jax.random.split(key)[1])(keys)
    memory = jax.tree.map(lambda x: jnp.stack([x] * len(keys)), planner.first_memory())

    def act(obs: np.ndarray, t: int) -> Any:
        nonlocal memory
        plans = plan_all(planner, models, task, obs, keys_steps, memory, np.int32(t), per_seed)
        memory = plans.memory
        return plans.action

    return act


def random_actor(task: Task, keys: Key[Array, "S"], how: str) -> Actor:
    """Acts at random."""
    actions = np.asarray(_random_actions(task.actions, task.episode_length, keys, how))
    return lambda _, t: actions[:, t]


class _Episode:
    """An episode of one fleet under way."""

    def __init__(self, fleet: Fleet, act: Actor, number: int) -> None:
        self.fleet, self.act, self.number, self.t = fleet, act, number, 0
        count = len(fleet.seeds)
        self.length, self.terminated = np.full(count, fleet.task.episode_length), np.zeros(count, bool)
        self.running = np.ones(count, bool)
        self.rows: list[Transition] = []
        self.skips: list[np.ndarray] = []
        self.obs = fleet.reset(number)
        self.actions = act(self.obs, 0)

    def step(self) -> None:
        """Do what was decided, and begin to decide what comes next."""
        move, skip, ended, over = self.fleet.step(self.obs, np.asarray(self.actions), self.number, self.t)
        self.rows.append(move)
        self.skips.append(skip | ~self.running)
        self.t += 1
        self.length[self.running & over] = self.t
        self.terminated |= self.running & ended
        self.running &= ~over
        self.obs = np.asarray(move.next_obs)
        if self.running.any() and self.t < self.fleet.task.episode_length:
            self.actions = self.act(self.obs, self.t)
            if over.any():
                self.fleet.begin_again(over)

    def played(self) -> Played:
        """All of it, padded to a whole episode."""
        missing = self.fleet.task.episode_length - self.t
        fill = lambda *x: np.pad(np.stack(x), [(0, missing), *[(0, 0)] * np.ndim(x[0])])  # noqa: E731
        use = ~np.pad(np.stack(self.skips), [(0, missing), (0, 0)], constant_values=True)
        return Played(jax.tree.map(fill, *self.rows), use, self.length, self.terminated)


def play(crews: Sequence[tuple[Fleet, Actor]], number: int, on_step: Callable[[int], Any] | None = None) -> Played:
    """One episode of every seed. With several crews, plans for one are made while another's environments step."""
    episodes = [_Episode(fleet, act, number) for fleet, act in crews]
    for t in range(crews[0][0].task.episode_length):
        going = [episode for episode in episodes if episode.running.any()]
        if not going:
            break
        for episode in going:
            episode.step()
        if on_step is not None:
            on_step(t + 1)
    parts = [episode.played() for episode in episodes]
    moves: Any = jax.tree.map(lambda *x: np.concatenate(x, axis=1), *(part.moves for part in parts))
    use = np.concatenate([part.use for part in parts], axis=1)
    length, terminated = (np.concatenate(x) for x in zip(*(part[2:] for part in parts), strict=True))
    return Played(moves, use, length, terminated)
