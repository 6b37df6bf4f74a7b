"""Figures of docs/choosing.md stand on other pages or in stored results, where tests compare them with the records."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "choosing.md"
FIGURES = sorted(set(re.findall(r"−?\d+\.\d+ ± \d+\.\d+", PAGE.read_text())))


@pytest.fixture(scope="module")
def elsewhere():
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "results").rglob("*.md")]
    return "\n".join(path.read_text() for path in pages if path != PAGE)


def test_every_figure_stands_where_it_is_compared_with_records(elsewhere):
    assert [figure for figure in FIGURES if figure not in elsewhere] == []
    assert len(FIGURES) >= 20
    assert "−9.999 ± 9.999" not in elsewhere
