"""Replay of a stored episode, step by step, with the plans of every step.

Plans are recomputed, not stored: with the models of that episode (from a checkpoint, or refitted to the traces), in the
states of the episode, with the run's random keys. `Replay.verdict` compares the recomputed with the stored actions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from guss import keys as streams
from guss.collect.datasets import read_episode
from guss.collect.host import begin_all
from guss.collect.inputs import with_names
from guss.errors import GussError
from guss.methods.planning import plan_all
from guss.planners.engine import Diagnostics, Monitor, Plan
from guss.planners.smooth_memory import with_applied_action
from guss.runs.checkpoints import checkpoint_after
from guss.runs.config import spec_of_run
from guss.runs.description import read_stored
from guss.runs.fit import FitSummary, fit_log, log_of_run
from guss.runs.results import read_config
from guss.runs.rows import read_episodes
from guss.runs.sources import warn_if_changed
from guss.runs.store import trace_path
from guss.runs.trainer import Trainer, ignore
from guss.runs.views import plain_view
from guss.task import Grid
from guss.types import Rollout, Scores


class Candidates(NamedTuple):
    """All plans that were evaluated at one step, [M, …]."""

    paths: Float[Array, "M H D"]  # predicted observations, mean over particles
    reward: Float[Array, "M"]
    safe: Bool[Array, "M"]
    finite: Bool[Array, "M"]  # the prediction is finite
    cell: Int[Array, "M"]  # behaviour cell


class CandidateMonitor(Monitor):
    """Records all candidates of a plan."""

    num_plans: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    obs_size: int = eqx.field(static=True)

    def init(self) -> tuple[Int[Array, ""], Candidates]:
        zeros = partial(jnp.zeros, self.num_plans)
        paths = jnp.zeros((self.num_plans, self.horizon, self.obs_size))
        return jnp.zeros((), jnp.int32), Candidates(paths, zeros(), zeros(bool), zeros(bool), zeros(jnp.int32))

    def update(self, aux: PyTree, rollouts: Rollout, scores: Scores) -> PyTree:
        """Append one generation."""
        count, candidates = aux
        paths = jnp.mean(rollouts.next_obs, axis=1)
        new = Candidates(paths, scores.reward, scores.safe, scores.finite, scores.cell)
        write = lambda rows, more: jax.lax.dynamic_update_slice_in_dim(rows, more, count, axis=0)  # noqa: E731
        return count + paths.shape[0], jax.tree.map(write, candidates, new)


class PlanSnapshot(NamedTuple):
    """The outcome of planning at one step, as NumPy arrays."""

    action: np.ndarray  # the first action of the chosen plan
    candidates: Any  # Candidates: all plans that were evaluated
    chosen: np.ndarray  # [H, D], predicted observations of the chosen plan
    behaviour: np.ndarray  # its descriptor
    diagnostics: Diagnostics
    actions: np.ndarray  # [H, …], the actions of the chosen plan

    def summary(self) -> str:
        """The number of safe plans, and safety and reward of the chosen plan."""
        d, safe = self.diagnostics, self.candidates.safe
        words = f"{safe.sum()} of {len(safe)} plans predicted safe; chosen plan: "
        words += "safe" if d.cost <= 0 and d.hard <= 0 else "unsafe"
        reward = round(float(d.reward), 2) + 0.0  # no −0
        return words + f", reward {reward:.2f}" + (", fallback action" if d.fallback else "")


class ReplayStep(NamedTuple):
    """One step of a stored episode."""

    step: int
    obs: np.ndarray
    snapshot: PlanSnapshot | None  # None if the action was not planned


class Replay:
    """A stored episode of one seed; `steps()` iterates over it and recomputes its plans."""

    def __init__(
        self, home: Path, episode: int | None, seed: int | None, on_fit: Callable[[FitSummary], Any] = ignore
    ) -> None:
        self.config = read_config(home)
        self.trainer = Trainer(self.config) if self.config.plans else None
        """The trainer that planned the episode; None for a policy."""
        self.method: Any = None if self.trainer is None else self.trainer.method
        spec = spec_of_run(self.config)
        warn_if_changed(home, self.config)
        facts = read_stored(home).facts
        names = (None, None) if facts is None else (facts.env.dimensions, facts.env.actions)
        self.task = with_names(self.config.tasks(spec.make_task())[0], *names)
        self.row = self.config.row_of(seed)
        self.seed = self.config.seeds[self.row]
        lines = [line for line in read_episodes(home) if line["seed"] == self.seed]
        done = self.num_episodes = len(lines)
        stored = [e for e in range(done) if trace_path(home, self.seed, e).exists()]
        self.episode = max(stored, default=done - 1) if episode is None else episode
        if not 0 <= self.episode < done:
            has = f"episodes 0 to {done - 1}, got episode {self.episode}" if done else "no finished episode yet"
            raise GussError(f"{home} has {has}")
        if self.episode not in stored and stored:
            near = min(stored, key=lambda e: abs(e - self.episode))
            raise GussError(
                f"episode {self.episode} of {home} has no stored trace: of episodes that run in parallel, only the "
                f"first is stored; the nearest stored episode is {near}"
            )
        self.traces = [read_episode(trace_path(home, each, self.episode)) for each in self.config.seeds]
        self.plain = spec.view is None
        """Whether the environment has no View, so that the dimensions of its observations are drawn."""
        self.view = spec.view or plain_view(self.task, self.traces)
        self.random = lines[self.episode]["phase"] == "random"
        self.state: Any = self._state(home, on_fit) if self.replans else ()
        self.replanned, self.matching = 0, 0
        """Steps replanned so far, and how many of them have the stored action."""

    @property
    def replans(self) -> bool:
        """Whether the episode was planned, so that its plans can be recomputed."""
        return not self.random and self.trainer is not None

    @property
    def grid(self) -> Grid:
        """The behaviour grid of the archive; of learned behaviour if behaviour is learned."""
        return (self.task if self.trainer is None else self.trainer.planning_task).grid

    @property
    def keeps_archive(self) -> bool:
        """Whether the planner keeps the best plan of each behaviour cell."""
        return self.method is not None and self.method.planner.keeps_archive

    def verdict(self) -> str:
        """A sentence on whether the recomputed actions are those of the run."""
        if not self.replans:
            how = "random actions" if self.random else "actions of a learned policy"
            return f"episode {self.episode} of seed {self.seed}, {how}"
        what = f"episode {self.episode} of seed {self.seed}, plans recomputed: "
        if self.matching == self.replanned:
            return what + "all actions match the stored actions"
        return what + (
            f"{self.matching} of {self.replanned} actions match the stored actions; the others differ "
            "(another machine, version or number of threads)"
        )

    def __len__(self) -> int:
        return len(self.traces[self.row].obs)

    def _state(self, home: Path, on_fit: Callable[[FitSummary], Any]) -> Any:
        """The state that planned this episode: from the checkpoint after it, or refitted as in the run."""
        assert self.trainer is not None
        if not self.config.learns:
            return self.trainer.state
        if (stored := checkpoint_after(home, self.episode + 1)) is not None:
            self.trainer.restore(stored)
            return self.trainer.state
        log = log_of_run(home, self.episode)
        return fit_log(log, in_turn=self.config.fit.warm_start, test=False, on_fit=on_fit)[0]

    def steps(self) -> Iterator[ReplayStep]:
        """Iterate over the steps, with recomputed plans if the episode was planned."""
        mine = self.traces[self.row]
        snapshots = self._snapshots() if self.replans else iter(())
        for t in range(len(self)):
            snapshot = next(snapshots, None)
            if snapshot is not None:
                self.replanned += 1
                self.matching += bool(np.allclose(snapshot.action, mine.action[t], atol=1e-3))
            yield ReplayStep(t, mine.obs[t], snapshot)

    def _snapshots(self) -> Iterator[PlanSnapshot]:
        """Plan for all seeds at once, as in the run, in the states of the episode."""
        assert self.trainer is not None
        method, planner = self.method, self.method.planner
        num_plans = sum(planner.schedule(planner.budget))
        monitor = CandidateMonitor(num_plans, planner.horizon, self.task.observations.size)
        state = method.acting(self.state)
        keys, memory = begin_all(method, state, streams.episodes(self.trainer.keys, self.episode, 1))
        keys, memory = jax.tree.map(lambda x: x[:, 0], (keys, memory))
        for t in range(len(self)):
            obs = jnp.asarray(np.stack([trace.obs[min(t, len(trace.obs) - 1)] for trace in self.traces]))
            plans = plan_all(method, state, memory, obs, keys, np.int32(t), monitor)
            taken = np.stack([trace.action[min(t, len(trace.action) - 1)] for trace in self.traces])
            memory = with_applied_action(plans.memory, taken)
            plan: Plan = jax.tree.map(lambda x: x[self.row], jax.device_get(plans._replace(memory=())))
            yield PlanSnapshot(
                action=np.asarray(plan.action),
                candidates=plan.aux[1],
                chosen=np.asarray(plan.trajectory.next_obs).mean(axis=0),
                behaviour=np.asarray(plan.behaviour),
                diagnostics=plan.diagnostics,
                actions=np.asarray(plan.trajectory.action)[0],
            )
