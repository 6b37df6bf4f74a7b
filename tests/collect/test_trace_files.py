"""Trace files that are damaged, or that would take all memory: refused, and never read as something else."""

import csv
import gzip
import json
import os
import struct
import subprocess
import sys
import zlib

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from guss import checkpoint
from guss.collect.datasets import Dataset, logged, read_trace, read_traces, trace_columns, write_trace
from guss.collect.tables import SEAL, _check_pages
from guss.errors import GussError, GussWarning
from guss.limits import MAX_DATA, Budget
from guss.runs.state_maps import FIELDS
from guss.runs.store import read_lines, read_packed, unpacked

MIB = 2**20


def example(rows=60):
    rng = np.random.default_rng(0)
    obs, count = rng.normal(size=(rows + 1, 3)).astype(np.float32), np.arange(rows)
    cost = (rng.random((rows, 2)) > 0.5).astype(np.float32)
    action, reward = rng.normal(size=(rows, 1)).astype(np.float32), rng.normal(size=rows).astype(np.float32)
    ends = count % 20 == 19
    flags = {"learnable": count % 7 != 0, "end": ends, "terminated": ends & (count > 30)}
    return Dataset(logged(obs[:-1], action, obs[1:], reward, cost, **flags), ("hot", "wet"))


def equal(one, other):
    arrays = zip(one.trajectory[:-1], other.trajectory[:-1], strict=True)
    return one.cost_names == other.cost_names and all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in arrays)


# ------------------------------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize("ending", [".parquet", ".npz"])
def test_a_flipped_bit_is_reported_or_changes_nothing(tmp_path, ending):
    whole, path = tmp_path / f"whole{ending}", tmp_path / f"damaged{ending}"
    write_trace(whole, example(), seed=np.zeros(60, int))
    content, known = whole.read_bytes(), read_trace(whole)
    size = 8 * len(content)
    tail = range(size - 64, size)  # a Parquet file's last 8 bytes: the length of its footer, and "PAR1"
    reported = 0
    for bit in [*np.random.default_rng(1).integers(0, size, 500).tolist(), *tail]:
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            assert equal(read_trace(path), known), f"bit {bit} of {size} changed the data"
        except GussError:
            reported += 1
    assert reported > 350


@pytest.mark.parametrize("ending", [".parquet", ".npz"])
def test_a_file_that_was_cut_off_is_reported(tmp_path, ending):
    path = tmp_path / f"log{ending}"
    write_trace(path, example())
    content = path.read_bytes()
    for length in [*range(0, len(content), 37), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(GussError, match=r"cannot read the trace|is damaged"):
            read_trace(path)


def test_a_sealed_parquet_file_is_a_plain_one_with_page_checksums(tmp_path):
    path, again, trace = tmp_path / "log.parquet", tmp_path / "again.parquet", example()
    write_trace(path, trace)
    table = pyarrow.parquet.read_table(path, page_checksum_verification=True)
    np.testing.assert_array_equal(table["cost_wet"], trace.trajectory.cost[:, 1])
    pyarrow.parquet.write_table(table.slice(0, 30), again)  # somebody edits it: the seal is gone, nothing is claimed
    assert SEAL in path.read_bytes()
    assert SEAL not in again.read_bytes()
    assert read_trace(again).num_rows == 30
    plain = path.read_bytes().replace(SEAL, b"x" * len(SEAL))
    flipped = bytearray(plain)
    flipped[200] ^= 1
    path.write_bytes(plain)
    assert equal(read_trace(path), trace)
    path.write_bytes(flipped)
    with pytest.raises(GussError, match=r"cannot read the trace .* CRC checksum"):
        read_trace(path)


def test_two_columns_of_one_name_are_refused(tmp_path):
    zeros = pyarrow.array(np.zeros(3))
    names = ["obs", "action", "next_obs", "obs"]
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays([zeros] * 4, names), tmp_path / "log.parquet")
    with pytest.raises(GussError, match="got obs more than once"):
        read_trace(tmp_path / "log.parquet")
    (tmp_path / "log.npz").write_bytes(zipped({"obs.npy": npy((3, 2)), "obs": npy((3, 2)), "action.npy": npy((3, 2))}))
    with pytest.raises(GussError, match="got obs more than once"):
        read_trace(tmp_path / "log.npz")


