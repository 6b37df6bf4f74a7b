"""Compiled programs are dropped before a process has more memory mappings than the system allows."""

import jax
import jax.numpy as jnp
import pytest

import guss
from guss import programs
from guss.programs import release_programs
from guss.runs.config import RunConfig
from guss.runs.running import make_loop


@pytest.fixture
def compiled():
    """A program that stands for all others."""
    program = jax.jit(lambda x: 2.0 * x)
    program(jnp.ones(3))
    assert program._cache_size() == 1
    return program


@pytest.fixture
def few_mappings(tmp_path, monkeypatch):
    """A system that allows fewer mappings than this process has."""
    (tmp_path / "max_map_count").write_text("100\n")
    monkeypatch.setattr(programs, "LIMIT", tmp_path / "max_map_count")


def test_programs_are_kept_while_there_is_room(compiled, tmp_path, monkeypatch):
    (tmp_path / "max_map_count").write_text("100000000\n")
    monkeypatch.setattr(programs, "LIMIT", tmp_path / "max_map_count")
    assert not release_programs()
    assert compiled._cache_size() == 1


def test_programs_are_kept_where_the_system_has_no_limit(compiled, tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "LIMIT", tmp_path / "missing")
    assert not release_programs()
    assert compiled._cache_size() == 1


def test_programs_give_their_mappings_back_and_are_compiled_again(compiled, few_mappings):
    def mappings():
        with programs.MAPPINGS.open("rb") as file:
            return sum(1 for _ in file)

    kept = [jax.jit(lambda x, k=k: jnp.sin(x) + k) for k in range(20)]
    for program in kept:
        program(jnp.ones(3))
    before = mappings()
    assert release_programs()
    assert compiled._cache_size() == 0
    assert mappings() < before - 20
    assert compiled(jnp.ones(3)).tolist() == [2.0, 2.0, 2.0]


def test_a_new_run_makes_room(compiled, few_mappings):
    make_loop(RunConfig(env="safe-pendulum", method="rs", seeds=(0,), episodes=1, horizon=3, budget=10))
    assert compiled._cache_size() == 0


def test_a_new_agent_makes_room(compiled, few_mappings):
    guss.Agent("safe-pendulum", method="rs", horizon=3, budget=10)
    assert compiled._cache_size() == 0
