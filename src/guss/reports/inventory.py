"""Finds the runs in a folder, and notes which are missing, partial or unreadable; reports use the readable runs.

The main comparison has the runs directly in the folder or in its subfolder `runs`; runs in other subfolders form
groups, named by their subfolder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from guss.envs import ENVS
from guss.errors import GussError
from guss.reports.labels import in_numbers, name_envs, name_rows, seeds_text, settings_key
from guss.reports.paper import paper_methods
from guss.reports.style import distinct_styles, label_of, label_of_env
from guss.runs.description import MethodKind, StoredRun, bundled_env, bundled_method, measure_of, read_stored
from guss.runs.metrics import THRESHOLDS
from guss.runs.rows import read_episodes, read_timings
from guss.runs.store import by_seed
from guss.usercode import no_user_code

MAIN = ("", "runs")
K = TypeVar("K")


@dataclass(frozen=True)
class Record(StoredRun):
    """A stored run with its records, for reports."""

    home: Path
    group: str
    episodes: list[dict[str, Any]]
    timings: list[dict[str, Any]]
    measure: str = ""
    """The measure of an episode's reward: "mean_reward" or "return", a field of its line."""
    env_label: str = ""
    key: str = ""
    """Unique name within its environment: the method, and its differences from other runs of that method."""
    label: str = ""
    """The key as a label for readers."""
    style: dict[str, Any] = field(default_factory=dict)
    """Line style in figures."""

    @property
    def threshold(self) -> float | None:
        """The reward threshold of MRCP; None if the paper has none."""
        return THRESHOLDS.get(self.env)

    @property
    def machine(self) -> str:
        """CPU and number of cores."""
        machine = self.origin.get("machine", {})
        return f"{machine.get('cpu', '?')}, {machine.get('cores', '?')} cores" if machine else "?"

    @property
    def method(self) -> str:
        return str(self.config["method"])

    @property
    def kind(self) -> MethodKind | None:
        """The kind of its method; None if neither guss nor the run defines it."""
        return bundled_method(self.method) or (None if self.facts is None else self.facts.method)

    @property
    def command(self) -> str | None:
        """The commands that reproduce it: that of its start, then those of its extensions; None: not stored."""
        first = self.origin.get("command")
        return None if first is None else " && ".join(map(str, (first, *self.origin.get("extended", ()))))

    @property
    def name(self) -> str:
        """The name of the run folder."""
        return self.home.name

    @property
    def where(self) -> str:
        """The group and the name of the run folder."""
        return f"{self.group}/{self.name}".lstrip("/")

    @property
    def who(self) -> str:
        """Environment and method, with which notes start."""
        return f"{self.env_label}, {self.label}"

    @property
    def seeds(self) -> list[int]:
        return sorted({row["seed"] for row in self.episodes})

    @property
    def done(self) -> int:
        """Number of episodes that every seed has finished."""
        return int(min(Counter(row["seed"] for row in self.episodes).values(), default=0))

    def values(self, name: str) -> np.ndarray:
        """A field of the episodes that every seed has finished, [S, N]."""
        return by_seed(self.episodes, name)


@dataclass
class Gathered:
    """The runs in a folder."""

    folder: Path
    records: list[Record] = field(default_factory=list)
    """Runs of the main comparison: one for each environment, method and settings."""
    groups: dict[str, list[Record]] = field(default_factory=dict)
    """Other runs, by subfolder."""
    toys: list[Path] = field(default_factory=list)
    """Folders of toy-world experiments."""
    notes: list[str] = field(default_factory=list)
    """Notes on missing, incomplete or inconsistent runs."""
    left_out: list[str] = field(default_factory=list)
    """The notes on unreadable runs."""

    @property
    def all_records(self) -> list[Record]:
        """Runs of the main comparison, then runs of the groups."""
        return [*self.records, *(record for records in self.groups.values() for record in records)]

    def brief(self, error: Exception) -> str:
        """An error message with paths relative to the folder."""
        return str(error).replace(f"{self.folder}/", "")


def grouped(records: Iterable[Record], key: Callable[[Record], K]) -> dict[K, list[Record]]:
    """The runs grouped by `key`, in order."""
    found: dict[K, list[Record]] = {}
    for record in records:
        found.setdefault(key(record), []).append(record)
    return found


