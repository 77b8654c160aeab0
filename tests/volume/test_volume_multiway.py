"""More than two clusters by SoftLabelMVC: fields, their ascent, clusters that never vanish."""

import itertools
import pickle
import warnings

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning

from volmar import SoftLabelMVC
from volmar.graphs import (
    density_scaling_similarity,
    gaussian_similarity,
    laplacian,
    local_scaling_similarity,
)
from volmar.graphs.graph import Graph
from volmar.metrics import clustering_error, normalized_cut
from volmar.operators import as_operator
from volmar.operators.dense import DenseOperator
from volmar.operators.protocol import EigenPairs, Solution
from volmar.solvers import Status
from volmar.volume.multiway import (
    MultiwayProblem,
    OneAgainstRest,
    _part_of,
    reassigned,
    refine_jointly,
    spectral_start,
)

SEEDS = st.integers(0, 2**31 - 1)


def random_matrix(rng, n):
    """A positive definite Q of condition up to 1e4, its own axes."""
    basis = np.linalg.qr(rng.standard_normal((n, n)))[0]
    return (basis * 10 ** rng.uniform(-3, 1, n)) @ basis.T


def random_labels(rng, n, k):
    return rng.permutation(np.concatenate([np.arange(k), rng.integers(k, size=n - k)]))


def sides(labels, k):
    return np.where(labels[:, None] == np.arange(k), 1.0, -1.0)


