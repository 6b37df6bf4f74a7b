"""Several nets of one kind: where they disagree, the data say little. Plans are rolled out in all of them."""

from __future__ import annotations

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, Shaped

from guss.errors import GussError, UnknownNameError
from guss.models.evaluation import FitReport
from guss.models.mdn import MixtureNet
from guss.models.training import Data, FitSettings, Pace, fit
from guss.types import Model

PROPAGATION = ("member", "resampled")


class Ensemble(Model):
    """E nets, stacked. Each particle stays with one member, or meets a member drawn anew at every step."""

    members: MixtureNet  # every array with a leading axis E
    propagation: Literal["member", "resampled"] = eqx.field(static=True, default="member")

    @property
    def size(self) -> int:
        """E."""
        return self.members.layers[0].bias.shape[0]

    @property
    def num_particles(self) -> int:
        """One set of particles per member."""
        return self.size * self.members.num_particles

    def policy_inputs(self) -> tuple[Float[Array, "D"], Float[Array, "D"]]:
        """The members are fitted to the same data: the first one's scaling is everyone's."""
        return self.members.obs_scaling.mean[0], self.members.obs_scaling.std[0]

    def predict(
        self, obs: Float[Array, "D"], action: Shaped[Array, "..."], key: PRNGKeyArray, particle: Int[Array, ""]
    ) -> Float[Array, "D"]:
        """The next observation as one member sees it."""
        key_member, key_net = jax.random.split(key)
        if self.propagation == "member":
            which = particle % self.size
        else:
            which = jax.random.randint(key_member, (), 0, self.size)
        member = jax.tree.map(lambda x: x[which], self.members)
        return member.predict(obs, action, key_net, particle // self.size)

    def for_plans(self) -> tuple[Model, Literal[0] | None]:
        """Every particle's member, one after the other, if it stays with one."""
        if self.propagation == "resampled":
            return self, None
        members = jax.vmap(lambda member: member.for_plans()[0])(self.members)
        times = self.members.num_particles
        return (members if times == 1 else jax.tree.map(lambda x: jnp.concatenate([x] * times), members)), 0

    def by_the_mean(self) -> Ensemble:
        """Every member rolled out by its mean, each on its own."""
        return Ensemble(jax.vmap(MixtureNet.by_the_mean)(self.members), "member")


def make_ensemble(make: Any, key: PRNGKeyArray, size: int, propagation: str = "member") -> Ensemble:
    """`size` nets from `make(key)`, each with weights of its own."""
    if size < 1:
        raise GussError(f"an ensemble has at least 1 member, got {size}")
    if propagation not in PROPAGATION:
        raise UnknownNameError("propagation", propagation, PROPAGATION)
    return Ensemble(jax.vmap(make)(jax.random.split(key, size)), propagation)  # type: ignore[arg-type]


def fit_ensemble(
    model: Ensemble, fresh: Ensemble, data: Data, key: PRNGKeyArray, settings: FitSettings, pace: Pace | None = None
) -> tuple[Ensemble, FitReport]:
    """Fit every member to the same data with batches of its own; reports have a leading axis E."""
    keys: Key[Array, "E"] = jax.random.split(key, model.size)
    members, reports = jax.vmap(lambda m, f, k: fit(m, f, data, k, settings, pace))(model.members, fresh.members, keys)
    return Ensemble(members, model.propagation), reports


def disagreement(model: Ensemble, obs: Float[Array, "D"], action: Shaped[Array, "..."]) -> Float[Array, "D"]:
    """Standard deviation of the members' mean predictions: what more data would settle."""
    zero, key = jnp.zeros((), jnp.int32), jax.random.key(0)
    means = jax.vmap(lambda m: m.by_the_mean().predict(obs, action, key, zero))(model.members)
    return jnp.std(means, axis=0)
