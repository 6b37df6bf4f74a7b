"""SafeCar-Goal (appendix A.3): drive to goals that move when reached, around hazards that only a lidar detects."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from guss.constraint import Constraint, with_params
from guss.envs import ENVS, EnvSpec, StateMap, View
from guss.envs.car_render import SIGHT, UNSAFE_RADIUS, nearest_and_speed, sketch_from_car
from guss.envs.car_world import (
    BINS,
    FULL_SIZE,
    GOAL,
    GOAL_RADIUS,
    HAZARD_READINGS,
    LIDAR,
    LIDAR_LIMIT,
    LIDARS,
    LINEAR_RANGE,
    NUM_HAZARDS,
    OBS_SIZE,
    STATE_SIZE,
    STEP_SECONDS,
    Physics,
    full_obs,
    obs_bounds,
    observe,
)
from guss.errors import UnknownNameError
from guss.task import Grid, Surroundings, Task
from guss.types import ContinuousActions, Observations, Rollout

EPISODE_LENGTH = 1000
SLACK = 1.02  # tolerance for a reading that is only a share of its neighbour's hazard


# ----------------------------------------------------------------------------------------------- the Task, in JAX


def car_reward(obs: Float[Array, "D"], action: Float[Array, "2"], next_obs: Float[Array, "D"]) -> Float[Array, ""]:
    """Progress towards the goal, plus 1 within its radius; in a plan the goal stays, so every step there earns 1."""
    before, after = (jnp.sqrt(jnp.sum(o[GOAL] ** 2)) for o in (obs, next_obs))
    return before - after + (after <= GOAL_RADIUS).astype(jnp.float32)


def car_cost(obs: Float[Array, "D"], action: Float[Array, "2"], next_obs: Float[Array, "D"], limit: Array) -> Array:
    """1 if any lidar reading after the step exceeds `limit`."""
    return jnp.any(next_obs[LIDAR] > limit)


def goal_at_end(rollout: Rollout) -> Float[Array, "2"]:
    """The goal's position in the car's frame at the plan's end."""
    return rollout.next_obs[-1, GOAL]


def distance_at_end(rollout: Rollout) -> Float[Array, "1"]:
    """The paper's descriptor: the distance to the goal at the plan's end."""
    return jnp.sqrt(jnp.sum(rollout.next_obs[-1, GOAL] ** 2))[None]


DESCRIPTORS = {
    "goal": (goal_at_end, Grid(low=(-2.0, -2.0), high=(2.0, 2.0), cells=(20, 20))),
    "distance": (distance_at_end, Grid(low=(0.0,), high=(3.0,), cells=(400,))),
}


def car_task(descriptor: str = "goal", lidar: str = "exponential", full: bool = False) -> Task:
    """SafeCar-Goal as a Task; the Gymnasium environment runs its episodes.

    `descriptor`: "goal", its position in the car's frame at the plan's end, or "distance", the paper's. `full`: the
    observation includes the simulator's state, so that copies of the simulator can be the model.
    """
    for kind, value, known in (("descriptor", descriptor, tuple(DESCRIPTORS)), ("lidar", lidar, LIDARS)):
        if value not in known:
            raise UnknownNameError(kind, value, known)
    describe, grid = DESCRIPTORS[descriptor]
    low, high = obs_bounds(full)
    return Task(
        name="safe-car-goal-full" if full else "safe-car-goal",
        observations=Observations(tuple(low.tolist()), tuple(high.tolist())),
        actions=ContinuousActions(low=(-1.0, -1.0), high=(1.0, 1.0)),
        reward=car_reward,
        constraints=(Constraint("lidar", with_params(car_cost, limit=LIDAR_LIMIT), stricter={"limit": -1.0}),),
        measured=(Constraint("hazard", with_params(car_cost, limit=HAZARD_READINGS[lidar])),),
        descriptor=describe,
        grid=grid,
        episode_length=EPISODE_LENGTH,
        learns_end=False,
        step=simulator_step(lidar) if full else None,
        policy_inputs=_full_inputs() if full else None,
        surroundings=None if full else SURROUNDINGS[lidar],
    )


