"""State maps of a run: its steps counted by the cells of a plane, from its traces; small enough to share.

read_maps(home)     RUN/maps.json.gz, or computed from the traces; None if there are neither
make_maps(home)     computed from the traces; None if there are none
write_maps(home)    the same, written to the file
read_states(…)      the traces; count_states(states, plane) computes the maps
shared_plane(…)     one plane for several runs whose environment has none
keep_maps(home)     at the end of a run: writes the file if only the environment's code can compute it

Reading imports no user code: the plane is that of a bundled environment, or the first two observations.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from guss.collect.datasets import read_episode
from guss.envs import StateMap, View
from guss.errors import GussError
from guss.runs.description import StoredRun, bundled_env, read_stored, soft_constraints
from guss.runs.rows import read_episodes
from guss.runs.store import read_packed, trace_path, write_packed
from guss.runs.views import plain_map
from guss.types import Trajectory

NAME, SCHEMA = "maps.json.gz", 1
FIELDS = ("labels", "limits", "cells", "unsafe_zone", "visited", "unsafe", "covered", "seeds", "episodes", "numbers")
MOST_CELLS = 1000  # along a side
CLOSE = 1e-6  # share of a side by which rounding may put a state beyond the limits


class StoredStates(NamedTuple):
    """The traces of a run by episode, one for each seed."""

    home: Path
    stored: StoredRun
    traces: dict[int, list[Trajectory]]


def read_states(home: Path, stored: StoredRun, episodes: Sequence[dict[str, Any]]) -> StoredStates:
    """The episodes of which every seed has a trace; `episodes`: the lines of episodes.jsonl."""
    seeds = stored.config["seeds"]
    done = {(row["seed"], row["episode"]) for row in episodes}
    found = {}
    for episode in sorted({episode for _, episode in done}):
        paths = [trace_path(home, seed, episode) for seed in seeds if (seed, episode) in done]
        if len(paths) == len(seeds) and all(path.exists() for path in paths):
            found[episode] = [read_episode(path) for path in paths]
    return StoredStates(home, stored, found)


def make_maps(home: Path, plane: StateMap | None = None) -> dict[str, Any] | None:
    """The maps of a run's traces; None as in `count_states`."""
    return count_states(read_states(home, read_stored(home), read_episodes(home)), plane)


def count_states(states: StoredStates, plane: StateMap | None = None) -> dict[str, Any] | None:
    """Visited and unsafe cells of all stored episodes, and the share covered by the end of each, mean over seeds.

    `plane` overrides the plane that follows from the stored records. The entry `numbers` lists the episodes. Returns
    None if there are no traces, or an observation has a single dimension.
    """
    home, stored, traces = states
    seeds = stored.config["seeds"]
    if not traces:
        return None
    soft = soft_constraints(stored)
    plane = plane or known_plane(stored) or shared_plane([states])
    if plane is None:
        return None
    total = plane.cells[0] * plane.cells[1]
    visited, unsafe = np.zeros(total, int), np.zeros(total, int)
    seen = np.zeros((len(seeds), total), bool)
    covered = []
    for row in traces.values():
        for mine, trace in zip(seen, row, strict=True):
            where, inside = cells_of(plane, trace.next_obs)
            np.add.at(visited, where[inside], 1)
            np.add.at(unsafe, where[inside & _unsafe(home, trace, soft)], 1)
            mine[where[inside]] = True
        covered.append(round(float(seen.mean()), 5))
    return {
        "schema": SCHEMA,
        "labels": list(plane.labels),
        "limits": [list(limits) for limits in plane.limits],
        "cells": list(plane.cells),
        "unsafe_zone": [list(zone) for zone in plane.unsafe],
        "visited": _counted(visited, plane),
        "unsafe": _counted(unsafe, plane),
        "covered": covered,
        "seeds": len(seeds),
        "episodes": len(traces),
        "numbers": list(traces),
    }


def known_plane(stored: StoredRun) -> StateMap | None:
    """The plane of a bundled environment; None: the first two observations are the plane."""
    entry = bundled_env(stored.env)
    if has_own_plane(stored):
        raise GussError(
            f"the state map of {stored.env!r} is computed by its own code, which is not imported here; the "
            f"run writes {NAME} when it ends"
        )
    return None if entry is None or entry.item.view is None else entry.item.view.map


def has_own_plane(stored: StoredRun) -> bool:
    """Whether user code computes the plane."""
    return bundled_env(stored.env) is None and stored.facts is not None and stored.facts.env.map is not None


