"""Escapes arbitrary names and texts of stored runs for each output format.

one_line      all formats: no line breaks, control characters or characters that reorder text; optional maximum length
file_stem     file names
markdown      text in Markdown, including table cells; `markdown_code`: code spans
latex         text in LaTeX, in ASCII
plot_text     text in figures: no mathematics, no glyphs that the font lacks
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

LONGEST = 60
"""Maximum length of a name in a figure or a table."""


def one_line(text: Any, longest: int | None = None) -> str:
    """A text as one line of printable characters; beyond `longest` characters it is cut and ends with "…"."""
    kinds = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    kept = (" " if c.isspace() else "\ufffd" if unicodedata.category(c) in kinds else c for c in str(text))
    line = re.sub(r" {2,}", " ", "".join(kept)).strip()
    return line if longest is None or len(line) <= longest else f"{line[: longest - 1]}…"


def digest(text: str) -> str:
    """A hash of eight hexadecimal digits."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]


def file_stem(name: str, kept: bool = False) -> str:
    """A unique file name without suffix. `kept`: the name itself, if it needs no escapes."""
    slug = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:LONGEST].strip("-")
    return name if kept and slug == name else f"{slug}-{digest(name)}".lstrip("-")


# ------------------------------------------------------------------------------------------------------------ Markdown


def markdown(text: Any) -> str:
    """A text escaped for Markdown: nothing in it is markup, HTML, a link or the end of a table cell."""
    line = _no_markup(one_line(text))
    return re.sub(r"^(\d*)([-+=.)>\[])", r"\1\\\2", line)  # no list, underline, quotation or address


def markdown_title(text: Any) -> str:
    """A title written in Markdown: code spans are kept, all other markup is escaped."""
    parts = re.split(r"`([^`]+)`", one_line(text))
    return "".join(markdown_code(part) if i % 2 else _no_markup(part) for i, part in enumerate(parts))


def _no_markup(line: str) -> str:
    line = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", re.sub(r"&(?=#?\w+;)", "&amp;", line))
    line = re.sub(r"([\\`*|~$#])|(\](?=[(\[:]))|((?<=!)\[)", r"\\\g<0>", line)
    line = re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", line)  # within a word _ is no markup
    line = re.sub(r"(?<=\S)@(?=\S)", r"\\@", line)  # no automatic links
    return re.sub(r"(?<=:)/(?=/)", r"\\/", re.sub(r"(?i)\bwww\.", lambda m: f"{m[0][:-1]}\\.", line))


def markdown_code(text: Any, cell: bool = False) -> str:
    """A text as a code span; `cell`: in a table cell, where "|" must be escaped."""
    line = one_line(text) or "–"
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    space = " " if line[0] == "`" or line[-1] == "`" else ""
    return f"{fence}{space}{line.replace('|', chr(92) + '|') if cell else line}{space}{fence}"


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]], rule: str = "---") -> list[str]:
    """Lines of a table; `rule`: alignment of all columns but the first, "---:" for numbers."""
    lines = [" | ".join(cells) for cells in (heads, *rows)]
    return [f"| {lines[0]} |", "|---" + f"|{rule}" * (len(heads) - 1) + "|", *(f"| {line} |" for line in lines[1:])]


# --------------------------------------------------------------------------------------------------------------- LaTeX

_LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''", "`": "{`}", "'": "{'}", "*": "{*}", "[": "{[}", "]": "{]}",
    "ß": r"\ss{}", "æ": r"\ae{}", "Æ": r"\AE{}", "œ": r"\oe{}", "Œ": r"\OE{}", "ø": r"\o{}", "Ø": r"\O{}",
    "ł": r"\l{}", "Ł": r"\L{}", "ı": r"\i{}", "–": "--", "—": "---", "−": "$-$", "…": r"\dots{}", "’": "{'}",
    "‘": "{`}", "“": "``", "”": "''", "°": r"$^\circ$", "±": r"$\pm$", "×": r"$\times$", "·": r"$\cdot$",
    "λ": r"$\lambda$", "Λ": r"$\Lambda$", "µ": r"$\mu$",
    "μ": r"$\mu$", "≤": r"$\leq$", "≥": r"$\geq$", "→": r"$\rightarrow$", "∞": r"$\infty$",
}  # fmt: skip
_ACCENTS = {"\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u", "\u0307": ".",
            "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0327": "c"}  # fmt: skip
for _size, _names in {
    "SMALL": "alpha beta gamma delta epsilon zeta eta theta iota kappa nu xi pi rho sigma tau phi chi psi omega",
    "CAPITAL": "Gamma Delta Theta Xi Pi Sigma Phi Psi Omega",
}.items():
    _LATEX |= {unicodedata.lookup(f"GREEK {_size} LETTER {name.upper()}"): rf"$\{name}$" for name in _names.split()}


def latex(text: Any) -> str:
    """A text escaped for LaTeX in ASCII; a character without a command becomes its code point, as in [U+4E2D]."""
    letters = "".join(_latex_letter(c) for c in one_line(text).replace("--", "-\0-").replace("--", "-\0-"))
    return letters.replace("\0", "{}")  # two hyphens would become a dash


def _latex_letter(letter: str) -> str:
    if letter in _LATEX:
        return _LATEX[letter]
    if letter.isascii():
        return letter
    parts = unicodedata.normalize("NFD", letter)
    if len(parts) == 2 and parts[0].isascii() and parts[0].isalpha() and parts[1] in _ACCENTS:
        return rf"\{_ACCENTS[parts[1]]}{{{parts[0]}}}"
    return f"{{[}}U+{ord(letter):04X}{{]}}"


# ------------------------------------------------------------------------------------------------------------- figures


def plot_text(text: Any, longest: int | None = LONGEST) -> str:
    """A text escaped for matplotlib: no mathematics, no leading "_" (legends skip it), no missing glyphs."""
    line = "".join(c if _has_glyph(c) else "□" for c in one_line(text, longest)).replace("$", r"\$")
    return f" {line}" if line.startswith("_") else line


@cache
def _has_glyph(letter: str) -> bool:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return letter.isascii() or get_font(findfont(FontProperties())).get_char_index(ord(letter)) != 0
