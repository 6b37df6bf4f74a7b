"""Safe Acrobot (appendix A.2): raise the tip of a double pendulum, but not above a height of 3."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from guss.constraint import Constraint, with_params
from guss.envs import ENVS, EnvSpec, StateMap, View
from guss.envs.bundled import BundledEnv, Move, Start, finite
from guss.envs.shapes import INK, UNSAFE, Shape
from guss.errors import GussError
from guss.task import Grid, Task
from guss.types import DiscreteActions, Observations, Rollout

DT = 0.2
NAMES = ("cos(angle 1)", "sin(angle 1)", "cos(angle 2)", "sin(angle 2)", "speed 1", "speed 2")
MAX_SPEEDS = (4 * np.pi, 9 * np.pi)
LINK_COM, LINK_INERTIA, GRAVITY = 0.5, 1.0, 9.8  # links of length and mass 1
MAX_HEIGHT = 3.0
EPISODE_LENGTH = 200


def accelerations(xp: Any, a1: Any, a2: Any, v1: Any, v2: Any, torque: Any) -> tuple[Any, Any]:
    """Angular accelerations of both links, torque on the joint between them (Sutton and Barto's book version).

    `xp` is the array module: numpy for the environment, jax.numpy for the Task.
    """
    com, inertia = LINK_COM, LINK_INERTIA
    d1 = com**2 + (1 + com**2 + 2 * com * xp.cos(a2)) + 2 * inertia
    d2 = com**2 + com * xp.cos(a2) + inertia
    phi2 = com * GRAVITY * xp.cos(a1 + a2 - np.pi / 2)
    phi1 = (
        -com * v2**2 * xp.sin(a2) - 2 * com * v2 * v1 * xp.sin(a2) + (com + 1) * GRAVITY * xp.cos(a1 - np.pi / 2) + phi2
    )
    acc2 = (torque + d2 / d1 * phi1 - com * v1**2 * xp.sin(a2) - phi2) / (com**2 + inertia - d2**2 / d1)
    return -(d2 * acc2 + phi1) / d1, acc2


def advance(xp: Any, state: Any, torque: Any) -> tuple[Any, Any, Any, Any]:
    """One step of 0.2 s by the classical Runge–Kutta rule; angles are not wrapped, speeds are clipped."""

    def slope(a1: Any, a2: Any, v1: Any, v2: Any) -> tuple[Any, Any, Any, Any]:
        return (v1, v2, *accelerations(xp, a1, a2, v1, v2, torque))

    def moved(slopes: Any, time: float) -> Any:
        return tuple(s + time * k for s, k in zip(state, slopes, strict=True))

    k1 = slope(*state)
    k2 = slope(*moved(k1, DT / 2))
    k3 = slope(*moved(k2, DT / 2))
    k4 = slope(*moved(k3, DT))
    a1, a2, v1, v2 = (
        s + DT / 6.0 * (p + 2 * q + 2 * r + t) for s, p, q, r, t in zip(state, k1, k2, k3, k4, strict=True)
    )
    return a1, a2, xp.clip(v1, -MAX_SPEEDS[0], MAX_SPEEDS[0]), xp.clip(v2, -MAX_SPEEDS[1], MAX_SPEEDS[1])


# ----------------------------------------------------------------------------------------------- the Task, in JAX


def acrobot_step(obs: Float[Array, "6"], action: Int[Array, ""], key: PRNGKeyArray) -> Float[Array, "6"]:
    """One step of Gymnasium's Acrobot-v1, which never terminates here."""
    state = (jnp.arctan2(obs[1], obs[0]), jnp.arctan2(obs[3], obs[2]), obs[4], obs[5])
    a1, a2, v1, v2 = advance(jnp, state, action.astype(jnp.float32) - 1.0)
    return jnp.stack([jnp.cos(a1), jnp.sin(a1), jnp.cos(a2), jnp.sin(a2), v1, v2])


def acrobot_reset(key: PRNGKeyArray) -> Float[Array, "6"]:
    """Gymnasium's initial state: hanging, angles and speeds within ±0.1."""
    a1, a2, v1, v2 = jax.random.uniform(key, (4,), minval=-0.1, maxval=0.1)
    return jnp.stack([jnp.cos(a1), jnp.sin(a1), jnp.cos(a2), jnp.sin(a2), v1, v2])


def tip_of(obs: Float[Array, "6"]) -> Float[Array, "2"]:
    """The tip's (x, y), the fixed joint at the origin."""
    cos1, sin1, cos2, sin2 = obs[0], obs[1], obs[2], obs[3]
    return jnp.stack([sin1 + sin1 * cos2 + cos1 * sin2, -cos1 - (cos1 * cos2 - sin1 * sin2)])


def acrobot_reward(obs: Float[Array, "6"], action: Int[Array, ""], next_obs: Float[Array, "6"]) -> Float[Array, ""]:
    """Height of the tip above hanging after the step, in [0, 4]."""
    return tip_of(next_obs)[1] + 2.0


def acrobot_cost(obs: Float[Array, "6"], action: Int[Array, ""], next_obs: Float[Array, "6"], height: Array) -> Array:
    """1 if the tip is above `height` after the step."""
    return tip_of(next_obs)[1] + 2.0 > height


def acrobot_descriptor(rollout: Rollout) -> Float[Array, "4"]:
    """The tip's (x, y) at half of the plan and at its end."""
    half = max(rollout.next_obs.shape[0] // 2 - 1, 0)
    return jnp.concatenate([tip_of(rollout.next_obs[half]), tip_of(rollout.next_obs[-1])])


def acrobot_task() -> Task:
    """Safe Acrobot as a pure Task."""
    top = (1.0, 1.0, 1.0, 1.0, *MAX_SPEEDS)
    return Task(
        name="safe-acrobot",
        observations=Observations(low=tuple(-x for x in top), high=top, names=NAMES),
        actions=DiscreteActions(num_values=(3,), scalar=True, names=("torque",)),
        reward=acrobot_reward,
        constraints=(Constraint("too_high", with_params(acrobot_cost, height=MAX_HEIGHT), stricter={"height": -1.0}),),
        descriptor=acrobot_descriptor,
        grid=Grid(low=(-2.0,) * 4, high=(2.0,) * 4, cells=(50,) * 4),
        episode_length=EPISODE_LENGTH,
        learns_end=False,
        step=acrobot_step,
        reset=acrobot_reset,
        fallback=1,  # no torque
        policy_inputs=(np.zeros(6), np.ones(6)),  # unscaled
    )


# ------------------------------------------------------------------------------------------- the Gymnasium class


class SafeAcrobotEnv(BundledEnv):
    """Swing a double pendulum so that its tip is as high as possible, but not above a height of 3.

    ## Action space
    `Discrete(3)`: torque −1, 0 or +1 on the joint between the links.

    ## Observation space
    `Box((6,), float32)`: cos θ₁, sin θ₁, cos θ₂, sin θ₂ and both angular speeds; θ₁ = 0 hangs down, θ₂ is relative to
    the first link. Speeds are within ±4π and ±9π.

    ## Reward
    Height of the tip above its hanging position after the step, in [0, 4].

    ## Cost
    `info["cost"]` is 1.0 if the tip is above 3 after the step, else 0.0; `info["costs"]` holds it by name. An unsafe
    step never ends the episode.

    ## Starting state
    All angles and speeds uniform within ±0.1. `reset(options={"state": (θ₁, θ₂, θ̇₁, θ̇₂)})` sets it.

    ## Episode end
    Truncated after 200 steps; never terminated.

    ## Version history
    v0: first version; dynamics of Gymnasium's Acrobot-v1 (book version).
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        top = np.asarray([1.0, 1.0, 1.0, 1.0, *MAX_SPEEDS], np.float32)
        self.observation_space = gymnasium.spaces.Box(-top, top, dtype=np.float32)
        self.action_space = gymnasium.spaces.Discrete(3)

    def _start(self, options: dict[str, Any]) -> Start:
        self._state = self.np_random.uniform(-0.1, 0.1, 4)
        if "state" in options:
            self._state = finite(options["state"], (4,), "reset option 'state' must be two angles and two speeds")
        return self._obs(), {"cost": 0.0, "costs": {"too_high": 0.0}}

    def _move(self, action: Any) -> Move:
        if not self.action_space.contains(np.int64(action)) or action != np.int64(action):
            raise GussError(f"an acrobot action must be 0, 1 or 2, got {action!r}")
        a1, a2, v1, v2 = advance(np, tuple(self._state), float(action) - 1.0)
        wrap = lambda angle: (angle + np.pi) % (2 * np.pi) - np.pi  # noqa: E731
        self._state = np.asarray([wrap(a1), wrap(a2), v1, v2])
        height = 2.0 - np.cos(a1) - np.cos(a1 + a2)
        cost = float(height > MAX_HEIGHT)
        return self._obs(), float(height), {"cost": cost, "costs": {"too_high": cost}}

    def _obs(self) -> np.ndarray:
        a1, a2, v1, v2 = self._state
        return np.asarray([np.cos(a1), np.sin(a1), np.cos(a2), np.sin(a2), v1, v2], np.float32)

    def _picture(self) -> np.ndarray:
        return VIEW.picture(self._obs())


def _tip(obs: np.ndarray) -> np.ndarray:
    """The tip's x, and its height above hanging."""
    cos1, sin1, cos2, sin2 = (obs[..., i] for i in range(4))
    return np.stack([sin1 + sin1 * cos2 + cos1 * sin2, 2.0 - cos1 - (cos1 * cos2 - sin1 * sin2)], axis=-1)


def _sketch(obs: np.ndarray) -> list[Shape]:
    """Both links and the unsafe zone in red; the tip is red in the zone and green below."""
    elbow = (float(obs[1]), -float(obs[0]))
    x, height = _tip(obs).tolist()
    return [
        ("rect", -2.3, 2.3, MAX_HEIGHT - 2.0, 2.3, UNSAFE),
        ("line", 0.0, 0.0, *elbow, 0.18, "#1f77b4"),
        ("line", *elbow, x, height - 2.0, 0.18, "#56b4e9"),
        ("disc", 0.0, 0.0, 0.07, INK),
        ("disc", *elbow, 0.07, INK),
        ("disc", x, height - 2.0, 0.09, "#d62728" if height > MAX_HEIGHT else "#2ca02c"),
    ]


VIEW = View(
    shown=lambda obs: _tip(obs)[..., 1],
    labels=("height of the tip",),
    limits=((0.0, 4.0),),
    unsafe=((MAX_HEIGHT, 4.0),),
    behaviour=("x of the tip at the plan's end", "y of the tip at the plan's end"),
    behaviour_dims=(2, 3),
    sketch=_sketch,
    world=(-2.3, 2.3),
    map=StateMap(
        place=_tip,
        labels=("x of the tip", "height of the tip above hanging"),
        limits=((-2.0, 2.0), (0.0, 4.0)),
        unsafe=((-2.0, 2.0, MAX_HEIGHT, 4.0),),
    ),
)

ENVS.add(
    "safe-acrobot",
    EnvSpec("guss/SafeAcrobot-v0", acrobot_task, VIEW),
    summary="Acrobot: the tip as high as possible, but not above 3.",
    paper="Sec. 5.2, app. A.2",
    origin=__name__,
)
