from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import ACTIONS, make_task
from helpers.quick import long_unless
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from guss.envs.pendulum import pendulum_task
from guss.errors import GussError
from guss.models import layers, mdn
from guss.models.mdn import DARMDN, DMDN
from guss.models.mixtures import log_density, mixture_cdf, mixture_mean, mixture_variance
from guss.models.scaling import Scaling

TASK = make_task(ACTIONS["continuous"])
OBS, ACTION = jnp.asarray([0.3, -0.8]), jnp.asarray([0.5, 0.2])
KINDS = {"dmdn": DMDN, "darmdn": DARMDN}
kinds = pytest.mark.parametrize("kind", KINDS)


def crossed(kinds, values):
    """All pairs; quick: the first with the first, the last with the last."""
    quick = ((kinds[0], values[0]), (kinds[-1], values[-1]))
    return [long_unless(pair in quick, pair) for pair in product(kinds, values)]


def net(kind, **settings):
    made = KINDS[kind].create(TASK, jax.random.key(1), **{"hidden": (8, 8), **settings})
    scales = (
        Scaling(jnp.asarray([0.1, -0.2]), jnp.asarray([2.0, 0.5])),
        Scaling(jnp.asarray([0.3, 0.0]), jnp.asarray([0.7, 1.3])),
    )
    object.__setattr__(made, "obs_scaling", scales[0])
    object.__setattr__(made, "change_scaling", scales[1])
    return made


@pytest.mark.parametrize(("kind", "components"), crossed(list(KINDS), [1, 3]))
def test_the_density_of_the_next_state_integrates_to_one(kind, components):
    model = net(kind, components=components)
    axis = np.linspace(-12, 12, 500)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2).astype(np.float32)
    density = jnp.exp(jax.jit(jax.vmap(lambda n: model.log_prob(OBS, ACTION, n)))(grid))
    total = float(np.asarray(density, float).sum() * (axis[1] - axis[0]) ** 2)
    assert abs(total - 1.0) < 0.01


def test_output_l_does_not_depend_on_dimensions_from_l_on():
    task = make_task(ACTIONS["discrete"])
    model = DARMDN.create(task, jax.random.key(0), components=2, hidden=(8, 8))
    jacobian = jax.jit(jax.jacobian(lambda change: model.density(OBS, jnp.asarray(1), change)))(jnp.asarray([0.4, 0.1]))
    for part in jacobian:  # [D, K, D]
        assert np.all(np.asarray(part)[np.triu_indices(2)[0], :, np.triu_indices(2)[1]] == 0.0)
        assert np.any(np.asarray(part)[1, :, 0] != 0.0), "but it does see the dimensions before"


@pytest.mark.parametrize(("kind", "components"), crossed(list(KINDS), [1, 3]))
def test_samples_follow_the_density(kind, components):
    """KS test of 4,000 samples of the first dimension; a sound sampler fails at one seed in a million."""
    model = net(kind, components=components, deterministic=False)
    draw = jax.jit(jax.vmap(lambda key: model.predict(OBS, ACTION, key, jnp.zeros((), jnp.int32))))
    samples = draw(jax.random.split(jax.random.key(5), 4000))
    changes = jax.jit(jax.vmap(lambda n: model.standardised_change(OBS, n)))(samples)
    uniform = jax.jit(jax.vmap(lambda c: mixture_cdf(model.density(OBS, ACTION, c), c)))(changes)
    for dimension in range(2):
        assert kstest(np.asarray(uniform)[:, dimension], "uniform").pvalue > 1e-6


@kinds
def test_deterministic_models_roll_out_the_mean(kind):
    model = net(kind, components=3)
    got = eqx.filter_jit(model.predict)(OBS, ACTION, jax.random.key(0), jnp.zeros((), jnp.int32))
    change = model.standardised_change(OBS, got)
    mean = jax.jit(lambda change: mixture_mean(model.density(OBS, ACTION, change)))(change)
    np.testing.assert_allclose(change, mean, rtol=1e-4, atol=1e-5)
    assert model.num_particles == 1
    assert net(kind, deterministic=False, particles=7).num_particles == 7


