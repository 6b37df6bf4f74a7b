"""Pictures of SafeCar-Goal: MuJoCo's view of the arena, and a plain one of what the car observes."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from guss.envs.car_world import (
    ARENA,
    BINS,
    GOAL_RADIUS,
    HAZARD_RADIUS,
    NUM_POSITIONS,
    load_mujoco,
)
from guss.envs.drawing import INK, Canvas, Colour
from guss.errors import GussError

PIXELS = 640
GREEN, RED, DARK_RED = (0.2, 0.65, 0.3, 0.45), (0.85, 0.25, 0.2, 0.45), (0.75, 0.05, 0.05, 0.9)
GREY = (0.55, 0.55, 0.55, 1.0)
UNSAFE_RADIUS = 0.105  # where a lidar reading is 0.9
DOT_RING, DOT_HEIGHT, DOT = 0.25, 0.32, 0.035


def bin_angles(bins: int = BINS) -> np.ndarray:
    """Middles of the lidar's bins, from the car's +x."""
    return (np.arange(bins) + 0.5) * 2.0 * np.pi / bins


class CarPicture:
    """Draws the arena with MuJoCo, offscreen."""

    def __init__(self, model: Any) -> None:
        self.mujoco = load_mujoco()
        try:
            self.renderer = self.mujoco.Renderer(model, PIXELS, PIXELS)
        except Exception as error:  # MuJoCo, PyOpenGL and drivers each raise their own
            raise GussError(
                f"SafeCar-Goal cannot be rendered here: MuJoCo found no OpenGL ({type(error).__name__}: "
                f"{str(error).splitlines()[0]}; MUJOCO_GL={os.environ.get('MUJOCO_GL', '')!r}). Without a display it "
                f"needs EGL: install libegl1 and set MUJOCO_GL=egl before Python starts (or libosmesa6 and "
                f"MUJOCO_GL=osmesa). Everything but render() works without it."
            ) from error
        self.model, self.data = model, self.mujoco.MjData(model)

    def draw(self, state: np.ndarray, goal: np.ndarray, hazards: np.ndarray, lidar: np.ndarray) -> np.ndarray:
        """An RGB picture: goal green, hazards red (dark: where the lidar says unsafe), lidar as dots above the car."""
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
        """One more thing in the scene: seen, and nothing else."""
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
        """Give MuJoCo's renderer back."""
        self.renderer.close()


def draw_from_car(goal: np.ndarray, lidar: np.ndarray, limit: float) -> np.ndarray:
    """What the car observes, seen from above with the car in the middle and its front up.

    A bin's wedge is the redder the higher its reading, and ends where the hazard would be; dark red beyond the limit.
    """
    canvas = Canvas(-1.6, 1.6)
    angle = np.arctan2(-canvas.y, -canvas.x) % (2.0 * np.pi)  # turned by half a circle: front up
    distance = np.hypot(canvas.x, canvas.y)
    for i, reading in enumerate(np.clip(lidar, 1e-3, 1.0)):
        wedge = np.floor(angle * len(lidar) / (2.0 * np.pi)) == i
        shade = 255 - int(200 * reading)
        colour: Colour = (170, 10, 10) if reading > limit else (255, shade, shade)
        canvas.paint(wedge & (np.abs(distance + np.log(reading)) < 0.04), colour)
        canvas.paint(wedge & (distance > 0.22) & (distance < 0.28), colour)
    canvas.disc(-np.asarray(goal, float), GOAL_RADIUS, (140, 205, 150))
    canvas.rectangle(-0.1, 0.1, -0.16, 0.17, (31, 108, 173))
    canvas.rectangle(-0.05, 0.05, 0.12, 0.17, (242, 191, 51))
    for side in (-0.13, 0.13):
        canvas.rectangle(side - 0.025, side + 0.025, -0.15, -0.05, INK)
    return canvas.image
