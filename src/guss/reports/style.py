"""Style of figures: a colour and a line style per row (distinct also without colour), PNG and SVG files."""

from __future__ import annotations

import math
import textwrap
import zlib
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from guss.files import writing
from guss.reports.escapes import LONGEST, one_line, plot_text
from guss.runs.store import short_name

# Okabe and Ito's palette, safe for colour-blind readers.
_STYLES: dict[str, tuple[str, str, str]] = {
    "guss": ("GuSS", "#0072B2", "-"),
    "guss-plus": ("GuSS+", "#000000", "-"),
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
COLOURS = {
    "past": "#1d1d1f", "later": "#b9b9b9", "safe": "#7fb0d3", "unsafe": "#d6604d", "chosen": "#08306b",
    "zone": "#f6c9c4", "dot": "#b2182b",
}  # fmt: skip
"""Colours of animations, in figures and on the page: trajectories, unsafe zones, unsafe steps."""
_OTHERS = ("#882255", "#117733", "#332288", "#AA4499")
_LINES = ("-", "--", "-.", ":")
LOOK: Any = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "guss"}
"""matplotlib settings of all figures."""


def style_of(method: str) -> dict[str, Any]:
    """Line style of a method, the same in all figures; that of a custom method follows from its name."""
    number = zlib.crc32(method.encode(errors="surrogatepass"))
    other = (method, _OTHERS[number % len(_OTHERS)], _LINES[number // len(_OTHERS) % len(_LINES)])
    _, colour, line = _STYLES.get(method, other)
    return {"label": plot_text(label_of(method)), "color": colour, "linestyle": line}


def distinct_styles(methods: Sequence[str], labels: Sequence[str]) -> list[dict[str, Any]]:
    """The styles of rows shown together, each with its label; no two look the same.

    The first row of a method has the method's style; further rows have its colour with an unused line style, if any.
    """
    first = {method: style_of(method) for method in methods}
    looks = [style for method, style in first.items() if method in _STYLES]  # bundled methods keep their style
    looks += [style for method, style in first.items() if method not in _STYLES]
    taken = set[tuple[str, str]]()
    for style in looks:
        style |= _free_look(style, taken)
    styles = []
    for i, (method, label) in enumerate(zip(methods, labels, strict=True)):
        look = _free_look(first[method], taken) if method in methods[:i] else {}
        styles.append(first[method] | look | {"label": folded(label, 36)})
    return styles


def _free_look(style: dict[str, Any], taken: set[tuple[str, str]]) -> dict[str, str]:
    """This style's colour and line, or the nearest unused pair; if all pairs are used, they repeat."""
    colours = dict.fromkeys([style["color"], *_OTHERS, *(colour for _, colour, _ in _STYLES.values())])
    lines = dict.fromkeys([style["linestyle"], *_LINES])
    look = next((look for look in product(colours, lines) if look not in taken), (style["color"], style["linestyle"]))
    taken.add(look)
    return {"color": look[0], "linestyle": look[1]}


def label_of(method: str) -> str:
    """A method's name, spelled as in the paper."""
    return _STYLES[method][0] if method in _STYLES else one_line(method, LONGEST) or "(no name)"


def label_of_env(env: str) -> str:
    """An environment's name, spelled as in the paper; of a custom environment file and function."""
    return _ENVS.get(env) or one_line(short_name(env), LONGEST) or "(no name)"


def new_figure(columns: int, rows: int, width: float, height: float, **options: Any) -> tuple[Any, Any]:
    """A figure with a grid of axes in the common style."""
    plt.rcParams.update(LOOK)
    return plt.subplots(rows, columns, figsize=(width, height), layout="constrained", **options)


def new_canvas(width: float, height: float, dpi: int) -> Any:
    """A figure in the common style without axes, in its final size."""
    plt.rcParams.update(LOOK)
    return plt.figure(figsize=(width, height), dpi=dpi, layout="constrained")


def folded(label: str, width: int) -> str:
    """A label in a figure, in up to four lines of `width` characters."""
    lines = textwrap.wrap(one_line(label), width, max_lines=4, placeholder=" …") or [""]
    return "\n".join(plot_text(line) for line in lines)


def save_figure(figure: Any, path: Path) -> dict[Path, bytes]:
    """Write `path`.png and `path`.svg; returns the files with their contents."""
    formats: dict[str, Any] = {
        "png": {"dpi": 150, "metadata": {"Software": None}},
        "svg": {"metadata": {"Date": None}},
    }
    files = {}
    with writing(path.parent):
        for ending, options in formats.items():
            file = path.with_name(f"{path.name}.{ending}")  # the name may contain dots
            figure.savefig(file, **options)
            files[file] = file.read_bytes()
    plt.close(figure)
    return files


def add_lines(axes: Any, lines: Sequence[Any], colour: str) -> Any:
    """Draw trajectories of plans, each [N, 2], in one of COLOURS; axis limits do not change."""
    return axes.add_collection(LineCollection(lines, colors=COLOURS[colour], lw=0.7, alpha=0.6), autolim=False)


def add_rectangle(axes: Any, zone: Sequence[float], **look: Any) -> None:
    """Fill a rectangle (x from, x to, y from, y to), by default in the style of unsafe zones."""
    x0, x1, y0, y1 = zone
    axes.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, **{"facecolor": COLOURS["zone"], "lw": 0, **look}))


def line_handles(names: Sequence[tuple[str, str]]) -> list[Any]:
    """Legend entries from pairs of a name in COLOURS and a label."""
    return [Line2D([], [], color=COLOURS[name], lw=5 if name == "zone" else 2, label=label) for name, label in names]


def legend_below(figure: Any, axes: Any, most: int, **options: Any) -> None:
    """A legend below a figure with the lines of `axes`, in at most `most` columns; long labels reduce their number."""
    handles, labels = axes.get_legend_handles_labels()
    longest = max(len(line) for label in labels for line in label.split("\n"))
    most = most if longest <= 20 else max(1, min(most, 110 // (longest + 8)))
    columns = math.ceil(len(labels) / math.ceil(len(labels) / most))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, **options)
