"""`check_env`: what an environment is, what will be learned of it, what is risky about it and what is wrong with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Array

from guss.collect.datasets import logged
from guss.collect.exploration import explore
from guss.collect.host_envs import derived_seed, reported_costs
from guss.envs.adapters import Adapted
from guss.envs.process_worker import ProcessWorker
from guss.envs.thread_worker import AnyWorker, Failure, Worker, about_close, close_by
from guss.errors import GussError
from guss.models.unsafe_examples import examples_of
from guss.task import Task
from guss.types import ContinuousActions, Trajectory

Kind = Literal["fact", "learned", "risk", "problem"]
_Add = Callable[[Kind, str, str], None]  # kind, topic and text of a finding
SAMPLED_FLAGS = "--net deterministic=false particles=5"
SAMPLED = f"By default plans use the model's mean; plan with samples of it: {SAMPLED_FLAGS}"
MOST_NAMES = 12
"""So many names of dimensions are listed."""
ALIKE = 50
"""Steps over which two episodes with the same seed and actions are compared."""


@dataclass(frozen=True)
class Finding:
    """One sentence of the report."""

    kind: Kind
    topic: str
    text: str


class Stop(Exception):
    """Nothing more can be found out."""


def check_env(
    make: Callable[[], Adapted],
    task: Task,
    *,
    steps: int = 1000,
    seed: int = 0,
    timeout: float = 60.0,
    process: str | None = None,
) -> list[Finding]:
    """Try an environment out: `steps` random transitions, some of them twice. `task`: what is known or will be learned.

    `process`: the name by which a child process makes the environment, instead of `make` in a thread.

    Problems would make a run fail or learn what is not true; risks it survives.
    """
    findings: list[Finding] = []
    add: _Add = lambda kind, topic, text: findings.append(Finding(kind, topic, text))  # noqa: E731
    worker = Worker(make, owns=False) if process is None else ProcessWorker(process)
    call = _Caller(worker, timeout, add)
    try:
        _check_spaces(call("making it", "space"), task, add)
        _check_seeding(call, task, seed, add)
        trajectory, seconds = _random_episodes(call, task, steps, seed, add)
        _check_observations(task, trajectory, seconds, add)
        _check_functions(task, trajectory, add)
        _check_learning_targets(task, trajectory, add)
        if (failure := close_by(worker)) is not None:
            add("risk", "close", about_close(failure))
    except Stop:
        pass  # what stopped it is among the findings
    return findings


class _Caller:
    """An environment in a thread or process; what it fails at is a finding, and ends the check."""

    def __init__(self, worker: AnyWorker, timeout: float, add: _Add) -> None:
        self.worker, self.timeout, self.add = worker, timeout, add

    def __call__(self, what: str, method: str, *args: Any) -> Any:
        self.worker.ask(method, args)
        answer = self.worker.answer(self.timeout)
        if isinstance(answer, Failure):
            self.add("problem", "failure", f"{what}: {answer}")
            raise Stop
        return answer


def _check_spaces(space: tuple[Any, str], task: Task, add: _Add) -> None:
    size = task.observations.size
    how = "" if space[0] == (size,) else f", flattened from {space[1]}"
    names = task.observations.names
    named = "" if names is None else ": " + ", ".join(names[:MOST_NAMES]) + ", …" * (len(names) > MOST_NAMES)
    add("fact", "observations", f"vectors of {size} number{'s' * (size > 1)}{how}{named}")
    low, high = np.asarray(task.observations.low), np.asarray(task.observations.high)
    open_ends = np.flatnonzero(~(np.isfinite(low) & np.isfinite(high))).tolist()
    if open_ends:
        which = "all dimensions" if len(open_ends) == size else f"dimensions {open_ends}"
        add("risk", "observations", f"{which} are not bounded on both sides: policies see them scaled by what was seen")
    actions = task.actions
    if isinstance(actions, ContinuousActions):
        bounds = ", ".join(f"{a:g} to {b:g}" for a, b in zip(actions.low, actions.high, strict=True))
        add("fact", "actions", f"{len(actions.low)} continuous: {bounds}")
    else:
        add("fact", "actions", f"choices of {' × '.join(map(str, actions.num_values))} values")
    add("fact", "episodes", f"up to {task.episode_length} steps")
    hard = [c.name for c in task.constraints if c.hard]
    if hard:
        add(
            "fact",
            "red button",
            f"{', '.join(hard)}: a violation ends the episode, and counts worse than any soft cost",
        )


def _actions(task: Task, seed: int, steps: int) -> np.ndarray:
    key = jax.random.key(seed)
    return np.asarray(jax.jit(explore, static_argnums=(0, 2, 3))(task.actions, key, steps, "smooth"))


def _check_seeding(call: _Caller, task: Task, seed: int, add: _Add) -> None:
    """Same seed, same start; same actions, same course."""
    count = min(ALIKE, task.episode_length)
    first, again = (_observed(call, seed, _actions(task, seed, count)) for _ in range(2))
    if not np.array_equal(first[0], again[0]):
        add(
            "problem",
            "seeding",
            f"reset(seed={seed}) starts differently each time, at {_short(first[0])} and at {_short(again[0])}: no run "
            f"can be repeated. In reset, call super().reset(seed=seed) and draw from self.np_random",
        )
    else:
        other = call("reset", "reset", seed + 1)[0]
        same = " (another seed starts there too)" if np.array_equal(first[0], other) else ", others start elsewhere"
        add("fact", "seeding", f"the same seed starts at the same observation{same}")
        t = next((t for t, (a, b) in enumerate(zip(first, again, strict=False)) if not np.array_equal(a, b)), None)
        if t is not None or len(first) != len(again):
            add(
                "problem",
                "determinism",
                f"the same seed and actions lead elsewhere, first at step {t or min(len(first), len(again))}: "
                f"draw all noise from self.np_random. A real system is like that; its runs cannot be repeated. "
                f"{SAMPLED}",
            )
        else:
            add("fact", "determinism", f"the same seed and actions lead the same way, over {len(first) - 1} steps")
            _check_noise(call, task, seed, first, add)
    other = _observed(call, seed, _actions(task, seed + 1, count))
    if all(np.array_equal(a, b) for a, b in zip(first, other, strict=False)):
        add("risk", "actions", f"other actions changed nothing that is observed, over {len(first) - 1} steps")


def _check_noise(call: _Caller, task: Task, seed: int, first: list[np.ndarray], add: _Add) -> None:
    """Whether the same start and actions lead elsewhere with other random numbers after the reset."""
    other = _observed(call, seed, _actions(task, seed, len(first) - 1), reseed=True)
    pairs = list(zip(first, other, strict=False))
    t = next((t for t, (a, b) in enumerate(pairs) if not np.array_equal(a, b)), None)
    if t is None:
        return
    a, b = pairs[t]
    d = int(np.argmax(np.abs(b - a)))
    change = float(np.mean(np.abs(np.diff([obs[d] for obs in first]))))
    add(
        "risk",
        "noise",
        f"the system is stochastic: with other random numbers the same start and actions differ from step {t} on, "
        f"there by {abs(float(b[d] - a[d])):.2g} in {task.observations.labels[d]}, which changes by {change:.2g} a "
        f"step. {SAMPLED}",
    )


def _observed(call: _Caller, seed: int, actions: np.ndarray, *, reseed: bool = False) -> list[np.ndarray]:
    path = [call("reset", "reset", seed)[0]]
    if reseed:
        call("its random generators", "reseed", seed + 1)
    for t, action in enumerate(actions):
        obs, _, terminated, truncated, _ = call(f"step {t}", "step", action)
        path.append(obs)
        if terminated or truncated:
            break
    return path


def _random_episodes(call: _Caller, task: Task, steps: int, seed: int, add: _Add) -> tuple[Trajectory, float]:
    """Random episodes one after another, [N, …], the last of them perhaps cut off; and the median seconds of a step."""
    rows: list[tuple[Any, ...]] = []
    seconds: list[float] = []
    episode = 0
    while len(rows) < steps:
        obs = call(f"reset of episode {episode}", "reset", derived_seed(seed, episode))[0]
        actions = _actions(task, seed + 2 + episode, task.episode_length)
        for t, action in enumerate(actions):
            started = time.perf_counter()
            next_obs, reward, terminated, truncated, info = call(f"step {t} of episode {episode}", "step", action)
            seconds.append(time.perf_counter() - started)
            try:
                cost = reported_costs(task, info)
            except GussError as error:
                add("problem", "cost", f"episode {episode}, step {t}: {error}")
                raise Stop from error
            end = terminated or truncated or t + 1 == task.episode_length
            rows.append((obs, action, next_obs, reward, cost, not info.get("skip", False), end, terminated))
            for name, value in (("observation", next_obs), ("reward", reward)):
                if not np.isfinite(value).all():
                    add("problem", name, f"not finite in episode {episode}, step {t}: {_short(value)}")
                    raise Stop
            obs = next_obs
            if end or len(rows) >= steps:
                break
        episode += 1
    columns: Any = zip(*rows, strict=True)
    *required, costs, learnable, end, terminated = columns
    missing = sum(cost is None for cost in costs)
    _check_reported_costs(task, missing, len(rows), add)
    obs, action, next_obs, reward = map(np.stack, required)
    cost = None if missing or not task.constraints else np.stack(costs)
    trajectory = logged(obs, action, next_obs, reward, cost, learnable=learnable, end=end, terminated=terminated)
    return trajectory, float(np.median(seconds))


def _check_reported_costs(task: Task, missing: int, total: int, add: _Add) -> None:
    """Whether the environment reports the costs that it should: on `missing` of `total` steps it does not."""
    if not task.constraints:
        add("risk", "cost", "nothing is unsafe, as was said (--without-cost): plans look at reward alone")
    elif missing and any(c.learned for c in task.constraints):
        when = "never" if missing == total else f"not on {missing} of {total} steps"
        add(
            "problem", "cost", f'it should be told on every step, in info["cost"] or info["costs"], and was {when} told'
        )
    elif missing:
        add("fact", "cost", "the environment tells none: the Task's own function says what is unsafe")


def _check_observations(task: Task, trajectory: Trajectory, seconds: float, add: _Add) -> None:
    low, high = np.asarray(task.observations.low), np.asarray(task.observations.high)
    labels, next_obs, reward = task.observations.labels, trajectory.next_obs, trajectory.reward
    outside = np.flatnonzero(((next_obs < low - 1e-4) | (next_obs > high + 1e-4)).any(axis=0))
    if len(outside):
        d = int(outside[0])
        add(
            "risk",
            "observations",
            f"{labels[d]} leaves its bounds [{low[d]:g}, {high[d]:g}]: it reached "
            f"{next_obs[:, d].min():g} and {next_obs[:, d].max():g}",
        )
    still = np.flatnonzero(np.ptp(next_obs, axis=0) < 1e-9).tolist()
    if still:
        add(
            "risk", "observations", f"{', '.join(labels[d] for d in still)} never changed: nothing can be learned of it"
        )
    lengths = np.diff(np.flatnonzero(trajectory.done), prepend=-1)  # of whole episodes
    num_terminated, count = trajectory.terminated.sum(), len(lengths)
    if count:
        early = f", {num_terminated} of them ended early by the environment itself" if num_terminated else ""
        spread = f"{lengths.min()} to {lengths.max()}" if np.ptp(lengths) else f"{lengths[0]}"
        add("fact", "episodes", f"{count} random one{'s' * (count > 1)} of {spread} steps{early}")
    skipped = ~trajectory.learnable
    if skipped.any():
        add("fact", "skip", f"{skipped.sum()} of {len(skipped)} transitions are marked not to be learned from")
    how = f"{1e3 * seconds:.2g} ms" if seconds < 1 else f"{seconds:.2g} s"
    add("fact", "speed", f"a step takes {how}, an episode {seconds * task.episode_length:.2g} s without planning")
    add("fact", "reward", f"{reward.min():.4g} to {reward.max():.4g} at random, {reward.mean():.4g} at the mean")
    if np.ptp(reward) < 1e-9 and not num_terminated:
        add("risk", "reward", "always the same: nothing to tell plans apart by")


@jax.jit
def _functions(task: Task, obs: Array, action: Array, next_obs: Array) -> Any:
    reward = None if task.reward is None else jax.vmap(task.reward_of)(obs, action, next_obs)
    known = [None if c.learned else jax.vmap(c.cost)(obs, action, next_obs) for c in task.constraints]
    return reward, known


def _check_functions(task: Task, trajectory: Trajectory, add: _Add) -> None:
    """Whether the Task's functions say what the environment says."""
    obs, action, reported, cost, next_obs = trajectory[:5]
    reward, costs = jax.device_get(_functions(task, obs.astype(np.float32), action, next_obs))
    learnable = trajectory.learnable
    if reward is not None:
        wrong = (np.abs(reward - reported) > 1e-4 + 0.01 * reported.std()) & learnable
        residual = float(np.sum((reward - reported)[learnable] ** 2))
        share = 1.0 - residual / max(float(np.sum((reported - reported.mean())[learnable] ** 2)), 1e-12)
        _report_agreement("reward function", wrong, reward, reported, trajectory, bool(share > 0.99), add)
    for i, (constraint, computed) in enumerate(zip(task.constraints, costs, strict=True)):
        if computed is not None and cost is not None:
            wrong = ((np.asarray(computed, float) > 0) != (cost[:, i] > 0)) & learnable
            slight = bool(wrong.mean() < 0.002)  # rounding at the edge of what is unsafe
            what = f"cost function of {constraint.name!r}"
            _report_agreement(what, wrong, computed, cost[:, i], trajectory, slight, add)


