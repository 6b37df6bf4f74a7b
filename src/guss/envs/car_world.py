"""The world of SafeCar-Goal: the car's body in MuJoCo, the layout of goal and hazards, and the sensors.

Constants are those of Safety Gym's CarGoal (level 1). Functions of sensors and physics take N cars at once.
"""

from __future__ import annotations

import ctypes.util
import itertools
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from guss.errors import GussError

ARENA = 1.5  # half of its side
GOAL_RADIUS, HAZARD_RADIUS, NUM_HAZARDS = 0.3, 0.2, 8
KEEP_OUT = {"car": 0.4, "goal": 0.305, "hazard": 0.18}
"""Minimum distance to the border; the minimum distance of two objects is the sum of theirs."""
BINS = 10
SUBSTEPS, TIMESTEP = 10, 0.004
STEP_SECONDS = SUBSTEPS * TIMESTEP
CAR_HEIGHT = 0.1
LIDARS = ("exponential", "linear")
LINEAR_RANGE = 3.0
LIDAR_LIMIT = 0.9
HAZARD_READINGS = {"exponential": float(np.exp(-HAZARD_RADIUS)), "linear": 1.0 - HAZARD_RADIUS / LINEAR_RANGE}
"""Readings above which the car is inside a hazard, Safety Gym's own cost."""
"""A reading above this is unsafe."""

MJCF = Path(__file__).with_name("car.xml")
"""The car and the floor, for MuJoCo."""
NUM_POSITIONS, NUM_SPEEDS, NUM_SENSORS = 13, 11, 12
STATE_SIZE = 1 + NUM_POSITIONS + NUM_SPEEDS
"""MuJoCo's full state: time, positions (car's free joint, left, right, rear), speeds."""
GOAL, LIDAR = slice(10, 12), slice(12, 12 + BINS)
OBS_SIZE = LIDAR.stop
FULL_SIZE = OBS_SIZE + STATE_SIZE + 2 + 2 * NUM_HAZARDS
"""With the simulator's state, the goal and the hazards."""


def obs_bounds(full: bool) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of observations: sensors have none, the lidar reads 0 to 1."""
    high = np.full(FULL_SIZE if full else OBS_SIZE, np.inf)
    low = -high
    low[LIDAR], high[LIDAR] = 0.0, 1.0
    return low, high


def load_mujoco() -> Any:
    """Import `mujoco`, or raise an error that names the extra. Without a display it renders by EGL, if available."""
    headless = not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    if sys.platform == "linux" and headless and ctypes.util.find_library("EGL"):
        os.environ.setdefault("MUJOCO_GL", "egl")  # read by MuJoCo when it is imported
    try:
        import mujoco
    except ImportError as error:
        raise GussError("SafeCar-Goal needs MuJoCo, the extra `car`: pip install 'guss[car]'") from error
    return mujoco


# ---------------------------------------------------------------------------------------------------------- layout


class Layout(NamedTuple):
    """Positions of car, goal and hazards in the plane."""

    car: np.ndarray  # [2]
    heading: float
    goal: np.ndarray  # [2]
    hazards: np.ndarray  # [8, 2]


def sample_layout(random: np.random.Generator) -> Layout:
    """Random positions, each redrawn until it keeps its distance; if one finds no room, all are redrawn."""
    kinds = ["car", "goal", *["hazard"] * NUM_HAZARDS]
    while True:
        places = np.empty((0, 2))
        for i, kind in enumerate(kinds):
            place = _place(random, kind, places, kinds[:i], tries=100)
            if place is None:
                break
            places = np.concatenate([places, place[None]])
        else:
            return Layout(places[0], float(random.uniform(0.0, 2.0 * np.pi)), places[1], places[2:])


def sample_goal(random: np.random.Generator, layout: Layout) -> np.ndarray:
    """A new position of the goal, away from the hazards and the car's start, as in Safety Gym."""
    others = np.concatenate([layout.car[None], layout.hazards])
    kinds = ["car", *["hazard"] * NUM_HAZARDS]
    while True:
        place = _place(random, "goal", others, kinds, tries=100)
        if place is not None:
            return place


def _place(
    random: np.random.Generator, kind: str, others: np.ndarray, kinds: list[str], tries: int
) -> np.ndarray | None:
    """The first of `tries` uniform draws that keeps its distance from `others`; None if there is none."""
    own = KEEP_OUT[kind]
    draws = random.uniform(-(ARENA - own), ARENA - own, (tries, 2))
    apart = np.asarray([own + KEEP_OUT[k] for k in kinds])
    far = np.linalg.norm(draws[:, None] - others[None], axis=-1) >= apart
    good = far.all(axis=1)
    return draws[int(good.argmax())] if good.any() else None


# --------------------------------------------------------------------------------------------------------- sensors


def _axes_of_squares() -> np.ndarray:
    """The car's x and y axes as a linear map of its quaternion's products: axes = (q ⊗ q) · this, [16, 6]."""
    w, x, y, z = range(4)
    terms = (  # by world direction, then by axis; each product with its factor
        (((w, w, 1), (x, x, 1), (y, y, -1), (z, z, -1)), ((x, y, 2), (w, z, -2))),
        (((x, y, 2), (w, z, 2)), ((w, w, 1), (y, y, 1), (x, x, -1), (z, z, -1))),
        (((x, z, 2), (w, y, -2)), ((y, z, 2), (w, x, 2))),
    )
    table = np.zeros((4, 4, 3, 2))
    for i, j in itertools.product(range(3), range(2)):
        for a, b, factor in terms[i][j]:
            table[a, b, i, j] = factor
    return table.reshape(16, 6)


AXES_OF_SQUARES = _axes_of_squares()


