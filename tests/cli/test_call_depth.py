"""Few calls lie between `guss run` and a plan, so that a reader follows them in one go."""

import sys
import traceback
from pathlib import Path

import helpers.short_runs  # registers short-pendulum  # noqa: F401
import pytest

import guss
from guss.cli.main import main
from guss.methods import planning
from guss.runs.trainer import Trainer

SOURCE = Path(guss.__file__).parent
SMALL = ["--method", "rs", "--seeds", "1", "--episodes", "2", "--horizon", "3", "--budget", "20", "--quiet"]
SMALL += ["--model", "oracle"]


@pytest.mark.parametrize("env", ["short-pendulum", "guss/SafePendulum-v0"])
def test_at_most_six_functions_of_guss_lie_between_the_command_and_a_plan(env, tmp_path, monkeypatch):
    stacks = []

    def plan_one(*arguments, **options):
        files = [(Path(frame.filename), frame.name) for frame in traceback.extract_stack()]
        stacks.append([(file.relative_to(SOURCE), name) for file, name in files if file.is_relative_to(SOURCE)])
        return real(*arguments, **options)

    real = planning.plan_one
    monkeypatch.setattr(planning, "plan_one", plan_one)
    monkeypatch.setattr(Trainer, "_compile_ahead", lambda self, keys: None)  # in a thread, which has another stack
    words = ["run", "--env", env, *SMALL, "--no-figures", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["guss", *words])
    main()
    assert stacks
    for stack in stacks:
        command = stack.index((Path("cli/run.py"), "run"))
        between = stack[command + 1 :]
        assert 3 <= len(between) <= 6, between
