"""Static objects around a robot, for models that predict their observations by geometry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jax import Array


@dataclass(frozen=True)
class Surroundings:
    """Static objects around a robot that moves in the plane, and how its sensors measure them.

    The model learns the robot's own state (speeds, heading, forces); the future observations of static objects are
    computed by geometry. `own`, `motion`, `places` and `sight` are described below. The functions are written in JAX
    and take single observations, not batches.

    Example:
        >>> around = guss.Surroundings(
        ...     own=(0,),
        ...     motion=lambda own, next_own: jnp.array([next_own[0], 0.0, 0.0]),
        ...     places=lambda obs: obs[1:].reshape(1, 2),
        ...     sight=lambda own, places: jnp.concatenate([own, places.ravel()]),
        ... )
        >>> around.places(jnp.array([0.5, 3.0, 4.0])).tolist()
        [[3.0, 4.0]]
    """

    own: tuple[int, ...]
    """Dimensions of the observation that measure the robot itself."""
    motion: Callable[[Array, Array], Array]
    """motion(own, next_own) -> (dx, dy, turn): the robot's motion in one step, in its frame before the step."""
    places: Callable[[Array], Array]
    """places(obs) -> [K, 2 or more]: objects in the robot's frame (x, y), and features that distinguish them."""
    sight: Callable[[Array, Array], Array]
    """sight(own, places) -> the whole observation."""
