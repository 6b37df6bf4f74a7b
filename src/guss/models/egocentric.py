"""A body that moves among things that stay where they are: its own motion is learned, the rest is geometry.

Where a sensor sees a thing from next follows from how the body moved. A net that is to find that out for every reading
needs far more data than the body's motion itself (docs/car.md has figures). A Task says what is known of its sensors in
`surroundings`; places are read from the observation once, at a plan's start, and then only moved.
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
    """A state: what the body senses of itself, and where things are in its frame."""

    own: Float[Array, "O"]
    places: Float[Array, "K more"]


@register_model("egocentric", paper="beyond")
class Egocentric(Model):
    """A DMDN of the body's own motion; what it sees of still surroundings follows by geometry."""

    Settings: ClassVar = ModelSettings

    net: Model  # of the own dimensions
    obs_scaling: Scaling | None  # of whole observations; None in the layout for plans
    surroundings: Surroundings = eqx.field(static=True)

    @classmethod
    def create(cls, task: Task, key: PRNGKeyArray, **settings: Any) -> Egocentric:
        """An untrained net of the body alone, with the task's geometry."""
        known = _known(task)
        net = DMDN.of_size(len(known.own), task.actions, key, **settings)
        return cls(net, Scaling.identity(task.observations.size), known)

    def as_ensemble(self, ensemble: Callable[[Model], Model]) -> Egocentric:
        """Members differ in the net alone."""
        first = jax.tree.map(lambda x: x[0], self.obs_scaling)
        return dataclasses.replace(self, net=ensemble(self.net), obs_scaling=first)

    @property
    def num_particles(self) -> int:
        return self.net.num_particles

    def encode(self, obs: Float[Array, "D"]) -> Around:
        """Read the places from the observation."""
        return Around(self._own(obs), self.surroundings.places(obs))

    def decode(self, state: Around) -> Float[Array, "D"]:
        return self.surroundings.sight(state.own, state.places)

    def predict(
        self, state: Around, action: Shaped[Array, "..."], key: PRNGKeyArray, particle: Int[Array, ""]
    ) -> Around:
        """Move the body as the net predicts, and the places the other way."""
        own = self.net.predict(state.own, action, key, particle)
        return Around(own, moved(state.places, self.surroundings.motion(state.own, own)))

    def _own(self, obs: Float[Array, "... D"]) -> Float[Array, "... O"]:
        return obs[..., jnp.asarray(self.surroundings.own)]

    def prepare(self) -> tuple[Model, Literal[0] | None]:
        """The net in its layout."""
        net, axis = self.net.prepare()
        return Egocentric(net, None, self.surroundings), axis

    def mean_model(self) -> Egocentric:
        """With the net's mean model."""
        return dataclasses.replace(self, net=self.net.mean_model())

    def policy_inputs(self) -> tuple[Float[Array, "D"], Float[Array, "D"]]:
        """The training data's mean and standard deviation."""
        assert self.obs_scaling is not None
        return self.obs_scaling.mean, self.obs_scaling.std

    # -------------------------------------------------------------------------------------------------------- fitting

    def fit(
        self, fresh: Any, data: Data, key: PRNGKeyArray, settings: FitSettings, pace: Pace
    ) -> tuple[Egocentric, FitReport]:
        """Fit the net to the own dimensions; the report's R² is of all dimensions, its NLL and KS of the net's."""
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
    """Places as they are seen after the body moved by (dx, dy) and turned."""
    dx, dy, turn = motion
    x, y = places[:, 0] - dx, places[:, 1] - dy
    cos, sin = jnp.cos(turn), jnp.sin(turn)
    return jnp.concatenate([jnp.stack([cos * x + sin * y, cos * y - sin * x], axis=1), places[:, 2:]], axis=1)


def _known(task: Task) -> Surroundings:
    if task.surroundings is None:
        raise GussError(
            f"the model 'egocentric' needs to know how task {task.name!r} senses its surroundings: "
            f"Task(…, surroundings=Surroundings(own, motion, places, sight))"
        )
    return task.surroundings
