"""Egocentric model: a net predicts the motion of a body, geometry its sensor readings of static objects.

The next readings of static objects follow from the motion of the body. A net that predicts every reading needs far
more data than one that predicts the motion (docs/car.md has figures). `Task.surroundings` describes the sensors. The
model reads the objects' places from the observation once, at the start of a plan, and then only transforms them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from guss.errors import GussError
from guss.models import register_model
from guss.models.evaluation import mean_prediction, r_squared
from guss.models.mdn import DMDN
from guss.models.scaling import Scaling
from guss.models.settings import ModelSettings
from guss.models.training import FitSettings, split_rows
from guss.task import Surroundings, Task
from guss.types import Data, FitReport, Model, Pace


class Around(NamedTuple):
    """A state: the body's own dimensions of the observation, and the places of objects in the body's frame."""

    own: Float[Array, "O"]
    places: Float[Array, "K more"]


@register_model("egocentric", paper="–")
class Egocentric(Model):
    """A DMDN of the body's own motion; geometry predicts the observations of static objects."""

    Settings: ClassVar = ModelSettings

    net: Model  # predicts the own dimensions
    obs_scaling: Scaling | None  # of whole observations; None after `prepare`
    surroundings: Surroundings = eqx.field(static=True)

    @classmethod
    def create(cls, task: Task, key: PRNGKeyArray, **settings: Any) -> Egocentric:
        """An untrained net of the own dimensions, with the task's geometry."""
        known = _known(task)
        net = DMDN.of_size(len(known.own), task.actions, key, **settings)
        return cls(net, Scaling.identity(task.observations.size), known)

    def as_ensemble(self, ensemble: Callable[[Model], Model]) -> Egocentric:
        """Members differ only in the net."""
        first = jax.tree.map(lambda x: x[0], self.obs_scaling)
        return dataclasses.replace(self, net=ensemble(self.net), obs_scaling=first)

    @property
    def num_particles(self) -> int:
        return self.net.num_particles

    def encode(self, obs: Float[Array, "D"]) -> Around:
        """Read the objects' places from the observation."""
        return Around(self._own(obs), self.surroundings.places(obs))

    def decode(self, state: Around) -> Float[Array, "D"]:
        return self.surroundings.sight(state.own, state.places)

    def predict(
        self, state: Around, action: Shaped[Array, "..."], key: PRNGKeyArray, particle: Int[Array, ""]
    ) -> Around:
        """Move the body as the net predicts, and transform the places into its new frame."""
        own = self.net.predict(state.own, action, key, particle)
        return Around(own, moved(state.places, self.surroundings.motion(state.own, own)))

    def _own(self, obs: Float[Array, "... D"]) -> Float[Array, "... O"]:
        return obs[..., jnp.asarray(self.surroundings.own)]

    def prepare(self) -> tuple[Model, Literal[0] | None]:
        """The model with its net prepared for planning."""
        net, axis = self.net.prepare()
        return Egocentric(net, None, self.surroundings), axis

    def mean_model(self) -> Egocentric:
        """The model with the net's mean model."""
        return dataclasses.replace(self, net=self.net.mean_model())

    def policy_inputs(self) -> tuple[Float[Array, "D"], Float[Array, "D"]]:
        """The training data's mean and standard deviation."""
        assert self.obs_scaling is not None
        return self.obs_scaling.mean, self.obs_scaling.std

    # -------------------------------------------------------------------------------------------------------- fitting

    def fit(
        self, fresh: Any, data: Data, key: PRNGKeyArray, settings: FitSettings, pace: Pace
    ) -> tuple[Egocentric, FitReport]:
        """Fit the net to the own dimensions; the report has R² of all dimensions, NLL and KS of the own ones."""
        own = data._replace(obs=self._own(data.obs), next_obs=self._own(data.next_obs))
        net, report = self.net.fit(fresh.net, own, key, settings, pace)
        held_out = split_rows(data, settings)[1]
        filled = data.use & (jnp.arange(data.use.shape[0]) < data.filled)
        model = dataclasses.replace(self, net=net, obs_scaling=Scaling.of(data.obs, filled & ~held_out))
        change = lambda obs, action: mean_prediction(model, obs, action) - obs  # noqa: E731
        r2 = r_squared(data.next_obs - data.obs, jax.vmap(change)(data.obs, data.action), held_out)
        ks = jnp.full(r2.shape, jnp.nan).at[jnp.asarray(self.surroundings.own)].set(report.ks)
        return model, report._replace(r2=r2, ks=ks)


def moved(places: Float[Array, "K more"], motion: Float[Array, "3"]) -> Float[Array, "K more"]:
    """Places in the body's frame after it moved by (dx, dy) and turned."""
    dx, dy, turn = motion
    x, y = places[:, 0] - dx, places[:, 1] - dy
    cos, sin = jnp.cos(turn), jnp.sin(turn)
    return jnp.concatenate([jnp.stack([cos * x + sin * y, cos * y - sin * x], axis=1), places[:, 2:]], axis=1)


def _known(task: Task) -> Surroundings:
    if task.surroundings is None:
        raise GussError(
            f"the model 'egocentric' needs the surroundings of task {task.name!r}, which defines none: "
            f"pass Task(…, surroundings=Surroundings(own, motion, places, sight))"
        )
    return task.surroundings
