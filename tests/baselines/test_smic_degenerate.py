"""SMIC on graphs that do not determine their clusters, and bad input."""

import warnings

import numpy as np
import pytest
from helpers.smic_rule import labels_by_the_paper, leading, spd_kernel
from scipy import linalg
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics.pairwise import rbf_kernel

from volmar import SMIC
from volmar.baselines.smic import KernelSpectrum
from volmar.graphs import local_scaling_similarity
from volmar.graphs.graph import Graph
from volmar.graphs.similarities import GaussianSimilarity
from volmar.metrics import clustering_error
from volmar.solvers import Status


@pytest.mark.parametrize(
    ("seed", "n", "k", "missing"), [(134, 4, 3, {2}), (2, 4, 4, {3}), (2, 5, 4, {0})]
)
def test_clusters_without_rows_are_left_out(seed, n, k, missing):
    """Small kernels, found by search, with an eigenvector that is largest in no row."""
    A = np.round(np.random.default_rng(seed).random((n, n)), 1)
    K = A @ A.T
    assert set(range(k)) - set(labels_by_the_paper(leading(K, k)[1])) == missing
    with pytest.warns(UserWarning, match=f"Only {k - 1} of n_clusters={k} clusters have rows"):
        model = SMIC(k, affinity="precomputed").fit(K)
    assert sorted(set(model.labels_)) == list(range(k - 1))
    scores = model.decision_function(K)
    assert scores.shape == ((n,) if k == 3 else (n, k - 1))
    np.testing.assert_array_equal(model.predict(K), model.labels_)


def test_more_components_than_clusters_are_degenerate():
    W = linalg.block_diag(np.ones((6, 6)), np.ones((5, 5)), np.ones((4, 4)))
    with pytest.warns(UserWarning, match="3 connected components") as said:
        model = SMIC(affinity="precomputed").fit(W)
    assert len(said) == 1
    assert model.result_.status is Status.DEGENERATE
    # All eigenvectors are zero on the third component: cluster 0, not decided by rounding.
    np.testing.assert_array_equal(model.labels_, np.repeat([0, 1, 0], [6, 5, 4]))
    np.testing.assert_array_equal(model.predict(W), model.labels_)
    three = SMIC(3, affinity="precomputed").fit(W)
    assert three.result_.status is Status.CONVERGED
    np.testing.assert_array_equal(three.labels_, np.repeat([0, 1, 2], [6, 5, 4]))


def test_components_are_counted_whatever_the_eigenvectors_say():
    """Those of an iterative solver may have noise on every row."""
    W = linalg.block_diag(np.ones((2, 2)), np.ones((2, 2)), np.ones((2, 2)))
    vectors = np.random.default_rng(0).standard_normal((6, 3))
    values = np.array([4.0, 3.0, 2.0, 1.0])
    for k, degenerate in ((2, True), (3, False)):
        problem = KernelSpectrum(Graph(W, None), values[: k + 1], vectors[:, :k], np.zeros(k))
        assert problem.is_degenerate == degenerate


def test_equal_eigenvalues_are_degenerate():
    W = linalg.block_diag(np.ones((5, 5)), np.ones((5, 5)))
    with pytest.warns(ConvergenceWarning, match="Eigenvalues of the similarities are equal"):
        model = SMIC(affinity="precomputed").fit(W)
    assert model.result_.status is Status.DEGENERATE
    assert not model.result_.is_certified(1e-6)
    assert clustering_error(np.repeat([0, 1], 5), model.labels_) == 0.0


