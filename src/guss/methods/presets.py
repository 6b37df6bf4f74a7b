"""Settings of a method from a preset: the tables of a TOML file.

env = "safe-pendulum"
horizon = 12                  # any setting of a run

[model]
name = "dmdn"
ensemble = 5                  # settings of the model

[fit]
max_steps = 4000              # how it is trained

[methods.cem]
horizon = 10                  # settings that differ for one method,
num_elites = 20               # and settings of the method itself
fit = { max_steps = 2000 }
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar, get_args

from guss.errors import UnknownNameError
from guss.methods import METHODS, check_method, method_entry
from guss.methods.settings import NESTED, AgentSettings, RunSettings
from guss.models.settings import setting_types, settings_for
from guss.models.training import FitSettings
from guss.task import Task
from guss.types import settings_of
from guss.validation import build, checked, convert, types_of

T = TypeVar("T", bound=AgentSettings)
UNKNOWN_EPISODES = 3
"""Random episodes at the start if the reward is learned: the data must have safe steps, too."""
_TABLES = {"model": dict[str, Any], "fit": dict[str, Any], "methods": dict[str, dict[str, Any]]}
_PLAIN = {name: kind for name, kind in types_of(RunSettings).items() if name not in ("method", "model", *NESTED)}


def checked_preset(preset: Any) -> dict[str, Any]:
    """A preset, whose entries are converted to their types; unknown or invalid entries raise GussError."""
    found = checked(_PLAIN | _TABLES, preset, "preset", "the preset")
    for name in found.get("methods", {}):
        check_method(name)
    return found


def preset_for(preset: Any, task: Task) -> dict[str, Any]:
    """A preset with more random episodes at the start, if the reward is learned and the preset does not set them."""
    more = {"initial_episodes": UNKNOWN_EPISODES} if "reward" in task.unknown else {}
    return more | checked_preset(preset)


def settings_from(cls: type[T], preset: Any, method: str, **chosen: Any) -> T:
    """Settings of a method from a preset; `chosen` settings override it, and None only if a setting may be None.

    A policy has its own defaults, and no margin for plans. `method_settings`, `model_settings` and `fit` in `chosen`
    are dicts of settings.
    """
    cls_of_method = method_entry(method).item  # before anything else
    preset, names = checked_preset(preset), types_of(cls)
    for name in chosen:
        if name not in names:
            raise UnknownNameError("setting", name, names)
    optional = {name for name, kind in names.items() if type(None) in get_args(kind)}
    chosen = {name: value for name, value in chosen.items() if value is not None or name in optional}
    declared = settings_of(cls_of_method)
    defaults = {"planning_margin": 0.0} | cls_of_method.defaults if method in METHODS.names() else {}
    layers = [preset, defaults, preset.get("methods", {}).get(method, {})]
    models = [_table(layer.get("model"), f"preset.methods.{method}.model") for layer in layers]
    models += [{"name": chosen["model"]} if "model" in chosen else {}, _table(chosen.get("model_settings"), "model")]
    model, model_settings = _model(models, cls.model)
    fit = {name: value for layer in (*layers, chosen) for name, value in _table(layer.get("fit"), "fit").items()}
    own = {name: value for layer in layers[1:] for name, value in layer.items() if name not in ("model", "fit")}
    shared = {name: own.pop(name) for name in _PLAIN if name in own and name != "env" and name not in declared}
    values = {name: value for name, value in (preset | shared).items() if name in _PLAIN and name in names} | chosen
    return build(
        cls,
        values
        | {
            "method": method,
            "method_settings": own | _table(chosen.get("method_settings"), f"methods.{method}"),
            "model": model,
            "model_settings": settings_for(model, model_settings, "model"),
            "fit": build(FitSettings, fit, "fit"),
        },
        "settings",
    )


def _model(tables: Iterable[dict[str, Any]], name: str) -> tuple[str, dict[str, Any]]:
    """The model that the dicts name, and its settings; later dicts override earlier ones.

    If a dict names another model, earlier settings that this model does not have are dropped.
    """
    found: dict[str, Any] = {}
    for table in tables:
        name = convert(table.get("name", name), str, "settings.model")
        kinds = setting_types(name)
        own = {key: value for key, value in table.items() if key != "name"}
        found = {key: value for key, value in found.items() if key in kinds} | checked(kinds, own, "model")
    return name, found


def _table(values: Any, what: str) -> dict[str, Any]:
    """A dict of settings; None: an empty dict."""
    return {} if values is None else convert(values, dict[str, Any], what)