densities = jax.jit(jax.vmap(lambda mixture, x: log_density(mixture, x[None]), in_axes=(None, 0)))


@kinds
def test_moments_of_mixtures(kind):
    model = net(kind, components=3)
    change = jnp.asarray([0.2, -0.4])
    mixture = eqx.filter_jit(model.density)(OBS, ACTION, change)
    axis = np.linspace(-20, 20, 20_001).astype(np.float32)
    for dimension in range(2):
        if kind == "darmdn":
            single = jax.tree.map(lambda x, d=dimension: x[d : d + 1], mixture)
        else:
            single = type(mixture)(
                mixture.log_weight[None], mixture.mean.T[dimension][None], mixture.log_std.T[dimension][None]
            )
        density = np.exp(densities(single, axis))
        density = density / density.sum()
        mean = (density * axis).sum()
        np.testing.assert_allclose(mixture_mean(mixture)[dimension], mean, atol=1e-3)
        np.testing.assert_allclose(
            mixture_variance(mixture)[dimension], (density * (axis - mean) ** 2).sum(), rtol=1e-2
        )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"hidden": ()}, "hidden layers of at least 1 unit"),
        ({"components": 0}, "at least 1, got 0"),
    ],
)
def test_bad_nets_are_told(settings, words):
    with pytest.raises(GussError, match=words):
        DARMDN.create(TASK, jax.random.key(0), **settings)


def test_scaling_leaves_out_what_is_not_used_and_what_does_not_vary():
    rows = jnp.asarray([[1.0, 5.0], [3.0, 5.0], [99.0, 99.0]])
    scaling = Scaling.of(rows, jnp.asarray([True, True, False]))
    assert scaling.mean.tolist() == [2.0, 5.0]
    assert scaling.std.tolist() == [1.0, 1.0]
    np.testing.assert_allclose(scaling.undo(scaling(rows[2])), rows[2])


@pytest.mark.parametrize(("kind", "hidden"), crossed(list(KINDS), [(7,), (6, 5)]))
def test_the_quick_way_gives_the_mean_of_the_mixture(kind, hidden):
    """The mean is predicted without the rest of the mixture; dimension by dimension it is that of the density."""
    net = KINDS[kind].create(pendulum_task(), jax.random.key(3), hidden=hidden)

    def both(key):
        obs = jax.random.normal(key, (3,))
        action = jax.random.uniform(key, (1,), minval=-2.0, maxval=2.0)
        guess = net.predict(obs, action, key, jnp.zeros((), jnp.int32))
        mean = mixture_mean(net.density(obs, action, net.standardised_change(obs, guess)))
        return guess, obs + net.change_scaling.undo(mean)

    guesses, means = jax.jit(jax.vmap(both))(jax.random.split(jax.random.key(0), 20))
    np.testing.assert_allclose(guesses, means, atol=2e-5)


ours = jax.jit(lambda at: (layers.silu(at), layers.softplus(at), jax.grad(layers.softplus)(at)))
theirs = jax.jit(lambda at: (jax.nn.silu(at), jax.nn.softplus(at), jax.nn.sigmoid(at)))


@given(st.floats(-80.0, 80.0))
def test_quick_functions_are_what_they_stand_for(x):
    at = jnp.asarray(x, jnp.float32)
    for got, expected, absolute in zip(ours(at), theirs(at), (1e-5, 1e-6, 1e-6), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=absolute)


@kinds
def test_idle_units_stay_idle(kind):
    """Filled up to a multiple of 16, a net gives the very mean: 8 units do nothing."""
    model = net(kind, hidden=(8, 8))
    quick = mdn.MeanNet.of(model)
    assert quick.hidden[0][0].weight.shape == (16, 16)
    assert np.all(np.asarray(quick.hidden[0][0].weight)[8:] == 0.0)
    assert np.all(np.asarray(quick.hidden[0][0].weight)[:, 8:] == 0.0)
