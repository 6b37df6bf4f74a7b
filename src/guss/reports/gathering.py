"""Which runs there are under a folder, and what is wrong with them: reports are made of what can be read.

The runs to compare are those that lie in the folder itself or in its subfolder `runs`; those of other subfolders are
groups of their own, named by where they lie.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from guss.errors import GussError
from guss.reports.paper import paper_methods
from guss.reports.style import label_of, label_of_env
from guss.runs.records import SCHEMA, by_seed, read_lines

MAIN = ("", "runs")


@dataclass(frozen=True)
class Record:
    """A stored run as reports see it."""

    home: Path
    group: str
    config: dict[str, Any]
    origin: dict[str, Any]
    """Command, commit, versions, machine."""
    episodes: list[dict[str, Any]]
    timings: list[dict[str, Any]]

    @property
    def env(self) -> str:
        """The environment's name."""
        return str(self.config["env"])

    @property
    def method(self) -> str:
        """The method's name."""
        return str(self.config["method"])

    @property
    def name(self) -> str:
        """The run's own name: that of its folder."""
        return self.home.name

    @property
    def seeds(self) -> list[int]:
        """Those with episodes."""
        return sorted({row["seed"] for row in self.episodes})

    @cached_property
    def done(self) -> int:
        """Episodes that every seed has."""
        return int(min(Counter(row["seed"] for row in self.episodes).values(), default=0))

    @property
    def asked(self) -> int:
        """Episodes that were asked for."""
        return int(self.config["episodes"])

    def values(self, name: str) -> np.ndarray:
        """A field of all episodes that every seed has, [S, N]."""
        return by_seed(self.episodes, name)


@dataclass
class Gathered:
    """What was found."""

    folder: Path
    records: list[Record] = field(default_factory=list)
    """To be compared: one for each environment and method."""
    groups: dict[str, list[Record]] = field(default_factory=dict)
    """The others, by where they lie."""
    toys: list[Path] = field(default_factory=list)
    """Experiments in the toy world."""
    notes: list[str] = field(default_factory=list)
    """What is missing, partial or mixed."""

    @property
    def envs(self) -> list[str]:
        """Environments with runs to compare, in the paper's order."""
        return list(dict.fromkeys(record.env for record in self.records))

    def brief(self, error: Exception) -> str:
        """A message without the folder that is reported on."""
        return str(error).replace(f"{self.folder}/", "")

    def of_env(self, env: str) -> list[Record]:
        """The runs to compare of an environment."""
        return [record for record in self.records if record.env == env]


def read_record(home: Path, group: str = "") -> Record:
    """A stored run. What cannot be read, or has no episode, is a GussError that says why."""
    path = home / "config.json"
    try:
        told = json.loads(path.read_text())
    except OSError as error:
        raise GussError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise GussError(f"{path} is not JSON: {error}") from error
    if not isinstance(told, dict) or not {"env", "method", "episodes", "seeds"} <= set(told.get("config", {})):
        raise GussError(f"{path} is not of a run: it names no env, method, seeds and episodes")
    if told.get("schema", 0) > SCHEMA:
        raise GussError(f"{path} is of a newer guss (schema {told['schema']}, this one reads {SCHEMA}): update guss")
    episodes = read_lines(home / "episodes.jsonl")
    wanted = {"seed", "episode", "steps", "return", "mean_reward", "unsafe_pct", "status"}
    if lacking := next((wanted - set(row) for row in episodes if not wanted <= set(row)), None):
        raise GussError(f"{home / 'episodes.jsonl'} has a line without {sorted(lacking)[0]!r}")
    if not episodes:
        raise GussError(f"{home} has no finished episode yet")
    has_timings = any(home.glob("timings.jsonl*"))
    timings = read_lines(home / "timings.jsonl") if has_timings else []
    return Record(home, group, told["config"], told.get("provenance", {}), episodes, timings)


def gather(folder: Path) -> Gathered:
    """All runs under a folder; what cannot be used is told in the notes."""
    if not folder.is_dir():
        raise GussError(f"there is no folder {folder}; `guss run` and `guss reproduce` write to runs/ unless told else")
    found, records = Gathered(folder), list[Record]()
    for path in sorted(folder.rglob("config.json")):
        home, where = path.parent, path.parent.relative_to(folder)
        if (home / "records").is_dir():
            found.toys.append(home)
            continue
        group = where.parent.as_posix().removeprefix(".")
        try:
            records.append(read_record(home, "" if group in MAIN else group))
        except GussError as error:
            found.notes.append(f"{found.brief(error)}; it is left out.")
    records.sort(key=_order)
    for record in records:
        if record.group:
            found.groups.setdefault(record.group, []).append(record)
    found.records = _one_of_each([record for record in records if not record.group], found.notes)
    for record in found.records:
        found.notes += _partial(record)
    for env in found.envs:
        found.notes += _gaps(env, found.of_env(env))
    return found


