"""What is learned: a model and its data for every seed, fitted all at once (TRAIN of Alg. 1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, Shaped

from guss.agent.settings import AgentSettings
from guss.errors import GussError
from guss.models.examples import Examples, learned_examples
from guss.models.fitting import Data, FitSettings, append, check_buffer, empty_data, split_rows
from guss.models.judging import FitReport, horizon_r2
from guss.models.learned import Learned, ModelSettings, fit_all, fit_programs, make_model
from guss.models.oracle import Oracle
from guss.models.outcomes import num_told, wanted_columns
from guss.programs import AT_ONCE, QUICKLY, Ahead, strong
from guss.task import Task
from guss.types import Model

BEYOND_EPISODES = 2**20  # folded into a seed's key, so that no episode has the key of the first weights


EVALUATION = "evaluation of the model"
"""Name of the program that judges a model on a new episode, where it is compiled ahead."""


class Batch(NamedTuple):
    """Transitions of every seed, N each."""

    obs: Float[np.ndarray, "S N D"]
    action: Shaped[np.ndarray, "S N ..."]
    next_obs: Float[np.ndarray, "S N D"]
    use: Bool[np.ndarray, "S N"]
    told: Float[np.ndarray, "S N O"]
    """Reward, costs, and whether the system ended the episode there; NaN where they are not known."""


def told_of(reward: np.ndarray, cost: np.ndarray, ended: np.ndarray) -> np.ndarray:
    """What the system told of each step, as a Batch has it: [..., 2 + C]."""
    columns = (reward[..., None], cost, ended[..., None])
    return np.concatenate([np.asarray(x, np.float32) for x in columns], axis=-1)


def missing_columns(task: Task, lacking: np.ndarray) -> GussError:
    """What data lack that a task must learn; `lacking`: whether, for each of `wanted_columns`."""
    names = [("reward", "reward")] * (task.reward is None)
    names += [(f"cost of {c.name}", f"cost_{c.name}") for c in task.constraints if c.learned]
    missing = [pair for pair, bad in zip(names, lacking.tolist(), strict=False) if bad]
    what, columns = (list(each) for each in zip(*missing, strict=True))
    them = "them" if len(missing) > 1 else "it"
    return GussError(
        f"task {task.name!r} must learn the {' and the '.join(what)}, and these data do not have {them} in every row: "
        f"add {', '.join(f'`{name}`' for name in columns)}, or describe {them} in a Task"
    )


class Learner:
    """Models and data of all seeds, between episodes. Buffers double when they are full, which compiles anew."""

    def __init__(self, settings: AgentSettings, task: Task, keys: Key[Array, "S"], capacity: int) -> None:
        """`task`: as plans see it; what it does not know is learned."""
        self.settings, self.task = settings, task
        self.fits = 0
        self.block = task.episode_length
        self.fresh: Learned | None = None
        self.models: Learned | Oracle
        if not settings.learns:
            if settings.plans and task.unknown:
                raise GussError(
                    f"the oracle learns nothing, but the {' and the '.join(task.unknown)} of task {task.name!r} must "
                    f"be learned: choose another model, such as darmdn"
                )
            if settings.plans:
                self.models = Oracle.of(task)
            return
        self.fresh = strong(_make_models(settings.model, task, keys, settings.net))
        self.models = self.fresh
        check_buffer(f"learning with {len(keys)} seeds", task, len(keys) * capacity)
        size, actions = task.observations.size, task.actions
        one = empty_data(size, actions.shape, actions.dtype, capacity, num_told(task))
        self.data: Data = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(keys), *x.shape)), one)
        self._filled = 0

    @property
    def per_seed(self) -> bool:
        """Whether every seed has a model of its own."""
        return self.fresh is not None

    @property
    def state(self) -> dict[str, Any]:
        """Everything learned, as arrays."""
        return {"models": self.models, "data": self.data} if self.per_seed else {}

    def meta(self) -> dict[str, int]:
        """What belongs to the state and is not an array."""
        return {"fits": self.fits, "filled": self.rows, "capacity": self.data.use.shape[1] if self.per_seed else 0}

    def restore(self, state: dict[str, Any], meta: dict[str, int]) -> None:
        """Take over a stored state."""
        if self.per_seed:
            check_about(meta)
            if (np.asarray(state["data"].filled) != meta["filled"]).any():
                raise GussError(
                    f"meta.learner.filled is {meta['filled']}, but the data have {state['data'].filled} rows"
                )
            self.models, self.data = state["models"], state["data"]
            self.fits, self._filled = meta["fits"], meta["filled"]

    @property
    def rows(self) -> int:
        """Transitions held, per seed."""
        return self._filled if self.per_seed else 0

    def add(self, batch: Batch) -> None:
        """More transitions; those not in `use` are kept and not learned from."""
        if not self.per_seed:
            return
        if self.data.told is not None:
            wanted = wanted_columns(self.task, batch.told.reshape(-1, batch.told.shape[-1]))
            lacking = np.isnan(wanted[np.asarray(batch.use).reshape(-1)]).any(axis=0)
            if lacking.any():
                raise missing_columns(self.task, lacking)
        for start in range(0, batch.obs.shape[1], self.block):
            part = jax.tree.map(lambda x, start=start: x[:, start : start + self.block], batch)
            count = part.obs.shape[1]
            while self._filled + self.block > self.data.use.shape[1]:
                self.data = _doubled(self.data)
            part = jax.tree.map(self._padded, part)
            self.data = _append_all(self.data, part, np.int32(count))
            self._filled += count

    def _padded(self, x: np.ndarray) -> np.ndarray:
        """A part of an episode as long as a whole one, so that episodes of any length compile nothing anew."""
        return np.pad(x, [(0, 0), (0, self.block - x.shape[1]), *[(0, 0)] * (x.ndim - 2)])

    def fit(self, keys: Key[Array, "S"], before: Callable[[str], Any] | None = None) -> FitReport | None:
        """Fit the models of all seeds to their data; the models stay as they were for a seed that diverges.

        `before` as in `fit_all`.
        """
        if self.fresh is None:
            return None
        if not np.asarray(_num_training(self.data, self.settings.fit)).all():
            usable = int(np.asarray(self.data.use)[:, : self._filled].sum(axis=1).min())
            raise GussError(
                f"there is nothing to train a model on: {usable} of {self._filled} transitions are usable (those "
                f"marked `skip` are not), and {self.settings.fit.validation:.0%} of them are held out"
            )
        fitted, report = fit_all(*(*self._fit_arguments(keys), before))
        if not diverged(report).any():
            self.models, self.fits = fitted, self.fits + 1
        return report

    def _fit_arguments(self, keys: Key[Array, "S"]) -> Any:
        task = self.task if self.task.unknown or self.task.unknown_unsafe else None
        return (self.models, self.fresh, self.data, keys, self.settings.fit, np.bool_(self.fits > 0), task)

    def compile_ahead(self, ahead: Ahead, keys: Key[Array, "S"]) -> None:
        """Begin to compile the training that `fit` runs: the programs that take longest, to compile and to run."""
        if self.fresh is not None:
            for program in fit_programs(*self._fit_arguments(keys))[:2]:
                ahead.start(program.name, program.lower)

    def compile_evaluation(self, ahead: Ahead, keys: Key[Array, "S"]) -> None:
        """Begin to compile what follows the training, and what `ahead` runs; nothing waits for it before plans do."""
        if self.fresh is None:
            return
        for program in fit_programs(*self._fit_arguments(keys))[2:]:
            ahead.start(program.name, program.lower)
        if self.settings.horizon <= self.block:
            rows = [jax.ShapeDtypeStruct((x.shape[0], self.block, *x.shape[2:]), x.dtype) for x in self.data[:4]]
            arguments = (self.models, *rows, self.settings.horizon)
            ahead.start(EVALUATION, lambda: _horizon_r2_all.lower(*arguments))

    def compile_larger(self, ahead: Ahead, keys: Key[Array, "S"]) -> None:
        """Begin to compile the fit to buffers of twice the size, if the next episodes may need them."""
        if self.fresh is None or self._filled + 2 * self.block <= self.data.use.shape[1]:
            return
        arguments = list(self._fit_arguments(keys))
        arguments[2] = jax.eval_shape(_doubled, self.data)
        for program in fit_programs(*arguments):
            ahead.start(program.name, program.lower)

    def examples(self) -> list[list[Examples]]:
        """For each seed, what its data say of every learned cost."""
        if not self.per_seed or self.data.told is None:
            return []
        rows = [np.asarray(x)[:, : self._filled] for x in (self.data.next_obs, self.data.told, self.data.use)]
        return [learned_examples(self.task, obs[use], told[use]) for obs, told, use in zip(*rows, strict=True)]

    def ahead(self, batch: Batch) -> np.ndarray | None:
        """R² at the planning horizon on an episode the models have not seen, [S, D]; None if it is too short."""
        if not self.per_seed or not self.settings.horizon <= batch.obs.shape[1] <= self.block:
            return None
        parts = [self._padded(x) for x in batch[:4]]
        return np.asarray(_horizon_r2_all(self.models, *parts, self.settings.horizon))


def check_about(meta: dict[str, int]) -> None:
    """Refuse numbers about a stored state that no `Learner.meta` has written."""
    names = ("fits", "filled", "capacity")
    if not all(meta.get(name, -1) >= 0 for name in names) or meta["filled"] > meta["capacity"]:
        raise GussError(
            f"meta.learner must have {', '.join(names)}, with filled ≤ capacity and none below 0; got {meta}"
        )


def diverged(report: FitReport) -> np.ndarray:
    """Which seeds' fits are useless, [S]."""
    evaluated = np.asarray(report.held_out) > 0  # otherwise the error is not known, which is no divergence
    return np.asarray(report.diverged) | (evaluated & ~np.isfinite(np.asarray(report.nll)))


