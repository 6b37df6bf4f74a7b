"""SafeCar-Goal for Gymnasium: one car, or many that step in threads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from guss.envs.bundled import BundledEnv, Move, Start, finite
from guss.envs.car_render import CarPicture
from guss.envs.car_world import (
    GOAL_RADIUS,
    LIDAR,
    LIDAR_LIMIT,
    LIDARS,
    NUM_HAZARDS,
    Layout,
    Physics,
    full_obs,
    inside_hazard,
    obs_bounds,
    observe,
    sample_goal,
    sample_layout,
    start_state,
)
from guss.errors import GussError, UnknownNameError

EPISODE_LENGTH = 1000


class Cars:
    """N cars in N separate worlds, for both Gymnasium classes."""

    def __init__(self, count: int, lidar: str, full: bool, threads: int) -> None:
        if lidar not in LIDARS:
            raise UnknownNameError("lidar", lidar, LIDARS)
        self.lidar, self.full = lidar, full
        self.physics = Physics(threads)
        self.state = start_state(np.zeros((count, 2)), np.zeros(count))
        self.sensors = np.zeros((count, 12))
        self.goal, self.hazards = np.zeros((count, 2)), np.zeros((count, NUM_HAZARDS, 2))
        self.distance = np.zeros(count)
        self.layouts: list[Layout | None] = [None] * count
        low, high = (x.astype(np.float32) for x in obs_bounds(full))
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    @property
    def qpos(self) -> np.ndarray:
        """MuJoCo's positions, [N, 13]."""
        return self.state[:, 1:14]

    def begin(self, row: int, layout: Layout) -> None:
        """Start an episode of one car."""
        self.layouts[row] = layout
        self.state[row] = start_state(layout.car[None], np.asarray([layout.heading]))[0]
        self.goal[row], self.hazards[row] = layout.goal, layout.hazards
        self.sensors[row] = self.physics.sense(self.state[row : row + 1])[0]
        self.distance[row] = np.hypot(*(layout.goal - layout.car))

    def obs(self) -> np.ndarray:
        """The observations of all cars."""
        obs = observe(self.qpos, self.sensors, self.goal, self.hazards, self.lidar)
        return (full_obs(obs, self.state, self.goal, self.hazards) if self.full else obs).astype(np.float32)

    def step(
        self, actions: np.ndarray, randoms: Sequence[np.random.Generator]
    ) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """One step of all cars: observations, rewards and `info`."""
        self.state, self.sensors = self.physics.step(self.state, actions)  # MuJoCo clips actions to [−1, 1]
        away = np.hypot(*(self.goal - self.state[:, 1:3]).T)
        reached = away <= GOAL_RADIUS
        reward = self.distance - away + reached
        self.distance = away
        for row in np.flatnonzero(reached).tolist():
            layout = self.layouts[row]
            assert layout is not None
            self.goal[row] = sample_goal(randoms[row], layout)
            self.distance[row] = np.hypot(*(self.goal[row] - self.qpos[row, :2]))
        obs = self.obs()
        info = {
            "cost": (obs[:, LIDAR].max(axis=1) > np.float32(LIDAR_LIMIT)).astype(float),
            "cost_native": inside_hazard(self.qpos, self.hazards).astype(float),
            "goal_reached": reached,
            "skip": reached,  # the goal jumped: not a transition to learn from
        }
        return obs, reward, info


def _actions(actions: Any, shape: tuple[int, ...]) -> np.ndarray:
    return finite(actions, shape, f"actions of SafeCar-Goal must be finite numbers of shape {shape}")


def _layout(options: dict[str, Any], random: np.random.Generator) -> Layout:
    """A new layout, with positions from the options."""
    layout = sample_layout(random)
    for name, value in options.items():
        if name not in Layout._fields:
            raise UnknownNameError("reset option", name, Layout._fields)
        old = np.asarray(getattr(layout, name))
        new = finite(value, old.shape, f"reset option {name!r} must be finite numbers of shape {old.shape}")
        changed: dict[str, Any] = {name: float(new) if new.shape == () else new}
        layout = layout._replace(**changed)
    return layout


# ------------------------------------------------------------------------------------------- the Gymnasium classes


