"""Study files: which runs they name, and what is wrong with a bad one."""

import itertools
from functools import cache
from pathlib import Path

import pytest

from guss.errors import GussError
from guss.methods import method_class
from guss.runs.config import make_config
from guss.runs.results import read_config
from guss.sweeps.study import make_study, read_study
from guss.sweeps.table1 import ENVIRONMENTS, METHODS, NUM_SEEDS, PRESETS, table1

ROOT = Path(__file__).resolve().parents[2]
SMALL = {"env": "safe-pendulum", "method": "rs", "seeds": 2, "episodes": 3, "budget": 20}


def configs(**tables):
    return [run.config for run in make_study(SMALL | tables).runs]


def names(**tables):
    return [run.name for run in make_study(SMALL | tables).runs]


def test_a_study_without_lists_is_the_run_of_the_command_line():
    (config,) = configs()
    assert config == make_config("safe-pendulum", "rs", seeds=2, episodes=3, budget=20)


def test_lists_are_swept_in_all_combinations():
    found = configs(env=["safe-pendulum", "safe-acrobot"], method=["rs", "cem"], horizon=[3, 5], fit={"batch": [8, 16]})
    points = {(c.env, c.method, c.horizon, c.fit.batch) for c in found}
    assert len(found) == 16
    assert points == set(itertools.product(("safe-pendulum", "safe-acrobot"), ("rs", "cem"), (3, 5), (8, 16)))
    assert names(horizon=[3, 5]) == ["safe-pendulum rs horizon=3", "safe-pendulum rs horizon=5"]


def test_a_setting_that_is_a_list_is_swept_if_it_is_a_list_of_lists():
    assert [c.model_settings.hidden for c in configs(model={"hidden": [8, 8]})] == [(8, 8)]
    assert [c.model_settings.hidden for c in configs(model={"hidden": [[8, 8], [16]]})] == [(8, 8), (16,)]
    assert [c.seeds for c in configs(seeds=[4, 7])] == [(4, 7)]
    assert [c.seeds for c in configs(seeds=[[4], [7, 9]])] == [(4,), (7, 9)]
    assert [c.learned for c in configs(learned=["reward", "cost"])] == [("reward", "cost")]


def test_zipped_lists_are_swept_together():
    zipped = [{"horizon": [3, 5], "model": {"ensemble": [1, 2]}}, {"budget": [30, 40]}]
    found = [(c.horizon, c.model_settings.ensemble, c.budget) for c in configs(zip=zipped)]
    assert found == [(3, 1, 30), (3, 1, 40), (5, 2, 30), (5, 2, 40)]
    assert names(zip=zipped)[0] == "safe-pendulum rs horizon=3 model.ensemble=1 budget=30"


@pytest.mark.parametrize("group", [{"horizon": [3, 5], "budget": [1]}, {"horizon": 3}, {}])
def test_zipped_lists_have_the_same_length(group):
    with pytest.raises(GussError, match=r"\[\[zip\]\] needs lists of equal length"):
        configs(zip=[group])


def test_tables_of_environments_and_methods_override_the_rest():
    tables = {
        "env": ["safe-pendulum", "safe-acrobot"],
        "method": ["rs", "guss", "cem"],
        "horizon": 4,
        "budget": 60,
        "methods": {"guss": {"num_new": [5, 7], "horizon": 5}, "cem": {"fit": {"batch": 9}}},
        "envs": {"safe-acrobot": {"horizon": 6, "methods": {"guss": {"horizon": 7}}}},
    }
    found = {(c.env, c.method, getattr(c.method_settings, "num_new", None)): c for c in configs(**tables)}
    assert len(found) == 8
    horizons = {(env, method): config.horizon for (env, method, _), config in found.items()}
    assert horizons == {
        ("safe-pendulum", "rs"): 4,
        ("safe-pendulum", "guss"): 5,
        ("safe-pendulum", "cem"): 4,
        ("safe-acrobot", "rs"): 6,
        ("safe-acrobot", "guss"): 7,
        ("safe-acrobot", "cem"): 6,
    }
    assert found["safe-pendulum", "cem", None].fit.batch == 9
    assert found["safe-pendulum", "rs", None].fit.batch != 9
    assert names(method="guss", budget=60, methods={"guss": {"num_new": [5, 7]}})[1] == "safe-pendulum guss num_new=7"


def test_settings_without_effect_are_left_out_and_equal_runs_executed_once():
    found = make_study(SMALL | {"method": ["rs", "random"], "horizon": [3, 5], "model": {"ensemble": [1, 2]}}).runs
    assert [run.name for run in found if run.config.method == "random"] == ["safe-pendulum random"]
    assert len(found) == 5
    oracle = make_study(SMALL | {"model": ["oracle", "dmdn"], "fit": {"batch": [8, 16]}}).runs
    assert [run.name for run in oracle] == [
        "safe-pendulum rs model.name=oracle",
        "safe-pendulum rs model.name=dmdn fit.batch=8",
        "safe-pendulum rs model.name=dmdn fit.batch=16",
    ]


def test_presets_can_be_named_swept_and_read_from_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text('extends = "safe-pendulum"\nhorizon = 6')
    runs = make_study(SMALL | {"preset": ["safe-pendulum-paper", "mine.toml"]}).runs
    assert [run.config.horizon for run in runs] == [make_config(preset="safe-pendulum-paper").horizon, 6]
    assert runs[1].name == "safe-pendulum rs preset=mine.toml"