def quiet_fit(model, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # components of the graph
        return model.fit(X)


def blobs(k=5, n=400, seed=0):
    centers = 6 * np.random.default_rng(seed).standard_normal((k, 6))
    return make_blobs(n, centers=centers, random_state=seed)


def overlapping():
    rng = np.random.default_rng(2)
    centers = 1.6 * rng.standard_normal((4, 8))
    y = rng.integers(4, size=500)
    return centers[y] + rng.standard_normal((500, 8)), y


# ------------------------------------------------------------------ the fields


@pytest.mark.parametrize("balance", [0.0, 0.2, 1.0, 100.0])
def test_fields_solve_the_papers_program(balance):
    """Comparison with cvxpy, which does not use the closed form."""
    rng = np.random.default_rng(0)
    n, k = 14, 3
    Q, labels = random_matrix(rng, n), random_labels(rng, n, k)
    fields = OneAgainstRest(as_operator(Q), k, balance)(labels)
    for j, y in enumerate(sides(labels, k).T):
        x = cp.Variable(n)
        constraints = [y @ x == np.sqrt(n), cp.abs(cp.sum(x)) <= balance]
        value = cp.Problem(cp.Minimize(cp.quad_form(x, cp.psd_wrap(Q))), constraints).solve(
            solver=cp.CLARABEL
        )
        assert fields.roughness[j] == pytest.approx(value, rel=1e-6)
        ours = fields.x[:, j] * np.sqrt(fields.roughness[j])
        np.testing.assert_allclose(ours, x.value, atol=1e-4 * np.abs(ours).max())
        assert y @ ours == pytest.approx(np.sqrt(n), rel=1e-9)
        assert abs(ours.sum()) <= balance + 1e-9
    np.testing.assert_allclose(np.einsum("ij,ij->j", fields.x, Q @ fields.x), 1.0, rtol=1e-9)
    assert fields.residual(as_operator(Q)) < 1e-9


@given(SEEDS, st.integers(2, 6))
@settings(max_examples=40, deadline=None)
def test_balanced_agreement_is_the_sum_of_square_roots(seed, k):
    rng = np.random.default_rng(seed)
    n = k + int(rng.integers(1, 20))
    Q, labels = random_matrix(rng, n), random_labels(rng, n, k)
    K = np.linalg.inv(Q)
    K -= np.outer(K.sum(axis=1), K.sum(axis=0)) / K.sum()
    Z = np.eye(k)[labels]
    expected = 2 * np.sqrt(np.einsum("ij,il,lj->j", Z, K, Z)).sum()
    fields = OneAgainstRest(as_operator(Q), k, 0.0)(labels)
    assert fields.agreement == pytest.approx(expected, rel=1e-7)
    np.testing.assert_allclose(fields.x.sum(axis=0), 0.0, atol=1e-7 * np.abs(fields.x).max())


def test_changed_labels_give_the_fields_of_a_fresh_step():
    X, _ = blobs()
    operator = as_operator(laplacian(local_scaling_similarity(X, graph="knn")), shift=1 / 400)
    rng = np.random.default_rng(0)
    step = OneAgainstRest(operator, 5, 0.0)
    labels = random_labels(rng, 400, 5)
    for n_changes in (400, 40, 3, 0):
        labels = labels.copy()
        labels[rng.choice(400, n_changes, replace=False)] = rng.integers(5, size=n_changes)
        fresh = OneAgainstRest(operator, 5, 0.0)(labels)
        np.testing.assert_allclose(step(labels).x, fresh.x, atol=1e-6 * np.abs(fresh.x).max())


class OnlyOnes(DenseOperator):
    """An operator whose inverse is the matrix of ones to rounding."""

    def solve(self, shift, block, *, rtol=1e-8):
        return Solution(np.ones_like(block) * np.sum(block, axis=0), 0.0, 0, "made up")


def test_a_matrix_that_cannot_tell_a_cluster_is_refused():
    with pytest.raises(ValueError, match="balance=0"):
        OneAgainstRest(OnlyOnes(np.eye(9)), 3, 0.0)(np.arange(9) % 3)


# ------------------------------------------------------------------ the ascent


@given(SEEDS, st.integers(2, 6), st.sampled_from([0.0, 1e6]))
@settings(max_examples=60, deadline=None)
def test_every_part_of_the_moves_raises_the_agreement(seed, k, balance):
    """The claim of refine_jointly, for a balance of 0 and an idle one."""
    rng = np.random.default_rng(seed)
    n = k + int(rng.integers(2, 25))
    step = OneAgainstRest(as_operator(random_matrix(rng, n)), k, balance)
    labels = random_labels(rng, n, k)
    for _ in range(6):
        before = step(labels)
        largest = np.argmax(before.x, axis=1)
        new = np.where(rng.random(n) < rng.random(), largest, labels)
        if np.bincount(new, minlength=k).min() == 0:
            new = reassigned(before.x, labels)[0]
        assert step(new).agreement >= before.agreement * (1 - 1e-9)
        labels = new


@given(SEEDS, st.integers(2, 5), st.sampled_from([0.0, 0.1, 1.0, 1e6]))
@settings(max_examples=40, deadline=None)
def test_refinement_never_lowers_the_agreement_nor_loses_a_cluster(seed, k, balance):
    rng = np.random.default_rng(seed)
    n = k + int(rng.integers(0, 30))
    step = OneAgainstRest(as_operator(random_matrix(rng, n)), k, balance)
    labels = random_labels(rng, n, k)
    found = refine_jointly(step, labels, max_iter=12)
    assert np.all(np.diff(found.merits) > 0)
    assert len(found.visited) == len(found.merits) + 1
    assert np.bincount(found.labels, minlength=k).min() > 0
    np.testing.assert_array_equal(found.visited[0], labels)
    np.testing.assert_array_equal(found.visited[-1], found.labels)
    if not found.n_held:
        np.testing.assert_array_equal(found.labels, np.argmax(found.fields.x, axis=1))


def test_the_best_of_all_labellings_stays():
    """By brute force: the maximum of the agreement is a fixed point, and nothing lies above it."""
    rng = np.random.default_rng(3)
    n, k = 8, 3
    step = OneAgainstRest(as_operator(random_matrix(rng, n)), k, 0.0)
    every = [
        np.array(labels)
        for labels in itertools.product(range(k), repeat=n)
        if len(set(labels)) == k and labels[0] == 0
    ]
    best = max(every, key=lambda labels: step(labels).agreement)
    found = refine_jointly(step, best)
    np.testing.assert_array_equal(found.labels, best)
    assert found.settled
    top = step(best).agreement
    for seed in range(10):
        start = random_labels(np.random.default_rng(seed), n, k)
        assert refine_jointly(step, start).merits[-1] <= top * (1 + 1e-9)


def test_rows_of_a_cluster_that_would_vanish_stay():
    # Clusters 1 and 2 lose their row to 0, which loses both of its own to 1.
    x = np.array([[0.0, 2.0, 1.0], [0.0, 2.0, 1.0], [3.0, 1.0, 0.0], [3.0, 0.0, 1.0]])
    labels = np.array([0, 0, 1, 2])
    new, n_held = reassigned(x, labels)
    np.testing.assert_array_equal(new, [1, 1, 0, 2])
    assert n_held == 1
    # Here holding 1 leaves 0 empty, whose rows then stay as well.
    x = np.array([[0.0, 0.0, 2.0], [3.0, 0.0, 0.0], [0.0, 0.0, 3.0]])
    new, n_held = reassigned(x, np.array([0, 1, 2]))
    np.testing.assert_array_equal(new, [0, 1, 2])
    assert n_held == 2
    x = np.eye(3)
    assert reassigned(x, np.array([2, 1, 0]))[1] == 0


def test_a_cluster_held_open_is_said_in_the_status():
    """A free balance lets the trivial mode decide, and one cluster would take all rows."""
    X, _ = overlapping()
    with pytest.warns(ConvergenceWarning, match="DEGENERATE"):
        model = SoftLabelMVC(4, balance=1e3, random_state=0).fit(X)
    assert set(model.labels_) == {0, 1, 2, 3}
    assert model.result_.n_held > 0
    assert model.result_.status is Status.DEGENERATE
    assert model.degenerate_


# ------------------------------------------------------------------ the estimator


def test_blobs_are_found_and_certified():
    X, y = blobs(6, 600, seed=1)
    model = quiet_fit(SoftLabelMVC(6, n_neighbors=12, random_state=0), X)
    assert clustering_error(y, model.labels_) == 0
    result = model.result_
    assert model.h_.shape == model.field_.shape == (600, 6)
    np.testing.assert_allclose(np.linalg.norm(model.h_, axis=0), 1.0)
    np.testing.assert_allclose(model.balance_, model.h_.sum(axis=0))
    np.testing.assert_array_equal(model.labels_, np.argmax(model.field_, axis=1))
    assert max(result.residuals.values()) < 1e-3
    assert result.n_iter == len(result.agreement) == len(result.history) - 1


def test_gap_residuals_and_history_can_be_recomputed():
    X, y = overlapping()
    W = local_scaling_similarity(X, graph="knn")
    rng = np.random.default_rng(0)
    poor = np.where(rng.random(500) < 0.3, rng.integers(4, size=500), y)
    model = SoftLabelMVC(4, affinity="precomputed", init=poor, random_state=0).fit(W)
    result = model.result_
    assert result.status is Status.CONVERGED
    assert model.n_moved_ > 0
    assert np.sum(result.start != model.labels_) == model.n_moved_
    assert model.objective_ == pytest.approx(normalized_cut(W, model.labels_))
    assert result.history[0] == pytest.approx(normalized_cut(W, result.start))
    L = laplacian(W).toarray()
    values = np.linalg.eigvalsh(L)
    assert result.gap == pytest.approx(model.objective_ - values[:4].sum(), abs=1e-8)
    np.testing.assert_allclose(model.eigenvalues_, values[:5] + 1 / 500, atol=1e-8)
    # By the optimality conditions, Q x_j is a combination of the labels before the last step and
    # of ones: two values per column, up to the accuracy of the solves.
    image = (L + np.eye(500) / 500) @ model.field_
    for j in range(4):
        high = image[:, j] > (image[:, j].min() + image[:, j].max()) / 2
        rest = np.where(high, image[high, j].mean(), image[~high, j].mean()) - image[:, j]
        assert np.linalg.norm(rest) <= 1e-3 * np.linalg.norm(image[:, j])
        assert np.mean(high == (model.labels_ == j)) > 0.99


def test_refinement_lowers_the_cut_of_a_poor_start():
    X, y = overlapping()
    W = local_scaling_similarity(X, graph="knn")
    operator = as_operator(laplacian(W), shift=1 / 500)
    rng = np.random.default_rng(0)
    poor = np.where(rng.random(500) < 0.3, rng.integers(4, size=500), y)
    found = refine_jointly(OneAgainstRest(operator, 4, 0.0), poor)
    assert normalized_cut(W, found.labels) < 0.5 * normalized_cut(W, poor)
    assert clustering_error(y, found.labels) < clustering_error(y, poor)


def test_one_step_is_the_argmax_of_the_starts_fields():
    X, _ = overlapping()
    W = local_scaling_similarity(X, graph="knn")
    model = SoftLabelMVC(4, affinity="precomputed", max_iter=1, random_state=0).fit(W)
    Q = laplacian(W).toarray() + np.eye(500) / 500
    K = np.linalg.inv(Q)
    K -= np.outer(K.sum(axis=1), K.sum(axis=0)) / K.sum()
    fields = K @ np.eye(4)[model.result_.start]
    fields /= np.sqrt(np.einsum("ij,ij->j", fields, Q @ fields))
    np.testing.assert_allclose(model.field_, fields, atol=1e-4 * np.abs(fields).max())
    assert np.mean(model.labels_ == np.argmax(fields, axis=1)) > 0.998
    assert model.n_iter_ == 1
    assert model.result_.status is Status.CONVERGED


def test_permuting_rows_permutes_labels():
    X, _ = blobs()
    order = np.random.default_rng(1).permutation(400)
    one, two = (quiet_fit(SoftLabelMVC(5, random_state=0), rows) for rows in (X, X[order]))
    assert clustering_error(one.labels_[order], two.labels_) == 0


def test_new_rows_and_training_rows_are_placed_by_the_fields():
    X, y = overlapping()
    model = SoftLabelMVC(4, random_state=0).fit(X[:400])
    scores = model.decision_function(X[400:])
    assert scores.shape == (100, 4)
    np.testing.assert_array_equal(model.predict(X[400:]), np.argmax(scores, axis=1))
    assert clustering_error(model.labels_, model.predict(X[:400])) < 0.05
    assert clustering_error(y[400:], model.predict(X[400:])) < 0.15
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X[400:]), model.predict(X[400:]))
    assert again.degenerate_ is model.degenerate_ is False


