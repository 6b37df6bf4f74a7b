"""The public names of guss: visible to type checkers, documented, with examples that run."""

import ast
import doctest
import inspect
import os
import re
import subprocess
import sys
import textwrap
import warnings
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import guss

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "tests" / "data" / "user_program.py"
NAMES = [name for name in guss.__all__ if name != "__version__"]
DECORATORS = ("register_method", "register_model", "register_planner")
"""One method of `Registry`, bound to different tables."""


# ---------------------------------------------------------------------------------------------------------- the names


def test_type_checkers_see_the_names_that_the_interpreter_has():
    tree = ast.parse((ROOT / "src" / "guss" / "__init__.py").read_text())
    [block] = [x for x in tree.body if isinstance(x, ast.If) and getattr(x.test, "id", "") == "TYPE_CHECKING"]
    typed = {}
    for line in block.body:
        assert isinstance(line, ast.ImportFrom)
        for alias in line.names:
            assert alias.asname == alias.name, f"{alias.name}: only `import X as X` is a public name to type checkers"
            typed[alias.name] = line.module
    assert typed == guss._PUBLIC
    assert ["__version__", *sorted(typed)] == guss.__all__
    assert dir(guss) == sorted(guss.__all__)


def test_the_package_says_that_it_is_typed():
    assert (Path(guss.__file__).parent / "py.typed").exists()


def test_the_user_program_runs():
    scope = {"__name__": "user_program"}
    exec(compile(PROGRAM.read_text(), PROGRAM, "exec"), scope)
    plan, config = scope["main"]()
    assert int(plan.diagnostics.evaluated) == 8
    assert (config.env, config.seeds) == ("safe-toy", (0, 1))


@pytest.mark.long  # `make check` accepts the program; this starts a type checker that has to read everything once more
def test_a_type_checker_accepts_the_user_program_and_finds_mistakes_in_another(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "import guss\n\nguss.Plnner\nguss.Agent('safe-toy', seed='one')\nx: int = guss.make_task('safe-toy')\n"
    )
    mypy = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", PROGRAM, wrong],
        cwd=ROOT,
        env=os.environ | {"MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    found = re.findall(r"^(\S+?)[:](\d+): error: .*\[(\S+)\]$", mypy.stdout, re.MULTILINE)
    assert [(Path(file).name, line, kind) for file, line, kind in found] == [
        ("wrong.py", "3", "attr-defined"),
        ("wrong.py", "4", "arg-type"),
        ("wrong.py", "5", "assignment"),
    ], mypy.stdout + mypy.stderr


# ------------------------------------------------------------------------------------------------------ documentation


def described_fields(cls):
    """Fields with a text below them in the source of a class, or of one that it inherits from."""
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] == "guss":
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
            for line, text in pairwise(tree.body):
                if isinstance(line, ast.AnnAssign) and isinstance(getattr(text, "value", None), ast.Constant):
                    yield ast.unparse(line.target)


def undocumented(item):
    """Parameters of a function or class that neither its docstring nor a text below a field names."""
    docs, known = inspect.getdoc(item) or "", set()
    if inspect.isclass(item):
        docs += inspect.getdoc(item.__init__) or ""
        docs += "".join(inspect.getdoc(base) or "" for base in item.__mro__ if base.__module__.startswith("guss."))
        known = set(described_fields(item))
    if inspect.isclass(item) and issubclass(item, Exception):
        return []
    names = [name for name in inspect.signature(item).parameters if name not in ("self", "args", "kwargs")]
    spans = " ".join(re.findall(r"`([^`]+)`", docs))
    return [n for n in names if n not in known and not re.search(rf"\b{n}\b", spans) and f" {n}: " not in docs]


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_documents_its_parameters(name):
    item = getattr(guss, name)
    assert inspect.getdoc(item)
    assert undocumented(item) == []


def test_a_parameter_without_documentation_is_found():
    def half(known, unknown):
        """Uses `known`, and has another unknown `one`."""

    assert undocumented(half) == ["unknown"]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in DECORATORS[1:]])
def test_the_example_of_a_public_name_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    scope = {"guss": guss, "jax": jax, "jnp": jnp, "np": np, "folder": tmp_path}
    example = doctest.DocTestParser().get_doctest(getattr(guss, name).__doc__, scope, name, None, 0)
    assert example.examples, f"guss.{name} has no example"
    said = []
    with warnings.catch_warnings():
        outcome = doctest.DocTestRunner(verbose=False).run(example, out=said.append)
    assert outcome.failed == 0, "".join(said)


def test_decorators_share_their_documentation():
    assert len({getattr(guss, name).__doc__ for name in DECORATORS}) == 1