def in_car_frame(qpos: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Positions on the floor [N, K, 2] in the frames of cars with MuJoCo positions [N, 13]."""
    turn = qpos[:, 3:7]
    axes = ((turn[:, :, None] * turn[:, None]).reshape(-1, 16) @ AXES_OF_SQUARES).reshape(-1, 3, 2)
    return (places - qpos[:, None, :2]) @ axes[:, :2] - qpos[:, 2, None, None] * axes[:, None, 2]


def lidar(seen: np.ndarray, kind: str = "exponential", bins: int = BINS) -> np.ndarray:
    """Readings of `bins` sectors for hazards [N, K, 2] in the frames of N cars: Safety Gym's pseudo-lidar.

    A hazard is read in full by the bin its centre falls in, and by the two neighbouring bins in proportion to its
    closeness; the largest reading wins.
    """
    distance = np.hypot(seen[..., 0], seen[..., 1])
    reading = np.exp(-distance) if kind == "exponential" else np.maximum(0.0, 1.0 - distance / LINEAR_RANGE)
    position = np.arctan2(seen[..., 1], seen[..., 0]) * (bins / (2.0 * np.pi))
    ahead = (position[..., None] - np.arange(bins)) % bins  # of a bin's start, [N, K, bins]
    own_or_before = np.minimum(1.0, 2.0 - ahead)  # 1 in its own bin, then falling across the previous bin
    after = ahead - (bins - 1.0)
    weight = np.maximum(np.maximum(own_or_before, after), 0.0)
    return (weight * reading[..., None]).max(axis=1)


def observe(
    qpos: np.ndarray, sensors: np.ndarray, goal: np.ndarray, hazards: np.ndarray, kind: str = "exponential"
) -> np.ndarray:
    """The 22 observations of N cars: accelerometer 3, velocimeter 3, gyro z, magnetometer 3, goal 2, lidar 10."""
    seen = in_car_frame(qpos, np.concatenate([goal[:, None], hazards], axis=1))
    proprioception = (sensors[:, :6], sensors[:, 8:])  # of the gyro only its z
    return np.concatenate([*proprioception, seen[:, 0], lidar(seen[:, 1:], kind)], axis=1)


def full_obs(obs: np.ndarray, state: np.ndarray, goal: np.ndarray, hazards: np.ndarray) -> np.ndarray:
    """Observations followed by the simulator's state, the goal and the hazards, [N, 65]."""
    return np.concatenate([obs, state, goal, hazards.reshape(len(hazards), -1)], axis=1)


def inside_hazard(qpos: np.ndarray, hazards: np.ndarray) -> np.ndarray:
    """Safety Gym's own cost: whether the car's origin is above a hazard, [N]."""
    return ((hazards - qpos[:, None, :2]) ** 2).sum(axis=-1).min(axis=1) <= HAZARD_RADIUS**2


# --------------------------------------------------------------------------------------------------------- physics


def start_state(car: np.ndarray, heading: np.ndarray) -> np.ndarray:
    """States of N cars at rest, [N, 25]."""
    state = np.zeros((len(car), STATE_SIZE))
    state[:, 1:3], state[:, 3] = car, CAR_HEIGHT
    state[:, 4], state[:, 7] = np.cos(heading / 2.0), np.sin(heading / 2.0)
    state[:, 10] = 1.0  # the rear ball's rotation
    return state


class Physics:
    """Steps many cars in MuJoCo, in `threads` threads (0: the caller's). Pure: states in, states and sensors out."""

    def __init__(self, threads: int = 0) -> None:
        self.mujoco = load_mujoco()
        self.model = self.mujoco.MjModel.from_xml_string(MJCF.read_text())
        self.datas = [self.mujoco.MjData(self.model) for _ in range(max(threads, 1))]
        self.pool: Any = None
        if threads > 0:
            from mujoco import rollout

            self.pool = rollout.Rollout(nthread=threads)

    def step(self, state: np.ndarray, control: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """One environment step of N cars: states [N, 25] and sensors [N, 12] after 10 sub-steps."""
        if self.pool is None:
            return self._one_by_one(state, control, SUBSTEPS)
        # An eleventh sub-step provides the sensors: MuJoCo reads them before it integrates.
        count = len(state)
        states = np.empty((count, SUBSTEPS + 1, STATE_SIZE))
        sensors = np.empty((count, SUBSTEPS + 1, NUM_SENSORS))
        controls = np.repeat(control[:, None], SUBSTEPS + 1, axis=1)
        self.pool.rollout(self.model, self.datas, state, controls, state=states, sensordata=sensors)
        return states[:, SUBSTEPS - 1].copy(), sensors[:, SUBSTEPS].copy()

    def sense(self, state: np.ndarray) -> np.ndarray:
        """Sensors of N cars in their current states, [N, 12]."""
        return self._one_by_one(state, np.zeros((len(state), 2)), 0)[1]

    def _one_by_one(self, state: np.ndarray, control: np.ndarray, substeps: int) -> tuple[np.ndarray, np.ndarray]:
        mujoco, model, data = self.mujoco, self.model, self.datas[0]
        kind = mujoco.mjtState.mjSTATE_FULLPHYSICS
        after, sensors = np.empty_like(state), np.empty((len(state), NUM_SENSORS))
        for row in range(len(state)):
            mujoco.mj_setState(model, data, state[row], kind)
            data.ctrl[:] = control[row]
            data.qacc_warmstart[:] = 0.0  # no warm start from another car or step
            if substeps:
                mujoco.mj_step(model, data, substeps)
            mujoco.mj_forward(model, data)
            mujoco.mj_getState(model, data, after[row], kind)
            sensors[row] = data.sensordata
        return after, sensors
