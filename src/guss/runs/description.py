"""config.json of a run, with the facts about its environment and method that a report needs without importing them.

`write_new(home, …)` writes config.json when a run starts, `write_stored(home, data)` a changed one; `read_stored(home)`
reads it as plain data and imports no user code. Bundled environments and methods are looked up in guss, so that runs
stored before `Facts` existed stay readable.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from guss.envs import ENVS, EnvSpec
from guss.errors import GussError
from guss.files import WriteGuard
from guss.methods import METHODS, method_class, method_entry, method_names
from guss.methods.settings import current_names, settings_of_method
from guss.models import MODELS
from guss.plugins import PLUGINS
from guss.registry import Entry
from guss.runs.config import RunConfig, spec_of_run
from guss.runs.paths import KEY as PLACE
from guss.runs.paths import place_of, started_in
from guss.runs.store import SCHEMA, short_name, write_json
from guss.task import Task
from guss.usercode import no_user_code
from guss.validation import checked, received

NAME, KEY = "config.json", "report"
REQUIRED: dict[str, Any] = {"env": str, "method": str, "seeds": tuple[int, ...], "episodes": int}
"""Required entries of a run's config."""
LEFT_OUT: dict[str, Any] = {
    **dict.fromkeys(("target", "initial_steps", "data", "episode_length")),
    **dict.fromkeys(("unknown_unsafe", "overlap", "without_cost", "env_process"), False),
    **{"planning_margin": 0.0, "learned": [], "hard": [], "data_rows": 0, "step_timeout": 60.0},
}
"""Values that schema 1 did not store."""
LEFT_OUT_OF_FIT = {"cost_blur": 0.05, "reward_margin": 0.1, "reach": 3.0}


@dataclass(frozen=True, kw_only=True)
class MethodKind:
    """The kind of a method, which decides its section in tables."""

    origin: str = ""
    """The module that defines it."""
    plans: bool
    """Whether it plans in a model."""
    policy: bool
    """Whether it learns a policy."""
    safe: bool
    """Whether it considers cost."""
    model_based: bool


@dataclass(frozen=True)
class ConstraintFacts:
    """A constraint; violating a hard constraint ends the episode."""

    name: str
    hard: bool


@dataclass(frozen=True, kw_only=True)
class EnvFacts:
    """The stored facts about a run's environment."""

    label: str
    about: str
    episode_length: int
    constraints: tuple[ConstraintFacts, ...]
    measure: Literal["mean_reward", "return"] | None
    """The measure of an episode; None: it follows from the lengths of the episodes."""
    dimensions: tuple[str, ...] | None = None
    """Names of the observation's dimensions; None: unnamed."""
    actions: tuple[str, ...] | None = None
    map: dict[str, Any] | None
    """Labels of the state map's plane; None: the environment's code computes no plane."""


@dataclass(frozen=True)
class Facts:
    """The stored facts about a run's environment and method."""

    env: EnvFacts
    method: MethodKind
    plugins: tuple[str, ...]


TABLES: dict[str, Any] = {
    "provenance": dict[str, Any],
    "sources": dict[str, dict[str, str]],
    "extended": tuple[dict[str, Any], ...],
    KEY: Facts,
    PLACE: str,
}
"""Entries of config.json besides the config."""


@dataclass(frozen=True)
class StoredRun:
    """config.json as plain data."""

    data: dict[str, Any]
    """The whole file."""
    config: dict[str, Any]
    origin: dict[str, Any]
    """Command, commit, versions, machine; `extended`: the commands that added episodes later, if any."""
    facts: Facts | None
    """None in runs of an earlier version of guss."""
    sources: dict[str, dict[str, str]]
    """Checksums of user code; empty in runs of an earlier version of guss."""
    started_in: Path | None
    """The folder to which stored file names are relative; None: the current folder."""

    @property
    def env(self) -> str:
        """The environment's name; the Gymnasium id of a bundled environment is replaced by its name."""
        entry = bundled_env(self.config["env"])
        return self.config["env"] if entry is None else entry.name


# ------------------------------------------------------------------------------------------------------------ bundled


def bundled_env(name: str) -> Entry[EnvSpec] | None:
    """The bundled environment with this name or Gymnasium id."""
    with no_user_code("a look-up of bundled environments"):
        return next((entry for entry in ENVS if name in (entry.name, entry.item.gym_id)), None)


def measure_of(env: str, episodes: list[dict[str, Any]], facts: Facts | None = None) -> str:
    """The measure of an episode's reward: "mean_reward" or "return", a field of its record.

    If neither guss nor the run defines it, episodes that end early are measured by their return, which grows with their
    length.
    """
    entry = bundled_env(env)
    if entry is not None:
        return "return" if entry.item.measure == "return" else "mean_reward"
    if facts is not None and facts.env.measure is not None:
        return facts.env.measure
    return "return" if len({row["steps"] for row in episodes if row["status"] == "ok"}) > 1 else "mean_reward"


def bundled_method(name: str) -> MethodKind | None:
    """The kind of a bundled method."""
    with no_user_code("a look-up of bundled methods"):
        return _kind_of(name)


def is_bundled(config: dict[str, Any]) -> bool:
    """Whether environment, method and model of a run are all bundled with guss."""
    with no_user_code("a look-up of bundled models"):
        known = config.get("model", "oracle") in MODELS.names()
    return known and bundled_env(config["env"]) is not None and bundled_method(config["method"]) is not None


def _kind_of(method: str) -> MethodKind | None:
    if method not in method_names():
        return None
    entry, cls, policy = method_entry(method), method_class(method), method in METHODS.names()
    safe = cls.safe if policy else entry.item.objective in ("cost", "penalty")
    return MethodKind(origin=entry.origin, plans=cls.plans, policy=policy, safe=safe, model_based=cls.model_based)


