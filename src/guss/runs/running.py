"""Run to the end, whatever comes between: records, checkpoints, resuming."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from guss import checkpoint
from guss.agent.settings import settings_from_json
from guss.agent.storing import RUN_META, report_numbers
from guss.agent.traces import Trace
from guss.checkpoint import Stored, sync_folder, write_atomically
from guss.errors import GussError, warn
from guss.files import check_folder, writing
from guss.runs.config import RunConfig
from guss.runs.extending import Extension
from guss.runs.facts import KEY, facts_of, read_stored
from guss.runs.integrity import RECORDS, Tally, kept_records
from guss.runs.learning import PlanningLoop
from guss.runs.lines import read_episodes
from guss.runs.locking import locked
from guss.runs.loops import EpisodeNews, FinalFit, Loop, OnStage, OnWarning
from guss.runs.maps import keep_maps
from guss.runs.places import load_plugins_of, place_of
from guss.runs.policies import PolicyLoop
from guss.runs.records import (
    SCHEMA,
    digest_of,
    read_start,
    run_folder,
    store_episodes,
    write_json,
    write_start,
)
from guss.runs.sources import source_digests, warn_if_changed
from guss.runs.writers import check_writers, open_writers
from guss.usercode import user_code_allowed

FINAL = "final.ckpt"
"""The models fitted to all episodes of a finished run; everything else of its state is in the last checkpoint."""
DERIVED = ("maps.json.gz", "film.json.gz", "eval.json")
"""What is made of a run's records, and has to be made again after more episodes."""
PACKED = ("episodes.jsonl.gz", "timings.jsonl.gz")
OnEpisode = Callable[[EpisodeNews], Any] | None
OnStep = Callable[[int], Any] | None
OnFinal = Callable[[FinalFit | None], Any] | None
"""Called with None when the fit after the last episode begins, and with its outcome when it is over."""


def make_loop(config: RunConfig, data: Trace | None = None, *, alone: bool = False) -> Loop:
    """What a run does, by its method. `alone`: nothing is to be learned, so one episode of a seed at a time."""
    return PlanningLoop(config, data) if config.baseline is None else PolicyLoop(config, alone)


def run_one(
    config: RunConfig,
    out: Path,
    origin: dict[str, Any],
    on_episode: OnEpisode = None,
    *,
    on_step: OnStep = None,
    on_final: OnFinal = None,
    on_stage: OnStage = None,
    on_warning: OnWarning = None,
    overwrite: bool = False,
    data: Trace | None = None,
    logs: Sequence[str] = (),
) -> Path:
    """Run it and store its records; returns the run's folder. What is there already is only lost by `overwrite`.

    `data`: the logged transitions to start from, those whose digest the config names. `logs`: where curves go while it
    runs, such as "tensorboard".
    """
    check_writers(logs)
    if config.data != (None if data is None else digest_of(data)):
        raise GussError("the config's `data` is the digest of the logged transitions that come with it; they differ")
    home = run_folder(out, config.env, config.method, config.to_json())
    check_folder(home)
    loop = make_loop(config, data)
    with locked(home):
        if (home / "config.json").exists() and not overwrite:
            done = len({row["episode"] for row in read_episodes(home)})
            raise GussError(
                f"{home} holds a run with these very settings, {done} of {read_config(home).episodes} episodes; "
                f"go on with `guss run --resume {home}`, or start anew with --overwrite"
            )
        about = {"schema": SCHEMA, "config": config.to_json(), "provenance": origin, KEY: facts_of(config, loop.task)}
        about |= {"sources": source_digests(config), **place_of(home, config.env)}
        with writing(home):
            for name in ("traces", "checkpoints"):
                shutil.rmtree(home / name, ignore_errors=True)
                (home / name).mkdir()
            for name in (*PACKED, FINAL, *DERIVED):  # of the run that was here before
                (home / name).unlink(missing_ok=True)
            for name in RECORDS:
                (home / name).write_bytes(b"")
            write_start(home, data)
            write_json(home / "config.json", about)
            sync_folder(home.parent)
        loop.on_stage, loop.on_warning = on_stage, on_warning
        _go_on(home, loop, on_episode, on_step, logs)
        _finish(home, loop, on_final)
    return home


