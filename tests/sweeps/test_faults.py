"""Sweeps that are disturbed end as if they had not been: no finished episode is lost or repeated."""

import time

import pytest
from helpers.fault_injection import KINDS, disturbed, tables, undisturbed

from guss.plugins import load_plugins

EPISODES = 350


def inject(tmp_path, episodes, each, seed):
    study = tables(tmp_path, episodes)
    load_plugins(study["sweep"]["plugin"])
    whole = undisturbed(tmp_path / "whole", study)
    started = time.monotonic()
    faults, (recorded, failed), left = disturbed(tmp_path, whole, seed, list(KINDS) * each, study)
    return faults, recorded, failed, left, time.monotonic() - started


def test_a_disturbed_sweep_ends_as_if_it_had_not_been(tmp_path):
    faults, recorded, _, left, _ = inject(tmp_path, episodes=EPISODES, each=2, seed=0)
    assert recorded == 2 * (3 * EPISODES + 4)
    assert len(left) <= 2, "a study may be over before the last faults"
    assert all(faults[kind] for kind in KINDS if kind != "full disk"), "which needs the right to mount a small disk"


@pytest.mark.long
def test_a_sweep_disturbed_two_hundred_times_ends_as_if_it_had_not_been(tmp_path, record_result):
    faults, recorded, failed, left, seconds = inject(tmp_path, episodes=1800, each=18, seed=1)
    assert left == []
    assert sum(faults.values()) >= 200
    record_result(
        "faults",
        {
            "faults": dict(faults),
            "total": sum(faults.values()),
            "episodes": recorded,
            "episodes_that_an_environment_failed_in": failed,
            "records_equal_to_an_undisturbed_study": True,
            "seconds": round(seconds),
        },
    )
