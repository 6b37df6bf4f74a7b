"""Curves of a run in TensorBoard or Weights & Biases, while it is under way. The run's own records do not need them.

mean_reward/…, unsafe_pct/…   /mean over seeds, and /seed<S>
cost/<constraint>/…           likewise: the sum over the episode's steps
model/…                       nll, r2, ks, r2_horizon: means over seeds and dimensions; only after a fit
policy/…                      what a baseline logs (docs/baselines.md): means over seeds
seconds/…                     fit, plan, compile

Their step is the number of real steps per seed until then.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import numpy as np

from guss.errors import GussError, UnknownNameError


class Writers:
    """All writers of a run that is under way."""

    def __init__(self, home: Path, opened: dict[str, TensorBoard | WandB]) -> None:
        self.home, self.opened = home, opened

    def episode(self, rows: Sequence[dict[str, Any]], timing: dict[str, Any]) -> None:
        """One finished episode, or several played at once: their lines of episodes.jsonl, one of timings.jsonl."""
        values = scalars(rows, timing)
        step = max(row["total_steps"] for row in rows if row["seed"] == rows[0]["seed"])
        for name, writer in self.opened.items():
            with _reported(name, self.home):
                writer.log(step, values)


@contextmanager
def open_writers(names: Sequence[str], home: Path, config: dict[str, Any], done: int) -> Iterator[Writers]:
    """Write the curves of the run in `home`, of which `done` episodes are finished already, to all of `names`."""
    check_writers(names)
    with ExitStack() as stack:
        opened: dict[str, TensorBoard | WandB] = {}
        for name in dict.fromkeys(names):
            with _reported(name, home):
                opened[name] = WRITERS[name](home, config, done)
            stack.push(_closing(name, home, opened[name]))
        yield Writers(home, opened)


def check_writers(names: Sequence[str]) -> None:
    """Raise on unknown names and missing packages, before anything is run or overwritten."""
    for name in names:
        if name not in WRITERS:
            raise UnknownNameError("log", name, WRITERS)
        _package(name)


def scalars(rows: Sequence[dict[str, Any]], timing: dict[str, Any]) -> dict[str, float]:
    """The curves' values for one episode, or the means of several, by name."""
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
        known = known[~np.isnan(known)]  # None: too little was held out to evaluate the model
        values |= {name: float(known.mean())} if known.size else {}
    return values | {f"seconds/{name}": float(timing[f"{name}_seconds"]) for name in ("fit", "plan", "compile")}


# ------------------------------------------------------------------------------------------------------------- writers


class TensorBoard:
    """Event files in `home/tensorboard`, on disk after every episode.

    Written here and not by tensorboardX's SummaryWriter: that one writes from a thread of its own, whose errors nobody
    sees and for which its flush does not wait.
    """

    package, hint = "tensorboardX", ""

    def __init__(self, home: Path, config: dict[str, Any], done: int) -> None:
        _package("tensorboard")
        events = importlib.import_module("tensorboardX.event_file_writer")
        self.proto = importlib.import_module("tensorboardX.proto.event_pb2")
        self.summary = importlib.import_module("tensorboardX.proto.summary_pb2").Summary
        folder = home.resolve() / "tensorboard"
        folder.mkdir(exist_ok=True)
        # Its name has only seconds otherwise; a file that starts from the same episode holds nothing that counts still.
        self.file = events.EventsWriter(str(folder / "events"), f".ep{done:06d}")
        self.started = False

    def log(self, step: int, values: dict[str, float]) -> None:
        """An event with all values. The first one takes back (purges) what an earlier process logged from there on."""
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
    """A W&B run named as the run's folder; W&B's own variables (WANDB_MODE=offline, WANDB_SILENT, …) hold.

    W&B takes steps in growing order only: episodes that it has already, and that a resumed run does again, stay as they
    are. It writes from a process of its own: it may lose what was logged in the last seconds before a kill.
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
            reinit="create_new",  # a run that the calling program has open is its own
            settings=wandb.Settings(console="off"),  # what is printed is no part of the curves
        )

    def log(self, step: int, values: dict[str, float]) -> None:
        """A row of W&B's history, sent now and not with the next one."""
        self.run.log(values, step=step, commit=True)

    def close(self, failed: bool) -> None:
        """End the W&B run, as finished or as failed."""
        self.run.finish(exit_code=int(failed))


WRITERS: dict[str, type[TensorBoard] | type[WandB]] = {"tensorboard": TensorBoard, "wandb": WandB}


def _package(name: str) -> ModuleType:
    """The package of a writer; imported only if asked for, since few have it."""
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
    """Whatever a writer's package raises, which is of many kinds, becomes an error that says what to do."""
    try:
        yield
    except Exception as error:
        raise GussError(
            f"cannot log to {name}: {error}. The run's records are kept: continue with `guss run --resume {home}`, "
            f"with --log or without.{WRITERS[name].hint}"
        ) from error


def _closing(name: str, home: Path, writer: TensorBoard | WandB) -> Callable[..., None]:
    """Closes a writer on the way out; an error of the run itself is not hidden by one while closing."""

    def close(kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            with _reported(name, home):
                writer.close(failed=error is not None)
        except GussError as problem:
            if error is None:
                raise
            error.add_note(str(problem))

    return close