def test_rows_without_an_eigenvector_are_reported():
    """A second component whose eigenvalues all lie below two of the first."""
    first = np.kron(np.array([[1.0, 0.5], [0.5, 1.0]]), np.ones((10, 10)))
    W = linalg.block_diag(first, 0.1 * np.ones((10, 10)))
    with pytest.warns(UserWarning, match="eigenvectors .*10 of 30 rows"):
        model = SMIC(affinity="precomputed").fit(W)
    assert model.result_.status is Status.DEGENERATE
    assert (model.labels_[20:] == 0).all()
    assert (model.predict(W[20:]) == 0).all()
    np.testing.assert_array_equal(
        SMIC(3, affinity="precomputed").fit(W).labels_[20:], np.full(10, 2)
    )


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_eigenvalues_below_zero_are_reported_and_not_divided_by(n):
    """All but one eigenvalue of a complete graph without self-loops are -1."""
    rng = np.random.default_rng(0)
    W = 1 - np.eye(n) + 0.01 * np.diag(rng.random(n))
    exact = linalg.eigvalsh(W)[::-1]
    with pytest.warns(UserWarning, match="at most 1 .*Eigenvalue 2"):
        model = SMIC(affinity="precomputed").fit(W)
    np.testing.assert_allclose(model.eigenvalues_, exact[:3], atol=1e-12)
    assert model.result_.status is Status.DEGENERATE
    np.testing.assert_array_equal(model.result_.divisors, [1.0, 1.0])
    assert np.isfinite(model.decision_function(W)).all()
    # A new row that is similar to a single training row gets its label.
    np.testing.assert_array_equal(model.predict(np.eye(n)), model.labels_)


def test_low_rank_kernels_are_reported_and_not_divided_by(rng):
    A = rng.random((20, 2))
    with pytest.warns(UserWarning, match="at most 2 .*Eigenvalue 3"):
        model = SMIC(3, affinity="precomputed").fit(A @ A.T)
    assert model.result_.divisors.min() > 1e-3
    assert model.result_.status is Status.DEGENERATE
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SMIC(2, affinity="precomputed").fit(A @ A.T)


def test_stray_rows_are_reported(rng):
    X = np.vstack([rng.standard_normal((300, 2)), [[500.0, 500.0]] * 12])
    W = local_scaling_similarity(X, graph="knn")
    with pytest.warns(UserWarning, match="2 connected components"):
        SMIC(affinity="precomputed").fit(W)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: SMIC(0), ValueError, "^n_clusters .*got 0"),
        (lambda: SMIC(2.5), TypeError, r"^n_clusters .*got 2\.5"),
        (lambda: SMIC(31), ValueError, "^n_clusters=31"),
        (lambda: SMIC(affinity="rbf"), ValueError, "^affinity .*got 'rbf'"),
        (lambda: SMIC(affinity=3), TypeError, "^affinity .*got int"),
        (lambda: SMIC(affinity=GaussianSimilarity), TypeError, "not a class"),
        (lambda: SMIC(sigma=1.0), ValueError, r"sigma=1\.0 has no meaning"),
        (
            lambda: SMIC(affinity=rbf_kernel, n_neighbors=3),
            ValueError,
            "^n_neighbors .*callable",
        ),
        (lambda: SMIC(affinity="gaussian", sigma=-1), ValueError, "sigma"),
        (lambda: SMIC(n_neighbors=30), ValueError, "n_neighbors"),
        (lambda: SMIC(affinity="precomputed"), ValueError, "must be square"),
    ],
)
def test_bad_parameters(rng, make, error, message):
    with pytest.raises(error, match=message):
        make().fit(rng.standard_normal((30, 3)))


def test_bad_precomputed(rng):
    K = spd_kernel(rng, 10)
    with pytest.raises(ValueError, match=r"^sigma .*affinity='precomputed'"):
        SMIC(affinity="precomputed", sigma=1.0).fit(K)
    with pytest.raises(ValueError, match="negative entries"):
        SMIC(affinity="precomputed").fit(K - 3)
    with pytest.raises(ValueError, match="must be symmetric"):
        SMIC(affinity="precomputed").fit(np.triu(K))
    model = SMIC(affinity="precomputed").fit(K)
    with pytest.raises(ValueError, match=r"^row 1 of X"):
        model.predict(np.vstack([K[0], np.zeros(10)]))
    with pytest.raises(ValueError, match="negative entries"):
        model.predict(-K)


def test_no_similarity_at_all_is_refused():
    with pytest.raises(ValueError, match=r"similarities .*zero"):
        SMIC(affinity="precomputed").fit(np.zeros((6, 6)))


def test_a_failed_refit_leaves_no_half_model(rng):
    X = rng.standard_normal((30, 2))
    model = SMIC().fit(X)
    with pytest.raises(ValueError, match="n_neighbors"):
        model.set_params(n_neighbors=30).fit(X)
    with pytest.raises(NotFittedError):
        model.predict(X)
