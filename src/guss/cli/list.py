"""`guss list`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from guss.cli.options import Plugins, prepare, print_results

if TYPE_CHECKING:
    from rich.console import Console


@dataclass
class ListCommand:
    """List planners, other methods, environments and models, with their section in the paper.

    guss list --settings
    """

    json: bool = False
    """Print JSON instead of tables."""
    settings: bool = False
    """Also list all settings, with their defaults."""
    plugin: Plugins = ()

    def run(self) -> None:
        prepare(self.plugin)
        from guss.envs import ENVS
        from guss.methods import METHODS
        from guss.methods.settings import NESTED, RunSettings
        from guss.models import MODELS
        from guss.models.settings import declared_settings, settings_class
        from guss.models.training import FitSettings
        from guss.planners import PLANNERS

        def entries(registry: Any, more: Any) -> list[dict[str, Any]]:
            return [
                {"name": e.name, "summary": e.summary, "paper": e.paper, "origin": e.origin} | more(e.item)
                for e in registry
            ]

        def declared(item: Any) -> dict[str, Any]:
            return {"settings": settings_table(declared_settings(item))}

        found: dict[str, Any] = {
            "planners": entries(PLANNERS, lambda item: {"objective": item.objective} | declared(item)),
            "methods": entries(METHODS, declared),
            "environments": entries(ENVS, lambda item: {"gym_id": item.gym_id}),
            "models": entries(MODELS, lambda item: {"settings": settings_table(settings_class(item))}),
        }
        shared = {"run": settings_table(RunSettings, NESTED), "fit": settings_table(FitSettings)}
        print_results(
            found | {"settings": shared}, self.json, False, lambda console: self._print(console, found, shared)
        )

    def _print(self, console: Console, found: dict[str, Any], shared: dict[str, Any]) -> None:
        """Print a table of each kind of entries, and of the settings of all runs."""
        from rich.table import Column, Table

        def show(title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
            heads = (Column(name, overflow="fold") for name in columns)
            table = Table(*heads, title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
            for row in rows:
                table.add_row(*row)
            console.print(table)
            console.print()

        for kind, items in found.items():
            rows: list[tuple[str, ...]] = []
            for e in items:
                rows.append((f"[bold]{e['name']}[/]", e["summary"], e["paper"] or f"({e['origin']})"))
                if self.settings:
                    rows += [("", f"[dim]{text}[/]", "") for text in settings_lines(e.get("settings", {}))]
            show(kind.capitalize(), ("name", "description", "in the paper"), rows)
        if self.settings:
            for kind, table in shared.items():
                show(f"Settings of each {kind}", ("",), [(text,) for text in settings_lines(table)])


def settings_table(cls: Any, leave_out: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    """The settings that a dataclass declares: type, default and help of each."""
    from guss.validation import field_docs, type_text, types_of

    return {
        field.name: {
            "type": type_text(types_of(cls)[field.name]),
            "default": None if field.default is dataclasses.MISSING else field.default,
            "help": field_docs(cls).get(field.name, ""),
        }
        for field in dataclasses.fields(cls)
        if field.name not in leave_out
    }


def settings_lines(table: dict[str, dict[str, Any]]) -> list[str]:
    """`name = default: help` of each setting."""
    return [f"{name} = {each['default']}: {each['help']}" for name, each in table.items()]