class SafeCarGoalEnv(BundledEnv):
    """Drive a car with two wheels to a sequence of goals, and avoid the hazards.

    Safety Gym's CarGoal (level 1) on current MuJoCo: its body, arena, goal, hazards and lidar; see docs/car.md.

    ## Action space
    `Box(-1, 1, (2,), float32)`: torque on the left and the right wheel.

    ## Observation space
    `Box((22,), float32)`: accelerometer (3), velocimeter (3), gyro around z (1), magnetometer (3), the goal in the
    car's frame (2, metres), hazard lidar (10 bins, counted from the car's +x; `lidar="exponential"`: exp(−distance), or
    `"linear"`: from 1 to 0 over 3 m). With `full=True` the simulator's state (25), the goal (2) and the hazards (16)
    follow.

    ## Reward
    The decrease in distance to the goal, plus 1 on reaching it (0.3 m); then the goal moves.

    ## Cost
    `info["cost"]` is 1.0 if a lidar reading exceeds 0.9 (a hazard's centre nearer than 0.105 m), else 0.0;
    `info["cost_native"]` is Safety Gym's own, 1.0 inside a hazard (0.2 m). Neither ends the episode.
    `info["skip"]` is true if the goal moved in this step, so that no model learns from it.

    ## Starting state
    Car, goal and 8 hazards drawn in an arena of 3 × 3 m, any heading, at rest. `reset(options={"car": (0, 0),
    "heading": 0.0, "goal": …, "hazards": …})` sets their positions.

    ## Episode end
    Truncated after 1000 steps of 0.04 s; never terminated.

    ## Version history
    v0: first version.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}  # noqa: RUF012

    def __init__(self, lidar: str = "exponential", full: bool = False, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.cars = Cars(1, lidar, full, threads=0)
        self.observation_space, self.action_space = self.cars.observation_space, self.cars.action_space
        self._drawing: CarPicture | None = None

    def _start(self, options: dict[str, Any]) -> Start:
        self.cars.begin(0, _layout(options, self.np_random))
        return self.cars.obs()[0], {"cost": 0.0, "costs": {"lidar": 0.0}, "cost_native": 0.0, "skip": False}

    def _move(self, action: Any) -> Move:
        obs, reward, info = self.cars.step(_actions(action, (2,))[None], [self.np_random])
        mine: dict[str, Any] = {name: value[0].item() for name, value in info.items()}
        return obs[0], float(reward[0]), mine | {"costs": {"lidar": mine["cost"]}}

    def _picture(self) -> np.ndarray:
        """The arena from above, 640 × 640 pixels: goal green, hazards red, lidar as a ring of dots above the car."""
        if self._drawing is None:
            self._drawing = CarPicture(self.cars.physics.model)
        cars = self.cars
        return self._drawing.draw(cars.state[0], cars.goal[0], cars.hazards[0], cars.obs()[0, LIDAR])

    def close(self) -> None:
        if self._drawing is not None:
            self._drawing.close()
            self._drawing = None


class SafeCarGoalVectorEnv(gymnasium.vector.VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """`num_envs` cars at once, MuJoCo in threads. Each has its own random generator, as in single environments."""

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(
        self,
        num_envs: int = 1,
        lidar: str = "exponential",
        full: bool = False,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        max_episode_steps: int = EPISODE_LENGTH,
        threads: int | None = None,
    ) -> None:
        """`threads`: of MuJoCo; by default one per core for 16 cars or more (for fewer, waking them takes longer)."""
        self.num_envs, self.max_episode_steps = num_envs, max_episode_steps
        mode = AutoresetMode(autoreset_mode)
        if mode == AutoresetMode.SAME_STEP:
            raise GussError("SafeCarGoalVectorEnv supports the autoreset modes NEXT_STEP and DISABLED, got SAME_STEP")
        self.metadata = {**self.metadata, "autoreset_mode": mode}
        self.cars = Cars(num_envs, lidar, full, _threads(num_envs) if threads is None else threads)
        self.single_observation_space = self.cars.observation_space
        self.single_action_space = self.cars.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._randoms: list[np.random.Generator] = [np.random.default_rng() for _ in range(num_envs)]
        self._steps = np.full(num_envs, -1)  # −1: never reset
        self._over = np.zeros(num_envs, bool)

    def reset(self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None) -> Start:
        """New layouts, for all environments or those in `options["reset_mask"]`."""
        options = dict(options or {})
        rows = np.flatnonzero(np.asarray(options.pop("reset_mask", np.ones(self.num_envs, bool)), bool)).tolist()
        seeds: list[int | None] = [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            seeds = [int(seed) + i for i in range(self.num_envs)]
        elif seed is not None:
            seeds = list(seed)
        if len(seeds) != self.num_envs:
            raise GussError(f"seed must be a list of {self.num_envs} seeds, one per environment, got {len(seeds)}")
        for row in rows:
            if seeds[row] is not None:
                self._randoms[row] = gymnasium.utils.seeding.np_random(seeds[row])[0]
            self._begin(row, options)
        return self.cars.obs(), {name: np.zeros(self.num_envs) for name in ("cost", "cost_native")}

    def _begin(self, row: int, options: dict[str, Any]) -> None:
        self.cars.begin(row, _layout(options, self._randoms[row]))
        self._steps[row], self._over[row] = 0, False

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One step of all environments; with NEXT_STEP, those whose episode was over are reset instead."""
        if (self._steps < 0).any():
            raise GussError("SafeCarGoalVectorEnv.step() was called before reset()")
        again = np.flatnonzero(self._over).tolist()
        if len(again) and self.metadata["autoreset_mode"] == AutoresetMode.DISABLED:
            raise GussError(f"the episodes of environments {again} are over: reset them first")
        obs, reward, info = self.cars.step(_actions(actions, (self.num_envs, 2)), self._randoms)
        self._steps += 1
        for row in again:
            self._begin(row, {})
            reward[row] = 0.0
            for value in info.values():
                value[row] = 0
        if len(again):
            obs = self.cars.obs()
        self._over = self._steps >= self.max_episode_steps
        return obs, reward, np.zeros(self.num_envs, bool), self._over.copy(), info | {"costs": {"lidar": info["cost"]}}


def _threads(num_envs: int) -> int:
    return len(os.sched_getaffinity(0)) if num_envs >= 16 and hasattr(os, "sched_getaffinity") else 0
