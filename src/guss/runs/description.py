"""What config.json keeps of a run's environment and method, so that a report needs neither of them nor any plugin.

`write_new(home, …)` writes config.json when a run starts, `write_stored(home, data)` a changed one; `read_stored(home)`
reads it as plain data and imports nothing. Bundled environments and methods are looked up in guss itself, so that runs
from before `Facts` were stored are read too.
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
from guss.methods import METHODS
from guss.methods.settings import current_names, settings_of_method
from guss.models import MODELS
from guss.planners import PLANNERS
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
"""What the config of every run has."""
LEFT_OUT: dict[str, Any] = {
    **dict.fromkeys(("target", "initial_steps", "data", "episode_length")),
    **dict.fromkeys(("unknown_unsafe", "overlap", "without_cost", "env_process"), False),
    **{"planning_margin": 0.0, "learned": [], "hard": [], "data_rows": 0, "step_timeout": 60.0},
}
"""What schema 1 did not store where it had this value."""
LEFT_OUT_OF_FIT = {"cost_blur": 0.05, "reward_margin": 0.1, "reach": 3.0}


@dataclass(frozen=True, kw_only=True)
class MethodKind:
    """What a method is, as tables are divided."""

    origin: str = ""
    """The module that defines it."""
    plans: bool
    """It chooses actions by planning in a model."""
    policy: bool
    """It learns a policy."""
    safe: bool
    """It takes cost into account."""
    model_based: bool


@dataclass(frozen=True)
class ConstraintFacts:
    """A constraint; a hard one ends the episode."""

    name: str
    hard: bool


@dataclass(frozen=True, kw_only=True)
class EnvFacts:
    """What a run has stored of its environment."""

    label: str
    about: str
    episode_length: int
    constraints: tuple[ConstraintFacts, ...]
    measure: Literal["mean_reward", "return"] | None
    """By what episodes are measured; None: what their lengths say."""
    dimensions: tuple[str, ...] | None = None
    """Names of the observations' dimensions; None: they have none."""
    actions: tuple[str, ...] | None = None
    map: dict[str, Any] | None
    """The plane of the state map, if the environment's code computes one: it is not None then, and has labels."""


@dataclass(frozen=True)
class Facts:
    """What a run has stored of its environment and method."""

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
"""What config.json may hold beside the config."""


@dataclass(frozen=True)
class StoredRun:
    """config.json as plain data."""

    data: dict[str, Any]
    """All of it."""
    config: dict[str, Any]
    origin: dict[str, Any]
    """Command, commit, versions, machine; as `extended` the commands that added episodes later, if any did."""
    facts: Facts | None
    """None: an earlier guss did not store them."""
    sources: dict[str, dict[str, str]]
    """Checksums of the user's code; empty in runs of an earlier guss."""
    started_in: Path | None
    """Where files that it names are; None: in the current folder."""

    @property
    def env(self) -> str:
        """The environment's name; a bundled one's, if the run names its Gymnasium id."""
        entry = bundled_env(self.config["env"])
        return self.config["env"] if entry is None else entry.name


# ------------------------------------------------------------------------------------------------------------ bundled


def bundled_env(name: str) -> Entry[EnvSpec] | None:
    """The environment of guss with this name or Gymnasium id."""
    with no_user_code("a look-up of bundled environments"):
        return next((entry for entry in ENVS if name in (entry.name, entry.item.gym_id)), None)


def measure_of(env: str, episodes: list[dict[str, Any]], facts: Facts | None = None) -> str:
    """What an episode's reward is called by: "mean_reward" or "return", a field of its record.

    Where neither guss nor the run says so, episodes that end early are measured by returns: to last longer is to earn
    more.
    """
    entry = bundled_env(env)
    if entry is not None:
        return "return" if entry.item.measure == "return" else "mean_reward"
    if facts is not None and facts.env.measure is not None:
        return facts.env.measure
    return "return" if len({row["steps"] for row in episodes if row["status"] == "ok"}) > 1 else "mean_reward"


def bundled_method(name: str) -> MethodKind | None:
    """What a method of guss is."""
    with no_user_code("a look-up of bundled methods"):
        return _kind_of(name)


def is_bundled(config: dict[str, Any]) -> bool:
    """Whether guss itself holds all code that a run needs: environment, method and model."""
    with no_user_code("a look-up of bundled models"):
        known = config.get("model", "oracle") in MODELS.names()
    return known and bundled_env(config["env"]) is not None and bundled_method(config["method"]) is not None


def _kind_of(method: str) -> MethodKind | None:
    if method in METHODS.names():
        entry, cls = METHODS[method], METHODS[method].item
        return MethodKind(origin=entry.origin, plans=cls.plans, policy=True, safe=cls.safe, model_based=cls.model_based)
    if method not in PLANNERS.names():
        return None
    planner, objective = PLANNERS[method], PLANNERS[method].item.objective
    plans, safe = objective != "nothing", objective in ("cost", "penalty")
    return MethodKind(origin=planner.origin, plans=plans, policy=False, safe=safe, model_based=plans)


