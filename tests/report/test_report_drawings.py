"""What the report of a clustering draws: components, histograms, leading features."""

from types import SimpleNamespace

import numpy as np
import pytest
from helpers.outcomes import Hyperplane, outcome_of, simple, two_groups
from scipy import sparse

pytest.importorskip("jinja2")

from volmar import KernelCPMMC
from volmar.datasets import make_two_moons
from volmar.report.drawings import components, histogram, plane, ticks
from volmar.report.drivers import drivers
from volmar.rows.tiled import cluster_moments


@pytest.mark.parametrize("shape", [(60, 8), (400, 350)])
@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("with_direction", [False, True])
def test_components_are_principal(shape, is_sparse, with_direction):
    rng = np.random.default_rng(1)
    X = rng.normal(size=shape) * np.linspace(1, 3, shape[1]) ** 3 + 5
    w = rng.normal(size=shape[1]) if with_direction else None
    given = sparse.csr_array(X) if is_sparse else X
    points, share = components(given, 2, without=w)
    Z = X - X.mean(axis=0)
    if w is not None:
        Z -= np.outer(Z @ w, w) / (w @ w)
    values, vectors = np.linalg.eigh(Z.T @ Z)
    np.testing.assert_allclose(share, values[:-3:-1] / values.sum(), rtol=1e-6)
    expected = Z @ vectors[:, :-3:-1]
    np.testing.assert_allclose(np.abs(points), np.abs(expected), atol=1e-5 * np.ptp(points))


@pytest.mark.parametrize("is_sparse", [False, True])
def test_moments_by_brute_force(is_sparse):
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(50, 3)), rng.integers(0, 4, 50)
    found = cluster_moments(sparse.csr_array(X) if is_sparse else X, codes, 4)
    np.testing.assert_allclose(found.means, [X[codes == c].mean(axis=0) for c in range(4)])
    np.testing.assert_allclose(found.deviation, X.std(axis=0))
    within = sum(((X[codes == c] - X[codes == c].mean(axis=0)) ** 2).sum(axis=0) for c in range(4))
    np.testing.assert_allclose(found.between, 1 - within / (50 * X.var(axis=0)))


def test_the_histogram_counts_every_row_on_its_side():
    outcome = simple()
    lead = outcome.lead.copy()
    lead[np.argmin(np.abs(lead))] = 0.0
    lead[0] = -1e6
    codes = (lead > 0).astype(int)
    found = histogram(outcome, lead, codes)
    np.testing.assert_array_equal(found.counts.sum(axis=1), np.bincount(codes))
    middles = (found.edges[1:] + found.edges[:-1]) / 2
    assert not found.counts[0, middles > 0].any()
    assert not found.counts[1, middles < 0].any()
    assert found.n_beyond == 1


def test_what_drives_a_linear_split():
    X = two_groups()
    outcome = outcome_of(X, Hyperplane([0.5, -2.0, 0.0, 0.1]))
    found = drivers(outcome, cluster_moments(X, outcome.codes, 2))
    assert found.kind == "linear"
    expected = {0: 0.5 * X[:, 0].std(), 1: -2 * X[:, 1].std(), 3: 0.1 * X[:, 3].std()}
    assert dict(zip(found.features, found.values, strict=True)) == pytest.approx(expected)
    assert list(np.abs(found.values)) == sorted(np.abs(found.values), reverse=True)


def test_what_drives_a_curved_split():
    moons, _ = make_two_moons(120, random_state=0)
    X = np.column_stack([moons, np.random.default_rng(0).normal(size=(120, 3)) * 0.01])
    outcome = outcome_of(X, KernelCPMMC(random_state=0).fit(X))
    found = drivers(outcome, cluster_moments(X, outcome.codes, 2))
    assert found.kind == "permutation"
    assert set(found.features[:2]) == {0, 1}
    assert 0.1 < found.values[0] <= 1
    view = plane(outcome, outcome.lead)
    np.testing.assert_array_equal(view.x, outcome.lead)


def test_similarities_are_not_shuffled():
    def refuse(X):
        raise ValueError("a precomputed matrix")

    X = two_groups()
    outcome = simple(X=X, model=SimpleNamespace(predict=refuse), labels=(X[:, 0] > 0) + 0,
                     scores=X[:, 0])  # fmt: skip
    found = drivers(outcome, cluster_moments(X, outcome.codes, 2))
    assert found.kind == "between"
    assert found.features[0] == 0


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3e-5, 1e-5), (12, 120000), (-0.3, 0.31)])
def test_ticks_are_round_and_inside(low, high):
    found = np.array(ticks(low, high))
    assert 2 <= found.size <= 8
    assert found.min() >= low - 1e-9
    assert found.max() <= high + 1e-9
    steps = np.diff(found)
    np.testing.assert_allclose(steps, steps[0])
    assert round(steps[0] / 10 ** np.floor(np.log10(steps[0] * 1.0000001))) in (1, 2, 5)
