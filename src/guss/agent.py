"""`Agent`: learns a model of one system from few episodes, and plans safely in it (Alg. 1 of the paper)."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from guss import agent_episodes, agent_file, checkpoint
from guss import keys as streams
from guss.checkpoint import Stored
from guss.collect.compiled import EPISODES, CompiledCollector
from guss.collect.datasets import Columns, Dataset
from guss.collect.episode_metrics import episode_metrics
from guss.collect.exploration import random_action
from guss.collect.host import act_all, begin_all
from guss.collect.inputs import InputChecker, read_logged, resolve
from guss.collect.trajectories import from_steps, hard_violations
from guss.compilation import Ahead, begin_programs, strong
from guss.errors import GussError, warn
from guss.explanation import Decision, Explanation, explain
from guss.history import Episode, OnEpisode, OpenEpisode, is_initial
from guss.method import Method
from guss.methods.base import with_room
from guss.methods.factory import make_method
from guss.methods.planning import EVALUATION, plan_all
from guss.methods.presets import preset_for, settings_from
from guss.methods.settings import AgentSettings
from guss.models.evaluation import FitReport, check_fit
from guss.models.unsafe_examples import Knowledge
from guss.planners.engine import Diagnostics
from guss.planners.smooth_memory import with_applied_action
from guss.plugins import find_preset
from guss.task import Task
from guss.types import Trajectory, Transition
from guss.validation import check_seed

PLAN = "plan"
"""Name of the program, compiled ahead, that plans one step."""


class Agent:
    """A method and its state for one system: learns a model of the system and controls it by planning in that model.

    In a custom loop, call `act(obs)`, then `observe(transition)`, with `end=True` at the end of an episode. `learn(20)`
    runs episodes on a system that guss can step. Raises GussError if settings, traces and system are incompatible.

    Example:
        >>> agent = guss.Agent("safe-pendulum", seed=1)
        >>> agent.phase, agent.act(np.zeros(agent.task.observations.size)).shape
        ('random', (1,))
    """

    def __init__(
        self,
        system: Any,
        *,
        task: Task | None = None,
        seed: int = 0,
        initial_policy: Callable[[np.ndarray], Any] | None = None,
        traces: Iterable[str | Path | Transition | Dataset] = (),
        columns: Columns | None = None,
        preset: dict[str, Any] | None = None,
        method: str = "guss",
        **settings: Any,
    ) -> None:
        """`system`: an environment's name, a Task, or a Gymnasium environment, with a `task` if reward and cost are
        known; otherwise they are learned from the values that it reports. `seed`: seed of all random streams.

        `initial_policy(obs)`: a controller for the first episodes, instead of random actions. `traces`: logged
        transitions to learn from before the first step (NPZ, CSV, Parquet, folders of them, or batches); then there
        are no random episodes unless `initial_episodes` is set. `columns`: names of these files' columns, such as
        {"obs": ["temperature", "pressure"], "action": ["valve"]}. `method`, `settings`: fields of AgentSettings, with
        `method_settings`, `model_settings` and `fit` as dicts. Omitted fields are taken from the `preset`, which is by
        default the file in experiments/ with the system's name; fields that it omits too have their defaults.
        """
        begin_programs()
        known, self.env = resolve(system, task)
        logged, known = read_logged(known, traces, columns)
        if logged:
            settings.setdefault("initial_episodes", 0)
        chosen = preset_for(find_preset(known.name) if preset is None else preset, known)
        self.settings = settings_from(AgentSettings, chosen, method, **settings)
        self._task, self._planning_task = self.settings.tasks(known)
        self._changed: dict[str, dict[str, Any]] = {}  # parameters changed by `set_constraint`, by constraint
        self.initial_policy = initial_policy
        self.seed = check_seed(seed)
        self.key = jax.random.key(self.seed)
        self.method: Method = make_method(self.settings, self._planning_task, 8 * self.task.episode_length)
        self.state: PyTree = self.method.init_all(streams.first_state(self.key)[None])
        """The learned state; arrays have a leading axis of length 1."""
        self.inputs = InputChecker(self.task, self.env)
        self.history: list[Episode] = []
        self.num_observed = 0
        """Transitions that the method has received, including logged data."""
        self.last_plan: Diagnostics | None = None
        self._choice: Decision | None = None
        self._report: FitReport | None = None
        self._knowledge = Knowledge()
        self._open = OpenEpisode()
        self._carry: PyTree = ()
        self._ahead = Ahead()
        self._begin()
        for trace in logged:
            self.remember(trace)

    # ------------------------------------------------------------------------------------------------------- the task

    @property
    def task(self) -> Task:
        """The task that scores the system's steps. Read-only: `set_constraint` changes a limit."""
        return self._task

    @task.setter
    def task(self, _: Task) -> None:
        raise AttributeError("agent.task is read-only; agent.set_constraint(name, parameter=value) changes a limit")

    @property
    def planning_task(self) -> Task:
        """The task that scores plans: `task` with the planning margin, and without learned outcomes."""
        return self._planning_task

    def set_constraint(self, name: str, **parameters: Any) -> None:
        """Change parameters of a constraint, such as `limit=0.4`; the next plan and the next step use them.

        Parameters are those of `with_params`, and `threshold` for a learned cost. Nothing is recompiled. The planning
        margin is kept, and `save` stores the change. If the environment reports the cost itself
        (`info["cost"]`), only plans change: the environment still uses its own limit.
        """
        self.settings.check_parameters_of(self._task, name, parameters)
        self._changed[name] = self._changed.get(name, {}) | parameters
        self._use_tasks(*self.settings.tasks(self._task.update(name, **parameters)))

    def _use_tasks(self, task: Task, planning_task: Task) -> None:
        self._task, self._planning_task = task, planning_task
        self.inputs = InputChecker(task, self.env)
        self.method = dataclasses.replace(self.method, task=planning_task)

    # ---------------------------------------------------------------------------------------------------- custom loop

    @property
    def episode(self) -> int:
        """The number of the current episode."""
        return len(self.history)

    @property
    def phase(self) -> str:
        """How actions of the current episode are chosen: "random", "initial_policy", "plan" or "policy" (learned)."""
        if not self._first:
            return self.method.phase
        return "random" if self.initial_policy is None or not self.settings.plans else "initial_policy"

    def act(self, obs: Any) -> np.ndarray:
        """The action to take now, as a NumPy array (a scalar array for a single discrete choice)."""
        step = len(self._open.steps)
        where = f"episode {self.episode}, step {step}"
        array = self.inputs.obs(obs, where)
        self._compile_ahead()
        started, search = time.perf_counter(), ()
        if self.phase == "random":
            action = self._random_action(step)
        elif self.phase == "initial_policy":
            assert self.initial_policy is not None
            action = self.inputs.action(self.initial_policy(array), f"initial_policy in {where}")
        else:
            self.fit()
            started = time.perf_counter()
            self._ahead.wait(EVALUATION, PLAN)
            action, search = self._decide(array)
        self._open.acts += 1
        self._open.plan_seconds += time.perf_counter() - started
        self._choice = Decision(self.phase, self.episode, step, array, np.asarray(action), self.task, *search)
        return self.inputs.outward(action)

    def _decide(self, obs: np.ndarray) -> tuple[np.ndarray, tuple[Any, ...]]:
        """The method's action; if the method plans, also the arguments and the result of its search."""
        if not self.method.plans:
            states, t = self.method.acting(self.state), np.int32(self._open.acts)
            keys = self._keys.steps[None, None]
            action, self._carry, aux = act_all(self.method, states, keys, self._carry, obs[None, None], t)
            self._open.aux.append(aux)
            return np.asarray(np.asarray(action)[0, 0]), ()
        arguments = self._plan_arguments(obs)
        plan = plan_all(*arguments)
        self._carry = jax.tree.map(lambda x: np.asarray(x)[:, None], plan.memory)  # compiles nothing
        self.last_plan = jax.tree.map(lambda x: x[0], jax.device_get(plan.diagnostics))
        return np.asarray(np.asarray(plan.action)[0]), (arguments, plan)

    def explain(self) -> Explanation:
        """Why the last action was chosen: `print(agent.explain())`. The first call compiles the planner once more."""
        return explain(self._choice)

    def warm_up(self, obs: Any) -> None:
        """Compile all programs, so that no later call waits for compilation; `obs`: any observation.

        The agent's state does not change. Without `warm_up`, programs are compiled in threads from the first `act` or
        `learn` on, while random episodes run.
        """
        array = self.inputs.obs(obs, "warm_up")
        self._compile_ahead()
        self._ahead.wait()
        if self.settings.plans:
            jax.block_until_ready(plan_all(*self._plan_arguments(array)))
        self._random_action(0)

    def observe(self, transition: Transition, *, end: bool = False, terminated: bool = False, use: bool = True) -> bool:
        """Record one transition of the system. If `reward` or `cost` is None, the task's function computes it.

        Returns whether the episode is over: because of `end` or `terminated`, after the task's episode length, or after
        a violation of a hard limit (`history[-1].hard_stop` names it; stop the system then). `terminated`: the system
        ended the episode itself; the agent learns to predict this. `use=False` excludes the transition from training,
        for example when the system was moved by hand. An invalid transition raises an error and is not stored.
        """
        where = f"episode {self.episode}, step {len(self._open.steps)}"
        move = self.inputs.transition(transition, where)
        self._open.add(move, use, terminated)
        self._carry = with_applied_action(self._carry, move.action)
        stop = bool(hard_violations(self.task, np.asarray(move.cost)))
        over = end or terminated or stop or len(self._open.steps) >= self.task.episode_length
        if over:
            self._close()
        return over

    def reset(self) -> None:
        """Start a new episode; the steps of an unfinished one are kept as an episode."""
        if self._open.steps:
            self._close()
        self._begin()

    def remember(self, trace: Transition | Dataset, use: np.ndarray | None = None) -> None:
        """Learn from a batch of logged transitions, arrays [N, …]; reward and cost are not needed.

        `use`: for each transition, whether to learn from it.
        """
        if self.settings.is_policy:
            name = self.settings.method
            raise GussError(
                f"method {name!r} learns only from its own episodes; logged data need a planning method, such as guss"
            )
        rows = self.inputs.dataset(trace)
        if use is not None:
            count, learnable = rows.valid.shape[2], np.asarray(use, bool)
            if learnable.shape != (count,):
                raise GussError(f"`use` must have shape ({count},), one flag per transition, got {learnable.shape}")
            rows = rows._replace(learnable=learnable[None, None])
        self._update(rows)

    def _update(self, trajectory: Trajectory) -> dict[str, Any]:
        self._make_room(self.num_observed + trajectory.valid.shape[2])
        keys = streams.updates(self.key[None], self.episode)
        self.state, metrics = self.method.update_all(self.state, trajectory, keys)
        return metrics

    def _make_room(self, steps: int) -> None:
        """Make room for `steps` transitions in the buffers of a policy method; a planning method enlarges its own."""
        self.num_observed = steps
        if not self.method.plans:
            self.method, self.state = with_room(self.method, self.state, steps)

    def fit(self) -> FitReport | None:
        """Fit the model to all observed transitions; does nothing if none are new."""
        if self.method.plans and self.settings.learns and self.num_transitions == 0:
            raise GussError(
                "there are no transitions to fit a model to: set initial_episodes to at least 1, or pass `traces`"
            )
        started = time.perf_counter()
        self.state, metrics = self.method.prepare(self.state, self._keys.fit[None], self._ahead.wait)
        check_fit(metrics, self.episode, (self.seed,))
        if "report" in metrics:
            self._report = jax.tree.map(lambda x: np.asarray(x)[0], metrics["report"])
            self._open.fit_seconds += time.perf_counter() - started
            for text in self._knowledge.news(self.method.examples(self.state)):
                warn(text)
        return self._report

    @property
    def num_transitions(self) -> int:
        """Transitions that the model learns from."""
        return self.state.num_rows if self.settings.learns else 0

    # -------------------------------------------------------------------------------------------------- whole episodes

    def learn(
        self, episodes: int, *, target: float | None = None, on_episode: OnEpisode = None, progress: bool | None = None
    ) -> list[Episode]:
        """Run up to `episodes` more episodes on the system, until the mean reward of a planned one reaches `target`.

        `progress`: whether to show progress on stderr; None: if stderr is a terminal.
        """
        return agent_episodes.learn(self, episodes, target, on_episode, progress)

    # ------------------------------------------------------------------------------------------------ save and load

    def save(self, path: str | Path) -> None:
        """Write the learned state to a file, without pickle; warns if steps of an unfinished episode are not saved."""
        checkpoint.save(Path(path), "agent", agent_file.about_agent(self), self.state)

    @classmethod
    def load(
        cls,
        path: str | Path,
        system: Any,
        *,
        task: Task | None = None,
        initial_policy: Callable[[np.ndarray], Any] | None = None,
    ) -> Agent:
        """Load the agent that `save` or `guss fit` wrote; it continues as if it had never stopped.

        `system` may have another name than at saving, but must have the same observation size, actions, constraints
        and learned outcomes. For a folder written by `guss run`, see `from_run`.
        """
        stored = agent_file.load_agent(Path(path))
        return agent_file.stored_agent(cls, stored, system, task=task, initial_policy=initial_policy)

    @classmethod
    def from_run(
        cls, run: str | Path, *, seed: int | None = None, system: Any = None, task: Task | None = None
    ) -> Agent:
        """The agent of one seed of a run that `guss run` stored, with the model fitted to all of its episodes.

        `seed`: one of the run's, by default the first. `system`, `task`: as in `Agent(system, task=…)`, with the same
        spaces and constraints as the run's; by default the run's own environment, whose code is then imported. The
        agent is ready to `act`, and may continue to learn; the run itself is not changed.
        """
        from guss.runs.final_model import agent_of_run

        return agent_of_run(Path(run), seed, system, task)

    def restore(self, stored: Stored, history: list[Episode], report: FitReport | None) -> None:
        """Load a stored state that was learned with the same spaces and constraints."""
        self._make_room(stored.meta.get("num_observed", sum(episode.steps for episode in history)))
        tasks, state = agent_file.stored_state(stored, self)
        self._use_tasks(*tasks)
        self.history = history
        self.adopt(state, report)

    def adopt(self, state: PyTree, report: FitReport | None) -> None:
        """Use this learned state, and the report on the fit of its model."""
        self.state, self._report = state, report
        self._begin()

    # ------------------------------------------------------------------------------------------------------- internals

    def _begin(self) -> None:
        self._open = OpenEpisode()
        self._keys = streams.of_agent(self.key, np.int32(self.episode))
        carries = begin_all(self.method, self.method.acting(self.state), self._keys.episode[None, None])[1]
        self._carry = strong(carries)
        self._first = is_initial(self.history, self.settings, self.task, self.env)

    def _plan_arguments(self, obs: np.ndarray) -> tuple[Any, ...]:
        memory = jax.tree.map(lambda x: np.asarray(x)[:, 0], self._carry)
        states, t = self.method.acting(self.state), np.int32(self._open.acts)
        return (self.method, states, memory, obs[None], self._keys.steps[None], t)

    def _compile_ahead(self, *, episodes: bool = False) -> None:
        """Start to compile the programs of later episodes in threads; `episodes`: whole episodes are one program."""
        if not self.method.plans or self._ahead.has(EPISODES if episodes else PLAN):
            return

        def compile_acting() -> None:
            if episodes:
                states, keys = self.method.acting(self.state), self._keys.episode[None, None]
                CompiledCollector(self.task).compile_ahead(self._ahead, self.method, states, keys)
            else:
                arguments = self._plan_arguments(np.zeros(self.task.observations.size, np.float32))
                self._ahead.start(PLAN, lambda: plan_all.lower(*arguments))

        self.method.compile_ahead(self._ahead, self.state, self._keys.fit[None], compile_acting)

    def _close(self, trajectory: Trajectory | None = None) -> None:
        """End the episode: learn from its transitions, append it to the history."""
        if trajectory is None:
            now = self._open
            trajectory = from_steps(now.steps, now.learnable, now.terminated, self.task, now.aux)
        metrics, model = self._update(trajectory), dict[str, Any]()
        if self.phase == "plan" and self._report is not None:
            report = jax.tree.map(lambda x: np.asarray(x)[None], self._report)
            record = self.method.record({"report": report}, metrics)
            model = {name: each[0] for name, each in record.items() if name not in ("train_loss", "best_epoch")}
        self.method.compile_larger(self._ahead, self.state, self._keys.fit[None])
        about = {"episode": self.episode, "phase": self.phase, "model": model}
        seconds = {name: getattr(self._open, name) for name in ("fit_seconds", "plan_seconds")}
        self.last_metrics = episode_metrics(self.task, trajectory)[0][0]
        self.history.append(Episode.of(self.last_metrics._asdict(), **about, **seconds))
        self._begin()

    def _random_action(self, step: int) -> np.ndarray:
        how, length = self.settings.explores(), self.task.episode_length
        return random_action(self.task.actions, self._keys.actions, step, length, how)
