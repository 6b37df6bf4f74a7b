"""Safe Pendulum (appendix A.1): swing up without crossing the unsafe angles, 20° to 30° on one side."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from guss.constraint import Constraint, with_params
from guss.envs import ENVS, EnvSpec, StateMap, View
from guss.envs.bundled import BundledEnv, Move, Start, finite
from guss.envs.shapes import INK, UNSAFE, Shape
from guss.errors import UnknownNameError
from guss.task import Grid, Task
from guss.types import ContinuousActions, Observations, Rollout

GRAVITY, MASS, LENGTH, DT = 10.0, 1.0, 1.0, 0.05
NAMES = ("cos(angle)", "sin(angle)", "speed")
MAX_SPEED, MAX_TORQUE = 8.0, 2.0
UNSAFE_DEGREES = (20.0, 30.0)
EPISODE_LENGTH = 200
STARTS = ("anywhere", "hanging")


def advance(xp: Any, angle: Any, speed: Any, torque: Any) -> tuple[Any, Any]:
    """One step of 0.05 s. `xp` is the array module: numpy for the environment, jax.numpy for the Task."""
    push = 3 * GRAVITY / (2 * LENGTH) * xp.sin(angle) + 3.0 / (MASS * LENGTH**2) * torque
    speed = xp.clip(speed + push * DT, -MAX_SPEED, MAX_SPEED)
    return angle + speed * DT, speed


# ----------------------------------------------------------------------------------------------- the Task, in JAX


def angle_of(obs: Float[Array, "3"]) -> Float[Array, ""]:
    """θ in (−π, π], 0 upright."""
    return jnp.arctan2(obs[1], obs[0])


def pendulum_step(obs: Float[Array, "3"], action: Float[Array, "1"], key: PRNGKeyArray) -> Float[Array, "3"]:
    """One step of Gymnasium's Pendulum-v1."""
    angle, speed = advance(jnp, angle_of(obs), obs[2], jnp.clip(action[0], -MAX_TORQUE, MAX_TORQUE))
    return jnp.stack([jnp.cos(angle), jnp.sin(angle), speed])


def pendulum_reset(key: PRNGKeyArray) -> Float[Array, "3"]:
    """Gymnasium's initial state: any angle, speed in [−1, 1]."""
    angle, speed = jax.random.uniform(key, (2,), minval=-1.0) * jnp.asarray([np.pi, 1.0], jnp.float32)
    return jnp.stack([jnp.cos(angle), jnp.sin(angle), speed])


def hanging_reset(key: PRNGKeyArray) -> Float[Array, "3"]:
    """Hanging down, nearly at rest."""
    angle, speed = jax.random.uniform(key, (2,), minval=-0.1, maxval=0.1)
    return jnp.stack([-jnp.cos(angle), -jnp.sin(angle), speed])


def pendulum_reward(obs: Float[Array, "3"], action: Float[Array, "1"], next_obs: Float[Array, "3"]) -> Float[Array, ""]:
    """r = −(θ² + 0.1·θ̇² + 0.001·a²) of the state before the step."""
    return -(angle_of(obs) ** 2 + 0.1 * obs[2] ** 2 + 0.001 * action[0] ** 2)


def pendulum_cost(
    obs: Float[Array, "3"], action: Float[Array, "1"], next_obs: Float[Array, "3"], low: Array, high: Array
) -> Array:
    """1 if the angle after the step is between `low` and `high` (radians)."""
    angle = angle_of(next_obs)
    return (angle >= low) & (angle <= high)


