"""The words everything else is written in: rollouts, scores, and what a Model and a Planner must do.

Letters for array axes, the same in every file:

    D  size of an observation            N  candidates in one generation
    A  size of an action                 M  candidates in a whole plan (the budget)
    H  steps of a plan (the horizon)     C  constraints
    T  steps of an episode               B  dimensions of the behaviour descriptor
    S  seeds                             P  particles: ensemble members or samples of a stochastic model

This module imports nothing of ours but spaces and errors.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from guss.errors import GussError
from guss.spaces import Actions as Actions
from guss.spaces import ContinuousActions as ContinuousActions
from guss.spaces import DiscreteActions as DiscreteActions
from guss.spaces import Observations as Observations

WORST = float(jnp.finfo(jnp.float32).max)
"""Cost (and minus the reward) of a plan whose prediction is not finite: worse than any other, and finite itself."""


class Interface(eqx.Module):
    """The two ends of a policy: observations in (shifted and scaled), actions out. All a planner knows of a task."""

    obs_size: int = eqx.field(static=True)
    actions: Actions = eqx.field(static=True)
    obs_shift: Float[Array, "D"]
    obs_scale: Float[Array, "D"]


# ------------------------------------------------------------------------------------------ what passes between parts


class Transition(NamedTuple):
    """What one step of the real system showed. Leading axes (T, S) may be added to every field."""

    obs: Float[Array, "*lead D"]
    action: Shaped[Array, "..."]
    reward: Float[Array, "*lead"]
    cost: Float[Array, "*lead C"]
    next_obs: Float[Array, "*lead D"]


class Rollout(NamedTuple):
    """A predicted trajectory: `obs[t]` and `action[t]` led to `next_obs[t]`, t = 0 … H−1."""

    obs: Float[Array, "*lead H D"]
    action: Shaped[Array, "..."]
    next_obs: Float[Array, "*lead H D"]


class Judged(NamedTuple):
    """What a predicted trajectory of one particle is worth, step by step, and what kind of behaviour it is."""

    reward: Float[Array, "*lead H"]
    cost: Float[Array, "*lead H C"]
    descriptor: Float[Array, "*lead B"]


class Scores(NamedTuple):
    """What planners compare. Lower `hard`, then lower `cost`, then higher `reward` is better; all three are finite."""

    hard: Float[Array, "*lead"]  # steps with a hard violation
    cost: Float[Array, "*lead"]  # c = Σ_i max(0, Σ_k C_i − l_i) over the soft constraints
    reward: Float[Array, "*lead"]  # sum over the plan
    cell: Int[Array, "*lead"]  # behaviour cell
    finite: Bool[Array, "*lead"]  # False: the prediction was not finite, the plan must not be chosen
    outside: Bool[Array, "*lead"]  # the descriptor lay beyond its bounds and was put in a border cell

    @property
    def safe(self) -> Bool[Array, "*lead"]:
        """No cost and no hard violation."""
        return self.finite & (self.hard == 0.0) & (self.cost == 0.0)


# ------------------------------------------------------------------------------------------------- the protocols


class Model(eqx.Module):
    """What will happen. A model is a pytree: its arrays may change without recompiling a plan.

    Predictions go from state to state. The state is the observation itself, unless the model overrides `start` and
    `seen` to keep more in mind than can be observed at once.
    """

    @property
    def num_particles(self) -> int:
        """P: predictions per plan (ensemble members, or samples of a stochastic model); 1 if deterministic."""
        return 1

    @property
    def plain_state(self) -> bool:
        """Whether a state is an observation and nothing more."""
        return type(self).start is Model.start

    def start(self, obs: Float[Array, "D"]) -> PyTree:
        """The state that an observation tells of."""
        return obs

    def seen(self, state: PyTree) -> Float[Array, "D"]:
        """What is observed of a state."""
        return state

    @abstractmethod
    def predict(
        self, state: PyTree, action: Shaped[Array, "..."], key: PRNGKeyArray, particle: Int[Array, ""]
    ) -> PyTree:
        """The next state, for one particle of one plan. All plans of a search see the same keys."""

    def judge(self, task: Any, rollout: Rollout) -> Judged:
        """What a predicted trajectory [H, …] is worth: as the Task says, unless the model has learned it."""
        return task.judge(rollout)

    def unfamiliar(self, obs: Float[Array, "D"]) -> Float[Array, ""] | None:
        """1 where a state is far from everything the model was fitted to, else 0; None: the model cannot say."""
        return None

    def for_plans(self) -> tuple[Model, Literal[0] | None]:
        """The model as plans roll it out, made once per plan; and the axis of its arrays along which particles lie.

        Override it where predictions are quicker in another layout. No axis: all particles share the arrays.
        """
        return self, None

    def policy_inputs(self) -> tuple[Float[Array, "D"], Float[Array, "D"]] | None:
        """Shift and scale that standardise observations, where the model was fitted to some."""
        return None

    def by_the_mean(self) -> Model:
        """The same model without its noise, one particle for each opinion: for judging its predictions."""
        return self


def setting(default: Any, help: str) -> Any:
    """A planner's setting: a static field with a sentence that `guss list --planner` and errors can show."""
    return eqx.field(static=True, default=default, kw_only=True, metadata={"help": help})


