"""A setting is one field: its flag, its entries in presets and stored configs, and its help follow from it."""

import dataclasses
import json

import pytest

from guss.cli.main import parse
from guss.errors import GussError
from guss.methods import METHODS
from guss.methods.presets import checked_preset, settings_from
from guss.methods.settings import NESTED, RunSettings
from guss.models.training import FitSettings
from guss.plugins import load_preset
from guss.runs.config import RunConfig
from guss.runs.results import read_config
from guss.validation import field_docs

RUN = [field.name for field in dataclasses.fields(RunSettings) if field.name not in NESTED]
FIT = [field.name for field in dataclasses.fields(FitSettings)]


def help_of(*words, capsys):
    with pytest.raises(SystemExit) as end:
        parse([*words, "--help"])
    assert end.value.code == 0
    return " ".join(capsys.readouterr().out.replace("│", " ").split())


def flag(*parts):
    return "--" + ".".join(parts).replace("_", "-")


def test_every_field_has_a_flag_with_its_help_and_is_stored(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    text = help_of("run", capsys=capsys)
    stored = settings_from(RunConfig, {}, "guss", env="safe-pendulum", seeds=(0,)).to_json()
    for table, cls, names in (((), RunSettings, RUN), (("fit",), FitSettings, FIT)):
        for name in names:
            assert flag(*table, name) in text
            assert field_docs(cls)[name] in text, name
            assert name in (stored["fit"] if table else stored)


def test_every_field_may_be_in_a_preset_except_names_that_have_tables():
    values = {name: getattr(settings_from(RunConfig, {}, "rs", env="e", seeds=(0,)), name) for name in RUN}
    given = {name: value for name, value in values.items() if value is not None and name not in ("method", "model")}
    assert checked_preset(given) == given


def test_a_setting_of_a_custom_planner_is_a_flag_an_entry_of_a_preset_and_stored(guss_here, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import guss\n"
        "from guss.planners.rs import RandomShooting\n"
        '@guss.register_planner("mine")\n'
        "class Mine(RandomShooting):\n"
        '    "Random shooting with a setting."\n'
        '    strides: tuple[int, ...] = guss.setting((1, 2), "how far it strides")\n'
    )
    (tmp_path / "mine.toml").write_text('env = "safe-toy"\n[model]\nname = "oracle"\n[methods.mine]\nstrides = [3]\n')
    words = ("--plugin", "mine.py", "--preset", "mine.toml", "--method", "mine")
    text = " ".join(guss_here("run", *words, "--help", check=0).stdout.replace("│", " ").split())
    assert "--method.strides [INT [INT ...]] how far it strides (default: 3)" in text
    small = ("--horizon", 2, "--budget", 10, "--episodes", 1, "--seeds", 1, "--initial-episodes", 0)
    quiet = ("--quiet", "--no-figures", "--out", "runs")
    guss_here("run", *words, *small, *quiet, check=0)
    guss_here("run", *words, *small, *quiet, "--method.strides", 4, 5, check=0)
    stored = {tuple(read_config(home).method_settings.strides) for home in (tmp_path / "runs").iterdir()}
    assert stored == {(3,), (4, 5)}
    listed = json.loads(guss_here("list", "--json", "--plugin", "mine.py", check=0).stdout)["planners"]
    (mine,) = [each for each in listed if each["name"] == "mine"]
    assert mine["settings"]["strides"] == {
        "type": "a list of integers", "default": [1, 2], "help": "how far it strides",
    }  # fmt: skip


def test_defaults_are_those_of_the_preset_and_the_named_method_and_model():
    cem = parse(["run", "--env", "safe-acrobot", "--method", "cem", "--model", "darmdn"])
    expected = settings_from(RunSettings, load_preset("safe-acrobot"), "cem", env="x", model="darmdn")
    assert cem.settings.horizon == expected.horizon
    assert cem.settings.method_settings.num_elites == expected.method_settings.num_elites
    assert cem.chosen == {"env": "safe-acrobot", "method": "cem", "model": "darmdn"}
    with pytest.raises(GussError, match=r"has no flag --method.num-new: did you mean"):
        parse(["run", "--method", "cem", "--method.num-new", "3"])


def test_a_policy_has_no_flags_for_what_it_does_not_use():
    for name in ("ppo", "safe-mbpo"):
        flags = vars(parse(["run", "--method", name]).settings)
        assert "horizon" not in flags
        assert ("model" in flags) == METHODS[name].item.model_based


def test_the_name_of_a_run_depends_on_what_differs_from_the_defaults():
    """A setting that a later version adds, at its default, leaves the names of runs as they are."""
    one = settings_from(RunConfig, {}, "guss", env="safe-toy", seeds=(0,))

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Later(RunConfig):
        added: int = 3

    later = settings_from(Later, {}, "guss", env="safe-toy", seeds=(0,))
    assert one.changed() == later.changed() != dataclasses.replace(later, added=4).changed()
    assert "added" in later.to_json()


@pytest.mark.parametrize("name", ["planners", "baselines"])
def test_a_preset_has_one_table_for_all_methods(name):
    with pytest.raises(GussError, match=f"unknown setting of the preset: '{name}'.* Known: .*methods"):
        checked_preset({name: {"guss": {}}})
