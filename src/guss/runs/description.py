"""What config.json keeps of a run's environment and method, so that a report needs neither of them nor any plugin.

    "report": {
      "env": {"label", "about", "episode_length", "constraints": [{"name", "hard"}], "measure", "map"},
      "method": {"origin", "plans", "policy", "safe", "model_based"},
      "plugins": ["my_planner.py"]
    }

`write_new(home, …)` writes config.json when a run starts, `write_stored(home, data)` a changed one; `read_stored(home)`
reads it as plain data and imports nothing. Bundled environments and methods are looked up in guss itself, so that runs
from before this key are read too.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from guss.envs import ENVS, EnvSpec
from guss.errors import GussError
from guss.methods import METHODS
from guss.models import MODELS
from guss.planners import PLANNERS
from guss.plugins import PLUGINS
from guss.registry import Entry
from guss.runs.config import RunConfig, spec_of_run
from guss.runs.paths import KEY as PLACE
from guss.runs.paths import place_of, started_in
from guss.runs.rows import is_count
from guss.runs.store import SCHEMA, short_name, write_json
from guss.task import Task
from guss.usercode import no_user_code

NAME, KEY = "config.json", "report"


@dataclass(frozen=True)
class MethodKind:
    """What a method is, as tables are divided."""

    plans: bool
    """It chooses actions by planning in a model."""
    policy: bool
    """It learns a policy."""
    safe: bool
    """It takes cost into account."""
    model_based: bool


@dataclass(frozen=True)
class Facts:
    """What a run has stored of its environment and method."""

    label: str
    about: str
    constraints: tuple[str, ...]
    soft: tuple[bool, ...]
    """Of each constraint: it is counted, not a hard limit."""
    measure: str | None
    """Whether episodes are measured by "mean_reward" or "return"; None: what their lengths say."""
    dimensions: tuple[str, ...] | None
    """Names of the observations' dimensions; None: they have none."""
    actions: tuple[str, ...] | None
    own_map: bool
    """The plane of the state map is computed by the environment's own code."""
    method: MethodKind
    plugins: tuple[str, ...]


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
    if facts is not None and facts.measure is not None:
        return facts.measure
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
        cls = METHODS[method].item
        return MethodKind(plans=cls.plans, policy=True, safe=cls.safe, model_based=cls.model_based)
    if method not in PLANNERS.names():
        return None
    objective = PLANNERS[method].item.objective
    plans = objective != "nothing"
    return MethodKind(plans=plans, policy=False, safe=objective in ("cost", "penalty"), model_based=plans)


# ------------------------------------------------------------------------------------------------------------ writing


def facts_of(config: RunConfig, task: Task) -> dict[str, Any]:
    """What a report on this run needs, as plain data; `task`: the one that scores its steps."""
    spec = spec_of_run(config)
    entry = ENVS[config.env] if config.env in ENVS.names() else None
    kind = _kind_of(config.method)
    assert kind is not None  # a RunConfig names a known method
    plane = None if spec.view is None else spec.view.map
    says = {"return": "return", "mean": None if entry is None else "mean_reward"}  # "mean" is what EnvSpecs say unasked
    return {
        "env": {
            "label": short_name(config.env),
            "about": "" if entry is None else entry.summary,
            "episode_length": task.episode_length,
            "constraints": [{"name": c.name, "hard": bool(c.hard)} for c in task.constraints],
            "measure": says[spec.measure],
            **({} if task.observations.names is None else {"dimensions": list(task.observations.names)}),
            **({} if task.actions.names is None else {"actions": list(task.actions.names)}),
            "map": plane
            and {
                "labels": list(plane.labels),
                "limits": [[float(x) for x in limits] for limits in plane.limits],
                "cells": [int(count) for count in plane.cells],
                "unsafe_zone": [[float(x) for x in zone] for zone in plane.unsafe],
            },
        },
        "method": {
            "origin": (METHODS if kind.policy else PLANNERS)[config.method].origin,
            **dataclasses.asdict(kind),
        },
        "plugins": list(dict.fromkeys(PLUGINS)),
    }


def write_stored(home: Path, data: dict[str, Any]) -> None:
    """Write config.json."""
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
    """The config.json of a run; raises a GussError that says why if it is not one."""
    path, stored = home / NAME, read_json(home)
    config = stored.get("config")
    if not isinstance(config, dict) or not {"env", "method", "episodes", "seeds"} <= set(config):
        raise GussError(f"{path} is not of a run: it names no env, method, seeds and episodes")
    if not isinstance(stored.get("schema", 0), int) or stored.get("schema", 0) > SCHEMA:
        raise GussError(f"{path} is of a newer guss (schema {stored['schema']}, this one reads {SCHEMA}): update guss")
    seeds = config["seeds"]
    wanted = {"env": isinstance(config["env"], str), "method": isinstance(config["method"], str),
              "seeds": isinstance(seeds, list) and bool(seeds) and all(map(is_count, seeds)),
              "episodes": is_count(config["episodes"])}  # fmt: skip
    for name, fits in wanted.items():
        if not fits:
            raise GussError(f"{path} is not of a run: its {name} cannot be {config[name]!r}")
    origin = stored.get("provenance", {})
    if not isinstance(origin, dict) or any(not isinstance(origin.get(k, {}), dict) for k in ("machine", "versions")):
        raise GussError(f"{path}: its provenance must be a table, with tables of machine and versions")
    sources = stored.get("sources", {})
    if not isinstance(sources, dict) or not all(isinstance(files, dict) for files in sources.values()):
        raise GussError(f"{path}: its sources must be tables of checksums")
    if extended := stored.get("extended"):
        if not isinstance(extended, list) or not all(isinstance(each, dict) for each in extended):
            raise GussError(f"{path}: its extensions must be a list of tables")
        origin = origin | {"extended": [str(each.get("command", "?")) for each in extended]}
    facts, folder = _read_facts(path, stored[KEY]) if KEY in stored else None, started_in(home, stored.get(PLACE))
    return StoredRun(stored, config, origin, facts, sources, folder)


def _read_facts(path: Path, stored: Any) -> Facts:
    try:
        env, method, constraints = stored["env"], stored["method"], stored["env"]["constraints"]
        kind = {field.name: method[field.name] for field in dataclasses.fields(MethodKind)}
        names, hard = [c["name"] for c in constraints], [c["hard"] for c in constraints]
        labels = [None if env.get(key) is None else tuple(env[key]) for key in ("dimensions", "actions")]
        texts = [env["label"], env["about"], *names, *stored["plugins"], *(labels[0] or ()), *(labels[1] or ())]
        fits = all(isinstance(text, str) for text in texts) and env["measure"] in (None, "mean_reward", "return")
        if not fits or not all(isinstance(flag, bool) for flag in (*kind.values(), *hard)):
            raise ValueError("a value of another type than expected")
        return Facts(
            label=env["label"],
            about=env["about"],
            constraints=tuple(names),
            soft=tuple(not each for each in hard),
            measure=env["measure"],
            dimensions=labels[0],
            actions=labels[1],
            own_map=env["map"] is not None,
            method=MethodKind(**kind),
            plugins=tuple(stored["plugins"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise GussError(f"{path}: what it stores for reports, {KEY!r}, cannot be read: {what}") from error


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
    return np.asarray(stored.facts.soft, bool)
