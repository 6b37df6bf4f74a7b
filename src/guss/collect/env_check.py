"""`check_env`: an environment's properties, learning targets, risks and problems."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partialmethod
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Array

from guss.collect.exploration import explore
from guss.collect.host_envs import cost_vector, derived_seed
from guss.constraint import Constraint
from guss.envs.adapters import Adapted
from guss.envs.process_worker import ProcessWorker
from guss.envs.thread_worker import AnyWorker, Failure, Worker, about_close, close_by
from guss.errors import GussError
from guss.models.unsafe_examples import examples_of
from guss.task import END, Task
from guss.types import ContinuousActions, Trajectory

Kind = Literal["fact", "learned", "risk", "problem"]
SAMPLED_FLAGS = "--model.no-deterministic --model.particles 5"
SAMPLED = f"By default plans use the model's mean; to plan with samples, pass {SAMPLED_FLAGS}"
MOST_NAMES = 12
"""Maximum number of dimension names that are listed."""
ALIKE = 50
"""Steps over which two episodes with the same seed and actions are compared."""


@dataclass(frozen=True)
class Finding:
    """One sentence of the report."""

    kind: Kind
    topic: str
    text: str


class Stop(Exception):
    """Ends the check early."""


def check_env(
    make: Callable[[], Adapted],
    task: Task,
    *,
    steps: int = 1000,
    seed: int = 0,
    timeout: float = 60.0,
    process: str | None = None,
) -> list[Finding]:
    """Test an environment with `steps` random transitions, some of them twice. `task`: known and learned functions.

    `process`: the name by which a child process creates the environment, instead of `make` in a thread.

    A problem makes a run fail or learn wrong values; a risk does not.
    """
    worker = Worker(make, owns=False) if process is None else ProcessWorker(process)
    check = _Check(worker, task, seed, timeout)
    try:
        check.spaces()
        check.seeding()
        trajectory = check.random_episodes(steps)
        check.observations(trajectory)
        check.functions(trajectory)
        check.learning_targets(trajectory)
        if (failure := close_by(worker)) is not None:
            check.risk("close", about_close(failure))
    except Stop:
        pass  # the reason is among the findings
    return check.findings


class _Check:
    """A running check: the environment in a thread or process, its Task, and the findings so far."""

    def __init__(self, worker: AnyWorker, task: Task, seed: int, timeout: float) -> None:
        self.worker, self.task, self.seed, self.timeout = worker, task, seed, timeout
        self.findings: list[Finding] = []

    def add(self, kind: Kind, topic: str, text: str) -> None:
        self.findings.append(Finding(kind, topic, text))

    fact = partialmethod(add, "fact")
    learned = partialmethod(add, "learned")
    risk = partialmethod(add, "risk")
    problem = partialmethod(add, "problem")

    def call(self, what: str, method: str, *args: Any) -> Any:
        """Call the environment; a failure is a finding, and ends the check."""
        self.worker.ask(method, args)
        answer = self.worker.answer(self.timeout)
        if isinstance(answer, Failure):
            self.problem("failure", f"{what}: {answer}")
            raise Stop
        return answer

    def actions(self, seed: int, steps: int) -> np.ndarray:
        """Random actions of one episode."""
        key = jax.random.key(seed)
        return np.asarray(jax.jit(explore, static_argnums=(0, 2, 3))(self.task.actions, key, steps, "smooth"))

    def spaces(self) -> None:
        """Describe observations, actions and episodes."""
        shape, space = self.call("creating the environment", "space")
        observations, actions = self.task.observations, self.task.actions
        size, names = observations.size, observations.names
        how = "" if shape == (size,) else f", flattened from {space}"
        named = "" if names is None else ": " + ", ".join(names[:MOST_NAMES]) + ", …" * (len(names) > MOST_NAMES)
        self.fact("observations", f"vectors of {size} number{'s' * (size > 1)}{how}{named}")
        open_ends = np.flatnonzero(~np.isfinite([observations.low, observations.high]).all(axis=0)).tolist()
        if open_ends:
            which = "all dimensions" if len(open_ends) == size else f"dimensions {open_ends}"
            self.risk(
                "observations", f"{which} are not bounded on both sides: policy inputs are scaled by observed data"
            )
        if isinstance(actions, ContinuousActions):
            bounds = ", ".join(f"{a:g} to {b:g}" for a, b in zip(actions.low, actions.high, strict=True))
            self.fact("actions", f"{len(actions.low)} continuous: {bounds}")
        else:
            self.fact("actions", f"choices of {' × '.join(map(str, actions.num_values))} values")
        self.fact("episodes", f"up to {self.task.episode_length} steps")
        if hard := ", ".join(c.name for c in self.task.constraints if c.hard):
            self.fact(
                "hard limits", f"{hard}: a violation ends the episode, and plans with a predicted violation rank last"
            )

    def seeding(self) -> None:
        """The same seed must give the same start; with the same actions, the same path."""
        seed, count = self.seed, min(ALIKE, self.task.episode_length)
        first, again = (self.path(self.actions(seed, count)) for _ in range(2))
        if not np.array_equal(first[0], again[0]):
            self.problem(
                "seeding",
                f"reset(seed={seed}) starts differently each time, at {_short(first[0])} and at {_short(again[0])}: "
                f"runs are not reproducible. In reset, call super().reset(seed=seed) and draw from self.np_random",
            )
        else:
            other = self.call("reset", "reset", seed + 1)[0]
            same = " (another seed starts there too)" if np.array_equal(first[0], other) else ", others start elsewhere"
            self.fact("seeding", f"the same seed starts at the same observation{same}")
            self.determinism(first, again)
        differs = _first_difference(first, self.path(self.actions(seed + 1, count)))
        if differs is None:
            self.risk("actions", f"other actions do not change the observations, over {len(first) - 1} steps")

    def determinism(self, first: list[np.ndarray], again: list[np.ndarray]) -> None:
        """Compare two paths with the same seed and actions; if equal, test whether other random numbers change them."""
        t = _first_difference(first, again)
        if t is not None or len(first) != len(again):
            self.problem(
                "determinism",
                f"the same seed and actions give other observations, first at step {t or min(len(first), len(again))}: "
                f"draw all noise from self.np_random. Real systems do this; their runs are not reproducible. "
                f"{SAMPLED}",
            )
            return
        self.fact("determinism", f"the same seed and actions give the same observations, over {len(first) - 1} steps")
        other = self.path(self.actions(self.seed, len(first) - 1), reseed=True)
        t = _first_difference(first, other)
        if t is None:
            return
        difference = np.abs(other[t] - first[t])
        d = int(np.argmax(difference))
        change = float(np.mean(np.abs(np.diff([obs[d] for obs in first]))))
        self.risk(
            "noise",
            f"the system is stochastic: other random numbers change the observations from step {t} on, "
            f"by {float(difference[d]):.2g} in {self.task.observations.labels[d]}, which changes by {change:.2g} "
            f"per step. {SAMPLED}",
        )

    def path(self, actions: np.ndarray, *, reseed: bool = False) -> list[np.ndarray]:
        """The observations of an episode with these actions; `reseed`: use other random numbers after the reset."""
        path = [self.call("reset", "reset", self.seed)[0]]
        if reseed:
            self.call("reseeding", "reseed", self.seed + 1)
        for t, action in enumerate(actions):
            obs, _, terminated, truncated, _ = self.call(f"step {t}", "step", action)
            path.append(obs)
            if terminated or truncated:
                break
        return path

    def random_episodes(self, steps: int) -> Trajectory:
        """Random episodes one after another, [N, …], the last of them perhaps cut off."""
        rows: list[Trajectory] = []
        seconds: list[float] = []
        length, episode = self.task.episode_length, 0
        while len(rows) < steps:
            obs = self.call(f"reset of episode {episode}", "reset", derived_seed(self.seed, episode))[0]
            for t, action in enumerate(self.actions(self.seed + 2 + episode, length)):
                started = time.perf_counter()
                values = self.call(f"step {t} of episode {episode}", "step", action)
                seconds.append(time.perf_counter() - started)
                next_obs, reward, terminated, truncated, info = values
                cost = self.checked_cost(next_obs, reward, info, f"episode {episode}, step {t}")
                ends = terminated, not terminated and (truncated or t + 1 == length)
                learnable = not info.get("skip", False)
                rows.append(Trajectory(obs, action, reward, cost, next_obs, *ends, False, True, learnable))
                obs = next_obs
                if any(ends) or len(rows) >= steps:
                    break
            episode += 1
        self.seconds = float(np.median(seconds))
        missing = sum(row.cost is None for row in rows)
        self.check_cost_reports(missing, len(rows))
        if missing or not self.task.constraints:
            rows = [row._replace(cost=None) for row in rows]
        return jax.tree.map(lambda *x: np.stack(x), *rows)

    def checked_cost(self, next_obs: Any, reward: Any, info: dict[str, Any], where: str) -> np.ndarray | None:
        """The costs of a step, None if none are reported. Numbers that are not finite end the check."""
        try:
            cost = cost_vector(self.task, info)
        except GussError as error:
            self.problem("cost", f"{where}: {error}")
            raise Stop from error
        for name, value in (("observation", next_obs), ("reward", reward)):
            if not np.isfinite(value).all():
                self.problem(name, f"not finite in {where}: {_short(value)}")
                raise Stop
        return cost

    def check_cost_reports(self, missing: int, total: int) -> None:
        """Check that the environment reports its costs; on `missing` of `total` steps it does not."""
        if not self.task.constraints:
            self.risk("cost", "there are no constraints (--without-cost): plans maximise only the reward")
        elif missing and any(c.learned for c in self.task.constraints):
            steps = f"{missing} of {total} steps"
            self.problem("cost", f'every step must report it in info["cost"] or info["costs"]; {steps} did not')
        elif missing:
            self.fact("cost", "the environment reports none: the Task's function computes it")

    def observations(self, trajectory: Trajectory) -> None:
        """Bounds, episodes, speed and reward, as observed."""
        low, high = np.asarray(self.task.observations.low), np.asarray(self.task.observations.high)
        labels, next_obs, reward = self.task.observations.labels, trajectory.next_obs, trajectory.reward
        least, greatest = next_obs.min(axis=0), next_obs.max(axis=0)
        outside = np.flatnonzero((least < low - 1e-4) | (greatest > high + 1e-4))
        if len(outside):
            d = int(outside[0])
            bounds, reached = f"[{low[d]:g}, {high[d]:g}]", f"{least[d]:g} and {greatest[d]:g}"
            self.risk("observations", f"{labels[d]} leaves its bounds {bounds}: it reached {reached}")
        still = np.flatnonzero(greatest - least < 1e-9)
        if len(still):
            names = ", ".join(labels[d] for d in still)
            self.risk("observations", f"{names} never changed, so nothing can be learned about it")
        lengths = np.diff(np.flatnonzero(trajectory.done), prepend=-1)  # of whole episodes
        num_terminated, count = trajectory.terminated.sum(), len(lengths)
        if count:
            early = f", {num_terminated} of them ended early by the environment itself" if num_terminated else ""
            spread = f"{lengths.min()} to {lengths.max()}" if np.ptp(lengths) else f"{lengths[0]}"
            self.fact("episodes", f"{count} random episode{'s' * (count > 1)} of {spread} steps{early}")
        skipped = ~trajectory.learnable
        if skipped.any():
            self.fact("skip", f"{skipped.sum()} of {len(skipped)} transitions are excluded from learning")
        how = f"{1e3 * self.seconds:.2g} ms" if self.seconds < 1 else f"{self.seconds:.2g} s"
        whole = f"{self.seconds * self.task.episode_length:.2g} s"
        self.fact("speed", f"a step takes {how}, an episode {whole} without planning")
        self.fact("reward", f"{reward.min():.4g} to {reward.max():.4g} with random actions, mean {reward.mean():.4g}")
        if np.ptp(reward) < 1e-9 and not num_terminated:
            self.risk("reward", "always the same, so plans cannot be compared by reward")

    def functions(self, trajectory: Trajectory) -> None:
        """Check that the Task's functions agree with the environment."""
        obs, action, reported, cost, next_obs = trajectory[:5]
        reward, costs = jax.device_get(_functions(self.task, obs.astype(np.float32), action, next_obs))
        learnable = trajectory.learnable
        if reward is not None:
            wrong = (np.abs(reward - reported) > 1e-4 + 0.01 * reported.std()) & learnable
            residual = float(np.sum((reward - reported)[learnable] ** 2))
            share = 1.0 - residual / max(float(np.sum((reported - reported.mean())[learnable] ** 2)), 1e-12)
            self.agreement("reward function", wrong, reward, reported, trajectory, slight=bool(share > 0.99))
        for i, (constraint, computed) in enumerate(zip(self.task.constraints, costs, strict=True)):
            if computed is not None and cost is not None:
                wrong = ((np.asarray(computed, float) > 0) != (cost[:, i] > 0)) & learnable
                slight = bool(wrong.mean() < 0.002)  # rounding at the limit
                what = f"cost function of {constraint.name!r}"
                self.agreement(what, wrong, computed, cost[:, i], trajectory, slight=slight)

    def agreement(
        self, what: str, wrong: np.ndarray, computed: Any, reported: Any, trajectory: Trajectory, *, slight: bool
    ) -> None:
        """Report whether a function of the Task is `wrong` on some transitions, and whether only slightly."""
        if not wrong.any():
            self.fact("agreement", f"the {what} agrees with the environment on {len(wrong)} transitions")
            return
        row = int(np.argmax(wrong))
        obs, action, next_obs = (_short(x[row]) for x in (trajectory.obs, trajectory.action, trajectory.next_obs))
        text = (
            f"the {what} disagrees with the environment on {int(wrong.sum())} of {len(wrong)} transitions, first on "
            f"number {row}: obs {obs}, action {action}, next_obs {next_obs}; the function returns "
            f"{float(computed[row]):.6g}, the environment {float(reported[row]):.6g}"
        )
        text += " (a slight difference, with little effect on plans)" * slight
        self.add("risk" if slight else "problem", "agreement", text)

    def learning_targets(self, trajectory: Trajectory) -> None:
        """What a model will learn, and whether there are examples of it."""
        num_terminated, num_episodes = trajectory.terminated.sum(), trajectory.done.sum()
        if num_terminated and END not in self.task.unknown:
            self.risk(
                "end",
                f"the environment ends episodes itself ({num_terminated} of {num_episodes}), but the Task has "
                f"learns_end=False: plans do not predict it",
            )
        ended = f"{num_terminated} of {num_episodes} random episodes were ended by the environment"
        how = {
            "reward": "as a density",
            "behaviour": "as the first principal components of the states that plans reach",
            END: f"as a calibrated classifier; {ended}",
        }
        for what in self.task.unknown:
            self.learned(what, how.get(what, "as a calibrated classifier"))
        size = self.task.observations.size
        self.learned("dynamics", f"from {size} numbers and the action to the next {size}")
        if trajectory.cost is not None:
            for constraint, cost in zip(self.task.constraints, trajectory.cost.T, strict=True):
                self.cost_examples(constraint, trajectory.next_obs, cost)

    def cost_examples(self, constraint: Constraint, next_obs: np.ndarray, cost: np.ndarray) -> None:
        """Safe and unsafe steps of one constraint, whose costs are [N]."""
        name, topic, total = constraint.name, f"cost {constraint.name!r}", len(cost)
        unsafe = int((cost > 0).sum())
        self.fact(topic, f"{unsafe} of {total} random steps are unsafe ({100 * unsafe / total:.2g} %)")
        values = np.unique(cost)
        if not np.isin(values, (0.0, 1.0)).all():
            self.risk(topic, f"takes values such as {_short(values)}: every value above 0 is unsafe")
        found = examples_of(name, next_obs, cost > 0, self.task.observations)
        if constraint.learned and found.warning:
            advice = "The cost classifier needs safe and unsafe examples: "
            if found.kind != "none":  # that warning has its own advice
                advice += "describe the cost in a Task, pass logged data with --data, or "
            self.risk(topic, f"{found.warning}. {advice}expect unsafe steps until it has them")
        elif unsafe:
            self.fact(topic, f"unsafe states: {found.region}")
        if unsafe > 0.5 * total:
            self.risk(topic, "more than half of random steps are unsafe: there may be no safe plan at first")


@jax.jit
def _functions(task: Task, obs: Array, action: Array, next_obs: Array) -> Any:
    reward = None if task.reward is None else jax.vmap(task.reward_of)(obs, action, next_obs)
    known = [None if c.learned else jax.vmap(c.cost)(obs, action, next_obs) for c in task.constraints]
    return reward, known


def _first_difference(first: list[np.ndarray], other: list[np.ndarray]) -> int | None:
    """The first step at which two paths differ; None if they agree over their common length."""
    pairs = zip(first, other, strict=False)
    return next((t for t, (a, b) in enumerate(pairs) if not np.array_equal(a, b)), None)


def _short(values: Any) -> str:
    return np.array2string(np.asarray(values), precision=4, threshold=12, edgeitems=4, max_line_width=10_000)
