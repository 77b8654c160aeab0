"""SMIC: the printed rule, equivalent inputs, new rows."""

import pickle
import warnings
from functools import partial

import numpy as np
import pytest
from helpers.smic_rule import labels_by_the_paper, leading, spd_kernel
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import linalg, sparse
from sklearn.metrics.pairwise import rbf_kernel

from reproduction.datasets import load
from volmar import SMIC
from volmar.base.numbering import cluster_order
from volmar.baselines.smic import KernelSpectrum, information_maximization, positive_shares
from volmar.datasets import make_two_gaussians
from volmar.graphs import gaussian_similarity, local_scaling_similarity
from volmar.graphs.graph import Graph, make_similarity
from volmar.graphs.similarities import GaussianSimilarity
from volmar.metrics import clustering_error
from volmar.solvers import Status

quick = settings(deadline=None, max_examples=25)


seeds = st.integers(0, 10_000)


def fit_quietly(model, X):
    """Fit on random data, which may leave a cluster without rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return model.fit(X)


def new_labels_by_the_paper(S, values, vectors):
    signed = vectors * np.where(vectors.sum(axis=0) >= 0, 1.0, -1.0)
    below = values * np.maximum(0.0, signed).sum(axis=0)
    scores = np.maximum(0.0, S @ signed) / below
    return scores.argmax(axis=1), scores


def groups(rng, k=2, size=40, apart=8.0):
    centres = apart * np.vstack([np.zeros(2), np.eye(2), -np.eye(2)])[:k]
    return np.vstack([rng.normal(c, 1.0, (size, 2)) for c in centres]), np.repeat(range(k), size)


@quick
@given(seed=seeds, k=st.integers(1, 4))
def test_objective_is_the_optimum_of_equation_16(seed, k):
    """No orthonormal vectors give more information, and the eigenvectors give that reported."""
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
    """Eq. (17) uses K^2; at -lambda_1 it would separate every row from its neighbours."""
    n = 40
    ring = sparse.diags_array([np.ones(n - 1)] * 2, offsets=[-1, 1], format="csr")
    exact = linalg.eigvalsh(ring.toarray())
    model = SMIC(affinity="precomputed").fit(ring)
    np.testing.assert_allclose(model.eigenvalues_, exact[::-1][:3], atol=1e-9)
    assert exact[0] < -model.eigenvalues_[1]
    assert (np.diff(model.labels_) != 0).sum() <= 2


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
    # Smaller entries of a vector with an error of 1e-4 are not meaningful.
    assert positive_shares(np.array([[1.0], [1e-5]]), np.array([1e-4]))[1, 0] == 0


@quick
@given(seed=seeds, k=st.integers(2, 4))
def test_every_row_of_a_connected_graph_has_a_positive_value(seed, k):
    """Perron: so that clipping at zero cannot make all clusters of a row equal."""
    rng = np.random.default_rng(seed)
    _, vectors = leading(spd_kernel(rng, 12) - 0.1 * np.eye(12), k)
    assert (positive_shares(vectors, np.zeros(k))[:, 0] > 0).all()


def test_rows_without_a_positive_value_take_the_largest():
    """Clipped, both values of row 2 are zero, and argmax would return cluster 0."""
    vectors = np.array([[0.9, -0.1], [-0.1, 0.9], [-0.3, -0.1]])
    W = np.ones((3, 3))
    problem = KernelSpectrum(Graph(W, None), np.array([3.0, 2.0, 1.0]), vectors, np.zeros(2))
    result = information_maximization(problem)
    assert (result.shares[2] < 0).all()
    assert result.labels.tolist() == [0, 1, 1]
    assert result.status is Status.CONVERGED


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


@pytest.mark.parametrize("k", [1, 2, 3])
def test_scores_agree_with_predict(k, rng):
    X, y = groups(rng, k)
    model = SMIC(k).fit(X)
    assert clustering_error(y, model.labels_) == 0.0
    scores = model.decision_function(X)
    assert scores.shape == ((len(X),) if k <= 2 else (len(X), k))
    chosen = scores > 0 if k <= 2 else scores.argmax(axis=1)
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
    # Compared without matching clusters: labels of new rows are those of the old ones.
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


def test_remark_2_of_jmlr(rng):
    """Two clusters by the sign of alpha_1 sign(1'alpha_1) - alpha_2 sign(1'alpha_2)."""
    n_differ = 0
    for _ in range(20):
        K = spd_kernel(rng, 15)
        values, vectors = leading(K, 2)
        h = sum(s * v * np.sign(v.sum()) for s, v in zip((1, -1), vectors.T, strict=True))
        model = fit_quietly(SMIC(affinity="precomputed", rounding="difference"), K)
        assert clustering_error((h <= 0).astype(int), model.labels_) == 0
        # New rows: the eigenvectors extended by K / lambda, up to a factor of each row.
        scores = model.decision_function(K[:4])
        extended = K[:4] @ (vectors * np.sign(vectors.sum(axis=0)) / values)
        expected = (extended[:, 1] - extended[:, 0]) * values[0] / K[:4].sum(axis=1)
        np.testing.assert_allclose(np.abs(scores), np.abs(expected), rtol=1e-8)
        np.testing.assert_array_equal(model.predict(K), model.labels_)
        posterior = fit_quietly(SMIC(affinity="precomputed"), K)
        n_differ += clustering_error(posterior.labels_, model.labels_) > 0
    assert n_differ > 0
    with pytest.raises(ValueError, match=r"^rounding='difference'"):
        SMIC(3, rounding="difference").fit(rng.standard_normal((20, 2)))
    with pytest.raises(ValueError, match="rounding must be one of"):
        SMIC(rounding="random").fit(rng.standard_normal((20, 2)))


@pytest.mark.parametrize("rounding", ["posterior", "difference"])
def test_rows_that_coincide_are_in_one_cluster(rng, rounding):
    """In the graph of nearest neighbours, one of ten copies has the edge to the other point."""
    X = np.repeat([[0.0, 1.0], [1.0, 0.2]], 10, axis=0)
    model = SMIC().fit(X)
    assert clustering_error(np.repeat([0, 1], 10), model.labels_) == 0
    assert model.result_.status is Status.CONVERGED
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    for copies in (2, 5, 11):
        X = np.repeat(rng.integers(0, 4, (12, 2)).astype(float), copies, axis=0)
        for k in (2,) if rounding == "difference" else (2, 3):
            labels = fit_quietly(SMIC(k, rounding=rounding), X).labels_
            for x in np.unique(X, axis=0):
                assert np.ptp(labels[(x == X).all(axis=1)]) == 0


def test_an_eigenvector_of_copies_alone_is_said():
    points = np.array([0, 0, 1, 1])
    vectors = np.array([[0.5, 0.5], [0.5, -0.5], [0.5, 0.5], [0.5, -0.5]])
    problem = KernelSpectrum(
        Graph(np.ones((4, 4)), None), np.array([3.0, 2.0, 1.0]), vectors, np.zeros(2), points
    )
    with pytest.warns(UserWarning, match="n_clusters=2"):
        result = information_maximization(problem)
    assert result.status is Status.DEGENERATE
    assert "only separates identical rows" in problem.words(0)
    np.testing.assert_array_equal(result.labels, 0)
