"""Curves of a running training in TensorBoard or Weights & Biases, besides the run's own records.

mean_reward/…, unsafe_pct/…   /mean over seeds, and /seed<S>
cost/<constraint>/…           likewise: the sum over the episode's steps
model/…                       nll, r2, ks, r2_horizon: means over seeds and dimensions; only after a fit
policy/…                      metrics of a baseline (docs/baselines.md): means over seeds
seconds/…                     fit, plan, compile

The x-axis is the number of real steps per seed.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from guss.errors import GussError, UnknownNameError


class Writers:
    """The open writers of a run."""

    def __init__(self, home: Path, opened: dict[str, TensorBoard | WandB]) -> None:
        self.home, self.opened = home, opened

    def episode(self, rows: Sequence[dict[str, Any]], timing: dict[str, Any]) -> None:
        """Log one iteration: its lines of episodes.jsonl (`rows`) and its line of timings.jsonl (`timing`)."""
        values = scalars(rows, timing)
        step = max(row["total_steps"] for row in rows if row["seed"] == rows[0]["seed"])
        for name, writer in self.opened.items():
            with _reported(name, self.home):
                writer.log(step, values)


@contextmanager
def open_writers(names: Sequence[str], home: Path, config: dict[str, Any], done: int) -> Iterator[Writers]:
    """Open all writers in `names` for the run in `home`, of which `done` episodes are already finished."""
    check_writers(names)
    with ExitStack() as stack:
        opened: dict[str, TensorBoard | WandB] = {}
        for name in dict.fromkeys(names):
            with _reported(name, home):
                opened[name] = WRITERS[name](home, config, done)
            stack.push(partial(_close, name, home, opened[name]))
        yield Writers(home, opened)


def check_writers(names: Sequence[str]) -> None:
    """Raise on unknown names and missing packages, before a run starts or is overwritten."""
    for name in names:
        if name not in WRITERS:
            raise UnknownNameError("logger", name, WRITERS)
        _package(name)


def scalars(rows: Sequence[dict[str, Any]], timing: dict[str, Any]) -> dict[str, float]:
    """The values to log by name: of one episode, or means of several."""
    columns = {name: [row[name] for row in rows] for name in ("mean_reward", "unsafe_pct")}
    columns |= {f"cost/{name}": [row["costs"][name] for row in rows] for name in rows[0]["costs"]}
    values, seeds = {}, np.asarray([row["seed"] for row in rows])
    for name, column in columns.items():
        values[f"{name}/mean"] = float(np.mean(column))
        values |= {f"{name}/seed{seed}": float(np.mean(np.asarray(column)[seeds == seed])) for seed in set(seeds)}
    measures = {f"model/{name}": timing.get(name, ()) for name in ("nll", "r2", "ks", "r2_horizon")}
    measures |= {f"policy/{name}": value for name, value in timing.get("policy", {}).items()}
    for name, value in measures.items():
        known = np.asarray(value, float)
        known = known[~np.isnan(known)]  # None: too few held-out rows to evaluate the model
        values |= {name: float(known.mean())} if known.size else {}
    return values | {f"seconds/{name}": float(timing[f"{name}_seconds"]) for name in ("fit", "plan", "compile")}


# ------------------------------------------------------------------------------------------------------------- writers


class TensorBoard:
    """Event files in `home/tensorboard`, flushed after every episode.

    It does not use tensorboardX's SummaryWriter, whose thread hides errors and is not waited for by its flush.
    """

    package, hint = "tensorboardX", ""

    def __init__(self, home: Path, config: dict[str, Any], done: int) -> None:
        _package("tensorboard")
        events = importlib.import_module("tensorboardX.event_file_writer")
        self.proto = importlib.import_module("tensorboardX.proto.event_pb2")
        self.summary = importlib.import_module("tensorboardX.proto.summary_pb2").Summary
        folder = home.resolve() / "tensorboard"
        folder.mkdir(exist_ok=True)
        # Otherwise the name has only seconds; a file that starts from the same episode is purged below and can go.
        self.file = events.EventsWriter(str(folder / "events"), f".ep{done:06d}")
        self.started = False

    def log(self, step: int, values: dict[str, float]) -> None:
        """Write an event with all values. The first event purges what an earlier process logged from this step on."""
        if not self.started:
            self._write(step, session_log=self.proto.SessionLog(status=self.proto.SessionLog.START))
            self.started = True
        points = [self.summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(step, summary=self.summary(value=points))
        self.file.flush()

    def close(self, failed: bool) -> None:
        self.file.close()

    def _write(self, step: int, **what: Any) -> None:
        self.file.write_event(self.proto.Event(wall_time=time.time(), step=step, **what))


class WandB:
    """A W&B run with the name of the run folder; W&B's variables (WANDB_MODE=offline, WANDB_SILENT, …) apply.

    W&B accepts increasing steps only: episodes that a resumed run repeats keep their first values. W&B writes from a
    separate process, which may lose the last seconds before a kill.
    """

    package, hint = "wandb", " Without a W&B account or network, set WANDB_MODE=offline."

    def __init__(self, home: Path, config: dict[str, Any], done: int) -> None:
        wandb = _package("wandb")
        name = home.resolve().name
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "guss",
            name=name,
            id=name,
            resume="allow",
            dir=home,
            config=config,
            reinit="create_new",  # leave a run that the calling program has open alone
            settings=wandb.Settings(console="off"),  # do not capture the console
        )

    def log(self, step: int, values: dict[str, float]) -> None:
        """Send a row of W&B's history at once."""
        self.run.log(values, step=step, commit=True)

    def close(self, failed: bool) -> None:
        """End the W&B run, as finished or as failed."""
        self.run.finish(exit_code=int(failed))


WRITERS: dict[str, type[TensorBoard] | type[WandB]] = {"tensorboard": TensorBoard, "wandb": WandB}


def _package(name: str) -> ModuleType:
    """Import the package of a writer; it is an optional dependency."""
    package = WRITERS[name].package
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise GussError(
            f"logging to {name} needs the package {package}, which cannot be imported ({error}); "
            f"install it with `pip install 'guss[{name}]'`"
        ) from error


# -------------------------------------------------------------------------------------------------------------- errors


@contextmanager
def _reported(name: str, home: Path) -> Iterator[None]:
    """Convert any exception of a writer's package to a GussError that names the next step."""
    try:
        yield
    except Exception as error:
        raise GussError(
            f"cannot log to {name}: {error}. The run's records are kept: continue with `guss run --resume {home}`, "
            f"with --log or without.{WRITERS[name].hint}"
        ) from error


def _close(name: str, home: Path, writer: TensorBoard | WandB, _: Any, error: BaseException | None, *__: Any) -> None:
    """Close a writer at the end of a run; an error while closing does not hide an `error` of the run."""
    try:
        with _reported(name, home):
            writer.close(failed=error is not None)
    except GussError as problem:
        if error is None:
            raise
        error.add_note(str(problem))
