"""A report on the runs in a folder: tables, figures and an HTML page, from stored records; no user code is imported.

table.md      results in the layout of the paper's table, beside the paper's; uncertainty; gaps; provenance
table.json    <env>.<method>.{mar, mrcp_ksteps, unsafe_pct, unsafe_trans_pct} = [mean, half-width], seeds, episodes, …
table.tex     the table for a paper
report.json   tests between all pairs, groups, notes, runs
figures/      PNG and SVG
report.html   everything on one self-contained page
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from guss.checkpoint import write_atomically
from guss.errors import GussError
from guss.files import check_folder, writing
from guss.reports import state_figures, table
from guss.reports.curves import draw_learning, with_random_apart
from guss.reports.escapes import file_stem, markdown, markdown_code, markdown_table, markdown_title, one_line
from guss.reports.figures import draw_gallery, draw_model
from guss.reports.inventory import Gathered, Record, by_env, gather
from guss.reports.labels import flat
from guss.reports.page import HERO, Drawn, build_page, make_payload, stem_of
from guss.reports.pareto import draw_pareto
from guss.reports.run_summary import compare
from guss.reports.sizes import sizes_of
from guss.reports.style import save_figure
from guss.reports.swept_figure import draw_swept
from guss.reports.table import Row, against_table, main_table, rows_of, sure_table, to_json, to_latex, verdict_of
from guss.runs import state_maps
from guss.runs.metrics import MEASURES
from guss.runs.store import json_bytes
from guss.usercode import no_user_code

OF_ENV = ("learning", "pareto", "swept", "model", "coverage", "states")
"""Kinds of figures of an environment."""


class Group(NamedTuple):
    """Runs shown together, by environment."""

    title: str
    tables: dict[str, list[Row]]
    tests: dict[str, list[dict[str, Any]]]

    @classmethod
    def of(cls, title: str, records: list[Record]) -> Group:
        envs = by_env(records)
        tests = {env: compare(mine) for env, mine in envs.items()}
        return cls(title, {env: rows_of(mine) for env, mine in envs.items()}, tests)


@dataclass
class Report:
    """The contents of a report."""

    found: Gathered
    name: str
    """Name of the folder."""
    tables: dict[str, list[Row]]
    tests: dict[str, list[dict[str, Any]]]
    groups: dict[str, Group]
    """By folder."""
    verdicts: dict[str, list[str]]
    """Summaries of the tables in sentences, by environment."""


@no_user_code("a report")
def write_report(
    folder: Path, out: Path | None = None, command: str = "", on_part: Callable[[str], Any] | None = None
) -> list[Path]:
    """Write a report and return its files, the page first; `on_part` is called before each part, with its name."""
    begin = on_part or (lambda part: None)
    begin("reading records")
    out = folder / "report" if out is None else out
    report = make_report(folder)
    check_folder(out / "figures")
    with writing(out):
        (out / "figures").mkdir(parents=True, exist_ok=True)
    begin("tables")
    contents = {
        "table.md": to_markdown(report).encode(),
        "table.tex": to_latex(report.tables).encode(),
        "table.json": json_bytes(to_json(report.tables)),
        "report.json": json_bytes(everything(report)),
    }
    for name, content in contents.items():
        write_atomically(out / name, content)
    drawn, notes = draw_all(report, out / "figures", begin)
    begin("report.html")
    payload = make_payload(report, out, drawn, notes, command or f"guss report {report.name}")
    write_atomically(out / "report.html", build_page(payload).encode())
    return [*(out / name for name in ("report.html", *contents)), *(path for paths in drawn.values() for path in paths)]


@no_user_code("a report")
def make_report(folder: Path) -> Report:
    found = gather(folder)
    if not (found.records or found.groups or found.toys):
        error = GussError(
            f"there is no {'readable ' if found.left_out else ''}run in {folder}: a report needs "
            f"folders with config.json and episodes.jsonl, as written by `guss run` and `guss reproduce`"
        )
        for note in found.left_out:
            error.add_note(note)
        raise error
    name, tables, tests = Group.of(folder.resolve().name, found.records)
    groups = {where: Group.of(group_title(folder / where), records) for where, records in found.groups.items()}
    verdicts = {env: verdict_of(rows, tests[env]) for env, rows in tables.items()}
    return Report(found, name, tables, tests, groups, verdicts)


# ------------------------------------------------------------------------------------------------------------ tables


def to_markdown(report: Report) -> str:
    shown = [*report.tables.values(), *(rows for group in report.groups.values() for rows in group.tables.values())]
    beside = ", then [the paper's Table 1]" if any(map(table.in_paper, shown)) else ""
    names = table.measured_names(row for rows in shown for row in rows)
    measured = [
        f"; p({name}): percentage of steps with the cost {name}, which plans do not use, a dash if it was not recorded"
        for name in map(markdown, names)
    ]
    jitter = "jitter: mean change of the action from step to step, as a share of its range, in the episodes of MAR. "
    lines = [
        f"# Results in {markdown_code(report.name)}",
        "",
        f"Written by {markdown_code(f'guss report {report.name}')}, from stored records. "
        f"Mean ± half-width of the 90 % interval over seeds{beside}"
        "; bold: the best safe method by each measure. MAR: mean reward of the second "
        "half of the episodes; MRCP: thousands of real steps until an episode first reaches the threshold; "
        f"p(unsafe): percentage of unsafe steps, transient: in the first 15 % of the episodes{''.join(measured)}"
        f"{'; ' + jitter if any(map(table.has_jitter, shown)) else '. '}Pareto rank: by MAR and "
        "p(unsafe); 1: not dominated. ms per step: planning and acting for one seed on one core in the fastest "
        "episode, without compilation; predictions: transitions that the model predicts per step.",
    ]
    if len(report.tables) > 1:
        lines += ["", *table.overview(report.tables)]
    for env, rows in report.tables.items():
        lines += ["", f"## {_heading(rows)}", "", *map(markdown, report.verdicts[env]), ""]
        lines += [*map(markdown, sizes_of(rows)), "", *main_table(rows)]
        if costs := table.cost_table(rows):
            lines += ["", "Percentage of unsafe steps by constraint, over all episodes.", "", *costs]
        sure = "IQM: interquartile mean over seeds [bootstrap interval]; pooled: half-width over episodes of all seeds."
        lines += ["", sure, "", *sure_table(rows)]
        lines += _against_hero(rows, report.tests[env])
    for name, group in report.groups.items():
        lines += ["", f"## {markdown_title(group.title)} ({markdown_code(f'{name}/')})"]
        for env, rows in group.tables.items():
            lines += ["", f"### {_heading(rows)}", "", *map(markdown, sizes_of(rows)), "", *main_table(rows)]
            notes = _differences(report, rows)
            lines += ["", *notes] if notes else []
            lines += _against_hero(rows, group.tests[env])
    lines += ["", "## Missing, incomplete or inconsistent runs", ""]
    lines += [f"- {markdown(note)}" for note in report.found.notes] or ["Nothing."]
    lines += ["", "## Provenance", ""]
    lines += markdown_table(["run", "command", "commit", "machine"], map(_source, report.found.all_records))
    return "\n".join(lines) + "\n"


def _source(record: Record) -> list[str]:
    command = markdown_code(record.command or "?", cell=True)
    commit = markdown(str(record.origin.get("commit"))[:10])
    return [markdown(record.where), command, commit, markdown(record.machine)]


def _against_hero(rows: list[Row], tests: list[dict[str, Any]]) -> list[str]:
    """The tests of all methods against GuSS, if exactly one row is GuSS."""
    heroes = [row for row in rows if row.method == HERO]
    if not tests or len(heroes) != 1:
        return []
    caption = "Welch's t-test against GuSS: over seeds; with Holm's correction for all pairs; over pooled episodes."
    return ["", caption, "", *against_table(rows, tests, heroes[0].key)]


def _heading(rows: list[Row]) -> str:
    first = rows[0]
    goal = "" if first.threshold is None else f", threshold {table.number(first.threshold, 1)}"
    return f"{markdown(first.env_label)} (MAR: {MEASURES[first.measure]}{goal})"


def group_title(folder: Path) -> str:
    """The title of a group: the heading of the README.md in its folder, else the folder's name."""
    readme = folder / "README.md"
    first = readme.read_text(errors="replace").splitlines()[:1] if readme.is_file() else []
    return one_line(first[0].lstrip("# ")) if first else one_line(f"Further runs: {folder.name}")


