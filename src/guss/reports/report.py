"""A report on the runs under a folder: tables, figures and a page, from stored records alone.

table.md      the paper's table, ours and the paper's side by side; how sure; what is missing; where it comes from
table.json    <env>.<method>.{mar, mrcp_ksteps, unsafe_pct, unsafe_trans_pct} = [mean, half-width], seeds, episodes, …
table.tex     the same for a paper
report.json   tests between all pairs, groups, notes, runs
figures/      PNG and SVG
report.html   all of it on one page that needs nothing else
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from guss import metrics
from guss.checkpoint import write_atomically
from guss.errors import GussError
from guss.reports import figures, table
from guss.reports.curves import draw_learning
from guss.reports.gathering import Gathered, Record, gather
from guss.reports.measuring import THRESHOLDS, compare, measure_of
from guss.reports.page import build_page
from guss.reports.payload import HERO, Drawn, make_payload
from guss.reports.style import label_of, label_of_env, save_figure
from guss.reports.table import Row, against_table, main_table, rows_of, sure_table, to_json, to_latex, verdict_of
from guss.runs.maps import read_maps
from guss.runs.records import write_json


@dataclass
class Report:
    """What a report is made of."""

    found: Gathered
    tables: dict[str, list[Row]]
    tests: dict[str, list[dict[str, Any]]]
    groups: dict[str, dict[str, list[Row]]]
    """By folder, then by environment."""
    group_tests: dict[str, dict[str, list[dict[str, Any]]]]
    """The same of their tests, where no method stands twice."""
    name: str
    """Of the folder reported on."""


def write_report(
    folder: Path, out: Path | None = None, command: str = "", on_part: Callable[[str], Any] | None = None
) -> list[Path]:
    """Make it and return its files, the page first; `on_part` is told what is being made."""
    tell = on_part or (lambda part: None)
    tell("reading records")
    report = make_report(folder)
    out = folder / "report" if out is None else out
    (out / "figures").mkdir(parents=True, exist_ok=True)
    tell("tables")
    texts = {"table.md": to_markdown(report), "table.tex": to_latex(report.tables)}
    for name, text in texts.items():
        write_atomically(out / name, text.encode())
    write_json(out / "table.json", to_json(report.tables))
    write_json(out / "report.json", everything(report))
    drawn, notes = draw_all(report, out / "figures", tell)
    tell("report.html")
    payload = make_payload(report, out, drawn, notes, command or f"guss report {report.name}")
    write_atomically(out / "report.html", build_page(payload).encode())
    names = ("report.html", *texts, "table.json", "report.json")
    return [*(out / name for name in names), *(path for paths in drawn.values() for path in paths)]


def make_report(folder: Path) -> Report:
    """Everything but the figures."""
    found = gather(folder)
    if not (found.records or found.groups or found.toys or found.notes):
        raise GussError(
            f"there is no run under {folder}: a report is made of folders with config.json and episodes.jsonl, as "
            f"`guss run` and `guss reproduce` write them"
        )
    tables = {env: rows_of(found.of_env(env)) for env in found.envs}
    tests = {env: compare(found.of_env(env)) for env in found.envs}
    groups = {
        name: {env: rows_of([r for r in records if r.env == env]) for env in dict.fromkeys(r.env for r in records)}
        for name, records in found.groups.items()
    }
    group_tests = {
        name: {env: compare([row.record for row in rows]) for env, rows in of_group.items() if _each_once(rows)}
        for name, of_group in groups.items()
    }
    return Report(found, tables, tests, groups, group_tests, folder.resolve().name)


def _each_once(rows: list[Row]) -> bool:
    return len({row.method for row in rows}) == len(rows)


# ------------------------------------------------------------------------------------------------------------ tables


def to_markdown(report: Report) -> str:
    """table.md."""
    lines = [
        f"# Results in `{report.name}`",
        "",
        f"By `guss report {report.name}`, from stored records. Ours ± half-width of the 90 % interval over seeds, then "
        "[the paper's Table 1]; of the safe methods the best by each measure in bold. MAR: mean reward of the second "
        "half of the episodes; MRCP: thousands of real steps until an episode reaches the threshold, if it ever does; "
        "p(unsafe): unsafe steps of all episodes, transient: of the first 15 %. Pareto rank: by MAR and p(unsafe), 1 "
        "is not dominated. ms per step: planning and acting for one seed on one core in the fastest episode, compiling "
        "apart; predictions: transitions that the model predicts for it.",
    ]
    if len(report.tables) > 1:
        lines += ["", *table.overview(report.tables)]
    for env, rows in report.tables.items():
        lines += ["", f"## {_heading(env, rows)}", "", *verdict_of(env, rows, report.tests[env]), "", *main_table(rows)]
        lines += [
            "",
            "How sure: interquartile means over seeds with bootstrap intervals, half-widths over pooled episodes.",
        ]
        lines += ["", *sure_table(rows)]
        lines += _against_hero(rows, report.tests[env])
    for name, tables in report.groups.items():
        lines += ["", f"## {group_title(report, name)} (`{name}/`)"]
        for env, rows in tables.items():
            lines += ["", f"### {_heading(env, rows)}", "", *main_table(rows)]
            told = _told_differences(report, rows)
            lines += ["", *told] if told else []
            lines += _against_hero(rows, report.group_tests[name].get(env, []))
    lines += ["", "## What is missing, partial or mixed", ""]
    lines += [f"- {note}" for note in report.found.notes] or ["Nothing that is known of."]
    lines += ["", "## Where the numbers come from", "", "| run | command | commit | machine |", "|---|---|---|---|"]
    for record in all_records(report):
        origin = record.origin
        where = f"{record.group}/{record.name}".lstrip("/")
        machine = machine_of(record)
        lines.append(f"| {where} | `{origin.get('command', '?')}` | {str(origin.get('commit'))[:10]} | {machine} |")
    return "\n".join(lines) + "\n"


def _against_hero(rows: list[Row], tests: list[dict[str, Any]]) -> list[str]:
    """The tests of all others against GuSS, where it is among them."""
    if not tests or all(row.method != HERO for row in rows):
        return []
    told = "Welch's t-test against GuSS, over seeds; corrected for all pairs by Holm; over pooled episodes."
    return ["", told, "", *against_table(rows, tests, HERO)]


def _heading(env: str, rows: list[Row]) -> str:
    measure = metrics.MEASURES[measure_of(env, rows[0].record.episodes)]
    threshold = THRESHOLDS.get(env)
    told = "" if threshold is None else f", threshold {table.number(threshold, 1)}"
    return f"{label_of_env(env)} (MAR: {measure}{told})"


def group_title(report: Report, name: str) -> str:
    """What a group is: the heading of the README.md in its folder, else the folder's name."""
    readme = report.found.folder / name / "README.md"
    first = readme.read_text().splitlines()[:1] if readme.exists() else []
    return first[0].lstrip("# ") if first else f"Further runs: {name}"


