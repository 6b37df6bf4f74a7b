"""Sentences on seeds and episodes: they say whether rows are alike, and name those that are not."""

import re

from helpers.stored import store
from hypothesis import given
from hypothesis import strategies as st
from test_report import payload_in

from guss.reports.inventory import gather
from guss.reports.report import everything, make_report, to_markdown, write_report
from guss.reports.sizes import sizes_of


def runs(folder, **sizes):
    """A run of each method with (seeds, episodes)."""
    for method, (seeds, episodes) in sizes.items():
        store(folder, "safe-car-goal", method.replace("_", "-"), [[0.0] * episodes] * len(seeds), seeds=seeds)
    return gather(folder).records


def test_rows_that_are_alike_are_one_sentence_each(tmp_path):
    six = range(6)
    records = runs(tmp_path, guss=(six, 10), rcem=(six, 10), cem=(six, 10), safe_mbpo=(six, 5), cpo=(six, 60),
                   ppo_lagrangian=(six, 60), random=(six, 2))  # fmt: skip
    assert sizes_of(records) == [
        "All rows have 6 seeds: 0–5.",
        "All planners have 10 episodes.",
        "Methods that do not plan: 5 episodes (Safe-MBPO); 60 episodes (CPO, PPO-Lagrangian); 2 episodes (Random).",
    ]


def test_rows_that_differ_are_named(tmp_path):
    records = runs(tmp_path, guss=(range(6), 20), s_rs=(range(3), 5), rcem=([0, 2], 5))
    assert sizes_of(records) == [
        "The rows have different seeds: 3 seeds: 0–2 (S-RS); 6 seeds: 0–5 (GuSS); 2 seeds: 0, 2 (RCEM).",
        "The planners have different numbers of episodes: 5 episodes (S-RS, RCEM); 20 episodes (GuSS).",
    ]


def test_episodes_are_those_that_all_seeds_have(tmp_path):
    store(tmp_path, method="guss", rewards=[[-1.0] * 3, [-1.0]], asked=50)
    assert sizes_of(gather(tmp_path).records) == ["All rows have 2 seeds: 0–1.", "All planners have 1 episode."]


def test_a_method_of_unknown_kind_is_listed_apart(tmp_path):
    store(tmp_path, "mine.py:make_env", "of-a-plugin", seeds=[7])
    assert sizes_of(gather(tmp_path).records)[1:] == ["Other methods: 4 episodes (of-a-plugin)."]


KINDS = {"guss": True, "s-rs": True, "cem": True, "cpo": False, "random": False}
SIZES = st.tuples(st.integers(1, 3), st.integers(1, 3))


@given(st.dictionaries(st.sampled_from(sorted(KINDS)), SIZES, min_size=1))
def test_they_agree_with_the_records(tmp_path_factory, found):
    folder = tmp_path_factory.mktemp("sizes")
    texts = sizes_of(runs(folder, **{name.replace("-", "_"): (range(s), n) for name, (s, n) in found.items()}))
    planners = {n for name, (_, n) in found.items() if KINDS[name]}
    assert texts[0].startswith("All rows have") == (len({s for s, _ in found.values()}) == 1)
    assert any(text.startswith("All planners have") for text in texts) == (len(planners) == 1)
    assert any(text.startswith("The planners have different") for text in texts) == (len(planners) > 1)
    numbers = {int(n) for text in texts[1:] for n in re.findall(r"(\d+) episode", text)}
    assert numbers == {n for _, n in found.values()}


def test_every_form_of_a_report_has_them(tmp_path):
    runs(tmp_path / "runs", guss=(range(2), 4), s_rs=(range(2), 3))
    runs(tmp_path / "short", guss=(range(3), 2))
    report = make_report(tmp_path)
    main = [
        "All rows have 2 seeds: 0–1.",
        "The planners have different numbers of episodes: 3 episodes (S-RS); 4 episodes (GuSS).",
    ]
    short = ["All rows have 3 seeds: 0–2.", "All planners have 2 episodes."]
    assert everything(report)["sizes"] == {"safe-car-goal": main}
    text = to_markdown(report)
    assert "\n".join(main) in text
    assert "\n".join(short) in text.partition("short/")[2]
    assert "| GuSS | 2 × 4 |" in text
    files = write_report(tmp_path)
    payload = payload_in(files[0].read_text())
    assert payload["envs"][0]["sizes"] == main
    assert payload["groups"][0]["envs"][0]["sizes"] == short
    assert r"GuSS & $2 \times 4$ &" in (files[0].parent / "table.tex").read_text()
