"""`Agent`: learn to control one system from few episodes, and plan safely in what was learned (Alg. 1).

    agent = Agent("safe-pendulum")              or a Task, or a Gymnasium environment
    agent.learn(20)                             episodes on that system
    action = agent.act(obs)                     a safe plan's first action

Who owns the real system drives it: `act(obs)`, then `observe(transition)`, with `end=True` at an episode's end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from guss import checkpoint
from guss.agent import storing
from guss.agent.compiled import Programs, episode_keys, plan_step
from guss.agent.episodes import run_episodes
from guss.agent.explaining import Decision, Explanation, Search, explain
from guss.agent.exploration import explore_episodes, random_action
from guss.agent.history import Episode, batch_of_steps, episode_of, is_initial, model_measures, steps_of
from guss.agent.hosting import hard_violations
from guss.agent.learner import Learner, diverged, divergence_error
from guss.agent.settings import UNKNOWN_EPISODES, AgentSettings, settings_from
from guss.agent.systems import Checked, HostSystem, check_finite, check_steps, read_logged, resolve
from guss.agent.traces import Columns, Trace
from guss.checkpoint import Stored
from guss.errors import GussError, warn
from guss.loading import find_preset
from guss.models.examples import Knowledge
from guss.models.judging import FitReport
from guss.planners import make_planner
from guss.planners.engine import Diagnostics
from guss.programs import begin_programs, strong
from guss.progress import learning_progress
from guss.task import Task
from guss.types import Planner, Transition
from guss.validation import check_seed, convert


class Agent:
    """Learns a model of one system and controls it by planning in that model."""

    def __init__(
        self,
        system: Any,
        *,
        task: Task | None = None,
        seed: int = 0,
        initial_policy: Callable[[np.ndarray], Any] | None = None,
        traces: Iterable[str | Path | Transition | Trace] = (),
        columns: Columns | None = None,
        preset: dict[str, Any] | None = None,
        method: str = "guss",
        **settings: Any,
    ) -> None:
        """`system`: an environment's name, a Task, or a Gymnasium environment, with its `task` where reward and cost
        are known; otherwise they are learned from what it tells.

        `initial_policy(obs)`: your own controller, for the first episodes instead of random actions. `traces`: logged
        transitions to learn from before the first step (NPZ, CSV, Parquet, folders of them, or batches); then no
        random episode comes first unless `initial_episodes` says so. `columns`: names of these files' columns, as
        {"obs": ["temperature", "pressure"], "action": ["valve"]}. `settings`: those of AgentSettings, with `planner`,
        `net` and `fit` as dicts; what is not given comes from the preset of that name in experiments/, or the defaults.
        """
        begin_programs()
        known, self.env = resolve(system, task)
        logged, known = read_logged(known, traces, columns)
        if logged:
            settings.setdefault("initial_episodes", 0)
        chosen = find_preset(known.name) if preset is None else preset
        if "reward" in known.unknown:
            chosen = {"initial_episodes": UNKNOWN_EPISODES} | chosen
        self.settings = settings_from(AgentSettings, chosen, method, **settings)
        self._task, self._planned = self.settings.tasks(known)
        self._changed: dict[str, dict[str, Any]] = {}  # parameters of constraints set since, by name
        self.initial_policy = initial_policy
        self.planner: Planner = make_planner(
            method, self.task, horizon=self.settings.horizon, budget=self.settings.budget, **self.settings.planner
        )
        self.seed = check_seed(seed)
        self.key = jax.random.key(self.seed)
        self.learner = Learner(self.settings, self.planned, self.key[None], capacity=8 * self.task.episode_length)
        self.checked = Checked(self.task, self.env)
        self.history: list[Episode] = []
        self.last_plan: Diagnostics | None = None
        self._decision: Decision | None = None
        self._report: FitReport | None = None
        self._knowledge = Knowledge()
        self._fitted_rows = -1  # how many rows the model was last fitted to
        self._fit_seconds = self._plan_seconds = 0.0
        self._steps: list[tuple[Transition, bool]] = []  # of the episode under way; whether to learn from them
        self._terminated = False
        self._acts = 0
        self._memory: PyTree = ()
        self._programs = Programs()
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
    def planned(self) -> Task:
        """The task that scores plans: `task` with the planning margin, and without what is learned."""
        return self._planned

    def set_constraint(self, name: str, **parameters: Any) -> None:
        """Change parameters of a constraint, such as `limit=0.4`; the next plan and the next step obey them.

        Parameters are those of `with_params`, and `threshold` for a learned cost. Nothing is compiled again. The
        planning margin is kept, `save` stores the change. A cost that the environment reports itself (`info["cost"]`)
        stays as the environment computes it: then only plans change.
        """
        self.settings.check_parameters_of(self._task, name, parameters)
        self._task, self._planned = self.settings.tasks(self._task.update(name, **parameters))
        self._changed[name] = self._changed.get(name, {}) | parameters
        self.checked, self.learner.task = Checked(self._task, self.env), self._planned

    # ---------------------------------------------------------------------------------------------- a user's own loop

    @property
    def episode(self) -> int:
        """The number of the episode under way."""
        return len(self.history)

    @property
    def phase(self) -> str:
        """Who acts in the episode under way: "random", "initial_policy" or "plan"."""
        if not self._first:
            return "plan"
        return "random" if self.initial_policy is None or not self.settings.plans else "initial_policy"

    def act(self, obs: Any) -> np.ndarray:
        """The action to take now, as a NumPy array (a scalar array for a single discrete choice)."""
        step = len(self._steps)
        where = f"episode {self.episode}, step {step}"
        array = self.checked.obs(obs, where)
        self._compile_ahead()
        started, search = time.perf_counter(), None
        if self.phase == "random":
            action = self._random_action(step)
        elif self.phase == "initial_policy":
            assert self.initial_policy is not None
            action = self.checked.action(self.initial_policy(array), f"initial_policy in {where}")
        else:
            self.fit()
            started = time.perf_counter()
            self._programs.wait_plan()
            arguments = self._plan_arguments(array)
            plan = plan_step(*arguments)
            search = Search(*(*arguments, plan))
            self._memory, self.last_plan = plan.memory, jax.device_get(plan.diagnostics)
            action = np.asarray(plan.action)
        self._acts += 1
        self._plan_seconds += time.perf_counter() - started
        self._decision = Decision(self.phase, self.episode, step, array, np.asarray(action), self.task, search)
        return self.checked.outward(action)

    def explain(self) -> Explanation:
        """Why the last action was chosen: `print(agent.explain())`. The first call compiles the planner once more."""
        return explain(self._decision)

    def warm_up(self, obs: Any) -> None:
        """Compile everything that later calls need, so that none of them waits for it; `obs`: any observation.

        Nothing is learned and nothing changes. Without it, programs are compiled in threads from the first `act` or
        `learn` on, while random episodes run.
        """
        array = self.checked.obs(obs, "warm_up")
        self._compile_ahead()
        self._programs.ahead.wait()
        if self.settings.plans:
            jax.block_until_ready(plan_step(*self._plan_arguments(array)))
        self._random_action(0)

    def observe(self, transition: Transition, *, end: bool = False, terminated: bool = False, use: bool = True) -> bool:
        """What the system did. `reward` and `cost` may be None: then the task's functions say.

        Returns whether the episode is over: by `end`, after the task's episode length, or since a hard limit was
        violated (then `history[-1].hard_stop` says so, and the system must not be driven on). `terminated`: the system
        ended it itself, which is learned. `use=False`: not to be learned from, as when the system was moved by hand. A
        transition that is not usable is an error, and nothing of it is kept.
        """
        where = f"episode {self.episode}, step {len(self._steps)}"
        move = self.checked.transition(transition, where)
        self._steps.append((move, use))
        self._terminated = terminated
        stop = bool(hard_violations(self.task, np.asarray(move.cost)))
        over = end or terminated or stop or len(self._steps) >= self.task.episode_length
        if over:
            self._close()
        return over

    def reset(self) -> None:
        """A new episode begins; what was observed of an unfinished one is kept as an episode."""
        if self._steps:
            self._close()
        self._begin()

    def remember(self, trace: Transition | Trace, use: np.ndarray | None = None) -> None:
        """Learn from a batch of logged transitions, arrays [N, …]; reward and cost are not needed."""
        rows = self.checked.batch(trace)
        rows = rows._replace(use=np.asarray(rows.use if use is None else use, bool))
        if rows.use.shape != (len(rows.obs),):
            raise GussError(f"`use` says for each of the {len(rows.obs)} transitions, got shape {rows.use.shape}")
        self.learner.add(jax.tree.map(lambda x: x[None], rows))

    def fit(self) -> FitReport | None:
        """Fit the model to everything observed so far; does nothing if there is nothing new."""
        if not self.learner.per_seed or self._fitted_rows == self.learner.rows:
            return self._report
        if self.learner.rows == 0:
            raise GussError(
                "there is nothing to learn from yet: let initial_episodes be at least 1, or bring traces along"
            )
        started = time.perf_counter()
        report = self.learner.fit(self._key_fit[None], self._programs.ahead.wait)
        assert report is not None
        if diverged(report).any():
            raise divergence_error(self.episode, [self.seed])
        self._report, self._fitted_rows = jax.tree.map(lambda x: np.asarray(x)[0], report), self.learner.rows
        self._fit_seconds += time.perf_counter() - started
        for text in self._knowledge.news(self.learner.examples()):
            warn(text)
        return self._report

    # -------------------------------------------------------------------------------------------------- whole episodes

    def learn(
        self,
        episodes: int,
        *,
        target: float | None = None,
        on_episode: Callable[[Episode], Any] | None = None,
        progress: bool | None = None,
    ) -> list[Episode]:
        """Up to `episodes` more episodes on the system, or until a planned one's mean reward reaches `target`.

        `progress`: show it on stderr; None: if that is a terminal.
        """
        target = convert(target, float | None, "the target")
        if convert(episodes, int, "episodes") < 1:
            raise GussError(f"learn at least 1 episode, got {episodes}")
        check_steps(self.task, self.env)
        self.reset()
        self._compile_ahead(episodes=self.env is None and self.initial_policy is None)
        before = len(self.history)
        with learning_progress(episodes, progress) as shown:
            for number in range(episodes):
                if self.env is None and self.phase != "initial_policy":
                    self._compiled_episode()
                else:
                    self._host_episode(shown.step)
                news, length = self.history[-1], self.task.episode_length
                shown.episode(news.news(number, length, any(e.steps != length for e in self.history)))
                if on_episode is not None:
                    on_episode(news)
                if target is not None and news.phase == "plan" and news.mean_reward >= target:
                    break
        return self.history[before:]

    def _compiled_episode(self) -> None:
        """One episode of a compiled task: one program."""
        keys = self._key_episode[None]
        if self.phase == "random":
            moves = explore_episodes(self.task, keys, self.task.episode_length, self.settings.explores())
        else:
            self.fit()
            started = time.perf_counter()
            learner = self.learner
            how: Any = {"per_seed": learner.per_seed, "planned": self.planned}
            self._programs.wait_episodes()
            moves = run_episodes(self.planner, learner.models, self.task, keys, **how).transition
            self._plan_seconds += time.perf_counter() - started
        check_finite(self.task, moves, self.episode, [self.seed])
        self._steps = steps_of(self.task, moves)
        self._close()

    def _host_episode(self, on_step: Callable[[int], Any]) -> None:
        """One episode of a Gymnasium environment, or of a compiled task step by step."""
        system = HostSystem(self.task, self.env)
        episode = self.episode
        obs = system.reset(self._key_reset, self.seed, episode)
        while self.episode == episode:
            transition, ended, over, use = system.step(obs, self.act(obs), self._key_steps, len(self._steps))
            self.observe(transition, end=over, terminated=ended, use=use)
            obs = np.asarray(transition.next_obs)
            on_step(len(self._steps))

    # ------------------------------------------------------------------------------------------------ save and load

    def save(self, path: str | Path) -> None:
        """Write everything learned to a file, without pickle; steps of an episode under way are not, with a warning."""
        checkpoint.save(Path(path), "agent", storing.about_agent(self), self.learner.state)

    @classmethod
    def load(
        cls,
        path: str | Path,
        system: Any,
        *,
        task: Task | None = None,
        initial_policy: Callable[[np.ndarray], Any] | None = None,
    ) -> Agent:
        """The agent that `save` or `guss fit` wrote; it continues as if it had never stopped.

        `system` may have another name than the one it was saved with: its observation size, actions, constraints and
        learned outcomes must be the same. For a folder written by `guss run`, see `from_run`.
        """
        stored = storing.load_agent(Path(path))
        return storing.stored_agent(cls, stored, system, task=task, initial_policy=initial_policy)

    @classmethod
    def from_run(
        cls, run: str | Path, *, seed: int | None = None, system: Any = None, task: Task | None = None
    ) -> Agent:
        """The agent of one seed of a run that `guss run` stored, with the model fitted to all of its episodes.

        `seed`: one of the run's, by default the first. `system`, `task`: as in `Agent(system, task=…)`, with the same
        spaces and constraints as the run's; by default the run's own environment, whose code is then imported. The
        agent is ready to `act`, and may continue to learn; the run itself is not changed.
        """
        from guss.runs.deploying import agent_of_run

        return agent_of_run(Path(run), seed, system, task)

    def restore(self, stored: Stored, history: list[Episode], report: FitReport | None, fitted_rows: int) -> None:
        """Take over a stored model and its data, to `fitted_rows` of which it was fitted.

        They must have been learned with the same spaces and constraints.
        """
        tasks, learner = storing.stored_learner(stored, self.settings, (self.task, self.planned), self.key)
        self._task, self._planned = tasks
        self.history = history
        self.adopt(learner, report)
        self._fitted_rows = fitted_rows

    def adopt(self, learner: Learner, report: FitReport | None) -> None:
        """Take over a model and its data, and how good it is; it counts as fitted to all of them."""
        self.learner, self._report, self._fitted_rows = learner, report, learner.rows
        self._begin()

    # -------------------------------------------------------------------------------------------------------- the rest

    def _begin(self) -> None:
        self._steps, self._acts, self._terminated = [], 0, False
        self._fit_seconds = self._plan_seconds = 0.0
        keys = episode_keys(self.key, np.int32(self.episode))
        self._key_episode, self._key_reset, self._key_steps, self._key_first, self._key_fit = keys
        self._memory = strong(self.planner.first_memory())
        self._first = is_initial(self.history, self.settings, self.task, self.env)

    def _plan_arguments(self, obs: np.ndarray) -> tuple[Any, ...]:
        learner = self.learner
        task, key, t = self.planned, self._key_steps, np.int32(self._acts)
        return (self.planner, learner.models, task, obs, key, t, self._memory, learner.per_seed)

    def _compile_ahead(self, *, episodes: bool = False) -> None:
        """Begin to compile in threads what later episodes need; `episodes`: they are compiled as a whole."""
        if self.settings.plans and not self._programs.started(episodes):
            self._programs.start_fit(self.learner, self._key_fit)
            if episodes:
                self._programs.start_episodes(self.planner, self.learner, self.task, self.planned, self._key_episode)
            else:
                self._programs.start_plan(*self._plan_arguments(np.zeros(self.task.observations.size, np.float32)))
            self.learner.compile_evaluation(self._programs.ahead, self._key_fit[None])

    def _close(self) -> None:
        """The episode is over: evaluate the model on it, keep its transitions, write down what it came to."""
        batch = batch_of_steps(self._steps, self._terminated)
        model: dict[str, Any] = {}
        if self.phase == "plan" and self._report is not None:
            model = model_measures(self._report, self.learner.ahead(batch))
        self.learner.add(batch)
        self.learner.compile_larger(self._programs.ahead, self._key_fit[None])
        seconds = (self._fit_seconds, self._plan_seconds)
        self.history.append(episode_of(self.task, self._steps, self.episode, self.phase, model, *seconds))
        self._begin()

    def _random_action(self, step: int) -> np.ndarray:
        how, length = self.settings.explores(), self.task.episode_length
        return random_action(self.task.actions, self._key_first, step, length, how)
