import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import ACTIONS, make_task
from test_training import filled, transitions

from guss.errors import GussError
from guss.models.ensemble import make_ensemble
from guss.models.mdn import DARMDN, DMDN
from guss.models.settings import ModelSettings
from guss.models.training import FitSettings, fit_model
from guss.planners import make_planner
from guss.planners.engine import plan
from guss.planners.rollouts import Particles, roll_out
from guss.validation import build

TASK = make_task(ACTIONS["continuous"])
OBS, ACTION, KEY = jnp.asarray([0.3, -0.8]), jnp.asarray([0.5, 0.2]), jax.random.key(0)


def net(key, **settings):
    return DMDN.create(TASK, key, hidden=(16, 16), **settings)


def ensemble(propagation="member", **settings):
    return make_ensemble(lambda key: net(key, **settings), jax.random.key(1), 3, propagation)


def test_particles_stay_with_their_member():
    model = ensemble()
    assert model.num_particles == 3
    for i in range(3):
        member = jax.tree.map(lambda x, i=i: x[i], model.members)
        expected = member.predict(OBS, ACTION, KEY, jnp.asarray(0))
        np.testing.assert_allclose(model.predict(OBS, ACTION, KEY, jnp.asarray(i)), expected, rtol=1e-6)


@pytest.mark.parametrize("kind", [DMDN, DARMDN])
def test_plans_roll_every_member_out_as_it_predicts(kind):
    """What is laid out for planning (nets apart, filled up with idle units) says what the members say."""
    make = lambda key: kind.create(TASK, key, hidden=(5, 18))  # noqa: E731
    model = make_ensemble(make, jax.random.key(2), 3)
    planner = make_planner("rs", TASK, horizon=4, budget=2)
    sequences = TASK.actions.sample(KEY, (2, 4))
    rollouts = jax.jit(lambda actions: roll_out(planner, Particles.of(model), OBS, KEY, actions))(sequences)
    assert rollouts.next_obs.shape == (2, 3, 4, 2)
    predict = jax.jit(lambda obs, action, i: model.predict(obs, action, KEY, i))
    for n, sequence in enumerate(sequences):
        for i in range(3):
            obs = OBS
            for t, action in enumerate(sequence):
                obs = predict(obs, action, jnp.asarray(i))
                np.testing.assert_allclose(rollouts.next_obs[n, i, t], obs, rtol=1e-4, atol=1e-5)


def test_sampling_particles_of_one_member_differ():
    model = ensemble(deterministic=False, particles=2)
    rollouts = roll_out(
        make_planner("rs", TASK, horizon=2, budget=1), Particles.of(model), OBS, KEY, jnp.zeros((1, 2, 2))
    )
    ends = np.asarray(rollouts.next_obs[0, :, -1])
    assert len(np.unique(ends.round(6), axis=0)) == 6


def test_resampled_particles_meet_every_member():
    model = ensemble("resampled")
    draw = jax.jit(jax.vmap(lambda key: model.predict(OBS, ACTION, key, jnp.asarray(0))))
    seen = np.unique(np.asarray(draw(jax.random.split(KEY, 60)))[:, 0].round(5))
    assert len(seen) == 3  # 60 draws miss one of three at fewer than one seed in ten billion


def test_sampling_members_have_particles_each():
    model = ensemble(deterministic=False, particles=4)
    assert model.num_particles == 12


def test_members_agree_where_there_are_data_and_disagree_elsewhere():
    model = ensemble()
    fitted, report = jax.jit(fit_model, static_argnames="settings")(
        model, model, filled(600), KEY, FitSettings(epochs=60, batch=32)
    )
    assert report.nll.shape == ()  # the mean over members
    assert (np.asarray(report.r2) > 0.8).all()
    obs, action, _ = transitions(200, seed=7)

    def disagreement(obs, action):
        zero = jnp.zeros((), jnp.int32)
        means = jax.vmap(lambda member: member.mean_model().predict(obs, action, KEY, zero))(fitted.members)
        return jnp.std(means, axis=0)

    spread = jax.jit(jax.vmap(disagreement))
    near, far = spread(obs, action), spread(obs + 15.0, action)
    assert np.asarray(far).mean() > 3 * np.asarray(near).mean()


def test_the_cost_of_a_plan_is_the_maximum_over_members():
    planner = make_planner("rs", TASK, horizon=3, budget=20)
    result = plan(planner, ensemble(), TASK, np.zeros(2), KEY)
    assert result.trajectory.next_obs.shape == (3, 3, 2)
    steps = result.trajectory
    costs = np.asarray(jax.jit(jax.vmap(jax.vmap(lambda *step: TASK.costs(*step))))(*steps))[..., 0]
    assert float(result.diagnostics.cost) == costs.sum(axis=1).max()


def test_bad_ensembles_are_told():
    with pytest.raises(GussError, match=r"model\.ensemble must be at least 1, got 0"):
        ModelSettings(ensemble=0)
    with pytest.raises(GussError, match="Did you mean 'member'"):
        build(ModelSettings, {"ensemble": 2, "propagation": "membr"}, "model")