def differences(report: Report, record: Record) -> list[str]:
    """The settings of a run in a group that differ from the nearest main run of the same environment and method."""
    rivals = [r for r in report.found.records if (r.env, r.method) == (record.env, record.method)]
    mine, found = flat(record.config), list[list[str]]()
    for rival in rivals:
        other, beside = flat(rival.config), "" if len(rivals) == 1 else f" of {rival.label}"
        found.append(
            [
                f"{key} {mine.get(key, 'default')} instead of {other.get(key, 'default')}{beside}"
                for key in sorted({*mine, *other})
                if mine.get(key) != other.get(key)
            ]
        )
    return min(found, key=len, default=[])


def _differences(report: Report, rows: list[Row]) -> list[str]:
    """A line with the differences that all runs of a table share, then a line for each run with further ones."""
    found = {row.name: texts for row in rows if (texts := differences(report, row))}
    shared = [text for text in next(iter(found.values()), []) if all(text in texts for texts in found.values())]
    if len(found) < 2 or not shared:
        return [f"- {markdown_code(name)}: {markdown('; '.join(texts))}" for name, texts in found.items()]
    own = {name: [text for text in texts if text not in shared] for name, texts in found.items()}
    return [
        f"- all: {markdown('; '.join(shared))}",
        *(f"- {markdown_code(name)} also: {markdown('; '.join(more))}" for name, more in own.items() if more),
    ]