def test_the_model_is_kept_if_a_table_changes_one_of_its_settings():
    (run,) = make_study(SMALL | {"model": "oracle", "envs": {"safe-pendulum": {"model": {"ensemble": 3}}}}).runs
    assert run.config.model == "oracle"
    tables = {"model": ["oracle", "dmdn"], "methods": {"rs": {"model": {"ensemble": 3}}}}
    assert [run.config.model for run in make_study(SMALL | tables).runs] == ["oracle", "dmdn"]
    zipped = {"model": "dmdn", "zip": [{"model": {"ensemble": [1, 2]}}]}
    assert [run.config.model_settings.ensemble for run in make_study(SMALL | zipped).runs] == [1, 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"env": None}, "a study needs `env`"),
        ({"method": []}, "a study needs `method`"),
        ({"env": "safe-pendulm"}, "Did you mean 'safe-pendulum'"),
        ({"method": ["rs", "gus"]}, "unknown method 'gus'. Did you mean 'guss'"),
        ({"horizn": 3}, "entry of the study: 'horizn'. Did you mean 'horizon'"),
        ({"horizon": [3, "x"]}, "the run safe-pendulum rs horizon=x: .*horizon must be an integer"),
        ({"horizon": [0]}, "the run safe-pendulum rs horizon=0: .*horizon must be"),
        ({"model": {"ensmble": 3}}, "Did you mean 'ensemble'"),
        ({"fit": {"bach": [3, 4]}}, "fit.bach=3: .*Did you mean 'batch'"),
        ({"methods": {"guss": {}}}, "name in the table `methods`.* 'guss'"),
        ({"methods": {"rs": {"nn": 3}}}, "the run safe-pendulum rs: .*'nn'"),
        ({"methods": 3}, "methods of the study must be a table, got 3"),
        ({"envs": {"safe-acrobot": {}}}, "name in the table `envs`.* 'safe-acrobot'"),
        ({"envs": {"safe-pendulum": {"methods": {"guss": {}}}}}, "name in the table `methods`.* 'guss'"),
        ({"envs": {"safe-pendulum": {"method": "cem"}}}, "entry of the table envs.safe-pendulum: 'method'"),
        ({"preset": 3}, "preset must be text"),
        ({"seeds": "two"}, "seeds must be an integer, got 'two'"),
        ({"seeds": [1, 2], "seed": 3}, "leave out `seed`"),
        ({"sweep": {"atempts": 3}}, "Did you mean 'attempts'"),
        ({"sweep": {"attempts": 0}}, "attempts must be"),
        ({"zip": 3}, r"zip must be written as \[\[zip\]\]"),
        (
            {"env": "safe-acrobot", "method": "safe-mbpo"},
            r"nothing to run\. safe-mbpo on safe-acrobot: it needs continuous",
        ),
    ],
)
def test_a_bad_study_is_one_sentence(change, message):
    with pytest.raises(GussError, match=message):
        make_study({name: value for name, value in (SMALL | change).items() if value is not None})


def test_a_study_file_is_read_and_its_errors_name_it(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text('env = "safe-pendulum"')
    assert read_study(path) == {"env": "safe-pendulum"}
    path.write_text("env = ")
    with pytest.raises(GussError, match=r"the study '.*study\.toml' is not TOML"):
        read_study(path)


@pytest.mark.parametrize("path", sorted((ROOT / "studies").glob("*.toml")), ids=lambda path: path.stem)
def test_the_studies_of_this_project_are_valid(path):
    assert make_study(read_study(path)).runs


# ------------------------------------------------------------------------------------------------- the table's study


@cache
def all_runs(preset):
    study = make_study(table1(ENVIRONMENTS, METHODS, preset, 0, NUM_SEEDS[preset], None))
    return [run.config for run in study.runs], study.left_out


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_all_runs_but_those_that_are_not_possible(preset):
    runs, left_out = all_runs(preset)
    pairs = [(run.env, run.method) for run in runs]
    assert len(set(pairs)) == len(pairs) == 26
    assert ("safe-acrobot", "safe-mbpo") not in pairs
    assert left_out == ("safe-mbpo on safe-acrobot: it needs continuous actions, and these are discrete",)
    for run in runs:
        if run.method in ("cpo", "ppo-lagrangian"):
            assert run.episodes % run.method_settings.num_envs == 0
        else:
            assert run.episodes <= {"best": 50, "paper": 100, "quick": 10}[preset]


def test_the_runs_have_the_settings_of_those_that_are_stored_here():
    stored = {
        "best": ("safe-pendulum-guss-6688d5e8", "safe-acrobot-cpo-e51f5e17", "safe-pendulum-safe-mbpo-e46e3c62"),
        "paper": ("safe-acrobot-guss-f0cb7f0b", "safe-pendulum-safe-mbpo-e46e3c62"),
    }
    for preset, folders in stored.items():
        settings = [run.changed() for run in all_runs(preset)[0]]
        for name in folders:
            (home,) = (ROOT / "results").glob(f"*/{name}")
            assert read_config(home).changed() in settings, name


def test_other_episodes_are_not_for_model_free_methods():
    runs = make_study(table1(["safe-pendulum"], ["guss", "safe-mbpo", "random", "cpo"], "best", 3, 2, 7)).runs
    found = [(run.config.method, run.config.episodes) for run in runs]
    assert found == [("guss", 7), ("safe-mbpo", 7), ("random", 7), ("cpo", 1504)]
    assert runs[0].config.seeds == (3, 4)
    assert not method_class("cpo").model_based
