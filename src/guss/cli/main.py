"""The command line. Each command is a dataclass in this folder: its fields are the flags, their docstrings the help."""

from __future__ import annotations

import contextlib
import inspect
import io
import itertools
import os
import shutil
import sys
import sysconfig
import textwrap
import traceback
import warnings
from pathlib import Path
from typing import Any

import tyro

import guss
from guss.cli.check_env import CheckEnvCommand
from guss.cli.eval import EvalCommand
from guss.cli.export import ExportCommand
from guss.cli.fit import FitCommand
from guss.cli.flag_check import check_flags
from guss.cli.init import InitCommand
from guss.cli.list import ListCommand
from guss.cli.options import print_warning
from guss.cli.pack import PackCommand
from guss.cli.plan import PlanCommand
from guss.cli.replay import ReplayCommand
from guss.cli.report import ReportCommand
from guss.cli.reproduce import EXPERIMENTS, Reproduce
from guss.cli.run import RunCommand
from guss.cli.settings_flags import SettingsCommand
from guss.cli.sweep import SweepCommand
from guss.errors import GussError, GussWarning, UnknownNameError
from guss.files import file_error

ABOUT = """Safe model-based reinforcement learning: learn a model of a system and plan in it within constraints.

guss run --env safe-pendulum --seeds 2 --episodes 10    train the planner GuSS on Safe Pendulum
guss report                                             table and figures of the runs in runs/
guss run --method cem --help                            the settings of another method"""
NOTES = """`guss COMMAND --help` describes a command and its flags; `guss --version` prints the version.

Results go to standard output, progress and errors to standard error. The environment variable NPROC sets the number of
CPU threads (1 by default). Exit codes: 0 success; 2 invalid arguments, files or results of user code, described in one
line; 130 interrupted (Ctrl-C), finished episodes are kept; 1 a defect of guss, with a traceback."""
DESCRIPTION = "(description)"
"""What tyro prints for the description of a command, which is wrapped afterwards."""
GROUPS: dict[str, dict[str, Any]] = {
    "Get started": {"list": ListCommand, "init": InitCommand, "check-env": CheckEnvCommand, "plan": PlanCommand},
    "Train": {"run": RunCommand, "sweep": SweepCommand, "fit": FitCommand},
    "Evaluate": {"eval": EvalCommand, "replay": ReplayCommand, "report": ReportCommand},
    "Share": {"export": ExportCommand, "pack": PackCommand},
    "Paper": {"reproduce": Reproduce},
}
COMMANDS: dict[str, Any] = {name: command for group in GROUPS.values() for name, command in group.items()}


def parse(words: list[str]) -> Any:
    """The command of these words. Exits after help; a mistake raises GussError."""
    kind, table, prog, help_text = "command", COMMANDS, "guss", main_help
    if words[:1] == ["reproduce"]:
        kind, table, prog, words = "experiment", dict[str, Any](EXPERIMENTS), "guss reproduce", words[1:]
        help_text = reproduce_help
    if not words or words[0] in ("-h", "--help"):
        print(help_text())
        sys.exit(0)
    name = words[0]
    if name not in table:
        if name.startswith("--tyro-"):  # completions for shells
            return tyro.extras.subcommand_cli_from_dict(table, prog=prog, args=words)
        if name.startswith("-"):
            raise GussError(f"{prog} has no flag {name}: name the {kind} first; `{prog} --help` lists all {kind}s")
        raise UnknownNameError(kind, name, table)
    command, prog = table[name], f"{prog} {name}"
    if issubclass(command, SettingsCommand):
        command = command.typed(words[1:])
    given = check_flags(words, command, prog)
    printed, errors = _Captured(), io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
            found = tyro.cli(command, prog=prog, description=DESCRIPTION, args=words[1:])
    except SystemExit as end:
        if end.code:
            raise GussError(f"{error_text(errors.getvalue())}; `{prog} --help` shows the usage") from end
        print(printed.getvalue().replace(DESCRIPTION, wrapped(inspect.getdoc(command) or "")), end="")
        raise
    if isinstance(found, SettingsCommand):
        found.given = given
    return found


class _Captured(io.StringIO):
    """Text for standard output, coloured if that is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return sys.__stdout__ is not None and sys.__stdout__.isatty()


def main_help() -> str:
    """The text of `guss --help`."""
    parts = ["usage: guss COMMAND [FLAGS]", wrapped(ABOUT)]
    parts += [f"{title}:\n{summaries(group)}" for title, group in GROUPS.items()]
    return "\n\n".join([*parts, wrapped(NOTES)])


def reproduce_help() -> str:
    """The text of `guss reproduce --help`."""
    about = wrapped(inspect.getdoc(Reproduce) or "")
    note = wrapped("`guss reproduce EXPERIMENT --help` describes an experiment and its flags.")
    return f"usage: guss reproduce EXPERIMENT [FLAGS]\n\n{about}\n\n{summaries(EXPERIMENTS)}\n\n{note}"


def summaries(commands: dict[str, Any]) -> str:
    """The name and the first paragraph of the docstring of each command."""
    return "\n".join(
        textwrap.fill(
            " ".join((inspect.getdoc(command) or "").partition("\n\n")[0].split()),
            text_width(),
            initial_indent=f"  {name:<12}",
            subsequent_indent=" " * 14,
        )
        for name, command in commands.items()
    )


def wrapped(text: str) -> str:
    """Paragraphs as wide as the terminal; lines that start with `guss` are examples, which are indented."""
    parts = []
    for part in text.split("\n\n"):
        lines = [line.strip() for line in part.splitlines()]
        is_example = all(line.startswith("guss ") for line in lines)
        parts.append(
            textwrap.indent("\n".join(lines), "    ") if is_example else textwrap.fill(" ".join(lines), text_width())
        )
    return "\n\n".join(parts)


def text_width() -> int:
    """Columns of the terminal, at most 120."""
    return min(120, shutil.get_terminal_size((100, 24)).columns)


def error_text(box: str) -> str:
    """An error of tyro in one line: without its frame, its title and the text below a rule."""
    lines = [line.strip("│╭╮╰╯ ") for line in box.splitlines()][1:]
    lines = list(itertools.takewhile(lambda line: not line.startswith("───"), lines))
    return " ".join(" ".join(lines).split()).rstrip(".")


_show_other = warnings.showwarning


def _show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Print a GussWarning in one line, without its place in the code."""
    if issubclass(category, GussWarning):
        print_warning(message)
    else:
        _show_other(message, category, *where, **more)


def raised_by_guss(error: OSError) -> bool:
    """Whether guss called the function that raised it, such as `open`; errors in user code keep their traceback."""
    frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    library = (sysconfig.get_path("stdlib"), "<frozen")
    while frames and frames[-1].startswith(library) and "site-packages" not in frames[-1]:
        frames.pop()
    return bool(frames) and Path(frames[-1]).is_relative_to(Path(guss.__file__).parent)


def main() -> None:
    """Entry point of `guss`."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        print(f"guss {guss.__version__}")
        return
    warnings.showwarning = _show_warning
    os.environ.setdefault("NPROC", "1")  # threads of XLA: small operations are slower with two
    try:
        parse(sys.argv[1:]).run()
    except GussError as error:
        for text in (error, *getattr(error, "__notes__", ())):
            print(f"guss: error: {text}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # the reader of the output has exited, as in `guss list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if not raised_by_guss(error):
            raise
        print(f"guss: error: {file_error(error.filename or 'a file', error, 'access')}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as stop:
        notes = ["guss: interrupted; finished episodes are kept", *getattr(stop, "__notes__", ())]
        print("; ".join(notes), file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
