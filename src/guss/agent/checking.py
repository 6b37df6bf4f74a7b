"""`check_env`: what an environment is, what will be learned of it, what is risky about it and what is wrong with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from guss.agent.exploration import explore
from guss.agent.fleets import derived_seed, told_costs
from guss.envs.adapting import Adapted
from guss.envs.processes import ProcessWorker
from guss.envs.workers import AnyWorker, Failure, Worker, about_close, close_by
from guss.errors import GussError
from guss.models.examples import examples_of
from guss.task import Task
from guss.types import ContinuousActions

Kind = Literal["fact", "learned", "risk", "problem"]
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


class Seen(NamedTuple):
    """Transitions of random episodes."""

    obs: np.ndarray  # [N, D]
    action: np.ndarray
    next_obs: np.ndarray
    reward: np.ndarray  # [N]
    cost: np.ndarray | None  # [N, C]; None: not told
    skip: np.ndarray  # [N]
    lengths: list[int]  # of whole episodes
    terminated: int  # how many of them the environment ended itself
    seconds: float  # per step, at the median


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
    tell = lambda kind, topic, text: findings.append(Finding(kind, topic, text))  # noqa: E731
    worker = Worker(make, owns=False) if process is None else ProcessWorker(process)
    call = _Caller(worker, timeout, tell)
    try:
        _spaces(call("making it", "space"), task, tell)
        _seeding(call, task, seed, tell)
        seen = _random_episodes(call, task, steps, seed, tell)
        _observations(task, seen, tell)
        _judged(task, seen, tell)
        _learned(task, seen, tell)
        if (failure := close_by(worker)) is not None:
            tell("risk", "close", about_close(failure))
    except Stop:
        pass  # what stopped it is among the findings
    return findings


class _Caller:
    """An environment in a thread or process; what it fails at is a finding, and ends the check."""

    def __init__(self, worker: AnyWorker, timeout: float, tell: Callable[..., Any]) -> None:
        self.worker, self.timeout, self.tell = worker, timeout, tell

    def __call__(self, what: str, method: str, *args: Any) -> Any:
        self.worker.ask(method, args)
        answer = self.worker.answer(self.timeout)
        if isinstance(answer, Failure):
            self.tell("problem", "failure", f"{what}: {answer}")
            raise Stop
        return answer


def _spaces(space: tuple[Any, str], task: Task, tell: Callable[..., Any]) -> None:
    size = task.observations.size
    how = "" if space[0] == (size,) else f", flattened from {space[1]}"
    names = task.observations.names
    named = "" if names is None else ": " + ", ".join(names[:MOST_NAMES]) + ", …" * (len(names) > MOST_NAMES)
    tell("fact", "observations", f"vectors of {size} number{'s' * (size > 1)}{how}{named}")
    low, high = np.asarray(task.observations.low), np.asarray(task.observations.high)
    open_ends = np.flatnonzero(~(np.isfinite(low) & np.isfinite(high))).tolist()
    if open_ends:
        which = "all dimensions" if len(open_ends) == size else f"dimensions {open_ends}"
        tell(
            "risk",
            "observations",
            f"{which} are not bounded on both sides: policies see them scaled by what was seen",
        )
    actions = task.actions
    if isinstance(actions, ContinuousActions):
        bounds = ", ".join(f"{a:g} to {b:g}" for a, b in zip(actions.low, actions.high, strict=True))
        tell("fact", "actions", f"{len(actions.low)} continuous: {bounds}")
    else:
        tell("fact", "actions", f"choices of {' × '.join(map(str, actions.num_values))} values")
    tell("fact", "episodes", f"up to {task.episode_length} steps")
    hard = [c.name for c in task.constraints if c.hard]
    if hard:
        tell(
            "fact",
            "red button",
            f"{', '.join(hard)}: a violation ends the episode, and counts worse than any soft cost",
        )


def _actions(task: Task, seed: int, steps: int) -> np.ndarray:
    key = jax.random.key(seed)
    return np.asarray(jax.jit(explore, static_argnums=(0, 2, 3))(task.actions, key, steps, "smooth"))


def _seeding(call: _Caller, task: Task, seed: int, tell: Callable[..., Any]) -> None:
    """Same seed, same start; same actions, same course."""
    count = min(ALIKE, task.episode_length)
    first, again = (_course(call, seed, _actions(task, seed, count)) for _ in range(2))
    if not np.array_equal(first[0], again[0]):
        tell(
            "problem",
            "seeding",
            f"reset(seed={seed}) starts differently each time, at {_short(first[0])} and at {_short(again[0])}: no run "
            f"can be repeated. In reset, call super().reset(seed=seed) and draw from self.np_random",
        )
    else:
        other = call("reset", "reset", seed + 1)[0]
        same = " (another seed starts there too)" if np.array_equal(first[0], other) else ", others start elsewhere"
        tell("fact", "seeding", f"the same seed starts at the same observation{same}")
        t = next((t for t, (a, b) in enumerate(zip(first, again, strict=False)) if not np.array_equal(a, b)), None)
        if t is not None or len(first) != len(again):
            tell(
                "problem",
                "determinism",
                f"the same seed and actions lead elsewhere, first at step {t or min(len(first), len(again))}: "
                f"draw all noise from self.np_random. A real system is like that; its runs cannot be repeated. "
                f"{SAMPLED}",
            )
        else:
            tell("fact", "determinism", f"the same seed and actions lead the same way, over {len(first) - 1} steps")
            _noise(call, task, seed, first, tell)
    other = _course(call, seed, _actions(task, seed + 1, count))
    if all(np.array_equal(a, b) for a, b in zip(first, other, strict=False)):
        tell("risk", "actions", f"other actions changed nothing that is observed, over {len(first) - 1} steps")


def _noise(call: _Caller, task: Task, seed: int, first: list[np.ndarray], tell: Callable[..., Any]) -> None:
    """Whether the same start and actions lead elsewhere with other random numbers after the reset."""
    other = _course(call, seed, _actions(task, seed, len(first) - 1), reseed=True)
    pairs = list(zip(first, other, strict=False))
    t = next((t for t, (a, b) in enumerate(pairs) if not np.array_equal(a, b)), None)
    if t is None:
        return
    a, b = pairs[t]
    d = int(np.argmax(np.abs(b - a)))
    change = float(np.mean(np.abs(np.diff([obs[d] for obs in first]))))
    tell(
        "risk",
        "noise",
        f"the system is stochastic: with other random numbers the same start and actions differ from step {t} on, "
        f"there by {abs(float(b[d] - a[d])):.2g} in {task.observations.labels[d]}, which changes by {change:.2g} a "
        f"step. {SAMPLED}",
    )


def _course(call: _Caller, seed: int, actions: np.ndarray, *, reseed: bool = False) -> list[np.ndarray]:
    path = [call("reset", "reset", seed)[0]]
    if reseed:
        call("its random generators", "reseed", seed + 1)
    for t, action in enumerate(actions):
        obs, _, terminated, truncated, _ = call(f"step {t}", "step", action)
        path.append(obs)
        if terminated or truncated:
            break
    return path


def _random_episodes(call: _Caller, task: Task, steps: int, seed: int, tell: Callable[..., Any]) -> Seen:
    rows: list[tuple[Any, ...]] = []
    lengths: list[int] = []
    seconds: list[float] = []
    terminated, silent, episode = 0, 0, 0
    while len(rows) < steps:
        obs = call(f"reset of episode {episode}", "reset", derived_seed(seed, episode))[0]
        actions = _actions(task, seed + 2 + episode, task.episode_length)
        for t, action in enumerate(actions):
            started = time.perf_counter()
            next_obs, reward, ended, cut, info = call(f"step {t} of episode {episode}", "step", action)
            seconds.append(time.perf_counter() - started)
            try:
                cost = told_costs(task, info)
            except GussError as error:
                tell("problem", "cost", f"episode {episode}, step {t}: {error}")
                raise Stop from error
            silent += cost is None
            rows.append((obs, action, next_obs, reward, cost, bool(info.get("skip", False))))
            for name, value in (("observation", next_obs), ("reward", reward)):
                if not np.isfinite(value).all():
                    tell("problem", name, f"not finite in episode {episode}, step {t}: {_short(value)}")
                    raise Stop
            obs = next_obs
            if ended or cut or t + 1 == task.episode_length:
                lengths.append(t + 1)
                terminated += ended
                break
            if len(rows) >= steps:
                break
        episode += 1
    _told(task, rows, silent, tell)
    obs, action, next_obs, reward = (np.stack([np.asarray(row[i]) for row in rows]) for i in range(4))
    costs = None if silent or not task.constraints else np.stack([row[4] for row in rows])
    skip = np.asarray([row[5] for row in rows])
    times = float(np.median(seconds))
    return Seen(obs, action, next_obs, reward, costs, skip, lengths, terminated, times)


def _told(task: Task, rows: list[tuple[Any, ...]], silent: int, tell: Callable[..., Any]) -> None:
    """Whether it tells the costs it should."""
    if not task.constraints:
        tell("risk", "cost", "nothing is unsafe, as was said (--without-cost): plans look at reward alone")
    elif silent and any(c.learned for c in task.constraints):
        when = "never" if silent == len(rows) else f"not on {silent} of {len(rows)} steps"
        tell(
            "problem", "cost", f'it should be told on every step, in info["cost"] or info["costs"], and was {when} told'
        )
    elif silent:
        tell("fact", "cost", "the environment tells none: the Task's own function says what is unsafe")


def _observations(task: Task, seen: Seen, tell: Callable[..., Any]) -> None:
    low, high = np.asarray(task.observations.low), np.asarray(task.observations.high)
    labels = task.observations.labels
    outside = np.flatnonzero(((seen.next_obs < low - 1e-4) | (seen.next_obs > high + 1e-4)).any(axis=0))
    if len(outside):
        d = int(outside[0])
        tell(
            "risk",
            "observations",
            f"{labels[d]} leaves its bounds [{low[d]:g}, {high[d]:g}]: it reached "
            f"{seen.next_obs[:, d].min():g} and {seen.next_obs[:, d].max():g}",
        )
    still = np.flatnonzero(np.ptp(seen.next_obs, axis=0) < 1e-9).tolist()
    if still:
        tell(
            "risk",
            "observations",
            f"{', '.join(labels[d] for d in still)} never changed: nothing can be learned of it",
        )
    count = len(seen.lengths)
    if count:
        early = f", {seen.terminated} of them ended early by the environment itself" if seen.terminated else ""
        spread = f"{min(seen.lengths)} to {max(seen.lengths)}" if len(set(seen.lengths)) > 1 else f"{seen.lengths[0]}"
        tell("fact", "episodes", f"{count} random one{'s' * (count > 1)} of {spread} steps{early}")
    if seen.skip.any():
        tell(
            "fact", "skip", f"{int(seen.skip.sum())} of {len(seen.skip)} transitions are marked not to be learned from"
        )
    how = f"{1e3 * seen.seconds:.2g} ms" if seen.seconds < 1 else f"{seen.seconds:.2g} s"
    tell("fact", "speed", f"a step takes {how}, an episode {seen.seconds * task.episode_length:.2g} s without planning")
    r = seen.reward
    tell("fact", "reward", f"{r.min():.4g} to {r.max():.4g} at random, {r.mean():.4g} at the mean")
    if np.ptp(r) < 1e-9 and not seen.terminated:
        tell("risk", "reward", "always the same: nothing to tell plans apart by")


@jax.jit
def _functions(task: Task, obs: Array, action: Array, next_obs: Array) -> Any:
    reward = None if task.reward is None else jax.vmap(task.reward_of)(obs, action, next_obs)
    known = [None if c.learned else jax.vmap(c.cost)(obs, action, next_obs) for c in task.constraints]
    return reward, known


def _judged(task: Task, seen: Seen, tell: Callable[..., Any]) -> None:
    """Whether the Task's functions say what the environment says."""
    reward, costs = jax.device_get(_functions(task, seen.obs.astype(np.float32), seen.action, seen.next_obs))
    if reward is not None:
        wrong = (np.abs(reward - seen.reward) > 1e-4 + 0.01 * seen.reward.std()) & ~seen.skip
        residual = float(np.sum((reward - seen.reward)[~seen.skip] ** 2))
        share = 1.0 - residual / max(float(np.sum((seen.reward - seen.reward.mean())[~seen.skip] ** 2)), 1e-12)
        _agreement("reward function", wrong, reward, seen.reward, seen, bool(share > 0.99), tell)
    for i, (constraint, mine) in enumerate(zip(task.constraints, costs, strict=True)):
        if mine is not None and seen.cost is not None:
            told = seen.cost[:, i] > 0
            wrong = ((np.asarray(mine, float) > 0) != told) & ~seen.skip
            slight = bool(wrong.mean() < 0.002)  # rounding at the edge of what is unsafe
            _agreement(f"cost function of {constraint.name!r}", wrong, mine, seen.cost[:, i], seen, slight, tell)


