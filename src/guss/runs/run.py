"""Starts, resumes and trains runs: records, checkpoints, the final models."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from guss import checkpoint
from guss.checkpoint import sync_folder, write_atomically
from guss.collect.compiled import OnStep
from guss.collect.datasets import Dataset
from guss.errors import GussError, warn
from guss.files import check_folder, writing
from guss.models.stored_report import report_numbers
from guss.progress import EpisodeSummary
from guss.runs.checkpoints import FINAL, PreviousIsValidError, is_final, newest_checkpoint, save_checkpoint
from guss.runs.claim import Claim, Observer, claimed
from guss.runs.config import RunConfig
from guss.runs.description import write_new
from guss.runs.extension import Extension
from guss.runs.integrity import RECORDS, RecordDigest, kept_records
from guss.runs.loggers import check_writers, open_writers
from guss.runs.provenance import provenance
from guss.runs.results import Run, read_config
from guss.runs.rows import read_episodes
from guss.runs.sources import source_digests, warn_if_changed
from guss.runs.state_maps import keep_maps
from guss.runs.store import digest_of, read_start, store_iteration, write_start
from guss.runs.trainer import FinalFit, OnText, Trainer, ignore

DERIVED = ("maps.json.gz", "animation.json.gz", "eval.json")
"""Files derived from a run's records; more episodes make them outdated."""
PACKED = ("episodes.jsonl.gz", "timings.jsonl.gz")
FOLDERS = ("traces", "checkpoints")
OnFinal = Callable[[FinalFit | None], Any]
"""Called with None when the fit after the last episode starts, and with its result when it ends."""


class ExistingRunError(GussError):
    """The folder already contains a run with these settings."""


class OpenRun(NamedTuple):
    """A run that this process may write to."""

    home: Path
    trainer: Trainer
    claim: Claim


class Watchers(NamedTuple):
    """Callbacks during training."""

    on_episode: Callable[[EpisodeSummary], Any] = ignore
    on_step: OnStep = None
    on_final: OnFinal = ignore
    on_stage: OnText = ignore
    on_warning: OnText = ignore


def run(
    config: RunConfig,
    out: Path | str = "runs",
    *,
    data: Dataset | None = None,
    overwrite: bool = False,
    logs: Sequence[str] = (),
    origin: dict[str, Any] | None = None,
    **watchers: Any,
) -> Run:
    """Execute a run and store its records in a folder of `out`; returns the finished Run.

    `config`: from `make_config`. `data`: the logged transitions to start from, whose digest the config contains.
    `overwrite`: replace a stored run with the same settings. `logs`: loggers for curves during training, such as
    "tensorboard". `origin`: the provenance to store. `watchers`: callbacks named as in `guss.runs.run.Watchers`, such
    as `on_episode`, or None. Raises GussError if a run with the same settings exists, the folder cannot be written, or
    the environment fails.

    Example:
        >>> config = guss.make_config("safe-pendulum", "random", seeds=1, episodes=1)
        >>> guss.run(config, folder).metrics.unsafe_pct.shape
        (1,)
    """
    check_writers(logs)
    with new_run(config, out, data=data, overwrite=overwrite, origin=origin) as opened:
        return train(opened, logs, **watchers)


def resume(
    path: Path | str,
    *,
    previous: bool = False,
    more: Extension | None = None,
    logs: Sequence[str] = (),
    **watchers: Any,
) -> Run:
    """Resume an interrupted run; it ends as if it had never been interrupted. Returns the Run.

    `path`: the run folder. `previous`: resume from the second-last checkpoint. `more`: extend the run, even if it is
    finished. `logs` and `watchers` are as in `run`. Raises GussError if the folder is not a run that can be resumed.

    Example:
        >>> config = guss.make_config("safe-pendulum", "random", seeds=1, episodes=1, horizon=3)
        >>> run = guss.run(config, folder)
        >>> len(guss.resume(run.path).episodes)  # the run is already finished
        1
    """
    check_writers(logs)
    with reopened_run(path, previous=previous, more=more) as opened:
        return train(opened, logs, **watchers)


@contextlib.contextmanager
def new_run(
    config: RunConfig,
    out: Path | str,
    *,
    data: Dataset | None = None,
    overwrite: bool = False,
    origin: dict[str, Any] | None = None,
    observer: Observer | None = None,
) -> Iterator[OpenRun]:
    """The claimed, empty folder of a new run, and its trainer; arguments as in `run`. `observer`: as in `claimed`."""
    if config.data != (None if data is None else digest_of(data)):
        raise GussError("the config's `data` must be the digest of the transitions passed as `data`; they differ")
    home = config.folder_in(Path(out))
    check_folder(home)
    trainer = Trainer(config, data)
    with claimed(home, observer) as claim:
        if (home / "config.json").exists() and not overwrite:
            done = len({row["episode"] for row in read_episodes(home)})
            raise ExistingRunError(
                f"{home} already contains a run with these settings ({done} of {read_config(home).episodes} episodes); "
                f"resume it with `guss run --resume {home}`, or replace it with --overwrite"
            )
        sources = source_digests(config)
        with writing(home):
            _remove_old(home, claim)
            for name in FOLDERS:
                (home / name).mkdir(exist_ok=True)
            for name in RECORDS:
                write_atomically(home / name, b"", claim)
            write_start(home, data)
            write_new(home, config, trainer.task, origin or provenance("guss.run"), sources, claim)
            sync_folder(home.parent)
        yield OpenRun(home, trainer, claim)


