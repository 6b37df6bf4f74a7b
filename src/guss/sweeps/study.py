"""Studies: the runs of a sweep, from the tables of a TOML file.

env = ["safe-pendulum", "safe-acrobot"]
method = ["guss", "rs", "random"]
seeds = 6
episodes = 50
horizon = [10, 20]            # any setting of a run; a run for each combination of the listed values

[model]
ensemble = [1, 5]             # settings of the model; [fit] has those of its training

[[zip]]                       # lists of equal length that are swept together
budget = [100, 200]
fit = { max_steps = [2000, 4000] }

[methods.guss]                # for one method: settings of the run, and settings of the method
num_new = [5, 15]

[envs.safe-acrobot]           # for one environment
episodes = 20
methods.rs = { horizon = 5 }

[sweep]                       # how the runs are executed: SweepSettings
attempts = 2

The settings override those of the preset that `preset` selects, by default the preset of the environment. A setting
whose value is itself a list, such as `hidden`, is swept if it is a list of lists. Settings without effect on a method
are omitted.
"""

from __future__ import annotations

import itertools
import typing
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp

from guss.errors import GussError, UnknownNameError
from guss.methods import check_method, method_entry
from guss.methods.settings import NESTED, RunSettings
from guss.models.settings import declared_settings, setting_types
from guss.models.training import FitSettings
from guss.plugins import find_preset, load_preset, merged, read_toml
from guss.runs.config import RunConfig, config_without_unused, seeds_from, spec_of_run
from guss.runs.store import short_name
from guss.sweeps.forecast import expected_seconds
from guss.types import settings_of
from guss.validation import build, check_fields, check_ranges, convert, types_of

Path_ = tuple[str, ...]
OWN = ("env", "method", "zip", "methods", "envs", "sweep")
"""Entries of a study that are not settings of a run."""
RUN_KINDS = {name: kind for name, kind in types_of(RunSettings).items() if name not in ("env", "method", *NESTED)}
KINDS: dict[str, Any] = RUN_KINDS | {"seeds": tuple[int, ...], "seed": int, "preset": str, "model": Any, "fit": Any}
"""Settings of a run in a study, with their types."""


@dataclass(frozen=True)
class SweepSettings:
    """How the runs of a study are executed."""

    attempts: int = 3
    """Failures after which a run is given up, unless it finished episodes in between."""
    backoff: float = 5.0
    """Seconds until a failed run is tried again, times 4 after each further failure."""
    expiry: float = 60.0
    """Seconds without a sign of life after which another worker takes over the run of a lost worker. On the same
    machine, workers detect at once that another worker has ended."""
    animations: bool = False
    """Store an episode of each run as an animation for the report; this recomputes its plans."""
    plugin: tuple[str, ...] = ()
    """Modules or .py files to import first, which register custom planners, methods, models or environments."""

    def __post_init__(self) -> None:
        check_fields(self, "sweep")
        check_ranges(self, "sweep", attempts="[1, inf)", backoff="[0, inf)", expiry="(0, inf)")


class PlannedRun(NamedTuple):
    """A run of a study."""

    config: RunConfig
    swept: dict[str, Any]
    """The values of the settings that are swept, by name, such as `model.ensemble`."""
    expected: tuple[float, ...]
    """Expected seconds of each episode."""

    @property
    def name(self) -> str:
        """Environment, method and swept values."""
        return run_name(self.config.env, self.config.method, self.swept)

    def home(self, out: Path) -> Path:
        """The folder of the run in `out`."""
        return self.config.folder_in(out)

    def to_json(self) -> dict[str, Any]:
        """As plain data: workers need neither the study file nor, until they execute the run, its environment."""
        return {"config": self.config.to_json(), "swept": self.swept, "expected": list(self.expected)}


@dataclass(frozen=True)
class Study:
    """The runs of a study, and how they are executed."""

    settings: SweepSettings
    runs: tuple[PlannedRun, ...]
    left_out: tuple[str, ...] = ()
    """A sentence for each combination that is not possible."""


def planned_run(stored: dict[str, Any], started_in: str) -> PlannedRun:
    """The run from plain data; names of files are relative to the folder `started_in`."""
    config = build(RunConfig, stored["config"] | {"started_in": started_in}, "run.config")
    return PlannedRun(config, stored["swept"], tuple(stored["expected"]))


def run_name(env: str, method: str, swept: dict[str, Any]) -> str:
    """The name of a run in a study."""
    return " ".join([short_name(env), method, *(f"{name}={value}" for name, value in swept.items())])


def read_study(path: str | Path) -> dict[str, Any]:
    """The tables of a study file."""
    return read_toml(path, "study")


