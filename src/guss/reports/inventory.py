"""Which runs there are under a folder, and what is wrong with them: reports are made of what can be read.

The runs to compare are those that lie in the folder itself or in its subfolder `runs`; those of other subfolders are
groups of their own, named by where they lie.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from guss.envs import ENVS
from guss.errors import GussError
from guss.reports.labels import in_numbers, name_envs, name_rows, same_settings, seeds_text
from guss.reports.paper import paper_methods
from guss.reports.style import distinct_styles, label_of, label_of_env
from guss.runs.description import Facts, MethodKind, StoredRun, bundled_env, bundled_method, measure_of, read_stored
from guss.runs.rows import read_episodes, read_timings
from guss.runs.store import by_seed
from guss.usercode import no_user_code

MAIN = ("", "runs")


@dataclass(frozen=True)
class Record:
    """A stored run, as reports use it."""

    home: Path
    group: str
    stored: StoredRun
    episodes: list[dict[str, Any]]
    timings: list[dict[str, Any]]
    measure: str = ""
    """What an episode's reward is called by: "mean_reward" or "return", a field of its line."""
    env_label: str = ""
    key: str = ""
    """Its identity among the rows of its environment: the method, and by what it differs from others of that method."""
    label: str = ""
    """The same for readers."""
    style: dict[str, Any] = field(default_factory=dict)
    """Its line in figures."""

    @property
    def env(self) -> str:
        """The environment's name."""
        return self.stored.env

    @property
    def config(self) -> dict[str, Any]:
        """Its settings."""
        return self.stored.config

    @property
    def origin(self) -> dict[str, Any]:
        """Command, commit, versions, machine."""
        return self.stored.origin

    @property
    def facts(self) -> Facts | None:
        """What the run stored of its environment and method; None: an earlier guss did not."""
        return self.stored.facts

    @property
    def machine(self) -> str:
        """The machine in a few words."""
        machine = self.origin.get("machine", {})
        return f"{machine.get('cpu', '?')}, {machine.get('cores', '?')} cores" if machine else "?"

    @property
    def method(self) -> str:
        """The method's name."""
        return str(self.config["method"])

    @property
    def kind(self) -> MethodKind | None:
        """What its method is; None if neither guss nor the run says so."""
        return bundled_method(self.method) or (None if self.facts is None else self.facts.method)

    @property
    def command(self) -> str | None:
        """What makes it again: the command that started it, then those that extended it; None: not stored."""
        first = self.origin.get("command")
        return None if first is None else " && ".join(map(str, (first, *self.origin.get("extended", ()))))

    @property
    def name(self) -> str:
        """The run's own name: that of its folder."""
        return self.home.name

    @property
    def where(self) -> str:
        """The same with the group that it lies in."""
        return f"{self.group}/{self.name}".lstrip("/")

    @property
    def who(self) -> str:
        """Environment and method, as notes begin."""
        return f"{self.env_label}, {self.label}"

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
    """To be compared: one for each environment, method and setting."""
    groups: dict[str, list[Record]] = field(default_factory=dict)
    """The others, by where they lie."""
    toys: list[Path] = field(default_factory=list)
    """Experiments in the toy world."""
    notes: list[str] = field(default_factory=list)
    """What is missing, partial or mixed."""
    left_out: list[str] = field(default_factory=list)
    """Those of the notes that are about runs which cannot be read."""

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
    stored = read_stored(home)
    episodes = read_episodes(home)
    if not episodes:
        raise GussError(f"{home} has no finished episode yet")
    if others := sorted({row["seed"] for row in episodes} - set(stored.config["seeds"])):
        raise GussError(f"{home / 'episodes.jsonl'} has seed {others[0]}, which its config.json does not name")
    timings = read_timings(home) if any(home.glob("timings.jsonl*")) else []
    return identified([Record(home, group, stored, episodes, timings)])[0]


def env_labels(records: list[Record]) -> dict[str, str]:
    """What the environments of all these runs are called."""
    known = {record.env: record.facts.env.label for record in records if record.facts is not None}
    return name_envs(
        {r.env: label_of_env(r.env) if r.env not in known or bundled_env(r.env) else known[r.env] for r in records}
    )


def identified(records: list[Record], labels: dict[str, str] | None = None) -> list[Record]:
    """Runs that are shown together, each with its key, label and style; those of an environment measured alike.

    They stay in their order, but for settings of one method: horizon 3 comes before horizon 10. `labels`: of
    environments, where others are shown beside these.
    """
    labels = labels or env_labels(records)
    found: list[Record] = []
    for env in dict.fromkeys(record.env for record in records):
        mine = [record for record in records if record.env == env]
        methods = list(dict.fromkeys(record.method for record in mine))
        measures = [measure_of(env, record.episodes, record.facts) for record in mine]
        measure = "return" if "return" in measures else "mean_reward"
        names = name_rows([record.config for record in mine], [record.name for record in mine])
        rows = sorted(
            zip(mine, names, strict=True), key=lambda row: (methods.index(row[0].method), in_numbers(row[1].label))
        )
        styles = distinct_styles([record.method for record, _ in rows], [name.label for _, name in rows])
        for (record, name), style in zip(rows, styles, strict=True):
            named = replace(record, measure=measure, env_label=labels[env], key=name.key, label=name.label)
            found.append(replace(named, style=style))
    return found


