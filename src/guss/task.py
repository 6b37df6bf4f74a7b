"""The Task: reward, constraints and behaviour descriptor of a system.

A Task is a pytree. Its functions are static and their parameters are array leaves, so a parameter can change between
plans without recompilation. Equal Tasks share compiled programs, if their functions are defined at module level; a
lambda that is recreated for each Task causes a new compilation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from guss.constraint import Constraint, Function, as_function, changed_parameter
from guss.errors import GussError, UnknownNameError
from guss.grid import Grid as Grid
from guss.grid import Vector, learned_grid
from guss.risk_measures import RiskMeasure
from guss.spaces import check_smooth
from guss.surroundings import Surroundings as Surroundings
from guss.types import Actions, Interface, Observations, Outcomes, Rollout
from guss.validation import convert

LEARNABLE = ("reward", "cost", "behaviour")
END = "end of an episode"


class Task(eqx.Module):
    """Reward, constraints and behaviour descriptor of a system, as pure functions of observations and actions.

    `name`, `observations` and `actions` describe the system. `reward(obs, action, next_obs)` returns a number, as does
    the cost function of each of the `constraints`. `descriptor(rollout)` returns a vector with one number per dimension
    of the `grid`, computed from a `Rollout` of H steps. A function that is None is learned with the model: reward and
    costs from the values that the system reports, the descriptor as principal components of the last state.
    `step(obs, action, key)` returns the true next observation and `reset(key)` an initial one; both are optional and
    only needed to plan with a perfect model or to run compiled episodes. All functions may have parameters
    (`with_params`). `episode_length`: T, the maximum number of steps of an episode. `fallback`, `policy_inputs`,
    `surroundings`, `learns_end`, `unknown_unsafe`, `smoothness`, `max_change`, `measured`, `risk` and `disagreement`
    are described below.

    Raises GussError if JAX cannot trace a function, a function returns the wrong shape, or arguments are inconsistent.

    Example:
        >>> task = guss.Task(
        ...     "point",
        ...     guss.Observations(low=(-1.0,), high=(1.0,)),
        ...     guss.ContinuousActions(low=(-1.0,), high=(1.0,)),
        ...     reward=lambda obs, action, next_obs: next_obs[0],
        ...     constraints=[guss.Constraint("learned")],
        ...     descriptor=None,
        ...     grid=None,
        ...     episode_length=10,
        ... )
        >>> task.unknown
        ('cost of learned', 'behaviour')
    """

    name: str = eqx.field(static=True)
    observations: Observations = eqx.field(static=True)
    actions: Actions = eqx.field(static=True)
    reward: Function | None
    constraints: tuple[Constraint, ...]
    descriptor: Function | None
    grid: Grid
    episode_length: int = eqx.field(static=True)
    step: Function | None
    reset: Function | None
    fallback: Shaped[Array, "..."]
    """The action returned if no plan has a finite prediction; default: the action nearest to zero within the bounds."""
    policy_inputs: tuple[Float[Array, "D"], Float[Array, "D"]] | None
    """Shift and scale of a policy's inputs. None: from the fitted model; if there is none, finite bounds map to ±1."""
    surroundings: Surroundings | None = eqx.field(static=True)
    """How sensors measure static objects, for the model "egocentric"."""
    learns_end: bool | None = eqx.field(static=True)
    """Whether to learn when the system itself ends an episode (`terminated`). Plans earn no reward after a predicted
    end. None: learned, unless the Task simulates the system (it defines `step` and `reset`, and no environment runs the
    episodes); simulated episodes never end early."""
    unknown_unsafe: bool = eqx.field(static=True)
    """Whether a predicted state far from all training data violates every constraint."""
    smoothness: float = eqx.field(static=True)
    """Price on the change of actions in a plan: its reward is lower by this number times the change from step to step,
    a share of the width of the bounds (discrete actions: 1 or 0), mean over dimensions, summed over steps."""
    max_change: float | None = eqx.field(static=True)
    """Limit on this change in every dimension; None: no limit. Both include the change from the last applied action of
    the episode to the first action of the plan."""
    measured: tuple[Constraint, ...]
    """Further costs that are only recorded, such as those of another definition of safety: plans do not use them."""
    risk: str | None = eqx.field(static=True)
    """How a plan's cost is aggregated over the model's particles: "worst" (maximum), "mean", "cvar:0.4" (mean of the
    worst 40 %) or "share:0.2" (the maximum without the worst 20 %). None: as the planner defines it, usually worst."""
    disagreement: float | None = eqx.field(static=True)
    """A predicted step violates every constraint if the predictions of the model's particles differ by more than this
    many standard deviations of the training data. None: never."""

    def __init__(
        self,
        name: str,
        observations: Observations,
        actions: Actions,
        reward: Callable[..., Any] | None,
        constraints: Sequence[Constraint],
        descriptor: Callable[..., Any] | None,
        grid: Grid | None,
        episode_length: int,
        step: Callable[..., Any] | None = None,
        reset: Callable[..., Any] | None = None,
        fallback: Vector | float | None = None,
        policy_inputs: tuple[Vector, Vector] | None = None,
        surroundings: Surroundings | None = None,
        learns_end: bool | None = None,
        unknown_unsafe: bool = False,
        measured: Sequence[Constraint] = (),
        risk: str | None = None,
        disagreement: float | None = None,
        smoothness: float = 0.0,
        max_change: float | None = None,
    ) -> None:
        self.name = name
        text = convert(risk, str | None, f"task {name!r}: risk")
        self.risk = None if text is None else str(RiskMeasure.parse(text))
        self.disagreement = convert(disagreement, float | None, f"task {name!r}: disagreement")
        self.measured = tuple(measured)
        self.learns_end = learns_end
        self.unknown_unsafe = unknown_unsafe
        self.smoothness = convert(smoothness, float, f"task {name!r}: smoothness")
        self.max_change = convert(max_change, float | None, f"task {name!r}: max_change")
        self.observations = observations
        self.actions = actions
        self.reward = None if reward is None else as_function(reward)
        self.constraints = tuple(constraints)
        self.descriptor = None if descriptor is None else as_function(descriptor)
        if descriptor is not None and grid is None:
            raise GussError(f"task {name!r} has a descriptor, so it needs a grid for it: guss.Grid(low, high, cells)")
        self.grid = learned_grid(observations.size) if grid is None else grid
        self.episode_length = episode_length
        self.step = None if step is None else as_function(step)
        self.reset = None if reset is None else as_function(reset)
        neutral = np.reshape(actions.neutral(), actions.shape)
        self.fallback = jnp.asarray(neutral if fallback is None else fallback, actions.dtype)
        if self.fallback.shape == actions.shape and not isinstance(self.fallback, jax.core.Tracer):
            action = np.asarray(self.fallback)
            if actions.outside(action).any():
                raise GussError(f"task {name!r}: the fallback action {action.tolist()} is not in {actions}")
            self.fallback = jnp.asarray(actions.rounded(action))
        self.surroundings = surroundings
        self.policy_inputs = None
        if policy_inputs is not None:
            shift, scale = policy_inputs
            self.policy_inputs = (jnp.asarray(shift, jnp.float32), jnp.asarray(scale, jnp.float32))

    def __check_init__(self) -> None:
        if self.episode_length < 1:
            raise GussError(f"task {self.name!r}: episode_length must be at least 1, got {self.episode_length}")
        if self.fallback.shape != self.actions.shape:
            raise GussError(
                f"task {self.name!r}: the fallback action must have shape {self.actions.shape}, "
                f"got {self.fallback.shape}"
            )
        if self.descriptor is None and len(self.grid.cells) > self.observations.size:
            raise GussError(
                f"task {self.name!r}: the grid of a learned behaviour descriptor must not have more dimensions than "
                f"the observation ({self.observations.size}), got {len(self.grid.cells)}"
            )
        names = [c.name for c in (*self.constraints, *self.measured)]
        if self.unknown_unsafe and not self.constraints:
            raise GussError(
                f"task {self.name!r}: unknown_unsafe=True needs at least one constraint, which unknown states violate"
            )
        if self.disagreement is not None and (not self.constraints or not 0.0 < self.disagreement < np.inf):
            raise GussError(
                f"task {self.name!r}: disagreement must be a positive number, and needs at least one constraint; got "
                f"disagreement={self.disagreement} and {len(self.constraints)} constraints"
            )
        if unknown := [c.name for c in self.measured if c.learned]:
            raise GussError(
                f"task {self.name!r}: a measured cost needs a function of (obs, action, next_obs), and {unknown[0]!r} "
                f"has none"
            )
        if len(set(names)) != len(names):
            raise GussError(f"task {self.name!r}: constraint names must differ, got {names}")
        if self.policy_inputs is not None and any(x.shape != (self.observations.size,) for x in self.policy_inputs):
            shapes = [x.shape for x in self.policy_inputs]
            raise GussError(f"task {self.name!r}: policy_inputs need shape ({self.observations.size},), got {shapes}")
        check_smooth(self.name, self.actions, self.smoothness, self.max_change)
        self._check_functions()

    def _check_functions(self) -> None:
        """Trace every function once, so that a wrong shape raises here and not from inside a compiled plan."""
        obs = jax.ShapeDtypeStruct((self.observations.size,), jnp.float32)
        action = jax.ShapeDtypeStruct(self.actions.shape, self.actions.dtype)
        steps = 4
        many: Any = lambda x: jax.ShapeDtypeStruct((steps, *x.shape), x.dtype)  # noqa: E731
        key = jax.eval_shape(lambda: jax.random.key(0))
        checks: list[tuple[str, Function, tuple[Any, ...], tuple[int, ...]]] = [
            (
                f"the cost of constraint {c.name!r}, a function of (obs, action, next_obs),",
                c.cost,
                (obs, action, obs),
                (),
            )
            for c in (*self.constraints, *self.measured)
            if not c.learned
        ]
        if self.reward is not None:
            checks.append(("reward(obs, action, next_obs)", self.reward, (obs, action, obs), ()))
        if self.descriptor is not None:
            path = Rollout(many(obs), many(action), many(obs))
            dims = len(self.grid.cells)
            checks.append((f"descriptor(rollout), with {dims} grid dimensions,", self.descriptor, (path,), (dims,)))
        if self.step is not None:
            checks.append(("step(obs, action, key)", self.step, (obs, action, key), obs.shape))
        if self.reset is not None:
            checks.append(("reset(key)", self.reset, (key,), obs.shape))
        if self.surroundings is not None:
            checks += self._checks_of_surroundings(self.surroundings, obs)
        for what, fn, args, shape in checks:
            self._check_shape(what, fn, args, shape)

    def _checks_of_surroundings(
        self, around: Surroundings, obs: Any
    ) -> list[tuple[str, Function, tuple[Any, ...], Any]]:
        if not around.own or not all(0 <= i < self.observations.size for i in around.own):
            raise GussError(
                f"task {self.name!r}: surroundings.own must have indices of dimensions of the observation, "
                f"0 to {self.observations.size - 1}, got {around.own}"
            )
        own = jax.ShapeDtypeStruct((len(around.own),), jnp.float32)
        places = jax.eval_shape(around.places, obs)
        if getattr(places, "ndim", 0) != 2 or places.shape[1] < 2:
            raise GussError(f"task {self.name!r}: surroundings.places(obs) must return [K, 2 or more], got {places}")
        return [
            ("surroundings.motion(own, next_own)", as_function(around.motion), (own, own), (3,)),
            ("surroundings.sight(own, places)", as_function(around.sight), (own, places), obs.shape),
        ]

    def _check_shape(self, what: str, fn: Function, args: tuple[Any, ...], shape: tuple[int, ...]) -> None:
        where = f"task {self.name!r}: {what}"
        try:
            out = jax.eval_shape(lambda f, a: f(*a), fn, args)
        except Exception as error:
            raise GussError(
                f"{where} cannot be traced by JAX: {type(error).__name__}: {str(error).splitlines()[0]}. "
                f"Use jax.numpy operations on single observations, and no Python `if` on their values."
            ) from error
        if getattr(out, "shape", None) != shape:
            got = getattr(out, "shape", None)
            expected = "a single number (shape ())" if shape == () else f"shape {shape}"
            came = f"shape {got}" if got is not None else f"{type(out).__name__}"
            raise GussError(
                f"{where} must return {expected}, got {came}. It is called with one observation of shape "
                f"({self.observations.size},), not with a batch; index it as next_obs[0], or reduce with jnp.any."
            )

    @property
    def smooth(self) -> bool:
        """Whether plans depend on the action before them: the change of actions has a price or a limit."""
        return self.smoothness > 0.0 or self.max_change is not None

    @property
    def soft(self) -> tuple[bool, ...]:
        """For each constraint, whether it is soft."""
        return tuple(not c.hard for c in self.constraints)

    @property
    def unknown(self) -> tuple[str, ...]:
        """The parts to be learned: "reward", "cost of <constraint>", "end of an episode", "behaviour"."""
        costs = ["cost" if c.name == "cost" else f"cost of {c.name}" for c in self.constraints if c.learned]
        ends = [END] * bool(self.learns_end)
        return (*["reward"] * (self.reward is None), *costs, *ends, *["behaviour"] * (self.descriptor is None))

    def forget(self, what: Sequence[str]) -> Task:
        """A copy whose reward, costs or behaviour are unknown, so that they are learned."""
        for name in what:
            if name not in LEARNABLE:
                raise UnknownNameError("part of a task that can be learned", name, LEARNABLE)
        fields: dict[str, Any] = {}
        if "reward" in what:
            fields["reward"] = None
        if "cost" in what:
            fields["constraints"] = tuple(
                c if c.learned else Constraint(c.name, bound=c.bound, hard=c.hard) for c in self.constraints
            )
        if "behaviour" in what:
            fields |= {"descriptor": None, "grid": None}
        return self.replace(**fields) if fields else self

    def with_end(self, hosted: bool = False) -> Task:
        """A copy in which `learns_end` is True or False instead of None; `hosted`: an environment runs the episodes."""
        simulated = self.step is not None and self.reset is not None and not hosted
        return self.replace(learns_end=not simulated) if self.learns_end is None else self

    def with_hard(self, names: Sequence[str]) -> Task:
        """A copy in which the named constraints are hard."""
        known = [c.name for c in self.constraints]
        for name in names:
            if name not in known:
                raise UnknownNameError(f"constraint of task {self.name!r}", name, known)
        harder = [
            dataclasses.replace(c, hard=True, bound=jnp.zeros(())) if c.name in names else c  # a hard cost has no bound
            for c in self.constraints
        ]
        return self.replace(constraints=tuple(harder)) if names else self

    def costs(
        self, obs: Float[Array, "D"], action: Shaped[Array, "..."], next_obs: Float[Array, "D"]
    ) -> Float[Array, "C"]:
        """Every constraint's cost of one step, in the order of `constraints`."""
        if any(c.learned for c in self.constraints):
            raise self._not_known("cost")
        values = [jnp.asarray(c.cost(obs, action, next_obs), jnp.float32) for c in self.constraints]
        return jnp.stack(values) if values else jnp.zeros((0,), jnp.float32)

    def outcomes(self, rollout: Rollout) -> Outcomes:
        """Reward, cost and descriptor of a trajectory [H, …], by the task's functions."""
        if self.descriptor is None:
            raise self._not_known("behaviour")
        return Outcomes(jax.vmap(self.reward_of)(*rollout), jax.vmap(self.costs)(*rollout), self.descriptor(rollout))

    def reward_of(
        self, obs: Float[Array, "D"], action: Shaped[Array, "..."], next_obs: Float[Array, "D"]
    ) -> Float[Array, ""]:
        """The reward of one step."""
        if self.reward is None:
            raise self._not_known("reward")
        return jnp.asarray(self.reward(obs, action, next_obs), jnp.float32)

    def _not_known(self, what: str) -> GussError:
        return GussError(
            f"task {self.name!r} defines no {what} function, so only a model that has learned the {what} can predict "
            f"it: choose a learned model (the oracle learns nothing), or define the {what} in the Task"
        )

    def interface(self) -> Interface:
        """The part of the task that planners receive: sizes, actions, and scaling of policy inputs."""
        size = self.observations.size
        if self.policy_inputs is not None:
            shift, scale = self.policy_inputs
        else:
            low, high = np.asarray(self.observations.low), np.asarray(self.observations.high)
            known = np.isfinite(low) & np.isfinite(high)
            middle = np.where(known, (np.where(known, low, 0) + np.where(known, high, 0)) / 2, 0.0)
            half = np.where(known, (np.where(known, high, 0) - np.where(known, low, 0)) / 2, 1.0)
            shift, scale = jnp.asarray(middle, jnp.float32), jnp.asarray(half, jnp.float32)
        return Interface(size, self.actions, shift, scale, descriptor_size=len(self.grid.cells))

    def update(self, function: str, **params: Any) -> Task:
        """A copy with other parameters for the named constraint, "reward", "descriptor", "step" or "reset".

        Shapes must stay the same, so that nothing is recompiled.
        """
        names = [n for n in ("reward", "descriptor", "step", "reset") if getattr(self, n) is not None]
        rows = {c.name: i for i, c in enumerate(self.constraints)}
        if function not in names and function not in rows:
            raise UnknownNameError(f"function of task {self.name!r}", function, [*names, *rows])

        def owner(task: Task) -> Function:
            return task.constraints[rows[function]].cost if function in rows else getattr(task, function)

        old = owner(self).params
        new = {**old, **{name: changed_parameter(function, name, value, old) for name, value in params.items()}}
        if function in rows:
            self.constraints[rows[function]].check_parameters(new)
        return eqx.tree_at(lambda t: owner(t).params, self, new)

    def with_margin(self, margin: float | Mapping[str, float]) -> Task:
        """A copy for planning: every constraint, or every named constraint, is stricter by a margin."""
        names = [c.name for c in self.constraints]
        margins = dict(margin) if isinstance(margin, Mapping) else dict.fromkeys(names, margin)
        for name in margins:
            if name not in names:
                raise UnknownNameError(f"constraint of task {self.name!r}", name, names)
        stricter = tuple(c.with_margin(margins.get(c.name, 0.0)) for c in self.constraints)
        return eqx.tree_at(lambda t: t.constraints, self, stricter)

    def replace(self, **fields: Any) -> Task:
        """A copy with other fields, checked like a new Task."""
        return dataclasses.replace(self, **fields)
