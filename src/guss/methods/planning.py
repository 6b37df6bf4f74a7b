"""Planning in a learned model (Alg. 1 of the paper): stores transitions, fits models to them, plans actions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree

from guss import keys as streams
from guss.collect.compiled import CompiledCollector
from guss.compilation import AT_ONCE, QUICKLY, Ahead, strong
from guss.errors import GussError
from guss.method import Acted, Learned, Method
from guss.models.evaluation import diverged, horizon_r2, plain
from guss.models.factory import Program, fit_all, fit_programs, make_model
from guss.models.outcomes import num_outcomes, outcome_targets
from guss.models.settings import CommonSettings, ModelSettings
from guss.models.training import Data, FitSettings, append, check_buffer, empty_data, split_rows
from guss.models.unsafe_examples import Examples, learned_examples
from guss.planners.engine import Diagnostics, Monitor, Plan, plan_one
from guss.planners.smooth_memory import first_memory
from guss.task import Task
from guss.types import Model, Planner, Trajectory

EVALUATION = "evaluation of the model"
"""Name of the program, compiled ahead, that evaluates a model on a new episode."""
ERRORS = ("nll", "r2", "ks", "train_loss", "best_epoch")
"""Fields of a FitReport that are stored for every planned episode."""


class PlanningState(NamedTuple):
    """The learned state; every array has a leading axis S."""

    models: Model
    data: Data
    fits: Int[Array, "S"]
    """Number of times the models were fitted."""
    fitted: Int[Array, "S"]
    """Number of rows in the data at the last fit."""
    fresh: Model | None = None
    """The untrained models, if every fit starts from them."""

    @property
    def num_rows(self) -> int:
        """Stored transitions of a seed."""
        return int(np.asarray(self.data.filled)[0])

    @property
    def was_fitted(self) -> bool:
        """Whether there is a model to plan with."""
        return bool((np.asarray(self.fits) > 0).all())


class PlanNotes(NamedTuple):
    """Information on one plan, stored in `Trajectory.aux` of planned episodes."""

    diagnostics: Diagnostics
    monitored: PyTree


class Planning(Method):
    """Plans in a model (Alg. 1). The carry is `Plan.memory`; the model is that of the state, or a fixed one."""

    planner: Planner
    fixed: Model | None = None
    """A model that is not learned, such as the oracle; the state is then empty."""
    monitor: Monitor | None = None
    """Observes every search; its `aux` is stored in `PlanNotes.monitored`."""
    model: str = eqx.field(static=True, kw_only=True, default="darmdn")
    model_settings: CommonSettings = eqx.field(static=True, kw_only=True, default=ModelSettings())
    fit: FitSettings = eqx.field(static=True, kw_only=True, default=FitSettings())

    phase: ClassVar[str] = "plan"
    explores_first: ClassVar[bool] = True
    plans: ClassVar[bool] = True
    model_based: ClassVar[bool] = True
    stores_all: ClassVar[bool] = True

    # -------------------------------------------------------------------------------------------------------- acting

    def acting(self, state: Any) -> Any:
        return state.models if self.fixed is None else ()

    def begin(self, state: PyTree, key: PRNGKeyArray) -> PyTree:
        """The memory before the first plan of an episode."""
        return first_memory(self.planner, self.task)

    def plan_inputs(self, state: PyTree) -> tuple[Planner, Model, Task]:
        """Planner, model and task for `engine.plan_one`, for one seed; `state` as `acting` returns it.

        The planner standardises policy inputs as the model does, if the task does not define their scale.
        """
        model = state if self.fixed is None else self.fixed
        scale = model.policy_inputs()
        if self.task.policy_inputs is not None or scale is None:
            return self.planner, model, self.task
        standardised = lambda p: (p.interface.obs_shift, p.interface.obs_scale)  # noqa: E731
        return eqx.tree_at(standardised, self.planner, scale), model, self.task

    def act(self, state: PyTree, carry: PyTree, obs: Float[Array, "D"], key: PRNGKeyArray) -> Acted:
        """The first action of a plan."""
        plan = plan_one(*self.plan_inputs(state), obs, key, carry, self.monitor)
        return plan.action, plan.memory, PlanNotes(plan.diagnostics, plan.aux)

    # ------------------------------------------------------------------------------------------------------ learning

    @property
    def learns(self) -> bool:
        """Whether there is a model to fit."""
        return self.fixed is None

    @property
    def block(self) -> int:
        """Rows that are stored at once: one episode."""
        return self.task.episode_length

    def init(self, key: PRNGKeyArray) -> PyTree:
        """An untrained model and an empty buffer, of one seed."""
        if not self.learns:
            return ()
        size, actions = self.task.observations.size, self.task.actions
        data = empty_data(size, actions.shape, actions.dtype, self.capacity, num_outcomes(self.task))
        zero = jnp.zeros((), jnp.int32)
        model = make_model(self.model, self.task, key, self.model_settings)
        return PlanningState(model, data, zero, zero, None if self.fit.warm_start else model)

    def init_all(self, keys: Key[Array, "S"]) -> PyTree:
        """An untrained model and an empty buffer for every seed."""
        if not self.learns:
            return ()
        check_buffer(f"learning with {len(keys)} seeds", self.task, len(keys) * self.capacity)
        return strong(_init_all(self, keys))

    def update(self, state: PyTree, trajectory: Trajectory, key: PRNGKeyArray) -> Learned:
        """`update_all` for one seed."""
        return self.update_alone(state, trajectory, key)

    def update_all(self, states: PyTree, trajectory: Trajectory, keys: Key[Array, "S"]) -> Learned:
        """Store the transitions; metrics: R² at the horizon on each episode, before models are fitted to it.

        Buffers double when they are full, which recompiles the fit.
        """
        if not self.learns:
            return states, {}
        if states.data.outcomes is not None:
            check_outcomes(self.task, trajectory)
        metrics: dict[str, Any] = {}
        filled = states.num_rows
        for number in range(trajectory.valid.shape[1]):
            one: Trajectory = jax.tree.map(lambda x, n=number: np.asarray(x)[:, n], trajectory._replace(aux=()))
            steps = one.valid.shape[1]
            ahead = self._evaluate(states, one) if states.was_fitted else None
            metrics |= {} if ahead is None else {"r2_horizon": ahead}
            data = states.data
            for start in range(0, steps, self.block):
                part = jax.tree.map(lambda x, start=start: x[:, start : start + self.block], one)
                count = part.valid.shape[1]
                while filled + self.block > data.use.shape[1]:
                    data = _doubled(data)
                rows = map(
                    self._padded, (part.obs, part.action, part.next_obs, part.learnable, outcomes_of(self.task, part))
                )
                data = _append_all(data, tuple(rows), np.int32(count))
                filled += count
            states = states._replace(data=data)
        return states, metrics

    def evaluate(self, states: PlanningState, trajectory: Trajectory) -> np.ndarray | None:
        """R² at the horizon on one episode of every seed, [S, 1, T, …]: [S, D]; None if it is too short."""
        return self._evaluate(states, jax.tree.map(lambda x: np.asarray(x)[:, 0], trajectory._replace(aux=())))

    def _evaluate(self, states: PlanningState, one: Trajectory) -> np.ndarray | None:
        if not self.planner.horizon <= one.valid.shape[1] <= self.block:
            return None
        rows = [self._padded(x) for x in (one.obs, one.action, one.next_obs, one.learnable)]
        return np.asarray(_horizon_r2_all(states.models, *rows, self.planner.horizon))

    def _padded(self, x: np.ndarray) -> np.ndarray:
        """A part of an episode, padded to a whole one, so that no episode length causes recompilation."""
        return np.pad(x, [(0, 0), (0, self.block - x.shape[1]), *[(0, 0)] * (x.ndim - 2)])

    def prepare(self, states: PyTree, keys: Key[Array, "S"], before: Callable[[str], Any] | None = None) -> Learned:
        """TRAIN(p̂, D): fit the models of all seeds to all data, unless none are new; metrics: a FitReport.

        If the fit diverges for a seed, no model is changed.
        """
        if not self.learns or (np.asarray(states.fitted) == np.asarray(states.data.filled)).all():
            return states, {}
        filled = states.num_rows
        if not np.asarray(_num_training(states.data, self.fit)).all():
            usable = int(np.asarray(states.data.use)[:, :filled].sum(axis=1).min())
            raise GussError(
                f"there are no transitions to train a model on: {usable} of {filled} are usable (those "
                f"marked `skip` are not), and {self.fit.validation:.0%} of them are held out; add data"
            )
        models, report = fit_all(self._fit_programs(states, keys), before)
        if not diverged(report).any():
            states = states._replace(models=models, fits=states.fits + 1, fitted=states.data.filled)
        return states, {"report": report}

    def record(self, prepared: dict[str, Any], updated: dict[str, Any]) -> dict[str, Any]:
        """The model's errors, a list per seed: on held-out rows, and at the horizon on a new episode."""
        examples = zip(*prepared.get("examples", ()), strict=True)
        counts = {each[0].name: [one.unsafe for one in each] for each in examples}
        record: dict[str, Any] = {"unsafe_examples": counts} if counts else {}
        report = prepared.get("report")
        if report is None:
            return record
        errors = {name: getattr(report, name) for name in ERRORS}
        errors |= {} if report.outcome is None else report.outcome._asdict()
        errors |= {name: updated[name] for name in ("r2_horizon",) if name in updated}
        return record | {name: plain(value) for name, value in errors.items()}

    def prepared(self, states: PyTree) -> PyTree:
        """The models, and the number of rows that they were fitted to."""
        return states._replace(data=None, fresh=None) if self.learns else ()

    def ready(self, states: PyTree) -> bool:
        """Whether there is a model to plan with."""
        return not self.learns or states.was_fitted

    def _fit_programs(self, states: PlanningState, keys: Key[Array, "S"]) -> list[Program]:
        fresh = states.models if states.fresh is None else states.fresh
        again = np.bool_(states.was_fitted)
        return fit_programs(states.models, fresh, states.data, keys, self.fit, again, self.task)

    # ------------------------------------------------------------------------------------- compilation, unsafe examples

    def compile_ahead(
        self, ahead: Ahead, states: PyTree, keys: Key[Array, "S"], compile_acting: Callable[[], None]
    ) -> None:
        """Start to compile the training, which takes longest, then planning, then the evaluation of models."""
        programs = self._fit_programs(states, keys) if self.learns else []
        for program in programs[:2]:
            ahead.start(program.name, program.lower)
        compile_acting()
        for program in programs[2:]:
            ahead.start(program.name, program.lower)
        if self.learns and self.planner.horizon <= self.block:
            rows = [jax.ShapeDtypeStruct((x.shape[0], self.block, *x.shape[2:]), x.dtype) for x in states.data[:4]]
            arguments = (states.models, *rows, self.planner.horizon)
            ahead.start(EVALUATION, lambda: _horizon_r2_all.lower(*arguments))

    def compile_larger(self, ahead: Ahead, states: PyTree, keys: Key[Array, "S"]) -> None:
        """Start to compile the fit to buffers of twice the size, if the next episodes may need them."""
        if not self.learns or states.num_rows + 2 * self.block <= states.data.use.shape[1]:
            return
        larger = states._replace(data=jax.eval_shape(_doubled, states.data))
        for program in self._fit_programs(larger, keys):
            ahead.start(program.name, program.lower)

    def examples(self, states: PyTree) -> list[list[Examples]]:
        """For each seed, the unsafe examples of every learned cost."""
        if not self.learns or states.data.outcomes is None:
            return []
        filled = states.num_rows
        rows = [np.asarray(x)[:, :filled] for x in (states.data.next_obs, states.data.outcomes, states.data.use)]
        return [learned_examples(self.task, obs[use], outcomes[use]) for obs, outcomes, use in zip(*rows, strict=True)]


