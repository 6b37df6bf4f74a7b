"""Table 1 with our values and the paper's, as Markdown, JSON and LaTeX. All formats are built from `Row`s."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from guss.reports.escapes import latex, markdown, markdown_table
from guss.reports.inventory import Record
from guss.reports.labels import json_keys
from guss.reports.paper import paper_figures, paper_methods
from guss.reports.run_summary import MEASURES, by_cost, interval_pair, json_numbers, per_seed, planning, pooled
from guss.runs import metrics
from guss.runs.description import MethodKind
from guss.runs.rows import measured_costs

SECTIONS = ("safe, model-based", "unconstrained, model-based", "model-free", "for comparison")
"""The sections of the paper's table, and a section for all other methods."""
HIGHER_IS_BETTER = {"mar"}
HEADS = {
    "mar": ("MAR ↑", r"MAR $\uparrow$"),
    "mrcp_ksteps": ("MRCP [k steps] ↓", r"MRCP$\times10^3 \downarrow$"),
    "unsafe_pct": ("p(unsafe) [%] ↓", r"$p(\text{unsafe})\,[\%] \downarrow$"),
    "unsafe_trans_pct": ("transient [%] ↓", r"$p(\text{unsafe})_{trans}\,[\%] \downarrow$"),
}


@dataclass(frozen=True, kw_only=True)
class Row(Record):
    """A run in a table: its measures with their uncertainty, and its planning time."""

    section: str
    safe: bool
    measures: dict[str, dict[str, Any]]
    """By name: mean, half (90 %, over seeds), pooled (over episodes of all seeds), iqm, iqm_low, iqm_high, paper, best;
    for MRCP also reached, the number of seeds that reached the threshold."""
    rank: int | None = None
    """Pareto rank by MAR and p(unsafe)."""
    plan_ms: float | None
    evaluations: int | None
    by_cost: dict[str, list[float | None]]
    """Unsafe steps by constraint and measured cost [%] as [mean, half-width]; empty with a single constraint."""
    measured: tuple[str, ...]
    """The names of the measured costs, which plans do not use (`Task.measured`)."""
    jitter: list[float | None] | None
    """Jitter of the actions as [mean, half-width]; None if it is not stored."""

    @property
    def share_reached(self) -> float:
        """The share of seeds that reached the threshold."""
        return float(self.measures["mrcp_ksteps"]["reached"]) / len(self.seeds)

    def pair(self, name: str) -> list[float | None]:
        """A measure as [mean, half-width]."""
        return [self.measures[name]["mean"], self.measures[name]["half"]]

    def cost(self, name: str) -> tuple[float | None, float | None]:
        """Mean and half-width of the steps with a cost [%]; None if it was not recorded."""
        mean, half = self.by_cost.get(name, (None, None))
        return mean, half


def measured_names(rows: Iterable[Row]) -> list[str]:
    """The measured costs of all rows, each with a column in tables."""
    return list(dict.fromkeys(name for row in rows for name in row.measured))


def constraint_names(rows: Iterable[Row]) -> list[str]:
    """The constraints of all rows, if there are several."""
    names = list(dict.fromkeys(name for row in rows for name in row.by_cost if name not in row.measured))
    return names if len(names) > 1 else []


def section_of(kind: MethodKind | None) -> tuple[str, bool]:
    """The section of a method in tables, and whether it is a safe method; `kind` None: unknown."""
    if kind is None or not (kind.plans or kind.policy):
        return SECTIONS[3], False
    if kind.policy and not kind.model_based:
        return SECTIONS[2], kind.safe
    return SECTIONS[0 if kind.safe else 1], kind.safe


def rows_of(records: list[Record]) -> list[Row]:
    """The rows of one environment, sorted by section, with Pareto ranks and the best safe method of each measure."""
    rows = [_row(record) for record in records]
    reward, unsafe = ([row.measures[name]["mean"] for row in rows] for name in ("mar", "unsafe_pct"))
    ranks = metrics.pareto_ranks(reward, unsafe).tolist()
    rows = [replace(row, rank=rank) for row, rank in zip(rows, ranks, strict=True)]
    for name in MEASURES:
        sign = -1.0 if name in HIGHER_IS_BETTER else 1.0
        safe = [row for row in rows if row.safe and row.measures[name]["mean"] is not None]
        if name == "mrcp_ksteps":  # only methods with the largest share of seeds that reach the threshold
            most = max((row.share_reached for row in safe), default=0.0)
            safe = [row for row in safe if row.share_reached == most]
        lowest = min((sign * row.measures[name]["mean"] for row in safe), default=None)
        for row in safe:
            row.measures[name]["best"] = sign * row.measures[name]["mean"] == lowest
    return sorted(rows, key=lambda row: SECTIONS.index(row.section))


