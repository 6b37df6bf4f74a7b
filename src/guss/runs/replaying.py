"""A stored episode once more: what happened, and what the planner thought at every step.

Thoughts are not stored but had again: the models of that time (from a checkpoint, or fitted again to the traces), the
states that were met, and the run's own random keys. Whether the actions agree with those taken is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from guss.agent.hosting import plan_all
from guss.agent.systems import with_names
from guss.agent.traces import read_trace
from guss.errors import GussError, UnknownNameError
from guss.planners.engine import Diagnostics, Monitor, Plan
from guss.runs.config import spec_of_run
from guss.runs.facts import read_stored
from guss.runs.learning import PlanningLoop
from guss.runs.lines import read_episodes
from guss.runs.modelling import FitNews, fit_log, log_of_run
from guss.runs.records import trace_path, unsafe_steps
from guss.runs.running import checkpoint_after, read_config
from guss.runs.showing import plain_view
from guss.runs.sources import warn_if_changed
from guss.types import Model, Planner, Rollout, Scores


class Looked(NamedTuple):
    """Every plan that was looked at, [M, …]."""

    paths: Float[Array, "M H D"]  # where it leads, mean over particles
    reward: Float[Array, "M"]
    safe: Bool[Array, "M"]
    usable: Bool[Array, "M"]  # its prediction is finite
    cell: Int[Array, "M"]  # its kind of behaviour


class Fan(Monitor):
    """Keeps what is shown of every plan."""

    num_plans: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    obs_size: int = eqx.field(static=True)

    def init(self) -> tuple[Int[Array, ""], Looked]:
        """Nothing yet."""
        count = self.num_plans
        no = jnp.zeros((count,), bool)
        paths = jnp.zeros((count, self.horizon, self.obs_size))
        return jnp.zeros((), jnp.int32), Looked(paths, jnp.zeros((count,)), no, no, jnp.zeros((count,), jnp.int32))

    def update(self, seen: PyTree, rollouts: Rollout, scores: Scores) -> PyTree:
        """One generation more."""
        count, looked = seen
        paths = jnp.mean(rollouts.next_obs, axis=1)
        new = Looked(paths, scores.reward, scores.safe, scores.finite, scores.cell)
        write = lambda rows, more: jax.lax.dynamic_update_slice_in_dim(rows, more, count, axis=0)  # noqa: E731
        return count + paths.shape[0], jax.tree.map(write, looked, new)


class Thought(NamedTuple):
    """What the planner thought at one step, as NumPy arrays."""

    action: np.ndarray  # that it chose now
    looked: Any  # Looked: all its plans
    chosen: np.ndarray  # [H, D], where the chosen plan leads
    behaviour: np.ndarray  # its descriptor
    diagnostics: Diagnostics
    planned: np.ndarray  # [H, …], the actions of the chosen plan

    def in_words(self) -> str:
        """What came out of it."""
        d, looked = self.diagnostics, self.looked
        words = f"{looked.safe.sum()} of {len(looked.safe)} plans predicted safe; the chosen one: "
        words += "safe" if d.cost <= 0 and d.hard <= 0 else "UNSAFE, the least bad"
        return words + f", reward {float(d.reward):.2f}" + (", fallback action" if d.fallback else "")


class Scene(NamedTuple):
    """One step of a stored episode."""

    step: int
    obs: np.ndarray
    action: np.ndarray
    reward: float
    unsafe: bool
    next_obs: np.ndarray
    jumped: bool  # it was not the action that led to next_obs: nothing to learn from
    thought: Thought | None  # None where actions were random


class Replay:
    """A stored episode of one seed; `scenes()` goes through it."""

    def __init__(
        self, home: Path, episode: int | None, seed: int | None, on_fit: Callable[[FitNews], Any] | None = None
    ) -> None:
        self.config = read_config(home)
        self.loop = PlanningLoop(self.config) if self.config.baseline is None else None
        """What planned; None for a policy, which does not."""
        spec = spec_of_run(self.config)
        warn_if_changed(home, self.config)
        facts = read_stored(home).facts
        names = (None, None) if facts is None else (facts.dimensions, facts.actions)
        self.task = with_names(self.config.tasks(spec.make_task())[0], *names)
        seeds = self.config.seeds
        self.seed = seeds[0] if seed is None else seed
        if self.seed not in seeds:
            raise UnknownNameError("seed of the run", str(self.seed), [str(s) for s in seeds])
        self.row = seeds.index(self.seed)
        lines = [line for line in read_episodes(home) if line["seed"] == self.seed]
        done = self.num_episodes = len(lines)
        stored = [e for e in range(done) if trace_path(home, self.seed, e).exists()]
        self.episode = max(stored, default=done - 1) if episode is None else episode
        if not 0 <= self.episode < done:
            raise GussError(f"{home} has the episodes 0 to {done - 1}, asked for {self.episode}")
        if self.episode not in stored and stored:
            near = min(stored, key=lambda e: abs(e - self.episode))
            raise GussError(
                f"episode {self.episode} of {home} was not kept step by step: of those that are played at once, the "
                f"first is, as episode {near}"
            )
        self.traces = [read_trace(trace_path(home, each, self.episode)) for each in seeds]
        self.plain = spec.view is None
        """Whether the environment does not say how it is shown: then it is by its dimensions."""
        self.view = spec.view or plain_view(self.task, self.traces)
        self.random = lines[self.episode]["phase"] == "random"
        self.models: Model | None = self._models(home, on_fit) if self.thinks else None
        self.thought, self.alike = 0, 0
        """Steps planned again so far, and those of them whose action was chosen again."""

    @property
    def thinks(self) -> bool:
        """Whether there are plans to show."""
        return not self.random and self.loop is not None

    def verdict(self) -> str:
        """Whether the plans shown are those of the run."""
        if not self.thinks:
            how = "random actions" if self.random else "actions of a learned policy"
            return f"episode {self.episode} of seed {self.seed}, {how}"
        what = f"episode {self.episode} of seed {self.seed}, planned again: "
        if self.alike == self.thought:
            return what + "every action is the one that was taken"
        return what + (
            f"{self.alike} of {self.thought} actions are those that were taken; the others are not quite "
            "those of the run (another machine, version or number of threads)"
        )

    def __len__(self) -> int:
        return len(self.traces[self.row].obs)

    def _models(self, home: Path, on_fit: Callable[[FitNews], Any] | None) -> Model:
        """The models that planned this episode: of the checkpoint after it, or fitted again as the run did."""
        assert self.loop is not None
        learner = self.loop.learner
        if not learner.per_seed:
            return learner.models
        stored = checkpoint_after(home, self.episode + 1)
        if stored is not None:
            self.loop.restore(stored)
            return learner.models
        log = log_of_run(home, self.episode)
        return fit_log(log, in_turn=self.config.fit.warm_start, test=False, on_fit=on_fit)[0].models

    def scenes(self) -> Iterator[Scene]:
        """Step by step."""
        mine = self.traces[self.row]
        assert mine.reward is not None
        unsafe = unsafe_steps(self.task, mine)
        thoughts = self._thoughts() if self.thinks else iter(())
        for t in range(len(self)):
            thought = next(thoughts, None)
            if thought is not None:
                self.thought += 1
                self.alike += bool(np.allclose(thought.action, mine.action[t], atol=1e-3))
            yield Scene(
                step=t,
                obs=mine.obs[t],
                action=mine.action[t],
                reward=float(mine.reward[t]),
                unsafe=bool(unsafe[t]),
                next_obs=mine.next_obs[t],
                jumped=not mine.use[t],
                thought=thought,
            )

    def _thoughts(self) -> Iterator[Thought]:
        """The plans of all seeds at once, as the run made them, in the states that were met."""
        assert self.loop is not None
        loop, task = self.loop, self.loop.planned
        planner: Planner = loop.planner
        fan = Fan(sum(planner.schedule(planner.budget)), planner.horizon, task.observations.size)
        keys = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, self.episode))[1])(loop.keys)
        memory = jax.tree.map(lambda x: jnp.stack([x] * len(self.traces)), planner.first_memory())
        per_seed = loop.learner.per_seed
        for t in range(len(self)):
            obs = jnp.asarray(np.stack([trace.obs[min(t, len(trace.obs) - 1)] for trace in self.traces]))
            plans = plan_all(planner, self.models, task, obs, keys, memory, np.int32(t), per_seed, fan)
            memory = plans.memory
            plan: Plan = jax.tree.map(lambda x: x[self.row], jax.device_get(plans._replace(memory=())))
            yield Thought(
                action=np.asarray(plan.action),
                looked=plan.seen[1],
                chosen=np.asarray(plan.trajectory.next_obs).mean(axis=0),
                behaviour=np.asarray(plan.behaviour),
                diagnostics=plan.diagnostics,
                planned=np.asarray(plan.trajectory.action)[0],
            )