def by_env(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The runs grouped by environment."""
    return grouped(records, lambda record: record.env)


def read_record(home: Path, group: str = "") -> Record:
    """Read a stored run. Raises GussError if it is unreadable or has no finished episode."""
    stored = read_stored(home)
    episodes = read_episodes(home)
    if not episodes:
        raise GussError(f"{home} has no finished episode yet")
    if others := sorted({row["seed"] for row in episodes} - set(stored.config["seeds"])):
        raise GussError(f"{home / 'episodes.jsonl'} has seed {others[0]}, which is not in its config.json")
    timings = read_timings(home) if any(home.glob("timings.jsonl*")) else []
    record = Record(**vars(stored), home=home, group=group, episodes=episodes, timings=timings)
    return identified([record])[0]


def env_labels(records: list[Record]) -> dict[str, str]:
    """Labels of the environments of these runs."""
    known = {record.env: record.facts.env.label for record in records if record.facts is not None}
    return name_envs(
        {r.env: label_of_env(r.env) if r.env not in known or bundled_env(r.env) else known[r.env] for r in records}
    )


def identified(records: list[Record], labels: dict[str, str] | None = None) -> list[Record]:
    """Runs shown together, each with its key, label and style; runs of one environment get the same measure.

    The order is kept, except that settings of one method are sorted: horizon 3 comes before horizon 10. `labels`: of
    environments, if further runs are shown next to these.
    """
    labels = labels or env_labels(records)
    found: list[Record] = []
    for env, mine in by_env(records).items():
        methods = list(dict.fromkeys(record.method for record in mine))
        measures = [measure_of(env, record.episodes, record.facts) for record in mine]
        measure = "return" if "return" in measures else "mean_reward"
        names = name_rows([record.config for record in mine], [record.name for record in mine])
        about: dict[str, Any] = {"measure": measure, "env_label": labels[env]}
        rows = [replace(record, **(about | name._asdict())) for record, name in zip(mine, names, strict=True)]
        rows.sort(key=lambda row: (methods.index(row.method), in_numbers(row.label)))
        styles = distinct_styles([row.method for row in rows], [row.label for row in rows])
        found += [replace(row, style=style) for row, style in zip(rows, styles, strict=True)]
    return found


def run_folders(folder: Path) -> Iterator[tuple[Path, bool]]:
    """The folders of runs and of toy-world experiments in a folder, at any depth; True: a toy-world experiment."""
    if not folder.is_dir():
        raise GussError(f"there is no folder {folder}; `guss run` and `guss reproduce` write to runs/ by default")
    for path in sorted(folder.rglob("config.json")):
        yield path.parent, (path.parent / "records").is_dir()


@no_user_code("a report")
def gather(folder: Path) -> Gathered:
    """All runs in a folder, at any depth, with notes on unusable ones."""
    found, records = Gathered(folder), list[Record]()
    for home, is_toy in run_folders(folder):
        if is_toy:
            found.toys.append(home)
            continue
        group = home.relative_to(folder).parent.as_posix().removeprefix(".")
        try:
            records.append(read_record(home, "" if group in MAIN else group))
        except GussError as error:
            found.left_out.append(f"{found.brief(error)}; it is left out.")
    found.notes += found.left_out
    records.sort(key=_order)
    labels = env_labels(records)
    groups = grouped(records, lambda record: record.group)
    found.records = _one_of_each(groups.pop("", []), labels, found.notes)
    found.groups = {name: identified(mine, labels) for name, mine in groups.items()}
    for record in found.records:
        found.notes += _partial(record)
    for env, mine in by_env(found.records).items():
        found.notes += _gaps(env, mine)
    unknown = [record.who for record in found.all_records if record.kind is None]
    found.notes += [
        f"{who}: its run does not store the kind of its method, so it is listed “for comparison”; runs of this version "
        f"of guss store it."
        for who in dict.fromkeys(unknown)
    ]
    return found


def _order(record: Record) -> tuple[Any, ...]:
    """The sort key of a run: the paper's environments and methods first, in the paper's order."""

    def place(name: str, names: Sequence[str]) -> int:
        return names.index(name) if name in names else len(names)

    env, method = record.env, record.method
    return place(env, ENVS.names()), env, place(method, paper_methods()), method, record.name


def _one_of_each(records: list[Record], labels: dict[str, str], notes: list[str]) -> list[Record]:
    """One run for each settings: of runs that differ only in seeds and episodes, the run with most episodes.

    Ties are resolved by date: the latest run.
    """

    def weight(record: Record) -> tuple[int, str, str]:
        return len(record.seeds) * record.done, str(record.origin.get("date", "")), record.name

    alike = list(grouped(records, lambda record: settings_key(record.config | {"env": record.env})).values())
    best = [max(mine, key=weight) for mine in alike]
    shown = identified(best, labels)
    who = {record.home: record.who for record in shown}
    notes += [
        f"{who[chosen.home]}: several runs with the same settings; {chosen.name} is shown (most episodes, or "
        f"latest), {other.name} is not."
        for chosen, mine in zip(best, alike, strict=True)
        for other in mine
        if other is not chosen
    ]
    return shown


def _partial(record: Record) -> list[str]:
    """Notes on a run with fewer episodes or seeds than its config."""
    who, notes = record.who, []
    counts = Counter(row["seed"] for row in record.episodes)
    if record.done < record.config["episodes"] and record.config.get("target") is None:
        notes.append(f"{who}: {record.done} of {record.config['episodes']} episodes were run.")
    if len(set(counts.values())) > 1:
        most = max(counts.values())
        short = ", ".join(f"seed {seed} has {n}" for seed, n in sorted(counts.items()) if n < most)
        notes.append(f"{who}: {short} of {most} episodes; only episodes that all seeds have are used.")
    if lost := sorted(set(record.config["seeds"]) - set(counts)):
        notes.append(f"{who}: no episode of seed {', '.join(map(str, lost))}.")
    if failed := sum(row["status"] != "ok" for row in record.episodes):
        notes.append(f"{who}: in {failed} episodes the environment failed; steps before the failure are included.")
    if not record.timings:
        notes.append(f"{who}: no timings.jsonl, so its planning time and model error are unknown.")
    return notes


def _gaps(env: str, records: list[Record]) -> list[str]:
    """Notes on differences between the runs of an environment, and on methods of the paper without a run."""
    notes, label = [], records[0].env_label
    if absent := [label_of(method) for method in paper_methods(env) if method not in {r.method for r in records}]:
        notes.append(f"{label}: no run of {', '.join(absent)}, which the paper's table has.")
    if not any(record.method == "random" for record in records):
        notes.append(f"{label}: no run of random actions, so figures do not show their level.")
    sets = grouped(records, lambda record: tuple(record.seeds))
    if len(sets) > 1:
        text = "; ".join(f"{_labels(mine)}: {seeds_text(seeds)}" for seeds, mine in sets.items())
        notes.append(f"{label}: the runs have different seeds ({text}).")
    if single := [record for record in records if len(record.seeds) == 1]:
        notes.append(f"{label}: only one seed of {_labels(single)}, so there is no interval.")
    versions = {str(record.origin.get("versions", {}).get("guss", "?")) for record in records}
    if len(versions) > 1:
        notes.append(f"{label}: runs of several versions of guss ({', '.join(sorted(versions))}).")
    planned = [record for record in records if any(row["phase"] == "plan" for row in record.episodes)]
    machines = grouped(planned, lambda record: str(record.origin.get("machine", {}).get("cpu", "?")))
    if len(machines) > 1:
        text = "; ".join(f"{_labels(mine)}: {cpu}" for cpu, mine in machines.items())
        notes.append(f"{label}: planning times are from several machines ({text}).")
    commits = {record.label: record.origin.get("commit") for record in records}
    if dirty := [label for label, commit in commits.items() if not commit or str(commit).endswith("-dirty")]:
        what = "the source code of guss had no commit, or had uncommitted changes,"
        notes.append(f"{label}: {what} in the runs of {', '.join(dirty)}.")
    return notes


def _labels(records: list[Record]) -> str:
    return ", ".join(record.label for record in records)
