"""Flags of settings: one for each field of the dataclasses that declare them, typed for the chosen method and model.

`guss run --method cem --help` shows the settings of CEM, as `--method.num-elites`, with the values of the preset as
their defaults.
"""

from __future__ import annotations

import argparse
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Annotated, Any

from tyro.conf import Suppress, arg

PREFIXES = {"method_settings": "method", "model_settings": "model"}
"""What flags of nested settings begin with, if not with the name of the field."""


@dataclasses.dataclass(kw_only=True)
class SettingsCommand(ABC):
    """A command with flags for settings. A subclass says what their defaults are, given the words of the command."""

    settings: Annotated[Any, Suppress] = None
    """The values of all settings: a dataclass that `typed` makes."""
    given: Annotated[frozenset[str], Suppress] = frozenset()
    """Fields that the command line names, such as `horizon`, `model_settings.hidden` or `out`."""

    @classmethod
    @abstractmethod
    def defaults(cls, named: argparse.Namespace) -> tuple[Any, Iterable[str]]:
        """The settings as they are without flags, and the names of those that have one."""

    @classmethod
    def typed(cls, words: list[str]) -> type[SettingsCommand]:
        """The command with a flag for every setting that the method and the model in `words` have."""
        from guss.cli.options import prepare

        named = named_in(words)
        prepare(tuple(named.plugin))
        flags = flags_for(*cls.defaults(named))
        field = ("settings", Annotated[flags, arg(name="")], dataclasses.field(default_factory=flags))
        typed = dataclasses.make_dataclass(cls.__name__, [field], bases=(cls,), kw_only=True)
        typed.__doc__ = cls.__doc__
        return typed

    @property
    def chosen(self) -> dict[str, Any]:
        """The settings that the command line names: `{"horizon": 5, "fit": {"batch": 10}}`."""
        found: dict[str, Any] = {}
        for path in sorted(self.given):
            *tables, name = path.split(".")
            if not hasattr(self.settings, (*tables, name)[0]):
                continue  # a flag of the command
            here, value = found, self.settings
            for table in tables:
                here, value = here.setdefault(table, {}), getattr(value, table)
            here[name] = getattr(value, name)
        return found


def named_in(words: list[str]) -> argparse.Namespace:
    """What decides which settings there are: the environment, preset, method, model and plugins that `words` name."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("env", "preset", "method", "model"):
        parser.add_argument(f"--{name}", nargs="?")
    parser.add_argument("--plugin", nargs="*", default=[])
    return parser.parse_known_args(words)[0]


def flags_for(settings: Any, names: Iterable[str]) -> type[Any]:
    """A dataclass with a field for each of the named settings; the defaults are the values of `settings`.

    Values are not checked here: tyro converts words to the types, and the settings themselves say what makes sense.
    """
    from guss.validation import field_docs, types_of

    cls: Any = type(settings)
    kinds, docs, fields = types_of(cls), field_docs(cls), list[tuple[str, Any, Any]]()
    for name in names:
        value = getattr(settings, name)
        kind: Any = Annotated[kinds[name], arg(help=docs.get(name, ""))]
        if dataclasses.is_dataclass(value):
            nested = flags_for(value, types_of(type(value)))
            kind, value = Annotated[nested, arg(name=PREFIXES.get(name, name))], nested()
        fields.append((name, kind, dataclasses.field(default_factory=lambda value=value: value)))  # type: ignore[misc]
    return dataclasses.make_dataclass("Settings", fields, namespace={"__doc__": cls.__doc__})


def flags_of(command: Any, prefix: str = "", table: str = "") -> dict[str, tuple[str, Any]]:
    """Every flag of a command: the field that it sets, and its default."""
    found: dict[str, tuple[str, Any]] = {}
    for field in dataclasses.fields(command):
        factory = field.default_factory
        value = field.default if factory is dataclasses.MISSING else factory()
        if dataclasses.is_dataclass(value) and field.name == "settings":
            found |= flags_of(value)
        elif dataclasses.is_dataclass(value):
            found |= flags_of(value, f"{prefix}{PREFIXES.get(field.name, field.name)}.", f"{table}{field.name}.")
        else:
            dashed = field.name.replace("_", "-")
            for flag in (dashed, f"no-{dashed}") if isinstance(value, bool) else (dashed,):
                found[f"--{prefix}{flag}"] = (f"{table}{field.name}", value)
    return found


def as_flags(paths: Iterable[str]) -> str:
    """Fields such as `model_settings.hidden` as flags."""
    parts = ([PREFIXES.get(part, part) for part in path.split(".")] for path in paths)
    return ", ".join("--" + ".".join(each).replace("_", "-") for each in parts)
