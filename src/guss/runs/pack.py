"""A small copy of runs, to keep or to share: settings, records, maps, an animation; without traces and checkpoints.

Only stored files are read, and bundled environments planned again for their animation; other people's code is imported
only where the caller asks for it (`replay`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from guss.checkpoint import write_atomically
from guss.errors import GussError
from guss.files import check_folder, writing
from guss.runs import animation, animator, state_maps
from guss.runs.checkpoints import checkpoint_path
from guss.runs.description import StoredRun, is_bundled, read_stored, write_stored
from guss.runs.extension import same_settings
from guss.runs.paths import KEY as STARTED_IN
from guss.runs.results import read_config
from guss.runs.rows import num_random, read_episodes, read_timings
from guss.runs.store import packed_bytes, packed_json, raw_lines, trace_path
from guss.usercode import no_user_code


class Packed(NamedTuple):
    """What was written of a run."""

    folder: Path
    episodes: int
    files: dict[str, int]
    """Bytes of each."""
    missing: tuple[str, ...]
    """What could not be, and why."""


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """The runs meant: each itself, or all that lie in a folder."""
    found: list[Path] = []
    for path in paths:
        inside = [path] if (path / "config.json").exists() else sorted(p.parent for p in path.glob("*/config.json"))
        if not inside:
            raise GussError(f"{path} is neither a run nor a folder of runs: there is no config.json in it")
        found += inside
    for name, count in Counter(home.name for home in found).items():
        if count > 1:
            both = ", ".join(str(home) for home in found if home.name == name)
            raise GussError(f"{count} of the runs have the same name, so one would replace the other: {both}")
    return found


def check_target(home: Path, out: Path) -> Path:
    """The folder in `out` that a run is packed to; what is there already must be an earlier copy of the same run."""
    target = out / home.resolve().name
    check_folder(out)
    if target.resolve() == home.resolve():
        raise GussError(f"{out} is where {home.name} itself is: choose another folder with --out, so that it is a copy")
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return target
    if not (target / "config.json").exists():
        raise GussError(f"{target} is there already and holds no run; nothing was changed. Remove it first")
    if not same_settings(*(read_stored(place).config for place in (target, home))):
        raise GussError(f"{target} holds a run with other settings than {home}; nothing was changed")
    if (target / "episodes.jsonl").exists():
        raise GussError(f"{target} holds the run itself, not a packed copy of it; nothing was changed")
    if (target / "episodes.jsonl.gz").exists():
        there, here = (len(read_episodes(place)) for place in (target, home))
        if there > here:
            raise GussError(
                f"{target} holds more of this run than {home}: {there} lines of episodes against {here}; nothing was "
                f"changed. Remove it first"
            )
    return target


def pack_run(
    home: Path, out: Path, *, with_animation: bool = True, replay: bool = False, on_step: animation.OnStep = None
) -> Packed:
    """Copy what is small, make what is missing. A run that is under way is packed as far as its finished episodes.

    `replay`: for the animation, import environments, planners and models that are not part of guss. `on_step` is called
    with the step and the number of steps while an episode is planned again.
    """
    with no_user_code("a pack"):
        target, stored = check_target(home, out), read_stored(home)
    rows, seeds = read_episodes(home), stored.config["seeds"]
    done = {episode for episode, count in Counter(row["episode"] for row in rows).items() if count == len(seeds)}
    if not done:
        raise GussError(f"{home} has no finished episode yet")
    contents = {}
    for name, found in (("episodes.jsonl", rows), ("timings.jsonl", read_timings(home))):
        pairs = zip(found, raw_lines(home / name), strict=False)  # a run that is under way has written more by now
        contents[f"{name}.gz"] = packed_bytes(b"".join(line for row, line in pairs if row["episode"] in done))
    made, missing = dict[str, dict[str, Any] | None](), list[str]()
    with no_user_code("a pack"):
        made[state_maps.NAME], why = _maps(home, stored, rows)
    missing += why
    if with_animation:
        with nullcontext() if replay else no_user_code("a pack without --replay"):
            traced = [e for e in sorted(done) if all(trace_path(home, seed, e).exists() for seed in seeds)]
            made[animation.NAME], why = _animation(home, stored, traced, num_random(rows), replay, on_step)
        missing += why
    contents |= {name: packed_json(data) for name, data in made.items() if data is not None}
    if (home / "eval.json").exists():
        contents["eval.json"] = (home / "eval.json").read_bytes()
    with writing(target):
        target.mkdir(parents=True, exist_ok=True)
    write_stored(target, {name: value for name, value in stored.data.items() if name != STARTED_IN})
    for name, content in contents.items():
        write_atomically(target / name, content)
    sizes = {name: (target / name).stat().st_size for name in ("config.json", *contents)}
    return Packed(target, len(done), sizes, tuple(missing))


Made = tuple[dict[str, Any] | None, list[str]]
"""What a file holds, or why there is none."""


def _maps(home: Path, stored: StoredRun, rows: list[dict[str, Any]]) -> Made:
    """The maps of its traces, else those that are there."""
    why = "it has no traces, or observations of one number"
    try:
        made = state_maps.count_states(state_maps.read_states(home, stored, rows))
    except GussError as error:
        made, why = None, str(error)
    made = made or state_maps.stored_maps(home)
    return made, [] if made is not None else [f"no maps: {why}"]


def _animation(
    home: Path, stored: StoredRun, traced: list[int], first: int, replay: bool, on_step: animation.OnStep
) -> Made:
    """The animation that is there, or a new one of the last of the traced episodes; `first`: how many are random."""
    there = animation.read_animation(home)
    if there is not None:
        return there, []
    if not replay and not is_bundled(stored.config):
        return None, ["no animation: it takes code that is not part of guss, which is imported with --replay only"]
    config = read_config(home)
    if not traced:
        return None, ["no animation: it has no traces"]
    random = traced[-1] < first
    ready = [episode for episode in traced if (episode < first) == random]
    if config.learns and not random:
        ready = [episode for episode in ready if checkpoint_path(home, episode + 1).exists()]
    if not ready:
        return None, ["no animation: it has no checkpoint of an episode whose traces are there"]
    return animator.make_animation(home, ready[-1], on_step=on_step), []
