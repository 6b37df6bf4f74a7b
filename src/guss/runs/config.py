"""RunConfig: all settings that determine a run's outcome."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from guss.collect.datasets import Dataset
from guss.envs import EnvSpec
from guss.envs.lookup import find_env
from guss.errors import GussError, UnknownNameError
from guss.limits import MAX_SEEDS
from guss.methods.presets import preset_for, settings_from
from guss.methods.settings import RunSettings, without
from guss.plugins import find_preset, load_preset
from guss.runs.store import digest_of, short_name
from guss.validation import check_seconds, check_seed, received


@dataclass(frozen=True, kw_only=True)
class RunConfig(RunSettings):
    """All settings that determine a run's outcome; `guss.make_config` creates one with the settings of `guss run`.

    `seeds`: distinct seeds. Raises GussError if a value is not allowed or values contradict each other.

    Example:
        >>> guss.RunConfig(env="safe-pendulum", method="rs", seeds=(0, 1), episodes=20).learns
        True
    """

    seeds: tuple[int, ...]
    data: str | None = None
    """Digest of the logged transitions to start from; None: no logged data."""
    data_rows: int = 0
    """Number of logged transitions."""
    started_in: str | None = field(default=None, compare=False)
    """The folder in which a stored run was started; file names are relative to it. Not a setting."""

    def __post_init__(self) -> None:
        super().__post_init__()
        MAX_SEEDS.check("a run", len(self.seeds))
        for i, seed in enumerate(self.seeds):
            check_seed(seed, f"settings.seeds[{i}]")
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise GussError(f"a run needs distinct seeds, got {received(list(self.seeds))}")
        if self.episodes < 1:
            raise GussError(f"a run needs at least 1 episode, got {self.episodes}")
        if self.data_rows < 0:
            raise GussError(f"data_rows must be a number of transitions, 0 or more, got {self.data_rows}")
        if self.episode_length is not None and self.episode_length < 1:
            raise GussError(f"an episode needs at least 1 step, got --episode-length {self.episode_length}")
        check_seconds(self.step_timeout, "the step_timeout")
        if self.initial_episodes == 0 and not self.initial_steps and self.learns and self.data is None:
            raise GussError(
                "a learned model needs at least 1 random episode at the start, or logged data; got initial_episodes 0"
            )
        if self.data is not None and self.is_policy:
            raise GussError(
                f"method {self.method!r} learns only from its own episodes; logged data need a planning method, such "
                f"as guss"
            )
        if self.data is not None and not self.learns:
            raise GussError(
                f"method {self.method!r} with model {self.model!r} learns nothing, so logged data have no effect: "
                f"choose a learned model, or pass no data"
            )
        if self.is_policy and self.unknown_unsafe:
            raise GussError(f"unknown_unsafe applies to planning methods only, and {self.method!r} is a policy")
        if self.is_policy and self.overlap:
            raise GussError(f"--overlap applies to planning methods only, and {self.method!r} is a policy")

    @property
    def folder(self) -> Path | None:
        """`started_in` as a path."""
        return None if self.started_in is None else Path(self.started_in)

    def row_of(self, seed: int | None) -> int:
        """The index of a seed in `seeds`; 0 for None."""
        if seed is not None and seed not in self.seeds:
            raise UnknownNameError("seed of the run", str(seed), map(str, self.seeds))
        return 0 if seed is None else self.seeds.index(seed)

    def never_acts(self, episode_length: int) -> bool:
        """Whether all episodes of the run have random actions although its method is not random."""
        last = self.episodes - 1
        return not self.acts_randomly and self.is_random(last, last * episode_length, episode_length)

    def folder_in(self, out: Path) -> Path:
        """The run folder in `out`, named by environment, method and a hash of the settings."""
        digest = hashlib.sha256(json.dumps(self.changed(), sort_keys=True).encode()).hexdigest()[:8]
        return out / f"{short_name(self.env)}-{self.method}-{digest}"


def make_config(
    env: str = "safe-pendulum",
    method: str = "guss",
    *,
    seeds: int | Sequence[int] = 6,
    preset: str | dict[str, Any] | None = None,
    data: Dataset | None = None,
    **settings: Any,
) -> RunConfig:
    """The settings of `guss run --env ENV --method METHOD`, for `guss.run`.

    `env` and `method`: names of `guss list`, or a custom environment as `file.py:function`. `seeds`: the seeds, or
    their number, counted from 0. `preset`: a name, a TOML file or a dict; by default the preset of the environment.
    `data`: logged transitions to start from. `settings` override the preset: `episodes`, `horizon`, `budget`, `model`,
    …, and the dicts `method_settings`, `model_settings` and `fit`. Returns a RunConfig. Raises GussError if a name or
    value is not allowed.

    Example:
        >>> config = guss.make_config("safe-toy", "guss", seeds=2, episodes=3)
        >>> config.seeds, config.episodes
        ((0, 1), 3)
    """
    if preset is None:
        preset = find_preset(env)
    found = load_preset(preset) if isinstance(preset, str) else preset
    chosen = seeds_from(0, seeds) if isinstance(seeds, int) else tuple(seeds)
    return config_from(found, method, env, chosen, data, **settings)


def config_from(
    preset: Any, method: str, env: str, seeds: tuple[int, ...], data: Dataset | None = None, **chosen: Any
) -> RunConfig:
    """The config of a method with a preset; values in `chosen` that are not None override the preset.

    `data`: logged transitions to start from. `method_settings`, `model_settings` and `fit` in `chosen` are dicts.
    """
    how = {"episode_length": chosen.get("episode_length"), "without_cost": chosen.get("without_cost", False)}
    how |= {"process": chosen.get("env_process", False)}
    preset = preset_for(preset, find_env(env, **how).make_task())
    if data is not None:
        preset = {k: v for k, v in preset.items() if k != "initial_steps"} | {"initial_episodes": 0}
        chosen = chosen | {"data": digest_of(data), "data_rows": data.num_rows}
    return settings_from(RunConfig, preset, method, env=env, seeds=seeds, **chosen)


def config_without_unused(
    preset: Any, method: str, env: str, seeds: tuple[int, ...], data: Dataset | None = None, **chosen: Any
) -> RunConfig:
    """As `config_from`, without the values in `chosen` that have no effect on the method."""
    unused = settings_from(RunSettings, preset, method, env=env, model=chosen.get("model")).unused
    return config_from(preset, method, env, seeds, data, **without(chosen, unused))


def seeds_from(first: int, count: int) -> tuple[int, ...]:
    """`count` consecutive seeds, starting at `first`."""
    if count < 1 or first < 0:
        raise GussError(f"a run needs at least 1 seed, and seeds of 0 or more, got --seeds {count} --seed {first}")
    MAX_SEEDS.check(f"--seeds {count}", count)
    check_seed(first + count - 1, "the last seed (--seed + --seeds − 1)")
    return tuple(range(first, first + count))


def spec_of_run(config: RunConfig) -> EnvSpec:
    """The environment of a run."""
    how: Any = {"without_cost": config.without_cost, "process": config.env_process, "folder": config.folder}
    return find_env(config.env, episode_length=config.episode_length, **how)
