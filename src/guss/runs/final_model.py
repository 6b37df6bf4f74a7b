"""What a run learned, put to work: its final models for an evaluation, or for an `Agent` on any such system.

A finished run has its final models in a file. Of a run that is not finished, or older than that file, the models are
fitted to the data of the newest checkpoint first, which is said by a warning; nothing is stored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from guss.agent import Agent
from guss.checkpoint import Stored
from guss.envs.lookup import as_maker
from guss.errors import GussError, warn
from guss.history import Episode
from guss.models.stored_report import report_from
from guss.runs.checkpoints import final_models, newest_checkpoint
from guss.runs.config import RunConfig, spec_of_run
from guss.runs.results import episode_from, read_config
from guss.runs.rows import read_episodes
from guss.runs.sources import warn_if_changed
from guss.runs.trainer import Trainer, check_done
from guss.task import Task


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


def restore_learned(home: Path, trainer: Trainer) -> None:
    """Give a trainer everything that its run has learned."""
    stored, to_fit = learned_state(home, trainer.config)
    trainer.restore(stored)
    if to_fit and (fitted := trainer.prepare_final()).diverged:
        warn(f"that fit diverged (seeds {fitted.diverged}): the models of the fit before are used")


def agent_of_run(home: Path, seed: int | None, system: Any, task: Task | None) -> Agent:
    """See `Agent.from_run`."""
    config = read_config(home)
    if not config.plans:
        what = "a policy" if config.is_policy else "random actions"
        raise GussError(
            f"{home} is a run of {config.method!r}, which acts by {what}: an Agent plans with a learned model. "
            f"`guss eval {home}` evaluates what this run learned"
        )
    row = config.row_of(seed)
    if system is None:
        if task is not None:
            raise GussError("`task` needs `system`; leave out both to use the run's own environment")
        system, task = _environment(config)
        warn_if_changed(home, config)
    stored, to_fit = learned_state(home, config)
    check_done(stored, config.episodes)
    done, chosen = stored.meta["done"], config.seeds[row]
    planned = {"initial_episodes": min(config.initial_episodes, done), "initial_steps": 0}  # whatever comes next
    agent = Agent(system, task=task, seed=chosen, preset={}, **config.arguments() | planned)
    report = report_from(stored.meta.get("report"), (len(config.seeds),))
    mine = stored.row(row, len(config.seeds))
    agent.restore(mine, _history(home, chosen, done), jax.tree.map(lambda x: x[row], report))
    if to_fit:
        agent.fit()
    elif not agent.method.ready(agent.state):
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
    return [episode_from(row, home) for row in rows]
