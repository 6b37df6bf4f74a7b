"""The report's page in a real browser: what it shows, how it sorts, zooms and plays, on desks, phones and paper."""

import copy
import math
import re

import pytest
from helpers.page_payload import HOSTILE, payload
from playwright.sync_api import expect

from guss.errors import GussError
from guss.reports.page import build_page

ALL = ["guss", "s-rs", "cem", "odd"]


@pytest.fixture(scope="module")
def html():
    return build_page(payload())


@pytest.fixture
def page(open_page, html):
    return open_page(html)


def results(page):
    """The first table of the first environment."""
    return page.locator("#env-safe-pendulum .scrolls").first


def order(table):
    rows = table.locator("tbody tr:not(.section)")
    return rows.evaluate_all("rows => rows.map(row => row.dataset.method)")


def ticks(page, axis):
    return page.locator(".chart").first.locator(f".axis-{axis} text").all_text_contents()


def drag(page, box, start, stop):
    """Drag over a part of a box, places as shares of its width and height."""
    page.mouse.move(box["x"] + start[0] * box["width"], box["y"] + start[1] * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + stop[0] * box["width"], box["y"] + stop[1] * box["height"], steps=4)
    page.mouse.up()


# ---------------------------------------------------------------------------------------------- what goes in, as text


def test_text_stays_text(page, html):
    assert html.count("</script") == 2
    assert page.locator("h1").text_content() == f"results {HOSTILE}"
    assert page.title() == f"results {HOSTILE} – guss report"
    assert page.locator("b", has_text=re.compile("^x$")).count() == 0
    assert page.locator("#env-safe-pendulum .verdict p").all_text_contents() == [
        "GuSS is the best safe method: MAR −1.53.",
        HOSTILE,
    ]
    assert page.locator(".command code").first.text_content() == f"guss run --note '{HOSTILE}'"


def test_nothing_but_files_is_linked(page):
    links = page.locator("a").evaluate_all("links => links.map(link => link.getAttribute('href'))")
    assert all(link.startswith(("#", "../runs/")) for link in links)
    assert page.locator(".run").first.locator("dd a").count() == 0, "a javascript: address is no link"


def test_a_page_asks_nothing_of_the_network(html):
    assert not re.search(r"(src|href)=\"https?:|@import|url\(", html.split('id="payload"')[0])


def test_numbers_lead_to_their_runs(page):
    lost = page.evaluate("""() => [...document.querySelectorAll("a.number")]
        .filter(link => !document.getElementById(decodeURIComponent(link.hash.slice(1)))).map(link => link.hash)""")
    assert lost == []
    results(page).locator("tr[data-method=cem] a.number").first.click()
    assert page.locator(".run:target h3").text_content() == "safe-pendulum-cem-0123abcd"


def test_an_address_with_a_run_opens_there(open_page, html):
    page = open_page(html, "#run-safe-car-cem-0123abcd")
    expect(page.locator(".run:target")).to_be_in_viewport()


def test_a_number_that_is_not_finite_is_an_error():
    broken = payload()
    broken["envs"][0]["threshold"] = math.nan
    with pytest.raises(GussError, match="finite"):
        build_page(broken)


# --------------------------------------------------------------------------------------------------------- the table


def test_cells_are_written_as_in_the_paper(page):
    cells = results(page).locator("tr[data-method=guss] td")
    assert cells.nth(0).text_content() == "−1.53 ± 0.28[paper −2.20 ± 0.16]"
    assert cells.nth(1).text_content() == "1.50 ± 0.10reached by 4 of 6 seeds"
    assert cells.nth(2).text_content() == "0.004 ± 0.001"
    assert cells.nth(0).locator("strong").count() == 1
    assert "pooled: ± 0.06" in cells.nth(0).locator("a").get_attribute("title")
    assert results(page).locator("tr[data-method=s-rs] td").last.text_content() == "15 of 50"
    assert results(page).locator("tr[data-method=odd] td").nth(0).text_content() == "–"
    assert page.locator(".notice li").all_text_contents() == ["S-RS on Safe Pendulum: 15 of 50 episodes."]