def _agreement(
    what: str, wrong: np.ndarray, mine: Any, theirs: Any, seen: Seen, slight: bool, tell: Callable[..., Any]
) -> None:
    if not wrong.any():
        tell("fact", "agreement", f"the {what} agrees with the environment on {len(wrong)} transitions")
        return
    row = int(np.argmax(wrong))
    tell(
        "risk" if slight else "problem",
        "agreement",
        f"the {what} disagrees with the environment on {int(wrong.sum())} of {len(wrong)} transitions, first on "
        f"number {row}: obs {_short(seen.obs[row])}, action {_short(seen.action[row])}, next_obs "
        f"{_short(seen.next_obs[row])}; the function says {float(mine[row]):.6g}, the environment "
        f"{float(theirs[row]):.6g}" + (" (slightly: plans will hardly mind)" if slight else ""),
    )


def _learned(task: Task, seen: Seen, tell: Callable[..., Any]) -> None:
    ends = "end of an episode"
    if seen.terminated and ends not in task.unknown:
        tell(
            "risk",
            "end",
            f"the environment ends episodes itself ({seen.terminated} of {len(seen.lengths)}), and the Task says "
            f"learns_end=False: plans do not know that they end",
        )
    for what in task.unknown:
        if what == ends:
            count = f"{seen.terminated} of {len(seen.lengths)} random episodes were ended by the environment"
            tell("learned", what, f"as a calibrated classifier; {count}")
            continue
        how = {"reward": "as a density", "behaviour": "as the first principal components of where plans lead"}
        tell("learned", what, how.get(what, "as a calibrated classifier"))
    tell(
        "learned",
        "dynamics",
        f"from {task.observations.size} numbers and the action to the next {task.observations.size}",
    )
    if seen.cost is None:
        return
    for i, constraint in enumerate(task.constraints):
        unsafe = int((seen.cost[:, i] > 0).sum())
        total, name = len(seen.cost), constraint.name
        tell("fact", f"cost {name!r}", f"{unsafe} of {total} random steps are unsafe ({100 * unsafe / total:.2g} %)")
        values = np.unique(seen.cost[:, i])
        if not np.isin(values, (0.0, 1.0)).all():
            tell(
                "risk", f"cost {name!r}", f"takes values such as {_short(values)}: whatever is above 0 counts as unsafe"
            )
        found = examples_of(name, seen.next_obs, seen.cost[:, i] > 0, task.observations)
        if constraint.learned and found.warning:
            advice = "The cost classifier needs safe and unsafe examples: "
            if found.kind != "none":  # that warning says what to do
                advice += "describe the cost in a Task, bring logged data with --data, or "
            tell("risk", f"cost {name!r}", f"{found.warning}. {advice}expect unsafe steps until it has them")
        elif unsafe:
            tell("fact", f"cost {name!r}", f"unsafe states: {found.region}")
        if unsafe > 0.5 * total:
            tell(
                "risk",
                f"cost {name!r}",
                "more than half of random steps are unsafe: there may be no safe plan at first",
            )


def _short(values: Any) -> str:
    return np.array2string(np.asarray(values), precision=4, threshold=12, edgeitems=4, max_line_width=10_000)
