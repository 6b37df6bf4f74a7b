"""Executors start the same worker: processes, tasks of a Ray cluster and jobs of submitit give the same records."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import submitit  # noqa: F401  # its logging keeps the streams of the moment of import: not those that pytest captures
from helpers.fault_injection import tables

from guss.sweeps.executors import ONE_THREAD, worker_command

STUDY = """
    env = "safe-pendulum"
    preset = "safe-pendulum-quick"
    method = ["rs", "random"]
    seeds = 2
    episodes = {episodes}
    horizon = [2, 3]
    budget = 5
    model = "oracle"
    initial_episodes = 0
"""


def write_study(folder, episodes=3):
    path = folder / "study.toml"
    path.write_text("\n".join(line.strip() for line in STUDY.format(episodes=episodes).splitlines()))
    return path


def records(out):
    return {path.parent.name: path.read_bytes() for path in sorted(out.glob("safe-*/episodes.jsonl"))}


def sweep(folder, *words, check=0):
    command = [sys.executable, "-m", "guss", "sweep", *map(str, words)]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert process.returncode == check, process.stderr
    return process


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """The study executed by two processes."""
    folder = tmp_path_factory.mktemp("local")
    process = sweep(folder, write_study(folder), "--workers", 2, "--no-report")
    return folder, process


def test_two_processes_execute_a_study(local):
    folder, process = local
    found = records(folder / "runs" / "study")
    assert len(found) == 3
    assert {content.count(b"\n") for content in found.values()} == {6}
    assert "3/3 safe-pendulum" in process.stderr
    workers = {
        row["worker"]
        for path in (folder / "runs" / "study" / "sweep" / "attempts").iterdir()
        for row in map(json.loads, path.read_text().splitlines())
        if row["event"] == "start"
    }
    assert workers == {"local-0", "local-1"}
    again = sweep(folder, folder / "study.toml", "--workers", 2, "--no-report", "--json")
    assert [row["state"] for row in json.loads(again.stdout)] == ["finished"] * 3
    status = sweep(folder, "--status", folder / "runs" / "study")
    assert "3 finished" in status.stdout


@pytest.fixture(scope="module")
def cluster():
    """A Ray cluster of two nodes with a CPU each, in processes of their own."""
    code = """
        import sys, time
        from ray.cluster_utils import Cluster
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        second = cluster.add_node(num_cpus=1)
        print(cluster.address, flush=True)
        for line in sys.stdin:
            cluster.remove_node(second, allow_graceful=False)
            print("removed", flush=True)
        cluster.shutdown()
    """
    code = "\n".join(line.strip() if not line.startswith(" " * 12) else line[8:] for line in code.splitlines())
    environment = os.environ | {"RAY_AUTH_MODE": "disabled"}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    address = ""
    while ":" not in address:
        address = process.stdout.readline().strip()
        assert process.poll() is None
    yield process, address
    process.stdin.close()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


def ray_words(folder, address, episodes):
    return write_study(folder, episodes), "--executor", "ray", "--address", address, "--workers", 2, "--no-report"


def test_a_ray_cluster_of_two_nodes_gives_the_same_records(local, tmp_path, cluster, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    sweep(tmp_path, *ray_words(tmp_path, cluster[1], 3))
    assert records(tmp_path / "runs" / "study") == records(local[0] / "runs" / "study")


def test_submitit_gives_the_same_records(local, tmp_path):
    words = (write_study(tmp_path), "--executor", "slurm", "--slurm", "cluster=local", "--workers", 2, "--no-report")
    sweep(tmp_path, *words)
    assert records(tmp_path / "runs" / "study") == records(local[0] / "runs" / "study")


def test_a_lost_ray_node_loses_no_run(tmp_path, cluster, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    process, address = cluster
    command = [sys.executable, "-m", "guss", "sweep", *map(str, ray_words(tmp_path, address, 150))]
    run = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    out = tmp_path / "runs" / "study"
    until = time.monotonic() + 300
    while sum(content.count(b"\n") > 4 for content in records(out).values()) < 2:
        assert run.poll() is None, run.stderr.read()
        assert time.monotonic() < until
        time.sleep(0.05)
    process.stdin.write("remove\n")
    process.stdin.flush()
    assert process.stdout.readline().strip() == "removed"
    _, stderr = run.communicate(timeout=400)
    assert run.returncode == 0, stderr
    whole = tmp_path / "whole"
    whole.mkdir()
    sweep(whole, write_study(whole, 150), "--workers", 1, "--no-report")
    assert records(out) == records(whole / "runs" / "study")


def test_a_script_for_slurm_joins_the_study(tmp_path):
    words = (write_study(tmp_path), "--executor", "slurm", "--script", "--workers", 4, "--slurm", "partition=cpu")
    script = sweep(tmp_path, *words).stdout
    assert "#SBATCH --array=0-3\n" in script
    assert "#SBATCH --partition=cpu\n" in script
    assert script.splitlines()[-1].startswith("exec ")
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    environment = os.environ | ONE_THREAD | {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"}
    subprocess.run(["bash"], input=script, text=True, check=True, env=environment)
    assert len(records(tmp_path / "runs" / "study")) == 3
    names = (tmp_path / "runs" / "study" / "sweep" / "attempts").glob("*.jsonl")
    assert all('"slurm-7-2"' in path.read_text() for path in names)


def workers_of(out):
    """Processes that work on a sweep."""
    found = subprocess.run(["pgrep", "-f", f"sweep --join {out}"], capture_output=True, text=True, check=False)
    return found.stdout.split()


@pytest.mark.parametrize(
    "how",
    ["interrupt twice", "kill", *(pytest.param(how, marks=pytest.mark.long) for how in ("interrupt", "terminate"))],
)
def test_a_sweep_that_is_ended_leaves_no_worker(tmp_path, how):
    command = [sys.executable, "-m", "guss", "sweep", str(write_study(tmp_path, 3000)), "--workers", "2"]
    run = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    out = tmp_path / "runs" / "study"
    while sum(content.count(b"\n") for content in records(out).values()) < 4:
        assert run.poll() is None, run.stderr.read()
        time.sleep(0.05)
    assert len(workers_of(out)) == 2
    run.send_signal({"terminate": signal.SIGTERM, "kill": signal.SIGKILL}.get(how, signal.SIGINT))
    if how == "interrupt twice":
        time.sleep(0.2)
        run.send_signal(signal.SIGINT)
    _, stderr = run.communicate(timeout=180)
    if how != "kill":
        assert run.returncode == 130
        assert "interrupted; finished episodes are kept; repeat the same command to resume" in stderr
    until = time.monotonic() + 180
    while workers_of(out):
        assert time.monotonic() < until, "a worker ends after its episode"
        time.sleep(0.1)
    assert not list(out.glob("*/claim-*")), "the workers released their claims"


def test_the_time_limit_of_a_job_interrupts_its_worker(tmp_path):
    """submitit announces it by SIGUSR2."""
    words = (write_study(tmp_path, 3000), "--executor", "slurm", "--script", "--workers", 1)
    sweep(tmp_path, *words)
    out = tmp_path / "runs" / "study"
    process = subprocess.Popen(worker_command(out, "w"), stderr=subprocess.PIPE, text=True)
    while not any(content.count(b"\n") > 2 for content in records(out).values()):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    process.send_signal(signal.SIGUSR2)
    process.communicate(timeout=180)
    assert process.returncode == 130
    lines = [line for path in out.glob("sweep/attempts/*") for line in path.read_text().splitlines()]
    events = [json.loads(line)["event"] for line in lines]
    assert events[-1] == "stop"
    assert "fail" not in events


def test_a_worker_whose_environment_crashes_is_started_again(tmp_path):
    """The environment ends its process once; the run is finished by the worker that follows."""
    tables(tmp_path, 4)
    (tmp_path / "study.toml").write_text(
        f'env = "{tmp_path}/faulty.py:make_env"\nmethod = "random"\nseeds = [[1], [2]]\nepisodes = 4\n[sweep]\n'
        f'plugin = ["{tmp_path}/faulty.py"]\n'
    )
    (tmp_path / "markers").mkdir()
    (tmp_path / "markers" / "crash").touch()
    environment = os.environ | {"FAULTS": str(tmp_path / "markers")}
    command = [sys.executable, "-m", "guss", "sweep", "study.toml", "--workers", "2", "--no-report", "--json"]
    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert [row["state"] for row in json.loads(process.stdout)] == ["finished"] * 2
    assert not (tmp_path / "markers" / "crash").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "exactly one of them"),
        (("study.toml", "--status", "runs"), "exactly one of them"),
        (("--join", "nowhere"), "nowhere is not the folder of a sweep"),
        (("--status", "nowhere"), "nowhere is not the folder of a sweep"),
        (("none.toml",), "cannot read the study 'none.toml'"),
        (("study.toml", "--workers", "0"), "at least 1 worker"),
        (("study.toml", "--script"), "needs --executor slurm"),
        (("study.toml", "--executor", "ray", "--resources", "num_cpus"), "--resources takes NAME=VALUE"),
        (("study.toml", "--executor", "ray", "--resources", "num_cpus=x"), "must be a number"),
        (("study.toml", "--executor", "slurm"), "cannot submit to Slurm"),
    ],
)
def test_bad_flags_are_one_sentence(guss_here, tmp_path, words, message):
    write_study(tmp_path)
    process = guss_here("sweep", *words, check=2)
    assert message in process.stderr
    assert len(process.stderr.splitlines()) == 1


def test_a_forecast_lists_the_runs_and_executes_nothing(guss_here, tmp_path):
    process = guss_here("sweep", write_study(tmp_path), "--dry-run", "--workers", "4", check=0)
    for text in ("safe-pendulum rs horizon=2", "2 × 3", "3 runs", "with 4 workers"):
        assert text in process.stdout
    assert not (tmp_path / "runs").exists()


def test_a_worker_command_names_the_folder_absolutely(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = worker_command(tmp_path.relative_to(tmp_path), "w")
    assert command[-3:] == [str(tmp_path), "--worker", "w"]