def divergence_error(episode: int, seeds: list[int]) -> GussError:
    """What to say then."""
    return GussError(
        f"the model diverged while fitting for episode {episode} (seeds {seeds}: its error on held-out "
        f"data is not finite); lower the learning rate, or look for outliers. Episodes before are kept."
    )


@partial(jax.jit, static_argnums=(0, 3), compiler_options=QUICKLY)
def _make_models(name: str, task: Task, keys: Key[Array, "S"], settings: ModelSettings) -> Learned:
    return jax.vmap(lambda key: make_model(name, task, jax.random.fold_in(key, BEYOND_EPISODES), settings))(keys)


@partial(jax.jit, static_argnums=1, compiler_options=AT_ONCE)
def _num_training(data: Data, settings: FitSettings) -> Array:
    return jax.vmap(lambda rows: jnp.sum(split_rows(rows, settings)[0], dtype=jnp.int32))(data)


@partial(jax.jit, compiler_options=AT_ONCE)
def _append_all(data: Data, more: Batch, count: Array) -> Data:
    told = lambda new: None if data.told is None else new.told  # noqa: E731
    block = lambda new: Data(new.obs, new.action, new.next_obs, new.use, count, told(new))  # noqa: E731
    return jax.vmap(lambda rows, new: append(rows, block(new)))(data, more)


@jax.jit
def _doubled(data: Data) -> Data:
    double = lambda x: jnp.concatenate([x, jnp.zeros_like(x)], axis=1)  # noqa: E731
    obs, action, next_obs, use = map(double, data[:4])
    return Data(obs, action, next_obs, use, data.filled, None if data.told is None else double(data.told))


@partial(jax.jit, static_argnums=5, compiler_options=AT_ONCE)
def _horizon_r2_all(models: Model, obs: Array, action: Array, next_obs: Array, use: Array, horizon: int) -> Array:
    return jax.vmap(lambda m, o, a, n, u: horizon_r2(m, o, a, n, horizon, u))(models, obs, action, next_obs, use)