# ----------------------------------------------------------------------------------- geometry of the car's sensors


def car_motion(own: Float[Array, "10"], next_own: Float[Array, "10"]) -> Float[Array, "3"]:
    """Mean velocity and mean yaw rate of a step, times its duration."""
    mean = 0.5 * (own + next_own)
    return STEP_SECONDS * jnp.stack([mean[3], mean[4], mean[6]])


def hazards_of_lidar(readings: Float[Array, "bins"], kind: str = "exponential") -> Float[Array, "bins 3"]:
    """Hazard positions from lidar readings, a row for every bin: x, y, and 1 if the bin contains a hazard.

    A hazard's bin reads it in full, the neighbours in proportion to its closeness: their share determines the angle. A
    bin whose reading is only its neighbour's share contains no hazard. If hazards share bins, the angle is ambiguous:
    it is set between the angles that either neighbour implies.
    """
    bins = readings.shape[0]
    full = jnp.maximum(readings, 1e-6)
    before, after = jnp.roll(full, 1), jnp.roll(full, -1)
    two_before, two_after = jnp.roll(full, 2), jnp.roll(full, -2)
    shared = (before > full) & (two_before + full <= SLACK * before)
    shared |= (after > full) & (two_after + full <= SLACK * after)
    share = 0.5 * (jnp.clip(1.0 - before / full, 0.0, 1.0) + jnp.clip(after / full, 0.0, 1.0))
    angle = (jnp.arange(bins, dtype=jnp.float32) + share) * (2.0 * jnp.pi / bins)
    distance = -jnp.log(jnp.minimum(full, 1.0)) if kind == "exponential" else LINEAR_RANGE * (1.0 - full)
    there = ~shared & (readings > 1e-3)
    return jnp.stack([distance * jnp.cos(angle), distance * jnp.sin(angle), there.astype(jnp.float32)], axis=1)


def lidar_of_hazards(hazards: Float[Array, "K 3"], bins: int, kind: str = "exponential") -> Float[Array, "bins"]:
    """Safety Gym's pseudo-lidar, as in car_world."""
    x, y, there = hazards.T
    distance = jnp.sqrt(x**2 + y**2)
    reading = jnp.exp(-distance) if kind == "exponential" else jnp.maximum(0.0, 1.0 - distance / LINEAR_RANGE)
    position = jnp.arctan2(y, x) * (bins / (2.0 * jnp.pi))
    position = jnp.where(position < 0.0, position + bins, position)

    def read(position: Array, reading: Array) -> Float[Array, "bins"]:
        """The readings of all bins for one hazard."""
        ahead = position - jnp.arange(bins, dtype=jnp.float32)
        ahead = jnp.where(ahead < 0.0, ahead + bins, ahead)  # the remainder; `%` is slow
        return jnp.maximum(jnp.minimum(1.0, 2.0 - ahead), ahead - (bins - 1.0)) * reading

    # Hazard by hazard: a maximum along an axis is slow on a CPU.
    return functools.reduce(jnp.maximum, map(read, position, there * reading), jnp.zeros(bins))


def car_places(obs: Float[Array, "22"], kind: str = "exponential") -> Float[Array, "11 3"]:
    """The goal, then the hazards that the lidar detects."""
    return jnp.concatenate([jnp.append(obs[GOAL], 1.0)[None], hazards_of_lidar(obs[LIDAR], kind)])


def car_sight(own: Float[Array, "10"], places: Float[Array, "11 3"], kind: str = "exponential") -> Float[Array, "22"]:
    """The whole observation: own sensors, goal, lidar."""
    return jnp.concatenate([own, places[0, :2], lidar_of_hazards(places[1:], BINS, kind)])


SURROUNDINGS = {
    kind: Surroundings(
        own=tuple(range(GOAL.start)),
        motion=car_motion,
        places=functools.partial(car_places, kind=kind),
        sight=functools.partial(car_sight, kind=kind),
    )
    for kind in LIDARS
}