def _order(record: Record) -> tuple[Any, ...]:
    """The paper's environments and methods first, in its order."""
    from guss.envs import ENVS

    envs, methods = ENVS.names(), paper_methods()
    place = lambda name, names: names.index(name) if name in names else len(names)  # noqa: E731
    return place(record.env, envs), record.env, place(record.method, methods), record.method, record.name


def _one_of_each(records: list[Record], notes: list[str]) -> list[Record]:
    """Of several runs of a method on an environment, the one with most steps; of equal ones, the last made."""
    best: dict[tuple[str, str], Record] = {}
    weight = lambda r: (len(r.seeds) * r.done, r.origin.get("date", ""), r.name)  # noqa: E731
    for record in records:
        key = record.env, record.method
        rival = best.setdefault(key, record)
        if rival is record:
            continue
        best[key] = max(rival, record, key=weight)
        other = min(rival, record, key=weight)
        notes.append(
            f"{label_of_env(record.env)}, {label_of(record.method)}: several runs; {best[key].name} is shown (most "
            f"episodes, or made last), {other.name} is not."
        )
    return list(best.values())


def _partial(record: Record) -> list[str]:
    """What a run has less of than was asked for."""
    who, notes = f"{label_of_env(record.env)}, {label_of(record.method)}", []
    counts = Counter(row["seed"] for row in record.episodes)
    if record.done < record.asked and record.config.get("target") is None:
        notes.append(f"{who}: {record.done} of {record.asked} episodes were run.")
    if len(set(counts.values())) > 1:
        most = max(counts.values())
        short = ", ".join(f"seed {seed} has {n}" for seed, n in sorted(counts.items()) if n < most)
        notes.append(f"{who}: {short} of {most} episodes; those that all seeds have are used.")
    if lost := sorted(set(record.config["seeds"]) - set(counts)):
        notes.append(f"{who}: no episode of seed {', '.join(map(str, lost))}.")
    if failed := sum(row["status"] != "ok" for row in record.episodes):
        notes.append(f"{who}: in {failed} episodes the environment failed; their steps until then count.")
    if not record.timings:
        notes.append(f"{who}: no timings.jsonl, so its planning time and model error are not known.")
    return notes


def _gaps(env: str, records: list[Record]) -> list[str]:
    """What the runs of an environment do not have in common, and which of the paper's methods have none."""
    notes, label = [], label_of_env(env)
    if absent := [label_of(method) for method in paper_methods(env) if method not in {r.method for r in records}]:
        notes.append(f"{label}: no run of {', '.join(absent)}, which the paper's table has.")
    if not any(record.method == "random" for record in records):
        notes.append(f"{label}: no run of random actions, so there is no line of theirs.")
    sets = Counter(tuple(record.seeds) for record in records)
    if len(sets) > 1:
        told = "; ".join(
            f"{', '.join(label_of(r.method) for r in records if tuple(r.seeds) == seeds)}: {_seeds(seeds)}"
            for seeds in sets
        )
        notes.append(f"{label}: not the same seeds for all ({told}).")
    if single := [label_of(r.method) for r in records if len(r.seeds) == 1]:
        notes.append(f"{label}: one seed only of {', '.join(single)}, so there is no interval.")
    versions = Counter(str(r.origin.get("versions", {}).get("guss", "?")) for r in records)
    if len(versions) > 1:
        notes.append(f"{label}: runs of several versions of guss ({', '.join(sorted(versions))}).")
    machines: dict[str, list[str]] = {}
    for r in records:
        if any(row.get("phase") == "plan" for row in r.episodes):
            machines.setdefault(str(r.origin.get("machine", {}).get("cpu", "?")), []).append(label_of(r.method))
    if len(machines) > 1:
        told = "; ".join(f"{', '.join(methods)}: {cpu}" for cpu, methods in machines.items())
        notes.append(f"{label}: planning times are of several machines ({told}).")
    if dirty := [label_of(r.method) for r in records if not _committed(r)]:
        notes.append(f"{label}: {', '.join(dirty)} came from sources that were not committed.")
    return notes


def _committed(record: Record) -> bool:
    commit = record.origin.get("commit")
    return bool(commit) and not str(commit).endswith("-dirty")


def _seeds(seeds: tuple[int, ...]) -> str:
    """`seeds 0–5`, or each by its number."""
    whole = len(seeds) > 1 and seeds == tuple(range(seeds[0], seeds[-1] + 1))
    return f"seeds {seeds[0]}–{seeds[-1]}" if whole else f"seed {', '.join(map(str, seeds))}"