def test_a_measured_cost_has_a_column_next_to_the_unsafe_steps(page, open_page):
    assert page.locator("#env-safe-pendulum .sizes").text_content() == f"All rows have 6 seeds: 0–5. {HOSTILE}"
    assert "p(hazard)" not in page.locator("#env-safe-pendulum").inner_text()
    some = payload()
    rows = some["envs"][0]["rows"]
    rows[0] |= {"by_cost": {"limit": [0.004, 0.001], "hazard": [2.5, 0.5]}, "measured": ["hazard"]}
    rows[2] |= {"by_cost": {"limit": [20.9, 8.86], "hazard": [31.25, None]}, "measured": ["hazard"]}
    page = open_page(build_page(some))
    heads = results(page).locator("thead th").all_text_contents()
    assert heads[3:6] == ["p(unsafe) ↓%", "p(hazard) ↓%", "transient ↓%"]
    assert not any(head.startswith("limit") for head in heads), "a single constraint is p(unsafe)"
    cell = lambda table, method, column: table.locator(f"tr[data-method={method}] td").nth(column).text_content()  # noqa: E731
    cells = [cell(results(page), method, 3) for method in ("guss", "s-rs", "cem")]
    assert cells == ["2.50 ± 0.50", "–", "31.25"]
    assert "p(hazard): percentage of steps with the cost hazard, which plans do not use" in page.inner_text("body")
    glance = page.locator("#glance .scrolls")
    assert glance.locator("thead th").nth(3).text_content() == "p(hazard) ↓Safe Pendulum, %"
    assert [cell(glance, method, 2) for method in ("guss", "s-rs")] == ["2.50 ± 0.50", "–"]
    results(page).locator("thead button").nth(4).click()
    assert order(results(page)) == ["guss", "cem", "s-rs", "odd"]


def test_all_environments_are_compared_at_a_glance(page, open_page):
    table = page.locator("#glance .scrolls")
    assert order(table) == ALL
    assert table.locator("tr[data-method=guss] td").all_text_contents()[:2] == [
        "−1.53 ± 0.28[paper −2.20 ± 0.16]",
        "0.004 ± 0.001",
    ]
    assert table.locator("thead th").all_text_contents() == [
        "method", "MAR ↑Safe Pendulum", "p(unsafe) ↓Safe Pendulum, %", f"MAR ↑{HOSTILE}", f"p(unsafe) ↓{HOSTILE}, %",
    ]  # fmt: skip
    table.locator("thead button").nth(3).click()
    assert order(table) == ["s-rs", "guss", "cem", "odd"]
    one = payload()
    del one["envs"][1]
    assert open_page(build_page(one)).locator("#glance").count() == 0, "of one environment its own table says all"


def test_a_method_of_some_environments_only_is_told_where_it_is(open_page):
    some = payload()
    for env, method in ((0, "cem"), (1, "guss")):
        some["envs"][env]["rows"] = [row for row in some["envs"][env]["rows"] if row["method"] != method]
    table = open_page(build_page(some)).locator("#glance .scrolls")
    assert order(table) == ["guss", "s-rs", "odd", "cem"], "sections stay together"
    assert table.locator("tr[data-method=guss] td").all_text_contents()[2:] == ["–", "–"]
    assert table.locator("tr[data-method=cem] td").all_text_contents()[:2] == ["–", "–"]


def test_clicks_sort_and_the_third_restores(page):
    table = results(page)
    head = table.locator("thead th").nth(2)
    assert order(table) == ALL
    assert table.locator("tr.section").all_text_contents() == ["safe planners", "planners", "others"]
    head.locator("button").click()
    assert order(table) == ["guss", "cem", "s-rs", "odd"]
    assert head.get_attribute("aria-sort") == "ascending"
    assert table.locator("tr.section").count() == 0
    head.locator("button").click()
    assert order(table) == ["s-rs", "cem", "guss", "odd"], "what is missing stays last"
    assert head.get_attribute("aria-sort") == "descending"
    head.locator("button").click()
    assert order(table) == ALL
    assert head.get_attribute("aria-sort") == "none"
    assert table.locator("tr.section").count() == 3


def test_keys_sort(page):
    table = results(page)
    table.locator("thead button").nth(1).focus()
    page.keyboard.press("Enter")
    assert order(table) == ["s-rs", "guss", "cem", "odd"]
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert order(table) == ["guss", "cem", "s-rs", "odd"]
    assert table.locator("thead th[aria-sort=ascending]").count() == 1


def test_folded_tables_open_and_sort(page):
    page.locator("summary", has_text="Tests").first.click()
    table = page.locator("details[open] .scrolls")
    assert table.locator("tbody tr").first.text_content() == "MARGuSSS-RS0.07< 0.001< 0.0010.900"
    table.locator("thead button", has_text="A − B").click(click_count=2, delay=20)
    assert table.locator("tbody tr").last.locator("td").nth(2).text_content() == "–"
    page.locator("summary", has_text="With the paper's own settings").click()
    assert page.locator("#further a.number").first.is_visible()


