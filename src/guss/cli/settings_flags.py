"""Flags of settings: one for each field of the dataclasses that declare them, typed for the chosen method and model.

`guss run --method cem --help` shows the settings of CEM, such as `--method.num-elites`; their defaults are the values
of the preset.
"""

from __future__ import annotations

import argparse
import dataclasses
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple

from tyro.conf import Suppress, arg

PREFIXES = {"method_settings": "method", "model_settings": "model"}
"""Prefixes of flags of nested settings that differ from the name of the field."""


class Defaults(NamedTuple):
    """The settings of a command without flags."""

    settings: Any
    """The values, as a dataclass."""
    names: tuple[str, ...]
    """The fields that have flags."""
    unused: Mapping[str, str] = types.MappingProxyType({})
    """Fields without effect, such as `fit` or `model_settings.hidden`, with the reason: they have no flags."""


@dataclasses.dataclass(kw_only=True)
class SettingsCommand(ABC):
    """A command with flags for settings. A subclass defines their defaults for the names on the command line."""

    settings: Annotated[Any, Suppress] = None
    """The values of all settings: a dataclass that `typed` makes."""
    given: Annotated[frozenset[str], Suppress] = frozenset()
    """Fields that the command line sets, such as `horizon`, `model_settings.hidden` or `out`."""
    unused: ClassVar[Mapping[str, str]] = {}
    """Settings without effect, with the reason."""

    @classmethod
    @abstractmethod
    def defaults(cls, named: argparse.Namespace) -> Defaults:
        """The settings without flags."""

    @classmethod
    def typed(cls, words: list[str]) -> type[SettingsCommand]:
        """The command with a flag for each setting of the method and the model in `words`."""
        from guss.cli.options import prepare

        named = named_in(words)
        prepare(tuple(named.plugin))
        settings, names, unused = cls.defaults(named)
        flags = flags_for(settings, names, unused)
        field = ("settings", Annotated[flags, arg(name="")], dataclasses.field(default_factory=flags))
        namespace = {"__doc__": cls.__doc__, "unused": unused}
        return dataclasses.make_dataclass(cls.__name__, [field], bases=(cls,), kw_only=True, namespace=namespace)

    @property
    def chosen(self) -> dict[str, Any]:
        """The settings that the command line sets: `{"horizon": 5, "fit": {"batch": 10}}`."""
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
    """The names in `words` that decide which settings exist: environment, preset, methods, model and plugins."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("env", "preset", "method", "model"):
        parser.add_argument(f"--{name}", nargs="?")
    for name in ("plugin", "against"):
        parser.add_argument(f"--{name}", nargs="*", default=[])
    return parser.parse_known_args(words)[0]


def flags_for(settings: Any, names: Iterable[str], unused: Collection[str] = ()) -> type[Any]:
    """A dataclass with a field for each of the named settings that is used; its defaults are those of `settings`.

    tyro converts words to the types; the settings themselves check the values.
    """
    from guss.validation import field_docs, types_of

    cls: Any = type(settings)
    kinds, docs, fields = types_of(cls), field_docs(cls), list[tuple[str, Any, Any]]()
    for name in names:
        if name in unused:
            continue
        value = getattr(settings, name)
        hint: dict[str, Any] = {"help_behavior_hint": "(default: none)"} if value == () else {}
        kind: Any = Annotated[kinds[name], arg(help=docs.get(name, ""), metavar=metavar(kinds[name]), **hint)]
        if dataclasses.is_dataclass(value):
            inner = [path.removeprefix(f"{name}.") for path in unused if path.startswith(f"{name}.")]
            nested = flags_for(value, types_of(type(value)), inner)
            kind, value = Annotated[nested, arg(name=PREFIXES.get(name, name))], nested()
        fields.append((name, kind, dataclasses.field(default_factory=lambda value=value: value)))  # type: ignore[misc]
    return dataclasses.make_dataclass("Settings", fields, namespace={"__doc__": cls.__doc__})


def metavar(kind: Any) -> str | None:
    """What the help shows for a value of several types, such as `INT|None`; None: the text of tyro."""
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return None
    names = {int: "INT", float: "FLOAT", str: "STR", types.NoneType: "None"}
    parts = ["NAME FLOAT ..." if typing.get_origin(part) is dict else names.get(part) for part in typing.get_args(kind)]
    return "|".join(map(str, parts)) if all(parts) else None


def merged(settings: list[Any], names: tuple[str, ...]) -> Defaults:
    """The settings of several methods: each from the first that uses it; unused are those that none of them uses."""
    first, *others = settings
    unused: dict[str, str] = {}
    for path in dict.fromkeys(path for each in settings for path in each.unused):
        reasons = [each.unused.get(path, each.unused.get(path.partition(".")[0])) for each in settings]
        if all(reasons) or (path == "method_settings" and reasons[0]):  # --method.* are of the first method
            unused[path] = ", ".join(dict.fromkeys(reason for reason in reasons if reason))
    from_others = {
        name: getattr(next(each for each in others if name not in each.unused), name)
        for name in names
        if name in first.unused and name not in unused
    }
    return Defaults(dataclasses.replace(first, **from_others), names, unused)


def as_flags(paths: Iterable[str]) -> str:
    """Fields such as `model_settings.hidden` as flags."""
    parts = ([PREFIXES.get(part, part) for part in path.split(".")] for path in paths)
    return ", ".join("--" + ".".join(each).replace("_", "-") for each in parts)
