"""What `tests/fuzz.py` tries: each fuzzer makes an input from a random generator and gives it to guss.

Documented outcomes are acceptance, `GussError`, and `SystemExit` from flags; whatever else is raised is a defect.
"""

import contextlib
import csv
import dataclasses
import hashlib
import io
import json
import random
import shutil
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
from helpers.short_runs import run_one
from helpers.stored import store
from mutations import array, broken, changed, misspelled, toml, weird

from guss import Agent, agent_file, checkpoint
from guss.cli.fit import FitCommand
from guss.cli.main import parse
from guss.cli.plan import PlanCommand
from guss.cli.run import RunCommand
from guss.collect.datasets import Dataset, logged, read_traces, write_trace
from guss.collect.inputs import InputChecker, costs_in_order
from guss.collect.tables import write_columns
from guss.envs.lookup import find_env
from guss.errors import GussError
from guss.methods import method_names
from guss.methods.factory import make_method
from guss.methods.presets import settings_from
from guss.methods.settings import AgentSettings
from guss.models.factory import make_model
from guss.planners import PLANNERS, make_planner
from guss.plugins import load_preset, shipped
from guss.reports.inventory import by_env
from guss.reports.report import everything, make_report, read_all_maps, to_markdown
from guss.runs.checkpoints import newest_checkpoint
from guss.runs.config import RunConfig, config_from, spec_of_run
from guss.runs.evaluation import Evaluation  # noqa: F401  (imports what `guss eval` does)
from guss.runs.final_model import _history, learned_state
from guss.runs.fit import log_of_files, task_of
from guss.runs.integrity import kept_records
from guss.runs.results import read_config
from guss.runs.store import write_packed
from guss.runs.trainer import Trainer
from guss.validation import check_seed

ROOT = Path(__file__).resolve().parents[1]
SMALL = {"model_settings": {"hidden": [4]}, "fit": {"max_steps": 5, "batch": 8}, "horizon": 3, "budget": 30}


class Fuzzer:
    """Makes inputs and tries them. `share`: of all inputs; the quick ones have larger shares."""

    share = 1.0

    def __init__(self, folder: Path) -> None:
        """`folder`: for files, on a quick disk."""
        self.folder = folder
        self.begin()

    def begin(self) -> None:
        """What is made once."""

    def make(self, rng: random.Random) -> Any:
        """An input."""
        raise NotImplementedError

    def run(self, given: Any, rng: random.Random) -> None:
        """Give it to guss."""
        raise NotImplementedError


def use_config(config: RunConfig, rng: random.Random) -> None:
    """What a run does with its settings before anything is compiled; the slower part not always."""
    config.folder_in(Path("out"))
    if rng.random() < 0.6:
        return
    task, planning_task = config.tasks(spec_of_run(config).make_task())
    make_method(config, planning_task, config.episodes * task.episode_length)
    if config.learns and rng.random() < 0.05:
        jax.eval_shape(
            lambda key: make_model(config.model, planning_task, key, config.model_settings), jax.random.key(0)
        )


class Presets(Fuzzer):
    """TOML files for `guss run --preset`, and tables for `Agent(preset=…)`."""

    share = 15.0

    def begin(self) -> None:
        paths = [path for path in sorted(shipped("experiments")[-1].glob("*.toml")) if path.stem != "toy"]
        names = [path.stem for path in paths if "car" not in path.stem]
        self.presets = [load_preset(name) for name in names for _ in range(4 if "pendulum" in name else 1)]
        self.texts = [path.read_bytes() for path in paths]
        self.methods = method_names()

    def make(self, rng: random.Random) -> Any:
        if rng.random() < 0.15:
            return broken(rng, rng.choice(self.texts)), rng.choice(self.methods)
        preset = changed(rng, rng.choice(self.presets))
        if rng.random() < 0.1 and isinstance(preset, dict):
            preset["extends"] = rng.choice(["safe-pendulum", weird(rng)])
        return preset if rng.random() < 0.2 else toml(preset).encode("utf-8", "surrogatepass"), rng.choice(self.methods)

    def run(self, given: Any, rng: random.Random) -> None:
        preset, method = given
        if isinstance(preset, bytes):
            path = self.folder / "preset.toml"
            path.write_bytes(preset)
            preset = load_preset(str(path))
        elif method in PLANNERS.names():
            settings_from(AgentSettings, preset, method)
        env = preset.get("env", "safe-pendulum") if isinstance(preset, dict) else "safe-pendulum"
        use_config(config_from(preset, method, env, (0, 1)), rng)