class Planner(eqx.Module):
    """What to do now. Subclass it, add settings, write five functions for one state; the engine does the rest.

    The engine compiles a whole plan: `init`, then per generation `ask` → roll out with `act` → `tell`, then `best`.
    A generation is a pytree of candidates with a leading axis N. Planners that learn from one plan to the next keep
    what they need in a `memory`.
    """

    interface: Interface
    horizon: int = eqx.field(static=True, kw_only=True)
    budget: int = eqx.field(static=True, kw_only=True)

    judges: ClassVar[Literal["nothing", "reward", "penalty", "cost"]]
    """What the planner looks at: nothing (acts blindly), reward alone, reward less a price on cost (hard violations
    first), or cost first and reward second."""
    keeps_archive: ClassVar[bool] = False
    """Whether the search state is an archive with the best plan of each behaviour cell."""
    over_particles: ClassVar[Literal["worst", "mean"]] = "worst"
    """How a plan's cost is counted where particles differ: by the worst of them, or by their mean."""

    def __check_init__(self) -> None:
        if self.horizon < 1:
            raise GussError(f"the horizon must be at least 1 step, got {self.horizon}")
        if self.budget < 1:
            raise GussError(f"the budget must be at least 1 plan, got {self.budget}")
        sizes = self.schedule(self.budget)
        if sum(sizes) != self.budget or min(sizes) < 1:
            raise GussError(
                f"{type(self).__name__}.schedule({self.budget}) must return generation sizes of at least 1 that sum "
                f"to the budget, got {sizes} with sum {sum(sizes)}"
            )

    @abstractmethod
    def schedule(self, budget: int) -> tuple[int, ...]:
        """Sizes of the generations; they sum to the budget."""

    @abstractmethod
    def init(self, key: PRNGKeyArray, obs: Float[Array, "D"], memory: PyTree) -> PyTree:
        """The search state before the first generation."""

    def draws(self, key: PRNGKeyArray, num: int) -> PyTree:
        """What `ask` is given for chance: the key itself, or random numbers drawn from it.

        They cannot depend on the state, so the engine draws those of many generations at once, which is far quicker
        than a little in each.
        """
        return key

    @abstractmethod
    def ask(self, state: PyTree, draws: PyTree, num: int) -> PyTree:
        """The next generation: `num` candidates. `draws` is a random key, or what the planner's own `draws` made."""

    @abstractmethod
    def act(self, candidate: PyTree, obs: Float[Array, "D"], t: Int[Array, ""]) -> Shaped[Array, "..."]:
        """The action of one candidate at step `t` of a plan."""

    @abstractmethod
    def tell(self, state: PyTree, candidates: PyTree, scores: Scores) -> PyTree:
        """The state after a generation was scored."""

    @abstractmethod
    def best(self, state: PyTree) -> PyTree:
        """The candidate to act with."""

    def worth(self, state: PyTree) -> Scores | None:
        """The scores of `best` where they are known as evaluated; otherwise it is rolled out once more."""
        return None

    def reserve(self, state: PyTree) -> PyTree | None:
        """A second candidate, for planners whose `best` is not one of those evaluated (the mean of a distribution).

        The engine acts with it if the best one's prediction is not finite, or, for planners that judge cost or put
        a price on it, if the best one is predicted to be less safe.
        """
        return None

    def first_memory(self) -> PyTree:
        """What `init` is given for the first plan of an episode."""
        return ()

    def memory(self, state: PyTree) -> PyTree:
        """What `init` is given for the next plan; same structure as `first_memory`."""
        return ()

    def occupancy(self, state: PyTree) -> Int[Array, ""]:
        """Filled cells of the archive; 0 for a planner without one."""
        return jnp.zeros((), jnp.int32)