def resume_run(
    home: Path,
    on_episode: OnEpisode = None,
    *,
    on_step: OnStep = None,
    on_final: OnFinal = None,
    on_stage: OnStage = None,
    on_warning: OnWarning = None,
    previous: bool = False,
    more: Extension | None = None,
    logs: Sequence[str] = (),
) -> RunConfig:
    """Resume an interrupted run, from its last checkpoint or the one before; ends as if never interrupted.

    `more`: extend it, also if it is finished.
    """
    check_writers(logs)
    config = read_config(home)
    if any((home / name).exists() for name in PACKED):
        raise GussError(
            f"{home} is a packed run (its records are {', '.join(PACKED)}): it has no checkpoint to go on from; resume "
            f"the run that it is a copy of, or run it anew with --overwrite"
        )
    with locked(home):
        stored, before = newest_checkpoint(home, previous), config
        if more is not None:
            config = more.apply(home, config, stored)
        loop = make_loop(config, read_start(home, config.data))
        warn_if_changed(home, config)
        if stored is not None:
            loop.restore(stored)
        elif (recorded := _recorded(home, loop)) > loop.at_once:  # a kill before the first checkpoint leaves one turn
            raise GussError(
                f"{home} has records of {recorded} episodes and no checkpoint to resume from; nothing was changed. "
                f"Restore its folder checkpoints/, or start over with --overwrite"
            )
        kept = _checked_records(home, loop, {"done": 0} if stored is None else stored.meta, previous)
        with writing(home):
            for name, content in kept.items():  # what was recorded after the checkpoint, or in part, is done again
                if not (home / name).exists() or (home / name).read_bytes() != content:
                    write_atomically(home / name, content)
            for name in ("traces", "checkpoints"):
                (home / name).mkdir(exist_ok=True)
            if more is not None and config != before:
                more.store(home, before, config)
            if not loop.over and not _is_final(home, loop.done):
                (home / FINAL).unlink(missing_ok=True)
        loop.on_stage, loop.on_warning = on_stage, on_warning
        _go_on(home, loop, on_episode, on_step, logs)
        _finish(home, loop, on_final)
    return config


def _recorded(home: Path, loop: Loop) -> int:
    """Episodes of every seed that have a line, whatever it says."""
    path = home / "episodes.jsonl"
    return (path.read_bytes().count(b"\n") if path.exists() else 0) // len(loop.config.seeds)


def _checked_records(home: Path, loop: Loop, meta: dict[str, Any], previous: bool) -> dict[str, bytes]:
    """The records that belong to a checkpoint; if they are not complete, an error says what can be done."""
    try:
        return kept_records(home, loop, meta)
    except GussError as error:
        way = "Put the files back from a copy, or run it again from the start with --overwrite"
        with contextlib.suppress(GussError):  # neither is the checkpoint before of any use
            before = None if previous else newest_checkpoint(home, previous=True)
            if before is not None and kept_records(home, loop, before.meta):
                done = before.meta["done"]
                way = f"The first {done} episodes are complete: `guss run --resume {home} --previous` continues there"
        raise GussError(
            f"the records of {home} are not those of its checkpoint after {meta['done']} episodes: {error}. Nothing "
            f"was changed. {way}"
        ) from error


def _go_on(home: Path, loop: Loop, on_episode: OnEpisode, on_step: OnStep, logs: Sequence[str]) -> None:
    """Episodes until the run is over. Records first, then the checkpoint: what was recorded after it is done again."""
    tallies = {name: Tally(home / name) for name in RECORDS}
    with open_writers(logs, home, loop.config.to_json(), loop.done) as writers:
        while not loop.over:
            first, before = loop.done, loop.steps
            episodes, news, timing = loop.episode(on_step)
            seeds, kept = loop.config.seeds, loop.every_trace
            with writing(home):
                rows = store_episodes(home, seeds, loop.task, first, news.phase, episodes, timing, before, kept)
                sums = {name: tally.update() for name, tally in tallies.items()}
                save_checkpoint(home, loop.done, loop.meta() | {"records": sums}, loop.state)
                for name in DERIVED:
                    (home / name).unlink(missing_ok=True)
            writers.episode(rows, timing)
            if on_episode is not None:
                on_episode(news)
    keep_maps(home, loop.view)


