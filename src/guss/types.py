"""Shared data types (trajectories, rollouts, scores), and the protocols Model and Planner.

Letters for array axes, the same in every file:

    D  size of an observation            N  candidates in one generation
    A  size of an action                 M  candidates in a whole plan (the budget)
    H  steps of a plan (the horizon)     C  constraints
    T  steps of an episode               B  dimensions of the behaviour descriptor
    S  seeds                             P  particles: ensemble members or samples of a stochastic model
    E  episodes of a seed                F  numbers of a description of behaviour

From guss, this module imports only spaces, fitting and errors.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from guss.errors import GussError
from guss.fitting import Data as Data
from guss.fitting import FitReport as FitReport
from guss.fitting import Pace as Pace
from guss.spaces import Actions as Actions
from guss.spaces import ContinuousActions as ContinuousActions
from guss.spaces import DiscreteActions as DiscreteActions
from guss.spaces import Observations as Observations

if TYPE_CHECKING:
    AnyArray = Any
else:
    AnyArray = jax.Array | np.ndarray  # on the host, and in compiled programs

WORST = float(jnp.finfo(jnp.float32).max)
"""Cost (and negative reward) of a plan with a non-finite prediction: worse than any other, but finite."""


class Interface(eqx.Module):
    """Inputs and outputs of a policy: observations (shifted and scaled) and actions. Planners receive only this."""

    obs_size: int = eqx.field(static=True)
    actions: Actions = eqx.field(static=True)
    obs_shift: Float[Array, "D"]
    obs_scale: Float[Array, "D"]
    descriptor_size: int = eqx.field(static=True, default=0)  # B


# ------------------------------------------------------------------------------------------------------ data types


class Transition(NamedTuple):
    """One step of the real system; `reward` or `cost` is None if the Task computes it.

    `obs` [D], `action` [A] (a scalar for a single discrete choice), `reward` [], `cost` [C] (one number for each
    constraint, 0 if satisfied) and `next_obs` [D]. Leading axes, such as N logged steps, may be added to every field.

    Example:
        >>> step = guss.Transition(obs=[0.0, 1.0], action=[0.5], reward=1.0, cost=[0.0], next_obs=[0.1, 1.0])
        >>> step.reward
        1.0
    """

    obs: Float[AnyArray, "*lead D"]
    action: Shaped[AnyArray, "..."]
    reward: Float[AnyArray, "*lead"]
    cost: Float[AnyArray, "*lead C"]
    next_obs: Float[AnyArray, "*lead D"]


class Trajectory(NamedTuple):
    """Steps of the real system: what collectors return, methods learn from and the store writes.

    Leading axes are seeds × episodes × time, [S, E, T]; `jax.tree.map` selects a seed, episode or step in all fields.
    `obs` […, D], `action` […, A], `reward` […], `cost` […, C] and `next_obs` […, D] are as in `Transition`. The masks
    `terminated`, `truncated`, `stopped`, `valid` and `learnable` […] mark the steps to which they apply. After the end
    of an episode, all fields are padding. `aux` holds the values that the method's `act` returned with each action.

    Example:
        >>> task = guss.make_task("safe-toy")
        >>> planner = guss.make_planner("random", task, horizon=1, budget=1)
        >>> keys = jax.random.split(jax.random.key(0), 2)
        >>> steps = guss.run_episodes(planner, guss.Oracle.of(task), task, keys, steps=3)
        >>> steps.obs.shape, steps.lengths.tolist()
        ((2, 1, 3, 2), [[3], [3]])
    """

    obs: Float[AnyArray, "*lead D"]
    action: Shaped[AnyArray, "..."]
    reward: Float[AnyArray, "*lead"]  # None if the data do not have it
    cost: Float[AnyArray, "*lead C"]  # None if the data do not have it
    next_obs: Float[AnyArray, "*lead D"]
    terminated: Bool[AnyArray, "*lead"]  # the system ended the episode with this step
    truncated: Bool[AnyArray, "*lead"]  # the episode ended with this step for another reason: time limit, failure
    stopped: Bool[AnyArray, "*lead"]  # a hard limit was violated in this step, which ended the episode
    valid: Bool[AnyArray, "*lead"]  # the step took place
    learnable: Bool[AnyArray, "*lead"]  # dynamics may be learned from it: valid, and not marked `info["skip"]`
    aux: PyTree = ()  # values that the method's `act` returned with the action; () if actions were random

    @property
    def done(self) -> Bool[AnyArray, "*lead"]:
        """The last step of an episode."""
        return self.terminated | self.truncated

    @property
    def lengths(self) -> Int[AnyArray, "*lead"]:
        """Steps of each episode, a sum over the time axis."""
        return self.valid.sum(axis=-1)


class Rollout(NamedTuple):
    """A predicted trajectory: `obs[t]` and `action[t]` led to `next_obs[t]`, t = 0 … H−1.

    `obs` and `next_obs` are [H, D], `action` is [H, A]; a `Plan` has a leading axis of P particles.

    Example:
        >>> path = guss.Rollout(obs=jnp.zeros((3, 2)), action=jnp.zeros((3, 1)), next_obs=jnp.ones((3, 2)))
        >>> path.next_obs[-1].tolist()
        [1.0, 1.0]
    """

    obs: Float[Array, "*lead H D"]
    action: Shaped[Array, "..."]
    next_obs: Float[Array, "*lead H D"]


class Outcomes(NamedTuple):
    """Predicted outcomes of one particle's trajectory of H steps.

    `reward` [H], `cost` [H, C], and the behaviour `descriptor` [B].

    Example:
        >>> found = guss.Outcomes(reward=jnp.ones(3), cost=jnp.zeros((3, 2)), descriptor=jnp.zeros(2))
        >>> float(found.reward.sum())
        3.0
    """

    reward: Float[Array, "*lead H"]
    cost: Float[Array, "*lead H C"]
    descriptor: Float[Array, "*lead B"]


class Scores(NamedTuple):
    """Scores of plans. Lower `hard`, then lower `cost`, then higher `reward` is better; all three are finite.

    All fields but the last are [N], one number for each plan. `cell` is the behaviour cell, `finite` is false if the
    prediction was not finite, `outside` is true if the descriptor lay outside the grid. `descriptor` [N, F] is what
    `Planner.describe` returned, by default None.

    Example:
        >>> zero, no = jnp.zeros(2), jnp.zeros(2, bool)
        >>> scores = guss.Scores(hard=zero, cost=jnp.array([0.0, 2.0]), reward=zero, cell=zero, finite=~no, outside=no)
        >>> scores.safe.tolist()
        [True, False]
    """

    hard: Float[Array, "*lead"]  # steps with a hard violation
    cost: Float[Array, "*lead"]  # c = Σ_i max(0, Σ_k C_i − l_i) over the soft constraints
    reward: Float[Array, "*lead"]  # sum over the plan
    cell: Int[Array, "*lead"]  # behaviour cell
    finite: Bool[Array, "*lead"]  # False: the prediction was not finite, the plan must not be chosen
    outside: Bool[Array, "*lead"]  # the descriptor lay outside the grid and was assigned to a border cell
    descriptor: Float[Array, "*lead F"] | None = None  # for planners that need more than the cell; finite

    @property
    def safe(self) -> Bool[Array, "*lead"]:
        """No cost and no hard violation."""
        return self.finite & (self.hard == 0.0) & (self.cost == 0.0)


# ------------------------------------------------------------------------------------------------- the protocols


class Model(eqx.Module):
    """Predicts the next state. A model is a pytree: its arrays may change without recompiling a plan.

    A learned model has three methods: `create` returns an untrained model, `fit` learns from transitions, `predict`
    returns the next state. Write them for one seed, one transition and one particle; `vmap` adds the other axes.
    Decorate the class with `guss.register_model("name")`; fields made with `guss.setting` become flags such as
    `--model.ridge`.

    A state is the observation itself, unless the model overrides `encode` and `decode` to store more information than
    one observation contains. `create` and `fit` raise GussError if a class does not override them.

    Example:
        >>> class Still(guss.Model):
        ...     def predict(self, state, action, key, particle):
        ...         return state
        >>> Still.learns(), Still().num_particles
        (False, 1)
    """

    Settings: ClassVar[Any] = None
    """Dataclass of the model's settings (`guss.models.settings`); None: created with a field for each `setting`."""

    @classmethod
    def create(cls, task: Any, key: PRNGKeyArray, **settings: Any) -> Model:
        """An untrained model for a Task. `settings`: a value for each of the model's settings."""
        raise GussError(f"the model {cls.__name__} has no `create(task, key, **settings)`: add one to use it by name")

    @classmethod
    def learns(cls) -> bool:
        """Whether the class overrides `fit`. If it does not, the model is used as `create` returns it."""
        return cls.fit is not Model.fit

    def fit(self, fresh: Any, data: Data, key: PRNGKeyArray, settings: Any, pace: Pace) -> tuple[Model, FitReport]:
        """Fit to the transitions of one seed (TRAIN of Alg. 1); return the fitted model and a report on it.

        `fresh` is the untrained model, to start from if `settings.warm_start` is false. `settings` are FitSettings,
        `guss.models.training.split_rows(data, settings)` returns the rows to train on and those to hold out, and
        `guss.models.evaluation.evaluate_model` creates the report. `pace` limits gradient training; a closed-form fit
        ignores it. The fitted model has the same structure and shapes as this one.
        """
        raise GussError(f"the model {type(self).__name__} has no `fit`: it cannot learn from data")

    @property
    def num_particles(self) -> int:
        """P: predictions per plan (ensemble members, or samples of a stochastic model); 1 if deterministic."""
        return 1

    @property
    def plain_state(self) -> bool:
        """Whether a state is just an observation."""
        return type(self).encode is Model.encode

    def encode(self, obs: Float[Array, "D"]) -> PyTree:
        """The state for an observation."""
        return obs

    def decode(self, state: PyTree) -> Float[Array, "D"]:
        """The observation of a state."""
        return state

    @abstractmethod
    def predict(
        self, state: PyTree, action: Shaped[Array, "..."], key: PRNGKeyArray, particle: Int[Array, ""]
    ) -> PyTree:
        """The next state, for one particle (0 … P − 1) of one plan. All plans of a search use the same keys."""

    def outcomes(self, task: Any, rollout: Rollout) -> Outcomes:
        """Reward, cost and descriptor of a predicted trajectory [H, …], by the Task's functions unless learned."""
        return task.outcomes(rollout)

    def unfamiliar(self, obs: Float[Array, "D"]) -> Float[Array, ""] | None:
        """1 if an observation is far from all training data, else 0; None: the model does not support this."""
        return None

    def prepare(self) -> tuple[Model, Literal[0] | None]:
        """The model in the layout for rollouts, and the particle axis of its arrays.

        Called once per plan. Override it if predictions are faster in another layout. None: all particles share the
        arrays.
        """
        return self, None

    def policy_inputs(self) -> tuple[Float[Array, "D"], Float[Array, "D"]] | None:
        """Shift and scale that standardise observations; None if the model was fitted to no observations."""
        return None

    def mean_model(self) -> Model:
        """A copy without noise, with one particle per ensemble member, to evaluate predictions."""
        return self

    def as_ensemble(self, ensemble: Callable[[Model], Model]) -> Model:
        """This model as an ensemble, in which every array has a leading axis of members: `ensemble(self)`.

        Override it if only a part of the model should differ between members.
        """
        return ensemble(self)


