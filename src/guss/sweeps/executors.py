"""Executors: start workers on this machine, on a Ray cluster or in a Slurm array, and wait until the study is finished.

All of them start the same worker. Workers need nothing but the folder, so that further ones can join at any time.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from guss.errors import GussError
from guss.sweeps.folder import SweepFolder, open_sweep
from guss.sweeps.worker import PARENT, Worker

POLL = 0.2
MOST_CRASHES, SHORT_LIFE = 20, 60.0
"""A local worker that ends so many times in a row within so many seconds is not started again."""
SECONDS_TO_END = 30.0
"""Seconds that interrupted workers have to end."""
ONE_THREAD = {"NPROC": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Environment variables of a worker: it computes with one thread."""


def cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def join(out: Path, name: str = "") -> None:
    """Work on the sweep in a folder until it is finished; every executor calls this in each of its workers."""
    with interruptible():
        Worker(open_sweep(out.absolute()), name).work()


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Signals that end a worker interrupt it like Ctrl-C: it releases its claim.

    SIGTERM: of users and schedulers; SIGHUP: the terminal was closed; SIGUSR2: the time limit of a job of submitit.
    """
    with handled_by(_interrupt, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2):
        yield


@contextlib.contextmanager
def handled_by(handler: Any, *numbers: signal.Signals) -> Iterator[None]:
    """Handle these signals in this way; only in the main thread of a program."""
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number in numbers} if main else {}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _raise_unless_over(folder: SweepFolder, troubles: Sequence[str]) -> None:
    """Raise the troubles of workers ("" for none), unless others have finished the study."""
    if any(troubles) and not all(each.over for each in folder.statuses()):
        raise GussError("; ".join(filter(None, dict.fromkeys(troubles))))


def worker_command(out: Path, name: str) -> list[str]:
    """The command of a worker."""
    return [sys.executable, "-m", "guss", "sweep", "--join", str(out.absolute()), "--worker", name]


# --------------------------------------------------------------------------------------------------------------- local


def run_local(folder: SweepFolder, workers: int) -> None:
    """One process per core. Workers that crash are restarted; a single worker runs in this process."""
    if workers == 1:
        with interruptible():
            Worker(folder).work()
        return
    places, slots = cores(), list[_Slot]()
    with interruptible():
        try:
            for number in range(workers):
                slots.append(_Slot(folder, f"local-{number}", places[number % len(places)]))
            while any([slot.check() for slot in slots]):
                time.sleep(POLL)
        finally:
            _end(slots)
    _raise_unless_over(folder, [slot.trouble for slot in slots])


class _Slot:
    """A worker process on one core."""

    def __init__(self, folder: SweepFolder, name: str, core: int) -> None:
        self.name, self.core, self.log = name, core, folder.log(name)
        self.command = worker_command(folder.out, name)
        self.crashes, self.trouble = 0, ""
        self._start()

    def _start(self) -> None:
        with self.log.open("ab") as output:
            how: Any = {"stdout": output, "stderr": output, "stdin": subprocess.DEVNULL, "start_new_session": True}
            environment = os.environ | ONE_THREAD | {PARENT: str(os.getpid())}
            self.process = subprocess.Popen(self.command, env=environment, **how)
        self.started = time.monotonic()
        if hasattr(os, "sched_setaffinity"):
            with contextlib.suppress(OSError):  # it has ended
                os.sched_setaffinity(self.process.pid, {self.core})

    def check(self) -> bool:
        """Whether the worker runs; a worker that crashed is started again."""
        code = self.process.poll()
        if code is None:
            return True
        if code in (0, 130) or self.trouble:
            return False
        self.crashes = self.crashes + 1 if time.monotonic() - self.started < SHORT_LIFE else 1
        if self.crashes > MOST_CRASHES:
            self.trouble = (
                f"worker {self.name} ended {self.crashes} times with code {code}; its output is in {self.log}"
            )
            return False
        self._start()
        return True


def _end(slots: Sequence[_Slot]) -> None:
    """Interrupt all workers and wait for them; those inside a long computation are killed."""
    with handled_by(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        for slot in slots:
            if slot.process.poll() is None:
                slot.process.terminate()
        until = time.monotonic() + SECONDS_TO_END
        for slot in slots:
            try:
                slot.process.wait(max(until - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                slot.process.kill()
                slot.process.wait()


# ----------------------------------------------------------------------------------------------------------------- Ray


def run_on_ray(folder: SweepFolder, workers: int, address: str | None, resources: dict[str, float]) -> None:
    """A task per worker; tasks of lost nodes are started again on others. All nodes must share the folder.

    `address`: of a cluster, by default a new one on this machine. `resources`: of each worker, such as num_cpus.
    """
    try:
        import ray
    except ImportError as error:
        raise GussError("the executor ray needs Ray, the extra `ray`: pip install 'guss[ray]'") from error
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # of JAX: Ray starts its processes at once
        how: Any = {"runtime_env": {"env_vars": ONE_THREAD}, "log_to_driver": False, "logging_level": "ERROR"}
        how |= {"include_dashboard": False} if address is None else {}
        ray.init(address=address, **how)
    try:
        known = {name: count for name, count in resources.items() if name in ("num_cpus", "num_gpus", "memory")}
        custom = {name: count for name, count in resources.items() if name not in known}
        options: Any = {"num_cpus": 1, "max_retries": -1, "resources": custom} | known
        task: Any = ray.remote(**options)(join)
        ray.get([task.remote(folder.out.absolute(), f"ray-{number}") for number in range(workers)])
    except ray.exceptions.RayError as error:
        raise GussError(f"Ray ended before the study was finished: {error}") from error
    finally:
        ray.shutdown()


# --------------------------------------------------------------------------------------------------------------- Slurm


def run_on_slurm(folder: SweepFolder, workers: int, options: dict[str, str]) -> None:
    """Submit an array of workers through submitit, and wait for it. All nodes must share the folder.

    `options`: of submitit's AutoExecutor, such as `slurm_partition` and `timeout_min`; `cluster` = "local" starts the
    workers on this machine.
    """
    try:
        import submitit
    except ImportError as error:
        raise GussError("the executor slurm needs submitit, the extra `slurm`: pip install 'guss[slurm]'") from error
    options = dict(options)
    try:
        executor = submitit.AutoExecutor(folder.out / "sweep" / "logs", cluster=options.pop("cluster", "slurm"))
        executor.update_parameters(**{"name": "guss", "cpus_per_task": 1, "timeout_min": 1440} | _typed(options))
    except (RuntimeError, TypeError, NameError) as error:
        raise GussError(f"submitit cannot submit to Slurm: {error}") from error
    names = [f"slurm-{number}" for number in range(workers)]
    jobs = executor.map_array(join, [folder.out.absolute()] * workers, names)
    try:
        troubles = [_wait_for(job) for job in jobs]
    except KeyboardInterrupt:
        for job in jobs:
            job.cancel()
        raise
    _raise_unless_over(folder, troubles)


def _typed(options: dict[str, str]) -> dict[str, Any]:
    """Whole numbers as integers."""
    return {name: int(value) if value.isdecimal() else value for name, value in options.items()}


def _wait_for(job: Any) -> str:
    """Wait for a job of submitit; returns why it failed."""
    error = job.exception()
    return "" if error is None else f"job {job.job_id} failed: {error}; its output is in {job.paths.stderr}"


def slurm_script(folder: SweepFolder, workers: int, options: Sequence[str]) -> str:
    """A job-array script of workers for sbatch. `options`: further lines for #SBATCH, such as `--partition=cpu`."""
    command = worker_command(folder.out, "W")[:-1]
    lines = ["--job-name=guss", f"--array=0-{workers - 1}", "--cpus-per-task=1"]
    lines += [f"--output={folder.out.absolute() / 'sweep' / 'logs'}/slurm-%A-%a.log", "--signal=B:TERM@60", *options]
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#SBATCH {line}" for line in lines),
            f"cd {shlex.quote(os.getcwd())}",
            f"exec {shlex.join(command)} slurm-$SLURM_ARRAY_JOB_ID-$SLURM_ARRAY_TASK_ID",
            "",
        ]
    )
