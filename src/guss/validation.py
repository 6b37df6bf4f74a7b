"""Converts plain values (TOML, JSON, flags, arguments) to the types of a dataclass; errors name the entry.

build(FitSettings, {"batch": "50"}, "fit")      GussError: fit.batch must be an integer, got '50' (str)

Integers are accepted as floats, lists as tuples, NumPy scalars as numbers; `True` is not a number. Numbers must be
finite, and integers must fit 32 bits, as in compiled programs. Each dataclass checks its own ranges.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import math
import numbers
import reprlib
import textwrap
import types
import typing
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from guss.errors import GussError, UnknownNameError

T = TypeVar("T")
MAX_INT = 2**31 - 1
MAX_SECONDS = 1e8
WORDS: dict[Any, str] = {
    int: "an integer",
    float: "a finite number",
    bool: "true or false",
    str: "text",
    types.NoneType: "none",
}
PLURALS = {int: "integers", float: "finite numbers", bool: "true or false", str: "texts"}


def types_of(cls: Any) -> dict[str, Any]:
    """The types of a dataclass's fields by name."""
    return _types_of(cls)


@functools.cache
def _types_of(cls: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}


@functools.cache
def field_docs(cls: Any) -> dict[str, str]:
    """Documentation of a dataclass's fields: `metadata["help"]`, or the text below the field in its source."""
    found: dict[str, str] = {}
    for base in reversed([each for each in cls.__mro__ if dataclasses.is_dataclass(each)]):
        found |= {field.name: field.metadata["help"] for field in dataclasses.fields(base) if "help" in field.metadata}
        if all(field.name in found for field in dataclasses.fields(base)):
            continue
        try:
            source = inspect.getsource(typing.cast(type, base))
        except OSError:  # a class that was not read from a file
            continue
        (tree,) = ast.parse(textwrap.dedent(source)).body
        for line, text in pairwise(getattr(tree, "body", ())):
            if isinstance(line, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                found[ast.unparse(line.target)] = " ".join(str(text.value.value).split())
    return found


def changed_fields(instance: Any) -> dict[str, Any]:
    """Fields of a dataclass that differ from their defaults; nested dataclasses as tables."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(instance):
        value, default = getattr(instance, field.name), field.default
        if dataclasses.is_dataclass(value):
            value, default = changed_fields(value), {}
        if value != default:
            found[field.name] = value
    return found


def build(cls: type[T], values: Any, what: str) -> T:
    """The dataclass from a table of plain values; `what` names the table in errors."""
    table = checked(types_of(cls), values, what)
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in table:
            raise GussError(f"{what}.{field.name} is missing; it must be {type_text(types_of(cls)[field.name])}")
    return cls(**table)


def checked(
    kinds: Mapping[str, Any], values: Any, what: str, title: str | None = None, required: Iterable[str] = ()
) -> dict[str, Any]:
    """A table of plain values, each converted to its type in `kinds`; `title` describes the table in errors.

    `required`: entries that a table written by guss always has.
    """
    if not isinstance(values, Mapping):
        raise GussError(f"{what} must be a table of settings, got {received(values)}")
    for name in values:
        if not isinstance(name, str) or name not in kinds:
            raise UnknownNameError(f"setting of {title or what}", str(name), kinds)
    if missing := [name for name in required if name not in values]:
        raise GussError(f"{what} has no {', '.join(missing)}; it was not written by guss, or is damaged")
    return {name: convert(value, kinds[name], f"{what}.{name}") for name, value in values.items()}


def check_fields(instance: Any, what: str) -> None:
    """Check and convert every field of a frozen dataclass, in its `__post_init__`."""
    for name, kind in types_of(type(instance)).items():
        object.__setattr__(instance, name, convert(getattr(instance, name), kind, f"{what}.{name}"))


def convert(value: Any, kind: Any, entry: str) -> Any:
    """`value` converted to that type; `entry` names it in errors, such as `model.hidden[1]`."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _one_of(value, kind, entry)
    if origin is typing.Literal:
        if isinstance(value, str) and value not in arguments:
            raise UnknownNameError(f"value of {entry}", value, map(str, arguments))
        if value in arguments:
            return value
    elif origin is tuple and isinstance(value, list | tuple):
        if arguments[-1] is not Ellipsis and len(value) != len(arguments):
            raise GussError(f"{entry} must have {len(arguments)} entries, got {received(value)}")
        each = arguments if arguments[-1] is not Ellipsis else [arguments[0]] * len(value)
        return tuple(convert(v, k, f"{entry}[{i}]") for i, (v, k) in enumerate(zip(value, each, strict=True)))
    elif origin is dict and isinstance(value, Mapping):
        if wrong := [name for name in value if not isinstance(name, str)]:
            raise GussError(f"{entry} must have names as keys, got {received(wrong[0])}")
        return {name: convert(each, arguments[1], f"{entry}.{name}") for name, each in value.items()}
    elif dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return value if isinstance(value, kind) else build(kind, value, entry)
    elif kind in WORDS and _is(value, kind):
        return _plain(value, kind, entry)
    raise GussError(f"{entry} must be {type_text(kind)}, got {received(value)}")


def _is(value: Any, kind: Any) -> bool:
    if kind is bool:
        return isinstance(value, bool | np.bool_)
    if kind in (int, float):
        wanted = numbers.Integral if kind is int else numbers.Real
        return isinstance(value, wanted) and not isinstance(value, bool | np.bool_)
    return isinstance(value, kind)


def _plain(value: Any, kind: Any, entry: str) -> Any:
    if kind is int and abs(int(value)) > MAX_INT:
        raise GussError(f"{entry} must be an integer of 32 bits, at most {MAX_INT}, got {received(value)}")
    if kind is float and not math.isfinite(_as_float(value)):
        raise GussError(f"{entry} must be a finite number, got {received(value)}")
    return None if value is None else kind(value)


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _one_of(value: Any, kind: Any, entry: str) -> Any:
    problems = []
    for each in typing.get_args(kind):
        try:
            return convert(value, each, entry)
        except GussError as error:
            problems.append(error)
    inside = [error for error in problems if not str(error).startswith(f"{entry} must be ")]
    if inside:
        raise inside[0]
    raise GussError(f"{entry} must be {type_text(kind)}, got {received(value)}")


def check_ranges(instance: Any, what: str, **ranges: str) -> None:
    """Raise GussError for fields outside their interval, such as `gamma="[0, 1]"` or `rate="(0, inf)"`.

    Every entry of a tuple or a table is checked; None is accepted.
    """
    for name, interval in ranges.items():
        value = getattr(instance, name)
        parts = list(value.values()) if isinstance(value, Mapping) else value
        entries = np.asarray([] if parts is None else parts, float)
        low, high = map(float, interval[1:-1].split(","))
        above = entries >= low if interval[0] == "[" else entries > low
        below = entries <= high if interval[-1] == "]" else entries < high
        if not (above & below).all():
            least = f"at least {low:g}" if interval[0] == "[" else f"more than {low:g}"
            most = f"at most {high:g}" if interval[-1] == "]" else f"less than {high:g}"
            wanted = least if high == math.inf else f"{least} and {most}"
            raise GussError(f"{what}.{name} must be {wanted}, got {received(value)}")


def type_text(kind: Any) -> str:
    """A type as text for errors."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_text(each) for each in arguments)
    if origin is typing.Literal:
        return "one of " + ", ".join(map(repr, arguments))
    if origin is tuple:
        return f"a list of {PLURALS.get(arguments[0], 'entries')}"
    if origin is dict or kind is dict or dataclasses.is_dataclass(kind):
        return "a table"
    return WORDS.get(kind, getattr(kind, "__name__", str(kind)))


def received(value: Any) -> str:
    """A received value and its type, short enough for a line."""
    if isinstance(value, int) and abs(value) > 2**64:
        return f"a number of {value.bit_length()} bits"
    return f"{reprlib.repr(value)} ({type(value).__name__})"


def plain(values: Any) -> Any:
    """Numbers for JSON, rounded; non-finite numbers become None."""
    return finite(np.asarray(values, float).round(5).tolist())


def finite(value: Any) -> Any:
    """Plain data without numbers that are not finite: they become None, as JSON needs."""
    if isinstance(value, dict):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check_seconds(value: Any, what: str) -> float:
    """Check a timeout, which must be one that threads can wait for."""
    seconds = convert(value, float, what)
    if not 0.0 < seconds <= MAX_SECONDS:
        raise GussError(f"{what} must be a number of seconds, more than 0 and at most {MAX_SECONDS:g}, got {value}")
    return seconds


def check_seed(seed: Any, what: str = "the seed") -> int:
    """Check a seed: random keys need 32-bit integers, and environments reject negative ones."""
    if not _is(seed, int) or not 0 <= int(seed) <= MAX_INT:
        raise GussError(f"{what} must be an integer from 0 to {MAX_INT}, got {received(seed)}")
    return int(seed)