def _row(record: Record) -> Row:
    section, safe = section_of(record.kind)
    paper, found, together = paper_figures(record.env, record.method), per_seed(record), pooled(record)
    measures = {}
    for name in MEASURES:
        values = found[name]
        defined = values[~np.isnan(values)]
        mean, half = interval_pair(values)
        low, high = json_numbers(metrics.bootstrap_iqm(defined)) if defined.size else (None, None)
        measures[name] = {
            "mean": mean,
            "half": half,
            "pooled": interval_pair(together[name])[1] if name in together else None,
            "iqm": json_numbers([metrics.iqm(defined)])[0] if defined.size else None,
            "iqm_low": low,
            "iqm_high": high,
            "paper": paper.get(name),
            "best": False,
        } | ({"reached": int(defined.size)} if name == "mrcp_ksteps" else {})
    about: Any = dict(zip(("plan_ms", "evaluations"), planning(record), strict=True))
    about["by_cost"] = {name: interval_pair(values) for name, values in by_cost(record).items()}
    about["measured"] = measured_costs(record.episodes)
    about["jitter"] = interval_pair(found["jitter"]) if "jitter" in found else None
    return Row(**vars(record), section=section, safe=safe, measures=measures, **about)


# -------------------------------------------------------------------------------------------------------------- JSON


def to_json(tables: dict[str, list[Row]]) -> dict[str, Any]:
    """`<env>.<method>.<measure> = [mean, half-width]`, in snake_case, with further fields of the row.

    If a method has several settings, each has its own key: `guss_horizon_10`.
    """
    return {
        env: dict(zip(json_keys(row.key for row in rows), map(plain_row, rows), strict=True))
        for env, rows in zip(json_keys(tables), tables.values(), strict=True)
    }


def plain_row(row: Row) -> dict[str, Any]:
    """A row of table.json."""
    m = row.measures
    return {name: row.pair(name) for name in MEASURES} | {
        "label": row.label,
        "seeds": len(row.seeds),
        "episodes": row.done,
        "reached": m["mrcp_ksteps"]["reached"],
        "pareto_rank": row.rank,
        "pooled_half_width": {name: m[name]["pooled"] for name in MEASURES if name != "mrcp_ksteps"},
        "iqm": {name: [m[name]["iqm"], m[name]["iqm_low"], m[name]["iqm_high"]] for name in MEASURES},
        "paper": {name: m[name]["paper"] for name in MEASURES if m[name]["paper"] is not None},
        "plan_ms": row.plan_ms,
        "model_evaluations_per_step": row.evaluations,
        **({"unsafe_pct_by_cost": row.by_cost, "measured": list(row.measured)} if row.by_cost else {}),
        **({"jitter": row.jitter} if row.jitter else {}),
        "run": row.name,
        "command": row.command,
        "commit": row.origin.get("commit"),
    }


# ---------------------------------------------------------------------------------------------------------- Markdown


def number(value: float | None, digits: int = 3) -> str:
    """A number as text, with a minus sign (U+2212); a dash for None."""
    return "–" if value is None else f"{value:.{digits}f}".replace("-", "−")


def pair_text(mean: float | None, half: float | None, digits: int = 3) -> str:
    """`mean ± half-width`; only the mean if the half-width is None; a dash if the mean is None."""
    if mean is None:
        return "–"
    return number(mean, digits) if half is None else f"{number(mean, digits)} ± {number(half, digits)}"


def bold(text: str, best: bool) -> str:
    """The text, in bold if it is the best of its column."""
    return f"**{text}**" if best else text


def _costs_text(row: Row, names: list[str]) -> list[str]:
    """Cells of columns for constraints or measured costs; a dash for runs recorded without them."""
    return [pair_text(*row.cost(name)) for name in names]


def _measured_heads(names: list[str]) -> list[str]:
    return [f"p({markdown(name)}) [%] ↓" for name in names]


def _paper_text(paper: list[float] | None) -> str:
    """The paper's value in brackets, with the paper's digits."""
    return "[–]" if paper is None else f"[{paper[0]:g} ± {paper[1]:g}]".replace("-", "−")


def has_jitter(rows: list[Row]) -> bool:
    """Whether any of these runs has stored the jitter of its actions."""
    return any(row.jitter is not None for row in rows)


def in_paper(rows: list[Row]) -> bool:
    """Whether the paper reports values for the environment of these rows."""
    return bool(paper_methods(rows[0].env))