# -------------------------------------------------------------------------------- the simulator itself, as a model


def _full_inputs() -> tuple[np.ndarray, np.ndarray]:
    """Policy inputs: the 22 observations, roughly standardised; the rest is scaled to zero."""
    shift, scale = np.zeros(FULL_SIZE), np.full(FULL_SIZE, np.inf)
    shift[2], shift[LIDAR] = 9.8, 0.2
    scale[:OBS_SIZE] = [1.5, 1.5, 2.0, 0.3, 0.5, 0.1, 2.0, 0.35, 0.35, 0.02, 1.0, 1.0, *[0.2] * BINS]
    return shift, scale


def simulator_step(lidar: str) -> Any:
    """The `step` of a Task whose observations include the simulator's state: copies of MuJoCo, in threads."""
    physics: list[Physics] = []  # created on first use

    def simulate(full: Any, action: Any) -> np.ndarray:
        if not physics:
            physics.append(Physics(threads=2))
        rows = np.asarray(full, float).reshape(-1, FULL_SIZE)
        controls = np.asarray(action, float).reshape(-1, 2)
        state, goal, hazards = np.split(rows[:, OBS_SIZE:], [STATE_SIZE, STATE_SIZE + 2], axis=1)
        state, sensors = physics[0].step(state, controls)
        hazards = hazards.reshape(-1, NUM_HAZARDS, 2)
        obs = observe(state[:, 1:14], sensors, goal, hazards, lidar)
        return full_obs(obs, state, goal, hazards).astype(np.float32).reshape(np.shape(full))

    def step(obs: Float[Array, "D"], action: Float[Array, "2"], key: PRNGKeyArray) -> Float[Array, "D"]:
        out = jax.ShapeDtypeStruct((FULL_SIZE,), jnp.float32)
        return jax.pure_callback(simulate, out, obs, action, vmap_method="broadcast_all")

    return step


# ------------------------------------------------------------------------------------------------------ registration


def _place_from_goal(obs: np.ndarray) -> np.ndarray:
    """The car's position relative to the goal, in world axes (by the magnetometer)."""
    heading = np.arctan2(-obs[..., 7], -obs[..., 8])[..., None]  # the world's field points along −y
    x, y = obs[..., 10:11], obs[..., 11:12]
    cos, sin = np.cos(heading), np.sin(heading)
    return -np.concatenate([cos * x - sin * y, sin * x + cos * y], axis=-1)


VIEW = View(
    shown=_place_from_goal,
    labels=("x from the goal [m]", "y from the goal [m]"),
    limits=((-3.0, 3.0), (-3.0, 3.0)),
    behaviour=("goal to the car's left at the plan's end [m]", "goal behind the car at the plan's end [m]"),
    sketch=lambda obs: sketch_from_car(obs[GOAL], obs[LIDAR], LIDAR_LIMIT),
    world=(-SIGHT, SIGHT),
    map=StateMap(
        place=nearest_and_speed,
        labels=("distance of the nearest hazard [m]", "speed forwards [m/s]"),
        limits=((0.0, 1.5), (-1.0, 1.0)),
        unsafe=((0.0, UNSAFE_RADIUS, -1.0, 1.0),),
    ),
)


def full_task() -> Task:
    """SafeCar-Goal with the simulator's state in the observation."""
    return car_task(full=True)


ENVS.add(
    "safe-car-goal",
    EnvSpec("guss/SafeCarGoal-v0", car_task, VIEW, measure="return"),
    summary="A car drives to goals around hazards, by lidar.",
    paper="Sec. 5.2, app. A.3",
    origin=__name__,
)
ENVS.add(
    "safe-car-goal-full",
    EnvSpec("guss/SafeCarGoalFull-v0", full_task, VIEW, measure="return"),
    summary="SafeCar-Goal with the simulator's full state as observation, to plan in copies of the simulator.",
    paper="–",
    origin=__name__,
)
