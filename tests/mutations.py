"""Random changes of plain data, arrays and bytes, for fuzzers: each follows from its random generator alone."""

import copy
import json
import math
import random
import string
import sys
from typing import Any

import numpy as np

NUMBERS: list[Any] = [
    0, 1, -1, 2, 7, 2**31 - 1, 2**31, 2**32, 2**63, 10**30, 0.0, -0.0, 0.5, -3.5, 1e-320, 1e308, math.inf, -math.inf,
    math.nan,
]  # fmt: skip
TEXTS = ["", " ", "guss", "oracle", "nan", "true", "0", "é\u202e", "\x00", "../..", "a" * 300, "{", "None", "safe-toy"]
WORDS = [True, False, None]


def nested(rng: random.Random, depth: int) -> Any:
    """Lists and tables inside each other."""
    value: Any = rng.choice([0, "x", {}])
    for _ in range(depth):
        value = [value] if rng.random() < 0.7 else {"a": value}
    return value


def weird(rng: random.Random) -> Any:
    """A value that is probably not the one expected."""
    kind = rng.randrange(8)
    if kind < 3:
        return rng.choice(NUMBERS)
    if kind < 5:
        return rng.choice(TEXTS)
    if kind == 5:
        return rng.choice(WORDS)
    if kind == 6:
        return rng.choice([[], {}, [1], ["a"], [1, "a"], [[1]], {"a": 1}, [None], [math.nan], [-1, 0], list(range(50))])
    return nested(rng, rng.choice([1, 2, 5, 30, 300]))


def misspelled(rng: random.Random, name: str) -> str:
    """The name with a letter lost, doubled, swapped or replaced."""
    at = rng.randrange(len(name) + 1)
    return rng.choice([name[:at] + name[at + 1 :], name[:at] + name[at : at + 1] + name[at:], name.upper(), name[::-1],
                       name[:at] + rng.choice(string.ascii_letters + "_- ") + name[at + 1 :]])  # fmt: skip


def places(tree: Any, found: list[tuple[Any, Any]] | None = None) -> list[tuple[Any, Any]]:
    """All (container, key) in plain data."""
    found = [] if found is None else found
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in inside:
        found.append((tree, key))
        if len(found) < 5000:
            places(value, found)
    return found


def changed(rng: random.Random, tree: Any, times: int | None = None) -> Any:
    """A copy with a few entries replaced, removed, renamed, repeated or moved."""
    tree = copy.deepcopy(tree)
    for _ in range(times or rng.choice([1, 1, 1, 2, 3, 6])):
        found = places(tree)
        if not found:
            return weird(rng)
        box, key = rng.choice(found)
        kind = rng.randrange(12)
        if kind < 5:
            box[key] = weird(rng)
        elif kind == 5:
            del box[key]
        elif kind == 6 and isinstance(box, dict):
            box[misspelled(rng, key)] = box.pop(key)
        elif kind == 7 and isinstance(box, list):
            box.insert(key, copy.deepcopy(box[key]))
        elif kind == 7:
            box[misspelled(rng, key)] = copy.deepcopy(box[key])
        elif kind == 8:
            box[key] = rng.choice([[box[key]], {"value": box[key]}, str(box[key])[:50], (repr(box[key]) * 3)[:200]])
        else:
            other, there = rng.choice(found)
            box[key] = (
                copy.deepcopy(other[there]) if there in (other if isinstance(other, dict) else range(len(other))) else 0
            )
    return tree


def broken(rng: random.Random, content: bytes) -> bytes:
    """Bytes cut, flipped, removed, repeated or inserted."""
    content = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 5])):
        size = len(content)
        at, kind = rng.randrange(size + 1), rng.randrange(6)
        if kind == 0:
            del content[at:]
        elif kind in (1, 2) and at < size:
            content[at] ^= 1 << rng.randrange(8)
        elif kind == 3:
            del content[at : at + rng.choice([1, 4, 16, 64])]
        elif kind == 4:
            content[at:at] = content[at : at + rng.choice([1, 8, 64])]
        else:
            content[at:at] = rng.randbytes(rng.choice([1, 2, 8, 40]))
    return bytes(content)


def array(rng: random.Random, old: np.ndarray) -> np.ndarray:
    """An array of another shape, type or content."""
    old = np.atleast_1d(old)
    kind = rng.randrange(9)
    if kind == 0:
        return old[: rng.choice([0, 1, 2])]
    if kind == 1:
        return old[..., None]
    if kind == 2:
        return old.reshape(-1)
    if kind == 3:
        return old.astype(rng.choice(["f8", ">f4", "i8", "u1", "c8", "U3", "S2", "M8[s]", "?", "f2"]))
    if kind == 4:
        return np.asarray(rng.choice([0, math.nan, 1e300, -5]))
    if kind == 5:
        return np.concatenate([old, old])
    if kind == 6 and old.size and old.dtype.kind == "f":
        new = old.copy()
        new.reshape(-1)[rng.randrange(old.size)] = rng.choice([math.nan, math.inf, -1e30, 1e38])
        return new
    if kind == 7:
        return np.full(old.shape, rng.choice([0, 1, -1, 2**31 - 1]))
    return old.T


def toml(tree: Any) -> str:
    """Plain data as TOML; what TOML has no word for is left out."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)  # values may be nested deeper than what is tested can read
    try:
        if not isinstance(tree, dict):
            return f"value = {_inline(tree)}\n"
        lines = [f"{json.dumps(name)} = {_inline(value)}" for name, value in tree.items() if value is not None]
        return "\n".join(lines) + "\n"
    finally:
        sys.setrecursionlimit(usual)


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        pairs = [f"{json.dumps(name)} = {_inline(each)}" for name, each in value.items() if each is not None]
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_inline(each) for each in value if each is not None) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value)
    text = repr(value)
    return text if isinstance(value, int) or not text[-1].isdigit() or "." in text or "e" in text else text + ".0"
