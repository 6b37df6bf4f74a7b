"""Whether user code may be imported: reports, packs and exports only read files, and forbid it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from guss.errors import GussError

_reader: ContextVar[str | None] = ContextVar("reader", default=None)


@contextmanager
def no_user_code(reader: str) -> Iterator[None]:
    """Context manager and decorator: inside it, guss imports no module, entry point or environment of users.

    Registries contain only bundled names, and `check_user_code` raises. `reader` names the caller, such as "a report".
    """
    token = _reader.set(reader)
    try:
        yield
    finally:
        _reader.reset(token)


def user_code_allowed() -> bool:
    """Whether user code may be imported here."""
    return _reader.get() is None


def check_user_code(what: str) -> None:
    """Raise GussError if user code must not be imported here; `what` names it."""
    if not user_code_allowed():
        raise GussError(f"{what} is user code, and {_reader.get()} does not import user code")