def sweep_settings(tables: dict[str, Any]) -> SweepSettings:
    """The table `sweep` of a study."""
    return build(SweepSettings, tables.get("sweep", {}), "sweep")


def make_study(tables: dict[str, Any]) -> Study:
    """The study of these tables. Raises GussError if an entry is unknown or invalid, or no run is possible.

    Plugins must have been imported.
    """
    settings, envs, methods = sweep_settings(tables), _names(tables, "env"), _names(tables, "method")
    for method in methods:
        check_method(method)
    _check_entries(tables, OWN, "the study")
    _check_listed(tables, "envs", envs)
    for env, layer in _table(tables, "envs").items():
        _check_entries(_table(tables["envs"], env), ("methods",), f"the table envs.{env}")
        _check_listed(layer, "methods", methods)
    _check_listed(tables, "methods", methods)
    found: dict[str, PlannedRun] = {}
    left_out: list[str] = []
    for env, method in itertools.product(envs, methods):
        for values, swept in _points(tables, env, method):
            planned = _planned(env, method, values, swept)
            why = _impossible(planned.config)
            if why is None:
                found.setdefault(planned.config.folder_in(Path()).name, planned)
            elif why not in left_out:
                left_out.append(why)
    if not found:
        raise GussError(f"nothing to run. {'; '.join(left_out)}; ppo-lagrangian and cpo support both")
    return Study(settings, tuple(found.values()), tuple(left_out))


def _check_entries(table: dict[str, Any], more: Sequence[str], what: str) -> None:
    """Raise for an entry that is neither a setting of a run nor one of `more`."""
    for name in table:
        if name not in KINDS and name not in more:
            raise UnknownNameError(f"entry of {what}", name, [*more, *KINDS])


def _check_listed(table: dict[str, Any], kind: str, listed: Sequence[str]) -> None:
    """Raise for an environment or a method that has a table, but is not in the study's list."""
    for name in _table(table, kind):
        if name not in listed:
            raise UnknownNameError(f"name in the table `{kind}`, which the study does not list:", name, listed)


def _names(tables: dict[str, Any], entry: str) -> list[str]:
    value = tables.get(entry)
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise GussError(f"a study needs `{entry}`: a name or a list of names, such as {entry} = {EXAMPLES[entry]}")
    return list(dict.fromkeys(names))


EXAMPLES = {"env": '["safe-pendulum", "safe-acrobot"]', "method": '["guss", "rs"]'}


def _table(tables: dict[str, Any], name: str) -> dict[str, Any]:
    """A table of the study; empty if there is none."""
    value = tables.get(name, {})
    if not isinstance(value, dict):
        raise GussError(f"{name} of the study must be a table, got {value!r}")
    return value


def _impossible(config: RunConfig) -> str | None:
    """Why the method cannot run on the environment; None if it can."""
    continuous_only = getattr(config.method_class, "continuous_only", False)
    if continuous_only and spec_of_run(config).make_task().actions.dtype != jnp.float32:
        return f"{config.method} on {short_name(config.env)}: it needs continuous actions, and these are discrete"
    return None


# ------------------------------------------------------------------------------------------------------ combinations


