"""Where a run's states were: steps counted by the cells of a plane, from its traces; small enough to be shared.

make_maps(home)     from the traces, None if there are none
write_maps(home)    the same, to RUN/maps.json.gz
read_maps(home)     that file, or made from the traces
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from guss.agent.traces import Trace, read_trace
from guss.envs import StateMap
from guss.runs.config import spec_of_run
from guss.runs.records import read_lines, read_packed, trace_path, unsafe_steps, write_packed
from guss.runs.running import read_config
from guss.runs.showing import plain_map

NAME, SCHEMA = "maps.json.gz", 1
FIELDS = ("labels", "limits", "cells", "unsafe_zone", "visited", "unsafe", "covered", "seeds", "episodes")
CLOSE = 1e-6  # of a side: so far beyond the limits rounding may put a state


def make_maps(home: Path) -> dict[str, Any] | None:
    """Visited and unsafe cells of all stored episodes, and the share covered by the end of each, mean over seeds.

    `numbers` are those of the episodes whose traces were there, of every seed. None: there are none, or an observation
    is one number.
    """
    config = read_config(home)
    spec = spec_of_run(config)
    task = config.tasks(spec.make_task())[0]
    traces = _read_traces(home, config.seeds)
    if not traces:
        return None
    view = spec.view.map if spec.view is not None else None
    plane = view or plain_map(np.concatenate([trace.next_obs for row in traces.values() for trace in row]))
    if plane is None:
        return None
    total = plane.cells[0] * plane.cells[1]
    visited, unsafe = np.zeros(total, int), np.zeros(total, int)
    seen = np.zeros((len(config.seeds), total), bool)
    covered = []
    for row in traces.values():
        for mine, trace in zip(seen, row, strict=True):
            where, inside = cells_of(plane, trace.next_obs)
            np.add.at(visited, where[inside], 1)
            np.add.at(unsafe, where[inside & unsafe_steps(task, trace)], 1)
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
        "seeds": len(config.seeds),
        "episodes": len(traces),
        "numbers": list(traces),
    }


def write_maps(home: Path) -> dict[str, Any] | None:
    """Make them and keep them in the run's folder."""
    maps = make_maps(home)
    if maps is not None:
        write_packed(home / NAME, maps)
    return maps


def read_maps(home: Path) -> dict[str, Any] | None:
    """Those that are kept, else made from the traces; None if there are neither."""
    if (home / NAME).exists():
        return read_packed(home / NAME, "the maps of a run", SCHEMA, FIELDS)
    return make_maps(home)


def cells_of(plane: StateMap, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The cell of each of [N, D], a number, and whether it is on the map at all."""
    low, high = np.asarray(plane.limits, float).T
    share = (np.asarray(plane.place(np.asarray(obs, float)), float) - low) / (high - low)
    inside = ((share >= -CLOSE) & (share <= 1.0 + CLOSE)).all(axis=-1)
    cells = np.asarray(plane.cells)
    index = np.clip(np.where(inside[:, None], share, 0.0) * cells, 0, cells - 1).astype(int)
    return index[:, 0] * cells[1] + index[:, 1], inside


def _read_traces(home: Path, seeds: tuple[int, ...]) -> dict[int, list[Trace]]:
    """By episode, of every seed: those that are finished and were kept step by step."""
    done = {(row["seed"], row["episode"]) for row in read_lines(home / "episodes.jsonl")}
    found = {}
    for episode in sorted({episode for _, episode in done}):
        paths = [trace_path(home, seed, episode) for seed in seeds if (seed, episode) in done]
        if len(paths) == len(seeds) and all(path.exists() for path in paths):
            found[episode] = [read_trace(path) for path in paths]
    return found


def _counted(counts: np.ndarray, plane: StateMap) -> list[list[int]]:
    """Cells with anything in them: [i, j, count]."""
    cells = np.flatnonzero(counts)
    return [[*divmod(int(cell), plane.cells[1]), int(counts[cell])] for cell in cells]