def setting(default: Any, help: str) -> Any:
    """A setting of a planner, method or model: a static field that becomes a flag, such as `--model.ridge`.

    `default`: the default value, of the annotated type. `help`: a sentence for `guss list --settings`. Returns the
    value to assign to a field in the class body.

    Example:
        >>> class Flat(guss.Model):
        ...     width: float = guss.setting(0.5, "half-width of the plateau")
        ...     def predict(self, state, action, key, particle):
        ...         return state
        >>> Flat(width=2.0).width
        2.0
    """
    return eqx.field(static=True, default=default, kw_only=True, metadata={"help": help})


def settings_of(cls: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    """The fields of a class made with `setting`, by name: default in `.default`, a sentence in `.metadata["help"]`."""
    return {f.name: f for f in dataclasses.fields(cls) if "help" in f.metadata}


class Planner(eqx.Module):
    """Chooses actions. Subclass it, add settings and write the methods for one state; the engine runs the search.

    The engine compiles a whole plan: `init`, then per generation `ask` → roll out with `act` → `tell`, then `best`.
    A generation is a pytree of candidates with a leading axis N. Planners that reuse results in the next
    plan store them in a `memory`. `interface`: the Task's observations and actions. `horizon`: H. `budget`: M. Raises
    GussError if the sizes in `schedule` do not sum to the budget. `examples/own_planner.py` is a complete planner.

    Example:
        >>> planner = guss.make_planner("guss", guss.make_task("safe-toy"), horizon=5, budget=100)
        >>> isinstance(planner, guss.Planner), sum(planner.schedule(100))
        (True, 100)
    """

    interface: Interface
    horizon: int = eqx.field(static=True, kw_only=True)
    budget: int = eqx.field(static=True, kw_only=True)

    objective: ClassVar[Literal["nothing", "reward", "penalty", "cost"]]
    """What the planner optimises: nothing (random actions), only reward, reward minus a penalty on cost (after hard
    violations), or cost first and reward second."""
    over_particles: ClassVar[str] = "worst"
    """The risk measure that aggregates a plan's cost over particles, unless the Task has one: worst, mean, …"""

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
        """The random input of `ask`: the key itself, or random numbers drawn from it.

        The numbers cannot depend on the state, so the engine draws those of many generations at once, which is much
        faster than drawing in each generation.
        """
        return key

    @abstractmethod
    def ask(self, state: PyTree, draws: PyTree, num: int) -> PyTree:
        """The next generation: `num` candidates. `draws` is the result of `Planner.draws`, by default a key."""

    @abstractmethod
    def act(self, candidate: PyTree, obs: Float[Array, "D"], t: Int[Array, ""]) -> Shaped[Array, "..."]:
        """The action of one candidate at step `t` of a plan."""

    def describe(self, rollout: Rollout, descriptor: Float[Array, "B"]) -> Float[Array, "F"] | None:
        """`Scores.descriptor` of one plan, from its rollout [P, H, …] and the task's descriptor; None: not needed."""
        return None

    @abstractmethod
    def tell(self, state: PyTree, candidates: PyTree, scores: Scores) -> PyTree:
        """The state after a generation was scored."""

    @abstractmethod
    def best(self, state: PyTree) -> PyTree:
        """The candidate to execute."""

    def best_scores(self, state: PyTree) -> Scores | None:
        """The scores of `best` if the search evaluated it; None: the engine rolls it out once more."""
        return None

    def reserve(self, state: PyTree) -> PyTree | None:
        """A second candidate, for planners whose `best` was not evaluated (the mean of a distribution).

        The engine executes it if the prediction of `best` is not finite, or, for planners that consider or penalise
        cost, if `best` is predicted to be less safe.
        """
        return None

    def first_memory(self) -> PyTree:
        """The memory that `init` receives for the first plan of an episode."""
        return ()

    def memory(self, state: PyTree) -> PyTree:
        """The memory that `init` receives for the next plan; same structure as `first_memory`."""
        return ()

    @property
    def keeps_archive(self) -> bool:
        """Whether the search state is an archive with the best plan of each behaviour cell."""
        return False

    def occupancy(self, state: PyTree) -> Int[Array, ""]:
        """Filled cells of the archive, or the size of the population; 0 for a planner without either."""
        return jnp.zeros((), jnp.int32)