def _finish(home: Path, loop: Loop, on_final: OnFinal) -> None:
    """Fit to all episodes and keep the models, unless that is done already."""
    if not loop.learned or _is_final(home, loop.done):
        return
    if on_final is not None:
        on_final(None)
    try:
        fitted = loop.fit_final()
    except GussError as error:
        warn(f"{home} has no final model: {error}")
        return
    assert fitted is not None
    if fitted.diverged:
        warn(
            f"the fit after the last episode of {home} diverged (seeds {fitted.diverged}): the models fitted before "
            f"that episode are kept, and used by `guss eval` and Agent.from_run"
        )
    meta = loop.meta() | {"report": report_numbers(fitted.report), "diverged": fitted.diverged}
    checkpoint.save(home / FINAL, "final", meta, loop.learned)
    if on_final is not None:
        on_final(fitted)


def read_config(home: Path) -> RunConfig:
    """The settings of a stored run, whose plugins are imported first."""
    stored = read_stored(home)
    if user_code_allowed() and stored.facts is not None:
        load_plugins_of(home, stored.facts.plugins, stored.started_in)
    config = settings_from_json(RunConfig, stored.config)
    folder = None if stored.started_in is None else str(stored.started_in)
    return dataclasses.replace(config, started_in=folder)


# --------------------------------------------------------------------------------------------------------- checkpoints


def _checkpoints(home: Path) -> list[Path]:
    """The checkpoints of a run, newest first."""
    files = (home / "checkpoints").glob("ep*.ckpt")
    return sorted((path for path in files if re.fullmatch(r"ep[0-9]+\.ckpt", path.name)), reverse=True)


def _load(path: Path, kind: str = "run") -> Stored:
    """A checkpoint of a run, its `meta` checked."""
    required = ("done", "over", "learner", "config", *(("report", "diverged") if kind == "final" else ()))
    return checkpoint.load(path, kind).checked(RUN_META, required)


def episodes_kept(home: Path) -> int:
    """Episodes that a run has for good: those before its last checkpoint; if none are kept, those of its records."""
    if (home / "checkpoints").is_dir():
        return max((int(path.stem.removeprefix("ep")) for path in _checkpoints(home)), default=0)
    return len({row["episode"] for row in read_episodes(home)})


def save_checkpoint(home: Path, done: int, meta: dict[str, Any], state: Any) -> None:
    """Keep what is needed to go on, and the one before; older ones go."""
    checkpoint.save(checkpoint_path(home, done), "run", meta, state)
    for old in _checkpoints(home)[2:]:
        old.unlink()


def newest_checkpoint(home: Path, previous: bool = False) -> Stored | None:
    """The last checkpoint of a run, or the one before; None if there is none yet."""
    files = _checkpoints(home)
    if previous and len(files) < 2:
        raise GussError(f"{home} has no checkpoint before its last one")
    if not files:
        return None
    try:
        return _load(files[1 if previous else 0])
    except GussError as error:
        if previous or len(files) < 2:
            raise
        try:
            good = _load(files[1])
        except GussError:
            raise error from None
        raise GussError(
            f"{error}. The one before it, after {good.meta['done']} episodes, is good: `guss run --resume {home} "
            f"--previous` goes on from there"
        ) from error


def final_models(home: Path, done: int) -> Stored | None:
    """The models fitted after the last of `done` episodes; None if there are none."""
    if not (home / FINAL).exists():
        return None
    stored = _load(home / FINAL, "final")
    return stored if stored.meta["done"] == done else None


def _is_final(home: Path, done: int) -> bool:
    """The same as whether there are any; a file that cannot be read counts for none, and is made again."""
    with contextlib.suppress(GussError):
        return final_models(home, done) is not None
    return False


def checkpoint_path(home: Path, episodes: int) -> Path:
    """Where the checkpoint after that many episodes is, if it is still there."""
    return home / "checkpoints" / f"ep{episodes:06d}.ckpt"


def checkpoint_after(home: Path, episodes: int) -> Stored | None:
    """The checkpoint after that many episodes, if it is still there."""
    path = checkpoint_path(home, episodes)
    return _load(path) if path.exists() else None
