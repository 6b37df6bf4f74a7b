"""A body that moves among things that stay where they are: its own motion is learned, the rest is geometry.

Where a sensor sees a thing from next follows from how the body moved. A net that is to find that out for every reading
needs far more data than the body's motion itself (docs/car.md has figures). A Task says what is known of its sensors in
`surroundings`; places are read from the observation once, at a plan's start, and then only moved.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from guss.errors import GussError
from guss.models import register_model
from guss.models.ensemble import Ensemble
from guss.models.evaluation import FitReport, r_squared
from guss.models.mdn import MixtureNet, net_of_size
from guss.models.scaling import Scaling
from guss.models.training import Data
from guss.task import Surroundings, Task
from guss.types import Model


class Around(NamedTuple):
    """A state: what the body senses of itself, and where things are in its frame."""

    own: Float[Array, "O"]
    places: Float[Array, "K more"]


class Egocentric(Model):
    """A learned model of the body alone, and the task's geometry of what it sees."""

    net: Model  # of the own dimensions: a MixtureNet or an Ensemble
    obs_scaling: Scaling | None  # of whole observations; None in the layout for plans
    surroundings: Surroundings = eqx.field(static=True)

    @classmethod
    def of(cls, task: Task, net: MixtureNet | Ensemble) -> Egocentric:
        """From a net of the body alone."""
        return cls(net, Scaling.identity(task.observations.size), _known(task))

    @property
    def num_particles(self) -> int:
        """The net's."""
        return self.net.num_particles

    def start(self, obs: Float[Array, "D"]) -> Around:
        """Read the places from the observation."""
        return Around(self._own(obs), self.surroundings.places(obs))

    def seen(self, state: Around) -> Float[Array, "D"]:
        """What the sensors say of it."""
        return self.surroundings.sight(state.own, state.places)

    def predict(
        self, state: Around, action: Shaped[Array, "..."], key: PRNGKeyArray, particle: Int[Array, ""]
    ) -> Around:
        """Move the body as the net says, and the places the other way."""
        own = self.net.predict(state.own, action, key, particle)
        return Around(own, moved(state.places, self.surroundings.motion(state.own, own)))

    def _own(self, obs: Float[Array, "... D"]) -> Float[Array, "... O"]:
        return obs[..., jnp.asarray(self.surroundings.own)]

    def for_plans(self) -> tuple[Model, Literal[0] | None]:
        """The net's own layout."""
        net, axis = self.net.for_plans()
        return Egocentric(net, None, self.surroundings), axis

    def by_the_mean(self) -> Egocentric:
        """The net by its mean."""
        return dataclasses.replace(self, net=self.net.by_the_mean())

    def policy_inputs(self) -> tuple[Float[Array, "D"], Float[Array, "D"]]:
        """The training data's mean and standard deviation."""
        assert self.obs_scaling is not None
        return self.obs_scaling.mean, self.obs_scaling.std

    # -------------------------------------------------------------------------------------------------------- fitting

    def own_data(self, data: Data) -> Data:
        """The part of the data that the net learns from."""
        return data._replace(obs=self._own(data.obs), next_obs=self._own(data.next_obs))

    def fitted(
        self, net: Model, report: FitReport, data: Data, held_out: Bool[Array, "rows"]
    ) -> tuple[Egocentric, FitReport]:
        """This model with a fitted net; the report's R² is of all dimensions, its NLL and KS of the net's."""
        filled = data.use & (jnp.arange(data.use.shape[0]) < data.filled)
        model = dataclasses.replace(self, net=net, obs_scaling=Scaling.of(data.obs, filled & ~held_out))
        mean = model.by_the_mean()
        key, members = jax.random.key(0), jnp.arange(mean.num_particles, dtype=jnp.int32)

        def change(obs: Array, action: Array) -> Array:
            state = mean.start(obs)
            each = jax.vmap(lambda member: mean.seen(mean.predict(state, action, key, member)))(members)
            return jnp.mean(each, axis=0) - obs

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


def make_own_net(task: Task, key: PRNGKeyArray, **settings: Any) -> MixtureNet:
    """An untrained net of what the body senses of itself."""
    return net_of_size(len(_known(task).own), task.actions, key, autoregressive=False, **settings)


@register_model("egocentric", paper="beyond")
def make_egocentric(task: Task, key: PRNGKeyArray, **settings: Any) -> Egocentric:
    """A DMDN of the body's own motion; what it sees of still surroundings follows by geometry."""
    return Egocentric.of(task, make_own_net(task, key, **settings))
