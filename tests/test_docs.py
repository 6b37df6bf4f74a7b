"""What README and docs say is run: Python blocks, commands, links, numbers."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(language):
    for page in PAGES:
        for i, match in enumerate(re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)):
            yield pytest.param(match, id=f"{page.relative_to(ROOT)}-{i}")


def commands():
    for param in blocks("bash"):
        for line in param.values[0].splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0] == "guss":
                yield pytest.param(words[1:], id=" ".join(words))


@pytest.mark.parametrize("code", list(blocks("python")))
def test_python_blocks_run(code):
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize("words", list(commands()))
def test_commands_exist_and_the_short_ones_run(words, guss_command, tmp_path):
    from guss.cli.main import parse

    parse(words)
    if words[0] in ("list", "plan"):
        guss_command(*words, cwd=ROOT, check=0)
    elif words[0] == "run" and "--plugin" in words:
        small = ("--method", "rs", "--seeds", "1", "--episodes", "2", "--horizon", "2", "--budget", "20")
        guss_command(*words, *small, "--no-figures", "--out", tmp_path, cwd=ROOT, check=0)
    elif "--plugin" in words:
        guss_command(*words, "--steps", "2", "--horizon", "3", "--out", tmp_path, cwd=ROOT, check=0)


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"^make ([a-z-]+)", page.read_text(), re.MULTILINE):
            assert f"\n{target}:" in makefile, f"{page.name} names make {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_readme_table_shows_the_stored_results():
    summary = json.loads((ROOT / "results" / "toy" / "summary.json").read_text())
    rows = re.findall(r"^\| \**([a-z-]+)\** \| (\d+)/(\d+) \| ([\d.]+) \| ([\d.]+) % \| ([\d.]+) % \|$",
                      (ROOT / "README.md").read_text(), re.MULTILINE)  # fmt: skip
    assert {row[0] for row in rows} == set(summary["methods"])
    for name, reached, seeds, unsafe, safe, coverage in rows:
        m = summary["methods"][name]
        assert (int(reached), int(seeds)) == (m["reached"], m["seeds"])
        assert float(unsafe) == round(sum(m["cost_per_seed"]) / m["seeds"], 1)
        assert float(safe) == round(100 * m["safe_plan_share"], 1)
        assert float(coverage) == round(100 * m["coverage"], 1)


def test_what_the_toy_page_says_of_both_readings_of_coverage_is_stored():
    summary = json.loads((ROOT / "results" / "toy" / "summary.json").read_text())
    text = " ".join((ROOT / "docs" / "toy.md").read_text().split())
    share = {name: f"{100 * m['coverage_of_step']:.1f}" for name, m in summary["methods"].items()}
    assert f"{share['guss']} % against {share['s-rs']}, {share['rcem']} and {share['cem']} %" in text
    for rival in ("s-rs", "rcem", "cem"):
        for measure in ("safe_plan_share", "coverage", "coverage_of_step"):
            assert summary["p_values"][rival][measure] < 1.8e-4
            assert f"{summary['p_values'][rival][measure]:.1e}" == "1.6e-04"


def test_the_stored_toy_results_can_be_rebuilt_from_their_records():
    from guss.reports.toy import summarise
    from guss.runs.toy import load_toy

    home = ROOT / "results" / "toy"
    rebuilt = json.loads(json.dumps(summarise(*load_toy(home))))
    assert rebuilt == json.loads((home / "summary.json").read_text())
    assert re.fullmatch("[0-9a-f]{40}", rebuilt["provenance"]["commit"]), "results come from a commit, not from changes"


def test_the_project_speaks_of_itself_alone():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    foreign = re.compile("|".join(["/" + "root/", "/" + "work/", "/" + "tmp/bash", "pypi" + r"\.org", "/" + "home/"]))
    for name in tracked:
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".json", ".txt", ".svg", ""} and path.is_file():
            found = foreign.search(path.read_text(errors="ignore"))
            assert not found, f"{name}: {found.group()}"


def test_the_learning_tables_show_the_stored_runs():
    from guss.reports.run_summary import summarise_run
    from guss.runs.store import read_lines

    cell = r"(–|[−\d.]+ ± [\d.]+) \[[^]]*\]"
    text = (ROOT / "docs" / "learning.md").read_text()
    found = re.findall(
        rf"^\| ([a-z0-9-]+) \| ([a-z-]+) \| {cell} \| {cell} \| {cell} \| {cell} \|$", text, re.MULTILINE
    )
    shown = {(row[0], row[1]): list(row[2:]) for row in found}
    assert len(shown) == len(found)
    stored = {}
    for folder, suffix in (("runs", ""), ("paper", "-paper"), ("paper-silu", "-paper-silu"), ("horizon10", "-h10")):
        for home in (ROOT / "results" / folder).glob("*/"):
            if not home.name.startswith("safe-car") and not is_baseline(home):  # those have pages of their own
                summary = summarise_run(home)
                stored[summary["env"] + suffix, summary["method"]] = cells_of(summary)
    assert shown == stored
    for home in (ROOT / "results" / "acrobot-model").glob("*/"):
        mar, pace, unsafe, _ = cells_of(summarise_run(home))
        best = [epoch for row in read_lines(home / "timings.jsonl") for epoch in row.get("best_epoch", [])]
        assert f"| {mar} | {pace} | {unsafe} | {np.mean(best):.0f} |" in text, home.name


def is_baseline(home):
    from guss.methods import METHODS

    return json.loads((home / "config.json").read_text())["config"]["method"] in METHODS.names()


def cells_of(summary):
    pairs = [summary[name] for name in ("mar", "mrcp_ksteps", "unsafe_pct", "unsafe_trans_pct")]
    return ["–" if mean is None else f"{mean:.3f} ± {half:.3f}".replace("-", "−") for mean, half in pairs]


def test_the_car_page_shows_the_stored_runs():
    """Every stored run of the car with its seeds and episodes, and no other."""
    from guss.reports.run_summary import summarise_run

    cell = r"(–|[−\d.]+ ± [\d.]+)(?: \[[^]]*\])?"
    text = (ROOT / "docs" / "car.md").read_text()
    row = rf"^\| ([a-z0-9-]+)(?:, the paper's settings)? \| (\d+) \| (\d+) \| {cell} \| {cell} \| {cell} \| {cell} \|$"
    shown = sorted(tuple(found) for found in re.findall(row, text, re.MULTILINE))
    homes = [home for folder in ("runs", "paper") for home in (ROOT / "results" / folder).glob("safe-car-*/")]
    homes = [home for home in homes if not is_baseline(home)]
    summaries = [summarise_run(home) for home in homes]
    stored = sorted((s["method"], str(s["seeds"]), str(s["episodes"]), *cells_of(s)) for s in summaries)
    assert shown == stored
    assert len(stored) >= 6


def test_the_car_page_shows_the_stored_studies():
    text = (ROOT / "docs" / "car.md").read_text()
    for name in ("models", "margins"):
        stored = (ROOT / "results" / "car" / f"{name}.md").read_text()
        assert stored in text, f"docs/car.md does not show results/car/{name}.md"
        record = json.loads((ROOT / "results" / "car" / f"{name}.json").read_text())
        assert re.fullmatch("[0-9a-f]{40}", record["provenance"]["commit"]), (
            "results come from a commit, not from changes"
        )


@pytest.fixture(scope="module")
def report():
    from guss.reports.report import make_report

    return make_report(ROOT / "results")


def test_the_readme_shows_the_table_of_the_report(report):
    from guss.reports.table import overview

    assert "\n".join(overview(report.tables)) in (ROOT / "README.md").read_text()


def test_the_page_of_claims_shows_the_figures_of_the_report(report):
    """Every `method mean ± half-width` of an environment's section, with % its unsafe steps; claims have verdicts."""
    from guss.reports.style import label_of_env

    text = (ROOT / "docs" / "reproduction.md").read_text()
    number, seen = r"−?\d+\.\d{3} ± \d+\.\d{3}", 0
    shown = lambda row, name: "{:.3f} ± {:.3f}".format(*row.pair(name)).replace("-", "−")  # noqa: E731
    for env, rows in report.tables.items():
        (section,) = re.findall(rf"^## {label_of_env(env)}\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
        for row in rows:
            alike = [r for tables in report.groups.values() for r in tables.get(env, []) if r.method == row.method]
            pairs = {(shown(r, "mar"), shown(r, "unsafe_pct")) for r in (row, *alike)}
            shares = {shown(r, name) for r in (row, *alike) for name in ("unsafe_pct", "unsafe_trans_pct")}
            label = rf"(?<![\w-]){re.escape(row.label)}"
            for mar, unsafe in re.findall(rf"{label} ({number})(?! %)(?:(?:,| with) ({number}) %)?", section):
                assert any(mar == pair[0] and unsafe in ("", pair[1]) for pair in pairs), f"{env} {row.method}"
                seen += 1
            for unsafe in re.findall(rf"{label} ({number}) %", section):
                assert unsafe in shares, f"{env} {row.method}"
                seen += 1
    assert seen > 40
    claims = re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \| [^|]+ \|$", text, re.MULTILINE)
    assert [int(n) for n, _ in claims] == list(range(1, len(claims) + 1))
    assert len(claims) >= 25
    for _, verdict in claims:
        assert re.match("reproduced|not reproduced|different|RS: reproduced", verdict.strip()), verdict


def test_the_page_on_own_environments_shows_what_learning_everything_costs():
    """At most a tenth of the way from known functions to random actions, as the page says."""
    from guss.reports.run_summary import summarise_run

    (learned,) = (ROOT / "results" / "own").glob("safe-pendulum-guss-*/")
    config = json.loads((learned / "config.json").read_text())
    assert config["config"]["learned"] == ["reward", "cost", "behaviour"]
    assert re.fullmatch("[0-9a-f]{40}", config["provenance"]["commit"])
    (known,) = (ROOT / "results" / "runs").glob("safe-pendulum-guss-*/")
    (random,) = (ROOT / "results" / "runs").glob("safe-pendulum-random-*/")
    rows = [summarise_run(home) for home in (known, learned, random)]
    text = (ROOT / "docs" / "own-env.md").read_text()
    for name, row in zip(("everything known", "everything learned", "random actions"), rows, strict=True):
        assert row["seeds"] == 6
        mar, _, unsafe, transient = cells_of(row)
        assert f"| {name} | {row['episodes']} | {mar} | {unsafe} | {transient} |" in text
    of_known, of_learned, of_random = (row["mar"][0] for row in rows)
    assert of_learned >= of_known - 0.1 * (of_known - of_random)


def test_the_page_of_baselines_shows_the_stored_runs():
    """Every stored run of a baseline with its seeds and episodes; model-free ones have 200 k steps or more."""
    from guss.reports.run_summary import summarise_run

    cell = r"(–|[−\d.]+ ± [\d.]+) \[[^]]*\]"
    row = rf"^\| ([a-z-]+) \| ([a-z-]+) \| (\d+) \| (\d+) \| {cell} \| {cell} \| {cell} \| {cell} \|$"
    text = (ROOT / "docs" / "baselines.md").read_text()
    shown = sorted(tuple(found) for found in re.findall(row, text, re.MULTILINE))
    homes = [path for path in (ROOT / "results" / "runs").iterdir() if is_baseline(path)]
    summaries = [summarise_run(home) for home in homes]
    stored = sorted((s["env"], s["method"], str(s["seeds"]), str(s["episodes"]), *cells_of(s)) for s in summaries)
    assert shown == stored
    for home in homes:
        assert re.fullmatch("[0-9a-f]{40}", json.loads((home / "config.json").read_text())["provenance"]["commit"])
    for s in summaries:
        if s["method"] != "safe-mbpo":
            assert s["episodes"] * (1000 if s["env"] == "safe-car-goal" else 200) >= 200_000


def test_the_readme_says_how_many_steps_policies_take():
    from guss.reports.run_summary import summarise_run

    def pace(method):
        (home,) = (ROOT / "results" / "runs").glob(f"safe-pendulum-{method}-????????/")
        return summarise_run(home)["mrcp_ksteps"][0]

    text = " ".join((ROOT / "README.md").read_text().split())
    policies = f"{pace('cpo'):.0f} and {pace('ppo-lagrangian'):.0f} thousand steps"
    others = f"Safe-MBPO after {1000 * pace('safe-mbpo'):,.0f}"
    others += f", GuSS after {1000 * pace('guss'):.0f}"
    assert f"{policies}, {others}" in text


def test_the_pages_of_baselines_show_the_known_answers_as_stored():
    """What `make test-long` saw, rounded as shown."""
    tests = ROOT / "results" / "tests"
    for page, name in (("ppo", "pendulum-ppo"), ("sac", "pendulum-sac")):
        found = json.loads((tests / f"{name}.json").read_text())
        text = " ".join((ROOT / "docs" / "baselines" / f"{page}.md").read_text().split())
        mean = sum(found["returns"]) / len(found["returns"])
        assert f"−{abs(mean):.1f}" in text
    for page, name in (("ppo", "worth-ppo-lagrangian"), ("cpo", "worth-cpo")):
        found = json.loads((tests / f"{name}.json").read_text())
        text = " ".join((ROOT / "docs" / "baselines" / f"{page}.md").read_text().split())
        for key in ("reward_to_best", "cost_to_limit"):
            assert f"{min(found[key]):.3f} to {max(found[key]):.3f}" in text


def test_the_page_of_ppo_shows_the_stored_comparison():
    """Beside OmniSafe, and how fast PPO trains: as `benchmarks/policies.py` saw it."""
    stored = json.loads((ROOT / "benchmarks" / "policies.json").read_text())
    text = (ROOT / "docs" / "baselines" / "ppo.md").read_text()
    for pair in stored["ppo_lagrangian"]["rows"]:
        for who in ("guss", "omnisafe"):
            row = pair[who]
            figures = f"{row['last_reward_per_step']:.3f} | {row['last_unsafe_percent']:.2f}".replace("-", "−")
            assert f"| {row['seed']} | {who} | {figures} |" in text
    for row in stored["ppo"]["rows"]:
        assert f"{row['steps_per_second_once_compiled']:,.0f}" in text
        assert row["steps_per_second_once_compiled"] > 20_000, "stored, not measured here"
