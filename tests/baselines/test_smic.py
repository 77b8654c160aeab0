"""SMIC: eq. (16) to (18) by brute force, the rule for new rows, degenerate graphs, bad input."""

import pickle
import warnings
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import linalg, sparse
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import rbf_kernel

from volmar import SMIC
from volmar.base.numbering import cluster_order
from volmar.baselines.smic import KernelSpectrum, information_maximization, positive_shares
from volmar.datasets import load, make_two_gaussians
from volmar.graphs import (
    GaussianSimilarity,
    gaussian_similarity,
    local_scaling_similarity,
    make_similarity,
)
from volmar.graphs.graph import Graph
from volmar.metrics import clustering_error
from volmar.solvers import Status

quick = settings(deadline=None, max_examples=25)
seeds = st.integers(0, 10_000)


def spd_kernel(rng, n):
    """A positive definite matrix of positive entries."""
    A = rng.random((n, n + 2))
    return A @ A.T / n + 0.1 * np.eye(n)


def fit_quietly(model, X):
    """Fit on random data, which may leave a cluster without rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return model.fit(X)


def leading(K, k):
    values, vectors = linalg.eigh(K)
    return values[::-1][:k], vectors[:, ::-1][:, :k]


def labels_by_the_paper(vectors):
    """The rule as it is printed, row by row, for rows that have a positive entry."""
    n, k = vectors.shape
    scores = np.empty((n, k))
    for y in range(k):
        total = vectors[:, y].sum()
        signed = vectors[:, y] * (1.0 if total >= 0 else -1.0)
        positive = np.maximum(0.0, signed)
        scores[:, y] = positive / positive.sum()
    assert (scores.max(axis=1) > 0).all()
    return scores.argmax(axis=1)


def new_labels_by_the_paper(S, values, vectors):
    signed = vectors * np.where(vectors.sum(axis=0) >= 0, 1.0, -1.0)
    below = values * np.maximum(0.0, signed).sum(axis=0)
    scores = np.maximum(0.0, S @ signed) / below
    return scores.argmax(axis=1), scores


def groups(rng, k=2, size=40, apart=8.0):
    centres = apart * np.vstack([np.zeros(2), np.eye(2), -np.eye(2)])[:k]
    return np.vstack([rng.normal(c, 1.0, (size, 2)) for c in centres]), np.repeat(range(k), size)


# The problem


@quick
@given(seed=seeds, k=st.integers(1, 4))
def test_objective_is_the_optimum_of_equation_16(seed, k):
    """No orthonormal vectors give more information, and the eigenvectors give what is reported."""
    rng = np.random.default_rng(seed)
    n = 12
    K = spd_kernel(rng, n)
    model = fit_quietly(SMIC(k, affinity="precomputed"), K)

    def information(alpha):
        return k / (2 * n) * np.trace(alpha.T @ K @ K @ alpha) - 0.5

    values, vectors = leading(K, k)
    assert model.objective_ == pytest.approx(-information(vectors), rel=1e-10)
    np.testing.assert_allclose(model.eigenvalues_[:k], values, rtol=1e-10)
    for _ in range(50):
        other = linalg.qr(rng.standard_normal((n, k)), mode="economic")[0]
        near = linalg.qr(vectors + 0.1 * rng.standard_normal((n, k)), mode="economic")[0]
        assert information(other) <= -model.objective_ + 1e-12
        assert information(near) <= -model.objective_ + 1e-12
    assert np.isnan(model.result_.gap)
    assert model.result_.residuals["eigenvectors"] < 1e-10
    assert model.result_.is_stationary(1e-9)
    assert not model.result_.is_certified(1e-9)  # no bound


def test_two_clusters_are_equation_16_to_the_constant(rng):
    K = spd_kernel(rng, 10)
    values, _ = leading(K, 2)
    model = SMIC(affinity="precomputed").fit(K)
    assert model.objective_ == pytest.approx(-((values**2).sum() / 10 - 0.5))


@quick
@given(seed=seeds, k=st.integers(2, 4))
def test_labels_are_the_printed_rule(seed, k):
    rng = np.random.default_rng(seed)
    X, _ = groups(rng, k, size=12, apart=3.0)
    K = gaussian_similarity(X, sigma=2.0)
    _, vectors = leading(K, k)
    expected = np.unique(labels_by_the_paper(vectors), return_inverse=True)[1]
    model = fit_quietly(SMIC(k, affinity="precomputed"), K)
    order = cluster_order(expected, None, expected.max() + 1)
    np.testing.assert_array_equal(model.labels_, np.argsort(order)[expected])


@quick
@given(seed=seeds, k=st.integers(1, 4))
def test_rule_for_new_rows_gives_training_rows_their_labels(seed, k):
    """K phi = lambda phi: with the diagonal in K nothing is lost."""
    rng = np.random.default_rng(seed)
    K = spd_kernel(rng, 15) if seed % 2 else gaussian_similarity(rng.random((15, 2)), sigma=0.3)
    model = fit_quietly(SMIC(k, affinity="precomputed"), K)
    np.testing.assert_array_equal(model.predict(K), model.labels_)
    np.testing.assert_array_equal(model.predict(3 * K), model.labels_)


@quick
@given(seed=seeds, k=st.integers(2, 3))
def test_new_rows_follow_the_printed_rule(seed, k):
    rng = np.random.default_rng(seed)
    X, _ = groups(rng, k, size=15, apart=5.0)
    recipe = GaussianSimilarity(sigma=2.0)
    K, extension = recipe.build(X)
    X_new = groups(rng, k, size=10, apart=5.0)[0]
    S = extension(X_new)
    values, vectors = leading(K, k)
    expected, scores = new_labels_by_the_paper(S, values, vectors)
    model = fit_quietly(SMIC(k, affinity=recipe), X)
    assume(len(set(model.labels_)) == k)
    order = cluster_order(labels_by_the_paper(vectors), None, k)
    expected, scores = np.argsort(order)[expected], scores[:, order]
    seen = scores.max(axis=1) > 0
    assert seen.mean() > 0.9
    np.testing.assert_array_equal(model.predict(X_new)[seen], expected[seen])
    # The scores are the printed ones before clipping, times lambda_1 over the row sum.
    found = model.decision_function(X_new)
    factor = model.eigenvalues_[0] / S.sum(axis=1)
    both = (scores > 0).all(axis=1)
    if k == 2:
        difference = scores[:, 1] - scores[:, 0]
        np.testing.assert_allclose(found[both], (difference * factor)[both], rtol=1e-6, atol=1e-12)
    else:
        clipped = np.maximum(found, 0.0)
        np.testing.assert_allclose(clipped, scores * factor[:, None], rtol=1e-6, atol=1e-12)


def test_the_diagonal_moves_eigenvalues_and_not_labels(rng):
    X, _ = groups(rng, 3, apart=4.0)
    without = SMIC(3, affinity="gaussian", sigma=1.0).fit(X)
    with_ones = SMIC(3, affinity=GaussianSimilarity(sigma=1.0)).fit(X)
    np.testing.assert_array_equal(without.labels_, with_ones.labels_)
    np.testing.assert_allclose(with_ones.eigenvalues_ - without.eigenvalues_, 1.0, rtol=1e-9)
    np.testing.assert_array_equal(with_ones.predict(X), with_ones.labels_)


def test_eigenvalues_of_a_bipartite_graph_are_the_largest_not_the_furthest():
    """Eq. (17) asks for K^2; at -lambda_1 it would part every row from its neighbours."""
    n = 40
    ring = sparse.diags_array([np.ones(n - 1)] * 2, offsets=[-1, 1], format="csr")
    exact = linalg.eigvalsh(ring.toarray())
    model = SMIC(affinity="precomputed").fit(ring)
    np.testing.assert_allclose(model.eigenvalues_, exact[::-1][:3], atol=1e-9)
    assert exact[0] < -model.eigenvalues_[1]
    assert (np.diff(model.labels_) != 0).sum() <= 2


# Signs, zeros, ties


def test_sums_of_zero_count_as_positive():
    half = np.full(6, 1 / np.sqrt(6)) * np.repeat([1.0, -1.0], 3)
    for noise in (0.0, 1e-16, -1e-16):
        shares = positive_shares((half + noise)[:, None], np.zeros(1))
        np.testing.assert_allclose(shares[:, 0], np.repeat([1, -1], 3) / 3)
    down = np.array([[-0.6], [-0.7], [0.2]])
    np.testing.assert_allclose(positive_shares(down, np.zeros(1)), -down / 1.3)


def test_entries_that_are_rounding_are_zeros():
    vectors = np.array([[0.8, 1e-17], [0.6, -1e-16], [1e-15, 1.0]])
    shares = positive_shares(vectors, np.zeros(2))
    assert (shares[[2, 0, 1], [0, 1, 1]] == 0).all()
    # A vector that is known to 1e-4 says nothing of smaller entries.
    assert positive_shares(np.array([[1.0], [1e-5]]), np.array([1e-4]))[1, 0] == 0


@quick
@given(seed=seeds, k=st.integers(2, 4))
def test_every_row_of_a_connected_graph_has_a_positive_value(seed, k):
    """Perron: so that clipping at zero cannot make all clusters of a row equal."""
    rng = np.random.default_rng(seed)
    _, vectors = leading(spd_kernel(rng, 12) - 0.1 * np.eye(12), k)
    assert (positive_shares(vectors, np.zeros(k))[:, 0] > 0).all()


def test_rows_without_a_positive_value_take_the_largest():
    """Clipped, both values of row 2 are zero, and argmax would say cluster 0."""
    vectors = np.array([[0.9, -0.1], [-0.1, 0.9], [-0.3, -0.1]])
    W = np.ones((3, 3))
    problem = KernelSpectrum(Graph(W, None), np.array([3.0, 2.0, 1.0]), vectors, np.zeros(2))
    result = information_maximization(problem)
    assert (result.shares[2] < 0).all()
    assert result.labels.tolist() == [0, 1, 1]
    assert result.status is Status.CONVERGED


# Equal answers


@quick
@given(seed=seeds, k=st.integers(2, 3))
def test_permuted_rows_permute_labels(seed, k):
    rng = np.random.default_rng(seed)
    X, _ = groups(rng, k, size=20, apart=5.0)
    order = rng.permutation(len(X))
    model = SMIC(k, affinity="gaussian", sigma=1.5)
    labels = fit_quietly(model, X).labels_[order]
    if np.unique(np.bincount(labels)).size < k:  # ties are numbered by the first row
        labels = np.argsort(cluster_order(labels, None, k))[labels]
    np.testing.assert_array_equal(fit_quietly(model, X[order]).labels_, labels)


@pytest.mark.parametrize(
    "affinity", ["local_scaling", "gaussian", "cosine_knn", "nearest_neighbors"]
)
def test_every_affinity_and_sparse_input(affinity, rng):
    X = np.abs(rng.normal(0, 0.3, (120, 4)))
    X[:60, 0] += 3
    X[60:, 1] += 3
    truth = np.repeat([0, 1], 60)
    model = SMIC(affinity=affinity)
    assert clustering_error(truth, model.fit(X).labels_) == 0.0
    assert clustering_error(truth, model.predict(X)) == 0.0
    labels = model.labels_
    np.testing.assert_array_equal(model.fit(sparse.csr_matrix(X)).labels_, labels)


def test_a_callable_is_its_matrix(rng):
    X, y = groups(rng, 3)
    function = partial(rbf_kernel, gamma=0.1)
    called = SMIC(3, affinity=function).fit(X)
    given_matrix = SMIC(3, affinity="precomputed").fit(function(X, X))
    np.testing.assert_array_equal(called.labels_, given_matrix.labels_)
    assert clustering_error(y, called.labels_) == 0.0
    np.testing.assert_array_equal(called.predict(X), called.labels_)


@pytest.mark.parametrize("affinity", ["local_scaling", "gaussian", "nearest_neighbors"])
@pytest.mark.parametrize("k", [2, 3])
def test_precomputed_equals_named(affinity, k, rng):
    X, _ = groups(rng, k, apart=5.0)
    params = {
        "local_scaling": {"graph": "knn"},
        "gaussian": {"sigma": 1.5, "self_loops": False},
        "nearest_neighbors": {},
    }[affinity]
    W, extension = make_similarity(affinity, **params).build(X)
    named = SMIC(k, affinity=affinity, sigma=params.get("sigma")).fit(X)
    matrix = SMIC(k, affinity="precomputed").fit(W)
    np.testing.assert_array_equal(named.labels_, matrix.labels_)
    assert named.objective_ == pytest.approx(matrix.objective_, rel=1e-12)
    X_new = groups(rng, k, apart=5.0)[0]
    np.testing.assert_allclose(
        named.decision_function(X_new), matrix.decision_function(extension(X_new)), atol=1e-10
    )


@pytest.mark.parametrize("n", [200, 1600])
def test_sparse_and_dense_graphs_agree(n, rng):
    """1600 rows are beyond LAPACK in both back ends."""
    X = rng.standard_normal((n, 20))
    X[: n // 2, 0] += 8
    W = local_scaling_similarity(X, graph="knn")
    one = SMIC(affinity="precomputed").fit(W)
    two = SMIC(affinity="precomputed").fit(W.toarray())
    np.testing.assert_array_equal(one.labels_, two.labels_)
    assert one.objective_ == pytest.approx(two.objective_, rel=1e-8)
    assert one.result_.residuals["eigenvectors"] < 1e-5
    np.testing.assert_array_equal(one.predict(W), two.predict(W.toarray()))


def test_float32_is_near_float64(rng):
    X, _ = groups(rng, 3)
    double = SMIC(3).fit(X)
    single = SMIC(3).fit(X.astype(np.float32))
    assert clustering_error(double.labels_, single.labels_) < 0.02
    assert single.objective_ == pytest.approx(double.objective_, rel=1e-3)


def test_the_unit_of_the_similarities_does_not_matter(rng):
    K = gaussian_similarity(groups(rng, 3)[0], sigma=2.0)
    model = SMIC(3, affinity="precomputed").fit(K)
    scores = model.decision_function(K[:5])
    for unit in (1e-30, 1e30):
        scaled = SMIC(3, affinity="precomputed").fit(unit * K)
        np.testing.assert_array_equal(scaled.labels_, model.labels_)
        np.testing.assert_allclose(scaled.decision_function(unit * K[:5]), scores, rtol=1e-6)


# Fits


@pytest.mark.parametrize("k", [1, 2, 3])
def test_scores_agree_with_predict(k, rng):
    X, y = groups(rng, k)
    model = SMIC(k).fit(X)
    assert clustering_error(y, model.labels_) == 0.0
    scores = model.decision_function(X)
    assert scores.shape == ((len(X),) if k == 2 else (len(X), k))
    chosen = scores > 0 if k == 2 else scores.argmax(axis=1)
    np.testing.assert_array_equal(model.predict(X), chosen)
    np.testing.assert_array_equal(model.predict(X[:3]), model.predict(X)[:3])
    assert model.eigenvalues_.shape == (k + 1,)
    assert model.n_iter_ == 1


def test_data_with_classes():
    digits = load("digits-3v8")
    assert clustering_error(digits.y, SMIC().fit(digits.X).labels_) < 0.05
    X, y = make_two_gaussians(300, random_state=0)
    model = SMIC().fit(X)
    X_new, y_new = make_two_gaussians(200, random_state=1)
    # Classes, not clusters up to a swap: labels of new rows are those of the old ones.
    swapped = int(np.mean(model.labels_ == y) < 0.5)
    assert np.mean(model.predict(X_new) == (y_new ^ swapped)) > 0.98


def test_fit_is_deterministic_and_leaves_the_input_alone(rng):
    X, _ = groups(rng, 3)
    K = gaussian_similarity(X, sigma=2.0)
    before = K.copy()
    one, two = (SMIC(3, affinity="precomputed", random_state=s).fit(K) for s in (0, 1))
    np.testing.assert_array_equal(one.result_.shares, two.result_.shares)
    one.predict(K)
    np.testing.assert_array_equal(K, before)
    again = pickle.loads(pickle.dumps(one))
    np.testing.assert_array_equal(again.predict(K), one.predict(K))


# What a graph cannot tell


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
    with pytest.warns(UserWarning, match="3 connected components of 4 to 6.*n_clusters=3") as said:
        model = SMIC(affinity="precomputed").fit(W)
    assert len(said) == 1
    assert model.result_.status is Status.DEGENERATE
    # The third component is out of sight: cluster 0, not what rounding says.
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
    model = SMIC(affinity="precomputed").fit(W)
    assert model.result_.status is Status.DEGENERATE
    assert not model.result_.is_certified(1e-6)
    assert clustering_error(np.repeat([0, 1], 5), model.labels_) == 0.0


def test_rows_out_of_sight_are_said():
    """A second component whose eigenvalues all lie below two of the first."""
    first = np.kron(np.array([[1.0, 0.5], [0.5, 1.0]]), np.ones((10, 10)))
    W = linalg.block_diag(first, 0.1 * np.ones((10, 10)))
    with pytest.warns(UserWarning, match="10 of 30 rows are out of sight of the 2 leading"):
        model = SMIC(affinity="precomputed").fit(W)
    assert model.result_.status is Status.DEGENERATE
    assert (model.labels_[20:] == 0).all()
    assert (model.predict(W[20:]) == 0).all()
    np.testing.assert_array_equal(
        SMIC(3, affinity="precomputed").fit(W).labels_[20:], np.full(10, 2)
    )


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_eigenvalues_below_zero_are_said_and_not_divided_by(n):
    """All but one eigenvalue of a complete graph without self-loops are -1."""
    rng = np.random.default_rng(0)
    W = 1 - np.eye(n) + 0.01 * np.diag(rng.random(n))
    exact = linalg.eigvalsh(W)[::-1]
    with pytest.warns(UserWarning, match=r"at most 1 group\(s\): eigenvalue 2 .* is -"):
        model = SMIC(affinity="precomputed").fit(W)
    np.testing.assert_allclose(model.eigenvalues_, exact[:3], atol=1e-12)
    assert model.result_.status is Status.DEGENERATE
    np.testing.assert_array_equal(model.result_.divisors, [1.0, 1.0])
    assert np.isfinite(model.decision_function(W)).all()
    # A row that is similar to itself is placed with itself.
    np.testing.assert_array_equal(model.predict(np.eye(n)), model.labels_)


def test_low_rank_kernels_are_said_and_not_divided_by(rng):
    A = rng.random((20, 2))
    with pytest.warns(UserWarning, match=r"at most 2 group\(s\): eigenvalue 3 of the sim"):
        model = SMIC(3, affinity="precomputed").fit(A @ A.T)
    assert model.result_.divisors.min() > 1e-3
    assert model.result_.status is Status.DEGENERATE
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SMIC(2, affinity="precomputed").fit(A @ A.T)


def test_stray_rows_are_said(rng):
    X = np.vstack([rng.standard_normal((300, 2)), [[500.0, 500.0]] * 12])
    W = local_scaling_similarity(X, graph="knn")
    with pytest.warns(UserWarning, match=r"2 connected components .*12 of 312"):
        SMIC(affinity="precomputed").fit(W)


# Bad input


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: SMIC(0), ValueError, "n_clusters must be at least 1, got 0"),
        (lambda: SMIC(2.5), TypeError, r"n_clusters must be an integer .* got 2\.5"),
        (lambda: SMIC(31), ValueError, "n_clusters=31 is more than the number of rows"),
        (lambda: SMIC(affinity="rbf"), ValueError, "'precomputed' or a recipe.*got 'rbf'"),
        (lambda: SMIC(affinity=3), TypeError, "object with a build method; got int"),
        (lambda: SMIC(affinity=GaussianSimilarity), TypeError, "not the class"),
        (lambda: SMIC(sigma=1.0), ValueError, r"sigma=1\.0 has no meaning"),
        (
            lambda: SMIC(affinity=rbf_kernel, n_neighbors=3),
            ValueError,
            "n_neighbors cannot be given with a callable",
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
    with pytest.raises(ValueError, match="cannot be given with affinity='precomputed'"):
        SMIC(affinity="precomputed", sigma=1.0).fit(K)
    with pytest.raises(ValueError, match="negative entries"):
        SMIC(affinity="precomputed").fit(K - 3)
    with pytest.raises(ValueError, match="must be symmetric"):
        SMIC(affinity="precomputed").fit(np.triu(K))
    model = SMIC(affinity="precomputed").fit(K)
    with pytest.raises(ValueError, match="row 1 of X has no positive similarity"):
        model.predict(np.vstack([K[0], np.zeros(10)]))
    with pytest.raises(ValueError, match="must not be negative"):
        model.predict(-K)


def test_no_similarity_at_all_is_refused():
    with (
        pytest.warns(UserWarning, match="connected components"),
        pytest.raises(ValueError, match="all similarities are zero"),
    ):
        SMIC(affinity="precomputed").fit(np.zeros((6, 6)))


def test_a_failed_refit_leaves_no_half_model(rng):
    X = rng.standard_normal((30, 2))
    model = SMIC().fit(X)
    with pytest.raises(ValueError, match="n_neighbors"):
        model.set_params(n_neighbors=30).fit(X)
    with pytest.raises(NotFittedError):
        model.predict(X)