# ------------------------------------------------------------------------------------------------------------ writing


def facts_of(config: RunConfig, task: Task) -> dict[str, Any]:
    """The facts that a report on this run needs, as plain data; `task`: the Task that scores its steps."""
    spec = spec_of_run(config)
    entry = ENVS[config.env] if config.env in ENVS.names() else None
    kind = _kind_of(config.method)
    assert kind is not None  # a RunConfig names a known method
    plane = None if spec.view is None else spec.view.map
    mean: Any = None if entry is None else "mean_reward"  # an EnvSpec's default: "mean"
    env = EnvFacts(
        label=short_name(config.env),
        about="" if entry is None else entry.summary,
        episode_length=task.episode_length,
        constraints=tuple(ConstraintFacts(c.name, bool(c.hard)) for c in task.constraints),
        measure="return" if spec.measure == "return" else mean,
        dimensions=task.observations.names,
        actions=task.actions.names,
        map=None if plane is None else {"labels": list(plane.labels)},
    )
    return dataclasses.asdict(Facts(env, kind, tuple(dict.fromkeys(PLUGINS))))


def write_stored(home: Path, data: dict[str, Any], guard: WriteGuard | None = None) -> None:
    write_json(home / NAME, data, guard)


def write_new(
    home: Path,
    config: RunConfig,
    task: Task,
    origin: dict[str, Any],
    sources: dict[str, dict[str, str]],
    guard: WriteGuard | None = None,
) -> None:
    """Write config.json of a new run; `origin`: from `provenance`; `sources`: checksums of user code."""
    about = {"schema": SCHEMA, "config": config.to_json(), "provenance": origin, KEY: facts_of(config, task)}
    write_stored(home, about | {"sources": sources, **place_of(home, config.env)}, guard)


# ------------------------------------------------------------------------------------------------------------ reading


def read_json(home: Path) -> dict[str, Any]:
    """The config.json of a run or of another experiment, unchecked; {} if it is not an object."""
    path = home / NAME
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise GussError(f"{home} is not a run: cannot read its {NAME} ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise GussError(f"{path} is not JSON: {error}") from error
    return data if isinstance(data, dict) else {}


def read_stored(home: Path) -> StoredRun:
    """The checked config.json of a run; raises GussError if it is not the config.json of a run."""
    path, stored = home / NAME, read_json(home)
    config = stored.get("config")
    if not isinstance(config, dict) or not set(REQUIRED) <= set(config):
        raise GussError(f"{path} is not the config of a run: it lacks env, method, seeds or episodes")
    if not isinstance(stored.get("schema", 0), int) or stored.get("schema", 0) > SCHEMA:
        raise GussError(
            f"{path} was written by a newer version of guss (schema {stored['schema']}; this version reads schemas up "
            f"to {SCHEMA}): update guss"
        )
    required = _typed(REQUIRED, config, f"{path}: config")
    if not required["seeds"] or min(*required["seeds"], required["episodes"]) < 0:
        raise GussError(
            f"{path} is not the config of a run: it needs at least one seed, and seeds and episodes of 0 or more, got "
            f"seeds {received(config['seeds'])} and episodes {config['episodes']}"
        )
    if stored.get("schema", 0) < SCHEMA:
        config = _current(config, f"{path}: config")
    tables = _typed(TABLES, stored, str(path))
    origin = tables.get("provenance", {})
    _typed({"machine": dict[str, Any], "versions": dict[str, Any]}, origin, f"{path}: provenance")
    if extended := tables.get("extended"):
        origin = origin | {"extended": [str(each.get("command", "?")) for each in extended]}
    folder = started_in(home, tables[PLACE]) if PLACE in tables else None
    return StoredRun(stored, config, origin, tables.get(KEY), tables.get("sources", {}), folder)


def _current(config: dict[str, Any], what: str) -> dict[str, Any]:
    """A config of an earlier schema converted to this one: new names, and defaults that were not stored."""
    config = current_names(config)
    given = _typed({"fit": dict[str, Any], "method_settings": dict[str, Any]}, config, what)
    unused = {"initial_steps"} if "initial_episodes" not in config else set()
    config |= {name: value for name, value in LEFT_OUT.items() if name not in config and name not in unused}
    if "fit" in config:
        config["fit"] = LEFT_OUT_OF_FIT | given["fit"]
    if bundled_method(config["method"]) is not None:
        with no_user_code("defaults of bundled methods"):
            own = settings_of_method(config["method"], {})
        config["method_settings"] = json.loads(json.dumps(dataclasses.asdict(own))) | given.get("method_settings", {})
    return config


def _typed(kinds: dict[str, Any], table: dict[str, Any], what: str) -> dict[str, Any]:
    """The entries of a stored table named in `kinds`, converted to these types; other entries are ignored."""
    return checked(kinds, {name: table[name] for name in kinds if name in table}, what)


def soft_constraints(stored: StoredRun) -> np.ndarray:
    """Whether each constraint is soft, [C]."""
    entry = bundled_env(stored.env)
    if entry is not None:
        return np.asarray(entry.item.make_task().with_hard(tuple(stored.config.get("hard", ()))).soft, bool)
    if stored.facts is None:
        raise GussError(
            f"the run is from an earlier version of guss, which did not store the constraints of {stored.env!r}; a "
            f"report cannot read them from the environment, because it does not import environments"
        )
    return np.asarray([not each.hard for each in stored.facts.env.constraints], bool)