def _points(tables: dict[str, Any], env: str, method: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Settings of each run of a pair, and those that are swept."""
    base = {name: value for name, value in tables.items() if name not in OWN}
    in_env = _table(_table(tables, "envs"), env)
    layers = [{name: value for name, value in in_env.items() if name != "methods"}]
    for each in (_table(tables, "methods"), _table(in_env, "methods")):
        layers.append(_of_method(method, _table(each, method)))
    for zipped in _zipped(tables):
        values = _normal(base)
        for layer in (zipped, *layers):
            values = merged(values, _normal(layer))
        flat = dict(_leaves(values))
        models = flat.get(("model", "name"), [])
        kinds = [(path, _kind(path, method, models if isinstance(models, list) else [models])) for path in flat]
        axes = {path: flat[path] for path, kind in kinds if _is_swept(kind, flat[path])}
        together = {path: value for path, value in _leaves(_normal(zipped)) if flat.get(path) == value}
        for chosen in itertools.product(*axes.values()):
            point = dict(zip(axes, chosen, strict=True))
            yield _nested(flat | point), {_written(path): value for path, value in (together | point).items()}


def _of_method(method: str, table: dict[str, Any]) -> dict[str, Any]:
    """The table of a method, with its own settings in a table of their own."""
    declared = settings_of(method_entry(method).item)
    own = {name: value for name, value in table.items() if name in declared or name not in KINDS}
    rest = {name: value for name, value in table.items() if name not in own}
    return rest | ({"method_settings": own} if own else {})


def _zipped(tables: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every combination of the groups in `zip`."""
    groups = tables.get("zip", [])
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        raise GussError("zip must be written as [[zip]], a table of lists of equal length")
    rows = []
    for group in groups:
        leaves = dict(_leaves(_normal(group)))
        lengths = {".".join(path): len(value) for path, value in leaves.items() if isinstance(value, list)}
        if len(lengths) < len(leaves) or len(set(lengths.values())) != 1:
            found = ", ".join(f"{name} {count}" for name, count in lengths.items()) or "none"
            raise GussError(f"[[zip]] needs lists of equal length; their lengths are: {found}")
        rows.append([_nested(dict(zip(leaves, row, strict=True))) for row in zip(*leaves.values(), strict=True)])
    for chosen in itertools.product(*rows):
        values: dict[str, Any] = {}
        for each in chosen:
            values = merged(values, each)
        yield values


def _written(path: Path_) -> str:
    """The name of a setting as a study writes it."""
    return ".".join(path[path[0] == "method_settings" :])


def _normal(table: dict[str, Any]) -> dict[str, Any]:
    """The table with the model's name in the model's table."""
    model = table.get("model")
    return table if model is None or isinstance(model, dict) else table | {"model": {"name": model}}


def _leaves(table: dict[str, Any], path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Entries of the table and of those of its entries that hold settings."""
    for name, value in table.items():
        if not path and name in ("model", "fit", "method_settings") and isinstance(value, dict):
            yield from _leaves(value, (name,))
        else:
            yield (*path, name), value


def _nested(leaves: dict[Path_, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path, value in leaves.items():
        inner = found if len(path) == 1 else found.setdefault(path[0], {})
        inner[path[-1]] = value
    return found


def _kind(path: Path_, method: str, models: list[str]) -> Any:
    """The type of a setting; None if there is no such setting, which is an error later."""
    if path[0] == "model":
        kinds: dict[str, Any] = {"name": str}
        for model in models or ["dmdn"]:
            kinds = setting_types(model) | kinds
    elif path[0] == "fit":
        kinds = types_of(FitSettings)
    elif path[0] == "method_settings":
        kinds = types_of(declared_settings(method_entry(method).item))
    else:
        kinds = KINDS
    return kinds.get(path[-1])


def _is_swept(kind: Any, value: Any) -> bool:
    """Whether a value is a list of values to sweep, not a value that is a list itself."""
    if not isinstance(value, list) or not value:
        return False
    kinds = [typing.get_origin(each) or each for each in (kind, *typing.get_args(kind))]
    return all(isinstance(each, list) for each in value) if tuple in kinds else True


# -------------------------------------------------------------------------------------------------------------- a run


def _planned(env: str, method: str, values: dict[str, Any], swept: dict[str, Any]) -> PlannedRun:
    """The config of a run, without settings that have no effect on its method."""
    values = dict(values)
    preset, first, seeds = (values.pop(name, None) for name in ("preset", "seed", "seeds"))
    found = find_preset(env) if preset is None else load_preset(convert(preset, str, "preset"))
    model, fit = values.pop("model", {}), values.pop("fit", {})
    model_settings = {name: value for name, value in model.items() if name != "name"}
    tables = {"model_settings": model_settings, "fit": fit, "method_settings": values.pop("method_settings", {})}
    chosen = values | {name: table for name, table in tables.items() if table}
    chosen |= {"model": model["name"]} if "name" in model else {}
    try:
        config = config_without_unused(found, method, env, _seeds(first, seeds), **chosen)
    except GussError as error:
        raise GussError(f"the run {run_name(env, method, swept)}: {error}") from error
    effective = {name: value for name, value in swept.items() if _has_effect(name, config.unused)}
    return PlannedRun(config, effective, tuple(expected_seconds(config).tolist()))


def _has_effect(name: str, unused: Collection[str]) -> bool:
    """Whether a setting, as a study writes it, is none of those without effect."""
    table, _, inner = name.partition(".")
    if table == "model":
        table = "model" if inner == "name" else "model_settings"
    return table not in unused and f"{table}.{inner}" not in unused


def _seeds(first: Any, seeds: Any) -> tuple[int, ...]:
    """The seeds of a run: a list, or their number and the first."""
    if isinstance(seeds, list):
        if first is not None:
            raise GussError("`seed` is the first of a number of seeds, and `seeds` is a list here: leave out `seed`")
        return tuple(seeds)
    for name, value in (("seed", first), ("seeds", seeds)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise GussError(f"{name} must be an integer, got {value!r}")
    return seeds_from(0 if first is None else first, 6 if seeds is None else seeds)
