"""Registries of planners, methods, environments and models, filled by decorators and entry points.

Another package adds entries in its `pyproject.toml`:

    [project.entry-points."guss.planners"]
    my-planner = "my_package.my_planner:MyPlanner"
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from inspect import get_annotations
from typing import Any, Generic, TypeVar

from guss.errors import GussError, UnknownNameError
from guss.usercode import user_code_allowed

T = TypeVar("T")


@dataclass(frozen=True)
class Entry(Generic[T]):
    """An entry of a registry: name, item, one-line summary, section of the paper, and the module that registered it."""

    name: str
    item: T
    summary: str
    paper: str
    origin: str

    @property
    def bundled(self) -> bool:
        """Whether it is part of guss."""
        return self.origin.partition(".")[0] == "guss"


def undefined_attributes(item: object) -> list[str]:
    """Class attributes that the bases of a class declare (`name: ClassVar[...]`) and that have no value."""
    declared = {name: hint for base in getattr(item, "__mro__", ()) for name, hint in get_annotations(base).items()}
    return [name for name, hint in declared.items() if "ClassVar[" in str(hint) and not hasattr(item, name)]


class Registry(Generic[T]):
    """A table of names. `modules` are imported, and entry points of `group` loaded, on first use.

    Where user code must not run (`guss.usercode`), it contains only bundled items.
    """

    def __init__(self, kind: str, group: str, modules: tuple[str, ...]) -> None:
        self.kind = kind
        self._group = group
        self._modules = modules
        self._entries: dict[str, Entry[T]] = {}
        self._loaded = self._extended = False

    def add(self, name: str, item: T, *, summary: str, paper: str = "", origin: str | None = None) -> None:
        """Register `item`. A name can be registered once, except again by the same module, as after a reload."""
        if not name or name != name.lower() or "_" in name or " " in name:
            raise GussError(f"a {self.kind} name must be lower case with dashes, such as 's-rs', got {name!r}")
        if missing := [*getattr(item, "__abstractmethods__", ()), *undefined_attributes(item)]:
            owner = getattr(item, "__name__", item)
            raise GussError(f"{self.kind} {name!r}: class {owner} must define {', '.join(sorted(missing))}")
        origin = origin or str(getattr(item, "__module__", "?"))
        taken = self._entries.get(name)
        if taken is not None and taken.origin != origin:
            raise GussError(f"{self.kind} {name!r} is already registered by {taken.origin}; choose another name")
        self._entries[name] = Entry(name, item, summary, paper, origin)

    def register(self, name: str, *, summary: str = "", paper: str = "") -> Callable[[Any], Any]:
        """Decorator that registers a class by name, so that commands and Python find it.

        `name`: lower case with dashes. `summary`: one line for `guss list`, by default the first line of the docstring.
        `paper`: the section that describes it. Returns a decorator, which returns the class unchanged. Raises GussError
        if the name is malformed or taken by another module, or the class lacks required methods or attributes.

        Example:
            >>> from guss.planners.rs import RandomShooting
            >>> @guss.register_planner("long-steps")
            ... class LongSteps(RandomShooting):
            ...     '''Random shooting; `examples/own_planner.py` is a planner from scratch.'''
        """

        def decorate(item: Any) -> Any:
            first_line = (item.__doc__ or "").strip().split("\n")[0]
            self.add(name, item, summary=summary or first_line, paper=paper)
            return item

        return decorate

    def _load(self) -> dict[str, Entry[T]]:
        if not self._loaded:
            self._loaded = True
            for module in self._modules:
                importlib.import_module(module)
            order = {module: place for place, module in enumerate(self._modules)}  # not the order of imports
            ours = sorted(self._entries.items(), key=lambda item: order.get(item[1].origin, len(order)))
            self._entries = dict(ours)
        if not user_code_allowed():
            return {name: entry for name, entry in self._entries.items() if entry.bundled}
        if not self._extended:
            self._extended = True
            self._load_entry_points()
        return self._entries

    def _load_entry_points(self) -> None:
        for point in entry_points(group=self._group):
            try:
                item = point.load()
            except Exception as error:
                raise GussError(
                    f"the {self.kind} {point.name!r} of entry point {point.value!r} cannot be imported: "
                    f"{type(error).__name__}: {error}. Fix or uninstall the package that declares it."
                ) from error
            if point.name not in self._entries:
                first_line = (getattr(item, "__doc__", "") or "").strip().split("\n")[0]
                self.add(point.name, item, summary=first_line)

    def __getitem__(self, name: str) -> Entry[T]:
        known = self._load()
        if not isinstance(name, str):
            raise GussError(f"a {self.kind} must be given by its name, got {name!r} ({type(name).__name__})")
        if name not in known:
            raise UnknownNameError(self.kind, name, known)
        return known[name]

    def __iter__(self) -> Iterator[Entry[T]]:
        return iter(list(self._load().values()))

    def names(self) -> list[str]:
        """All names, in the order they were registered."""
        return [entry.name for entry in self]
