"""What is learned: a model and its data for every seed, fitted all at once (TRAIN of Alg. 1)."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, Shaped

from guss.agent.settings import AgentSettings
from guss.errors import GussError
from guss.models.fitting import Data, append, empty_data
from guss.models.judging import FitReport, horizon_r2
from guss.models.learned import Learned, fit_all, make_model
from guss.models.oracle import Oracle
from guss.task import Task
from guss.types import Model

BEYOND_EPISODES = 2**20  # folded into a seed's key, so that no episode has the key of the first weights


class Learner:
    """Models and data of all seeds, between episodes. Buffers double when they are full, which compiles anew."""

    def __init__(self, settings: AgentSettings, task: Task, keys: Key[Array, "S"], capacity: int) -> None:
        self.settings, self.task = settings, task
        self.fits = 0
        self.block = task.episode_length
        self.fresh: Learned | None = None
        self.models: Learned | Oracle
        if not settings.learns:
            if settings.plans:
                self.models = Oracle.of(task)
            return

        def make(key: Array) -> Learned:
            return make_model(settings.model, task, jax.random.fold_in(key, BEYOND_EPISODES), settings.net)

        self.fresh = jax.jit(jax.vmap(make))(keys)
        self.models = self.fresh
        one = empty_data(task.observations.size, task.actions.shape, task.actions.dtype, max(capacity, self.block))
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
            self.models, self.data = state["models"], state["data"]
            self.fits, self._filled = meta["fits"], meta["filled"]

    @property
    def rows(self) -> int:
        """Transitions held, per seed."""
        return self._filled if self.per_seed else 0

    def add(
        self,
        obs: Float[np.ndarray, "S N D"],
        action: Shaped[np.ndarray, "S N ..."],
        next_obs: Float[np.ndarray, "S N D"],
        use: Bool[np.ndarray, "S N"],
    ) -> None:
        """More transitions, N for each seed; those not in `use` are kept and not learned from."""
        if not self.per_seed:
            return
        for start in range(0, obs.shape[1], self.block):
            parts = [x[:, start : start + self.block] for x in (obs, action, next_obs, use)]
            count = parts[0].shape[1]
            while self._filled + self.block > self.data.use.shape[1]:
                self.data = _doubled(self.data)
            self.data = _append_all(self.data, *(self._padded(x) for x in parts), np.int32(count))
            self._filled += count

    def _padded(self, x: np.ndarray) -> np.ndarray:
        """A part of an episode as long as a whole one, so that episodes of any length compile nothing anew."""
        return np.pad(x, [(0, 0), (0, self.block - x.shape[1]), *[(0, 0)] * (x.ndim - 2)])

    def fit(self, keys: Key[Array, "S"]) -> FitReport | None:
        """Fit the models of all seeds to their data; the models stay as they were for a seed that diverges."""
        if self.fresh is None:
            return None
        assert not isinstance(self.models, Oracle)
        fitted, report = fit_all(self.models, self.fresh, self.data, keys, self.settings.fit, np.bool_(self.fits > 0))
        if not diverged(report).any():
            self.models, self.fits = fitted, self.fits + 1
        return report

    def ahead(
        self,
        obs: Float[np.ndarray, "S T D"],
        action: Shaped[np.ndarray, "S T ..."],
        next_obs: Float[np.ndarray, "S T D"],
        use: Bool[np.ndarray, "S T"],
    ) -> np.ndarray | None:
        """R² at the planning horizon on an episode the models have not seen, [S, D]; None if it is too short."""
        if not self.per_seed or not self.settings.horizon <= obs.shape[1] <= self.block:
            return None
        parts = [self._padded(x) for x in (obs, action, next_obs, use)]
        return np.asarray(_horizon_r2_all(self.models, *parts, self.settings.horizon))


def diverged(report: FitReport) -> np.ndarray:
    """Which seeds' fits are useless, [S]."""
    return np.asarray(report.diverged) | ~np.isfinite(np.asarray(report.nll))


def divergence_error(episode: int, seeds: list[int]) -> GussError:
    """What to say then."""
    return GussError(
        f"the model diverged while fitting for episode {episode} (seeds {seeds}: its error on held-out "
        f"data is not finite); lower the learning rate, or look for outliers. Episodes before are kept."
    )


@jax.jit
def _append_all(data: Data, obs: Array, action: Array, next_obs: Array, use: Array, count: Array) -> Data:
    return jax.vmap(append, in_axes=(0, 0, 0, 0, 0, None))(data, obs, action, next_obs, use, count)


@jax.jit
def _doubled(data: Data) -> Data:
    double = lambda x: jnp.concatenate([x, jnp.zeros_like(x)], axis=1)  # noqa: E731
    return Data(double(data.obs), double(data.action), double(data.next_obs), double(data.use), data.filled)


@partial(jax.jit, static_argnums=5)
def _horizon_r2_all(models: Model, obs: Array, action: Array, next_obs: Array, use: Array, horizon: int) -> Array:
    return jax.vmap(lambda m, o, a, n, u: horizon_r2(m, o, a, n, horizon, u))(models, obs, action, next_obs, use)
