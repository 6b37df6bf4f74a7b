"""Images of SafeCar-Goal: MuJoCo's view of the arena, and a sketch of the car's observation."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from guss.envs.car_world import ARENA, BINS, GOAL_RADIUS, HAZARD_RADIUS, LIDAR, NUM_POSITIONS, load_mujoco
from guss.envs.shapes import INK, Shape
from guss.errors import GussError

PIXELS = 640
GREEN, RED, DARK_RED = (0.2, 0.65, 0.3, 0.45), (0.85, 0.25, 0.2, 0.45), (0.75, 0.05, 0.05, 0.9)
GREY = (0.55, 0.55, 0.55, 1.0)
FORWARDS = 4  # of an observation: the velocimeter's y, which points to the car's back
UNSAFE_RADIUS = 0.105  # where a lidar reading is 0.9
DOT_RING, DOT_HEIGHT, DOT = 0.25, 0.32, 0.035


def bin_angles(bins: int = BINS) -> np.ndarray:
    """Centre angles of the lidar's bins, from the car's +x."""
    return (np.arange(bins) + 0.5) * 2.0 * np.pi / bins


class CarPicture:
    """Draws the arena with MuJoCo, offscreen."""

    def __init__(self, model: Any) -> None:
        self.mujoco = load_mujoco()
        try:
            self.renderer = self.mujoco.Renderer(model, PIXELS, PIXELS)
        except Exception as error:  # MuJoCo, PyOpenGL and drivers raise different exceptions
            raise GussError(
                f"SafeCar-Goal cannot be rendered here: MuJoCo found no OpenGL ({type(error).__name__}: "
                f"{str(error).splitlines()[0]}; MUJOCO_GL={os.environ.get('MUJOCO_GL', '')!r}). Without a display it "
                f"needs EGL: install libegl1 and set MUJOCO_GL=egl before Python starts (or libosmesa6 and "
                f"MUJOCO_GL=osmesa). Everything but render() works without it."
            ) from error
        self.model, self.data = model, self.mujoco.MjData(model)

    def draw(self, state: np.ndarray, goal: np.ndarray, hazards: np.ndarray, lidar: np.ndarray) -> np.ndarray:
        """An RGB image: goal green, hazards red (dark: unsafe by the lidar), lidar readings as dots above the car."""
        data, scene = self.data, self.renderer.scene
        data.qpos[:] = state[1 : 1 + NUM_POSITIONS]
        data.qvel[:] = state[1 + NUM_POSITIONS :]
        self.mujoco.mj_forward(self.model, data)
        self.renderer.update_scene(data, camera="above")
        self._add("mjGEOM_CYLINDER", (*goal, 0.06), (GOAL_RADIUS, 0.06, 0), GREEN)
        for place in hazards:
            self._add("mjGEOM_CYLINDER", (*place, 0.005), (HAZARD_RADIUS, 0.005, 0), RED)
            self._add("mjGEOM_CYLINDER", (*place, 0.011), (UNSAFE_RADIUS, 0.002, 0), DARK_RED)
        turn = data.body("car").xmat.reshape(3, 3)
        for angle, reading in zip(bin_angles(), lidar, strict=True):
            arm = turn @ (DOT_RING * np.asarray([np.cos(angle), np.sin(angle), 0.0]))
            shade = (1.0, 1.0 - float(reading), 1.0 - float(reading), 1.0)
            self._add("mjGEOM_SPHERE", data.body("car").xpos + arm + [0, 0, DOT_HEIGHT], (DOT, DOT, DOT), shade)
        for sign in (-1.0, 1.0):
            self._add("mjGEOM_BOX", (sign * ARENA, 0, 0.005), (0.01, ARENA, 0.005), GREY)
            self._add("mjGEOM_BOX", (0, sign * ARENA, 0.005), (ARENA, 0.01, 0.005), GREY)
        assert scene.ngeom < scene.maxgeom
        return self.renderer.render()

    def _add(self, kind: str, place: Any, size: Any, colour: tuple[float, ...]) -> None:
        """Add a visual shape to the scene, without physics."""
        scene = self.renderer.scene
        self.mujoco.mjv_initGeom(
            scene.geoms[scene.ngeom],
            getattr(self.mujoco.mjtGeom, kind),
            np.asarray(size, float),
            np.asarray(place, float),
            np.eye(3).ravel(),
            np.asarray(colour, np.float32),
        )
        scene.ngeom += 1

    def close(self) -> None:
        self.renderer.close()


SIGHT = 1.6  # half the side of a sketch around the car


def sketch_from_car(goal: np.ndarray, lidar: np.ndarray, limit: float) -> list[Shape]:
    """The car's observation from above, with the car in the middle and its front up.

    A bin is redder for higher readings, with an arc at the distance of its hazard; dark red above the limit.
    """
    shapes: list[Shape] = []
    width = 2.0 * np.pi / len(lidar)
    for i, reading in enumerate(np.clip(lidar, 1e-3, 1.0).tolist()):
        wedge = (np.pi / 2 + i * width, np.pi / 2 + (i + 1) * width)  # the car's +x is its left
        shade = 255 - int(200 * reading)
        colour = "#aa0a0a" if reading > limit else f"#ff{shade:02x}{shade:02x}"
        distance = -float(np.log(reading))
        if distance < 1.5 * SIGHT:  # else it is outside the image
            shapes.append(("ring", max(distance - 0.04, 0.0), distance + 0.04, *wedge, colour))
        shapes.append(("ring", 0.22, 0.28, *wedge, colour))
    x, y = (-np.asarray(goal, float)).tolist()
    return [
        *shapes,
        ("disc", x, y, GOAL_RADIUS, "#8ccd96"),
        ("rect", -0.1, 0.1, -0.16, 0.17, "#1f6cad"),
        ("rect", -0.05, 0.05, 0.12, 0.17, "#f2bf33"),
        *(("rect", side - 0.025, side + 0.025, -0.15, -0.05, INK) for side in (-0.13, 0.13)),
    ]


def nearest_and_speed(obs: np.ndarray) -> np.ndarray:
    """Distance of the nearest hazard by the lidar [m] and the car's speed forwards [m/s], of [..., 22]."""
    distance = -np.log(np.clip(obs[..., LIDAR].max(axis=-1), 1e-3, 1.0))
    return np.stack([distance, -obs[..., FORWARDS]], axis=-1)