class Configs(Fuzzer):
    """config.json of stored runs."""

    share = 15.0

    def begin(self) -> None:
        homes = sorted(path for path in (ROOT / "results").rglob("config.json") if "toy" not in path.parts)
        found = [json.loads(path.read_text()) for path in homes]
        self.stored = [each for each in found if each["config"].get("env") == "safe-pendulum"]

    def make(self, rng: random.Random) -> bytes:
        stored = rng.choice(self.stored)
        if rng.random() < 0.8:
            return json.dumps(stored | {"config": changed(rng, stored["config"])}).encode()
        return (
            json.dumps(changed(rng, stored)).encode()
            if rng.random() < 0.7
            else broken(rng, json.dumps(stored).encode())
        )

    def run(self, given: bytes, rng: random.Random) -> None:
        (self.folder / "config.json").write_bytes(given)
        use_config(read_config(self.folder), rng)


class Flags(Fuzzer):
    """Words on the command line."""

    share = 12.0
    LINES = (
        "run --env safe-pendulum --method guss --seeds 3 --seed 4 --episodes 5 --target -2.0 --horizon 5 --budget 50 "
        "--method.num-new 5 --method.num-initial 10 --model.hidden 10 10 --model.ensemble 2 --fit.loss nll "
        "--planning-margin 0",
        "run --env safe-acrobot --method ppo --episodes 32 --method.num-envs 16 --method.gamma 0.9 --method.hidden 8",
        "run --preset safe-pendulum-quick --explore iid --initial-episodes 2 --model dmdn --learned cost",
        "run --method cem --method.iterations 2 --method.num-elites 5 --hard unsafe_angle --unknown-unsafe "
        "--model darmdn --risk cvar:0.4",
        "run --env CartPole-v1 --episode-length 50 --without-cost --method rs --horizon 4 --budget 20",
        "fit --data log.npz --env safe-pendulum --model.hidden 4 --fit.batch 5 --horizon 4 --seed 1",
        "plan --env safe-toy --method guss --horizon 8 --budget 60 --seed 3 --obs 1.0 2.0 --method.num-new 3",
        "eval some/run --episodes 3 --json",
        "replay some/run --episode 1 --seed 0 --step 2 --every 3 --fps 5 --out x.gif",
        "check-env safe-pendulum --steps 100 --seed 1 --step-timeout 5",
        "export some/run --out x.csv",
        "report results --out report",
        "reproduce table1 --preset quick --seeds 2 --episodes 3",
        "list --settings",
    )  # fmt: skip
    VALUES = (
        "-1", "0", "2", "4294967296", "2147483648", "99999999999999999999", "nan", "inf", "-inf", "1e400", "1e308",
        "true", "", " ", "None", "[]", "[1", "{", "a=b", "num_new=true", "hidden=[0]", "hidden=[1e9]", "batch=[]",
        "hidden=" + "[" * 300, "num_new=99999999999999", "loss=[1]", "=", "x=", "--", "--json", "-h", "é",
        "num_new=NaN", "sample_std=Infinity", "ensemble=1000000", "penalty=1e999", "gamma=2", "../..", "a" * 500,
    )  # fmt: skip

    def make(self, rng: random.Random) -> list[str]:
        words = rng.choice(self.LINES).split()
        for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
            at, kind = rng.randrange(1, len(words) + 1), rng.randrange(8)
            if kind < 4 and at < len(words):
                words[at] = rng.choice(self.VALUES)
            elif kind == 4 and at < len(words):
                name, equals, value = words[at].partition("=")
                words[at] = misspelled(rng, name) + equals + value
            elif kind == 5 and at < len(words):
                words[at] = words[at].partition("=")[0] + "=" + rng.choice([*self.VALUES, json.dumps(weird(rng))])
            elif kind == 6:
                words.insert(at, rng.choice([*self.VALUES, *words]))
            else:
                del words[at:]
        return words

    def run(self, given: list[str], rng: random.Random) -> None:
        command = parse(given)
        if isinstance(command, RunCommand) and command.resume is None:
            use_config(command._config(command.settings.method, None), rng)
        elif isinstance(command, FitCommand):
            check_seed(command.seed)
            settings_from(AgentSettings, {}, "guss", **command.chosen)
        elif isinstance(command, PlanCommand):
            check_seed(command.seed)
            settings = command.settings
            how = {
                "horizon": settings.horizon,
                "budget": settings.budget,
                **dataclasses.asdict(settings.method_settings),
            }
            make_planner(settings.method, find_env(command.env).make_task(), **how)


