"""A small copy of runs, to keep or to share: settings, records, maps, a film; without traces and checkpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from guss.checkpoint import write_atomically
from guss.errors import GussError
from guss.runs import films, maps
from guss.runs.config import RunConfig
from guss.runs.records import packed_bytes, raw_lines, read_lines, trace_path, write_packed
from guss.runs.running import checkpoint_path, read_config


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
    target = out / home.name
    if target.resolve() == home.resolve():
        raise GussError(f"{out} is where {home.name} itself is: choose another folder with --out, so that it is a copy")
    if not target.exists():
        return target
    if not target.is_dir() or (any(target.iterdir()) and not (target / "config.json").exists()):
        raise GussError(f"{target} is there already and holds no run; nothing was changed. Remove it first")
    if not (target / "config.json").exists():
        return target
    if read_config(target) != read_config(home):
        raise GussError(f"{target} holds a run with other settings than {home}; nothing was changed")
    if (target / "episodes.jsonl").exists():
        raise GussError(f"{target} holds the run itself, not a packed copy of it; nothing was changed")
    if (target / "episodes.jsonl.gz").exists():
        there, here = (len(read_lines(place / "episodes.jsonl")) for place in (target, home))
        if there > here:
            raise GussError(
                f"{target} holds more of this run than {home}: {there} lines of episodes against {here}; nothing was "
                f"changed. Remove it first"
            )
    return target


def pack_run(home: Path, out: Path, *, film: bool = True, on_step: films.OnStep = None) -> Packed:
    """Copy what is small, make what is missing. A run that is under way is packed as far as its finished episodes.

    `on_step`: is told the step and the number of steps while an episode is planned again for its film.
    """
    target, config = check_target(home, out), read_config(home)
    rows = raw_lines(home / "episodes.jsonl")
    done = _finished([row for row, _ in rows], config)
    if not done:
        raise GussError(f"{home} has no finished episode yet")
    lines = {"episodes.jsonl": b"".join(line for row, line in rows if row["episode"] in done)}
    timings = raw_lines(home / "timings.jsonl")
    lines["timings.jsonl"] = b"".join(line for row, line in timings if row["episode"] in done)
    missing, made = [], {}
    made[maps.NAME] = maps.make_maps(home) or maps.read_maps(home)
    if made[maps.NAME] is None:
        missing.append("no maps: it has no traces, or observations of one number")
    if film:
        made[films.NAME], why = _film(home, config, done, on_step)
        missing += [why] if why else []
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GussError(f"cannot make the folder {target}: {error.strerror}") from error
    write_atomically(target / "config.json", (home / "config.json").read_bytes())
    for name, content in lines.items():
        write_atomically(target / f"{name}.gz", packed_bytes(content))
    for name, data in made.items():
        if data is not None:
            write_packed(target / name, data)
    names = ["config.json", *(f"{name}.gz" for name in lines), *(name for name, data in made.items() if data)]
    if (home / "eval.json").exists():
        write_atomically(target / "eval.json", (home / "eval.json").read_bytes())
        names.append("eval.json")
    return Packed(target, len(done), {name: (target / name).stat().st_size for name in names}, tuple(missing))


def _finished(rows: list[dict[str, Any]], config: RunConfig) -> set[int]:
    """The episodes that every seed has."""
    count = Counter(row["episode"] for row in rows)
    return {episode for episode, seeds in count.items() if seeds == len(config.seeds)}


def _film(home: Path, config: RunConfig, done: set[int], on_step: films.OnStep) -> tuple[dict[str, Any] | None, str]:
    """The film that is there, or a new one; or why there is none."""
    stored = films.read_film(home)
    if stored is not None:
        return stored, ""
    traced = [e for e in sorted(done) if all(trace_path(home, seed, e).exists() for seed in config.seeds)]
    if not traced:
        return None, "no film: it has no traces"
    random = config.is_random(traced[-1])
    needs_model = config.baseline is None and config.learns and not random
    ready = [e for e in traced if config.is_random(e) == random]
    if needs_model:
        ready = [e for e in ready if checkpoint_path(home, e + 1).exists()]
    if not ready:
        return None, "no film: it has no checkpoint of an episode whose traces are there"
    return films.make_film(home, ready[-1], on_step=on_step), ""
