"""Faults for sweeps: workers that are killed or stopped, full disks, damaged files, environments that crash.

`Injector` executes a study with at least two workers, and injects faults until it is finished. `check_records` compares
its records with those of a study that was not disturbed.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path

from guss.runs.checkpoints import checkpoints
from guss.runs.claim import owner_of
from guss.runs.store import read_lines
from guss.sweeps.executors import ONE_THREAD, worker_command
from guss.sweeps.folder import SweepFolder
from guss.sweeps.study import make_study

EXPIRY = 2.0
ENVIRONMENTS = """
    import os
    import sys
    import time

    import gymnasium
    import numpy as np

    from guss.envs import ENVS, EnvSpec
    from guss.envs.pendulum import pendulum_task

    FAULTS = os.environ.get("FAULTS", "none")
    ENVS.add("brief-pendulum", EnvSpec("none", lambda: pendulum_task().replace(episode_length=25)),
             summary="for tests", origin="faulty")


    def is_due(kind):
        try:
            os.unlink(os.path.join(FAULTS, kind))
        except FileNotFoundError:
            return False
        return True


    class Plant(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-10.0, 10.0, (2,), np.float32)
        action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.x, self.steps = self.np_random.uniform(-1.0, 1.0, 2), 0
            return self.x.astype(np.float32), {}

        def step(self, action):
            self.steps += 1
            if self.steps == 10:
                if is_due("crash"):
                    os._exit(7)
                if is_due("exit"):
                    sys.exit("enough")
                if is_due("raise"):
                    raise RuntimeError("the plant is broken")
                if is_due("hang"):
                    time.sleep(3600.0)
            self.x = np.clip(0.9 * self.x + 0.1 * action, -10.0, 10.0)
            cost = float(abs(self.x[0]) > 0.8)
            return self.x.astype(np.float32), -float(self.x @ self.x), False, False, {"cost": cost}


    def make_env():
        return gymnasium.wrappers.TimeLimit(Plant(), 20)