@jax.jit
def plan_all(
    method: Planning,
    states: PyTree,
    memory: PyTree,
    obs: Float[Array, "S D"],
    keys: Key[Array, "S"],
    t: Int[Array, ""],
    monitor: Monitor | None = None,
) -> Plan:
    """The plan of every seed, equal to that of `act` at step `t`; `keys`: those of the episodes' steps."""

    def one(state: PyTree, memory: PyTree, obs: Array, key: Array) -> Plan:
        return plan_one(*method.plan_inputs(state), obs, streams.act(key, t), memory, monitor)

    return jax.vmap(one)(states, memory, obs, keys)


def run_episodes(
    planner: Planner,
    model: Model,
    task: Task,
    keys: Key[Array, "S"],
    *,
    planning_task: Task | None = None,
    monitor: Monitor | None = None,
    steps: int | None = None,
    steps_per_call: int | None = None,
    on_step: Callable[[int], Any] | None = None,
) -> Trajectory:
    """One whole episode for every key, planned with a fixed model, as one compiled program: [S, 1, T, …].

    `planner`, `model` and `task` (with `step` and `reset`) are as in `plan`; `keys` [S]: JAX random keys.
    `planning_task`: the task that scores plans, if it is stricter (`Task.with_margin`). `monitor`: observes every
    search. `steps`: steps of an episode, by default the task's. `steps_per_call`: steps of one compiled program;
    `on_step(t)` is called after each.

    Returns a Trajectory, whose `aux` has the diagnostics of every plan and the `aux` of the `monitor`. Raises GussError
    if the task has no `step` or no `reset`.

    Example:
        >>> task = guss.make_task("safe-toy")
        >>> planner = guss.make_planner("random", task, horizon=1, budget=1)
        >>> keys = jax.random.split(jax.random.key(0), 2)
        >>> steps = guss.run_episodes(planner, guss.Oracle.of(task), task, keys, steps=3)
        >>> steps.reward.shape
        (2, 1, 3)
    """
    method = Planning(task if planning_task is None else planning_task, planner, model, monitor)
    collector = CompiledCollector(task, steps=steps, steps_per_call=steps_per_call)
    return collector.collect(method, (), keys[:, None], on_step=on_step)[0]