# -------------------------------------------------------------------------------------------------------- the curves


def test_a_drag_zooms_and_reset_restores(page):
    chart, reset = page.locator(".chart").first, page.locator(".reset").first
    chart.scroll_into_view_if_needed()
    before = ticks(page, "x"), ticks(page, "y")
    assert reset.is_disabled()
    drag(page, chart.bounding_box(), (0.4, 0.2), (0.6, 0.6))
    assert ticks(page, "x") != before[0]
    assert ticks(page, "y") != before[1]
    reset.click()
    assert (ticks(page, "x"), ticks(page, "y")) == before
    drag(page, chart.bounding_box(), (0.4, 0.5), (0.6, 0.5))
    assert ticks(page, "x") != before[0]
    chart.dblclick(position={"x": 200, "y": 100})
    assert (ticks(page, "x"), ticks(page, "y")) == before


def test_a_finger_zooms_and_two_taps_restore(open_page, html):
    page = open_page(html, viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    chart = page.locator(".chart").first
    chart.scroll_into_view_if_needed()
    before, box = ticks(page, "x"), chart.bounding_box()
    finger = page.context.new_cdp_session(page)
    y = box["y"] + box["height"] / 2
    for kind, share in [("Start", 0.4), ("Move", 0.5), ("Move", 0.6), ("Move", 0.7), ("End", None)]:
        points = [] if share is None else [{"x": box["x"] + share * box["width"], "y": y}]
        finger.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": points})
    assert ticks(page, "x") != before
    page.touchscreen.tap(box["x"] + 150, y)
    page.touchscreen.tap(box["x"] + 150, y)
    assert ticks(page, "x") == before
    for share in (0.3, 0.55, 0.9):
        page.touchscreen.tap(box["x"] + share * box["width"], y)
        said = page.locator(".readout").first.bounding_box()
        assert said["x"] >= 0, "what is read stays on the screen"
        assert said["x"] + said["width"] <= 390


def test_keys_read_and_zoom(page):
    chart = page.locator(".chart").first
    before = ticks(page, "x")
    chart.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.locator(".readout b").first.text_content() == "episode 2"
    page.keyboard.press("+")
    assert ticks(page, "x") != before
    page.keyboard.press("Escape")
    assert ticks(page, "x") == before


def test_the_pointer_reads_values(page):
    chart = page.locator(".chart").first
    chart.hover(position={"x": 300, "y": 100})
    said = page.locator(".readout").first
    assert said.is_visible()
    assert re.match(r"episode \d+CEM−\d.\d\dS-RS", said.text_content())
    page.mouse.move(5, 5)
    assert not said.is_visible()


def test_the_legend_hides_and_shows(page):
    panels = page.locator("#env-safe-pendulum .curves")
    shown = lambda: panels.locator(".mean").evaluate_all("lines => lines.map(line => line.dataset.method)")  # noqa: E731
    assert shown() == ["guss", "s-rs", "cem", "guss"]
    button = panels.locator(".toggle[data-method=guss]")
    button.click()
    assert shown() == ["s-rs", "cem"]
    assert button.get_attribute("aria-pressed") == "false"
    panels.get_by_role("button", name="hide all").click()
    assert shown() == []
    panels.get_by_role("button", name="show all").click()
    assert shown() == ["guss", "s-rs", "cem", "guss"]


def test_lines_differ_without_colour_and_levels_are_drawn(page):
    first = page.locator(".chart").first
    dashes = first.locator(".mean").evaluate_all("lines => lines.map(line => line.getAttribute('stroke-dasharray'))")
    assert len(set(dashes)) == 3
    assert first.locator("text.random").text_content() == "Random"
    assert first.locator("text.level").text_content() == "the paper's threshold"
    assert page.locator(".chart").nth(1).locator(".name").first.text_content() == "episode (logarithmic)"


# ------------------------------------------------------------------------------------------------------- animations


def pictures(player):
    return player.locator("canvas").evaluate_all("all => all.map(canvas => canvas.toDataURL())")


def now(player):
    return player.locator(".count").text_content()


def test_an_animation_plays_pauses_and_seeks(page):
    player = page.locator(".player").first
    player.scroll_into_view_if_needed()
    player.locator("canvas").first.wait_for()
    seen, first = pictures(player), now(player)  # in this order: it may go on between the two
    expect(player.locator(".count")).not_to_have_text(first)
    assert len(seen) == 4
    assert all(a != b for a, b in zip(seen, pictures(player), strict=True)), "every panel moves"
    player.locator(".play").click()
    assert player.locator(".play").text_content() == "▶ play"
    still, held = now(player), pictures(player)
    page.wait_for_timeout(400)
    assert (now(player), pictures(player)) == (still, held)
    player.locator("input").evaluate("slider => { slider.value = 10; slider.dispatchEvent(new Event('input')); }")
    assert now(player) == "step 20 (0 to 39)"
    assert "2 unsafe steps so far" in player.locator(".texts").text_content()
    assert "reward −12.30" in player.locator(".texts").text_content()


def test_animations_of_other_methods(page):
    player = page.locator(".player").first
    player.get_by_role("tab", name="S-RS").click()
    assert player.locator(".summary").text_content() == "No animation of S-RS is stored."
    assert not player.locator(".controls").is_visible()
    page.keyboard.press("ArrowRight")
    expect(player.locator("canvas")).to_have_count(2)
    assert player.get_by_role("tab", name="cem").get_attribute("aria-selected") == "true"
    assert (
        player.locator(".summary").text_content().startswith("Episode 0 of seed 1 (random actions): mean reward 0.02")
    )
    assert player.locator("h4").first.text_content() == "Trajectory so far"


def test_a_touch_of_the_course_seeks(page):
    player = page.locator(".player").first
    player.scroll_into_view_if_needed()
    course = player.locator(".course canvas")
    course.wait_for()
    box = course.bounding_box()
    course.click(position={"x": box["width"] / 2, "y": 30})
    assert now(player) in ("step 18 (0 to 39)", "step 20 (0 to 39)")


def test_an_animation_that_is_broken_says_so(open_page):
    broken = payload()
    broken["envs"][0]["animations"][0]["data"] = "bm90IGd6aXA="
    page = open_page(build_page(broken))
    page.locator(".player").first.scroll_into_view_if_needed()
    expect(page.locator(".summary").first).to_have_text(re.compile("^This animation cannot be shown: "))


def test_who_wants_no_motion_gets_none(open_page, html):
    page = open_page(html, reduced_motion="reduce")
    player = page.locator(".player").first
    player.scroll_into_view_if_needed()
    player.locator("canvas").first.wait_for()
    page.wait_for_timeout(400)
    assert now(player) == "step 0 (0 to 39)"
    assert player.locator(".play").text_content() == "▶ play"


# --------------------------------------------------------------------------------------- figures, phones, paper, dark


def test_a_figure_is_enlarged(page):
    page.locator("#figures .enlarge").click()
    assert page.locator("dialog img").get_attribute("alt") == "Toy. Cells reached."
    page.keyboard.press("Escape")
    assert not page.locator("dialog").is_visible()


def test_a_phone_does_not_scroll_sideways(open_page, html):
    page = open_page(html, viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    for player in page.locator(".player").all():
        player.scroll_into_view_if_needed()
    page.locator("canvas").first.wait_for()
    assert page.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth]") == [390, 390]
    table = results(page)
    table.evaluate("box => { box.scrollLeft = 200; }")
    assert table.evaluate("box => box.scrollLeft") == 200, "the table itself does"
    name = table.locator("tr[data-method=guss] th").bounding_box()
    assert abs(name["x"] - table.bounding_box()["x"]) < 2, "and its first column stays"


def test_paper_shows_what_is_folded(page):
    folded = page.locator("details table").first
    assert not folded.is_visible()
    page.emulate_media(media="print")
    expect(page.locator("details:not([open])")).to_have_count(0)
    assert folded.is_visible()
    assert not page.locator("nav").is_visible()
    page.emulate_media(media="screen")
    expect(page.locator("details[open]")).to_have_count(0)


def test_dark_screens_get_a_dark_page_paper_a_white_one(open_page, html):
    page = open_page(html, color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == "rgb(22, 24, 27)"
    page.emulate_media(media="print")
    assert page.evaluate(background) == "rgb(255, 255, 255)"


def test_an_empty_report_says_so(open_page):
    page = open_page(build_page({"title": "none", "envs": [], "groups": [], "figures": [], "runs": [], "missing": []}))
    assert page.locator("h1").text_content() == "none"
    assert "nothing to compare yet" in page.locator(".notice").text_content()


def test_an_environment_without_anything_says_so(open_page):
    bare = copy.deepcopy(payload())
    bare["envs"][0] |= {"rows": [], "curves": [], "animations": [], "figures": [], "tests": [], "verdict": []}
    page = open_page(build_page(bare))
    said = page.locator("#env-safe-pendulum").text_content()
    assert "No run of this environment has results yet." in said
    assert "No animation of this environment is stored." in said