"""
KINDS = (
    "kill",
    "terminate",
    "stop",
    "full disk",
    "read-only",
    "checkpoint",
    "clock",
    "race",
    "crash",
    "exit",
    "raise",
    "hang",
)
IN_ENVIRONMENT = ("crash", "exit", "raise", "hang")
RECORDED = ("exit", "raise", "hang")
"""Faults that end an episode; its record says so."""


def tables(folder, episodes):
    """The study: two methods on a compiled task, and random actions on an environment that may crash."""
    path = folder / "faulty.py"
    path.write_text(textwrap.dedent(ENVIRONMENTS))
    return {
        "env": ["brief-pendulum", f"{path}:make_env"],
        "method": ["random", "rs"],
        "seeds": 2,
        "episodes": episodes,
        "horizon": 3,
        "budget": 10,
        "model": "oracle",
        "envs": {
            "brief-pendulum": {"initial_episodes": 0},
            f"{path}:make_env": {
                "step_timeout": 1.0,
                "methods": {"rs": {"model": "dmdn", "episodes": 4, "fit": {"epochs": 2}}},
            },
        },
        "sweep": {"attempts": 10_000, "backoff": 0.1, "expiry": EXPIRY, "plugin": [str(path)]},
    }


def new_folder(out, study):
    folder = SweepFolder(out, make_study(study))
    folder.store({"command": "faults"})
    return folder


class Injector:
    """Keeps workers alive and disturbs them."""

    def __init__(self, folder, seed, kinds, workers=2):
        self.folder, self.draw, self.workers = folder, random.Random(seed), workers
        self.markers = folder.out.parent / "markers"
        self.markers.mkdir(exist_ok=True)
        self.left = list(kinds)
        self.counts = Counter()
        self.processes, self.later, self.damaged = [], [], {}
        self.lost = set()  # processes that a fault ended

    # ------------------------------------------------------------------------------------------------------ the study

    def run(self, limit=1800.0):
        """Execute the study; inject the faults one after another, each after some progress."""
        until = time.monotonic() + limit
        try:
            while not all(each.over for each in self.folder.statuses()):
                assert time.monotonic() < until, f"not finished in time: {self.folder.statuses()}"
                self._keep_alive()
                if self.left and self._has_progressed():
                    self._inject()
                time.sleep(0.02)
            self._restore(everything=True)
            for process in self.processes:  # they find nothing left to do
                process.wait(timeout=180.0)
            self._note_lost()
        finally:
            self._restore(everything=True)
            for process in self.processes:
                process.kill()
                process.wait()

    def _keep_alive(self):
        self._restore()
        self._note_lost()
        self.processes = [process for process in self.processes if process.poll() is None]
        while len(self.processes) < self.workers:
            self._start()

    def _note_lost(self):
        self.lost |= {process.pid for process in self.processes if process.poll()}

    def _start(self):
        name = f"worker-{self.counts['started']}"
        self.counts["started"] += 1
        command = worker_command(self.folder.out, name)
        if os.geteuid() == 0:  # without root's right to write where it may not
            drop = "-dac_override,-dac_read_search"
            command = ["setpriv", f"--bounding-set={drop}", f"--inh-caps={drop}", *command]
        environment = os.environ | ONE_THREAD | {"FAULTS": str(self.markers)}
        with self.folder.log(name).open("ab") as log:
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))

    def _episodes(self):
        return sum(each.done for each in self.folder.statuses())

    def _has_progressed(self):
        """Whether an episode was finished since the last fault, and a moment has passed."""
        done, now = self._episodes(), time.monotonic()
        if not hasattr(self, "since"):
            self.since = done, now
        before, _ = self.since
        if done > before and not hasattr(self, "moment"):
            self.moment = now + self.draw.uniform(0.0, 0.2)
        if done > before and now >= self.moment:
            del self.moment
            self.since = done, now
            return True
        return False

    def _inject(self):
        kind = self.left[-1]
        if getattr(self, "_" + kind.replace(" ", "_").replace("-", "_"))():
            self.left.pop()
            self.counts[kind] += 1
        else:  # there is nothing that it could hit at the moment
            self.draw.shuffle(self.left)

    def _restore(self, everything=False):
        """Undo what lasts for a while only."""
        now = time.monotonic()
        due = [undo for at, undo in self.later if everything or at <= now]
        self.later = [(at, undo) for at, undo in self.later if not everything and at > now]
        for undo in due:
            undo()

    def _after(self, seconds, undo):
        self.later.append((time.monotonic() + seconds, undo))

    # ------------------------------------------------------------------------------------------------------- the faults

    def _running(self):
        """Runs that a worker executes, and their workers."""
        found = []
        for each in self.folder.statuses():
            process = each.owner and next((p for p in self.processes if p.pid == each.owner.pid), None)
            if process is not None and process.poll() is None:
                found.append((each, process))
        return found

    def _signal(self, number):
        running = self._running()
        if not running:
            return None
        _, process = self.draw.choice(running)
        process.send_signal(number)
        return process

    def _kill(self):
        return self._signal(signal.SIGKILL) is not None

    def _terminate(self):
        return self._signal(signal.SIGTERM) is not None

    def _stop(self):
        """The worker is stopped until another one took its run over, then goes on."""
        process = self._signal(signal.SIGSTOP)
        if process is None:
            return False
        self.processes.remove(process)  # another one is started meanwhile

        def go_on():
            self.processes.append(process)
            process.send_signal(signal.SIGCONT)

        self._after(2.0 * EXPIRY, go_on)
        return True

    def _full_disk(self):
        file = self.folder.out / "filler"
        with contextlib.suppress(OSError), file.open("wb") as filler:
            while True:
                filler.write(bytes(1 << 16))
                filler.flush()
        self._after(0.7, lambda: file.unlink(missing_ok=True))
        return True

    def _read_only(self):
        running = self._running()
        if not running:
            return False
        home = self.draw.choice(running)[0].home
        places = [path for path in (home, home / "traces", home / "checkpoints") if path.is_dir()]
        for path in places:
            path.chmod(0o555)
        self._after(0.7, lambda: [path.chmod(0o755) for path in places])
        return True

    def _checkpoint(self):
        """The newest checkpoint is damaged while its worker is killed."""
        for each, process in self._running():
            if each.done >= 3:
                process.kill()
                process.wait()
                newest, before = checkpoints(each.home)[:2]
                if self.damaged.get(before) == before.read_bytes():
                    return False
                content = newest.read_bytes()
                at = self.draw.randrange(len(content))
                how = self.draw.choice(
                    [content[:at], content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :], b""]
                )
                newest.write_bytes(how)
                self.damaged[newest] = how
                return True
        return False

    def _clock(self):
        """All files look as if they were written at another time, as after a jump of the clock."""
        when = time.time() + self.draw.choice([-1e8, -3600.0, 3600.0, 1e8])
        for path in self.folder.out.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                os.utime(path, (when, when))
        return True

    def _race(self):
        """Two more workers start at the moment at which a run becomes free."""
        if len(self.processes) > self.workers:
            return False
        for _ in range(2):
            self._start()
        return self._kill()

    def _crash(self):
        return self._mark("crash")

    def _exit(self):
        return self._mark("exit")

    def _raise(self):
        return self._mark("raise")

    def _hang(self):
        return self._mark("hang")

    def _mark(self, kind):
        if any(self.markers.iterdir()) or not any(each.home.name.startswith("faulty") for each, _ in self._running()):
            return False
        (self.markers / kind).touch()
        until = time.monotonic() + 5.0
        while (self.markers / kind).exists() and time.monotonic() < until:
            time.sleep(0.01)
        return not self._withdraw(kind)

    def _withdraw(self, kind):
        """Take a fault back that hit nothing; whether there was one."""
        with contextlib.suppress(FileNotFoundError):
            (self.markers / kind).unlink()
            return True
        return False


def check_records(folder, whole, faults, lost):
    """Compare a disturbed study with an undisturbed one; returns the number of episodes and of failed ones."""
    episodes = failed = 0
    for each in folder.statuses():
        assert each.state == "finished", each
        mine, theirs = (read_lines(out / each.home.name / "episodes.jsonl") for out in (folder.out, whole.out))
        places = [(row["seed"], row["episode"]) for row in mine]
        assert places == [(row["seed"], row["episode"]) for row in theirs], "lost, repeated or out of order"
        assert not list(each.home.rglob("*.partial")), "partial files"
        owner = owner_of(each.home)  # now: `each` is the state at which the run was first found finished
        assert owner is None or owner.pid in lost, "a worker that ended by itself released its claim"
        episodes += len(mine)
        if not each.home.name.startswith("faulty"):
            assert (folder.out / each.home.name / "episodes.jsonl").read_bytes() == (
                whole.out / each.home.name / "episodes.jsonl"
            ).read_bytes()
            continue
        for a, b in zip(mine, theirs, strict=True):
            failed += a["status"] != "ok"
            if a["status"] == "ok" and each.planned.config.method == "random":
                assert {**a, "total_steps": 0} == {**b, "total_steps": 0}
    assert failed <= sum(faults[kind] for kind in RECORDED) * 2
    return episodes, failed


@contextlib.contextmanager
def small_disk(place, megabytes=200):
    """A disk of limited size at this folder, if this user may mount one; yields whether it is."""
    place.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", place], capture_output=True)
    try:
        yield mounted.returncode == 0
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "-l", place], check=True)


def disturbed(tmp_path, whole, seed, kinds, study):
    """One disturbed study; returns counts of faults, and of episodes."""
    with small_disk(tmp_path / "disk") as is_small:
        possible = [kind for kind in kinds if is_small or kind != "full disk"]
        folder = new_folder(tmp_path / "disk" / "out", study)
        injector = Injector(folder, seed, possible)
        injector.run()
        faults = Counter({kind: injector.counts[kind] for kind in kinds})
        return faults, check_records(folder, whole, faults, injector.lost), injector.left


def undisturbed(out, study):
    """The same study without faults, by one worker process."""
    folder = new_folder(out, study)
    subprocess.run(worker_command(folder.out, "whole"), check=True, env=os.environ | ONE_THREAD)
    return folder


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True)
    study = tables(place, episodes=int(sys.argv[2]))
    from guss.plugins import load_plugins

    load_plugins(study["sweep"]["plugin"])
    whole = undisturbed(place / "whole", study)
    started = time.monotonic()
    found = disturbed(place, whole, 0, list(KINDS) * int(sys.argv[3]), study)
    print(json.dumps(found), time.monotonic() - started)
