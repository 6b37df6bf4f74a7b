"""The oracle: a task's own step function as the model, for planning without learning (Sec. 5.1)."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from guss.constraint import Function
from guss.errors import GussError
from guss.models import register_model
from guss.models.settings import ModelSettings
from guss.task import Task
from guss.types import Model


@register_model("oracle", paper="Sec. 5.1")
class Oracle(Model):
    """The task's true dynamics: nothing is learned, so only the planner is evaluated.

    `step`: a Task's function that returns the true next observation, with its parameters. `Oracle.of(task)` uses the
    `step` of a Task, and raises GussError if the Task has none.

    Example:
        >>> guss.Oracle.of(guss.make_task("safe-toy")).num_particles
        1
    """

    Settings: ClassVar = ModelSettings  # unused; network settings are accepted because presets contain them

    step: Function

    @classmethod
    def create(cls, task: Task, key: PRNGKeyArray, **settings: Any) -> Oracle:
        """The oracle of a task that has a `step`."""
        return cls.of(task)

    @classmethod
    def of(cls, task: Task) -> Oracle:
        """The oracle of a task that has a `step`."""
        if task.step is None:
            raise GussError(
                f"task {task.name!r} has no step function, so its true dynamics are unknown: "
                f"give the Task a `step(obs, action, key)`, or choose a learned model"
            )
        return cls(task.step)

    def predict(
        self, obs: Float[Array, "D"], action: Shaped[Array, "..."], key: PRNGKeyArray, particle: Int[Array, ""]
    ) -> Float[Array, "D"]:
        return self.step(obs, action, key)

    def unfamiliar(self, obs: Float[Array, "D"]) -> Float[Array, ""]:
        """Always 0: the dynamics are exact everywhere."""
        return jnp.zeros(())
