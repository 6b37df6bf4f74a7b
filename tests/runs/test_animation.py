"""State maps, animations and packed copies of runs."""

import gzip
import json
import shutil
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from helpers.short_runs import ORIGIN, add, config, policy_config, resume_run, run_one
from test_replay import GUSS

from guss.collect.datasets import read_episode
from guss.collect.episode_metrics import unsafe_steps
from guss.constraint import Constraint
from guss.envs import ENVS
from guss.envs.pendulum import VIEW, pendulum_task
from guss.errors import GussError
from guss.reports.run_summary import summarise_run
from guss.runs import animator, state_maps
from guss.runs.animation import FINENESS, PLAN_FINENESS, read_animation, rounded, thin_plans
from guss.runs.animator import make_animation, write_animation
from guss.runs.checkpoints import checkpoint_path
from guss.runs.pack import pack_run
from guss.runs.replay import Replay
from guss.runs.results import read_config
from guss.runs.state_maps import make_maps, read_maps, write_maps
from guss.runs.store import packed_bytes, packed_json, read_lines, trace_path, write_json
from guss.task import Grid, Task
from guss.types import ContinuousActions, Observations

RESULTS = Path(__file__).resolve().parents[2] / "results"


def one_number():
    return Task(
        name="one-number",
        observations=Observations(low=(-5.0,), high=(5.0,)),
        actions=ContinuousActions(low=(-1.0,), high=(1.0,)),
        reward=lambda obs, action, next_obs: next_obs[0],
        constraints=[Constraint("limit", lambda obs, action, next_obs: next_obs[0] > 3.0)],
        descriptor=lambda rollout: rollout.next_obs[-1],
        grid=Grid(low=(-5.0,), high=(5.0,), cells=(10,)),
        episode_length=10,
        step=lambda obs, action, key: obs + action,
        reset=lambda key: jnp.zeros(1),
    )


