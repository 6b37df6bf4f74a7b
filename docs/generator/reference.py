"""Tables of settings, from the dataclasses that declare them, and of registered methods, models and environments."""

from __future__ import annotations

import dataclasses
from typing import Any

from docs.generator.parts import part
from guss.envs import ENVS
from guss.methods import METHODS
from guss.methods.settings import AgentSettings, RunSettings
from guss.models import MODELS
from guss.models.settings import CommonSettings, ModelSettings, declared_settings, model_class, settings_class
from guss.models.training import FitSettings
from guss.planners import PLANNERS
from guss.reports.escapes import markdown_table
from guss.validation import field_docs, types_of

OBJECTIVES = {
    "nothing": "–",
    "reward": "reward",
    "cost": "cost, then reward",
    "penalty": "reward − penalty × cost",
}
NESTED = ("method_settings", "model_settings", "fit")
"""Settings with separate tables."""


def settings_table(cls: Any, prefix: str = "", but: tuple[str, ...] = NESTED) -> str:
    """The fields of a dataclass as flags, with defaults and meanings."""
    docs, cells = field_docs(cls), []
    for field in dataclasses.fields(cls):
        if field.name in types_of(cls) and field.name not in but:
            text = docs[field.name].replace("|", "\\|")
            flag = f"`--{prefix}{field.name.replace('_', '-')}`"
            cells.append([flag, default_of(field), text])
    if not cells:
        return "No settings.\n"
    return "\n".join(
        [
            *markdown_table(["flag", "default", "meaning"], cells),
            "",
            "Generated from the source; `guss run --help` shows the values of a preset.",
        ]
    )


def default_of(field: dataclasses.Field[Any]) -> str:
    """A field's default, as on the command line."""
    value = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    if value is dataclasses.MISSING:
        return "required"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return f"`{' '.join(map(str, value))}`" if value else "none"
    return "none" if value is None else f"`{value}`"


RUN_ONLY = tuple(name for name in types_of(RunSettings) if name in types_of(AgentSettings))
part("settings-agent", AgentSettings)(settings_table)
part("settings-run", RunSettings, "", RUN_ONLY)(settings_table)
part("settings-fit", FitSettings, "fit.")(settings_table)
part("settings-model", CommonSettings, "model.")(settings_table)
NETS = tuple(name for name in types_of(CommonSettings))
part("settings-nets", ModelSettings, "model.", NETS)(settings_table)


def settings_of_methods(*names: str) -> str:
    """The settings of one or several methods; rows name the methods if only some have the setting."""
    classes = {name: declared_settings((METHODS if name in METHODS.names() else PLANNERS)[name].item) for name in names}
    if len(names) == 1:
        return settings_table(classes[names[0]], "method.")
    cells = []
    for setting in dict.fromkeys(name for cls in classes.values() for name in types_of(cls)):
        having = {
            n: next(f for f in dataclasses.fields(c) if f.name == setting)
            for n, c in classes.items()
            if setting in types_of(c)
        }
        defaults = {name: default_of(field) for name, field in having.items()}
        same = len(set(defaults.values())) == 1
        default = next(iter(defaults.values())) if same else ", ".join(f"{n}: {d}" for n, d in defaults.items())
        text = next(iter(having.values())).metadata["help"].replace("|", "\\|")
        who = "" if len(having) == len(names) else f" ({', '.join(f'`{name}`' for name in having)})"
        flag = f"`--method.{setting.replace('_', '-')}`{who}"
        cells.append([flag, default, text])
    return "\n".join(
        [
            *markdown_table(["flag", "default", "meaning"], cells),
            "",
            "Generated from the source; `guss run --help` shows the values of a preset.",
        ]
    )


part("settings-guss", "guss", "map-elites", "ps-me")(settings_of_methods)
part("settings-cem", "cem", "rcem", "cce")(settings_of_methods)
part("settings-guss-plus", "guss-plus")(settings_of_methods)
part("settings-icem", "icem", "s-icem")(settings_of_methods)
part("settings-mppi", "mppi", "s-mppi")(settings_of_methods)
part("settings-ppo", "ppo", "ppo-lagrangian")(settings_of_methods)
part("settings-cpo", "trpo", "cpo")(settings_of_methods)
part("settings-sac", "sac", "safe-mbpo")(settings_of_methods)

PAGES = {
    "planners/cce.md": ("cce",),
    "planners/icem.md": ("icem", "s-icem"),
    "planners/mppi.md": ("mppi", "s-mppi"),
    "planners/ps-me.md": ("ps-me",),
    "planners/guss-plus.md": ("guss-plus",),
    "baselines/sac.md": ("sac",),
    "baselines/safe-mbpo.md": ("safe-mbpo",),
    "baselines/ppo.md": ("ppo", "ppo-lagrangian"),
    "baselines/cpo.md": ("trpo", "cpo"),
}


def named(name: str) -> str:
    """A method's name, with a link to its page if there is one."""
    page = next((page for page, names in PAGES.items() if name in names), None)
    return f"`{name}`" if page is None else f"[`{name}`]({page})"


def listed(heads: list[str], cells: list[list[str]]) -> str:
    """A table from a registry."""
    return "\n".join([*markdown_table(heads, cells), "", "Generated from the registry; `guss list` prints the same."])


@part("planners")
def planners() -> str:
    """All bundled planners."""
    cells = [[named(e.name), OBJECTIVES[e.item.objective], e.summary, e.paper] for e in PLANNERS if e.bundled]
    return listed(["name", "ranks plans by", "description", "in the paper"], cells)


@part("methods")
def methods() -> str:
    """All bundled methods that learn a policy."""
    return listed(
        ["name", "description", "in the paper"], [[named(e.name), e.summary, e.paper] for e in METHODS if e.bundled]
    )


@part("environments")
def environments() -> str:
    """All bundled environments."""
    cells = [[f"`{e.name}`", f"`{e.item.gym_id}`", e.summary, e.paper] for e in ENVS if e.bundled]
    return listed(["name", "Gymnasium id", "description", "in the paper"], cells)


@part("models")
def models() -> str:
    """All bundled models, and the table of their settings."""
    tables = {ModelSettings: "all models, networks", CommonSettings: "all models"}
    cells = []
    for e in MODELS:
        if e.bundled:
            kind = tables[settings_class(model_class(e.name))] if model_class(e.name).learns() else "none"
            cells.append([f"`{e.name}`", e.summary, kind, e.paper])
    return listed(["name", "description", "settings", "in the paper"], cells)
