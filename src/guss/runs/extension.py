"""Extends a stored run, finished or not, by more episodes: the same run, with a larger number in its config.json.

    "extended": [{"episodes": 40, "target": null, "command": …, "commit": …, "date": …}]

The list stores the settings before each extension, and the command that extended the run. The folder keeps its name,
which follows from the initial settings.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from guss.checkpoint import Stored
from guss.errors import GussError
from guss.files import WriteGuard
from guss.methods.settings import current_names
from guss.runs.config import RunConfig
from guss.runs.description import read_stored, write_stored
from guss.runs.store import SCHEMA
from guss.validation import build

EXTENDABLE = ("episodes", "target")
"""Settings that an extension can change."""


@dataclass(frozen=True)
class Extension:
    """New settings for a resumed run."""

    episodes: int | None = None
    """Total number of episodes; None: unchanged."""
    target: float | None = None
    """Mean reward to stop at, infinite for none; None: unchanged."""
    origin: dict[str, Any] = field(default_factory=dict)
    """Provenance of the extension, from `provenance`."""

    def apply(self, home: Path, config: RunConfig, stored: Stored | None) -> RunConfig:
        """The config of the extended run; `stored`: its newest checkpoint."""
        done = 0 if stored is None else stored.meta["done"]
        if self.episodes is not None and self.episodes < config.episodes:
            raise GussError(
                f"{home} is a run of {config.episodes} episodes, of which {done} are finished; --episodes is the new "
                f"total and must be {config.episodes} or more, got {self.episodes}"
            )
        if self.target is not None and not -math.inf < self.target <= math.inf:
            raise GussError(
                f"--target must be a number (the run stops at this mean reward), or inf for no target, got "
                f"{self.target}"
            )
        more = self.episodes is not None and self.episodes > config.episodes
        same = self.target is None or self.target == config.target
        if more and same and stored is not None and stopped_at_target(stored.meta, config):
            raise GussError(
                f"{home} stopped after {done} of {config.episodes} episodes because it reached its target of "
                f"{config.target}; change the target with --target, or remove it with --target inf"
            )
        target = config.target if self.target is None else self.target if math.isfinite(self.target) else None
        return dataclasses.replace(config, episodes=self.episodes or config.episodes, target=target)

    def store(self, home: Path, before: RunConfig, after: RunConfig, guard: WriteGuard | None = None) -> None:
        """Write the new config to config.json, with the previous settings."""
        about = read_stored(home).data
        earlier = {name: getattr(before, name) for name in EXTENDABLE}
        origin = {name: self.origin.get(name) for name in ("command", "commit", "date")}
        extended = [*about.get("extended", []), earlier | origin]
        write_stored(home, about | {"schema": SCHEMA, "config": after.to_json(), "extended": extended}, guard)


def stopped_at_target(meta: dict[str, Any], config: RunConfig) -> bool:
    """Whether a checkpoint with this `meta` is from a run that reached its target, and the target is unchanged."""
    stored = meta["config"]
    return bool(meta["over"]) and meta["done"] < stored["episodes"] and stored.get("target") == config.target


def same_run(meta: dict[str, Any], config: RunConfig) -> bool:
    """Whether a checkpoint with this `meta` is from a run with these settings, possibly before an extension."""
    stored = build(RunConfig, current_names(meta["config"]), "meta.config of the checkpoint")
    extended = dataclasses.replace(stored, episodes=config.episodes, target=config.target)
    return extended.changed() == config.changed() and stored.episodes <= config.episodes


def same_settings(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two stored configs are equal up to an extension."""
    rest = [{name: value for name, value in each.items() if name not in EXTENDABLE} for each in (one, other)]
    return rest[0] == rest[1]
