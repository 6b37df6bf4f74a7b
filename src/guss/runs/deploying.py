"""What a run learned, put to work: its final models for an evaluation, or for an `Agent` on any such system.

A finished run has its final models in a file. Of a run that is not finished, or older than that file, the models are
fitted to the data of the newest checkpoint first, which is said by a warning; nothing is stored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from guss.agent.agent import Agent, Episode
from guss.agent.storing import check_learner, report_from
from guss.checkpoint import Stored
from guss.envs.finding import as_maker
from guss.errors import GussError, UnknownNameError, warn
from guss.runs.config import RunConfig, spec_of_run
from guss.runs.lines import read_episodes
from guss.runs.loops import Loop, check_done
from guss.runs.running import final_models, newest_checkpoint, read_config
from guss.runs.sources import warn_if_changed
from guss.task import Task
from guss.validation import build


def learned_state(home: Path, config: RunConfig) -> tuple[Stored, bool]:
    """The newest state of a run, with its final models where they are stored; and whether these are still to be fitted.

    Models are only to be fitted where a method learns any.
    """
    newest = newest_checkpoint(home)
    if newest is None:
        raise GussError(f"{home} has no checkpoint to evaluate or to load; a finished episode leaves one")
    final = final_models(home, newest.meta["done"])
    if final is not None:
        if final.meta["diverged"]:
            warn(
                f"the fit after the last episode of {home} diverged (seeds {final.meta['diverged']}): the models "
                f"fitted before that episode are used"
            )
        return Stored(final.path, final.meta, newest.arrays | final.arrays), False
    if not config.learns:
        return newest, False
    warn(
        f"{home} has no models of all its episodes (it is not finished, or older than that): they are fitted now to "
        f"its {newest.meta['done']} episodes; `guss run --resume {home}` finishes it and stores them"
    )
    return newest, True


def restore_learned(home: Path, loop: Loop) -> None:
    """Give a loop everything that its run has learned."""
    stored, to_fit = learned_state(home, loop.config)
    loop.restore(stored)
    if to_fit and (fitted := loop.fit_final()) is not None and fitted.diverged:
        warn(f"that fit diverged (seeds {fitted.diverged}): the models of the fit before are used")


def agent_of_run(home: Path, seed: int | None, system: Any, task: Task | None) -> Agent:
    """See `Agent.from_run`."""
    config = read_config(home)
    if not config.plans:
        what = "random actions" if config.baseline is None else "a policy"
        raise GussError(
            f"{home} is a run of {config.method!r}, which acts by {what}: an Agent plans with a learned model. "
            f"`guss eval {home}` evaluates what this run learned"
        )
    chosen = config.seeds[0] if seed is None else seed
    if chosen not in config.seeds:
        raise UnknownNameError("seed of the run", str(chosen), [str(each) for each in config.seeds])
    if system is None:
        if task is not None:
            raise GussError("a task describes a system: give `system` with it, or neither for the run's environment")
        system, task = _environment(config)
        warn_if_changed(home, config)
    stored, to_fit = learned_state(home, config)
    check_done(stored, config.episodes)
    done = stored.meta["done"]
    row = config.seeds.index(chosen)
    planned = {"initial_episodes": min(config.initial_episodes, done), "initial_steps": 0}  # whatever comes next
    agent = Agent(system, task=task, seed=chosen, preset={}, **config.arguments() | planned)
    report = report_from(stored.meta.get("report"), (len(config.seeds),))
    mine = stored.row(row, len(config.seeds))
    check_learner(mine, 1)
    own_report = None if report is None else jax.tree.map(lambda x: x[row], report)
    agent.restore(mine, _history(home, chosen, done), own_report, -1 if to_fit else stored.meta["learner"]["filled"])
    if to_fit:
        agent.fit()
    elif config.learns and agent.learner.fits == 0:
        raise GussError(f"{home} has learned nothing: its only fit diverged")
    return agent


def _environment(config: RunConfig) -> tuple[Any, Task | None]:
    """The environment of a run, with its Task; the Task alone where its episodes are compiled."""
    spec = spec_of_run(config)
    task = spec.make_task()
    if spec.make_env is None and task.reset is not None:
        return task, None
    return as_maker(spec)().env, task


def _history(home: Path, seed: int, done: int) -> list[Episode]:
    """The run's episodes of one seed, as an agent remembers its own."""
    rows = [row for row in read_episodes(home) if row["seed"] == seed and row["episode"] < done]
    if [row["episode"] for row in rows] != list(range(done)):
        raise GussError(
            f"{home / 'episodes.jsonl'} has {len(rows)} of the {done} episodes of seed {seed}; "
            f"`guss run --resume {home}` says what can be done"
        )
    names = ("episode", "phase", "steps", "mean_reward", "unsafe_pct", "hard_stop", "unsafe_by_cost")
    what = f"a line of {home / 'episodes.jsonl'}"
    renamed = [row | {"unsafe_by_cost": row.get("unsafe_pct_by_cost", {})} for row in rows]
    return [build(Episode, {name: row[name] for name in names if name in row}, what) for row in renamed]
