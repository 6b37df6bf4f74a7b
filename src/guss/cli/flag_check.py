"""Checks the words of a command before tyro parses them, so that each mistake is an error of one line."""

from __future__ import annotations

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tyro.conf import Positional

from guss.cli.settings_flags import PREFIXES
from guss.errors import GussError

BOOLEANS = ("true", "false", "yes", "no", "on", "off")
TYPES = {
    int: ("an integer", "integers"),
    float: ("a number", "numbers"),
    str: ("a name", "names"),
    Path: ("a path", "paths"),
}
TABLES = {prefix: table for table, prefix in PREFIXES.items()}


class Flag(NamedTuple):
    """A flag of a command."""

    path: str
    """The field that it sets, such as `horizon` or `model_settings.hidden`."""
    kind: Any
    """The type of the field."""
    default: Any


class Given(NamedTuple):
    """A flag on the command line."""

    word: str
    """As typed, without a value behind `=`."""
    values: list[str]


def flags_of(command: Any, prefix: str = "", table: str = "") -> dict[str, Flag]:
    """Every flag of a command, by name."""
    found: dict[str, Flag] = {}
    kinds = typing.get_type_hints(command, include_extras=True)
    for field in dataclasses.fields(command):
        factory = field.default_factory
        value = field.default if factory is dataclasses.MISSING else factory()
        if dataclasses.is_dataclass(value) and field.name == "settings":
            found |= flags_of(value)
        elif dataclasses.is_dataclass(value):
            found |= flags_of(value, f"{prefix}{PREFIXES.get(field.name, field.name)}.", f"{table}{field.name}.")
        elif not _is_positional(kinds[field.name]):
            flag = Flag(f"{table}{field.name}", _without_annotations(kinds[field.name]), value)
            dashed = field.name.replace("_", "-")
            for name in (dashed, f"no-{dashed}") if flag.kind is bool else (dashed,):
                found[f"--{prefix}{name}"] = flag
    return found


def check_flags(words: list[str], command: Any, prog: str) -> frozenset[str]:
    """The fields that the words set. Raises GussError for an unknown flag, one without effect, or a bad value."""
    flags, given, useless = flags_of(command), list[str](), dict[str, list[str]]()
    has_positionals = any(map(_is_positional, typing.get_type_hints(command, include_extras=True).values()))
    for word, values in _given(words[1:]):
        name = word.replace("_", "-")
        if name in ("-h", "--help") or name.startswith("--tyro-"):
            continue
        if not name:
            if not has_positionals:
                raise GussError(f"{prog} takes flags only, which start with --; got {' '.join(values)!r}")
        elif name in flags:
            flag = flags[name]
            if flag.path in given and isinstance(flag.default, tuple):  # tyro takes the last
                raise GussError(f"{name} is given more than once; give it once, with all values after it: {name} A B")
            given.append(flag.path)
            _check_values(prog, name, flag, values, has_positionals)
        elif (reason := _why_unused(name, getattr(command, "unused", {}))) is not None:
            useless.setdefault(reason, []).append(name)
        else:
            near = difflib.get_close_matches(name, flags, n=3, cutoff=0.7)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise GussError(f"{prog} has no flag {word}: {hint}`{prog} --help` lists all")
    if useless:
        each = (f"{', '.join(dict.fromkeys(names))} ({reason})" for reason, names in useless.items())
        raise GussError(f"{prog}: leave out flags that have no effect here: {'; '.join(each)}")
    return frozenset(given)


def _given(words: list[str]) -> Iterator[Given]:
    """Flags with the words after them up to the next flag; words before the first flag have an empty one."""
    found = [Given("", [])]
    for word in words:
        if word == "--":
            break
        if re.match(r"-(?!\d|\.|inf$|nan$)", word):
            name, equals, value = word.partition("=")
            found.append(Given(name, [value] if equals else []))
        else:
            found[-1].values.append(word)
    yield from found if found[0].values else found[1:]


