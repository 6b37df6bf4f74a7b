"""Shapes on a canvas, and the plane on which states are counted."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from guss.envs import ENVS, View
from guss.envs.acrobot import VIEW as ACROBOT
from guss.envs.car import VIEW as CAR
from guss.envs.car_world import LIDAR
from guss.envs.pendulum import VIEW as PENDULUM
from guss.envs.shapes import KINDS, paint
from guss.envs.toy import VIEW as TOY
from guss.errors import GussError

TURNS = np.linspace(-3.0, 3.0, 5)


def plane(span, pixels=500):
    axis = np.linspace(-span, span, pixels)
    x, y = np.meshgrid(axis, axis[::-1])
    return x, y, np.full((pixels, pixels, 3), 255, np.uint8)


def rod(x, y, start, stop, width):
    """A turned rectangle with a disc at both ends."""
    (x0, y0), (x1, y1) = start, stop
    length = np.hypot(x1 - x0, y1 - y0)
    along = ((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / length
    across = ((x - x0) * (y1 - y0) - (y - y0) * (x1 - x0)) / length
    inside = (np.abs(across) <= width / 2) & (along >= 0) & (along <= length)
    return inside | (np.hypot(x - x0, y - y0) <= width / 2) | (np.hypot(x - x1, y - y1) <= width / 2)


def differing(a, b):
    return (a != b).any(axis=-1).mean()


@pytest.mark.parametrize("angle", TURNS)
def test_the_pendulum_looks_as_it_did(angle):
    x, y, image = plane(1.3)
    degrees = np.rad2deg(np.arctan2(-x, y))
    image[(np.hypot(x, y) <= 1.2) & (degrees >= 20) & (degrees <= 30)] = (240, 176, 176)
    image[rod(x, y, (0, 0), (-np.sin(angle), np.cos(angle)), 0.16)] = (31, 119, 180)
    image[np.hypot(x, y) <= 0.05] = (60, 60, 60)
    assert differing(PENDULUM.picture(np.asarray([np.cos(angle), np.sin(angle), 1.0])), image) < 1e-4


@pytest.mark.parametrize("angle", TURNS)
def test_the_acrobot_looks_as_it_did(angle):
    x, y, image = plane(2.3)
    image[y >= 1.0] = (240, 176, 176)
    elbow = np.asarray([np.sin(angle), -np.cos(angle)])
    tip = elbow + np.asarray([np.sin(angle + 0.5), -np.cos(angle + 0.5)])
    image[rod(x, y, (0, 0), elbow, 0.18)] = (31, 119, 180)
    image[rod(x, y, elbow, tip, 0.18)] = (86, 180, 233)
    for joint in ((0, 0), elbow):
        image[np.hypot(x - joint[0], y - joint[1]) <= 0.07] = (60, 60, 60)
    image[np.hypot(x - tip[0], y - tip[1]) <= 0.09] = (214, 39, 40) if tip[1] > 1.0 else (44, 160, 44)
    obs = np.asarray([np.cos(angle), np.sin(angle), np.cos(0.5), np.sin(0.5), 0.0, 0.0])
    assert differing(ACROBOT.picture(obs), image) < 1e-4


@pytest.mark.parametrize("seed", range(3))
def test_what_the_car_sees_looks_as_it_did(seed):
    random = np.random.default_rng(seed)
    lidar, goal = random.uniform(0.0, 1.0, 10) ** 2, random.uniform(-1.0, 1.0, 2)
    x, y, image = plane(1.6)
    angle, distance = np.arctan2(-y, -x) % (2 * np.pi), np.hypot(x, y)
    for i, reading in enumerate(lidar):
        wedge = np.floor(angle * 10 / (2 * np.pi)) == i
        shade = 255 - int(200 * reading)
        colour = (170, 10, 10) if reading > 0.9 else (255, shade, shade)
        image[wedge & (np.abs(distance + np.log(reading)) < 0.04)] = colour
        image[wedge & (distance > 0.22) & (distance < 0.28)] = colour
    image[np.hypot(x + goal[0], y + goal[1]) <= 0.3] = (140, 205, 150)
    image[(np.abs(x) <= 0.1) & (y >= -0.16) & (y <= 0.17)] = (31, 108, 173)
    image[(np.abs(x) <= 0.05) & (y >= 0.12) & (y <= 0.17)] = (242, 191, 51)
    image[(np.abs(np.abs(x) - 0.13) <= 0.025) & (y >= -0.15) & (y <= -0.05)] = (60, 60, 60)
    obs = np.concatenate([np.zeros(10), goal, lidar])
    assert differing(CAR.picture(obs), image) < 1e-3


def test_every_sketch_is_plain_data_of_known_shapes():
    for view, size in ((PENDULUM, 3), (ACROBOT, 6), (CAR, 22), (TOY, 2)):
        shapes = view.sketch(np.full(size, 0.4, np.float32))
        assert {shape[0] for shape in shapes} <= set(KINDS)
        assert json.loads(json.dumps(shapes)) == [list(shape) for shape in shapes]


def test_what_cannot_be_drawn_is_told():
    with pytest.raises(GussError, match="unknown shape 'disk'"):
        paint([("disk", 0.0, 0.0, 1.0, "#000000")], (-1.0, 1.0))
    plain = View(lambda obs: obs[..., 0], ("observation 0",), ((0.0, 1.0),))
    with pytest.raises(GussError, match="no `sketch`"):
        plain.picture(np.zeros(2))


# ------------------------------------------------------------------------------------------------------ maps of states


def test_states_are_placed_by_what_matters_of_them():
    angle = np.deg2rad(25.0)
    np.testing.assert_allclose(PENDULUM.map.place(np.asarray([np.cos(angle), np.sin(angle), -3.0])), [25.0, -3.0])
    hanging, up = [1.0, 0.0, 1.0, 0.0, 0.0, 0.0], [-1.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    np.testing.assert_allclose(ACROBOT.map.place(np.asarray([hanging, up])), [[0.0, 0.0], [0.0, 4.0]])
    aside = [0.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    np.testing.assert_allclose(ACROBOT.map.place(np.asarray(aside)), [2.0, 2.0])
    obs = np.zeros((2, 22))
    obs[0, 12 + 7], obs[0, 12], obs[0, 4] = np.exp(-0.5), 0.1, -0.7  # its back is where y grows
    np.testing.assert_allclose(CAR.map.place(obs)[0], [0.5, 0.7])
    assert CAR.map.place(obs)[1, 0] > CAR.map.limits[0][1], "where the lidar shows nothing there is nothing on the map"


@pytest.mark.parametrize("name", ["safe-pendulum", "safe-acrobot", "safe-car-goal", "safe-toy"])
def test_a_place_is_in_the_unsafe_zone_when_the_step_costs(name):
    spec = ENVS[name].item
    task, plan = spec.make_task(), spec.view.map
    random = np.random.default_rng(0)
    obs = random.uniform(-1.0, 1.0, (2000, task.observations.size)).astype(np.float32)
    if name == "safe-toy":
        obs = 25.0 + 25.0 * obs
    elif name == "safe-car-goal":
        obs[:, LIDAR] = np.abs(obs[:, LIDAR]) ** random.choice([0.5, 2.0, 8.0], (2000, 1))
    else:
        for pair in (slice(0, 2), slice(2, 4))[: len(obs[0]) // 3]:
            obs[:, pair] /= np.linalg.norm(obs[:, pair], axis=1, keepdims=True)
    action = task.actions.sample(jax.random.key(0))
    costs = jax.vmap(lambda o: task.constraints[0].cost(o, action, o))(jnp.asarray(obs))
    x, y = plan.place(obs).T
    zone = np.any([(x0 <= x) & (x <= x1) & (y0 <= y) & (y <= y1) for x0, x1, y0, y1 in plan.unsafe], axis=0)
    assert zone.any()
    assert np.mean(zone == (np.asarray(costs) > 0)) > 0.998, "but for rounding at the edges"
