"""Whether code that is not part of guss may run. Reports, packs and exports only read files: within them it may not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from guss.errors import GussError

_reader: ContextVar[str | None] = ContextVar("reader", default=None)


@contextmanager
def no_user_code(reader: str) -> Iterator[None]:
    """Within it (or in a function decorated by it) guss imports no module, entry point or environment of anyone else.

    Registries hold the bundled names alone, and `check_user_code` raises. `reader` says who asks, as "a report".
    """
    token = _reader.set(reader)
    try:
        yield
    finally:
        _reader.reset(token)


def user_code_allowed() -> bool:
    """Whether code that is not part of guss may be imported here."""
    return _reader.get() is None


def check_user_code(what: str) -> None:
    """Raise where `what`, which is not part of guss, must not be imported."""
    if not user_code_allowed():
        raise GussError(f"{what} is not part of guss, and {_reader.get()} imports no other code")
