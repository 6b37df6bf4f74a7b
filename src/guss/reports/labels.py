"""Unique names for reports: a key and a label for each row, a label for each environment.

If a method was run with a single configuration, the row has the method's name. Otherwise each row adds the settings
that differ, as in "GuSS (horizon 10)".
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from guss.reports.escapes import LONGEST, digest, one_line
from guss.reports.style import label_of, label_of_env

NOT_SETTINGS = ("env", "method", "seeds", "episodes")
"""Runs that differ only in these entries have the same settings."""
ADDED: dict[str, Any] = {
    **{"smoothness": 0.0, "max_change": None, "risk": None, "disagreement": None},
    **{"unknown_unsafe": False, "overlap": False},
}
"""Settings that the configs of earlier versions do not have, with the defaults that these runs had."""
MOST_SETTINGS = 3
"""Maximum number of settings in a label, unless more are needed to distinguish all runs."""
DATA = "data"
DIGITS = 6
"""Hexadecimal digits of the digest of logged data that a label shows."""


class Name(NamedTuple):
    """The names of a row."""

    key: str
    """Unique among the rows of an environment."""
    label: str
    """For readers."""


def flat_values(settings: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Nested settings flattened to the names of their flags: `fit.loss`, `model.hidden`, `method.num_new`."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            found |= flat_values(value, f"{before}{key.removesuffix('_settings')}.")
        else:
            found[f"{before}{key}"] = value
    return found


def flat(settings: dict[str, Any]) -> dict[str, str]:
    """`flat_values` with values as strings."""
    return {name: str(value) for name, value in flat_values(settings).items()}


def compared_settings(config: dict[str, Any], *but: str) -> dict[str, Any]:
    """The settings in a run's config, except `but` and the defaults of settings that earlier versions did not have."""
    added = {name for name, default in ADDED.items() if config.get(name) == default}
    return {name: value for name, value in config.items() if name not in (*NOT_SETTINGS, *but, *added)}


def settings_key(config: dict[str, Any]) -> str:
    """A key that is equal for runs that differ only in seeds and episodes."""
    return json.dumps([config["env"], config["method"], compared_settings(config)], sort_keys=True)


def seeds_text(seeds: Sequence[int]) -> str:
    """`seeds 0–5`, or a list of seeds."""
    numbers = seed_numbers(seeds)
    return f"seed{'s' * ('–' in numbers)} {numbers}"


def seed_numbers(seeds: Sequence[int]) -> str:
    """`0–5`, or a list of seeds."""
    whole = len(seeds) > 1 and all(b == a + 1 for a, b in pairwise(seeds))
    return f"{seeds[0]}–{seeds[-1]}" if whole else ", ".join(map(str, seeds))


def name_rows(configs: Sequence[dict[str, Any]], runs: Sequence[str]) -> list[Name]:
    """The names of the runs of one environment; `runs`: folder names, appended if settings do not distinguish runs."""
    details = [""] * len(configs)
    for method in dict.fromkeys(config["method"] for config in configs):
        mine = [i for i, config in enumerate(configs) if config["method"] == method]
        if len(mine) > 1:
            for i, text in zip(mine, _differences([configs[i] for i in mine]), strict=True):
                details[i] = text
    labels = [_with(label_of(config["method"]), text) for config, text in zip(configs, details, strict=True)]
    keys = [_with(config["method"], text) for config, text in zip(configs, details, strict=True)]
    return [Name(*pair) for pair in zip(_distinct(keys, runs), _distinct(labels, runs), strict=True)]


def _with(name: str, text: str) -> str:
    return f"{name} ({text})" if text else name


