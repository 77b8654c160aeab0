"""NormalizedSpectralClustering and NormalizedCut: certificates, brute force, new rows."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg, sparse
from sklearn.cluster import SpectralClustering
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from reproduction.datasets import load
from volmar import NormalizedCut, NormalizedSpectralClustering
from volmar.baselines.spectral import cuts_along
from volmar.datasets import make_two_circles, make_two_moons
from volmar.graphs import gaussian_similarity, local_scaling_similarity
from volmar.graphs.similarities import GaussianSimilarity
from volmar.metrics import clustering_error, normalized_cut
from volmar.solvers import Status

BOTH = [NormalizedSpectralClustering, NormalizedCut]


def random_graph(rng, n):
    W = rng.random((n, n)) * (rng.random((n, n)) < 0.7)
    W = np.maximum(W, W.T)
    W[np.arange(n - 1), np.arange(1, n)] = W[np.arange(1, n), np.arange(n - 1)] = 0.5
    return W


@given(seed=st.integers(0, 10_000), as_sparse=st.booleans())
@settings(max_examples=40, deadline=None)
def test_cuts_along_is_the_definition(seed, as_sparse):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 20))
    W = random_graph(rng, n)
    order = rng.permutation(n)
    cuts = cuts_along(sparse.csr_array(W) if as_sparse else W, order)
    for t in range(n - 1):
        labels = np.ones(n, dtype=int)
        labels[order[: t + 1]] = 0
        assert cuts[t] == pytest.approx(normalized_cut(W, labels))


@given(seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_gap_certifies_against_every_cut(seed):
    rng = np.random.default_rng(seed)
    W = random_graph(rng, 9)
    best = min(
        normalized_cut(W, np.array([0, *labels]))
        for labels in product([0, 1], repeat=8)
        if any(labels)
    )
    model = NormalizedCut(affinity="precomputed").fit(W)
    assert model.objective_ == pytest.approx(normalized_cut(W, model.labels_))
    assert best <= model.objective_ + 1e-12
    assert model.objective_ - model.result_.gap <= best + 1e-9
    assert model.result_.residuals["eigenvectors"] < 1e-8
    spectral = NormalizedSpectralClustering(affinity="precomputed", random_state=0).fit(W)
    assert spectral.objective_ - spectral.result_.gap <= best + 1e-9


def test_ky_fan_bound_holds_for_three_clusters(rng):
    W = random_graph(rng, 8)
    model = NormalizedSpectralClustering(3, affinity="precomputed", random_state=0).fit(W)
    bound = model.objective_ - model.result_.gap
    for labels in product(range(3), repeat=8):
        if len(set(labels)) == 3:
            assert normalized_cut(W, np.array(labels)) >= bound - 1e-9


def test_eigenvalues_are_those_of_the_laplacian(rng):
    X = rng.standard_normal((50, 3))
    W = gaussian_similarity(X, sigma=1.0, self_loops=False)
    root = 1 / np.sqrt(W.sum(axis=1))
    exact = linalg.eigvalsh(np.eye(50) - root[:, None] * W * root)
    model = NormalizedSpectralClustering(3, affinity="gaussian", sigma=1.0, random_state=0).fit(X)
    np.testing.assert_allclose(model.eigenvalues_, exact[:4], atol=1e-10)
    np.testing.assert_allclose(np.linalg.norm(model.embedding_, axis=1), 1.0)
    cut = NormalizedCut(affinity="gaussian", sigma=1.0).fit(X)
    np.testing.assert_allclose(cut.eigenvalues_, exact[:2], atol=1e-10)


def test_agrees_with_scikit_learn_on_the_same_graph():
    X = load("digits-3v8").X
    W = local_scaling_similarity(X)
    ours = NormalizedSpectralClustering(affinity="precomputed", random_state=0).fit(W)
    theirs = SpectralClustering(2, affinity="precomputed", random_state=0).fit(W)
    assert clustering_error(theirs.labels_, ours.labels_) < 0.02


@pytest.mark.parametrize("method", BOTH)
@pytest.mark.parametrize("make", [make_two_moons, make_two_circles])
def test_bent_clusters_and_new_rows(method, make):
    X, y = make(400, random_state=0)
    model = method(random_state=0).fit(X)
    assert clustering_error(y, model.labels_) < 0.01
    X_new, y_new = make(300, random_state=1)
    assert clustering_error(y_new, model.predict(X_new)) < 0.02
    assert np.mean(model.predict(X) == model.labels_) > 0.98
    # The label of a new row does not depend on the other new rows or their order.
    np.testing.assert_array_equal(model.predict(X_new)[:5], model.predict(X_new[:5]))


@pytest.mark.parametrize("method", BOTH)
@pytest.mark.parametrize("affinity", ["local_scaling", "gaussian", "cosine_knn"])
def test_every_affinity_and_sparse_input(method, affinity, rng):
    X = np.abs(np.vstack([rng.normal(0, 0.3, (60, 4)), rng.normal(0, 0.3, (60, 4))]))
    X[:60, 0] += 3
    X[60:, 1] += 3
    model = method(affinity=affinity, random_state=0)
    truth = np.repeat([0, 1], 60)
    assert clustering_error(truth, model.fit(X).labels_) == 0.0
    assert clustering_error(truth, model.predict(X)) == 0.0
    assert clustering_error(truth, model.fit(sparse.csr_matrix(X)).labels_) == 0.0


@pytest.mark.parametrize("method", BOTH)
def test_dense_and_sparse_graphs_agree(method, rng):
    X, _ = make_two_moons(300, random_state=0)
    W = local_scaling_similarity(X, graph="knn")
    one = method(affinity="precomputed", random_state=0).fit(W)
    two = method(affinity="precomputed", random_state=0).fit(W.toarray())
    assert clustering_error(one.labels_, two.labels_) == 0.0
    assert one.objective_ == pytest.approx(two.objective_, abs=1e-9)


@pytest.mark.parametrize("method", BOTH)
def test_precomputed_predict_equals_the_recipe(method, rng):
    X, _ = make_two_moons(200, random_state=0)
    recipe = GaussianSimilarity(sigma=0.2)
    W, extension = recipe.build(X)
    X_new, _ = make_two_moons(50, random_state=1)
    one = method(affinity=recipe, random_state=0).fit(X)
    two = method(affinity="precomputed", random_state=0).fit(W)
    np.testing.assert_allclose(
        one.decision_function(X_new), two.decision_function(extension(X_new)), atol=1e-8
    )


@pytest.mark.parametrize("n_clusters", [2, 3])
def test_scores_agree_with_predict(n_clusters, rng):
    X = rng.standard_normal((90, 2)) + 6 * np.repeat(np.eye(3, 2), 30, axis=0)
    model = NormalizedSpectralClustering(n_clusters, random_state=0).fit(X)
    scores = model.decision_function(X)
    assert scores.shape == ((90,) if n_clusters == 2 else (90, 3))
    chosen = scores > 0 if n_clusters == 2 else scores.argmax(axis=1)
    np.testing.assert_array_equal(model.predict(X), chosen)


@given(seed=st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
@pytest.mark.parametrize("method", BOTH)
def test_permuted_rows_permute_labels(method, seed):
    rng = np.random.default_rng(seed)
    X = np.vstack([rng.normal(0, 1, (25, 2)), rng.normal(5, 1, (25, 2))])
    order = rng.permutation(50)
    model = method(affinity="gaussian", sigma=1.5, random_state=0)
    labels = model.fit(X).labels_
    assert clustering_error(model.fit(X[order]).labels_, labels[order]) == 0.0


@pytest.mark.parametrize("method", BOTH)
def test_float32_is_near_float64(method):
    X, _ = make_two_moons(200, random_state=0)
    double = method(random_state=0).fit(X)
    single = method(random_state=0).fit(X.astype(np.float32))
    assert clustering_error(double.labels_, single.labels_) < 0.01
    assert single.objective_ == pytest.approx(double.objective_, rel=1e-3)


@pytest.mark.parametrize("method", BOTH)
def test_stray_components_are_reported_in_one_warning(method, rng):
    X = np.vstack([rng.standard_normal((300, 2)), [[500.0, 500.0]] * 12])
    W = local_scaling_similarity(X, graph="knn")
    model = method(affinity="precomputed", random_state=0)
    with pytest.warns(UserWarning, match="2 connected components") as caught:
        model.fit(W)
    assert len(caught) == 1
    assert model.objective_ == pytest.approx(0.0, abs=1e-9)
    assert sorted(np.bincount(model.labels_)) == [12, 300]


def test_more_components_than_clusters_is_degenerate():
    W = np.kron(np.eye(3), np.ones((5, 5)))
    with pytest.warns(UserWarning, match="n_clusters=3"):
        model = NormalizedCut(affinity="precomputed").fit(W)
    assert model.result_.status is Status.DEGENERATE
    assert model.objective_ == pytest.approx(0.0, abs=1e-9)


def test_min_cluster_size_is_a_floor(rng):
    W = random_graph(rng, 30)
    W[0, 1:] = W[1:, 0] = 0.0
    W[0, 1] = W[1, 0] = 1e-4
    assert np.bincount(NormalizedCut(affinity="precomputed").fit(W).labels_).min() == 1
    for size, least in ((5, 5), (0.3, 9), (0.5, 15)):
        model = NormalizedCut(affinity="precomputed", min_cluster_size=size).fit(W)
        assert np.bincount(model.labels_).min() >= least


def test_equal_coordinates_are_not_cut_apart():
    """Two twins of each node: any cut between twins is a cut between equal projections."""
    X = np.repeat(np.array([[0.0], [1.0], [5.0], [6.0]]), 5, axis=0)
    model = NormalizedCut(affinity="gaussian", sigma=1.0).fit(X)
    assert all(len(set(model.labels_[5 * i : 5 * i + 5])) == 1 for i in range(4))
    assert clustering_error(np.repeat([0, 1], 10), model.labels_) == 0.0


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: NormalizedCut(min_cluster_size=0), ValueError, "min_cluster_size must be at le"),
        (lambda: NormalizedCut(min_cluster_size=0.7), ValueError, "at most 0.5, got 0.7"),
        (lambda: NormalizedCut(min_cluster_size=20), ValueError, "Lower it to at most 15"),
        (
            lambda: NormalizedCut(affinity="rbf"),
            ValueError,
            "^affinity .*got 'rbf'",
        ),
        (lambda: NormalizedCut(sigma=1.0), ValueError, "^sigma=1.0"),
        (
            lambda: NormalizedCut(affinity="gaussian", n_neighbors=3),
            ValueError,
            "Leave it out, or use affinity='density_scaling' or 'local_scaling'",
        ),
        (
            lambda: NormalizedCut(affinity=GaussianSimilarity(), sigma=2.0),
            ValueError,
            "^sigma .*GaussianSimilarity",
        ),
        (lambda: NormalizedCut(affinity="gaussian", sigma=-1), ValueError, "sigma"),
        (lambda: NormalizedCut(n_neighbors=30), ValueError, "n_neighbors"),
        (lambda: NormalizedSpectralClustering(n_init=0), ValueError, "n_init must be at least 1"),
        (
            lambda: NormalizedSpectralClustering(affinity="precomputed"),
            ValueError,
            "must be square",
        ),
    ],
)
def test_bad_parameters(rng, make, error, message):
    with pytest.raises(error, match=message):
        make().fit(rng.standard_normal((30, 3)))


def test_bad_precomputed(rng):
    W = random_graph(rng, 10)
    with pytest.raises(ValueError, match=r"^sigma .*affinity='precomputed'"):
        NormalizedCut(affinity="precomputed", sigma=1.0).fit(W)
    with pytest.raises(ValueError, match="negative"):
        NormalizedCut(affinity="precomputed").fit(-W)
    model = NormalizedCut(affinity="precomputed").fit(W)
    with pytest.raises(ValueError, match=r"^row 1 of X"):
        model.predict(np.vstack([W[0], np.zeros(10)]))
    with pytest.raises(ValueError, match="negative entries"):
        model.predict(-W)


def test_no_cut_that_leaves_enough_rows():
    X = np.array([[0.0]] * 18 + [[1.0], [2.0]])
    with pytest.raises(
        ValueError,
        match=r"5 row\(s\).*Lower min_cluster_size",
    ):
        NormalizedCut(affinity="gaussian", sigma=1.0, min_cluster_size=5).fit(X)


@pytest.mark.filterwarnings("ignore:.*The graph holds at most")
@pytest.mark.parametrize("n", [2, 3, 4, 5, 60])
def test_predict_does_not_swap_where_eigenvalues_exceed_one(n):
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(0, 0.1, (n // 2, 2)), rng.normal(8, 0.1, (n - n // 2, 2))])
    for model in (
        NormalizedSpectralClustering(random_state=0),
        NormalizedSpectralClustering(affinity="gaussian", random_state=0),
    ):
        np.testing.assert_array_equal(model.fit(X).predict(X), model.labels_)


def test_more_clusters_than_the_graph_holds_is_said(rng):
    X = np.repeat(rng.normal(0, 5, (3, 2)), 20, axis=0) + rng.normal(0, 1e-6, (60, 2))
    model = NormalizedSpectralClustering(5, affinity="gaussian", sigma=1.0, random_state=0)
    with pytest.warns(ConvergenceWarning, match="holds at most [1-4] group"):
        model.fit(X)
    assert model.result_.status is Status.DEGENERATE


def test_one_far_row_does_not_destroy_the_cut(rng):
    """The absolute error of Lanczos divided by the root of a degree of 1e-100 is arbitrary."""
    groups = rng.normal(0, 1, (1600, 2))
    groups[800:, 0] += 8
    for far in ([[4.0, 25.0]], [[4.0, 25.0], [4.5, 25.0]]):
        model = NormalizedCut(affinity="gaussian", sigma=1.0).fit(np.vstack([groups, far]))
        W = gaussian_similarity(np.vstack([groups, far]), sigma=1.0, self_loops=False)
        assert model.objective_ < 1e-3
        assert model.objective_ == pytest.approx(normalized_cut(W, model.labels_), rel=1e-6)


@pytest.mark.filterwarnings("ignore:.*The graph has")
@pytest.mark.parametrize("n_clusters", [2, 3])
def test_gap_holds_with_an_isolated_node(rng, n_clusters):
    W = np.zeros((8, 8))
    W[:7, :7] = random_graph(rng, 7)
    best = min(
        normalized_cut(W, np.array(labels))
        for labels in product(range(n_clusters), repeat=8)
        if len(set(labels)) == n_clusters
    )
    model = NormalizedSpectralClustering(n_clusters, affinity="precomputed", random_state=0)
    assert model.fit(W).objective_ - model.result_.gap <= best + 1e-9
    if n_clusters == 2:
        cut = NormalizedCut(affinity="precomputed").fit(W)
        assert cut.objective_ - cut.result_.gap <= best + 1e-9
        assert cut.objective_ == pytest.approx(normalized_cut(W, cut.labels_))


def test_extension_reproduces_the_coordinate(rng):
    """D^-1 W y / (1 - lambda) = y: on the training matrix the extension is exact."""
    W = random_graph(rng, 30) + np.eye(30)
    model = NormalizedCut(affinity="precomputed").fit(W)
    result = model.result_
    expected = result.sign * (result.coordinate - result.threshold)
    np.testing.assert_allclose(model.decision_function(W), expected, atol=1e-9)


@pytest.mark.parametrize("method", BOTH)
def test_float32_beyond_lapack(method):
    rng = np.random.default_rng(0)
    far = [rng.normal(c, 0.1, (12, 2)) for c in (60.0, -60.0)]
    X = np.vstack([rng.normal(0, 1, (1000, 2)), *far])
    W = local_scaling_similarity(X.astype(np.float32), graph="knn")
    model = method(affinity="precomputed", random_state=0)
    with pytest.warns(UserWarning, match="3 connected components"):
        model.fit(W)
    assert model.objective_ == pytest.approx(0.0, abs=1e-6)


def test_a_failed_refit_leaves_no_half_model(rng):
    X = rng.standard_normal((30, 2))
    model = NormalizedCut().fit(X)
    model.set_params(n_clusters=1).fit(X)
    assert not hasattr(model, "eigenvalues_")
    model.set_params(n_clusters=2, min_cluster_size=20)
    with pytest.raises(ValueError, match="Lower it"):
        model.fit(X)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_magnitudes_whose_squares_do_not_fit_are_refused(rng):
    X = rng.standard_normal((30, 2))
    for scale in (1e160, 1e-170):
        with pytest.raises(ValueError, match=r"^X .*StandardScaler"):
            NormalizedCut().fit(scale * X)
    with pytest.raises(ValueError, match="does not fit float32"):
        NormalizedCut().fit((1e-20 * X).astype(np.float32))
    with pytest.raises(ValueError, match="largest magnitude"):
        NormalizedCut().fit(X).predict(X + 1e200)
    with pytest.raises(TypeError, match=r"not a class. Use GaussianSimilarity\(\)"):
        NormalizedCut(affinity=GaussianSimilarity).fit(X)
