"""The parts in the pages: finding, rewriting and comparing them."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from docs.generator import reference, runs, studies, sweeps
from docs.generator.parts import PARTS, ROOT

MARKER = re.compile(r"<!--\s*(begin|end)\s+(.*?)\s*-->")
SOURCES = (reference, runs, studies, sweeps)
"""Importing these modules fills PARTS."""


class PageError(ValueError):
    """A page has an unknown or misplaced marker."""


def pages() -> list[Path]:
    """README.md and all pages of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def found_parts(text: str, page: str) -> Iterable[tuple[str, int, int]]:
    """Name, start and end of the text of each part of a page."""
    opened: re.Match[str] | None = None
    for marker in MARKER.finditer(text):
        kind, name = marker.groups()
        where = f"{page}:{text.count(chr(10), 0, marker.start()) + 1}"
        if name not in PARTS:
            known = ", ".join(difflib.get_close_matches(name, PARTS)) or ", ".join(sorted(PARTS))
            raise PageError(f"{where}: no generated part is called {name!r}; there are: {known}")
        if kind == "begin" and opened is None:
            opened = marker
        elif kind == "end" and opened is not None and opened[2] == name:
            yield name, opened.end(), marker.start()
            opened = None
        else:
            expected = "a begin" if opened is None else f"`end {opened[2]}`"
            raise PageError(f"{where}: expected {expected}, found `{kind} {name}`")
    if opened is not None:
        raise PageError(f"{page}: `begin {opened[2]}` has no end")


def rewritten(text: str, page: str, parts: Mapping[str, str] | None = None) -> str:
    """The page with up-to-date parts; `parts`: texts by name (default: the registered functions)."""
    result, copied = "", 0
    for name, begin, end in found_parts(text, page):
        new = PARTS[name]() if parts is None else parts[name]
        new = f"\n\n{new}\n\n" if "\n" in new else new  # on separate lines, or within a sentence
        result, copied = result + text[copied:begin] + new, end
    return result + text[copied:]


def main(words: list[str] | None = None) -> int:
    """Rewrite all pages, or print what is stale in them."""
    parser = argparse.ArgumentParser(description="Rewrite the generated parts of README.md and docs/.")
    parser.add_argument("--check", action="store_true", help="change nothing; print what is stale and exit with 1")
    check, stale, used = parser.parse_args(words).check, 0, set[str]()
    for page in pages():
        name, old = str(page.relative_to(ROOT)), page.read_text()
        try:
            new = rewritten(old, name)
            used |= {found for found, _, _ in found_parts(old, name)}
        except PageError as error:
            print(error)
            return 1
        if new != old:
            stale += 1
            if check:
                old_lines, new_lines = old.splitlines(), new.splitlines()
                print("\n".join(difflib.unified_diff(old_lines, new_lines, name, f"{name} (generated)", lineterm="")))
            else:
                page.write_text(new)
                print(f"rewrote {name}")
    if unused := sorted(PARTS.keys() - used):
        print(f"no page shows: {', '.join(unused)}")
        return 1
    if check and stale:
        print(f"{stale} stale page{'s' * (stale > 1)}: run `make docs`")
    return int(check and stale > 0)
