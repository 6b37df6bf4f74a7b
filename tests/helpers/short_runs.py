"""Short runs on a pendulum with short episodes: how tests make one, interrupt it and compare two."""

from guss.envs import ENVS, EnvSpec
from guss.envs.pendulum import pendulum_task
from guss.models.factory import ModelSettings
from guss.models.training import FitSettings
from guss.runs import run as runs
from guss.runs.checkpoints import final_models, newest_checkpoint
from guss.runs.config import RunConfig

ORIGIN = {"command": "test"}
TINY = {"hidden": [8], "batch": 20}


def run_one(config, out, origin=ORIGIN, on_episode=None, **options):
    """The folder of a new run."""
    return runs.run(config, out, origin=origin, on_episode=on_episode, **options).path


def resume_run(home, on_episode=None, **options):
    """The settings of a run that was resumed."""
    return runs.resume(home, on_episode=on_episode, **options).config


def short_pendulum(**changes):
    return pendulum_task().replace(**{"episode_length": 25, **changes})


def add(name, make):
    ENVS.add(name, EnvSpec("none", make), summary="for tests", origin=__name__)


add("short-pendulum", short_pendulum)
add("policy-pendulum", short_pendulum)


def config(**changes):
    values = {
        "env": "short-pendulum",
        "method": "rs",
        "seeds": (3, 4),
        "episodes": 3,
        "horizon": 3,
        "budget": 20,
        "model_settings": ModelSettings(hidden=(8,)),
        "fit": FitSettings(epochs=3),
    }
    return RunConfig(**(values | changes))


def policy_config(method="ppo-lagrangian", **changes):
    values = {
        "env": "policy-pendulum",
        "method": method,
        "seeds": (3, 4),
        "episodes": 6,
        "method_settings": TINY | ({"num_envs": 2} if method in ("ppo-lagrangian", "cpo") else {}),
    }
    if method == "safe-mbpo":
        values |= {
            "model": "dmdn",
            "model_settings": ModelSettings(hidden=(4,), ensemble=2),
            "fit": FitSettings(epochs=2),
            "method_settings": TINY | {"branches": 4, "updates_per_round": 5, "updates": 1.0},
        }
    return RunConfig(**(values | changes))


class Stop(Exception):
    pass


def stop_after(episode):
    def tell(news):
        if news.episode == episode:
            raise Stop

    return tell


def assert_same_run(home, whole):
    assert (home / "episodes.jsonl").read_bytes() == (whole / "episodes.jsonl").read_bytes()
    last = [newest_checkpoint(x) for x in (home, whole)]
    pairs = [last, [final_models(x, last[0].meta["done"]) for x in (home, whole)]]
    for a, b in pairs:
        assert (a is None) == (b is None)
        if a is not None:
            assert a.path.name == b.path.name
            assert set(a.arrays) == set(b.arrays)
            for name, array in a.arrays.items():
                assert array.tobytes() == b.arrays[name].tobytes(), name
    assert not [*home.glob("claim-*"), *home.rglob("*.partial")]
    assert len(list((home / "checkpoints").iterdir())) == 2
