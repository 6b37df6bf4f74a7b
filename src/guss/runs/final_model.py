"""The final models of a run, for evaluation or for an `Agent` on a system of the same kind.

A finished run stores its final models in a file. Of a run without that file (unfinished, or from an earlier version),
the models are first fitted to the data of the newest checkpoint, with a warning; nothing is stored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from guss.agent import Agent
from guss.checkpoint import Stored
from guss.errors import GussError, warn
from guss.history import Episode
from guss.models.stored_report import report_from
from guss.runs.checkpoints import final_models, newest_checkpoint
from guss.runs.config import RunConfig, spec_of_run
from guss.runs.results import read_config
from guss.runs.rows import read_episodes
from guss.runs.sources import warn_if_changed
from guss.runs.trainer import Trainer, check_done
from guss.task import Task


def learned_state(home: Path, config: RunConfig) -> tuple[Stored, bool]:
    """The newest state of a run, with its final models if they are stored, and whether they must still be fitted."""
    newest = newest_checkpoint(home)
    if newest is None:
        raise GussError(f"{home} has no checkpoint to load; every finished episode writes one")
    final = final_models(home, newest.meta["done"])
    if final is not None:
        if final.meta["diverged"]:
            warn(
                f"the fit after the last episode of {home} diverged (seeds {final.meta['diverged']}): using the models "
                f"fitted before that episode"
            )
        return Stored(final.path, final.meta, newest.arrays | final.arrays), False
    if not config.learns:
        return newest, False
    warn(
        f"{home} has no final models (it is unfinished, or from an earlier version of guss): fitting them now to its "
        f"{newest.meta['done']} episodes; `guss run --resume {home}` finishes the run and stores them"
    )
    return newest, True


def restore_learned(home: Path, trainer: Trainer) -> None:
    """Restore the learned state of a run in a trainer, with its final models."""
    stored, to_fit = learned_state(home, trainer.config)
    trainer.restore(stored)
    if to_fit and (fitted := trainer.prepare_final()).diverged:
        warn(f"that fit diverged (seeds {fitted.diverged}): using the models of the previous fit")


def agent_of_run(home: Path, seed: int | None, system: Any, task: Task | None) -> Agent:
    """See `Agent.from_run`."""
    config = read_config(home)
    if not config.plans:
        what = "a policy" if config.is_policy else "random actions"
        raise GussError(
            f"{home} is a run of {config.method!r}, which acts by {what}, but an Agent plans with a model; "
            f"`guss eval {home}` evaluates this run"
        )
    row = config.row_of(seed)
    if system is None:
        if task is not None:
            raise GussError("`task` needs `system`; leave out both to use the run's own environment")
        system = spec_of_run(config)
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
        raise GussError(f"{home} has no usable model, because its only fit diverged")
    return agent


def _history(home: Path, seed: int, done: int) -> list[Episode]:
    """The run's episodes of one seed, as the history of an agent."""
    rows = [row for row in read_episodes(home) if row["seed"] == seed and row["episode"] < done]
    if [row["episode"] for row in rows] != list(range(done)):
        raise GussError(
            f"{home / 'episodes.jsonl'} has {len(rows)} of the {done} episodes of seed {seed}; "
            f"`guss run --resume {home}` reports how to repair it"
        )
    return list(map(Episode.of, rows))