def pendulum_descriptor(rollout: Rollout) -> Float[Array, "2"]:
    """θ at half of the plan and at its end."""
    half = max(rollout.next_obs.shape[0] // 2 - 1, 0)
    return jnp.stack([angle_of(rollout.next_obs[half]), angle_of(rollout.next_obs[-1])])


def pendulum_task(start: str = "anywhere") -> Task:
    """Safe Pendulum as a pure Task; `start` is "anywhere" or "hanging"."""
    resets = {"anywhere": pendulum_reset, "hanging": hanging_reset}
    low, high = np.deg2rad(UNSAFE_DEGREES)
    return Task(
        name="safe-pendulum",
        observations=Observations(low=(-1.0, -1.0, -MAX_SPEED), high=(1.0, 1.0, MAX_SPEED), names=NAMES),
        actions=ContinuousActions(low=(-MAX_TORQUE,), high=(MAX_TORQUE,), names=("torque",)),
        reward=pendulum_reward,
        constraints=(
            Constraint(
                "unsafe_angle",
                with_params(pendulum_cost, low=low, high=high),
                stricter={"low": -1.0, "high": 1.0},  # by the margin in radians, on either side
            ),
        ),
        descriptor=pendulum_descriptor,
        grid=Grid(low=(-np.pi, -np.pi), high=(np.pi, np.pi), cells=(50, 50)),
        episode_length=EPISODE_LENGTH,
        learns_end=False,
        step=pendulum_step,
        reset=resets[_known_start(start)],
        policy_inputs=(np.zeros(3), np.ones(3)),  # unscaled
    )


# ------------------------------------------------------------------------------------------- the Gymnasium class


class SafePendulumEnv(BundledEnv):
    """Swing a pendulum up and hold it there without passing through the unsafe angles.

    ## Action space
    `Box(-2, 2, (1,), float32)`: torque on the joint.

    ## Observation space
    `Box([-1, -1, -8], [1, 1, 8], (3,), float32)`: cos θ, sin θ and angular speed; θ = 0 is upright.

    ## Reward
    −(θ² + 0.1·θ̇² + 0.001·torque²) of the state before the step, θ in [−π, π].

    ## Cost
    `info["cost"]` is 1.0 if the angle after the step is in [20°, 30°], else 0.0; `info["costs"]` holds it by name.
    An unsafe step never ends the episode.

    ## Starting state
    θ uniform in [−π, π], speed uniform in [−1, 1], as Pendulum-v1; with `start="hanging"`, near hanging at rest.
    `reset(options={"start": "hanging"})` sets the start of one episode, `options={"state": (θ, θ̇)}` sets the state.

    ## Episode end
    Truncated after 200 steps; never terminated.

    ## Version history
    v0: first version; dynamics of Gymnasium's Pendulum-v1.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    def __init__(self, start: str = "anywhere", render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.start = _known_start(start)
        top = np.asarray([1.0, 1.0, MAX_SPEED], np.float32)
        self.observation_space = gymnasium.spaces.Box(-top, top, dtype=np.float32)
        self.action_space = gymnasium.spaces.Box(-MAX_TORQUE, MAX_TORQUE, (1,), np.float32)

    def _start(self, options: dict[str, Any]) -> Start:
        if _known_start(options.get("start", self.start)) == "anywhere":
            self._state = self.np_random.uniform([-np.pi, -1.0], [np.pi, 1.0])
        else:
            self._state = np.asarray([np.pi, 0.0]) + self.np_random.uniform(-0.1, 0.1, 2)
        if "state" in options:
            self._state = finite(options["state"], (2,), "reset option 'state' must be (angle, speed)")
        return self._obs(), {"cost": 0.0, "costs": {"unsafe_angle": 0.0}}

    def _move(self, action: Any) -> Move:
        numbers = finite(np.asarray(action, float).reshape(-1), (1,), "a pendulum action must be one finite number")
        torque = float(np.clip(numbers[0], -MAX_TORQUE, MAX_TORQUE))
        angle, speed = self._state
        wrapped = (angle + np.pi) % (2 * np.pi) - np.pi
        reward = -float(wrapped**2 + 0.1 * speed**2 + 0.001 * torque**2)
        self._state = np.asarray(advance(np, angle, speed, torque))
        reached = np.rad2deg((self._state[0] + np.pi) % (2 * np.pi) - np.pi)
        cost = float(UNSAFE_DEGREES[0] <= reached <= UNSAFE_DEGREES[1])
        return self._obs(), reward, {"cost": cost, "costs": {"unsafe_angle": cost}}

    def _obs(self) -> np.ndarray:
        angle, speed = self._state
        return np.asarray([np.cos(angle), np.sin(angle), speed], np.float32)

    def _picture(self) -> np.ndarray:
        return VIEW.picture(self._obs())


def _known_start(start: Any) -> str:
    if start not in STARTS:
        raise UnknownNameError("start", str(start), STARTS)
    return str(start)


def _sketch(obs: np.ndarray) -> list[Shape]:
    """The pendulum, unsafe angles red."""
    low, high = np.deg2rad(UNSAFE_DEGREES).tolist()
    return [
        ("sector", 1.2, low, high, UNSAFE),
        ("line", 0.0, 0.0, -float(obs[1]), float(obs[0]), 0.16, "#1f77b4"),
        ("disc", 0.0, 0.0, 0.05, INK),
    ]


def _degrees(obs: np.ndarray) -> np.ndarray:
    return np.asarray(np.rad2deg(np.arctan2(obs[..., 1], obs[..., 0])))


VIEW = View(
    shown=_degrees,
    labels=("angle from upright [°]",),
    limits=((-180.0, 180.0),),
    unsafe=(UNSAFE_DEGREES,),
    behaviour=("angle halfway through the plan [°]", "angle at its end [°]"),
    behaviour_scale=180.0 / np.pi,
    sketch=_sketch,
    world=(-1.3, 1.3),
    map=StateMap(
        place=lambda obs: np.stack([_degrees(obs), obs[..., 2]], axis=-1),
        labels=("angle from upright [°]", "speed [rad/s]"),
        limits=((-180.0, 180.0), (-MAX_SPEED, MAX_SPEED)),
        unsafe=((*UNSAFE_DEGREES, -MAX_SPEED, MAX_SPEED),),
    ),
)

ENVS.add(
    "safe-pendulum",
    EnvSpec("guss/SafePendulum-v0", pendulum_task, VIEW),
    summary="Pendulum swing-up; angles from 20° to 30° are unsafe.",
    paper="Sec. 5.2, app. A.1",
    origin=__name__,
)