@no_user_code("a report")
def gather(folder: Path) -> Gathered:
    """All runs under a folder; the notes say what cannot be used."""
    if not folder.is_dir():
        raise GussError(f"there is no folder {folder}; `guss run` and `guss reproduce` write to runs/ by default")
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
            found.left_out.append(f"{found.brief(error)}; it is left out.")
    found.notes += found.left_out
    records.sort(key=_order)
    labels = env_labels(records)
    for name in dict.fromkeys(record.group for record in records if record.group):
        found.groups[name] = identified([record for record in records if record.group == name], labels)
    found.records = _one_of_each([record for record in records if not record.group], labels, found.notes)
    for record in found.records:
        found.notes += _partial(record)
    for env in found.envs:
        found.notes += _gaps(env, found.of_env(env))
    found.notes += _unknown([*found.records, *(record for group in found.groups.values() for record in group)])
    return found


def _order(record: Record) -> tuple[Any, ...]:
    """The paper's environments and methods first, in its order."""
    envs, methods = ENVS.names(), paper_methods()
    place = lambda name, names: names.index(name) if name in names else len(names)  # noqa: E731
    return place(record.env, envs), record.env, place(record.method, methods), record.method, record.name


def _one_of_each(records: list[Record], labels: dict[str, str], notes: list[str]) -> list[Record]:
    """One run of each setting: of several that differ in seeds and episodes alone, the one with most steps.

    Of equal ones, the last made.
    """
    best: dict[str, Record] = {}
    dropped: list[tuple[str, Record]] = []
    weight = lambda r: (len(r.seeds) * r.done, str(r.origin.get("date", "")), r.name)  # noqa: E731
    for record in records:
        key = same_settings(record.config | {"env": record.env})
        rival = best.setdefault(key, record)
        if rival is not record:
            best[key] = max(rival, record, key=weight)
            dropped.append((key, min(rival, record, key=weight)))
    shown = identified(list(best.values()), labels)
    for key, other in dropped:
        mine = next(record for record in shown if record.home == best[key].home)
        notes.append(
            f"{mine.who}: several runs with the same settings; {mine.name} is shown (most episodes, or made last), "
            f"{other.name} is not."
        )
    return shown


def _unknown(records: list[Record]) -> list[str]:
    """Methods of which nothing is stored."""
    text = dict.fromkeys(
        f"{record.who}: its run does not say what kind of method this is, so it stands “for comparison”; runs of this "
        f"version of guss do."
        for record in records
        if record.kind is None
    )
    return list(text)


def _partial(record: Record) -> list[str]:
    """What a run has less of than was asked for."""
    who, notes = record.who, []
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
    notes, label = [], records[0].env_label
    if absent := [label_of(method) for method in paper_methods(env) if method not in {r.method for r in records}]:
        notes.append(f"{label}: no run of {', '.join(absent)}, which the paper's table has.")
    if not any(record.method == "random" for record in records):
        notes.append(f"{label}: no run of random actions, so there is no line of theirs.")
    sets = Counter(tuple(record.seeds) for record in records)
    if len(sets) > 1:
        text = "; ".join(
            f"{', '.join(r.label for r in records if tuple(r.seeds) == seeds)}: {seeds_text(seeds)}" for seeds in sets
        )
        notes.append(f"{label}: not the same seeds for all ({text}).")
    if single := [r.label for r in records if len(r.seeds) == 1]:
        notes.append(f"{label}: one seed only of {', '.join(single)}, so there is no interval.")
    versions = Counter(str(r.origin.get("versions", {}).get("guss", "?")) for r in records)
    if len(versions) > 1:
        notes.append(f"{label}: runs of several versions of guss ({', '.join(sorted(versions))}).")
    machines: dict[str, list[str]] = {}
    for r in records:
        if any(row.get("phase") == "plan" for row in r.episodes):
            machines.setdefault(str(r.origin.get("machine", {}).get("cpu", "?")), []).append(r.label)
    if len(machines) > 1:
        text = "; ".join(f"{', '.join(methods)}: {cpu}" for cpu, methods in machines.items())
        notes.append(f"{label}: planning times are of several machines ({text}).")
    if dirty := [r.label for r in records if not _committed(r)]:
        notes.append(
            f"{label}: guss's own source code had no commit, or changes since its last one, in the runs of "
            f"{', '.join(dirty)}."
        )
    return notes


def _committed(record: Record) -> bool:
    commit = record.origin.get("commit")
    return bool(commit) and not str(commit).endswith("-dirty")
