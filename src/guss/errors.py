"""Errors that a user can act on. The command line prints them without a traceback and exits with code 2."""

import difflib
from collections.abc import Iterable


class GussError(ValueError):
    """Something the user gave is wrong: the message names it, what was expected, what came and the likely cause."""


class GussWarning(UserWarning):
    """Something that makes a result mean less than it seems to; the command line prints it in one line."""


REGISTERED = ("method", "planner", "baseline", "model")
"""Kinds of names to which a user's file can add."""


class UnknownNameError(GussError):
    """A name that is not there, with the nearest one that is."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = sorted(known)
        nearest = difflib.get_close_matches(name.lower().replace("_", "-"), known, n=1, cutoff=0.5)
        nearest = nearest or difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
        more = f" A {kind} that a file of yours registers is known after --plugin FILE." if kind in REGISTERED else ""
        super().__init__(f"unknown {kind} {name!r}.{hint} Known: {', '.join(known)}.{more}")


def in_one_line(error: BaseException) -> str:
    """What foreign code raised, as messages and records quote it: its type and the first line that says something."""
    if isinstance(error, GussError):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