def all_records(report: Report) -> list[Record]:
    """Those compared, then those of the groups."""
    return [*report.found.records, *(record for records in report.found.groups.values() for record in records)]


def machine_of(record: Record) -> str:
    """The machine in a few words."""
    machine = record.origin.get("machine", {})
    return f"{machine.get('cpu', '?')}, {machine.get('cores', '?')} cores" if machine else "?"


def differences(report: Report, record: Record) -> list[str]:
    """By which settings a run of a group differs from the one that it can be compared with."""
    rival = next((r for r in report.found.records if (r.env, r.method) == (record.env, record.method)), None)
    if rival is None:
        return []
    mine, other = flat(record.config), flat(rival.config)
    return [
        f"{key} {mine.get(key, 'default')} instead of {other.get(key, 'default')}"
        for key in sorted({*mine, *other})
        if mine.get(key) != other.get(key)
    ]


def _told_differences(report: Report, rows: list[Row]) -> list[str]:
    """A line of what all of a table's runs have in common, then one for each that has more."""
    found = {row.record.name: texts for row in rows if (texts := differences(report, row.record))}
    shared = [text for text in next(iter(found.values()), []) if all(text in texts for texts in found.values())]
    if len(found) < 2 or not shared:
        return [f"- `{name}`: {'; '.join(texts)}" for name, texts in found.items()]
    own = {name: [text for text in texts if text not in shared] for name, texts in found.items()}
    return [
        f"- all: {'; '.join(shared)}",
        *(f"- `{name}` also: {'; '.join(more)}" for name, more in own.items() if more),
    ]