def keep_maps(home: Path, view: View | None) -> None:
    """At the end of a run: write the maps if only the environment's code can compute their plane."""
    if view is not None and view.map is not None and bundled_env(read_stored(home).env) is None:
        try:
            write_maps(home, view.map)
        except Exception as error:
            raise GussError(
                f"all episodes of {home} are stored, but not its state map: the environment's View.map raised "
                f"{type(error).__name__}: {error}"
            ) from error


def write_maps(home: Path, plane: StateMap | None = None) -> dict[str, Any] | None:
    """Compute the maps and write them to the run folder."""
    maps = make_maps(home, plane)
    if maps is not None:
        write_packed(home / NAME, maps)
    return maps


def read_maps(home: Path) -> dict[str, Any] | None:
    """The stored maps, else computed from the traces; None if there are neither."""
    return stored_maps(home) or make_maps(home)


def stored_maps(home: Path) -> dict[str, Any] | None:
    """The maps in the file; None if there is no file."""
    if not (home / NAME).exists():
        return None
    maps = read_packed(home / NAME, "the maps of a run", SCHEMA, FIELDS)
    if not _is_whole(maps):
        raise GussError(f"{home / NAME} is not the maps of a run: its cells, limits and counts are inconsistent")
    return maps


def _is_whole(maps: dict[str, Any]) -> bool:
    """Whether the numbers of a stored map are consistent, so that it can be drawn."""
    try:
        (x0, x1), (y0, y1) = np.asarray(maps["limits"], float)
        rows, columns = (int(count) for count in maps["cells"])
        zones = np.asarray(maps["unsafe_zone"], float).reshape(-1, 4)
        fits = x0 < x1 and y0 < y1 and np.isfinite([x0, x1, y0, y1]).all() and np.isfinite(zones).all()
        fits = fits and 1 <= rows <= MOST_CELLS and 1 <= columns <= MOST_CELLS
        for name in ("visited", "unsafe"):
            i, j, counts = np.asarray(maps[name], int).reshape(-1, 3).T
            fits = fits and ((i >= 0) & (i < rows) & (j >= 0) & (j < columns) & (counts >= 0)).all()
        covered, numbers = np.asarray(maps["covered"], float), np.asarray(maps["numbers"], int)
        fits = fits and covered.ndim == 1 and covered.shape == numbers.shape and np.isfinite(covered).all()
        texts = len(maps["labels"]) == 2 and all(isinstance(label, str) for label in maps["labels"])
        return bool(fits and len(covered) and texts and all(isinstance(maps[k], int) for k in ("seeds", "episodes")))
    except (TypeError, ValueError, OverflowError):
        return False


def shared_plane(states: Sequence[StoredStates]) -> StateMap | None:
    """A plane of the first two observations with limits over all these runs, so that their maps can be compared.

    None if the environment has a plane, or there are no traces.
    """
    edges, names = [], None
    for each in states:
        facts = each.stored.facts
        names = facts.env.dimensions if facts is not None else names
        if has_own_plane(each.stored) or known_plane(each.stored) is not None:
            return None
        traces = (trace for row in each.traces.values() for trace in row)
        edges += [edge for trace in traces for edge in (trace.next_obs.min(axis=0), trace.next_obs.max(axis=0))]
    return plain_map(np.stack(edges), names) if edges and len({len(edge) for edge in edges}) == 1 else None


def _unsafe(home: Path, trace: Trajectory, soft: np.ndarray) -> np.ndarray:
    """Whether each step violates a soft constraint, [T]."""
    cost = np.zeros((len(trace.obs), 0)) if trace.cost is None else np.asarray(trace.cost)
    if cost.shape[-1] != len(soft):
        raise GussError(f"the traces of {home} have {cost.shape[-1]} costs, but its environment has {len(soft)}")
    return np.any(cost[:, soft] > 0, axis=-1)


def cells_of(plane: StateMap, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The cell index of each observation [N, D], and whether it lies on the map."""
    low, high = np.asarray(plane.limits, float).T
    share = (np.asarray(plane.place(np.asarray(obs, float)), float) - low) / (high - low)
    inside = ((share >= -CLOSE) & (share <= 1.0 + CLOSE)).all(axis=-1)
    cells = np.asarray(plane.cells)
    index = np.clip(np.where(inside[:, None], share, 0.0) * cells, 0, cells - 1).astype(int)
    return index[:, 0] * cells[1] + index[:, 1], inside


def _counted(counts: np.ndarray, plane: StateMap) -> list[list[int]]:
    """Non-empty cells as [i, j, count]."""
    cells = np.flatnonzero(counts)
    return [[*divmod(int(cell), plane.cells[1]), int(counts[cell])] for cell in cells]