def test_sparse_rows_and_given_similarities_are_the_same():
    X, _ = overlapping()
    dense = SoftLabelMVC(4, random_state=0).fit(X)
    rows = SoftLabelMVC(4, random_state=0).fit(sparse.csr_matrix(X))
    assert clustering_error(dense.labels_, rows.labels_) == 0
    W = density_scaling_similarity(X)
    for matrix in (W, W.toarray()):
        given_W = SoftLabelMVC(4, affinity="precomputed", random_state=0).fit(matrix)
        assert clustering_error(dense.labels_, given_W.labels_) == 0


def test_any_positive_definite_matrix_is_honoured():
    X, y = blobs(4, 200)
    W = gaussian_similarity(X, sigma="mean/4")
    named = quiet_fit(SoftLabelMVC(4, affinity="precomputed", random_state=0), W)
    same = laplacian(W) + np.eye(200) / 200
    for Q in (same, as_operator(same), lambda W: laplacian(W) + np.eye(200) / 200):
        model = quiet_fit(SoftLabelMVC(4, affinity="precomputed", Q=Q, random_state=0), W)
        assert clustering_error(named.labels_, model.labels_) == 0
        assert np.isnan(model.result_.gap)
    kernel = quiet_fit(SoftLabelMVC(4, affinity="precomputed", Q="kernel", random_state=0), W)
    assert clustering_error(y, kernel.labels_) < 0.05
    with pytest.raises(ValueError, match="Q must be positive definite"):
        quiet_fit(SoftLabelMVC(4, affinity="precomputed", Q=same - np.eye(200)), W)


