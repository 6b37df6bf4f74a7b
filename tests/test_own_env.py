"""An environment of the user's own, from the command line, without a Task: reward and cost are learned."""

from helpers.custom_env_runs import beats_random


def test_a_continuous_environment_beats_random_in_reward_and_cost(guss_command, tmp_path):
    """The project that `guss init` writes. Its reward is highest right at the limit, so it takes some episodes."""
    guss_command("init", "mine", check=0)
    preset = ("--preset", "preset.toml")
    beats_random(guss_command, tmp_path / "mine", "system.py:make_env", *preset, seeds=3, episodes=9)


def test_init_writes_once_and_what_it_writes_is_ready(guss_command, tmp_path):
    told = guss_command("init", "mine", check=0).stdout
    assert "guss run --env system.py:make_env" in told
    again = guss_command("init", "mine", check=2)
    assert "already contains README.md, system.py, known.py, preset.toml" in again.stderr
    for name in ("system", "known"):
        done = guss_command("check-env", f"{name}.py:make_env", "--steps", 200, cwd=tmp_path / "mine", check=0)
        assert "Ready." in done.stdout
    assert "reward function agrees" in done.stdout
    assert (tmp_path / "mine" / "preset.toml").read_text().count("#") >= 4  # commented


def test_bad_input_is_told(guss_here):
    for words, told in (
        (("run", "--env", "CartPole-v1"), "does not report a cost"),
        (("run", "--env", "nowhere.py:make_env"), "there is no file 'nowhere.py'"),
        (("run", "--env", "safe-pendulum", "--learned", "rewards"), "Did you mean 'reward'"),
        (
            ("run", "--env", "safe-pendulum", "--model", "oracle", "--learned", "reward"),
            "'oracle' learns nothing",
        ),
        (("check-env", "safe-pendulm"), "Did you mean 'safe-pendulum'"),
    ):
        assert told in guss_here(*words, check=2).stderr
