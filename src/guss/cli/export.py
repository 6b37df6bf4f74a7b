"""`guss export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from guss.errors import GussError
from guss.files import check_file


@dataclass
class ExportCommand:
    """Export the transitions of a run as one table, with the seed and the episode of each.

    Reads stored files only: imports no environment and no plugin.

        guss export runs/safe-pendulum-guss-1a2b3c4d --out traces.parquet
    """

    run_folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """Folder of the run."""
    out: Path = Path("traces.csv")
    """A .npz, .csv or .parquet file (.parquet needs the extra `parquet`)."""
    seeds: Annotated[tuple[int, ...], arg(metavar="SEED", help_behavior_hint="(default: all)")] = ()
    """Seeds to export."""
    overwrite: bool = False
    """Replace an existing file."""

    def run(self) -> None:
        import numpy as np

        from guss.collect.datasets import join, read_trace, write_trace
        from guss.errors import UnknownNameError
        from guss.runs.description import read_stored
        from guss.runs.rows import read_episodes
        from guss.runs.store import trace_path

        check_file(self.out)
        if self.out.exists() and not self.overwrite:
            raise GussError(f"{self.out} already exists; --overwrite replaces it")
        known = read_stored(self.run_folder).config["seeds"]
        for seed in self.seeds:
            if seed not in known:
                raise UnknownNameError("seed of the run", str(seed), [str(s) for s in known])
        rows = read_episodes(self.run_folder)
        chosen = sorted({(row["seed"], row["episode"]) for row in rows if row["seed"] in (self.seeds or known)})
        if not chosen:
            raise GussError(f"{self.run_folder} has no finished episode yet")
        traces = [read_trace(trace_path(self.run_folder, *which)) for which in chosen]
        lengths = [trace.num_rows for trace in traces]
        seeds, episodes = (np.repeat(np.asarray(column), lengths) for column in zip(*chosen, strict=True))
        whole, names = join(traces), tuple(rows[0].get("costs") or ())
        cost = whole.trajectory.cost
        if cost is not None and cost.shape[1] == len(names):
            whole = whole._replace(cost_names=names)
        write_trace(self.out, whole, seed=seeds, episode=episodes)
        print(f"{sum(lengths)} transitions of {len(chosen)} episodes: {self.out}")