def _report_agreement(
    what: str, wrong: np.ndarray, computed: Any, reported: Any, trajectory: Trajectory, slight: bool, add: _Add
) -> None:
    if not wrong.any():
        add("fact", "agreement", f"the {what} agrees with the environment on {len(wrong)} transitions")
        return
    row = int(np.argmax(wrong))
    add(
        "risk" if slight else "problem",
        "agreement",
        f"the {what} disagrees with the environment on {int(wrong.sum())} of {len(wrong)} transitions, first on "
        f"number {row}: obs {_short(trajectory.obs[row])}, action {_short(trajectory.action[row])}, next_obs "
        f"{_short(trajectory.next_obs[row])}; the function says {float(computed[row]):.6g}, the environment "
        f"{float(reported[row]):.6g}" + (" (slightly: plans will hardly mind)" if slight else ""),
    )


def _check_learning_targets(task: Task, trajectory: Trajectory, add: _Add) -> None:
    """What a model will learn, and whether there are examples of it."""
    ends, cost = "end of an episode", trajectory.cost
    num_terminated, num_episodes = trajectory.terminated.sum(), trajectory.done.sum()
    if num_terminated and ends not in task.unknown:
        add(
            "risk",
            "end",
            f"the environment ends episodes itself ({num_terminated} of {num_episodes}), and the Task says "
            f"learns_end=False: plans do not know that they end",
        )
    for what in task.unknown:
        if what == ends:
            count = f"{num_terminated} of {num_episodes} random episodes were ended by the environment"
            add("learned", what, f"as a calibrated classifier; {count}")
            continue
        how = {"reward": "as a density", "behaviour": "as the first principal components of where plans lead"}
        add("learned", what, how.get(what, "as a calibrated classifier"))
    add(
        "learned",
        "dynamics",
        f"from {task.observations.size} numbers and the action to the next {task.observations.size}",
    )
    if cost is None:
        return
    for i, constraint in enumerate(task.constraints):
        unsafe = int((cost[:, i] > 0).sum())
        total, name = len(cost), constraint.name
        add("fact", f"cost {name!r}", f"{unsafe} of {total} random steps are unsafe ({100 * unsafe / total:.2g} %)")
        values = np.unique(cost[:, i])
        if not np.isin(values, (0.0, 1.0)).all():
            add(
                "risk", f"cost {name!r}", f"takes values such as {_short(values)}: whatever is above 0 counts as unsafe"
            )
        found = examples_of(name, trajectory.next_obs, cost[:, i] > 0, task.observations)
        if constraint.learned and found.warning:
            advice = "The cost classifier needs safe and unsafe examples: "
            if found.kind != "none":  # that warning says what to do
                advice += "describe the cost in a Task, bring logged data with --data, or "
            add("risk", f"cost {name!r}", f"{found.warning}. {advice}expect unsafe steps until it has them")
        elif unsafe:
            add("fact", f"cost {name!r}", f"unsafe states: {found.region}")
        if unsafe > 0.5 * total:
            add(
                "risk",
                f"cost {name!r}",
                "more than half of random steps are unsafe: there may be no safe plan at first",
            )


def _short(values: Any) -> str:
    return np.array2string(np.asarray(values), precision=4, threshold=12, edgeitems=4, max_line_width=10_000)
