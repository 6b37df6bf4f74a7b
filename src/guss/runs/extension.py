"""More episodes for a run that is stored, finished or not: the same run, with a larger number in its config.json.

    "extended": [{"episodes": 40, "target": null, "command": …, "commit": …, "date": …}]

The list has what the config said before each extension, and what extended it. The folder keeps its name, which is that
of the settings the run began with.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from guss.checkpoint import Stored
from guss.errors import GussError
from guss.methods.settings import current_names
from guss.runs.config import RunConfig
from guss.runs.description import read_stored, write_stored
from guss.runs.store import SCHEMA
from guss.validation import build

EXTENDABLE = ("episodes", "target")
"""Settings that an extension changes."""


@dataclass(frozen=True)
class Extension:
    """What is asked for when a run is resumed."""

    episodes: int | None = None
    """The number of episodes that it is to have in all; None: as before."""
    target: float | None = None
    """Another mean reward to stop at, infinite for none; None: as before."""
    origin: dict[str, Any] = field(default_factory=dict)
    """Where this comes from, as `provenance` gives it."""

    def apply(self, home: Path, config: RunConfig, stored: Stored | None) -> RunConfig:
        """The config of the extended run; `stored`: its newest checkpoint."""
        done = 0 if stored is None else stored.meta["done"]
        if self.episodes is not None and self.episodes < config.episodes:
            raise GussError(
                f"{home} is a run of {config.episodes} episodes, of which {done} are done; --episodes extends it and "
                f"takes {config.episodes} or more in all, got {self.episodes}"
            )
        if self.target is not None and not -math.inf < self.target <= math.inf:
            raise GussError(f"a target is a mean reward, or inf for none, got {self.target}")
        more = self.episodes is not None and self.episodes > config.episodes
        same = self.target is None or self.target == config.target
        if more and same and stored is not None and stopped_at_target(stored.meta, config):
            raise GussError(
                f"{home} stopped after {done} of {config.episodes} episodes since it reached its target of "
                f"{config.target}; give it another one with --target, or none with --target inf"
            )
        target = config.target if self.target is None else self.target if math.isfinite(self.target) else None
        return dataclasses.replace(config, episodes=self.episodes or config.episodes, target=target)

    def store(self, home: Path, before: RunConfig, after: RunConfig) -> None:
        """Write the new config to config.json, and remember the one before."""
        about = read_stored(home).data
        earlier = {name: getattr(before, name) for name in EXTENDABLE}
        origin = {name: self.origin.get(name) for name in ("command", "commit", "date")}
        extended = [*about.get("extended", []), earlier | origin]
        write_stored(home, about | {"schema": SCHEMA, "config": after.to_json(), "extended": extended})


def stopped_at_target(meta: dict[str, Any], config: RunConfig) -> bool:
    """Whether the run of a checkpoint with this `meta` is over because it reached the target that it still has."""
    stored = meta["config"]
    return bool(meta["over"]) and meta["done"] < stored["episodes"] and stored.get("target") == config.target


def same_run(meta: dict[str, Any], config: RunConfig) -> bool:
    """Whether a checkpoint with this `meta` is of a run with these settings, maybe before it was extended."""
    stored = build(RunConfig, current_names(meta["config"]), "meta.config of the checkpoint")
    extended = dataclasses.replace(stored, episodes=config.episodes, target=config.target)
    return extended.changed() == config.changed() and stored.episodes <= config.episodes


def same_settings(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two stored configs are those of one run, before and after it was extended."""
    rest = [{name: value for name, value in each.items() if name not in EXTENDABLE} for each in (one, other)]
    return rest[0] == rest[1]