def _why_unused(name: str, unused: Mapping[str, str]) -> str | None:
    """Why a flag has no effect, if its field or its table is among the `unused`."""
    *tables, last = name.removeprefix("--").replace("-", "_").split(".")
    tables = [TABLES.get(each, each) for each in tables]
    paths = [".".join([*tables, each]) for each in (last, last.removeprefix("no_"))]
    return next((unused[path] for path in (*tables[:1], *paths) if path in unused), None)


# ------------------------------------------------------------------------------------------------------------- values


def _check_values(prog: str, name: str, flag: Flag, values: list[str], positionals_follow: bool) -> None:
    if flag.kind is bool:
        prefix, field = name[: name.rfind(".") + 1] or "--", flag.path.rpartition(".")[2].replace("_", "-")
        if values and not (positionals_follow and values[0].lower() not in BOOLEANS):
            way = f"write {prefix}{field} or {prefix}no-{field}"
            raise GussError(f"{prog}: {name} takes no value: {way}; got {values[0]!r}")
        return
    used = values[:1] if positionals_follow and not _is_list(flag.kind) else values
    if _accepts(flag.kind, used):
        return
    got = repr(" ".join(used)) if used else "no value"
    near = difflib.get_close_matches(" ".join(used), _choices(flag.kind), n=1)
    hint = f". Did you mean {near[0]!r}?" if near else ""
    raise GussError(f"{prog}: {name} takes {_expected(name, flag)}; got {got}{hint}")


def _accepts(kind: Any, values: list[str]) -> bool:
    """Whether tyro can convert the words to the type."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return any(_accepts(part, values) for part in parts)
    if origin is tuple and parts[-1] is Ellipsis:
        return all(_accepts(parts[0], [value]) for value in values)
    if origin is tuple:
        return len(values) == len(parts) and all(map(_accepts, parts, ([value] for value in values)))
    if origin is dict:
        pairs = zip(values[::2], values[1::2], strict=False)
        return len(values) % 2 == 0 and all(_accepts(parts[0], [a]) and _accepts(parts[1], [b]) for a, b in pairs)
    if len(values) != 1:
        return False
    if origin is Literal:
        return values[0] in map(str, parts)
    if kind is types.NoneType:
        return values[0] == "None"
    if kind in (int, float):
        try:
            kind(values[0])
        except ValueError:
            return False
    return True


def _expected(name: str, flag: Flag) -> str:
    """The type of a flag's value, with an example."""
    default = flag.default
    texts, examples = [], []
    for kind in typing.get_args(flag.kind) if _is_union(flag.kind) else (flag.kind,):
        origin, parts = typing.get_origin(kind), typing.get_args(kind)
        one, many = TYPES.get(parts[0] if origin is tuple else kind, ("a value", "values"))
        if origin is Literal:
            texts.append("one of " + ", ".join(map(str, parts)))
        elif origin is tuple:
            texts.append(f"{many} separated by spaces")
            examples.append(" ".join(map(str, default)) if isinstance(default, tuple) and len(default) > 1 else "")
            examples[-1] = examples[-1] or ("3 4" if parts[0] in (int, float) else "A B")
        elif origin is dict:
            texts.append("names and numbers")
            examples.append("a 0.1 b 0.2")
        elif kind is types.NoneType:
            texts.append("None")
        else:
            texts.append(one)
            plain = isinstance(default, int | float | str) and not isinstance(default, bool)
            examples += [str(default)] if plain and str(default) else {int: ["10"], float: ["0.5"]}.get(kind, [])
    such_as = " or ".join(f"{name} {each}" for each in examples)
    return " or ".join(texts) + (f", such as {such_as}" if such_as else "")


def _choices(kind: Any) -> list[str]:
    return [str(part) for part in typing.get_args(kind)] if typing.get_origin(kind) is Literal else []


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (typing.Union, types.UnionType)


def _is_list(kind: Any) -> bool:
    """Whether a flag of this type takes several values."""
    return typing.get_origin(kind) in (tuple, dict) or (_is_union(kind) and any(map(_is_list, typing.get_args(kind))))


def _is_positional(kind: Any) -> bool:
    return Positional in getattr(kind, "__metadata__", ())


def _without_annotations(kind: Any) -> Any:
    return kind.__origin__ if hasattr(kind, "__metadata__") else kind