def _remove_old(home: Path, claim: Claim) -> None:
    """Remove the files of an overwritten run."""
    remove_partial(home, claim)
    files = [home / name for name in (*PACKED, FINAL, *DERIVED) if (home / name).exists()]
    folders = [home / name for name in FOLDERS if (home / name).exists()]
    claim.check()
    for file in files:
        file.unlink(missing_ok=True)
    for folder in folders:
        shutil.rmtree(folder)


def remove_partial(home: Path, claim: Claim) -> None:
    """Remove the partial files of a process that was killed, or that lost its claim and may continue later."""
    partial = [path for folder in (home, *(home / name for name in FOLDERS)) for path in folder.glob("*.partial")]
    claim.check()
    for path in partial:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def reopened_run(
    path: Path | str, *, previous: bool = False, more: Extension | None = None, observer: Observer | None = None
) -> Iterator[OpenRun]:
    """The claimed folder of a stored run, and its trainer restored from a checkpoint; arguments as in `resume`.

    `observer`: as in `claimed`.
    """
    home, config = Path(path), read_config(Path(path))
    if any((home / name).exists() for name in PACKED):
        raise GussError(
            f"{home} is a packed run (its records are {', '.join(PACKED)}), without a checkpoint to resume from; "
            f"resume the original run, or run it again with --overwrite"
        )
    with claimed(home, observer) as claim:
        stored, before = newest_checkpoint(home, previous), config
        if more is not None:
            config = more.apply(home, config, stored)
        trainer = Trainer(config, read_start(home, config.data))
        warn_if_changed(home, config)
        if stored is not None:
            trainer.restore(stored)
        elif (recorded := _recorded(home, trainer)) > trainer.num_envs:  # a kill before the first checkpoint leaves one
            raise GussError(
                f"{home} has records of {recorded} episodes and no checkpoint to resume from; nothing was changed. "
                f"Restore its folder checkpoints/, or move the run away to start over"
            )
        kept = _checked_records(home, trainer, {"done": 0} if stored is None else stored.meta, previous)
        with writing(home):
            remove_partial(home, claim)
            for name, content in kept.items():  # without records after the checkpoint, and partial lines
                write_atomically(home / name, content, claim)  # a new file: see `guss.runs.claim`
            for name in FOLDERS:
                (home / name).mkdir(exist_ok=True)
            if more is not None and config != before:
                more.store(home, before, config, claim)
            if not trainer.over and not is_final(home, trainer.done):
                (home / FINAL).unlink(missing_ok=True)
        yield OpenRun(home, trainer, claim)


def train(opened: OpenRun, logs: Sequence[str] = (), **watchers: Any) -> Run:
    """Train until the run is over, then fit the final models.

    Records are written before the checkpoint; a resumed run repeats the episodes recorded after its checkpoint.
    """
    home, trainer, claim = opened
    watch = Watchers(**{name: function for name, function in watchers.items() if function is not None})
    trainer.on_stage, trainer.on_warning = watch.on_stage, watch.on_warning
    tallies = {name: RecordDigest(home / name) for name in RECORDS}
    with open_writers(logs, home, trainer.config.to_json(), trainer.done) as writers:
        while not trainer.over:
            first, found = trainer.done, trainer.iterate(watch.on_step)
            with writing(home):
                seeds, stores_all = trainer.config.seeds, trainer.method.stores_all
                rows = store_iteration(home, seeds, first, found, trainer.steps, stores_all, claim)
                sums = {name: tally.update() for name, tally in tallies.items()}
                save_checkpoint(home, trainer.done, trainer.meta() | {"records": sums}, trainer.state, claim)
                claim.check()
                for name in DERIVED:
                    (home / name).unlink(missing_ok=True)
            writers.episode(rows, found.timing)
            watch.on_episode(found.summary)
    claim.check()
    keep_maps(home, trainer.view)
    _finish(opened, watch.on_final)
    return Run(home)


def _finish(opened: OpenRun, on_final: OnFinal) -> None:
    """Fit to all episodes and store the final models, unless they are stored already."""
    home, trainer, claim = opened
    if trainer.method.prepared(trainer.state) == () or is_final(home, trainer.done):
        return
    on_final(None)
    try:
        fitted = trainer.prepare_final()
    except GussError as error:
        warn(f"{home} has no final model: {error}")
        return
    if fitted.diverged:
        warn(
            f"the fit after the last episode of {home} diverged (seeds {fitted.diverged}): `guss eval` and "
            f"Agent.from_run use the models fitted before that episode"
        )
    meta = trainer.meta() | {"report": report_numbers(fitted.report), "diverged": fitted.diverged}
    checkpoint.save(home / FINAL, "final", meta, trainer.method.prepared(trainer.state), claim)
    on_final(fitted)


def _recorded(home: Path, trainer: Trainer) -> int:
    """Number of episodes per seed with a line in episodes.jsonl, valid or not."""
    path = home / "episodes.jsonl"
    return (path.read_bytes().count(b"\n") if path.exists() else 0) // len(trainer.config.seeds)


def _checked_records(home: Path, trainer: Trainer, meta: dict[str, Any], previous: bool) -> dict[str, bytes]:
    """The records that belong to a checkpoint; if they are incomplete, the error names the next step."""
    try:
        return kept_records(home, trainer, meta)
    except GussError as error:
        way, kind = "Restore the files from a copy, or run it again from the start with --overwrite", GussError
        with contextlib.suppress(GussError):  # the previous checkpoint does not match either
            before = None if previous else newest_checkpoint(home, previous=True)
            if before is not None and kept_records(home, trainer, before.meta):
                done = before.meta["done"]
                way = f"The first {done} episodes are complete: `guss run --resume {home} --previous` resumes there"
                kind = PreviousIsValidError
        raise kind(
            f"the records of {home} do not match its checkpoint after {meta['done']} episodes: {error}. Nothing "
            f"was changed. {way}"
        ) from error