# ------------------------------------------------------------------ never fewer clusters


@given(st.data(), SEEDS)
@settings(max_examples=60, deadline=None)
def test_there_are_as_many_clusters_as_asked_for(data, seed):
    rng = np.random.default_rng(seed)
    k = data.draw(st.integers(3, 7))
    n = data.draw(st.integers(k, 30))
    X = rng.standard_normal((n, 2)).round(data.draw(st.integers(0, 3)))
    X[:k, 0] += 10 * np.arange(k)  # k different rows at least
    affinity = data.draw(st.sampled_from(["local_scaling", "gaussian", "nearest_neighbors"]))
    model = quiet_fit(SoftLabelMVC(k, affinity=affinity, random_state=0), X)
    np.testing.assert_array_equal(np.unique(model.labels_), np.arange(k))
    assert np.isfinite(model.field_).all()
    assert np.isfinite(model.objective_)
    assert isinstance(model.degenerate_, bool)


@pytest.mark.parametrize(
    "W",
    [
        pytest.param(sparse.block_diag([np.ones((3, 3))] * 8).toarray(), id="many components"),
        pytest.param(np.diag([0.0] * 4 + [1.0] * 6), id="no edges"),
        pytest.param(np.ones((12, 12)), id="all alike"),
        pytest.param(
            sparse.block_diag([np.ones((6, 6)), np.zeros((5, 5))]).toarray(), id="isolated"
        ),
    ],
)
@pytest.mark.parametrize("k", [3, 4, 5])
def test_graphs_that_say_little_give_all_clusters_and_say_so(W, k):
    for matrix in (W, sparse.csr_matrix(W)):
        model = quiet_fit(SoftLabelMVC(k, affinity="precomputed", random_state=0), matrix)
        np.testing.assert_array_equal(np.unique(model.labels_), np.arange(k))
        assert model.degenerate_
        assert model.result_.status is Status.DEGENERATE