# ------------------------------------------------------------------------------------------------------------ writing


def facts_of(config: RunConfig, task: Task) -> dict[str, Any]:
    """What a report on this run needs, as plain data; `task`: the one that scores its steps."""
    spec = spec_of_run(config)
    entry = ENVS[config.env] if config.env in ENVS.names() else None
    kind = _kind_of(config.method)
    assert kind is not None  # a RunConfig names a known method
    plane = None if spec.view is None else spec.view.map
    measures: Any = {
        "return": "return",
        "mean": None if entry is None else "mean_reward",
    }  # an EnvSpec's default: "mean"
    env = EnvFacts(
        label=short_name(config.env),
        about="" if entry is None else entry.summary,
        episode_length=task.episode_length,
        constraints=tuple(ConstraintFacts(c.name, bool(c.hard)) for c in task.constraints),
        measure=measures[spec.measure],
        dimensions=task.observations.names,
        actions=task.actions.names,
        map=None if plane is None else {"labels": list(plane.labels)},
    )
    return dataclasses.asdict(Facts(env, kind, tuple(dict.fromkeys(PLUGINS))))


def write_stored(home: Path, data: dict[str, Any]) -> None:
    write_json(home / NAME, data)


def write_new(
    home: Path, config: RunConfig, task: Task, origin: dict[str, Any], sources: dict[str, dict[str, str]]
) -> None:
    """The config.json of a run that starts; `origin`: as `provenance` gives it; `sources`: checksums of users' code."""
    about = {"schema": SCHEMA, "config": config.to_json(), "provenance": origin, KEY: facts_of(config, task)}
    write_stored(home, about | {"sources": sources, **place_of(home, config.env)})


# ------------------------------------------------------------------------------------------------------------ reading


def read_json(home: Path) -> dict[str, Any]:
    """The config.json of a run or of another experiment, whatever it holds."""
    path = home / NAME
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise GussError(f"{home} is not a run: cannot read its {NAME} ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise GussError(f"{path} is not JSON: {error}") from error
    return data if isinstance(data, dict) else {}


def read_stored(home: Path) -> StoredRun:
    """The config.json of a run; a GussError with the reason if it is not one."""
    path, stored = home / NAME, read_json(home)
    config = stored.get("config")
    if not isinstance(config, dict) or not set(REQUIRED) <= set(config):
        raise GussError(f"{path} is not of a run: it names no env, method, seeds and episodes")
    if not isinstance(stored.get("schema", 0), int) or stored.get("schema", 0) > SCHEMA:
        raise GussError(f"{path} is of a newer guss (schema {stored['schema']}, this one reads {SCHEMA}): update guss")
    required = _typed(REQUIRED, config, f"{path}: config")
    if not required["seeds"] or min(*required["seeds"], required["episodes"]) < 0:
        raise GussError(
            f"{path} is not of a run: there must be a seed, and seeds and episodes must be 0 or more, got "
            f"{received(config['seeds'])} and {config['episodes']}"
        )
    if stored.get("schema", 0) < SCHEMA:
        config = _current(config)
    tables = _typed(TABLES, stored, str(path))
    origin = tables.get("provenance", {})
    _typed({"machine": dict[str, Any], "versions": dict[str, Any]}, origin, f"{path}: provenance")
    if extended := tables.get("extended"):
        origin = origin | {"extended": [str(each.get("command", "?")) for each in extended]}
    folder = started_in(home, tables[PLACE]) if PLACE in tables else None
    return StoredRun(stored, config, origin, tables.get(KEY), tables.get("sources", {}), folder)


def _current(config: dict[str, Any]) -> dict[str, Any]:
    """The config of an earlier schema as this one stores it: new names, and the defaults that were left out."""
    config = current_names(config)
    unused = {"initial_steps"} if "initial_episodes" not in config else set()
    config |= {name: value for name, value in LEFT_OUT.items() if name not in config and name not in unused}
    if "fit" in config:
        config["fit"] = LEFT_OUT_OF_FIT | config["fit"]
    if bundled_method(config["method"]) is not None:
        with no_user_code("defaults of bundled methods"):
            own = settings_of_method(config["method"], {})
        config["method_settings"] = json.loads(json.dumps(dataclasses.asdict(own))) | config.get("method_settings", {})
    return config


def _typed(kinds: dict[str, Any], table: dict[str, Any], what: str) -> dict[str, Any]:
    """The entries of a stored table that `kinds` names, as these types; it may have others."""
    return checked(kinds, {name: table[name] for name in kinds if name in table}, what)


def soft_constraints(stored: StoredRun) -> np.ndarray:
    """Of each constraint whether it is counted, and not a hard limit, [C]."""
    entry = bundled_env(stored.env)
    if entry is not None:
        return np.asarray(entry.item.make_task().with_hard(tuple(stored.config.get("hard", ()))).soft, bool)
    if stored.facts is None:
        raise GussError(
            f"the run is of an earlier guss, which did not store what is unsafe in {stored.env!r}, and a report "
            f"imports no environment"
        )
    return np.asarray([not each.hard for each in stored.facts.env.constraints], bool)
