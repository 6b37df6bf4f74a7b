"""`guss list`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from guss.cli.options import Plugins, prepare


@dataclass
class ListCommand:
    """Show planners, other methods, environments and models, with a line about each and its place in the paper."""

    json: bool = False
    """Print JSON instead of tables."""
    settings: bool = False
    """Also show the settings that planners, other methods and custom models declare, with their defaults."""
    plugin: Plugins = ()

    def run(self) -> None:
        """Print the registries."""
        from guss.envs import ENVS
        from guss.methods import METHODS
        from guss.models import MODELS
        from guss.planners import PLANNERS, settings_of

        prepare(self.plugin)

        def rows(registry: Any, more: Any = lambda entry: {}) -> list[dict[str, Any]]:
            return [
                {"name": e.name, "summary": e.summary, "paper": e.paper, "origin": e.origin} | more(e) for e in registry
            ]

        def own(entry: Any) -> dict[str, Any]:
            fields = settings_of(entry.item).items()
            return {"settings": {name: {"default": f.default, "help": f.metadata["help"]} for name, f in fields}}

        found = {
            "planners": rows(PLANNERS, lambda e: {"objective": e.item.objective} | own(e)),
            "methods": rows(METHODS, own),
            "environments": rows(ENVS, lambda e: {"gym_id": e.item.gym_id}),
            "models": rows(MODELS, own),
        }
        if self.json:
            print(json.dumps(found, indent=2))
            return
        from rich.table import Table

        from guss.progress import make_console

        console = make_console()
        for kind, entries in found.items():
            table = Table(title=kind.capitalize(), title_justify="left", title_style="bold", box=None, pad_edge=False)
            for column in ("name", "what it is", "in the paper"):
                table.add_column(column, overflow="fold")
            for e in entries:
                table.add_row(f"[bold]{e['name']}[/]", e["summary"], e["paper"] or f"({e['origin']})")
                if self.settings and "settings" in e:
                    for name, s in e["settings"].items():
                        table.add_row("", f"[dim]{name} = {s['default']}: {s['help']}[/]", "")
            console.print(table)
            console.print()