def flat(settings: dict[str, Any], before: str = "") -> dict[str, str]:
    """Nested settings as `fit.loss`: "nll"."""
    found: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            found |= flat(value, f"{before}{key}.")
        else:
            found[f"{before}{key}"] = str(value)
    return found


def everything(report: Report) -> dict[str, Any]:
    """report.json: what table.json has no room for."""
    return {
        "folder": report.name,
        "notes": report.found.notes,
        "verdicts": {env: verdict_of(env, rows, report.tests[env]) for env, rows in report.tables.items()},
        "tests": report.tests,
        "group_tests": report.group_tests,
        "groups": {
            name: [
                {"env": env, "method": row.method} | table.plain_row(row)
                for env, rows in tables.items()
                for row in rows
            ]
            for name, tables in report.groups.items()
        },
        "runs": [
            {"run": record.name, "group": record.group, "seeds": record.seeds, "episodes": record.done} | record.origin
            for record in all_records(report)
        ],
    }


# ----------------------------------------------------------------------------------------------------------- figures


def draw_all(report: Report, folder: Path, tell: Callable[[str], Any]) -> tuple[Drawn, list[str]]:
    """Every figure there are records for: its files by (environment or "", kind). And what could not be drawn."""
    drawn, notes = Drawn(), list[str]()
    for kind in ("learning", "pareto", "model", "coverage", "states", "gallery", "*-exploration", "*-trajectories"):
        for old in [*folder.glob(f"{kind}*.png"), *folder.glob(f"{kind}*.svg")]:  # of an earlier report
            old.unlink()

    def keep(env: str, kind: str, figure: Any) -> None:
        if figure is not None:
            drawn[env, kind] = save_figure(figure, folder / f"{kind}-{env}".rstrip("-"))

    for env, rows in report.tables.items():
        records = report.found.of_env(env)
        random = next((record for record in records if record.method == "random"), None)
        acting = [record for record in records if record is not random] or records
        tell(f"maps of states, {label_of_env(env)}")
        maps = read_all_maps(report.found, env, notes)
        parts: dict[str, Callable[[], Any]] = {
            "learning": partial(draw_learning, acting, random),
            "pareto": partial(figures.draw_pareto, env, rows),
            "model": partial(figures.draw_model, env, records),
            "coverage": partial(figures.draw_coverage, env, maps),
            "states": partial(figures.draw_states, env, maps),
        }
        for kind, draw in parts.items():
            tell(f"figure {kind}, {label_of_env(env)}")
            keep(env, kind, draw())
    tell("figure gallery")
    keep("", "gallery", figures.draw_gallery([*(["safe-toy"] if report.found.toys else []), *report.tables]))
    for home in report.found.toys:
        from guss.reports.toy import draw_exploration, draw_trajectories
        from guss.runs.toy import load_toy

        tell("figures of the toy world")
        data, records_of = load_toy(home)
        keep("", f"{home.name}-exploration", draw_exploration(data, records_of))
        keep("", f"{home.name}-trajectories", draw_trajectories(data, records_of))
    return drawn, notes


def read_all_maps(gathered: Gathered, env: str, notes: list[str]) -> dict[str, dict[str, Any]]:
    """Where the states of each method lie, of those that have stored it; what cannot be read is told."""
    found, records = {}, gathered.of_env(env)
    for record in records:
        try:
            maps = read_maps(record.home)
        except GussError as error:
            who = f"{label_of_env(record.env)}, {label_of(record.method)}"
            notes.append(f"{who}: no map of its states: {gathered.brief(error)}.")
            continue
        if maps is not None:
            found[record.method] = maps
    if found and len(found) < len(records):
        lacking = ", ".join(label_of(record.method) for record in records if record.method not in found)
        notes.append(f"{label_of_env(records[0].env)}: neither maps nor traces of {lacking}.")
    return found
