"""A run finds its environment and plugins from any folder, and says where it looked if it does not."""

import json
import shutil
import textwrap

import gymnasium
import pytest
from helpers.short_runs import run_one

from guss.envs import lookup
from guss.envs.pendulum import SafePendulumEnv
from guss.errors import GussError
from guss.runs.config import RunConfig, spec_of_run
from guss.runs.pack import pack_run
from guss.runs.paths import place_of
from guss.runs.replay import Replay
from guss.runs.results import read_config

PLANT = """
    from guss.envs.pendulum import pendulum_task

    def make_env():
        return pendulum_task().replace(episode_length=10)
"""
PLUGIN = """
    from guss.planners import register_planner
    from guss.planners.random import RandomPlanner

    @register_planner("my-random", paper="none")
    class MyRandom(RandomPlanner):
        '''As random.'''
"""
SMALL = ("--seeds", 1, "--episodes", 1, "--no-figures", "--quiet")


@pytest.fixture
def project(tmp_path):
    """A project whose environment and plugin lie in subfolders of it."""
    folder = tmp_path / "project"
    for name, text in (("envs/plant_of_places.py", PLANT), ("more/plugin_of_places.py", PLUGIN)):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(textwrap.dedent(text))
    return folder


def test_a_run_finds_what_it_names_from_another_folder(project, tmp_path, guss_command, monkeypatch):
    words = ("--env", "envs/plant_of_places.py:make_env", "--method", "my-random")
    guss_command("run", *words, *SMALL, "--plugin", "more/plugin_of_places.py", cwd=project, check=0)
    (home,) = (project / "runs").iterdir()
    assert json.loads((home / "config.json").read_text())["started_in"] == "../.."
    moved = shutil.move(project, tmp_path / "moved")  # as a whole
    home, elsewhere = moved / "runs" / home.name, tmp_path / "elsewhere"
    elsewhere.mkdir()
    guss_command("run", "--resume", home, "--episodes", 2, "--quiet", "--no-figures", cwd=elsewhere, check=0)
    monkeypatch.chdir(elsewhere)
    assert Replay(home, 1, None).verdict() == "episode 1 of seed 0, random actions"
    (moved / "envs").rename(moved / "gone")
    lookup._custom.cache_clear()
    with pytest.raises(GussError) as error:
        spec_of_run(read_config(home))
    assert str(error.value) == (
        f"there is no file 'envs/plant_of_places.py' to import in {elsewhere} or in {moved}, where the run was "
        f"started; run the command in the folder that contains it"
    )
    shutil.copytree(moved / "gone", elsewhere / "envs")
    assert spec_of_run(read_config(home)).make_task().episode_length == 10


def test_the_folder_is_stored_apart_from_the_settings(project, tmp_path, monkeypatch):
    monkeypatch.chdir(project)
    config = RunConfig(env="envs/plant_of_places.py:make_env", method="random", seeds=(0,), episodes=1)
    home = run_one(config, tmp_path / "out", {})
    stored = json.loads((home / "config.json").read_text())
    assert stored["started_in"] == str(project), "the run lies elsewhere"
    assert "started_in" not in stored["config"]
    monkeypatch.chdir(tmp_path)
    found = read_config(home)
    assert found == config
    assert found.to_json() == config.to_json()
    assert found.folder_in(tmp_path / "out") == home
    packed = pack_run(home, tmp_path / "packed", with_animation=False).folder
    assert str(tmp_path) not in (packed / "config.json").read_text()
    assert json.loads((packed / "config.json").read_text()) == {k: v for k, v in stored.items() if k != "started_in"}


def test_names_that_need_no_folder_store_none(tmp_path, monkeypatch):
    monkeypatch.setattr("guss.runs.paths.PLUGINS", [])
    assert place_of(tmp_path, "safe-pendulum") == {}
    assert place_of(tmp_path, "/absolute/plant.py:make_env") == {}
    assert "started_in" in place_of(tmp_path, "package.module:make_env")
    monkeypatch.setattr("guss.runs.paths.PLUGINS", ["plugin.py"])
    assert "started_in" in place_of(tmp_path, "safe-pendulum")


def test_a_plugin_that_is_gone_is_an_error_that_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr("guss.runs.paths.PLUGINS", [])
    home = run_one(RunConfig(env="safe-pendulum", method="random", seeds=(0,), episodes=1), tmp_path, {})
    stored = json.loads((home / "config.json").read_text())
    stored["report"]["plugins"] = ["gone_plugin.py"]
    (home / "config.json").write_text(json.dumps(stored))
    with pytest.raises(GussError, match=r"the plugin 'gone_plugin\.py' of .* give it by --plugin\. there is no file"):
        read_config(home)
    monkeypatch.setattr("guss.runs.paths.PLUGINS", ["elsewhere/gone_plugin.py"])
    assert read_config(home).env == "safe-pendulum"


@pytest.mark.parametrize("name", ["file", "absolute", "namespace/Slash-v0"])
def test_names_with_slashes_work_in_every_command(project, tmp_path, guss_here, name):
    file = "project/envs/plant_of_places.py:make_env"
    if name == "namespace/Slash-v0" and name not in gymnasium.registry:
        gymnasium.register(name, lambda: SafePendulumEnv(), max_episode_steps=10)
    env = {"file": file, "absolute": tmp_path / file}.get(name, name)
    more = ("--without-cost",) if name == "namespace/Slash-v0" else ()
    small = ("--method", "random", "--seeds", 1, "--episodes", 1, "--no-figures", "--quiet")
    guss_here("run", "--env", env, *small, *more, check=0)
    (home,) = (tmp_path / "runs").iterdir()
    for words in (
        ("report", "runs", "--quiet"),
        ("replay", home, "--out", "replay.png", "--step", 0, "--quiet"),
        ("export", home),
        ("pack", home, "--out", "packed", "--quiet", "--no-animation"),
    ):
        guss_here(*words, check=0)
    if more:  # the traces have no cost either
        small = ("--model.hidden", "4", "--fit.max-steps", "2", "--no-test", "--quiet")
        guss_here("fit", "--data", home / "traces", *small, check=0)
    assert "random actions" in guss_here("eval", home, check=2).stderr, "its method does not learn"
    figures = [path.name for path in (tmp_path / "runs" / "report" / "figures").iterdir()]
    assert any(figure.startswith("learning-") for figure in figures)