# --------------------------------------------------------------------------------------------------------- checkpoints


def resealed(content: bytes, header: Any, arrays: dict[str, np.ndarray] | None) -> bytes:
    """A checkpoint with another header or other arrays, and the checksum that belongs to them."""
    payload = content.partition(b"\n")[2]
    if arrays is not None:
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        payload = buffer.getvalue()
    if isinstance(header, dict):
        header["bytes"] = len(payload)
        header["sha256"] = checkpoint._digest(header, payload)
    return json.dumps(header).encode() + b"\n" + payload


def other_checkpoint(rng: random.Random, content: bytes) -> bytes:
    """A checkpoint with something wrong: mostly behind a valid checksum."""
    first, _, payload = content.partition(b"\n")
    kind, header = rng.randrange(10), json.loads(first)
    if kind < 2:
        return broken(rng, content)
    if kind < 7:
        return resealed(content, header | {"meta": changed(rng, header["meta"])}, None)
    if kind == 7:
        return resealed(content, changed(rng, header), None)
    with np.load(io.BytesIO(payload)) as file:
        arrays = dict(file)
    name = rng.choice(sorted(arrays))
    if kind == 8:
        arrays[name] = array(rng, arrays[name])
    elif rng.random() < 0.5:
        arrays[misspelled(rng, name)] = arrays.pop(name)
    else:
        payload = broken(rng, payload)
        return resealed(first + b"\n" + payload, header, None)
    return resealed(content, header, arrays)


def other_lines(rng: random.Random, content: bytes) -> bytes:
    """JSON lines with something wrong."""
    rows = changed(rng, [json.loads(line) for line in content.splitlines()])
    return "".join(json.dumps(row) + "\n" for row in (rows if isinstance(rows, list) else [rows])).encode()


class Agents(Fuzzer):
    """Files of `Agent.load`."""

    share = 12.0

    def begin(self) -> None:
        self.agent = Agent("safe-pendulum", method="guss", model="dmdn", preset={}, initial_episodes=2, **SMALL)
        self.agent.learn(1)
        self.agent.set_constraint("unsafe_angle", high=0.9)
        self.path = self.folder / "agent.ckpt"
        self.agent.save(self.path)
        self.content = self.path.read_bytes()
        Agent.load(self.path, "safe-pendulum")

    def make(self, rng: random.Random) -> bytes:
        return other_checkpoint(rng, self.content)

    def run(self, given: bytes, rng: random.Random) -> None:
        self.path.write_bytes(given)
        if rng.random() < 0.005:  # this compiles
            Agent.load(self.path, "safe-pendulum")
        stored = agent_file.load_agent(self.path)
        check_seed(stored.meta["seed"])
        for name, parameters in stored.meta.get("constraints", {}).items():
            self.agent.set_constraint(name, **parameters)
        agent_file.stored_state(stored, self.agent)


class Checkpoints(Fuzzer):
    """Run folders, as `guss run --resume`, `guss eval`, `guss replay` and `Agent.from_run` read them."""

    share = 8.0

    def begin(self) -> None:
        how: Any = {"model_settings": {"hidden": [4]}, "fit": {"max_steps": 5, "batch": 8}, "horizon": 3, "budget": 30}
        config = config_from({"initial_episodes": 2}, "guss", "safe-pendulum", (0, 1), episodes=2, model="dmdn", **how)
        self.home = run_one(config, self.folder, {"command": "fuzz"})
        self.trainer = Trainer(config)
        self.agent = Agent("safe-pendulum", preset={}, **config.arguments())
        names = ("config.json", "episodes.jsonl", "timings.jsonl", "final.ckpt", "checkpoints/ep000002.ckpt")
        self.files = {name: (self.home / name).read_bytes() for name in names}

    def make(self, rng: random.Random) -> tuple[str, bytes]:
        name = rng.choice([*self.files, "checkpoints/ep000002.ckpt", "checkpoints/ep000002.ckpt", "final.ckpt"])
        content = self.files[name]
        if name.endswith(".ckpt"):
            return name, other_checkpoint(rng, content)
        if rng.random() < 0.3:
            return name, broken(rng, content)
        if name == "config.json":
            return name, json.dumps(changed(rng, json.loads(content))).encode()
        return name, other_lines(rng, content)

    def run(self, given: tuple[str, bytes], rng: random.Random) -> None:
        name, content = given
        try:
            (self.home / name).write_bytes(content)
            config = read_config(self.home)
            stored = newest_checkpoint(self.home)
            if config.to_json() != self.trainer.config.to_json() or stored is None:
                return
            self.trainer.restore(stored)
            kept_records(self.home, self.trainer, stored.meta)
            learned, _ = learned_state(self.home, config)
            self.trainer.restore(learned)
            agent_file.report_from(learned.meta.get("report"), (len(config.seeds),))
            agent_file.stored_state(learned.row(0, len(config.seeds)), self.agent)
            _history(self.home, 0, learned.meta["done"])
        finally:
            (self.home / name).write_bytes(self.files[name])


