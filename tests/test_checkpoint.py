"""Files that are cut off, damaged, foreign or evil: told, and never executed."""

import io
import json
import os
import pickle

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guss import checkpoint
from guss.errors import GussError

STATE = {"weights": [jnp.arange(6.0).reshape(2, 3), jnp.asarray([True, False])], "count": jnp.asarray(7)}


@pytest.fixture
def file(tmp_path):
    checkpoint.save(tmp_path / "a.ckpt", "run", {"done": 3}, STATE)
    return tmp_path / "a.ckpt"


def test_a_state_comes_back_bit_by_bit(file):
    stored = checkpoint.load(file, "run")
    assert stored.meta == {"done": 3}
    back = stored.restore(STATE)
    np.testing.assert_array_equal(back["weights"][0], STATE["weights"][0])
    np.testing.assert_array_equal(back["weights"][1], STATE["weights"][1])
    assert back["count"].dtype == STATE["count"].dtype
    assert sorted(p.name for p in file.parent.iterdir()) == ["a.ckpt"], "nothing is left beside it"


@given(st.data())
def test_any_truncated_or_flipped_file_is_told(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("c") / "a.ckpt"
    checkpoint.save(path, "run", {"done": 3}, STATE)
    content = bytearray(path.read_bytes())
    where = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:where]
    else:
        content[where] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    with pytest.raises(GussError, match="checkpoint"):
        checkpoint.load(path, "run")


def test_foreign_older_newer_and_other_files_are_told(file):
    with pytest.raises(GussError, match="is of kind 'run', expected 'agent'"):
        checkpoint.load(file, "agent")
    head, payload = file.read_bytes().split(b"\n", 1)
    for schema in (1, 99, "2"):
        other = json.loads(head) | {"schema": schema}
        file.write_bytes(json.dumps(other).encode() + b"\n" + payload)
        wrong = f"has schema {schema!r}, this version of guss reads schema 2; use the version of guss that wrote it"
        with pytest.raises(GussError, match=wrong):
            checkpoint.load(file, "run")
    file.write_bytes(b"PK\x03\x04 a zip archive")
    with pytest.raises(GussError, match="is not a checkpoint of guss"):
        checkpoint.load(file, "run")
    with pytest.raises(GussError, match=r"cannot read the checkpoint .*: No such file"):
        checkpoint.load(file.parent / "none.ckpt", "run")


class Evil:
    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_malicious_pickle_is_not_executed(file, tmp_path):
    trap = tmp_path / "executed"
    buffer = io.BytesIO()
    np.savez(buffer, **{"['count']": np.asarray([Evil(trap)], object)})
    payload = buffer.getvalue()
    header = {"format": "guss-checkpoint", "schema": 2, "kind": "run", "bytes": len(payload), "meta": {}}
    header["sha256"] = checkpoint._digest(header, payload)
    file.write_bytes(json.dumps(header).encode() + b"\n" + payload)
    with pytest.raises(GussError, match="contains a value that is not an array"):
        checkpoint.load(file, "run")
    file.write_bytes(pickle.dumps(Evil(trap)))
    with pytest.raises(GussError, match="is not a checkpoint of guss"):
        checkpoint.load(file, "run")
    assert not trap.exists()
    np.load(io.BytesIO(payload), allow_pickle=True)["['count']"]
    assert trap.exists(), "the trap works"


def test_states_that_do_not_fit_are_told(file):
    stored = checkpoint.load(file, "run")
    with pytest.raises(GussError, match=r"only the state to restore has the array \['more'\];"):
        stored.restore(STATE | {"more": jnp.zeros(1)})
    with pytest.raises(GussError, match=r"\['count'\] is int32\[\], expected int32\[2\]"):
        stored.restore(STATE | {"count": jnp.zeros(2, jnp.int32)})


def test_a_write_that_fails_leaves_the_old_file(file):
    before = file.read_bytes()
    (file.parent / f"a.ckpt.{os.getpid()}.partial").mkdir()
    with pytest.raises(GussError, match=r"cannot write .*a\.ckpt: Is a directory"):
        checkpoint.save(file, "run", {}, STATE)
    assert file.read_bytes() == before
