"""The command line. Each command is a dataclass in this folder: its fields are the flags, their docstrings the help."""

from __future__ import annotations

import difflib
import inspect
import os
import sys
import sysconfig
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
from guss.cli.init import InitCommand
from guss.cli.list import ListCommand
from guss.cli.options import print_warning
from guss.cli.pack import PackCommand
from guss.cli.plan import PlanCommand
from guss.cli.replay import ReplayCommand
from guss.cli.report import ReportCommand
from guss.cli.reproduce import EXPERIMENTS, Reproduce
from guss.cli.run import RunCommand
from guss.cli.settings_flags import SettingsCommand, flags_of
from guss.errors import GussError, GussWarning, UnknownNameError
from guss.files import file_error

ABOUT = """Safe planning in learned models with quality-diversity search.

Exit codes: 0 done; 2 an argument or a file is wrong or missing (one line says which); 130 interrupted (Ctrl-C),
finished episodes are kept; 1 a defect of guss itself, with a traceback. Results go to standard output, progress and
errors to standard error. NPROC in the environment sets the number of threads for computing (1 unless set)."""

COMMANDS = {
    "run": RunCommand,
    "eval": EvalCommand,
    "replay": ReplayCommand,
    "fit": FitCommand,
    "export": ExportCommand,
    "pack": PackCommand,
    "reproduce": Reproduce,
    "report": ReportCommand,
    "check-env": CheckEnvCommand,
    "init": InitCommand,
    "plan": PlanCommand,
    "list": ListCommand,
}


def parse(words: list[str]) -> Any:
    """The command that the words ask for. Exits, as tyro does, after help or on flags that do not exist."""
    kind, table, prog = "command", dict[str, Any](COMMANDS), "guss"
    if words[:1] == ["reproduce"]:
        kind, table, prog, words = "experiment", dict(EXPERIMENTS), "guss reproduce", words[1:]
    if words and not words[0].startswith("-") and words[0] not in table:
        raise UnknownNameError(kind, words[0], table)
    given: frozenset[str] = frozenset()
    if words and words[0] in table:
        command = table[words[0]]
        if issubclass(command, SettingsCommand):
            table[words[0]] = command = command.typed(words[1:])
        given = check_flags(words, command, f"{prog} {words[0]}")
    about = inspect.getdoc(Reproduce) if kind == "experiment" else ABOUT
    found = tyro.extras.subcommand_cli_from_dict(table, prog=prog, description=about, args=words or ["--help"])
    if isinstance(found, SettingsCommand):
        found.given = given
    return found


def check_flags(words: list[str], command: Any, prog: str) -> frozenset[str]:
    """The fields that the words set. Raises an error for a flag that a command does not have, or a list given twice."""
    flags = flags_of(command)
    given: list[str] = []
    for word in words[1:]:
        flag = word.partition("=")[0].replace("_", "-")
        if flag == "--":
            break
        if not flag.startswith("--") or flag == "--help" or flag.startswith("--tyro-"):
            continue
        if flag not in flags:
            near = difflib.get_close_matches(flag, flags, n=3, cutoff=0.7)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise GussError(f"{prog} has no flag {word.partition('=')[0]}: {hint}`{prog} --help` lists all")
        field, default = flags[flag]
        if field in given and isinstance(default, tuple):  # tyro takes the last
            raise GussError(f"{flag} is given more than once; give it once, with all values after it: {flag} A B")
        given.append(field)
    return frozenset(given)


_show_other = warnings.showwarning


def _show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Our own warnings in one line, without the place in the code that they come from."""
    if issubclass(category, GussWarning):
        print_warning(message)
    else:
        _show_other(message, category, *where, **more)


def raised_by_guss(error: OSError) -> bool:
    """Whether guss itself called what raised this, as `open`; an error in other people's code keeps its traceback."""
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
    os.environ.setdefault("NPROC", "1")  # XLA's threads: handing small pieces to a second one costs more than it gains
    try:
        parse(sys.argv[1:]).run()
    except GussError as error:
        for text in (error, *getattr(error, "__notes__", ())):
            print(f"guss: error: {text}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # the reader of our output has gone, as in `guss list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if not raised_by_guss(error):
            raise
        print(f"guss: error: {file_error(error.filename or 'a file', error, 'access')}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as stop:
        notes = ["guss: interrupted; what was finished is kept", *getattr(stop, "__notes__", ())]
        print("; ".join(notes), file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