def outcomes_of(task: Task, trajectory: Trajectory) -> np.ndarray:
    """Reward, costs, and whether the system ended the episode: [..., 2 + C]; NaN if unknown."""
    lead = np.shape(trajectory.terminated)
    reward = np.full(lead, np.nan) if trajectory.reward is None else np.asarray(trajectory.reward)
    unknown = np.full((*lead, len(task.constraints)), np.nan)
    cost = unknown if trajectory.cost is None else np.asarray(trajectory.cost)
    columns = (reward[..., None], cost, np.asarray(trajectory.terminated)[..., None])
    return np.concatenate([np.asarray(x, np.float32) for x in columns], axis=-1)


def check_outcomes(task: Task, trajectory: Trajectory) -> None:
    """Raise if any learnable row lacks an outcome that the task must learn."""
    wanted = outcome_targets(task, outcomes_of(task, trajectory)[np.asarray(trajectory.learnable)])
    lacking = np.isnan(wanted).any(axis=0)
    if not lacking.any():
        return
    names = [("reward", "reward")] * (task.reward is None)
    names += [(f"cost of {c.name}", f"cost_{c.name}") for c in task.constraints if c.learned]
    missing = [pair for pair, bad in zip(names, lacking.tolist(), strict=False) if bad]
    what, columns = (list(each) for each in zip(*missing, strict=True))
    add, them = ("add the columns", "them") if len(missing) > 1 else ("add the column", "it")
    raise GussError(
        f"task {task.name!r} must learn the {' and the '.join(what)} from data, but some rows of these data lack "
        f"{them}: {add} {', '.join(f'`{name}`' for name in columns)}, or define {them} in a Task"
    )