def test_columns_that_are_not_numbers_are_named(tmp_path):
    for column in (["a", "b"], [[1.0], [2.0]], [None, None]):
        table = pyarrow.table({"obs": column, "action": [0.0, 1.0], "next_obs": [1.0, 2.0]})
        pyarrow.parquet.write_table(table, tmp_path / "log.parquet")
        with pytest.raises(GussError, match=r"log\.parquet: column 'obs' must hold numbers, got .* from row 0 on"):
            read_trace(tmp_path / "log.parquet")
    table = pyarrow.table({"obs": [0.0, 1.0], "action": [0.0, 1.0], "when": ["mon", "tue"], "skip": [True, None]})
    pyarrow.parquet.write_table(table, tmp_path / "log.parquet")
    with pytest.raises(GussError, match=r"skip must be 0 or 1 \(false or true\) in every row, got nan in row 1"):
        read_trace(tmp_path / "log.parquet")
    pyarrow.parquet.write_table(table.drop_columns("skip"), tmp_path / "log.parquet")
    with pytest.warns(GussWarning, match="columns without numbers are ignored: when"):
        assert read_trace(tmp_path / "log.parquet").num_rows == 1


# ------------------------------------------------------------------------------------------------------------- limits


def npy(shape, zeros=None, version=1, length=None):
    """A header, and the numbers of the array: all zeros, so many bytes."""
    words = repr({"descr": "<f8", "fortran_order": False, "shape": shape}).encode() + b"\n"
    size = struct.pack("<H" if version == 1 else "<I", len(words) if length is None else length)
    return b"\x93NUMPY" + bytes([version, 0]) + size + words, 8 * int(np.prod(shape)) if zeros is None else zeros