# --------------------------------------------------------------------------------------------------------------- data


class Tables(Fuzzer):
    """Logged data. Subclasses say in which format."""

    suffix = ".npz"

    def begin(self) -> None:
        rng = np.random.default_rng(0)
        obs = rng.normal(size=(41, 3)).astype(np.float32)
        parts: dict[str, Any] = {
            "action": rng.uniform(-2, 2, (40, 1)).astype(np.float32),
            "reward": rng.normal(size=40),
        }
        cost = (rng.random((40, 1)) < 0.2) * 1.0
        rows = logged(obs[:-1], parts["action"], obs[1:], parts["reward"], cost, end=np.arange(40) % 10 == 9)
        write_trace(self.folder / f"whole{self.suffix}", Dataset(rows))
        self.content = (self.folder / f"whole{self.suffix}").read_bytes()
        self.arrays = {"obs": obs[:-1], "next_obs": obs[1:], **parts, "cost": cost,
                       "terminated": np.zeros(40, bool), "episode": np.arange(40) // 10}  # fmt: skip
        self.task = find_env("safe-pendulum").make_task()

    def make(self, rng: random.Random) -> bytes:
        if rng.random() < 0.4:
            return broken(rng, self.content)
        arrays: dict[str, Any] = dict(self.arrays)
        if self.suffix != ".npz":
            arrays = {f"{name}_{i}" if x.ndim > 1 else name: column for name, x in arrays.items()
                      for i, column in enumerate(x.reshape(len(x), -1).T)}  # fmt: skip
        for _ in range(rng.choice([1, 1, 2])):
            name = rng.choice(sorted(arrays))
            if rng.random() < 0.6:
                arrays[name] = array(rng, arrays[name])
            elif rng.random() < 0.6:
                arrays[misspelled(rng, name)] = arrays.pop(name)
            else:
                del arrays[name]
        return self.written(rng, arrays)

    def written(self, rng: random.Random, arrays: dict[str, Any]) -> bytes:
        """A file of these arrays."""
        return write_columns(".npz", arrays)

    def run(self, given: bytes, rng: random.Random) -> None:
        path = self.folder / f"log{self.suffix}"
        path.write_bytes(given)
        data = read_traces([path])
        task = task_of(data)
        settings = settings_from(AgentSettings, {}, "guss")
        log_of_files(data, task, settings, 0)
        InputChecker(self.task).rows(costs_in_order(self.task, data))


class Npz(Tables):
    """NPZ files."""

    share = 15.0


class Csv(Tables):
    """CSV files."""

    suffix, share = ".csv", 12.0

    def written(self, rng: random.Random, arrays: dict[str, Any]) -> bytes:
        text = io.StringIO(newline="")
        rows = csv.writer(text)
        rows.writerow(arrays)
        columns = [np.asarray(x).reshape(-1).tolist() for x in arrays.values()]
        for i in range(max(map(len, columns))):
            row: list[Any] = [column[i] for column in columns if i < len(column)]
            if row and rng.random() < 0.02:
                row[rng.randrange(len(row))] = weird(rng)
            rows.writerow(row)
        return text.getvalue().encode("utf-8", "surrogatepass")


class Parquet(Tables):
    """Parquet files, with the seal of guss or of other programs."""

    suffix, share = ".parquet", 8.0

    def begin(self) -> None:
        super().begin()
        import pyarrow.parquet

        self.pyarrow, self.foreign = pyarrow, []
        columns = {f"{name}_{i}" if x.ndim > 1 else name: column for name, x in self.arrays.items()
                   for i, column in enumerate(x.reshape(len(x), -1).T)}  # fmt: skip
        for how in ({}, {"compression": "gzip"}, {"use_dictionary": False}, {"data_page_version": "2.0"}):
            buffer = io.BytesIO()
            pyarrow.parquet.write_table(pyarrow.table(columns), buffer, **how)
            self.foreign.append(buffer.getvalue())

    def make(self, rng: random.Random) -> bytes:
        if rng.random() < 0.4:
            return super().make(rng)
        content = rng.choice(self.foreign)
        if rng.random() < 0.3:
            return broken(rng, content)
        footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
        about = broken(rng, content[footer:-8])  # what describes the columns
        return content[:footer] + about + len(about).to_bytes(4, "little") + b"PAR1"

    def written(self, rng: random.Random, arrays: dict[str, Any]) -> bytes:
        plain = {name: np.asarray(x).reshape(-1) for name, x in arrays.items()}
        buffer, size = io.BytesIO(), min(map(len, plain.values()))
        try:
            table = self.pyarrow.table({name: x[:size] for name, x in plain.items()})
            self.pyarrow.parquet.write_table(table, buffer)
        except (self.pyarrow.ArrowException, TypeError, ValueError):  # types that Parquet does not have
            return broken(rng, self.content)
        return buffer.getvalue()


# ------------------------------------------------------------------------------------------------------------ reports


class Reports(Fuzzer):
    """Stored runs as `guss report` reads them; a bad run may also be left out, with a note."""

    share = 3.0

    def begin(self) -> None:
        rewards = ((-6.0, -2.0, -1.0, -1.0), (-5.0, -3.0, -1.5, -1.2))
        self.base = self.folder / "base"
        for method in ("guss", "random"):
            store(self.base, method=method, rewards=rewards, unsafe=5.0, name=method)
        maps = {"schema": 1, "cells": [3, 3], "limits": [[0, 1], [0, 1]], "labels": ["x", "y"], "seeds": 2,
                "episodes": 4, "visited": [[0, 0, 5]], "unsafe": [[0, 0, 1]], "unsafe_zone": [[0, 1, 0, 1]],
                "covered": [0.5], "numbers": [1]}  # fmt: skip
        write_packed(self.base / "guss" / "maps.json.gz", maps)
        self.maps = maps
        self.files = {name: (self.base / "guss" / name).read_bytes()
                      for name in ("config.json", "episodes.jsonl", "timings.jsonl", "maps.json.gz")}  # fmt: skip
        self.report(self.base)

    def make(self, rng: random.Random) -> tuple[str, bytes]:
        name = rng.choice(sorted(self.files))
        content = self.files[name]
        if rng.random() < 0.25:
            return name, broken(rng, content)
        if name == "maps.json.gz":
            path = self.folder / "maps.json.gz"
            with contextlib.suppress(ValueError):  # NaN is not written
                write_packed(path, changed(rng, self.maps))
                return name, path.read_bytes()
            return name, broken(rng, content)
        if name == "config.json":
            return name, json.dumps(changed(rng, json.loads(content))).encode()
        return name, other_lines(rng, content)

    def run(self, given: tuple[str, bytes], rng: random.Random) -> None:
        name, content = given
        home = self.folder / "tried"
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(self.base, home)
        (home / "guss" / name).write_bytes(content)
        self.report(home)

    def report(self, home: Path) -> None:
        """All of a report but its figures."""
        report = make_report(home)
        to_markdown(report)
        json.dumps(everything(report))
        for records in by_env(report.found.records).values():
            read_all_maps(report.found, records, [])


FUZZERS: dict[str, type[Fuzzer]] = {
    "presets": Presets, "configs": Configs, "flags": Flags, "agents": Agents, "checkpoints": Checkpoints,
    "npz": Npz, "csv": Csv, "parquet": Parquet, "reports": Reports,
}  # fmt: skip


def attempt(name: str, fuzzer: Fuzzer, seed: int, index: int) -> tuple[str, Any, BaseException | None]:
    """One input: its outcome (accepted, refused or defect), the input, and what was raised."""
    rng = random.Random(hashlib.sha256(f"{seed} {name} {index}".encode()).hexdigest())
    given = fuzzer.make(rng)
    silent = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
            warnings.simplefilter("ignore")
            fuzzer.run(given, rng)
    except GussError as error:
        return "refused", given, error
    except SystemExit as end:
        return ("refused" if name == "flags" and end.code in (0, 2) else "defect"), given, end
    except Exception as error:
        return "defect", given, error
    return "accepted", given, None