def everything(report: Report) -> dict[str, Any]:
    """The contents of report.json: everything that table.json lacks."""
    return {
        "folder": report.name,
        "environments": {env: rows[0].env_label for env, rows in report.tables.items()},
        "notes": report.found.notes,
        "verdicts": report.verdicts,
        "sizes": {env: sizes_of(rows) for env, rows in report.tables.items()},
        "tests": report.tests,
        "group_tests": {name: group.tests for name, group in report.groups.items()},
        "groups": {
            name: [{"env": env, "method": row.method} | table.plain_row(row) for env in tables for row in tables[env]]
            for name, (_, tables, _) in report.groups.items()
        },
        "runs": [
            {"run": record.name, "group": record.group, "seeds": record.seeds, "episodes": record.done} | record.origin
            for record in report.found.all_records
        ],
    } | ({"left_out": report.found.left_out} if report.found.left_out else {})


# ----------------------------------------------------------------------------------------------------------- figures


def draw_all(report: Report, folder: Path, begin: Callable[[str], Any]) -> tuple[Drawn, list[str]]:
    """Draw every figure that the records allow: files by (environment or "", kind), and notes on missing figures."""
    drawn, notes = Drawn(), list[str]()
    for kind in (*OF_ENV, "gallery", "*-exploration", "*-trajectories"):
        for old in [*folder.glob(f"{kind}*.png"), *folder.glob(f"{kind}*.svg")]:  # of an earlier report
            with writing(old):
                old.unlink()

    def keep(env: str, kind: str, figure: Any) -> None:
        if figure is not None:
            drawn[env, kind] = save_figure(figure, folder / (f"{kind}-{stem_of(env)}" if env else kind))

    for env, rows in report.tables.items():
        records = by_env(report.found.records)[env]
        label = rows[0].env_label
        begin(f"maps of states, {label}")
        mapped = read_all_maps(report.found, records, notes)
        parts: dict[str, Callable[[], Any]] = {
            "learning": partial(draw_learning, *with_random_apart(records)),
            "pareto": partial(draw_pareto, env, rows),
            "swept": partial(draw_swept, records),
            "model": partial(draw_model, records),
            "coverage": partial(state_figures.draw_coverage, mapped),
            "states": partial(state_figures.draw_states, mapped),
        }
        for kind, draw in parts.items():
            begin(f"figure {kind}, {label}")
            keep(env, kind, draw())
    begin("figure gallery")
    keep("", "gallery", draw_gallery([*(["safe-toy"] if report.found.toys else []), *report.tables]))
    for home in report.found.toys:
        from guss.reports.toy import draw_exploration, draw_trajectories
        from guss.runs.toy import load_toy

        begin("figures of the toy world")
        where = home.relative_to(report.found.folder).as_posix()
        stem = file_stem(where, kept=True)
        try:
            data, records_of = load_toy(home)
            keep("", f"{stem}-exploration", draw_exploration(data, records_of))
            keep("", f"{stem}-trajectories", draw_trajectories(data, records_of))
        except (GussError, KeyError, TypeError, ValueError) as error:
            reason = report.found.brief(error) if isinstance(error, GussError) else f"{type(error).__name__}: {error}"
            notes.append(f"{where}: the figures of the toy world cannot be drawn: {reason}.")
    return drawn, notes


def read_all_maps(gathered: Gathered, records: list[Record], notes: list[str]) -> state_figures.Mapped:
    """The state maps of the runs with stored maps or traces; runs without are added to the notes."""
    label = records[0].env_label
    maps, states = dict[Path, dict[str, Any] | None](), dict[Path, state_maps.StoredStates]()

    @contextmanager
    def noting(record: Record) -> Iterator[None]:
        try:
            yield
        except GussError as error:
            states.pop(record.home, None)
            notes.append(f"{record.who}: no state map: {gathered.brief(error)}.")

    for record in records:
        with noting(record):
            maps[record.home] = state_maps.stored_maps(record.home)
            if maps[record.home] is None:
                states[record.home] = state_maps.read_states(record.home, record, record.episodes)
    plane = state_maps.shared_plane(list(states.values()))
    for record in [record for record in records if record.home in states]:
        with noting(record):
            maps[record.home] = state_maps.count_states(states[record.home], plane)
    found = [(record, mine) for record in records if (mine := maps.get(record.home)) is not None]
    lacking = [record.label for record in records if record.home in states and maps[record.home] is None]
    if found and lacking:
        notes.append(f"{label}: neither maps nor traces of {', '.join(lacking)}.")
    if found and not state_figures.same_plane(found):
        notes.append(
            f"{label}: the states of its runs were counted on different planes, so their coverage cannot be compared."
        )
    return found
