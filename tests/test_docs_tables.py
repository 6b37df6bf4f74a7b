"""Generated tables of results: no return of the car without its native cost; seeds and episodes as in the records."""

import re
import tomllib

import pytest

from docs.generator import runs
from docs.generator.pages import found_parts, pages
from docs.generator.parts import PARTS

CAR = "safe-car-goal"


def row(method, seeds, episodes, **more):
    label = {"guss": "GuSS", "s-rs": "S-RS"}.get(method, method)
    measures = {name: [1.25, 0.5] for name in runs.MEASURES}
    return measures | {"method": method, "label": label, "seeds": seeds, "episodes": episodes, "paper": {}} | more


def planned(method, seeds, episodes, hazard=None):
    """A row of the car's table; without `hazard`, its run did not record the native cost."""
    costs = {"unsafe_pct_by_cost": {"lidar": [1.25, 0.5], "hazard": [hazard, 0.25]}, "measured": ["hazard"]}
    budget = {"run": "safe-car-goal-run"}
    return row(method, seeds, episodes, **budget, **(costs if hazard is not None else {}))


@pytest.fixture
def tables(monkeypatch):
    """Replaces the stored tables by these rows of the car, and by rows of the other environments with 6 × 50."""

    def use(*cars, sizes=("All rows have 6 seeds: 0–5.",)):
        def stored(group, env):
            return list(cars) if env == CAR else [row(each["method"], 6, 50) for each in cars]

        files = {
            "report.json": {"sizes": {env: list(sizes) for env in runs.ENVS}, "tests": dict.fromkeys(runs.ENVS, ())},
            "config.json": {"config": {"budget": 525}},
        }
        monkeypatch.setattr(runs, "rows", stored)
        monkeypatch.setattr(runs, "load", lambda path: files[path.rpartition("/")[2]])

    return use


def cells_of(text, column):
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    index = lines[0].index(column)
    return [line[index].strip() for line in lines[2:]]


def test_the_native_cost_is_next_to_the_papers_and_a_dash_where_it_was_not_recorded(tables):
    tables(planned("guss", 6, 10, 2.5), planned("s-rs", 3, 5))
    text = runs.table("runs", CAR, "`guss run`")
    assert cells_of(text, "native cost: p(hazard) [%]") == ["2.500 ± 0.250", "–"]
    assert "All rows have 6 seeds: 0–5.\n\nRecords" in text
    assert cells_of(runs.overview(), "native cost [%]") == ["–", "2.50"], "S-RS is first, as in the paper"
    assert "native cost" not in runs.table("runs", "safe-pendulum", "`guss run`")
    assert runs.car_native() == "2.500 ± 0.250 %"
    assert runs.figure(CAR, "guss.hazard") == "2.500 ± 0.250 %"
    assert runs.figure(CAR, "s-rs.hazard") == "not recorded"
    assert runs.figure(CAR, "guss.unsafe_pct") == "1.250 ± 0.500 %"
    assert runs.figure(CAR, "guss.mar") == "1.250 ± 0.500"


def test_policies_of_other_environments_have_an_empty_cell(tables):
    tables(planned("cpo", 6, 600, 4.5))
    assert cells_of(runs.policies(), "native cost: p(hazard) [%]") == ["", "", "4.500 ± 0.250"]


def test_sentences_count_seeds_and_episodes(tables):
    tables(planned("guss", 6, 10), planned("s-rs", 6, 10), planned("cpo", 6, 600), planned("random", 6, 50))
    assert runs.overview_seeds() == "6 seeds"
    assert runs.overview_episodes() == (
        "Episodes of each seed: S-RS, GuSS: 50 (SafeCar-Goal: 10); CPO: 50 (SafeCar-Goal: 600); Random: 50. "
        "Steps of an episode: 200 (SafeCar-Goal: 1,000)."
    )
    assert runs.car_episodes("cpo") == "600"
    tables(planned("guss", 6, 10), planned("s-rs", 3, 5))
    assert runs.overview_seeds() == "3 to 6 seeds"
    assert "S-RS: 50 (SafeCar-Goal: 5); GuSS: 50 (SafeCar-Goal: 10)" in runs.overview_episodes()


def test_planners_to_choose_from_have_it(tables):
    tables(planned("guss", 6, 10, 2.5), planned("s-rs", 6, 10, 1.5), planned("rcem", 6, 10))
    text = runs.choosing_planners()
    assert cells_of(text, "native cost [%]") == ["2.500 ± 0.250", "1.500 ± 0.250", "–"]
    assert cells_of(text, "plans per step on the car") == ["525"] * 3


def without_native(claims):
    """Returns of the car in claims that do not quote the native cost of the same method; not those of the paper."""
    for claim in claims:
        if claim["env"] == CAR:
            quoted = {name for name in re.findall(r"\{([^}/]+)\.mar\}", claim["figure"])}
            yield from quoted - set(re.findall(r"\{([^}/]+)\.hazard\}", claim["figure"]))


def test_no_claim_quotes_a_return_of_the_car_without_it():
    claims = tomllib.loads((runs.ROOT / "docs" / "generator" / "claims.toml").read_text())["claim"]
    assert list(without_native(claims)) == []
    assert list(without_native([{"env": CAR, "figure": "GuSS {guss.mar}, {cem.mar} with {cem.hazard}"}])) == ["guss"]


def test_no_table_quotes_a_return_of_the_car_without_it():
    """Every generated table with rewards of the car has its native cost."""
    shown = {name for page in pages() for name, _, _ in found_parts(page.read_text(), str(page))}
    texts = {name: f"{name} {PARTS[name]()}" for name in sorted(shown)}
    cars = {name: text for name, text in texts.items() if re.search(r"SafeCar-Goal|safe-car-goal|car-margins", text)}
    quoting = {name for name, text in cars.items() if re.search(r"\bMAR\b|\| return \||\| SafeCar-Goal \|", text)}
    assert quoting == {
        "results-overview",
        "results-safe-car-goal",
        "results-policies",
        "results-paper-safe-car-goal",
        "claims-safe-car-goal",
        "choosing-planners",
        "car-margins",
    }
    assert [name for name in quoting if not re.search("native cost|inside a hazard", cars[name])] == []
