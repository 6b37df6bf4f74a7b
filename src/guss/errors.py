"""Errors that a user can act on. The command line prints them without a traceback and exits with code 2."""

import difflib
import sys
import warnings
from collections.abc import Iterable


class GussError(ValueError):
    """An invalid input: the message states what was expected, what was received and the likely cause.

    A subclass of ValueError. `args`: the message. The command line prints it in one line and exits with code 2.

    Example:
        >>> try:
        ...     guss.make_task("safe-tox")
        ... except guss.GussError as error:
        ...     print(str(error).partition(" Known")[0])
        unknown environment 'safe-tox'. Did you mean 'safe-toy'?
    """


class GussWarning(UserWarning):
    """A problem that limits what a result means; the command line prints it in one line.

    A subclass of UserWarning, so that `warnings` can filter it. `args`: the message.

    Example:
        >>> import warnings
        >>> warnings.filterwarnings("error", category=guss.GussWarning)  # a script that must not continue after one
    """


OURS = ("guss", "jaxtyping", "beartype")
"""Packages that a warning's location skips: guss, and the type checkers of its tests."""


def warn(text: str) -> None:
    """Issue a GussWarning that points at the line of user code that called guss."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__"), frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, GussWarning, stacklevel=level)


def _is_ours(module: str | None, file: str) -> bool:
    return file.startswith("<") or (module or "").partition(".")[0] in OURS


REGISTERED = ("method", "planner", "model")
"""Kinds of names that a user's file can register."""


class UnknownNameError(GussError):
    """An unknown name; the message suggests the nearest known name."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = sorted(known)
        spellings = (name.lower().replace("_", "-"), name)
        close = lambda cutoff: [m for s in spellings for m in difflib.get_close_matches(s, known, 1, cutoff)]  # noqa: E731
        longer = sorted((k for k in known if len(k) > 2 and name.startswith(k)), key=len, reverse=True)  # obs(ervation)
        nearest = close(0.8) or longer or close(0.5)
        hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
        more = f" To use a {kind} that your file registers, pass --plugin FILE." if kind in REGISTERED else ""
        colon = ":" if " of " in kind else ""  # otherwise "setting of method 'rs' 'horizn'" names two things in a row
        super().__init__(f"unknown {kind}{colon} {name!r}.{hint} Known: {', '.join(known)}.{more}")


def in_one_line(error: BaseException) -> str:
    """An exception of foreign code as messages and records quote it: its type and first non-empty line."""
    if isinstance(error, GussError):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