add("one-number", one_number)
add("long-pendulum", lambda: pendulum_task().replace(episode_length=130))


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A run that plans: episode 0 at random, then three with the true model, which compiles soonest."""
    settings = config(env="shown-pendulum", model="oracle", **GUSS)
    return run_one(settings, tmp_path_factory.mktemp("planned"), ORIGIN)


@pytest.fixture(scope="module")
def acted(tmp_path_factory):
    """Random actions in an environment that is shown, of 200 steps."""
    settings = config(env="safe-pendulum", method="random", episodes=2, seeds=(3, 10))
    return run_one(settings, tmp_path_factory.mktemp("acted"), ORIGIN)


def learned_copy(home, folder):
    """The same run as if its model had been learned."""
    shutil.copytree(home, folder)
    stored = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.json", stored | {"config": config(env="shown-pendulum", **GUSS).to_json()})
    return folder


def same_numbers(kept, values, span, fineness=FINENESS):
    np.testing.assert_allclose(np.asarray(kept, float), values, atol=0.5 * span / fineness * (1 + 1e-6))


# ---------------------------------------------------------------------------------------------------------- animations


def test_an_animation_is_what_a_replay_gives(planned):
    steps = []
    animation = make_animation(planned, on_step=lambda done, count: steps.append((done, count)))
    assert steps == [(i + 1, 25) for i in range(25)]
    replay = Replay(planned, None, None)
    steps = list(replay.steps())
    unsafe = np.flatnonzero(unsafe_steps(replay.task, replay.traces[0].cost)).tolist()
    line = next(row for row in read_lines(planned / "episodes.jsonl") if (row["seed"], row["episode"]) == (3, 3))
    assert [animation[name] for name in ("env", "method", "seed", "episode", "phase")] == [
        "shown-pendulum", "guss", 3, 3, "plan"
    ]  # fmt: skip
    assert animation["verdict"] == replay.verdict()
    assert animation["verdict"].endswith("all actions match the stored actions")
    assert (animation["steps"], animation["unsafe_steps"]) == (25, line["unsafe_steps"])
    assert animation["return"] == pytest.approx(line["return"], abs=1e-4)
    assert animation["mean_reward"] == pytest.approx(line["mean_reward"], abs=1e-4)
    assert animation["axes"] == {
        "kind": "time", "labels": ["angle from upright [°]"], "limits": [[-180.0, 180.0]], "unsafe": [[20.0, 30.0]],
        "horizon": 3, "points": [0, 1, 2, 3], "past": 20, "wraps": 180.0,
    }  # fmt: skip
    assert animation["behaviour"]["extent"] == [-180.0, 180.0, -180.0, 180.0]
    assert (animation["behaviour"]["shape"], animation["behaviour"]["kept"]) == ([50, 50], True)
    assert animation["titles"]["archive"].startswith("Archive")
    same_numbers(animation["path"], VIEW.shown(replay.traces[0].obs), 360)
    same_numbers(animation["course"]["values"], VIEW.shown(replay.traces[0].next_obs), 360)
    assert animation["course"]["unsafe"] == unsafe
    assert [frame["step"] for frame in animation["frames"]] == list(range(25))
    for frame, step in zip(animation["frames"], steps, strict=True):
        plans = step.snapshot.candidates
        same_numbers(frame["now"], VIEW.shown(step.obs), 360)
        for name, mask in (("safe", plans.safe), ("unsafe", ~plans.safe)):
            kept = np.asarray(frame[name]).reshape(-1, 4)
            assert len(kept) == mask.sum(), "20 plans are few enough to keep all"
            same_numbers(kept[:, 1:], VIEW.shown(plans.paths[mask]), 360, PLAN_FINENESS)
            same_numbers(kept[:, 0], np.full(len(kept), VIEW.shown(step.obs)), 360, PLAN_FINENESS)
        same_numbers(frame["chosen"][1:], VIEW.shown(step.snapshot.chosen), 360, PLAN_FINENESS)
        same_numbers(frame["ring"], np.rad2deg(step.snapshot.behaviour), 360)
        assert f"{plans.safe.sum()} of 20 plans predicted safe" in frame["text"]
        good = {int(cell): max(plans.reward[plans.safe & (plans.cell == cell)]) for cell in plans.cell[plans.safe]}
        assert {50 * i + j for i, j, _ in frame["cells"]} == set(good)
        assert {50 * i + j for i, j in frame["risky"]} == set(plans.cell[~plans.safe].tolist()) - set(good)
        if len(set(good.values())) > 1:
            low, high = min(good.values()), max(good.values())
            for i, j, value in frame["cells"]:
                assert value == pytest.approx((good[50 * i + j] - low) / (high - low), abs=0.0051)
        shapes = [list(shape) for shape in VIEW.sketch(step.obs)]
        for mine, theirs in zip(frame["shapes"], shapes, strict=True):
            assert (mine[0], mine[-1]) == (theirs[0], theirs[-1])
            np.testing.assert_allclose(mine[1:-1], theirs[1:-1], atol=5.1e-4)


def test_the_same_animation_has_the_same_bytes_and_is_read_back(planned, tmp_path):
    both = [shutil.copytree(planned, tmp_path / name) for name in ("a", "b")]
    assert read_animation(both[0]) is None, "it is not made by reading"
    written = [write_animation(home) for home in both]
    assert read_animation(both[0]) == written[0] == written[1]
    a, b = ((home / "animation.json.gz").read_bytes() for home in both)
    assert a == b
    assert a[4:8] == bytes(4), "no time in it"
    assert (written[0]["seed"], written[0]["episode"]) == (3, 3)
    assert not list(tmp_path.glob("*/*.partial"))


def test_long_episodes_are_thinned_evenly(acted):
    animation = make_animation(acted, 0, 10)
    steps = [frame["step"] for frame in animation["frames"]]
    assert len(steps) == 60
    assert (steps[0], steps[-1]) == (0, 199)
    assert set(np.diff(steps)) <= {3, 4}
    assert len(animation["course"]["values"]) == animation["steps"] == 200
    assert (animation["phase"], animation["behaviour"], animation["world"]) == ("random", None, [-1.3, 1.3])
    assert animation["verdict"] == "episode 0 of seed 10, random actions"
    for frame in animation["frames"]:
        assert [frame[name] for name in ("safe", "unsafe", "chosen", "cells", "risky")] == [[]] * 5
        assert frame["ring"] is None


def test_of_many_plans_some_are_kept_in_true_proportion():
    for share in (0.0, 0.003, 0.25, 0.5, 1.0):
        count = round(900 * share)
        good, bad = (np.arange(n)[:, None] for n in (count, 900 - count))
        safe, unsafe = thin_plans(good, bad, 40)
        assert abs(len(safe) + len(unsafe) - 40) <= 1
        assert abs(len(safe) - 40 * share) <= 1
        assert (len(safe) > 0) == (count > 0), "rare ones are shown too"
        for mine, all_of in ((safe, good), (unsafe, bad)):
            assert len(np.unique(mine)) == len(mine)
            assert len(mine) < 5 or np.diff(mine[:, 0]).max() < 2.5 * len(all_of) / len(mine), "evenly"
    safe, unsafe = thin_plans(np.asarray([[7.0]]), np.asarray([[8.0]]), 40)
    assert (safe.tolist(), unsafe.tolist()) == ([[7.0]], [[8.0]])


@pytest.mark.long
def test_long_horizons_are_thinned(tmp_path):
    home = run_one(
        config(env="long-pendulum", model="oracle", initial_episodes=0, seeds=(0,), episodes=1, horizon=30, budget=3),
        tmp_path,
        ORIGIN,
    )
    animation = make_animation(home)
    points = animation["axes"]["points"]
    assert (points[0], points[-1], len(points)) == (0, 30, 13)
    assert {len(path) for frame in animation["frames"] for path in frame["safe"] + frame["unsafe"]} == {13}
    step = next(Replay(home, None, None).steps())
    frame, plans = animation["frames"][0], step.snapshot.candidates
    first = frame["safe"][0] if plans.safe[0] else frame["unsafe"][0]
    span = np.subtract(*animation["axes"]["limits"][0][::-1])
    same_numbers(first[1:], plans.paths[0][np.asarray(points[1:]) - 1, 0], span, PLAN_FINENESS)
    assert animation["axes"]["labels"] == ["cos(angle)"], "an environment that does not say how it is shown"
    assert animation["world"] is None
    assert all(frame["shapes"] == [] for frame in animation["frames"])
    assert animation["behaviour"]["kept"] is False


def test_numbers_are_as_fine_as_they_are_drawn():
    values = np.asarray([-179.96, 0.07, -0.04, 33.333])
    assert rounded(values, 360.0) == [-180.0, 0.0, 0.0, 33.4]
    assert rounded(values, 360.0, 500) == [-180.0, 0.0, 0.0, 33.5]
    assert rounded(values, 5000.0) == [-180, 0, 0, 35]
    assert rounded(0.12345, 1.0) == 0.123
    assert rounded(values, 0.0) == values.tolist()
    random = np.random.default_rng(0)
    for span in 10.0 ** random.uniform(-4, 6, 50):
        many = random.uniform(-span, span, 100)
        same_numbers(rounded(many, span), many, span)
        assert json.dumps(rounded(many, span)).count("-0.0,") == 0


def test_a_policy_in_a_plane_leaves_a_path_with_gaps(tmp_path):
    home = run_one(config(env="safe-toy", method="random", episodes=1, seeds=(3, 4)), tmp_path, ORIGIN)
    stored = json.loads((home / "config.json").read_text())
    stored["config"] = policy_config(env="safe-toy", method="ppo", method_settings={"num_envs": 1}).to_json()
    write_json(home / "config.json", stored)
    records = (home / "episodes.jsonl").read_text()
    (home / "episodes.jsonl").write_text(records.replace('"phase": "random"', '"phase": "policy"'))
    path = trace_path(home, 3, 0)
    with path.open("rb") as file:
        held = dict(np.load(file))
    held["skip"][6] = True
    np.savez(path, **held)
    animation = make_animation(home)
    assert (animation["method"], animation["phase"], animation["axes"]["kind"]) == ("ppo", "policy", "place")
    assert animation["verdict"].endswith("actions of a learned policy")
    assert (animation["path"][7], animation["path"].count(None)) == (None, 1)
    same_numbers(animation["path"][:7], held["obs"][:7], 50)
    same_numbers(animation["frames"][0]["now"], held["obs"][0], 50)
    assert animation["course"]["label"] == "reward"
    same_numbers(animation["course"]["values"], held["reward"], np.ptp(held["reward"]))
    assert animation["axes"]["unsafe"] == [list(map(float, zone)) for zone in ENVS["safe-toy"].item.view.unsafe]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is not JSON"),
        (b"{}", "is damaged, or not compressed by gzip"),
        (gzip.compress(b"x" * 1000, mtime=0)[:-9], "is damaged, or not compressed by gzip"),
        (gzip.compress(b"no", mtime=0), "is not JSON"),
        (gzip.compress(b"[1]", mtime=0), "has no schema"),
        (gzip.compress(b'{"schema": 3}', mtime=0), "has schema 3, this version of guss reads"),
        ({"labels": [], "env": ""}, "it has no "),
    ],
)
def test_a_damaged_or_foreign_file_is_told(acted, tmp_path, content, text):
    home = shutil.copytree(acted, tmp_path / "run")
    for name, read, schema in (("animation.json.gz", read_animation, 2), ("maps.json.gz", read_maps, 1)):
        lacking = isinstance(content, dict)
        (home / name).write_bytes(packed_json({"schema": schema} | content) if lacking else content)
        with pytest.raises(GussError, match=text) as told:
            read(home)
        assert str(home / name) in str(told.value)


def test_animations_of_earlier_versions_are_refused(acted, tmp_path):
    """They lacked texts that a page shows."""
    home = shutil.copytree(acted, tmp_path / "run")
    (home / "animation.json.gz").write_bytes(gzip.compress(b'{"schema": 1}', mtime=0))
    with pytest.raises(GussError, match="has schema 1, this version of guss reads 2: another version wrote it"):
        read_animation(home)


def test_stored_animations_fit_together():
    """Those of the published results, which are drawn by the page of the report."""
    paths = sorted(RESULTS.glob("runs/*/animation.json.gz"))
    assert len(paths) > 20
    for path in paths:
        found = read_animation(path.parent)
        assert len(found["path"]) == len(found["course"]["values"]) == found["steps"]
        for frame in found["frames"]:
            if found["axes"]["kind"] == "time":
                assert found["path"][frame["step"]] == pytest.approx(frame["now"], abs=1e-9)
        assert f"{found['unsafe_steps'] or 'no'} unsafe step" in found["frames"][-1]["progress"]


def test_damaged_records_are_told(acted, tmp_path):
    home = shutil.copytree(acted, tmp_path / "run")
    (home / "episodes.jsonl.gz").write_bytes(packed_bytes((home / "episodes.jsonl").read_bytes())[:-20])
    with pytest.raises(GussError, match=r"episodes.jsonl.gz is damaged"):
        read_lines(home / "episodes.jsonl")


# ---------------------------------------------------------------------------------------------------------------- maps


def test_steps_are_counted_by_cells(acted):
    found = make_maps(acted)
    visited, unsafe, covered = {}, {}, []
    seen = {3: set(), 10: set()}
    for episode in range(2):
        for seed in (3, 10):
            trace = read_episode(trace_path(acted, seed, episode))
            for obs, cost in zip(trace.next_obs.astype(float), trace.cost, strict=True):
                degrees = np.rad2deg(np.arctan2(obs[1], obs[0]))
                cell = (min(int((degrees + 180) / 7.2), 49), min(int((obs[2] + 8) / 0.32), 49))
                visited[cell] = visited.get(cell, 0) + 1
                if cost[0] > 0:
                    unsafe[cell] = unsafe.get(cell, 0) + 1
                seen[seed].add(cell)
        covered.append((len(seen[3]) + len(seen[10])) / 2 / 2500)
    assert {(i, j): n for i, j, n in found["visited"]} == visited
    assert {(i, j): n for i, j, n in found["unsafe"]} == unsafe
    assert unsafe, "else nothing was tested"
    assert found["covered"] == pytest.approx(covered, abs=1e-5)
    assert found["labels"] == ["angle from upright [°]", "speed [rad/s]"]
    assert (found["limits"], found["cells"]) == ([[-180.0, 180.0], [-8.0, 8.0]], [50, 50])
    assert found["unsafe_zone"] == [[20.0, 30.0, -8.0, 8.0]]
    assert (found["seeds"], found["episodes"], found["numbers"]) == (2, 2, [0, 1])


def test_maps_are_kept_and_read_back(acted, tmp_path):
    home = shutil.copytree(acted, tmp_path / "run")
    made = read_maps(home)
    assert not (home / "maps.json.gz").exists()
    assert write_maps(home) == made
    shutil.rmtree(home / "traces")
    assert read_maps(home) == made
    assert make_maps(home) is None
    (home / "maps.json.gz").unlink()
    assert read_maps(home) is None
    assert len(made["covered"]) == 2
    assert np.diff(made["covered"]).min() >= 0
    assert 0 < made["covered"][0] <= 1
    assert sum(n for _, _, n in made["visited"]) == 2 * 2 * 200


def test_a_map_that_only_its_environment_can_make_is_stored_when_the_run_ends(planned, tmp_path):
    home = shutil.copytree(planned, tmp_path / "run")
    made = read_maps(home)
    assert (made["labels"][0], made["numbers"]) == ("angle from upright [°]", [0, 1, 2, 3])
    assert sum(n for _, _, n in made["visited"]) == 4 * 2 * 25
    (home / "maps.json.gz").unlink()
    with pytest.raises(GussError, match="'shown-pendulum' is computed by its own code, which is not imported here"):
        read_maps(home)


def test_an_environment_without_a_view_is_mapped_by_its_first_observations(tmp_path):
    home = run_one(config(env="short-pendulum", method="random", episodes=1), tmp_path, ORIGIN)
    found = make_maps(home)
    assert found["labels"] == ["cos(angle)", "sin(angle)"]
    obs = np.concatenate([read_episode(trace_path(home, seed, 0)).next_obs for seed in (3, 4)])
    for column, (low, high) in zip(obs.T[:2], found["limits"], strict=True):
        assert low < column.min() < column.max() < high < column.max() + 0.1
    assert sum(n for _, _, n in found["visited"]) == 50
    one = run_one(config(env="one-number", method="random", episodes=1), tmp_path, ORIGIN)
    assert make_maps(one) is None
    (trace_path(home, 4, 0)).unlink()
    assert make_maps(home) is None, "an episode counts when all seeds have it"


def test_what_is_beyond_the_limits_is_not_on_the_map():
    plane = state_maps.StateMap(lambda obs: obs, ("a", "b"), ((0.0, 1.0), (0.0, 2.0)), cells=(2, 4))
    obs = np.asarray([[0.0, 0.0], [1.0, 2.0], [1.0 + 1e-8, 0.6], [1.1, 0.5], [0.5, np.nan], [0.49, -0.1]])
    where, inside = state_maps.cells_of(plane, obs)
    assert inside.tolist() == [True, True, True, False, False, False]
    assert where[:3].tolist() == [0, 7, 5]


# ------------------------------------------------------------------------------------------------------------- packing


def test_a_packed_run_says_the_same_of_itself(planned, tmp_path, guss_here):
    home = shutil.copytree(planned, tmp_path / "runs" / planned.name)
    write_json(home / "eval.json", {"mean_reward": [1.0, None]})
    told = guss_here("pack", "runs", "--out", "small", "--replay", "--json", check=0)
    (row,) = json.loads(told.stdout)
    small = tmp_path / "small" / home.name
    assert row["folder"] == f"small/{home.name}"
    assert (row["episodes"], row["missing"]) == (4, [])
    assert {path.name: path.stat().st_size for path in small.iterdir()} == row["files"]
    assert sorted(row["files"]) == sorted(
        ["config.json", "episodes.jsonl.gz", "timings.jsonl.gz", "maps.json.gz", "animation.json.gz", "eval.json"]
    )
    assert summarise_run(small) == summarise_run(home)
    for name in ("config.json", "eval.json"):
        assert (small / name).read_bytes() == (home / name).read_bytes()
    for name in ("episodes.jsonl", "timings.jsonl"):
        assert gzip.decompress((small / f"{name}.gz").read_bytes()) == (home / name).read_bytes()
    assert read_animation(small) == make_animation(home)
    assert read_maps(small) == read_maps(home)
    before = {path.name: path.read_bytes() for path in small.iterdir()}
    again = guss_here("pack", small, "--out", "smaller", check=0)
    assert f"{home.name} │        4" in again.stdout
    assert {path.name: path.read_bytes() for path in (tmp_path / "smaller" / home.name).iterdir()} == before


def test_what_cannot_be_made_is_told(planned, tmp_path, guss_here):
    home = learned_copy(planned, tmp_path / "runs" / planned.name)
    shutil.rmtree(home / "checkpoints")
    told = guss_here("pack", home, "--out", "z", check=0)
    assert "no animation: it needs code that is not part of guss" in told.stdout
    assert "--plugin imports code" in guss_here("pack", home, "--out", "z", "--plugin", "x", check=2).stderr
    told = guss_here("pack", home, "--out", "a", "--replay", check=0)
    assert "no animation: no episode has both a trace and a checkpoint" in told.stdout
    shutil.rmtree(home / "traces")
    (home / "maps.json.gz").unlink()
    told = guss_here("pack", home, "--out", "b", "--replay", check=0)
    assert "no animation: the run has no traces" in told.stdout
    assert "no maps: the run has no traces" in told.stdout
    told = guss_here("pack", home, "--out", "c", "--no-animation", "--quiet", check=0)
    assert told.stdout + told.stderr == ""
    assert sorted(path.name for path in (tmp_path / "c" / home.name).iterdir()) == [
        "config.json", "episodes.jsonl.gz", "timings.jsonl.gz"
    ]  # fmt: skip


def test_a_run_under_way_is_packed_as_far_as_it_is(planned, tmp_path):
    home = shutil.copytree(planned, tmp_path / planned.name)
    (home / "claim-000001").write_text("{}")
    path = home / "episodes.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]) + lines[-1][:20])  # the last seed's line of episode 3 is being written
    (home / "maps.json.gz").unlink()  # which is written at the end
    packed = pack_run(home, tmp_path / "small", replay=True)
    assert packed.episodes == 3
    assert gzip.decompress((packed.folder / "episodes.jsonl.gz").read_bytes()).decode() == "".join(lines[:6])
    assert [row["episode"] for row in read_lines(packed.folder / "timings.jsonl")] == [0, 1, 2]
    assert [text.partition(":")[0] for text in packed.missing] == ["no maps"]
    assert read_animation(packed.folder)["episode"] == 2
    assert (home / "claim-000001").exists()
    path.write_text("".join(lines))
    assert pack_run(home, tmp_path / "small", with_animation=False).episodes == 4
    path.write_text("".join(lines[:2]))
    with pytest.raises(GussError, match=r"contains more of this run than .*: 8 lines of episodes instead of 2"):
        pack_run(home, tmp_path / "small")
    path.write_text("")
    with pytest.raises(GussError, match="has no finished episode yet"):
        pack_run(home, tmp_path / "other")


@pytest.mark.parametrize(("checkpoints", "episode"), [((3, 4), 3), ((2, 3), 2)])
def test_the_last_episode_whose_models_are_there_is_animated(planned, tmp_path, monkeypatch, checkpoints, episode):
    """Others would have to be fitted again; where nothing was learned there is no need of them."""
    home, asked = learned_copy(planned, tmp_path / "run"), []
    monkeypatch.setattr(animator, "make_animation", lambda home, episode, on_step: asked.append(episode))
    for path in (home / "checkpoints").iterdir():
        path.unlink()
    for done in checkpoints:
        checkpoint_path(home, done).touch()
    assert pack_run(home, tmp_path / "small", replay=True).missing == ()
    pack_run(planned, tmp_path / "small", replay=True)
    assert asked == [episode, 3]


def test_nothing_else_is_overwritten(acted, tmp_path, guss_here):
    home = shutil.copytree(acted, tmp_path / "runs" / acted.name)
    target = tmp_path / "out" / home.name

    def refused(text, *words):
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        told = guss_here("pack", *words, check=2)
        assert text in told.stderr
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before

    refused("guss pack needs a run folder or a folder of runs", "--out", "out")
    refused("runs contains safe-pendulum-", "runs", "--out", "runs")
    refused("neither a run nor a folder of runs", tmp_path / "nowhere", "--out", "out")
    refused("2 of the runs have the same name", "runs", home, "--out", "out")
    target.mkdir(parents=True)
    (target / "mine.txt").write_text("mine")
    refused("already exists and is not a run", home, "--out", "out")
    (target / "mine.txt").unlink()
    stored = json.loads((home / "config.json").read_text())
    other = stored | {"config": stored["config"] | {"seeds": [7, 8]}}
    write_json(target / "config.json", other)
    refused("contains a run with other settings", home, "--out", "out")
    write_json(target / "config.json", stored)
    (target / "episodes.jsonl").write_text("")
    refused("contains an unpacked run, not a packed copy", home, "--out", "out")
    (target / "episodes.jsonl").unlink()
    (tmp_path / "file").write_text("")
    refused("cannot write file", home, "--out", "file", "--no-animation")
    guss_here("pack", home, "--out", "out", check=0)
    assert summarise_run(target) == summarise_run(home)


def test_a_packed_run_is_not_resumed_but_can_be_run_anew(acted, tmp_path):
    home = pack_run(acted, tmp_path).folder
    with pytest.raises(GussError, match=r"is a packed run .* without a checkpoint to resume from"):
        resume_run(home)
    with pytest.raises(GussError, match=r"already contains a run with these settings \(2 of 2 episodes"):
        run_one(read_config(home), tmp_path, ORIGIN)
    assert run_one(read_config(home), tmp_path, ORIGIN, overwrite=True) == home
    assert sorted(path.name for path in home.iterdir()) == sorted(path.name for path in acted.iterdir())
    assert summarise_run(home) == summarise_run(acted)
