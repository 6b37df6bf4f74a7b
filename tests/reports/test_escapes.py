"""What names become in Markdown, LaTeX, figures and file names: text, whatever they hold."""

import re
import warnings

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from guss.reports.escapes import file_stem, latex, markdown, markdown_code, markdown_title, one_line, plot_text

SPECIAL = st.text(alphabet=st.sampled_from(list("\\`*_[]()<>|~$#&!@:/.-+=1a ;{}^%\"'\n\u202e\ud800é中")), max_size=20)
NAMES = st.one_of(st.text(max_size=30), SPECIAL)
GFM = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def texts_of(tokens):
    """The text that is shown, and the kinds of everything that is not text."""
    text, kinds = "", []
    for token in tokens:
        if token.children is not None:
            more, others = texts_of(token.children)
            text, kinds = text + more, kinds + others
        elif token.type in ("text", "code_inline"):
            text += token.content
            kinds += ["code"] * (token.type == "code_inline")
        else:
            kinds.append(token.type)
    return text, kinds


@given(NAMES)
@example("![x](http://evil)")
@example("</td><script>alert(1)</script>")
@example("a | b `c` _d_ ~~e~~")
@example("1. x")
@example("[a]: http://evil")
def test_markdown_shows_the_text_and_nothing_else(name):
    shown = one_line(name)
    table = f"| a | b |\n|---|---|\n| {markdown(name)} | end |\n"
    text, kinds = texts_of(GFM.parse(table))
    assert text == f"ab{shown}end"
    assert "code" not in kinds
    assert not {"link_open", "html_inline", "html_block", "image", "em_open", "strong_open", "s_open"} & set(kinds)
    for before in ("- ", "# ", "Then ", ""):
        text, kinds = texts_of(GFM.parse(f"{before}{markdown(name)}\n"))
        assert text == (before.lstrip("-# ") + shown).strip()
        assert not {"link_open", "html_inline", "html_block", "image", "blockquote_open", "hr", "code_block"} & set(
            kinds
        )
        assert sum(kind in ("bullet_list_open", "ordered_list_open") for kind in kinds) == (before == "- ")


@given(NAMES)
@example("`` ` |")
@example("\\|")
def test_code_in_markdown_is_the_text(name):
    shown = one_line(name) or "–"
    assert texts_of(GFM.parse(f"x {markdown_code(name)}\n"))[0] == f"x {shown}"
    text, kinds = texts_of(GFM.parse(f"| a | b |\n|---|---|\n| {markdown_code(name, cell=True)} | end |\n"))
    assert text == f"ab{shown}end"
    assert kinds.count("code") == 1


def test_a_title_keeps_its_code():
    assert markdown_title("What `make run` shows") == "What `make run` shows"
    assert "<b>" not in GFM.render(markdown_title("`x` <b>y</b> `<i>`"))


@given(NAMES)
@example("\\input{/etc/passwd} ~^_%&#${}")
@example("--- ``quoted''")
def test_latex_has_no_command_of_the_name(name):
    text = latex(name)
    assert text.isascii()
    assert "\n" not in text
    ours = r"\\(text(backslash|asciitilde|asciicircum|less|greater|bar)|dots|ss|ae|AE|oe|OE|o|O|l|L|i)\{\}"
    rest = re.sub(ours, "", text)
    rest = re.sub(r"\\[`'^~=u.\"rHvc]\{[A-Za-z]\}", "", rest)
    rest = re.sub(r"\$(-|\^?\\[A-Za-z]+)\$", "", rest)
    rest = re.sub(r"\\[&%$#_{}]", "", rest)
    assert not re.search(r"[\\&%$#_~^<>|\"]", rest), rest
    assert rest.count("{") == rest.count("}")
    assert "--" not in latex(name.replace("–", "").replace("—", ""))


def test_latex_keeps_what_it_can():
    assert latex("S-RS, 50 % of é, ö, ß, 10°, λ") == r"S-RS, 50 \% of \'{e}, \"{o}, \ss{}, 10$^\circ$, $\lambda$"
    assert latex("中") == "{[}U+4E2D{]}"


@settings(max_examples=6, deadline=None)
@given(st.lists(NAMES, min_size=1, max_size=4))
@example(["$\\frac{$", "$x$", "_hidden", "中文"])
def test_figures_draw_any_name(names):
    from guss.reports.style import new_figure, plt

    figure, axes = new_figure(1, 1, 3, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in names:
            axes.plot([0, 1], [0, 1], label=plot_text(name) or "-")
        axes.set_title(plot_text(names[0]))
        assert len(axes.get_legend_handles_labels()[1]) == len(names), "a legend leaves none out"
        axes.legend()
        figure.canvas.draw()
    plt.close(figure)


@given(st.lists(NAMES, min_size=2, max_size=6, unique=True))
@example(["../../x", "..", "/etc/passwd", "a.png", "A.PNG"])
def test_file_names_are_plain_and_different(names):
    stems = [file_stem(name) for name in names]
    assert all(re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?", stem) for stem in stems)
    assert all(len(stem) < 80 for stem in stems)
    assert len({stem.lower() for stem in stems}) == len(names)


@pytest.mark.parametrize(("name", "stem"), [("safe-pendulum", "safe-pendulum"), ("a/b", "a-b-c14cddc0")])
def test_a_plain_name_may_be_kept(name, stem):
    assert file_stem(name, kept=True) == stem