def zipped(members):
    """A ZIP file whose members end in any number of zeros; the bytes of a million of them are written again and again.

    Its directory says what is true, but for the checksums of large members, which are not meant to be read whole.
    """
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    million = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    body, directory = b"", b""
    for name, (head, zeros) in members.items():
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        start = packer.compress(head + bytes(zeros % MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
        packed = start + million * (zeros // MIB) + b"\x03\x00"
        crc = zlib.crc32(head + bytes(zeros)) if zeros < 9 * MIB else 0
        sizes = struct.pack("<III", crc, len(packed), len(head) + zeros)
        common = struct.pack("<HHHHH", 20, 0, 8, 0, 33) + sizes + struct.pack("<HH", len(name), 0)
        directory += b"PK\1\2\x14\0" + common + struct.pack("<HHHII", 0, 0, 0, 0, len(body)) + name.encode()
        body += b"PK\3\4" + common + name.encode() + packed
    count = struct.pack("<HHHHIIH", 0, 0, len(members), len(members), len(directory), len(body), 0)
    return body + directory + b"PK\5\6" + count


PROBE = """
import resource, sys
from guss.collect.datasets import read_trace
from guss.errors import GussError, GussWarning
from guss.runs.store import unpacked
from pathlib import Path
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
if any(name.endswith(".parquet") for name in sys.argv):
    import pyarrow.parquet
before = peak()
for name in sys.argv[1:]:
    try:
        unpacked(Path(name)) if name.endswith(".gz") else read_trace(name)
        print("read", name)
    except GussError as error:
        print(error)
print(peak() - before)
"""


def test_little_memory_is_taken_by_files_that_unpack_to_much(tmp_path):
    limit, much = 16 * MIB, 400 * MIB
    rows = much // 8
    small = {"action.npy": npy((3, 1)), "next_obs.npy": npy((3, 1))}
    bombs = {
        "large.npz": zipped({"obs.npy": npy((rows, 1)), **small}),
        "longer.npz": zipped({"obs.npy": npy((3, 1), much), **small}),
        "header.npz": zipped({"obs.npy": npy((3, 1), much, 2, much), **small}),
        "shorter.npz": zipped({"obs.npy": npy((MIB, 1), 8), **small}),
        "wide.npz": zipped({"obs.npy": npy((10**12, 0)), "action.npy": npy((10**12, 0))}),
        "several.npz": zipped({f"cost_{i}.npy": npy((MIB,)) for i in range(5)} | {"obs.npy": npy((MIB, 1)), **small}),
        "line.csv": b"obs,action\n" + b"1" * 32 * MIB,
        "quotes.csv": b"obs,action\n" + b'"\n",' * 4 * MIB,
        "columns.csv": b",".join(b"obs_%d" % i for i in range(10**5)) + b"\n",
        "tall.csv": b"obs,action\n" + b"0,0\n" * (limit // 8),
        "lines.jsonl.gz": gzip.compress(bytes(64 * MIB), 1),
    }
    for name, content in bombs.items():
        assert len(content) < 40 * MIB
        (tmp_path / name).write_bytes(content)
    zeros = pyarrow.table({name: np.zeros(10**5) for name in ("obs", "action", "next_obs")})
    with pyarrow.parquet.ParquetWriter(tmp_path / "tall.parquet", zeros.schema) as writer:
        for _ in range(50):
            writer.write_table(zeros)
    names = [*bombs, "tall.parquet"]
    limits = {"GUSS_MAX_DATA_BYTES": str(limit), "GUSS_MAX_PACKED_BYTES": str(limit)}
    found = subprocess.run(
        [sys.executable, "-c", PROBE, *names], cwd=tmp_path, env=os.environ | limits, capture_output=True, text=True
    )
    *words, megabytes = found.stdout.splitlines()
    told = dict(zip(names, words, strict=True))
    beyond = f"has more than the limit of {limit} bytes in memory; if you trust the file, raise the limit: GUSS_MAX_"
    for name in ("large.npz", "several.npz", "tall.csv", "tall.parquet"):
        assert told[name].startswith(f"the trace {name} {beyond}"), told[name]
    assert "24 bytes, but has 25 or more" in told["longer.npz"]
    assert "at most 10000 are read" in told["header.npz"]
    assert "8388608 bytes, but has 8 or more" in told["shorter.npz"]
    assert "obs has shape (1000000000000, 0)" in told["wide.npz"]
    assert "columns.csv has more than the limit of 4096 columns" in told["columns.csv"]
    assert "a row is longer than 1048576 characters" in told["line.csv"]
    assert "a row is longer than 1048576 characters" in told["quotes.csv"]
    assert "GUSS_MAX_PACKED_BYTES" in told["lines.jsonl.gz"]
    assert int(megabytes) < 150, found.stdout


def test_a_limit_holds_for_all_files_together_and_can_be_raised(tmp_path, monkeypatch):
    for i in range(3):
        write_trace(tmp_path / f"{i}.npz", example())
    size = sum(part.nbytes for part in trace_columns(example().trajectory).values())
    monkeypatch.setenv("GUSS_MAX_DATA_BYTES", str(2 * size))
    assert read_trace(tmp_path / "0.npz").num_rows == 60
    with pytest.raises(GussError, match=rf"0.npz and 2 more, read together, has more than the limit of {2 * size} "):
        read_traces([tmp_path])
    monkeypatch.setenv("GUSS_MAX_DATA_BYTES", str(4 * size))
    assert read_traces([tmp_path]).num_rows == 180
    for word in ("2 GB", "0", "-1", "1e9"):
        monkeypatch.setenv("GUSS_MAX_DATA_BYTES", word)
        message = f"GUSS_MAX_DATA_BYTES must be a number of bytes in memory, .* got '{word}'"
        with pytest.raises(GussError, match=message):
            read_trace(tmp_path / "0.npz")
    monkeypatch.delenv("GUSS_MAX_DATA_BYTES")
    assert MAX_DATA.value == 512 * MIB
    monkeypatch.setenv("GUSS_MAX_COLUMNS", "4")
    with pytest.raises(GussError, match=r"has more than the limit of 4 columns; .* GUSS_MAX_COLUMNS"):
        read_trace(tmp_path / "0.npz")


def test_pages_are_limited_before_they_are_unpacked(tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"obs": np.arange(5000.0), "other": np.arange(5000.0)}), tmp_path / "a")
    metadata = pyarrow.parquet.read_metadata(tmp_path / "a")
    _check_pages(metadata, Budget("it", 100_000, "bytes", "no"))
    with pytest.raises(GussError, match="it has more than the limit of 1000 bytes; no"):
        _check_pages(metadata, Budget("it", 1000, "bytes", "no"))


DAMAGED = """
import sys
from pathlib import Path
from guss.collect.datasets import read_trace
from guss.errors import GussError

path, refused = Path(sys.argv[1]), 0
content = path.read_bytes()
footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
for at in range(footer, len(content) - 8):
    if content[at] == 2:  # such as a column that may have missing values, in Thrift's encoding
        path.write_bytes(content[:at] + bytes(1) + content[at + 1 :])
        try:
            read_trace(path)
        except GussError:
            refused += 1
print(refused)
"""


def test_damaged_parquet_files_never_end_the_process(tmp_path):
    path = tmp_path / "log.parquet"
    table = {"obs_0": np.arange(5.0), "action_0": np.arange(5.0), "next_obs_0": np.arange(5.0)}
    pyarrow.parquet.write_table(pyarrow.table(table), path)
    done = subprocess.run([sys.executable, "-c", DAMAGED, path], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 3


def test_a_checkpoint_is_no_larger_in_memory_than_its_file(tmp_path):
    payload = zipped({"['weights'].npy": npy((10 * MIB,))})
    known = {"format": checkpoint.FORMAT, "schema": checkpoint.SCHEMA, "kind": "run"}
    header = known | {"bytes": len(payload), "meta": {}}
    header["sha256"] = checkpoint._digest(header, payload)
    (tmp_path / "a.ckpt").write_bytes(json.dumps(header).encode() + b"\n" + payload)
    with pytest.raises(GussError, match=rf"a\.ckpt has more than the limit of {len(payload)} bytes, its file size"):
        checkpoint.load(tmp_path / "a.ckpt", "run")


def test_records_that_are_nested_too_deeply_are_refused(tmp_path):
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b"[" * 10**6))
    with pytest.raises(GussError, match="is not the maps of a run: it is not JSON"):
        read_packed(tmp_path / "a.json.gz", "the maps of a run", 1, FIELDS)
    (tmp_path / "a.jsonl").write_bytes(b"[" * 10**6 + b"\n")
    with pytest.raises(GussError, match="is not JSON"):
        read_lines(tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"{}\n")[:-5])
    with pytest.raises(GussError, match=r"a.jsonl.gz is damaged, or not compressed by gzip: .*ended before"):
        unpacked(tmp_path / "a.jsonl.gz")


def test_long_rows_of_numbers_are_read(tmp_path):
    names = [f"obs_{i}" for i in range(1000)]
    with (tmp_path / "log.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow([*names, "action", "note"])
        rows.writerows(
            [*map(repr, np.random.default_rng(i).normal(size=1000).tolist()), 1, "as usual"] for i in range(3)
        )
    with pytest.warns(GussWarning, match="columns without numbers are ignored: note"):
        assert read_trace(tmp_path / "log.csv").trajectory.obs.shape == (2, 1000)
