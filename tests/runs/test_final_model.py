"""What a run learned from all its episodes: the final model, evaluated and put to work by an Agent."""

import shutil
import warnings

import gymnasium
import jax
import numpy as np
import pytest
from helpers.short_runs import ORIGIN, Stop, config, resume_run, run_one, short_pendulum, stop_after

from guss import checkpoint
from guss import keys as streams
from guss.agent import Agent
from guss.collect.episode_metrics import episode_metrics
from guss.constraint import Constraint
from guss.envs.pendulum import SafePendulumEnv
from guss.errors import GussError, GussWarning
from guss.runs.checkpoints import FINAL, final_models, newest_checkpoint
from guss.runs.evaluation import evaluate_run
from guss.runs.fit import fit_log, log_of_run
from guss.runs.run import reopened_run, train
from guss.runs.store import read_lines
from guss.runs.trainer import Trainer
from guss.types import ContinuousActions

EPISODES = 3
OBS = [np.cos(2.0), np.sin(2.0), 0.5]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run_one(config(episodes=EPISODES), tmp_path_factory.mktemp("whole"), ORIGIN)


def arrays_of(home):
    return final_models(home, EPISODES).arrays


def assert_equal(ours, theirs):
    assert set(ours) == set(theirs)
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


def num_fits(agent):
    return int(agent.state.fits[0])


# ------------------------------------------------------------------------------------------------------ the final model


def test_the_final_model_is_fitted_to_all_episodes(whole):
    log = log_of_run(whole)
    state, told = fit_log(log, in_turn=True, test=False)
    leaves, _ = jax.tree_util.tree_flatten_with_path(log.method().prepared(state))
    assert_equal(arrays_of(whole), {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves})
    assert told[-1].rows == 25 * EPISODES
    last, final = newest_checkpoint(whole), final_models(whole, EPISODES)
    assert (last.arrays[".fits"][0], final.arrays[".fits"][0]) == (EPISODES - 1, EPISODES)
    assert any((last.arrays[name] != array).any() for name, array in final.arrays.items())
    assert set(final.arrays) < set(last.arrays), "data are in the checkpoint already"


def test_an_evaluation_uses_the_final_model(tmp_path, whole):
    home = shutil.copytree(whole, tmp_path / "run")
    found = evaluate_run(home, 2)
    (home / FINAL).unlink()
    with pytest.warns(GussWarning, match=rf"has no final models .* fitting them now to its {EPISODES} episodes"):
        again = evaluate_run(home, 2)
    np.testing.assert_array_equal(found.mean_reward, again.mean_reward)
    assert not (home / FINAL).exists(), "an evaluation changes nothing"
    stale = newest_checkpoint(home)
    checkpoint.save(home / FINAL, "final", stale.meta | {"diverged": [], "report": None}, models_in(stale))
    assert (evaluate_run(home, 2).mean_reward != found.mean_reward).any(), "that of the last checkpoint is another"


def models_in(stored):
    """The models of a checkpoint, as if they were the final ones."""
    trainer = Trainer(config(episodes=EPISODES))
    trainer.restore(stored)
    return trainer.method.prepared(trainer.state._replace(fitted=trainer.state.data.filled))


def test_resuming_a_finished_run_makes_a_final_model_that_is_missing_or_damaged(tmp_path, whole):
    home = shutil.copytree(whole, tmp_path / "run")
    path = home / FINAL
    before, written = path.read_bytes(), path.stat().st_mtime_ns
    told = []
    resume_run(home, told.append, on_final=told.append)
    assert (told, path.stat().st_mtime_ns) == ([], written), "a finished run stays as it is"
    for damage in (path.unlink, lambda: path.write_bytes(before[:-9])):
        damage()
        resume_run(home, told.append, on_final=told.append)
        assert path.read_bytes() == before
        assert (told[-2], told[-1].diverged) == (None, [])
    resume_run(home, previous=True)
    assert path.read_bytes() == before


