"""Policies of both kinds against their textbook formulas."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import ACTIONS
from scipy import stats

from guss.methods.nets import Choice, Policy, apply_net, make_net
from guss.types import ContinuousActions

SIZE = 3


@pytest.fixture(params=list(ACTIONS), scope="module")
def policy(request):
    spread = lambda x: x + 0.3 * jax.random.normal(jax.random.key(1), x.shape)  # noqa: E731
    make = lambda key: jax.tree.map(spread, Policy.make(key, SIZE, ACTIONS[request.param], (8,), -0.5))  # noqa: E731
    return jax.jit(make)(jax.random.key(0))


def probabilities(policy, outputs):
    """Of every choice, of every number of a discrete action."""
    splits = np.cumsum(policy.actions.num_values)[:-1]
    return [np.exp(part) / np.exp(part).sum() for part in np.split(np.asarray(outputs, float), splits)]


def test_log_probabilities_are_those_of_the_textbook(policy):
    obs = jax.random.normal(jax.random.key(2), (5, SIZE))
    choice = eqx.filter_jit(policy.choice)(obs)
    raw = jax.jit(jax.vmap(lambda *x: policy.sample(*x)))(obs, jax.random.split(jax.random.key(3), 5))
    found = np.asarray(eqx.filter_jit(policy.log_prob)(choice, raw))
    raw = np.asarray(raw)
    for row in range(5):
        outputs = np.asarray(choice.outputs, float)[row]
        if choice.log_std is not None:
            wanted = stats.norm(outputs, np.exp(np.asarray(choice.log_std, float))).logpdf(raw[row]).sum()
        else:
            parts = probabilities(policy, outputs)
            wanted = sum(np.log(p[i]) for p, i in zip(parts, raw[row], strict=True))
        assert found[row] == pytest.approx(wanted, abs=1e-4)


def test_divergence_and_entropy_are_those_of_many_draws(policy):
    """By 20,000 draws; a wrong formula is off by far more than five standard errors."""
    obs = jax.random.normal(jax.random.key(4), (1, SIZE))
    other = jax.tree.map(lambda x: x + 0.1, policy)
    old, new = (eqx.filter_jit(each.choice)(obs) for each in (policy, other))
    raw = jax.jit(jax.vmap(lambda key: policy.sample(obs[0], key)))(jax.random.split(jax.random.key(5), 20_000))
    many = lambda c: Choice(np.repeat(c.outputs, len(raw), axis=0), c.log_std)  # noqa: E731
    log_prob, kl = eqx.filter_jit(policy.log_prob), eqx.filter_jit(policy.kl)
    before, after = (np.asarray(log_prob(many(c), raw), float) for c in (old, new))
    for found, draws in ((kl(old, new), before - after), (eqx.filter_jit(policy.entropy)(old), -before)):
        error = draws.std() / np.sqrt(len(draws))
        assert abs(float(found[0]) - draws.mean()) < 5 * error + 1e-4
    assert float(kl(old, old)[0]) == pytest.approx(0.0, abs=1e-6)


def test_what_is_carried_out_is_an_action(policy):
    keys = jax.random.split(jax.random.key(6), 200)
    raw = jax.jit(jax.vmap(lambda key: policy.sample(jnp.ones(SIZE), key)))(keys)
    actions = np.asarray(jax.jit(jax.vmap(lambda *x: policy.executed(*x)))(raw))
    assert actions.shape == (200, *policy.actions.shape)
    assert actions.dtype == policy.actions.dtype
    if isinstance(policy.actions, ContinuousActions):
        low, high = map(np.asarray, policy.actions.bounds())
        assert (actions.min(axis=0) >= low).all()
        assert (actions.max(axis=0) <= high).all()
        np.testing.assert_allclose(policy.executed(jnp.zeros(2)), (low + high) / 2, atol=1e-6)
    else:
        for i, (count, first) in enumerate(zip(policy.actions.num_values, policy.actions.first, strict=True)):
            column = actions if policy.actions.scalar else actions[:, i]
            assert set(column.tolist()) == set(range(first, first + count))


def test_a_net_is_its_layers():
    net = make_net(jax.random.key(0), (2, 4, 3), last=0.5)
    x = np.asarray([[0.3, -0.2], [1.0, 2.0]], np.float32)
    hidden = np.tanh(x @ np.asarray(net[0].weight) + np.asarray(net[0].bias))
    wanted = hidden @ np.asarray(net[1].weight) + np.asarray(net[1].bias)
    np.testing.assert_allclose(apply_net(net, jnp.asarray(x), jnp.tanh), wanted, atol=1e-6)
    np.testing.assert_allclose(apply_net(net, jnp.asarray(x[0]), jnp.tanh), wanted[0], atol=1e-6)
