"""How figures look: a colour and a line per method (told apart without colour too), PNG and SVG of each."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from guss.runs.records import short_name

# Okabe and Ito's palette, readable by the colour-blind.
_STYLES: dict[str, tuple[str, str, str]] = {
    "guss": ("GuSS", "#0072B2", "-"),
    "s-rs": ("S-RS", "#009E73", "--"),
    "rcem": ("RCEM", "#E69F00", "-."),
    "cem": ("CEM", "#D55E00", "-"),
    "rs": ("RS", "#CC79A7", "--"),
    "map-elites": ("MAP-Elites", "#56B4E9", "-."),
    "random": ("Random", "#6b6b6b", ":"),
    "cce": ("CCE", "#882255", "--"),
    "icem": ("iCEM", "#117733", ":"),
    "s-icem": ("S-iCEM", "#117733", "--"),
    "mppi": ("MPPI", "#332288", ":"),
    "s-mppi": ("S-MPPI", "#332288", "--"),
    "ps-me": ("PS-ME", "#AA4499", "-."),
    "safe-mbpo": ("Safe-MBPO", "#999933", "-"),
    "cpo": ("CPO", "#882255", "-"),
    "ppo-lagrangian": ("PPO-Lagrangian", "#332288", "-."),
    "ppo": ("PPO", "#332288", "-"),
    "trpo": ("TRPO", "#882255", ":"),
    "sac": ("SAC", "#999933", "--"),
}
_ENVS = {
    "safe-pendulum": "Safe Pendulum",
    "safe-acrobot": "Safe Acrobot",
    "safe-car-goal": "SafeCar-Goal",
    "safe-car-goal-full": "SafeCar-Goal, all observed",
    "safe-toy": "Toy world",
}
_OTHERS = ("#882255", "#117733", "#332288", "#AA4499")
_LINES = ("-", "--", "-.", ":")


def style_of(method: str) -> dict[str, Any]:
    """Line style of a method, the same wherever it is shown; ones we do not know get theirs by their name."""
    number = zlib.crc32(method.encode())
    other = (method, _OTHERS[number % len(_OTHERS)], _LINES[number // len(_OTHERS) % len(_LINES)])
    label, colour, line = _STYLES.get(method, other)
    return {"label": label, "color": colour, "linestyle": line}


def label_of(method: str) -> str:
    """A method's name as the paper writes it."""
    return str(style_of(method)["label"])


def label_of_env(env: str) -> str:
    """An environment's name as the paper writes it; an own one's file and function."""
    return _ENVS.get(env, short_name(env))


def _our_look() -> None:
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "guss"})


def new_figure(columns: int, rows: int, width: float, height: float, **options: Any) -> tuple[Any, Any]:
    """A figure with a grid of axes in our look."""
    _our_look()
    return plt.subplots(rows, columns, figsize=(width, height), layout="constrained", **options)


def new_canvas(width: float, height: float, dpi: int) -> Any:
    """A figure in our look without axes yet, as large as it will be on a screen."""
    _our_look()
    return plt.figure(figsize=(width, height), dpi=dpi, layout="constrained")


def save_figure(figure: Any, path: Path) -> list[Path]:
    """Write `path`.png and `path`.svg."""
    files = [path.with_suffix(".png"), path.with_suffix(".svg")]
    figure.savefig(files[0], dpi=150, metadata={"Software": None})
    figure.savefig(files[1], metadata={"Date": None})
    plt.close(figure)
    return files
