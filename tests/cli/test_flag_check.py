"""Mistakes on the command line are errors of one line: bad values, flags without effect, flags of other methods."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import guss
from guss.cli.main import parse
from guss.errors import GussError
from guss.methods.settings import unused_model_settings
from guss.models import MODELS
from guss.runs.config import make_config


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run --horizon ten", "guss run: --horizon takes an integer, such as --horizon 12; got 'ten'"),
        ("run --horizon 2.5", "takes an integer, such as --horizon 12; got '2.5'"),
        ("run --horizon", "takes an integer, such as --horizon 12; got no value"),
        ("run --seeds 2 3", "--seeds takes an integer, such as --seeds 6; got '2 3'"),
        ("run --target=low", "--target takes a number or None, such as --target 0.5; got 'low'"),
        ("run --model.hidden 3,4", "takes integers separated by spaces, such as --model.hidden 50 50; got '3,4'"),
        ("run --method.warm-start=False", "write --method.warm-start or --method.no-warm-start; got 'False'"),
        ("run --method.no-warm-start true", "write --method.warm-start or --method.no-warm-start; got 'true'"),
        ("run --overlap=yes", "--overlap takes no value: write --overlap or --no-overlap; got 'yes'"),
        ("run --model.activation sil", "takes one of silu, relu, tanh; got 'sil'. Did you mean 'silu'?"),
        ("run --planning-margin angle", "takes a number or names and numbers, such as --planning-margin 0.0 or"),
        ("run stray", "guss run takes flags only, which start with --; got 'stray'"),
        ("run -s 3", "guss run has no flag -s"),
        ("plan --obs 1 a", "--obs takes numbers separated by spaces or None"),
        ("plan --method ppo", "'ppo' is a policy, which does not plan; planners are random, rs, s-rs, cem"),
        ("plan --method ppo", "(to train it: guss run --method ppo)"),
        ("eval --quiet=False folder", "--quiet takes no value: write --quiet or --no-quiet; got 'False'"),
        ("eval --run-folder folder", "guss eval has no flag --run-folder"),
        ("eval", "Missing from guss eval: RUN Folder of the run. (required); `guss eval --help` shows the usage"),
        ("eval a b", "Unrecognized options: b"),
        ("fit", "Missing from guss fit: --data"),
        ("reproduce toy --preset quik", "takes one of paper, quick; got 'quik'. Did you mean 'quick'?"),
        ("reproduce toy --methods ppo", "'ppo' is a policy, which does not plan; planners are"),
        ("--bogus", "guss has no flag --bogus"),
    ],
)
def test_a_bad_value_is_an_error_of_one_line(guss_here, words, message):
    process = guss_here(*words.split(), check=2)
    (line,) = process.stderr.splitlines()
    assert line.startswith("guss: error: ")
    assert message in line
    assert process.stdout == ""


def test_good_values_of_every_kind_are_parsed():
    words = "--model.hidden 3 4 --method.no-warm-start --target None --initial-steps 7 --fit.beta -.5 --hard angle"
    command = parse(["run", *words.split(), "--planning-margin", "angle", "0.3", "speed", "-1e-2"])
    assert command.chosen == {
        "model_settings": {"hidden": (3, 4)},
        "method_settings": {"warm_start": False},
        "target": None,
        "initial_steps": 7,
        "fit": {"beta": -0.5},
        "hard": ("angle",),
        "planning_margin": {"angle": 0.3, "speed": -0.01},
    }
    assert parse(["eval", "--quiet", "folder", "--episodes", "3"]).run_folder == Path("folder")
    assert parse(["eval", "--episodes", "3", "folder"]).episodes == 3


@pytest.mark.parametrize(
    ("words", "useless"),
    [
        (
            "--method random --horizon 3 --budget 9 --model dmdn --fit.epochs 3 --model.ensemble 2 --no-overlap",
            "--horizon, --budget, --no-overlap (random does not plan); "
            "--model, --fit.epochs, --model.ensemble (random learns no model)",
        ),
        ("--method random --explore iid --target 3", "--explore, --target (all actions of random are random)"),
        (
            "--model oracle --model.hidden 3 --fit.loss nll",
            "--model.hidden, --fit.loss (the model oracle learns nothing)",
        ),
        ("--method ppo --horizon 3 --initial-steps 2", "--horizon (ppo does not plan); --initial-steps (ppo has no "),
        ("--method ppo --unknown-unsafe", "--unknown-unsafe (ppo does not plan)"),
        ("--method random --risk mean --disagreement 1", "--risk, --disagreement (random does not plan)"),
        ("--method rs --risk mean --disagreement 1", "--risk, --disagreement (rs ignores the cost)"),
        ("--model oracle --disagreement 1", "--disagreement (the model oracle learns nothing)"),
        ("--method ppo --against cpo --horizon 3", "--horizon (ppo does not plan, cpo does not plan)"),
    ],
)
def test_flags_without_effect_are_refused_with_the_reason(words, useless):
    with pytest.raises(GussError) as error:
        parse(["run", *words.split()])
    assert str(error.value).startswith(f"guss run: leave out flags that have no effect here: {useless}")


def test_settings_without_effect_do_not_change_the_folder_of_a_run(tmp_path):
    def folder(method, **settings):
        config = make_config("safe-toy", method, seeds=1, preset={}, **settings)
        assert not set(config.unused) & set(config.to_json())
        return config.folder_in(tmp_path)

    assert folder("random") == folder("random", horizon=3, model="dmdn", explore="iid", fit={"batch": 9}, target=0.0)
    assert folder("random") != folder("random", episodes=3)
    assert folder("rs", model="oracle") == folder(
        "rs", model="oracle", model_settings={"hidden": (3,)}, fit={"batch": 9}
    )
    assert folder("rs", model="oracle") != folder("rs", model="oracle", horizon=3)
    assert folder("rs") != folder("rs", fit={"batch": 9})
    assert folder("rs") == folder("rs", risk="mean", disagreement=1.0)
    assert folder("s-rs") == folder("s-rs", risk=None) != folder("s-rs", risk="cvar:0.40")
    assert folder("s-rs", risk="cvar:0.40") == folder("s-rs", risk="cvar:0.4")


def test_a_model_that_learns_nothing_keeps_its_own_settings(monkeypatch):
    class Tilted(guss.Oracle):
        slope: float = guss.setting(1.0, "how steep")
        Settings = None

    entry = dataclasses.replace(MODELS["oracle"], name="tilted", item=Tilted)
    monkeypatch.setitem(MODELS._entries, "tilted", entry)
    assert unused_model_settings("oracle") == ["model_settings"]
    assert set(unused_model_settings("tilted")) == {
        f"model_settings.{name}" for name in ("hidden", "activation", "ensemble", "propagation")
    }
    assert parse(["run", "--model", "tilted", "--model.slope", "2"]).chosen["model_settings"] == {"slope": 2.0}
    with pytest.raises(GussError, match=r"--model.ensemble \(the model tilted learns nothing\)"):
        parse(["run", "--model", "tilted", "--model.ensemble", "2"])


def test_a_flag_that_one_of_the_compared_methods_uses_is_ignored_by_the_others(tmp_path):
    def homes(*words):
        command = parse(["run", "--method", "ppo", "--against", "guss", "random", "--seeds", "1", *words])
        return {m: command._config(m, None) for m in ("ppo", "guss", "random")}

    plain, changed = homes(), homes("--horizon", "5", "--fit.batch", "9", "--overlap", "--initial-episodes", "2")
    for method in ("ppo", "random"):
        assert plain[method].folder_in(tmp_path) == changed[method].folder_in(tmp_path)
    guss_config = changed["guss"]
    assert (guss_config.horizon, guss_config.fit.batch, guss_config.overlap) == (5, 9, True)
    assert guss_config.initial_episodes == 2
    own = homes("--method.lam", "0.5")
    assert own["ppo"].method_settings.lam == 0.5
    assert own["guss"].folder_in(tmp_path) == plain["guss"].folder_in(tmp_path)


def test_the_defaults_of_settings_that_only_a_compared_method_uses_are_its_own():
    settings = parse(["run", "--method", "ppo", "--against", "guss"]).settings
    guss_settings = parse(["run"]).settings
    for name in ("horizon", "budget", "model", "initial_episodes"):
        assert getattr(settings, name) == getattr(guss_settings, name)
    assert dataclasses.asdict(settings.fit) == dataclasses.asdict(guss_settings.fit)


FIT_TASK = """
import guss

def pendulum():
    return guss.make_task("safe-pendulum")  # its name is that of a bundled environment, which has a preset
"""


@pytest.mark.parametrize("env", ["safe-pendulum", "tasks_to_fit.py:pendulum"])
def test_fit_uses_the_defaults_that_it_shows(env, tmp_path, monkeypatch):
    import guss.runs.fit

    monkeypatch.chdir(tmp_path)
    Path("tasks_to_fit.py").write_text(FIT_TASK)
    rows = np.zeros((3, 3), np.float32)
    np.savez("log.npz", obs=rows, action=rows[:, :1], next_obs=rows)
    monkeypatch.setattr(guss.runs.fit, "log_of_files", lambda trace, task, settings, seed: settings)
    command = parse(["fit", "--data", "log.npz", "--env", env])
    used = command._log()
    assert (used.model, used.horizon) == (command.settings.model, command.settings.horizon)
    assert dataclasses.asdict(used.fit) == dataclasses.asdict(command.settings.fit)
    assert dataclasses.asdict(used.model_settings) == dataclasses.asdict(command.settings.model_settings)
