"""Random actions: the baseline of all methods (the dashed line of Fig. 3)."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from guss.method import Acted, Learned, Method
from guss.types import Trajectory


class RandomActions(Method):
    """Independent uniform random actions; nothing is learned."""

    phase: ClassVar[str] = "random"
    explores_first: ClassVar[bool] = True
    stores_all: ClassVar[bool] = True

    def init(self, key: PRNGKeyArray) -> PyTree:
        return ()

    def act(self, state: PyTree, carry: PyTree, obs: Float[Array, "D"], key: PRNGKeyArray) -> Acted:
        return self.task.actions.sample(key, ()), carry, ()

    def update(self, state: PyTree, trajectory: Trajectory, key: PRNGKeyArray) -> Learned:
        """Nothing is learned."""
        return state, {}