def test_an_unfinished_run_has_no_final_model(tmp_path, whole):
    home = shutil.copytree(whole, tmp_path / whole.name)
    with pytest.raises(Stop):
        run_one(config(episodes=EPISODES), tmp_path, ORIGIN, stop_after(1), overwrite=True)
    assert not (home / FINAL).exists(), "nor that of the run before"
    with pytest.warns(GussWarning, match="fitting them now to its 2 episodes"):
        assert evaluate_run(home, 1).trained_episodes == 2
    with pytest.warns(GussWarning, match="fitting them now to its 2 episodes"):
        agent = Agent.from_run(home, seed=4)
    assert (agent.episode, agent.num_transitions, num_fits(agent)) == (2, 50, 2)
    agent.act(OBS)
    assert num_fits(agent) == 2


def test_what_learns_no_model_has_no_final_one(tmp_path):
    home = run_one(config(model="oracle", episodes=1, initial_episodes=0), tmp_path, ORIGIN)
    assert not (home / FINAL).exists()
    assert evaluate_run(home, 1).mean_reward.shape == (2, 1)
    assert Agent.from_run(home).act(OBS).shape == (1,)


def test_a_final_fit_that_diverges_keeps_the_last_good_model(tmp_path, whole):
    home = shutil.copytree(whole, tmp_path / "run")
    (home / FINAL).unlink()
    with reopened_run(home) as opened:
        data = opened.trainer.state.data
        broken = data._replace(next_obs=data.next_obs.at[1].multiply(np.nan))
        opened.trainer.state = opened.trainer.state._replace(data=broken)
        match = r"diverged \(seeds \[4\]\): `guss eval` and Agent\.from_run use the models"
        with pytest.warns(GussWarning, match=match):
            train(opened)
    last = newest_checkpoint(home)
    assert_equal(arrays_of(home), {name: last.arrays[name] for name in arrays_of(home)})
    for use in (lambda: evaluate_run(home, 1), lambda: Agent.from_run(home).act(OBS)):
        with pytest.warns(GussWarning, match="using the models fitted before that episode"):
            use()


# ------------------------------------------------------------------------------------------------------------ from_run


def test_an_agent_of_a_run_does_what_the_run_would_have_done_next_and_continues_to_learn(tmp_path, whole):
    trainer = Trainer(config(episodes=EPISODES))
    final, last = final_models(whole, EPISODES), newest_checkpoint(whole)
    trainer.restore(checkpoint.Stored(final.path, final.meta, last.arrays | final.arrays))
    keys, acting = streams.episodes(trainer.keys, EPISODES, 1), trainer.method.acting(trainer.state)
    trajectory, _ = trainer.collector.collect(trainer.method, acting, keys, EPISODES)
    expected = [mine[0].mean_reward for mine in episode_metrics(trainer.task, trajectory)]
    for row, seed in enumerate((3, 4)):
        agent = Agent.from_run(whole, seed=seed)
        rows = [line for line in read_lines(whole / "episodes.jsonl") if line["seed"] == seed]
        assert [e.mean_reward for e in agent.history] == [line["mean_reward"] for line in rows]
        assert (agent.phase, agent.seed, agent.num_transitions) == ("plan", seed, 25 * EPISODES)
        np.testing.assert_allclose(agent.fit().nll, np.asarray(final.meta["report"][1])[row])
        assert num_fits(agent) == EPISODES, "there is nothing new to fit"
        (episode,) = agent.learn(1)
        assert episode.mean_reward == pytest.approx(expected[row], abs=1e-3)
        assert "r2_horizon" in episode.model
        agent.learn(1)
        assert num_fits(agent) == EPISODES + 1
    agent.save(tmp_path / "agent.ckpt")
    np.testing.assert_array_equal(Agent.load(tmp_path / "agent.ckpt", short_pendulum()).act(OBS), agent.act(OBS))
    np.testing.assert_array_equal(Agent.from_run(whole).act(OBS), Agent.from_run(whole, seed=3).act(OBS))


