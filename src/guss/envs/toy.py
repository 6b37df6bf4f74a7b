"""The toy world of Sec. 5.1: walk from start to goal around the unsafe areas, with a perfect model.

The paper's figure of the world is lost; `PAPER_LAYOUT` reproduces every claim of its text.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from guss.constraint import Constraint, with_params
from guss.envs import ENVS, EnvSpec, StateMap, View
from guss.envs.bundled import BundledEnv, Move, Start
from guss.envs.shapes import Shape, paint
from guss.errors import GussError, UnknownNameError
from guss.plugins import read_toml
from guss.task import Grid, Task
from guss.types import DiscreteActions, Observations, Rollout
from guss.validation import build, check_fields, check_ranges

EPISODE_LENGTH = 100
CELLS = (50, 50)


@dataclass(frozen=True)
class ToyLayout:
    """Layout of a square world, which you can customise; distances in steps."""

    size: float = 50.0
    start: tuple[float, ...] = (5.0, 5.0)
    goal: tuple[float, ...] = (45.0, 45.0)
    goal_radius: float = 3.0
    """The goal is reached within this distance."""
    unsafe: tuple[tuple[float, ...], ...] = (
        (10.0, 40.0, 0.0, 40.0),
        (0.0, 2.0, 20.0, 50.0),
        (12.0, 40.0, 46.0, 50.0),
    )
    """Rectangles (x from, x to, y from, y to), edges included."""

    def __post_init__(self) -> None:
        check_fields(self, "toy layout")
        check_ranges(self, "toy layout", size="(0, inf)", goal_radius="(0, inf)")
        for name in ("start", "goal"):
            point = np.asarray(getattr(self, name), float)
            if point.shape != (2,) or not ((point >= 0) & (point <= self.size)).all():
                raise GussError(
                    f"toy layout: {name} must be a point (x, y) within 0 … {self.size:g}, got {point.tolist()}"
                )
        for i, area in enumerate(self.unsafe):
            box = np.asarray(area, float)
            if box.shape != (4,) or not (box[0] <= box[1] and box[2] <= box[3]):
                raise GussError(
                    f"toy layout: unsafe area {i} must be (x from, x to, y from, y to), smaller first, "
                    f"got {box.tolist()}"
                )

    @classmethod
    def from_toml(cls, path: str | Path) -> ToyLayout:
        """Read a layout from a TOML file with the fields of this class; missing fields are as in the paper."""
        data = read_toml(path, "toy layout")
        names = [f.name for f in fields(cls)]
        for name in data:
            if name not in names:
                raise UnknownNameError("entry of a toy layout", name, names)
        return build(cls, data, "toy layout")

    def areas(self) -> np.ndarray:
        """Unsafe rectangles as an array [areas, 4]."""
        return np.asarray(self.unsafe, np.float32).reshape(-1, 4)


PAPER_LAYOUT = ToyLayout()


# ----------------------------------------------------------------------------------------------- the Task, in JAX


def toy_step(
    obs: Float[Array, "2"], action: Int[Array, "2"], key: PRNGKeyArray, size: Float[Array, ""]
) -> Float[Array, "2"]:
    """One step in x and y, stopped by the walls."""
    return jnp.clip(obs + action.astype(jnp.float32), 0.0, size)


def toy_reset(key: PRNGKeyArray, start: Float[Array, "2"]) -> Float[Array, "2"]:
    return start


def toy_reward(
    obs: Float[Array, "2"], action: Int[Array, "2"], next_obs: Float[Array, "2"], goal: Float[Array, "2"]
) -> Float[Array, ""]:
    """R = −‖s − s_goal‖² of the position after the step."""
    return -jnp.sum((next_obs - goal) ** 2)


def toy_cost(
    obs: Float[Array, "2"], action: Int[Array, "2"], next_obs: Float[Array, "2"], areas: Float[Array, "areas 4"]
) -> Array:
    """1 if the position after the step is in an unsafe area."""
    x, y = next_obs[0], next_obs[1]
    return jnp.any((x >= areas[:, 0]) & (x <= areas[:, 1]) & (y >= areas[:, 2]) & (y <= areas[:, 3]))


def toy_descriptor(rollout: Rollout) -> Float[Array, "2"]:
    return rollout.next_obs[-1]


def toy_task(layout: ToyLayout = PAPER_LAYOUT) -> Task:
    """The toy world as a pure Task."""
    size = float(layout.size)
    return Task(
        name="safe-toy",
        observations=Observations(low=(0.0, 0.0), high=(size, size), names=("x", "y")),
        actions=DiscreteActions(num_values=(3, 3), start=(-1, -1), ordered=True, names=("dx", "dy")),
        reward=with_params(toy_reward, goal=np.asarray(layout.goal, np.float32)),
        constraints=(Constraint("unsafe_area", with_params(toy_cost, areas=layout.areas())),),
        descriptor=toy_descriptor,
        grid=Grid(low=(0.0, 0.0), high=(size, size), cells=CELLS),
        episode_length=EPISODE_LENGTH,
        learns_end=False,
        step=with_params(toy_step, size=size),
        reset=with_params(toy_reset, start=np.asarray(layout.start, np.float32)),
        policy_inputs=((size / 2, size / 2), (size / 2, size / 2)),  # positions to [−1, 1]
    )


# ------------------------------------------------------------------------------------------- the Gymnasium class


class SafeToyEnv(BundledEnv):
    """Walk from start to goal in a square world without entering the unsafe areas.

    ## Action space
    `MultiDiscrete([3, 3])`: the step in x and in y, 0 for −1, 1 for 0 and 2 for 1 (libraries such as Stable-Baselines3
    expect actions to start at 0). Actions of the Task `safe-toy` are −1, 0, 1: `task_action_start` is this offset.

    ## Observation space
    `Box(0, size, (2,), float32)`: the position (x, y). Walls stop the agent at 0 and at `size` (50).

    ## Reward
    −‖s − goal‖² of the position after the step.

    ## Cost
    `info["cost"]` is 1.0 if the position after the step is in an unsafe area, else 0.0; `info["costs"]` holds it by
    name. An unsafe step never ends the episode. `info["reached"]` is true within the goal's radius (3).

    ## Starting state
    The layout's start, (5, 5); `reset(options={"start": (x, y)})` sets another.

    ## Episode end
    Truncated after 100 steps; never terminated.

    ## Arguments
    `layout`: a `guss.envs.toy.ToyLayout` or the path of a TOML file with its fields. `render_mode`: `"rgb_array"`.

    ## Version history
    v0: first version.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012
    task_action_start = (-1, -1)

    def __init__(self, layout: ToyLayout | str | Path = PAPER_LAYOUT, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.layout = layout if isinstance(layout, ToyLayout) else ToyLayout.from_toml(layout)
        self.observation_space = gymnasium.spaces.Box(0.0, self.layout.size, (2,), np.float32)
        self.action_space = gymnasium.spaces.MultiDiscrete([3, 3])
        self._areas = self.layout.areas()
        self._goal = np.asarray(self.layout.goal, np.float32)

    def _start(self, options: dict[str, Any]) -> Start:
        start = np.asarray(options.get("start", self.layout.start), np.float32)
        if start.shape != (2,) or not self.observation_space.contains(start):
            raise GussError(
                f"reset option 'start' must be a point within 0 … {self.layout.size:g}, got {start.tolist()}"
            )
        self._path = [start]
        return start.copy(), self._info(start)

    def _move(self, action: Any) -> Move:
        choice = np.asarray(action)
        if not self.action_space.contains(choice.astype(np.int64)) or (choice != np.rint(choice)).any():
            raise GussError(f"a toy action must be two integers, each 0, 1 or 2, got {choice.tolist()}")
        move = choice.astype(np.float32) + np.asarray(self.task_action_start, np.float32)
        position = np.clip(self._path[-1] + move, 0.0, self.layout.size).astype(np.float32)
        self._path.append(position)
        reward = -float(((position - self._goal) ** 2).sum())
        return position.copy(), reward, self._info(position)

    def _info(self, position: np.ndarray) -> dict[str, Any]:
        x, y = position
        a = self._areas
        unsafe = bool(((x >= a[:, 0]) & (x <= a[:, 1]) & (y >= a[:, 2]) & (y <= a[:, 3])).any())
        reached = bool(np.linalg.norm(position - self._goal) <= self.layout.goal_radius)
        return {"cost": float(unsafe), "costs": {"unsafe_area": float(unsafe)}, "reached": reached}

    def _picture(self) -> np.ndarray:
        return paint(sketch_world(self.layout, np.stack(self._path)), (0.0, self.layout.size))


def sketch_world(layout: ToyLayout, path: np.ndarray) -> list[Shape]:
    """The layout and a path [steps, 2]."""
    unit, goal = layout.size / 50.0, layout.goal
    shapes: list[Shape] = [("rect", *area, "#bebebe") for area in layout.unsafe]
    shapes += [("disc", *goal, layout.goal_radius, "#c6ebc6"), ("disc", *goal, 0.8 * unit, "#2ca02c")]
    shapes += [("disc", *layout.start, 0.8 * unit, "#505050")]
    for x, y in path.tolist():
        unsafe = any(x0 <= x <= x1 and y0 <= y <= y1 for x0, x1, y0, y1 in layout.unsafe)
        shapes.append(("disc", x, y, 0.35 * unit, "#d62728" if unsafe else "#1f77b4"))
    return [*shapes, ("disc", *path[-1].tolist(), 0.9 * unit, "#1f3c88")]


VIEW = View(
    shown=lambda obs: obs,
    labels=("x", "y"),
    limits=((0.0, PAPER_LAYOUT.size),) * 2,
    unsafe=PAPER_LAYOUT.unsafe,
    behaviour=("x at the plan's end", "y at the plan's end"),
    sketch=lambda obs: sketch_world(PAPER_LAYOUT, obs[None]),
    world=(0.0, PAPER_LAYOUT.size),
    map=StateMap(
        place=lambda obs: obs,
        labels=("x", "y"),
        limits=((0.0, PAPER_LAYOUT.size), (0.0, PAPER_LAYOUT.size)),
        unsafe=tuple((x0, x1, y0, y1) for x0, x1, y0, y1 in PAPER_LAYOUT.unsafe),
    ),
)

ENVS.add(
    "safe-toy",
    EnvSpec("guss/SafeToy-v0", toy_task, VIEW),
    summary="Toy world: walk to the goal through a narrow safe corridor (perfect model).",
    paper="Sec. 5.1, Fig. 2, app. B",
    origin=__name__,
)
