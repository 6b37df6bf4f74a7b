"""Principal components of trajectories against NumPy's singular value decomposition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guss.planners.components import no_components, principal_components, project

fit = jax.jit(principal_components, static_argnums=2)


def exact(paths, num):
    """The same by SVD in double precision: centre, scale and directions [HD, num], and the share of each component."""
    paths = np.asarray(paths, float)
    centre = paths.mean(axis=0)
    scale = np.sqrt(((paths - centre) ** 2).mean(axis=(0, 1)))
    rows = ((paths - centre) / scale).reshape(len(paths), -1)
    _, values, directions = np.linalg.svd(rows, full_matrices=False)
    return centre, scale, directions[:num].T, values**2 / (values**2).sum()


def walks(seed, shape=(25, 8, 3)):
    """Random walks: their components have different variances."""
    return np.random.default_rng(seed).normal(size=shape).cumsum(axis=1) * [1.0, 100.0, 0.01] + [0.0, 5.0, 1.0]


@settings(max_examples=30)
@given(seed=st.integers(0, 2**31 - 1))
def test_components_span_the_subspace_of_the_svd(seed):
    """As far as the variances differ: power iteration does not separate components of equal variance."""
    paths = walks(seed)
    found = fit(jnp.asarray(paths, jnp.float32), jnp.ones(25, bool), 3)
    centre, scale, directions, shares = exact(paths, 3)
    np.testing.assert_allclose(found.centre, centre, rtol=1e-4, atol=1e-4 * scale.max())
    np.testing.assert_allclose(found.scale, scale, rtol=1e-4)
    got = np.asarray(found.directions)
    np.testing.assert_allclose(got.T @ got, np.eye(3), atol=1e-4)
    if shares[3] < 0.8 * shares[2]:
        np.testing.assert_allclose(np.linalg.svd(got.T @ directions)[1], 1.0, atol=1e-3)
    explained = (
        np.square(((paths - centre) / scale).reshape(25, -1) @ got).sum() / np.square((paths - centre) / scale).sum()
    )
    assert explained > 0.97 * shares[:3].sum()


def test_well_separated_components_agree_one_by_one():
    rng = np.random.default_rng(1)
    axes = np.linalg.qr(rng.normal(size=(24, 24)))[0][:, :3]
    paths = (rng.normal(size=(25, 3)) * [8.0, 4.0, 2.0] @ axes.T).reshape(25, 8, 3)
    found = fit(jnp.asarray(paths, jnp.float32), jnp.ones(25, bool), 3)
    centre, scale, directions, _ = exact(paths, 3)
    np.testing.assert_allclose(np.abs(np.sum(found.directions * directions, axis=0)), 1.0, atol=1e-3)
    rows = ((paths - centre) / scale).reshape(25, -1)
    coordinates = np.abs(np.asarray(project(found, jnp.asarray(paths, jnp.float32))))
    np.testing.assert_allclose(coordinates, np.abs(rows @ directions), atol=0.05 * coordinates.max())


def test_paths_that_are_not_known_do_not_count():
    paths = walks(0)
    known = np.arange(25) < 20
    some = fit(jnp.asarray(np.where(known[:, None, None], paths, 1e6), jnp.float32), jnp.asarray(known), 2)
    only = fit(jnp.asarray(paths[known], jnp.float32), jnp.ones(20, bool), 2)
    np.testing.assert_allclose(some.directions, only.directions, atol=1e-3)


@pytest.mark.parametrize("paths", [np.ones((25, 8, 3)), np.full((25, 8, 3), 0.1), np.zeros((25, 8, 3))])
def test_trajectories_that_do_not_differ_have_no_components(paths):
    found = fit(jnp.asarray(paths, jnp.float32), jnp.ones(25, bool), 3)
    assert not np.asarray(found.directions).any()
    assert not np.asarray(project(found, jnp.asarray(walks(2), jnp.float32))).any()


def test_there_are_not_more_components_than_the_trajectories_differ_in():
    line = np.arange(25.0)[:, None, None] * np.ones((1, 8, 3))
    found = np.asarray(fit(jnp.asarray(line, jnp.float32), jnp.ones(25, bool), 3).directions)
    np.testing.assert_allclose(np.linalg.norm(found, axis=0), [1.0, 0.0, 0.0], atol=1e-5)


@given(factor=st.sampled_from((1e-30, 1.0, 1e20, 3e38)))
def test_projections_of_finite_trajectories_are_finite(factor):
    paths = jnp.asarray(np.clip(walks(3) / 500, -1, 1) * factor, jnp.float32)
    found = fit(paths, jnp.ones(25, bool), 3)
    assert np.isfinite(project(found, paths)).all()
    assert np.isfinite(project(found, jnp.full((1, 8, 3), 3e38))).all()


def test_shapes_are_those_of_no_components():
    shapes = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype), tree)  # noqa: E731
    assert shapes(no_components(8, 3, 2)) == shapes(fit(jnp.zeros((5, 8, 3)), jnp.ones(5, bool), 2))