def test_an_agent_of_a_run_acts_on_a_given_system_of_any_name(whole):
    first = Agent.from_run(whole, seed=4).act(OBS)
    renamed = short_pendulum(name="rig", step=None, reset=None, episode_length=400)
    np.testing.assert_array_equal(Agent.from_run(whole, seed=4, system=renamed).act(OBS), first)
    env = gymnasium.wrappers.TimeLimit(SafePendulumEnv(), 30)
    agent = Agent.from_run(whole, seed=4, system=env, task=short_pendulum(name="rig", episode_length=30))
    assert agent.learn(1)[0].steps == 30
    wide = short_pendulum(actions=ContinuousActions((-2.0,), (3.0,)))
    with pytest.raises(GussError, match=r"actions continuous .*high \[2\.0\]\); task .* has .*high \[3\.0\]"):
        Agent.from_run(whole, system=wide)
    with pytest.raises(GussError, match="constraints unsafe_angle; task 'safe-pendulum' has constraints speed"):
        Agent.from_run(whole, system=short_pendulum(constraints=(Constraint("speed", lambda o, a, n: n[2] > 8.0),)))
    with pytest.raises(GussError, match="learned outcomes none; task 'safe-pendulum' has learned outcomes reward"):
        Agent.from_run(whole, system=short_pendulum(reward=None))


def test_the_environment_of_a_run_is_that_of_the_user(tmp_path):
    (tmp_path / "rig_to_deploy.py").write_text(
        "import gymnasium\nfrom guss.envs.pendulum import SafePendulumEnv, pendulum_task\n"
        "def make():\n"
        "    env = gymnasium.wrappers.TimeLimit(SafePendulumEnv(), 20)\n"
        "    return env, pendulum_task().replace(name='rig', step=None, reset=None, episode_length=20)\n"
    )
    home = run_one(config(env=f"{tmp_path / 'rig_to_deploy.py'}:make", episodes=2), tmp_path / "runs", ORIGIN)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent = Agent.from_run(home, seed=4)
    assert agent.task.name == "rig"
    assert agent.learn(1)[0].steps == 20
    with (tmp_path / "rig_to_deploy.py").open("a") as file:
        file.write("# changed\n")
    with pytest.warns(GussWarning, match=r"has changed since the run started \(rig_to_deploy\.py\)"):
        Agent.from_run(home)
    (tmp_path / "rig_to_deploy.py").unlink()
    assert Agent.from_run(home, system=short_pendulum()).act(OBS).shape == (1,), "its code is not needed then"


def test_what_is_no_agent_is_an_error(tmp_path, whole):
    with pytest.raises(GussError, match=r"is a run, not an agent's file: load it with Agent\.from_run\('.*', seed="):
        Agent.load(whole, short_pendulum())
    with pytest.raises(GussError, match="unknown seed of the run: '5'"):
        Agent.from_run(whole, seed=5)
    with pytest.raises(GussError, match="`task` needs `system`"):
        Agent.from_run(whole, task=short_pendulum())
    with pytest.raises(GussError, match="is not a run"):
        Agent.from_run(tmp_path)
    random = run_one(config(method="random", episodes=1), tmp_path, ORIGIN)
    with pytest.raises(GussError, match="is a run of 'random', which acts by random actions, but an Agent plans"):
        Agent.from_run(random)
    home = shutil.copytree(whole, tmp_path / "run")
    (home / "episodes.jsonl").write_text("")
    with pytest.raises(GussError, match=r"episodes.jsonl has 0 of the 3 episodes of seed 3"):
        Agent.from_run(home)
    shutil.rmtree(home / "checkpoints")
    with pytest.raises(GussError, match="has no checkpoint to load"):
        Agent.from_run(home)


# ------------------------------------------------------------------------------------------------------- agents' files


def test_an_agent_is_loaded_for_any_system_with_the_same_spaces_and_constraints(tmp_path, whole):
    agent, path = Agent.from_run(whole), tmp_path / "agent.ckpt"
    agent.save(path)
    low = float(np.float32(-2.0000001))
    system = short_pendulum(name="rig", actions=ContinuousActions((low,), (2.0,)), episode_length=1000)
    expected = agent.act(OBS)
    np.testing.assert_allclose(Agent.load(path, system).act(OBS), expected, atol=1e-3)
    with pytest.raises(GussError, match="learned on a system with other spaces or constraints: stored actions con"):
        Agent.load(path, short_pendulum(actions=ContinuousActions((-2.0,), (2.1,))))
