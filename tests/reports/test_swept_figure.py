"""Figures of sweeps: which settings are swept, and which runs a line joins."""

import matplotlib.pyplot as plt
import pytest
from helpers.stored import store

from guss.reports.inventory import gather
from guss.reports.report import write_report
from guss.reports.swept_figure import draw_swept, swept_lines

TWO = ((-6.0, -2.0, -1.0, -1.0), (-6.0, -2.0, -2.0, -2.0))


def records_of(folder, *settings, methods=("guss",)):
    for method in methods:
        for i, each in enumerate(settings):
            better = [[x + 0.1 * i for x in row] for row in TWO]
            store(folder, method=method, rewards=better, unsafe=float(i), name=f"{method}-{i}", config=each)
    return gather(folder).records


def test_a_line_joins_runs_that_differ_in_one_setting_only(tmp_path):
    settings = [{"horizon": h, "budget": b} for b in (100, 200) for h in (20, 5, 10)]
    found = swept_lines(records_of(tmp_path, *settings))
    assert set(found) == {"horizon", "budget"}
    assert [line.label for line in found["horizon"]] == ["GuSS (budget 100)", "GuSS (budget 200)"]
    assert [line.values for line in found["horizon"]] == [[5.0, 10.0, 20.0]] * 2
    first = found["horizon"][0]
    assert [pair.mean for pair in first.mar] == pytest.approx([-1.4, -1.3, -1.5])
    assert [pair.mean for pair in first.unsafe] == pytest.approx([1.0, 2.0, 0.0])
    assert [line.label for line in found["budget"]] == [f"GuSS (horizon {h})" for h in (5, 10, 20)]


def test_methods_have_lines_of_their_own(tmp_path):
    found = swept_lines(records_of(tmp_path, {"horizon": 5}, {"horizon": 10}, methods=("guss", "rs")))
    assert [(line.method, line.label) for line in found["horizon"]] == [("guss", "GuSS"), ("rs", "RS")]


@pytest.mark.parametrize(
    "settings",
    [
        [{"horizon": 5}],
        [{"horizon": 5, "budget": 100}, {"horizon": 10, "budget": 200}],  # swept together: two settings differ
        [{"explore": "smooth"}, {"explore": "iid"}],  # not a number
        [{"without_cost": True}, {"without_cost": False}],
    ],
)
def test_without_a_swept_number_there_is_no_figure(tmp_path, settings):
    assert draw_swept(records_of(tmp_path, *settings)) is None


def test_the_figure_has_a_row_for_each_swept_setting(tmp_path):
    settings = [{"horizon": h, "budget": b} for b in (100, 10_000) for h in (5, 10)]
    figure = draw_swept(records_of(tmp_path, *settings))
    assert len(figure.axes) == 6
    labels = [axes.get_xlabel() for axes in figure.axes]
    assert labels == ["horizon", "horizon", "unsafe steps [%]", "budget", "budget", "unsafe steps [%]"]
    assert [axes.get_xscale() for axes in figure.axes[3:5]] == ["log", "log"]
    assert [text.get_text() for text in figure.axes[5].get_legend().get_texts()] == [
        "GuSS (horizon 5)",
        "GuSS (horizon 10)",
    ]
    plt.close(figure)


def test_the_report_of_a_sweep_has_it(tmp_path):
    records_of(tmp_path / "runs", {"horizon": 5}, {"horizon": 10})
    files = write_report(tmp_path / "runs")
    assert "swept-safe-pendulum.png" in {path.name for path in files}
    assert "Swept settings" in files[0].read_text()
