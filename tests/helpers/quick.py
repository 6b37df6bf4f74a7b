"""Which cases of a matrix `make test` runs: every planner and every property, but not every pair of them.

`make test-long` runs the others. What users register is always tested in full.
"""

import pytest


def long_unless(quick, case):
    """The case, marked as long unless it is a quick one."""
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=() if quick else pytest.mark.long)


def few(registry, quick, names=None):
    """Registered names, of which those that are bundled but not in `quick` are long."""
    chosen = registry.names() if names is None else names
    return [long_unless(name in quick or not registry[name].bundled, name) for name in chosen]


def in_turn(registry, kinds):
    """Pairs of name and kind. Quick: each bundled name with one of `kinds`, in turn."""
    return [
        long_unless(kind == kinds[i % len(kinds)] or not registry[name].bundled, (name, kind))
        for i, name in enumerate(registry.names())
        for kind in kinds
    ]