def start_of(W, vectors, k):
    """Labels at the start from given eigenvectors."""
    n = W.shape[0]
    pairs = EigenPairs(np.zeros(vectors.shape[1]), vectors, np.zeros(vectors.shape[1]), "given")
    graph = Graph(W, extension=None)
    problem = MultiwayProblem(graph, graph.normalized_operator(1 / n), pairs, k, 0.0, 1 / n)
    return spectral_start(problem, seed=0)


def test_a_start_with_missing_clusters_is_filled():
    """By whole components, otherwise along the eigenvectors, otherwise by halves."""
    # Six components, of which the eigenvectors separate two from the rest.
    W = sparse.csr_matrix(sparse.block_diag([np.ones((4, 4))] * 6))
    vectors = np.zeros((24, 4))
    vectors[:4, 0] = vectors[4:8, 1] = 0.5
    labels, n_missed = start_of(W, vectors, 4)
    assert n_missed == 1
    assert set(labels) == {0, 1, 2, 3}
    blocks = labels.reshape(6, 4)
    np.testing.assert_array_equal(blocks, np.repeat(blocks[:, :1], 4, axis=1))
    # One component and two different rows: one of the halves is halved again.
    vectors = np.repeat([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], 6, axis=0)
    labels, n_missed = start_of(np.ones((12, 12)), vectors, 3)
    assert n_missed == 1
    np.testing.assert_array_equal(np.sort(np.bincount(labels)), [3, 3, 6])
    labels, n_missed = start_of(np.ones((5, 5)), np.ones((5, 3)), 5)
    assert n_missed == 4
    np.testing.assert_array_equal(np.sort(labels), np.arange(5))


