"""Small copies of runs to archive or share: settings, records, maps, an animation; without traces and checkpoints.

Packing reads stored files. For the animation it replans episodes of bundled environments; it imports user code only
with `replay`.
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
    """The packed copy of a run."""

    folder: Path
    episodes: int
    files: dict[str, int]
    """Sizes in bytes."""
    missing: tuple[str, ...]
    """Files that could not be written, and why."""


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """The run folders among these paths, and those directly inside the other paths."""
    found: list[Path] = []
    for path in paths:
        inside = [path] if (path / "config.json").exists() else sorted(p.parent for p in path.glob("*/config.json"))
        if not inside:
            raise GussError(f"{path} is neither a run nor a folder of runs: it contains no config.json")
        found += inside
    for name, count in Counter(home.name for home in found).items():
        if count > 1:
            both = ", ".join(str(home) for home in found if home.name == name)
            raise GussError(f"{count} of the runs have the same name, so one copy would replace another: {both}")
    return found


def check_target(home: Path, out: Path) -> Path:
    """The folder in `out` to which a run is packed; raises unless it is empty or an earlier copy of the same run."""
    target = out / home.resolve().name
    check_folder(out)
    if target.resolve() == home.resolve():
        raise GussError(f"{out} contains {home.name} itself: choose another folder for the copy with --out")
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return target
    if not (target / "config.json").exists():
        raise GussError(f"{target} already exists and is not a run; nothing was changed. Remove it first")
    if not same_settings(*(read_stored(place).config for place in (target, home))):
        raise GussError(f"{target} contains a run with other settings than {home}; nothing was changed")
    if (target / "episodes.jsonl").exists():
        raise GussError(f"{target} contains an unpacked run, not a packed copy; nothing was changed")
    if (target / "episodes.jsonl.gz").exists():
        there, here = (len(read_episodes(place)) for place in (target, home))
        if there > here:
            raise GussError(
                f"{target} contains more of this run than {home}: {there} lines of episodes instead of {here}; nothing "
                f"was changed. Remove it first"
            )
    return target


def pack_run(
    home: Path, out: Path, *, with_animation: bool = True, replay: bool = False, on_step: animation.OnStep = None
) -> Packed:
    """Copy the small files of a run and create missing ones. Of an unfinished run, finished episodes are packed.

    `replay`: import environments, planners and models that are not part of guss for the animation. `on_step` is called
    with the step and the number of steps while an episode is replanned.
    """
    with no_user_code("a pack"):
        target, stored = check_target(home, out), read_stored(home)
    rows, seeds = read_episodes(home), stored.config["seeds"]
    done = {episode for episode, count in Counter(row["episode"] for row in rows).items() if count == len(seeds)}
    if not done:
        raise GussError(f"{home} has no finished episode yet")
    contents = {}
    for name, found in (("episodes.jsonl", rows), ("timings.jsonl", read_timings(home))):
        pairs = zip(found, raw_lines(home / name), strict=False)  # a running process may have appended lines meanwhile
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
"""The content of a file, or None and the reason."""


def _maps(home: Path, stored: StoredRun, rows: list[dict[str, Any]]) -> Made:
    """Maps computed from the traces, else the stored maps."""
    why = "the run has no traces, or its observations have a single dimension"
    try:
        made = state_maps.count_states(state_maps.read_states(home, stored, rows))
    except GussError as error:
        made, why = None, str(error)
    made = made or state_maps.stored_maps(home)
    return made, [] if made is not None else [f"no maps: {why}"]


def _animation(
    home: Path, stored: StoredRun, traced: list[int], first: int, replay: bool, on_step: animation.OnStep
) -> Made:
    """The stored animation, or a new one of the last traced episode; `first`: number of initial random episodes."""
    there = animation.read_animation(home)
    if there is not None:
        return there, []
    if not replay and not is_bundled(stored.config):
        return None, ["no animation: it needs code that is not part of guss, which is imported only with --replay"]
    config = read_config(home)
    if not traced:
        return None, ["no animation: the run has no traces"]
    random = traced[-1] < first
    ready = [episode for episode in traced if (episode < first) == random]
    if config.learns and not random:
        ready = [episode for episode in ready if checkpoint_path(home, episode + 1).exists()]
    if not ready:
        return None, ["no animation: no episode has both a trace and a checkpoint"]
    return animator.make_animation(home, ready[-1], on_step=on_step), []
