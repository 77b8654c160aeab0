"""Sums of Gaussian kernels: against the kernel matrix, in both precisions."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from volmar import MSPC, SKMMC, KernelCPMMC
from volmar.rows import kernel as gaussian
from volmar.rows.anywhere import mapped_scores
from volmar.rows.kernel import Kernel, KernelPCAMap, NystroemMap

MANY = gaussian.FLOAT64_UP_TO + 904  # so that the last tile is not full


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def precisions(monkeypatch):
    """Return the list of dtypes in which sums are computed."""
    taken = []
    tiled = gaussian._tiled_sums

    def recorded(X, shift, points, gamma, coefficients, dtype):
        taken.append((len(X), np.dtype(dtype)))
        return tiled(X, shift, points, gamma, coefficients, dtype)

    monkeypatch.setattr(gaussian, "_tiled_sums", recorded)
    return taken


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_few_rows_are_summed_in_float64(rng, dtype, shape, offset):
    X = (rng.standard_normal((300, 7)) + offset).astype(dtype)
    points, c = rng.standard_normal((20, 7)) + offset, rng.standard_normal((20, *shape))
    expected = rbf_kernel(X.astype(np.float64), points, gamma=0.1) @ c
    found = gaussian.gaussian_sums(X, points, 0.1, c)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_rows_are_summed_in_float32_within_the_loss(rng, monkeypatch, dtype):
    X = (rng.standard_normal((MANY, 7)) + 50.0).astype(dtype)
    offset = np.full(7, 49.0)
    points, c = X[:30] - offset, rng.standard_normal(30)
    taken = precisions(monkeypatch)
    found = gaussian.gaussian_sums(X, points, 0.1, c, offset)
    assert taken[-1] == (MANY, np.float32)
    expected = rbf_kernel(X.astype(np.float64), X[:30].astype(np.float64), gamma=0.1) @ c
    assert np.abs(found - expected).max() <= 0.1 * gaussian.FLOAT32_LOSS * expected.std()
    assert np.abs(found - expected).max() > 0


def test_coefficients_that_cancel_are_summed_in_float64(rng, monkeypatch):
    X = rng.standard_normal((MANY, 2))
    points, c = X[:30], np.zeros(30)
    c[0], points[1] = 1e6, points[0] + 1e-6
    c[1] = -c[0]
    taken = precisions(monkeypatch)
    found = gaussian.gaussian_sums(X, points, 1.0, c)
    assert taken[-1] == (MANY, np.float64)
    np.testing.assert_allclose(found, rbf_kernel(X, points, gamma=1.0) @ c, atol=1e-8)


def test_rows_beyond_the_range_of_float32(rng, monkeypatch):
    X = rng.standard_normal((MANY, 2))
    X[7], X[-1] = 1e30, [-1e25, 3.0]
    taken = precisions(monkeypatch)
    found = gaussian.gaussian_sums(X, X[:5], 1.0, np.arange(1.0, 6.0))
    assert (MANY, np.float32) in taken
    assert found[7] == found[-1] == 0.0
    assert np.isfinite(found).all()


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
@pytest.mark.parametrize("shape", [(), (2,)])
def test_scores_of_maps_are_products_with_their_features(rng, kernel, shape):
    X = rng.standard_normal((200, 3))
    for feature_map in (
        NystroemMap(kernel, landmarks=25, gamma=0.3, random_state=0).fit(X),
        KernelPCAMap(6, kernel=kernel, gamma=0.3).fit(X),
    ):
        w = rng.standard_normal((feature_map.n_components, *shape))
        expected = feature_map.transform(X) @ w
        np.testing.assert_allclose(mapped_scores(feature_map, X, w), expected, atol=1e-8)
    K = Kernel("rbf", gamma=0.3)(X, X)
    given = KernelPCAMap(6, kernel="precomputed").fit(K)
    w = rng.standard_normal(6)
    np.testing.assert_allclose(given.scores(K, w), given.transform(K) @ w, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "model",
    [
        KernelCPMMC(method="nystroem", random_state=0),
        KernelCPMMC(3, method="nystroem", random_state=0),
        SKMMC(random_state=0),
        MSPC(kernel="rbf", random_state=0),
    ],
    ids=lambda model: f"{type(model).__name__}-{model.n_clusters}",
)
def test_scores_of_many_rows_are_those_of_few(rng, monkeypatch, model, dtype):
    """Scores in float32 are within the allowed error; labels differ only at the border."""
    centres = 2.5 * rng.standard_normal((model.n_clusters, 10))
    X = (
        centres[rng.integers(model.n_clusters, size=MANY)] + rng.standard_normal((MANY, 10))
    ).astype(dtype)
    model.fit(X[:1500])
    taken = precisions(monkeypatch)
    many, labels = model.decision_function(X), model.predict(X)
    assert taken[-1] == (MANY, np.float32)
    parts = np.array_split(X, 4)
    few = np.concatenate([model.decision_function(part) for part in parts])
    loss = gaussian.FLOAT32_LOSS * few.std()
    assert many.dtype == few.dtype == dtype
    assert np.abs(many - few).max() <= loss
    ordered = np.sort(np.abs(few) if few.ndim == 1 else few, axis=-1)
    clear = np.abs(few) > loss if few.ndim == 1 else ordered[:, -1] - ordered[:, -2] > 2 * loss
    assert clear.mean() > 0.99
    again = np.concatenate([model.predict(part) for part in parts])
    np.testing.assert_array_equal(labels[clear], again[clear])


@pytest.mark.parametrize("n_rows", [8, MANY])
def test_points_beside_outliers_are_summed_from_differences(rng, n_rows):
    points = rng.standard_normal((8, 2))
    points[0] = 1e20
    X = np.resize(points, (n_rows, 2))
    found = gaussian.gaussian_sums(X, points, 1.0, np.ones(8))
    near = np.exp(-((points[1:, None] - points[1:]) ** 2).sum(axis=2)).sum(axis=1)
    np.testing.assert_allclose(found[:8], [1.0, *near], rtol=1e-12)