@partial(jax.jit, compiler_options=QUICKLY)
def _init_all(method: Planning, keys: Key[Array, "S"]) -> PlanningState:
    return jax.vmap(method.init)(keys)


@partial(jax.jit, static_argnums=1, compiler_options=AT_ONCE)
def _num_training(data: Data, settings: FitSettings) -> Array:
    return jax.vmap(lambda rows: jnp.sum(split_rows(rows, settings)[0], dtype=jnp.int32))(data)


@partial(jax.jit, compiler_options=AT_ONCE)
def _append_all(data: Data, more: tuple[Array, ...], count: Array) -> Data:
    def one(rows: Data, more: tuple[Array, ...]) -> Data:
        return append(rows, Data(*more[:4], count, None if rows.outcomes is None else more[4]))  # type: ignore[call-arg]

    return jax.vmap(one)(data, more)


@jax.jit
def _doubled(data: Data) -> Data:
    double = lambda x: jnp.concatenate([x, jnp.zeros_like(x)], axis=1)  # noqa: E731
    obs, action, next_obs, use = map(double, data[:4])
    return Data(obs, action, next_obs, use, data.filled, None if data.outcomes is None else double(data.outcomes))


@partial(jax.jit, static_argnums=5, compiler_options=AT_ONCE)
def _horizon_r2_all(models: Model, obs: Array, action: Array, next_obs: Array, use: Array, horizon: int) -> Array:
    return jax.vmap(lambda m, o, a, n, u: horizon_r2(m, o, a, n, horizon, u))(models, obs, action, next_obs, use)
