"""Ensembles of models: their disagreement indicates a lack of data. Plans are rolled out in all members."""

from __future__ import annotations

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree, Shaped

from guss.models.training import FitSettings
from guss.types import Data, FitReport, Model, Outcomes, Pace, Rollout

Propagation = Literal["member", "resampled"]


class Ensemble(Model):
    """E stacked models. One member predicts all steps of a particle, or a random member predicts each step.

    States, outcomes and policy inputs are common to all members; those of the first member are used.
    """

    members: Model  # every array with a leading axis E
    propagation: Propagation = eqx.field(static=True, default="member")

    @property
    def size(self) -> int:
        return jax.tree.leaves(self.members)[0].shape[0]

    def member(self, index: Int[Array, ""] | int) -> Model:
        return jax.tree.map(lambda x: x[index], self.members)

    @property
    def num_particles(self) -> int:
        """One set of particles per member."""
        return self.size * self.members.num_particles

    @property
    def plain_state(self) -> bool:
        return self.members.plain_state

    def encode(self, obs: Float[Array, "D"]) -> PyTree:
        return self.member(0).encode(obs)

    def decode(self, state: PyTree) -> Float[Array, "D"]:
        return self.member(0).decode(state)

    def outcomes(self, task: Any, rollout: Rollout) -> Outcomes:
        return self.member(0).outcomes(task, rollout)

    def policy_inputs(self) -> tuple[Float[Array, "D"], Float[Array, "D"]] | None:
        """Those of the first member: all members are fitted to the same data."""
        return self.member(0).policy_inputs()

    def predict(
        self, state: PyTree, action: Shaped[Array, "..."], key: PRNGKeyArray, particle: Int[Array, ""]
    ) -> PyTree:
        """The next state that one member predicts."""
        key_member, key_net = jax.random.split(key)
        if self.propagation == "member":
            which = particle % self.size
        else:
            which = jax.random.randint(key_member, (), 0, self.size)
        return self.member(which).predict(state, action, key_net, particle // self.size)

    def unfamiliar(self, obs: Float[Array, "D"]) -> Float[Array, ""] | None:
        """The maximum over members."""
        each = jax.vmap(lambda member: member.unfamiliar(obs))(self.members)
        return None if each is None else jnp.max(each)

    def prepare(self) -> tuple[Model, Literal[0] | None]:
        """The members prepared for planning, one for each particle, if particles stay with their member."""
        if self.propagation == "resampled":
            return self, None
        axes: list[Literal[0] | None] = []

        def layout(member: Model) -> Model:
            prepared, axis = member.prepare()
            axes.append(axis)
            return prepared

        members, times = jax.vmap(layout)(self.members), self.members.num_particles
        if axes[0] == 0:  # each particle of a member has its own arrays, [E, P, …]
            return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:]), members), 0
        return (members if times == 1 else jax.tree.map(lambda x: jnp.concatenate([x] * times), members)), 0

    def mean_model(self) -> Ensemble:
        """The ensemble of the members' mean models."""
        return Ensemble(jax.vmap(lambda member: member.mean_model())(self.members), "member")

    def fit(
        self, fresh: Any, data: Data, key: PRNGKeyArray, settings: FitSettings, pace: Pace
    ) -> tuple[Ensemble, FitReport]:
        """Fit every member to the same data with its own random key; the report is the mean over members."""
        keys: Key[Array, "E"] = jax.random.split(key, self.size)
        fit = lambda member, fresh, key: member.fit(fresh, data, key, settings, pace)  # noqa: E731
        members, reports = jax.vmap(fit)(self.members, fresh.members, keys)
        report = jax.tree.map(lambda x: jnp.mean(x.astype(jnp.float32), axis=0), reports)
        return Ensemble(members, self.propagation), report._replace(diverged=jnp.any(reports.diverged, axis=0))


def make_ensemble(make: Any, key: PRNGKeyArray, size: int, propagation: Propagation = "member") -> Model:
    """An ensemble of `size` models made by `make(key)`, each with its own initial weights."""
    stacked: Model = jax.vmap(make)(jax.random.split(key, size))
    return stacked.as_ensemble(lambda members: Ensemble(members, propagation))