def test_a_part_of_rows_that_differ_follows_the_widest_coordinate():
    rows = np.array([[0.0, 5.0], [0.1, 9.0], [0.0, 6.0], [0.1, 8.0]])
    np.testing.assert_array_equal(
        _part_of(rows, np.zeros(4, dtype=int)), [False, True, False, True]
    )


def test_as_many_components_as_clusters_are_the_clusters():
    X, y = blobs(4, 120)
    X += 1e3 * y[:, None]
    in_pieces = {"affinity": "local_scaling", "random_state": 0}
    model = quiet_fit(SoftLabelMVC(4, **in_pieces), X)
    assert clustering_error(y, model.labels_) == 0
    assert model.objective_ == pytest.approx(0.0, abs=1e-12)
    assert model.result_.gap == pytest.approx(0.0, abs=1e-8)
    assert model.degenerate_ is False
    with pytest.warns(UserWarning, match="more than n_clusters=3"):
        three = SoftLabelMVC(3, **in_pieces).fit(X)
    assert three.degenerate_


def test_tied_eigenvalues_are_degenerate():
    """Eigenvalues of a ring come in pairs after the first."""
    for n in (60, 1600):  # from 1,500 rows on, the next pair is computed when it is needed
        W = sparse.diags([1.0, 1.0, 1.0, 1.0], [-1, 1, n - 1, 1 - n], shape=(n, n)).tocsr()
        settings = {"affinity": "precomputed", "random_state": 0}
        three = SoftLabelMVC(3, **settings).fit(W)
        with warnings.catch_warnings():
            # With fewer rows the tie is known at once, and the status warns.
            warnings.simplefilter("ignore", ConvergenceWarning)
            four = SoftLabelMVC(4, **settings).fit(W)
        assert three.degenerate_ is False
        assert four.degenerate_ is True


# ------------------------------------------------------------------ splitting again, errors


def test_recursive_splits_are_an_option():
    X, y = blobs(4, 200)
    model = SoftLabelMVC(4, multiway="recursive", affinity="gaussian", sigma="mean/4")
    quiet_fit(model, X)
    assert clustering_error(y, model.labels_) == 0
    assert model.decision_function(X).shape == (200, 4)
    assert model.degenerate_ is False
    paper = quiet_fit(SoftLabelMVC(3, mode="paper", multiway="recursive", sigma="mean/4"), X)
    assert len(set(paper.labels_)) == 3
    two = [quiet_fit(SoftLabelMVC(multiway=name), X).labels_ for name in ("joint", "recursive")]
    np.testing.assert_array_equal(*two)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "paper"}, "^mode='paper'"),
        ({"mode": "aistats"}, "^mode='aistats'"),
        ({"n_candidates": 4}, "^n_candidates"),
        ({"reg": 10.0}, r"^reg\b"),
        ({"tol": 1e-3}, r"^tol\b"),
        ({"multiway": "pairs"}, "^multiway"),
        ({"multiway": "recursive", "Q": np.eye(40)}, "^Q .*function"),
        ({"balance": -1.0}, "balance must be"),
        ({"n_clusters": 41}, "^n_clusters=41"),
        ({"n_clusters": 3.5}, "^n_clusters .*integer"),
    ],
)
def test_what_has_no_meaning_is_refused(settings, message):
    X, _ = blobs(3, 40)
    with pytest.raises((ValueError, TypeError), match=message):
        SoftLabelMVC(**{"n_clusters": 3, **settings}).fit(X)


def test_weights_are_not_accepted():
    X, _ = blobs(3, 40)
    with pytest.raises(TypeError, match="sample_weight"):
        SoftLabelMVC(3).fit(X, sample_weight=np.ones(40))
