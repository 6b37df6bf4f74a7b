"""A run that cannot be read does not end a report: it is left out, as the page, the table and the terminal say."""

import json
import shutil

import pytest
from helpers.stored import store
from test_report import RISING, payload_in

from guss.errors import GussError
from guss.reports.inventory import gather
from guss.reports.report import write_report
from guss.runs.rows import read_episodes, read_timings

LONG = 10**400
LINES = {
    "binary": b"\x00\x80\xff\n",
    "not UTF-8": b'{"seed": "\xe9"}\n',
    "not JSON": b"{\n",
    "no object": b"[1]\n",
    "deep": b"[" * 100_000 + b"\n",
    "empty": b"\n",
}
VALUES = [None, True, -1, 0.5, "x", [], {}, float("nan"), float("inf"), LONG, 10**17]


@pytest.mark.parametrize("name", ["episodes.jsonl", "timings.jsonl"])
@pytest.mark.parametrize("what", LINES)
def test_a_line_that_cannot_be_read_leaves_its_run_out(tmp_path, name, what):
    store(tmp_path, name="good")
    path = store(tmp_path, method="s-rs", name="bad") / name
    path.write_bytes(path.read_bytes() + LINES[what])
    found = gather(tmp_path)
    assert [record.name for record in found.records] == ["good"]
    (note,) = found.left_out
    assert note.startswith(f"bad/{name}")
    assert "line " in note
    assert note in found.notes


@pytest.mark.parametrize("name", ["episodes.jsonl", "timings.jsonl"])
def test_a_last_line_that_was_cut_off_does_not_count(tmp_path, name):
    home = store(tmp_path, name="cut")
    (home / name).write_bytes((home / name).read_bytes()[:-5])
    read = read_episodes if name == "episodes.jsonl" else read_timings
    assert len(read(home)) == 3
    assert not gather(tmp_path).left_out


def test_values_of_other_types_leave_a_run_out_and_nothing_else_happens(tmp_path):
    good, home = store(tmp_path, name="good"), store(tmp_path, method="s-rs", name="bad")
    whole = {name: (home / name).read_text() for name in ("episodes.jsonl", "timings.jsonl")}
    for name, text in whole.items():
        rows = [json.loads(line) for line in text.splitlines()]
        for field in rows[1]:
            for value in VALUES:
                changed = [rows[0], rows[1] | {field: value}, *rows[2:]]
                (home / name).write_text("".join(json.dumps(row) + "\n" for row in changed))
                found = gather(tmp_path)
                assert good in [record.home for record in found.records]
                assert len(found.records) + len(found.left_out) == 2
        (home / name).write_text(text)
    assert len(gather(tmp_path).records) == 2


def test_repeated_and_missing_lines_leave_a_run_out(tmp_path):
    store(tmp_path, name="good")
    for i, pick in enumerate([[0, 1, 1, 2], [0, 2, 3], [1, 0, 2]]):
        path = store(tmp_path, method="s-rs", name=f"bad-{i}") / "episodes.jsonl"
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[k] for k in pick))
    other = store(tmp_path, method="s-rs", name="bad-3")
    config = json.loads((other / "config.json").read_text())
    config["config"]["seeds"] = [7]
    (other / "config.json").write_text(json.dumps(config))
    notes = gather(tmp_path).left_out
    assert len(notes) == 4
    assert all("missing, repeated or out of order" in note for note in notes[:3])
    assert "has seed 0, which is not in its config.json" in notes[3]


def test_the_command_says_which_run_is_left_out_and_why(tmp_path, guss_here):
    runs = tmp_path / "runs"
    store(runs, rewards=RISING, name="good")
    (store(runs, method="s-rs", name="bad") / "config.json").write_bytes(b"\xff\xfe")
    process = guss_here("report", runs, "--quiet", check=0)
    assert process.stderr.startswith("guss: warning: bad/config.json is not JSON")
    assert "it is left out" in payload_in((runs / "report" / "report.html").read_text())["missing"][0]
    assert "it is left out" in (runs / "report" / "table.md").read_text()
    shutil.rmtree(runs / "good")
    error = guss_here("report", runs, check=2).stderr
    assert "there is no readable run in" in error
    assert "bad/config.json is not JSON" in error


def test_numbers_far_apart_are_drawn(tmp_path):
    store(tmp_path, rewards=RISING, name="good")
    store(tmp_path, method="s-rs", rewards=((1e99, -1e99, 0.0, 1.0),), unsafe=1e99, name="odd")
    assert payload_in(write_report(tmp_path)[0].read_text())["envs"]


@pytest.mark.parametrize("share", [-5.0, 10**99])
def test_shares_outside_0_to_100_percent_are_drawn(tmp_path, share):
    path = store(tmp_path, rewards=RISING, name="odd") / "episodes.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row | {"unsafe_pct": share}) + "\n" for row in rows))
    assert payload_in(write_report(tmp_path)[0].read_text())["envs"]


@pytest.mark.parametrize("command", ["eval", "replay", "export", "fit", "run"])
def test_other_commands_name_the_line_too(tmp_path, guss_here, command):
    home = store(
        tmp_path,
        name="run",
        config={"model": "oracle", "model_settings": {}, "fit": {}, "method_settings": {}, "explore": "iid"},
    )
    path = home / "episodes.jsonl"
    path.write_bytes(LINES["binary"] + path.read_bytes())
    words = {"fit": ("fit", "--data", home), "run": ("run", "--resume", home)}
    process = guss_here(*words.get(command, (command, home)), check=2)
    assert len(process.stderr.strip().splitlines()) == 1
    assert "Traceback" not in process.stderr


def test_a_config_of_other_types_is_an_error_of_one_line(tmp_path, guss_here):
    home = store(tmp_path, name="run")
    for content in ("[]", "{}", '{"config": 3}', '{"config": {"env": 1}}', "\ud800"):
        (home / "config.json").write_text(content, errors="surrogatepass")
        for words in (("eval", home), ("run", "--resume", home), ("pack", home, "--out", tmp_path / "packed")):
            process = guss_here(*words, check=2)
            assert len(process.stderr.strip().splitlines()) == 1, process.stderr
    with pytest.raises(GussError, match="there is no readable run"):
        write_report(tmp_path)
