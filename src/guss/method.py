"""The protocol of methods: how to learn and act."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
from jaxtyping import Array, Float, Key, PRNGKeyArray, PyTree, Shaped

from guss.types import Trajectory
from guss.validation import plain

Acted = tuple[Shaped[Array, "..."], PyTree, PyTree]
"""Returned by `act`: the action, the next carry, and values recorded for `update` (`Trajectory.aux`)."""
Learned = tuple[PyTree, dict[str, Any]]
"""The new state or states, and metrics."""


class Method(eqx.Module):
    """Learns and acts: planning in a learned model, or a policy. `guss run --method` selects one.

    Write it for one seed; a run applies it to all seeds at once. The state holds learned values, the carry holds values
    that change from step to step; both are pytrees of arrays. An iteration of a run is: `prepare`, then `num_envs`
    episodes of every seed (`begin`, then `act` at each step), then `update`. `task` and `capacity` are described below.

    Example:
        >>> class Still(guss.Method):
        ...     def init(self, key):
        ...         return ()
        ...     def act(self, state, carry, obs, key):
        ...         return self.task.fallback, carry, ()
        ...     def update(self, state, trajectory, key):
        ...         return state, {}
        >>> Still(guss.make_task("safe-toy")).num_envs
        1
    """

    task: Any
    """The Task for the method: with planning margins, and without functions that are learned."""

    capacity: int = eqx.field(static=True, kw_only=True, default=0)
    """Steps of a seed in the whole run; buffers of this length are padded with zeros when a run is extended."""

    phase: ClassVar[str] = "policy"
    """Name of episodes in which the method acts, in records."""
    explores_first: ClassVar[bool] = False
    """Whether the first episodes of a run have random actions."""
    plans: ClassVar[bool] = False
    """Whether it plans: then it has a planner, with a horizon and a budget."""
    model_based: ClassVar[bool] = False
    """Whether it learns a model: then it has fields `model`, `net` and `fit`."""
    safe: ClassVar[bool] = False
    """Whether it considers cost, and not only reward."""
    seed_by_seed: ClassVar[bool] = False
    """Whether seeds train one after another in one program: large networks of all seeds would exceed the CPU cache."""
    stores_all: ClassVar[bool] = False
    """Whether every episode of an iteration is stored step by step; otherwise only the first."""
    defaults: ClassVar[dict[str, Any]] = {}
    """Of a run, if neither a preset nor the user sets them: `episodes`, `initial_episodes`, a table `model`."""

    @property
    def num_envs(self) -> int:
        """E: episodes of a seed between two updates."""
        return 1

    @abstractmethod
    def init(self, key: PRNGKeyArray) -> PyTree:
        """The untrained state."""

    def begin(self, state: PyTree, key: PRNGKeyArray) -> PyTree:
        """The carry at the start of an episode."""
        return ()

    @abstractmethod
    def act(self, state: PyTree, carry: PyTree, obs: Float[Array, "D"], key: PRNGKeyArray) -> Acted:
        """The action, the next carry, and values recorded for `update` (`Trajectory.aux`)."""

    @abstractmethod
    def update(self, state: PyTree, trajectory: Trajectory, key: PRNGKeyArray) -> Learned:
        """The state after learning from any number of steps, [E, T, …], and metrics to log."""

    def acting(self, state: PyTree) -> PyTree:
        """The part of the state that `begin` and `act` receive: without buffers, whose size may change."""
        return state

    def deployed(self) -> Method:
        """The method that acts after training."""
        return self

    # For all seeds: every array has a leading axis S. Override these if seeds are not independent programs.

    def init_all(self, keys: Key[Array, "S"]) -> PyTree:
        """`init` for every seed."""
        return jax.jit(jax.vmap(self.init))(keys)

    def update_all(self, states: PyTree, trajectory: Trajectory, keys: Key[Array, "S"]) -> Learned:
        """`update` for every seed."""
        return for_all_seeds(self, "update", states, trajectory, keys)

    def update_alone(self, state: PyTree, trajectory: Trajectory, key: PRNGKeyArray) -> Learned:
        """`update_all` for one seed: the `update` of a method that overrides `update_all`."""
        alone = jax.tree.map(lambda x: x[None], (state, trajectory, key))
        return jax.tree.map(lambda x: x[0], self.update_all(*alone))

    def prepare(self, states: PyTree, keys: Key[Array, "S"], before: Callable[[str], Any] | None = None) -> Learned:
        """Work before the method acts, and after the last episode, such as fitting a model to stored data.

        Unlike `update`, it is not called between random episodes, and a run that is killed during it loses no episode.
        `before(program)` is called before each compiled program. Metrics may hold the `report` of a fit.
        """
        return states, {}

    def record(self, prepared: dict[str, Any], updated: dict[str, Any]) -> dict[str, Any]:
        """The metrics of `prepare` and `update` for timings.jsonl, as plain data; a policy logs those of `update`."""
        return {"policy": {name: plain(value) for name, value in updated.items()}} if updated else {}

    def prepared(self, states: PyTree) -> PyTree:
        """The part of the states that `prepare` changes, stored once more after the last episode; () if none."""
        return ()

    def examples(self, states: PyTree) -> list[list[Any]]:
        """For each seed, the examples of every learned cost in its data (`guss.models.unsafe_examples.Examples`)."""
        return []

    def ready(self, states: PyTree) -> bool:
        """Whether the method has learned enough to act."""
        return True

    def compile_ahead(
        self, ahead: Any, states: PyTree, keys: Key[Array, "S"], compile_acting: Callable[[], None]
    ) -> None:
        """Start compilation in threads (`guss.compilation.Ahead`) of `prepare`, of acting, then of other programs.

        `compile_acting()` starts compilation of the episodes or steps in which the method acts.
        """
        compile_acting()

    def compile_larger(self, ahead: Any, states: PyTree, keys: Key[Array, "S"]) -> None:
        """Start compilation for larger buffers, if the next episodes may fill the current ones."""


@partial(jax.jit, static_argnames="name")
def for_all_seeds(method: Method, name: str, *arguments: PyTree) -> Any:
    """Apply the method's function of that name to all seeds: at once, or one by one if `seed_by_seed`."""
    function = getattr(method, name)
    if method.seed_by_seed:
        return jax.lax.map(lambda mine: function(*mine), arguments)
    return jax.vmap(function)(*arguments)