def in_table(rows: Iterable[Row], cells: Callable[[Row], list[str]], heads: list[str]) -> list[str]:
    """Lines of a Markdown table with section headings; `cells` returns the cells after a row's label."""
    lines = markdown_table(heads, [], rule="---:")
    for section, mine in groupby(rows, key=lambda row: row.section):
        lines.append(f"| *{section}* |" + " |" * (len(heads) - 1))
        lines += ["| " + " | ".join([markdown(row.label), *cells(row)]) + " |" for row in mine]
    return lines


def overview(tables: dict[str, list[Row]]) -> list[str]:
    """Reward, unsafe steps and measured costs of every method of the paper on all environments.

    The paper's values are in brackets.
    """
    found = {(env, row.key): row for env, rows in tables.items() for row in rows}
    shown = {row.key: row for method in [*paper_methods(), "random"] for row in found.values() if row.method == method}
    measured = {env: measured_names(rows) for env, rows in tables.items()}
    heads = ["method"]
    for env, rows in tables.items():
        costs = [f"p({markdown(cost)}) [%]" for cost in measured[env]]
        heads += [f"{markdown(rows[0].env_label)}: MAR", "unsafe [%]", *costs]
    lines = []
    for key, first in shown.items():
        cells = [markdown(first.label)]
        for env in tables:
            row = found.get((env, key))
            for name in ("mar", "unsafe_pct"):
                ours = "–" if row is None else bold(number(row.measures[name]["mean"], 2), row.measures[name]["best"])
                theirs = paper_figures(env, first.method).get(name)
                cells.append(ours if theirs is None else f"{ours} [{number(theirs[0], 2)}]")
            cells += [number(None if row is None else row.cost(name)[0], 2) for name in measured[env]]
        lines.append(cells)
    return markdown_table(heads, lines, rule="---:")


def main_table(rows: list[Row]) -> list[str]:
    """The paper's layout: mean ± 90 % interval over seeds, [the paper's value]; bold: best safe method of a measure.

    The measured costs follow p(unsafe).
    """
    beside, measured, shaky = in_paper(rows), measured_names(rows), has_jitter(rows)

    def cells(row: Row) -> list[str]:
        texts = []
        for name in MEASURES:
            m = row.measures[name]
            ours = bold(pair_text(m["mean"], m["half"]), m["best"])
            if name == "mrcp_ksteps" and 0 < m["reached"] < len(row.seeds):
                ours += f" ({m['reached']} of {len(row.seeds)} seeds)"
            texts.append(f"{ours} {_paper_text(m['paper'])}" if beside else ours)
            texts += _costs_text(row, measured) if name == "unsafe_pct" else []
        asked = row.config["episodes"]
        count = f"{row.done}" if row.done == asked else f"{row.done} of {asked}"
        evaluations = "–" if row.evaluations is None else f"{row.evaluations:,}"
        texts += [pair_text(*(row.jitter or (None, None)))] * shaky
        return [f"{len(row.seeds)} × {count}", *texts, str(row.rank), number(row.plan_ms, 2), evaluations]

    heads = ["method", "seeds × episodes"]
    for name in MEASURES:
        heads += [HEADS[name][0], *(_measured_heads(measured) if name == "unsafe_pct" else [])]
    heads += ["jitter"] * shaky
    return in_table(rows, cells, [*heads, "Pareto rank", "ms per step", "predictions per step"])


def cost_table(rows: list[Row]) -> list[str]:
    """Unsafe steps by constraint; empty with a single constraint."""
    names = constraint_names(rows)
    heads = ["method", *(f"{markdown(name)} [%]" for name in names)]
    return in_table(rows, lambda row: _costs_text(row, names), heads) if names else []


def sure_table(rows: list[Row]) -> list[str]:
    """Interquartile means with bootstrap intervals, and intervals over pooled episodes."""

    def cells(row: Row) -> list[str]:
        texts = []
        for name in ("mar", "unsafe_pct", "unsafe_trans_pct"):
            m = row.measures[name]
            between = "" if m["iqm_low"] is None else f" [{number(m['iqm_low'])}, {number(m['iqm_high'])}]"
            texts += [f"{number(m['iqm'])}{between}", f"± {number(m['pooled'])}"]
        return texts

    heads = [h for name in ("MAR", "p(unsafe)", "transient") for h in (f"{name}: IQM [90 %]", "pooled")]
    return in_table(rows, cells, ["method", *heads])


def against_table(rows: list[Row], tests: list[dict[str, Any]], against: str) -> list[str]:
    """Welch's p-values of one row, given by key, against all others: over seeds, Holm-corrected, and pooled."""
    name = markdown(next(row.label for row in rows if row.key == against))
    heads = [h for m in ("MAR", "p(unsafe)") for h in (f"{m}: {name} − method", "p", "p (Holm)", "p (pooled)")]
    by_pair = {(t["measure"], t["a"], t["b"]): t for t in tests}

    def cells(row: Row) -> list[str]:
        texts = []
        for measure in ("mar", "unsafe_pct"):
            test, sign = by_pair.get((measure, against, row.key)), 1.0
            if test is None:
                test, sign = by_pair[measure, row.key, against], -1.0
            texts += [number(sign * test["difference"]), *(p_text(test[p]) for p in ("p", "p_holm", "p_pooled"))]
        return texts

    return in_table((row for row in rows if row.key != against), cells, ["method", *heads])