def _differences(configs: Sequence[dict[str, Any]]) -> list[str]:
    """For each run of a method, the settings that differ between its runs; the most distinctive setting first.

    Settings of model learning are omitted for runs without a learned model, unless nothing else differs.
    """
    without = [
        compared_settings(c) if c.get("model") != "oracle" else compared_settings(c, "model_settings", "fit")
        for c in configs
    ]
    for chosen in (without, [compared_settings(config) for config in configs]):
        settings = _with_data([flat(each) for each in chosen])
        names = {name for each in settings for name in each}
        differ = sorted(name for name in names if len({each.get(name) for each in settings}) > 1)
        differ = [name for name in differ if not _follows_data(name, settings)]
        if differ:
            break
    else:
        return [f"{seeds_text(config['seeds'])}, {config['episodes']} episodes" for config in configs]
    shown: list[str] = []
    apart: dict[str, int] = {}
    while len(shown) < len(differ) and (len(shown) < MOST_SETTINGS or max(apart.values()) < len(configs)):
        apart = {
            n: len({tuple(each.get(k) for k in (*shown, n)) for each in settings}) for n in differ if n not in shown
        }
        shown.append(min(apart, key=lambda name: (-apart[name], name.count("."), name)))
    rest = len(differ) - len(shown)
    more = [] if rest == 0 else [f"{rest} more setting{'s' * (rest > 1)}"]
    return [", ".join([*(one_line(_setting_text(name, each), LONGEST) for name in shown), *more]) for each in settings]


def _setting_text(name: str, settings: dict[str, str]) -> str:
    return settings[name] if name == DATA else f"{name} {settings.get(name, 'default')}"


def _with_data(settings: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Settings with the digest and row count of logged data merged into one text.

    Digits of the digest are shown if different data have the same number of rows.
    """
    rows = [(each.get("data"), each.get("data_rows")) for each in settings]
    if not any(data for data, _ in rows):
        return list(settings)
    alike = Counter(count for _, count in set(rows))
    texts = [
        "no logged data" if data is None else f"{count} logged rows" + (f" {data[:DIGITS]}" if alike[count] > 1 else "")
        for data, count in rows
    ]
    return [
        {name: value for name, value in each.items() if name != "data_rows"} | {DATA: text}
        for each, text in zip(settings, texts, strict=True)
    ]


def _follows_data(name: str, settings: Sequence[dict[str, str]]) -> bool:
    """Whether the number of random episodes or steps differs only because runs with logged data need none."""
    if name not in ("initial_episodes", "initial_steps"):
        return False
    pairs = {(each.get(DATA) not in (None, "no logged data"), each.get(name)) for each in settings}
    return len(pairs) == len({has_data for has_data, _ in pairs}) == 2


def _distinct(names: Sequence[str], runs: Sequence[str]) -> list[str]:
    """The names, with the run folder appended to equal names."""
    count = Counter(names)
    unique = [name if count[name] == 1 else f"{name}, {one_line(run)}" for name, run in zip(names, runs, strict=True)]
    found: list[str] = []
    for name in unique:  # escaped folder names can be equal too
        count_up = (f"{name} #{n}" for n in range(2, len(unique) + 2))
        found.append(name if name not in found else next(each for each in count_up if each not in found))
    return found


def in_numbers(label: str) -> list[tuple[bool, float, str]]:
    """A sort key of labels that compares numbers by value."""
    parts = re.split(r"(-?\d+(?:\.\d+)?(?:e-?\d+)?)", label)
    return [(i % 2 == 1, float(part) if i % 2 else 0.0, "" if i % 2 else part) for i, part in enumerate(parts)]


def name_envs(labels: dict[str, str]) -> dict[str, str]:
    """Unique labels of environments from short labels; equal short labels are replaced by full names."""
    short = {env: one_line(label, LONGEST) or label_of_env(env) for env, label in labels.items()}
    count = Counter(short.values())
    whole = {env: label if count[label] == 1 else one_line(env, LONGEST) for env, label in short.items()}
    count = Counter(whole.values())
    return {env: label if count[label] == 1 else f"{label} ({digest(env)})" for env, label in whole.items()}


def json_keys(names: Iterable[str]) -> list[str]:
    """Unique names in snake_case, the keys of table.json."""
    keys: list[str] = []
    for name in names:
        snake = name.replace("-", "_")
        if "(" in name:  # settings: guss_horizon_10
            snake = "_".join(filter(None, "".join(c if c.isalnum() else "_" for c in name).split("_")))
        while snake in keys:
            snake = f"{snake}_{digest(name)}"
        keys.append(snake)
    return keys