def p_text(p: float | None) -> str:
    return "–" if p is None else f"{p:.2g}" if p >= 1e-300 else "0"


# ------------------------------------------------------------------------------------------------------------- LaTeX


def to_latex(tables: dict[str, list[Row]]) -> str:
    """The paper's table with booktabs: our values, and the paper's in grey; measured costs in the last columns."""
    measured = measured_names(row for rows in tables.values() for row in rows)
    heads = [rf"\multicolumn{{2}}{{c}}{{{HEADS[name][1]}}}" for name in MEASURES]
    heads += [rf"$p(\text{{{latex(name)}}})\,[\%] \downarrow$" for name in measured]
    lines = [
        r"% needs \usepackage{booktabs,amsmath,xcolor}; our values, then the paper's in grey",
        r"\begin{tabular}{lr" + "rr" * len(MEASURES) + "r" * len(measured) + "}",
        r"\toprule",
        r"Method & Seeds $\times$ episodes & " + " & ".join(heads) + r" \\",
    ]
    width = 2 + 2 * len(MEASURES) + len(measured)
    for rows in tables.values():
        threshold = rows[0].threshold
        goal = "" if threshold is None else rf", $r_{{thr}} = {threshold:g}$"
        here = measured_names(rows)
        lines += [r"\midrule", rf"\multicolumn{{{width}}}{{c}}{{{latex(rows[0].env_label)}{goal}}} \\"]
        for _, mine in groupby(rows, key=lambda row: row.section):
            lines.append(rf"\cmidrule(l){{2-{width}}}")
            for row in mine:
                cells = [rf"${len(row.seeds)} \times {row.done}$"]
                cells += [cell for name in MEASURES for cell in _latex_cells(row.measures[name], in_paper(rows))]
                cells += [_latex_pair(*row.cost(cost)) if cost in here else "" for cost in measured]
                lines.append(f"{latex(row.label)} & " + " & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _latex_cells(m: dict[str, Any], beside: bool) -> tuple[str, str]:
    paper = m["paper"]
    theirs = "--" if paper is None else rf"${paper[0]:g} \pm {paper[1]:g}$"
    return _latex_pair(m["mean"], m["half"], m["best"]), rf"\textcolor{{gray}}{{{theirs}}}" if beside else ""


def _latex_pair(mean: float | None, half: float | None, best: bool = False) -> str:
    if mean is None:
        return "--"
    text = f"{mean:.3f}" if half is None else rf"{mean:.3f} \pm {half:.3f}"
    return rf"$\boldsymbol{{{text}}}$" if best else f"${text}$"


# ------------------------------------------------------------------------------------------------------------- words


def verdict_of(rows: list[Row], tests: list[dict[str, Any]]) -> list[str]:
    """Sentences on which safe method has the highest reward and the fewest unsafe steps, with significance."""
    safe = [row for row in rows if row.safe]
    if not safe:
        return ["There is no safe method among these runs."]
    measure = "return" if rows[0].measure == "return" else "mean reward"
    texts = []
    for name, what, unit in (("mar", f"highest {measure}", ""), ("unsafe_pct", "fewest unsafe steps", " %")):
        best = next(row for row in safe if row.measures[name]["best"])
        others = [row for row in safe if row is not best]
        m = best.measures[name]
        text = f"Of the safe methods, {best.label} has the {what}: {pair_text(m['mean'], m['half'])}{unit}"
        costs = [f"p({cost}) {pair_text(*best.cost(cost))} %" for cost in best.measured]
        text += f" ({', '.join(costs)})" * bool(costs)
        p = {frozenset((t["a"], t["b"])): t["p_holm"] for t in tests if t["measure"] == name}
        apart = {row.label: p.get(frozenset((best.key, row.key))) for row in others}
        alike = [label for label, value in apart.items() if value is not None and value >= 0.05]
        unsure = [label for label, value in apart.items() if value is None]
        if alike:
            text += f"; {_listed(alike)} are not significantly different (Welch, Holm-corrected, p ≥ 0.05)"
        elif others and not unsure:
            text += "; all others differ significantly from it (Welch, Holm-corrected, p < 0.05)"
        if unsure:
            text += f"; {_listed(unsure)}: only one seed, too few for a test"
        texts.append(text + ".")
    return texts


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
