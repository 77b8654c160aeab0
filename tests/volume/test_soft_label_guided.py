"""Maximum volume clustering with known labels and links between rows."""

from itertools import product

import numpy as np
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.datasets import load_digits, load_wine, make_blobs
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import scale

from volmar import SoftLabelMVC
from volmar.datasets import make_two_moons
from volmar.guidance.guide import Guide
from volmar.guidance.starts import FROM_NEIGHBORS, aligned_labels, spread_labels
from volmar.models import load_model, save_model
from volmar.operators import as_operator
from volmar.volume.descent import Allowed, FirstStep, alternate, refine
from volmar.volume.multiway import OneAgainstRest, reassigned, refine_jointly
from volmar.volume.problem import VolumeProblem
from volmar.volume.soft_label_mvc import seed_weights


def small_problem(seed, n=9):
    """Return a dense Q, a guide with two seeds and a pair of linked rows, and allowed labels."""
    A = np.random.default_rng(seed).standard_normal((n, n))
    Q = A @ A.T / n + 0.05 * np.eye(n)
    seeds = np.full(n, -1)
    seeds[[0, 1]] = 0, 1
    units = np.r_[np.arange(n - 1), 3]
    return Q, Guide(2, seeds, units)


def allowed_labels(guide, k):
    for labels in product(range(k), repeat=guide.seeds.size):
        c = np.array(labels)
        known = guide.seeds >= 0
        if (c[known] == guide.seeds[known]).all() and c[3] == c[-1]:
            yield c


def sides_of(guide):
    return Allowed(lambda x: 2.0 * guide.place_sides(x).labels - 1.0)


def smoothest(Q, v, balance_row, total, value):
    """Return the x of min x'Qx s.t. v'x = value, balance_row'x = total, by its KKT system."""
    A = np.vstack([v, balance_row])
    K = np.block([[2 * Q, A.T], [A, np.zeros((2, 2))]])
    return np.linalg.solve(K, np.r_[np.zeros(len(v)), value, total])[: len(v)]


@pytest.mark.parametrize("seed", range(3))
def test_weighted_fields_solve_their_problems(seed):
    Q, guide = small_problem(seed)
    weights = seed_weights(guide.seeds)
    np.testing.assert_allclose(weights, np.r_[4.5, 4.5, np.ones(7)])
    y = np.where(np.random.default_rng(seed).random(9) < 0.4, 1.0, -1.0)
    found = FirstStep(as_operator(Q), 0.0, weights=weights)(y)
    exact = smoothest(Q, weights * y, np.ones(9), 0.0, 3.0)
    np.testing.assert_allclose(found.x, exact, atol=1e-7)
    assert found.roughness == pytest.approx(exact @ Q @ exact)
    assert found.residual(as_operator(Q)) < 1e-7
    labels = np.arange(9) % 3
    fields = OneAgainstRest(as_operator(Q), 3, 0.0, weights=weights)(labels)
    for j in range(3):
        sides = np.where(labels == j, 1.0, -1.0)
        exact = smoothest(Q, weights * sides, weights, 0.0, 3.0)
        exact /= np.sqrt(exact @ Q @ exact)
        np.testing.assert_allclose(fields.x[:, j], exact, atol=1e-7)
    assert fields.residual(as_operator(Q)) < 1e-7


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_refined_labels_are_the_best_allowed_for_their_field(seed, weighted):
    Q, guide = small_problem(seed)
    weights = seed_weights(guide.seeds) if weighted else None
    y = 2.0 * guide.place_sides(np.random.default_rng(seed).standard_normal(9)).labels - 1.0
    step = FirstStep(as_operator(Q), 1 / 9, weights=weights)
    found = refine(step, y, allowed=sides_of(guide))
    assert found.settled
    assert (np.diff(found.merits) >= -1e-12).all()
    best = max((2.0 * c - 1.0) @ found.fields.x for c in allowed_labels(guide, 2))
    assert found.labels @ found.fields.x == pytest.approx(best)


@pytest.mark.parametrize("reg", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("seed", range(3))
def test_alternation_is_optimal_for_labels_and_for_responses(seed, reg):
    """By all allowed labels for the responses, and by projected gradient steps for the labels."""
    Q, guide = small_problem(seed)
    problem = VolumeProblem(as_operator(Q), reg, 1 / 9)
    y = 2.0 * guide.place_sides(np.random.default_rng(seed).standard_normal(9)).labels - 1.0
    found = alternate(problem, y, np.linalg.eigvalsh(Q), allowed=sides_of(guide))
    assert found.status.ok
    assert (np.diff(found.history) <= 1e-9).all()
    labels = sides_of(guide).place(found.h)
    best = max((2.0 * c - 1.0) @ found.h for c in allowed_labels(guide, 2))
    assert labels @ found.h == pytest.approx(best)
    value = -2 * labels @ found.h + reg * found.h @ Q @ found.h
    assert found.objective == pytest.approx(value)
    assert max(found.residuals.values()) < 1e-7
    rng = np.random.default_rng(0)
    near = found.h + 0.02 * rng.standard_normal((500, 9))
    near -= near.mean(axis=1, keepdims=True) - found.h.mean()  # keeps the sum, then the norm
    centred = near - found.h.mean()
    radius = np.sqrt(1 - 9 * found.h.mean() ** 2)
    near = found.h.mean() + centred * (radius / np.linalg.norm(centred, axis=1))[:, None]
    others = -2 * near @ labels + reg * np.einsum("ij,jk,ik->i", near, Q, near)
    assert others.min() >= value - 1e-9


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_joint_refinement_is_the_best_allowed_for_its_fields(seed, weighted):
    Q, guide = small_problem(seed, n=7)
    guide = Guide(3, guide.seeds, guide.units)
    start = guide.place(np.eye(3)[np.arange(7) % 3]).labels
    weights = seed_weights(guide.seeds) if weighted else None
    step = OneAgainstRest(as_operator(Q), 3, 0.0, weights=weights)
    found = refine_jointly(step, start, allowed=Allowed(lambda x: guide.place(x).labels))
    assert (np.diff(found.merits) >= -1e-12).all()
    x, rows = found.fields.x, np.arange(7)
    if not found.n_held:
        best = max(x[rows, c].sum() for c in allowed_labels(guide, 3))
        assert x[rows, found.labels].sum() == pytest.approx(best)
    np.testing.assert_array_equal(found.labels[[0, 1]], [0, 1])
    assert found.labels[3] == found.labels[6]


def test_a_cluster_that_would_be_left_keeps_its_linked_rows():
    units = np.array([0, 1, 1, 2, 3])
    guide = Guide(3, np.full(5, -1), units)
    old = np.array([0, 2, 2, 1, 1])
    x = np.eye(3)[[0, 0, 0, 1, 1]]

    def largest(x):
        sums = np.stack([np.bincount(units, column) for column in x.T], axis=1)
        return sums.argmax(axis=1)[units]

    new, n_held = reassigned(x, old, allowed=Allowed(largest))
    np.testing.assert_array_equal(new, [0, 2, 2, 1, 1])
    assert n_held == 1
    # A placement leaves no cluster empty, so that none is held.
    new, n_held = reassigned(x, old, allowed=Allowed(lambda x: guide.place(x).labels))
    assert np.unique(new).size == 3
    assert n_held == 0


def test_the_certificate_is_that_of_the_labels_found():
    X, y = make_two_moons(200, random_state=0)
    given = np.full(200, -1)
    given[:30] = y[:30]
    given[0] = 1 - y[0]  # inside the other moon
    model = SoftLabelMVC().fit(X, given)
    assert np.mean(model.labels_[30:] == y[30:]) == 1.0
    np.testing.assert_array_equal(model.labels_[:30], given[:30])
    sides = model.problem_.sides
    np.testing.assert_array_equal(sides, 2.0 * model.labels_ - 1.0)
    checked = model.result_.check(model.problem_)
    assert checked.is_stationary(1e-6)
    Qh = model.problem_.operator.matvec(model.h_)
    value = -2 * sides @ model.h_ + model.reg * model.h_ @ Qh
    assert model.objective_ == pytest.approx(value)


@pytest.mark.parametrize("first", [0, 199])
def test_the_certificate_holds_for_either_numbering(first):
    X, _ = make_blobs([60, 140], 2, random_state=1)
    groups = np.full(200, -1)
    groups[[first, 100]] = 1
    model = SoftLabelMVC().fit(X, must_link=groups)
    assert model.result_.check(model.problem_).is_stationary(1e-6)
    assert model.labels_[first] == model.labels_[100]


@pytest.mark.parametrize("multiway", ["joint", "recursive"])
def test_seeds_choose_among_the_clusters_of_four_blobs(multiway):
    """Three clusters of four blobs: the seeds determine which two belong together."""
    centers = [[0, 0], [0, 6], [9, 0], [9, 6]]
    X, blob = make_blobs(240, centers=centers, random_state=0)
    model = SoftLabelMVC(3, multiway=multiway, random_state=0)
    y = np.array([2, 2, 5, 7])[blob]
    given = np.where(np.random.default_rng(0).random(240) < 0.1, y, -1)
    labels = model.fit(X, given).labels_
    assert np.mean(labels == y) == 1.0
    assert not hasattr(model, "tree_")


@pytest.mark.parametrize("as_matrix", [np.asarray, sparse.csr_array])
def test_labels_spread_along_a_precomputed_graph(as_matrix):
    """A ring of forty nodes does not determine where to cut it; seeds do."""
    n = 40
    W = np.zeros((n, n))
    W[np.arange(n), (np.arange(n) + 1) % n] = 1.0
    W += W.T
    for turn in (0, 7, 13):  # one of them disagrees with any cut without seeds
        y = np.roll(np.arange(n) < n // 2, turn).astype(int)
        given = np.where(np.arange(n) % 3 == 0, y, -1)
        model = SoftLabelMVC(affinity="precomputed").fit(as_matrix(W), given)
        assert np.sum(model.labels_ != y) <= 2


def test_the_spread_is_that_of_the_linear_system():
    rng = np.random.default_rng(3)
    A = np.triu(rng.random((60, 60)) * (rng.random((60, 60)) < 0.2), 1)
    W = A + A.T
    W[59, :] = W[:, 59] = 0.0  # an isolated node
    seeds = np.full(60, -1)
    seeds[:6] = 0, 0, 0, 1, 1, 2
    d = np.maximum(W.sum(axis=1), 1e-9)
    S = W / np.sqrt(np.outer(d, d))
    start = np.zeros((60, 3))
    start[np.arange(6), seeds[:6]] = 1 / np.array([3, 3, 3, 2, 2, 1])
    exact = np.linalg.solve(np.eye(60) - FROM_NEIGHBORS * S, start)
    expected = np.argmax(exact, axis=1)
    expected[:6] = seeds[:6]
    for matrix in (W, sparse.csr_array(W)):
        found = spread_labels(rng.standard_normal((60, 2)), seeds, 3, W=matrix)
        clear = np.ptp(np.sort(exact, axis=1)[:, 1:], axis=1) > 0.05 * exact.max(axis=1)
        assert clear[:59].mean() > 0.7
        np.testing.assert_array_equal(found[:59][clear[:59]], expected[:59][clear[:59]])


def test_seeds_of_one_cluster_are_named_by_what_is_near_them():
    free = np.array([0, 0, 0, 0, 1, 1, 1])
    seeds = np.array([0, 1, -1, -1, -1, -1, -1])  # both in cluster 0
    near = np.array([0, 1, 1, 1, 0, 0, 0])
    np.testing.assert_array_equal(aligned_labels(free, seeds, 2, (np.arange(7), near)), 1 - free)
    seeds[2] = 0  # seeds have a larger weight than the rows near them
    np.testing.assert_array_equal(aligned_labels(free, seeds, 2, (np.arange(7), near)), free)


def test_a_cluster_without_seeds_is_not_joined_to_a_class():
    """Of three clusters one holds the seeds of two classes: splitting it would make four."""
    centers = [[0, 0], [12, 0], [0, 12]]
    X, blob = make_blobs([80, 60, 40], centers=centers, random_state=0)
    inner = (X[:, 1] > 0).astype(int)
    rows = np.flatnonzero(blob == 0)[:30]
    given = np.full(180, -1)
    given[rows] = inner[rows]
    labels = SoftLabelMVC(3, random_state=0).fit(X, given).labels_
    for other in (1, 2):
        assert np.unique(labels[blob == other]).size == 1
    assert np.unique(labels[(blob > 0)]).size == 2


def test_consistent_seeds_move_the_border():
    """Two blobs apart from left to right, and classes from top to bottom."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 2))
    X[:, 0] += np.where(X[:, 0] > 0, 0.2, -0.2)
    y = (X[:, 1] > 0).astype(int)
    given = np.where(rng.random(300) < 0.2, y, -1)
    free = SoftLabelMVC().fit(X).labels_
    assert 0.3 < np.mean(free == y) < 0.7
    assert np.mean(SoftLabelMVC().fit(X, given).labels_ == y) > 0.9


@pytest.mark.parametrize("mode", ["paper", "aistats"])
def test_the_papers_modes_refuse_labels(mode):
    X, y = make_two_moons(40, random_state=0)
    given = np.where(np.arange(40) < 4, y, -1)
    with pytest.raises(ValueError, match=f"mode='{mode}'.*Use mode='default'"):
        SoftLabelMVC(mode=mode).fit(X, given)
    SoftLabelMVC(mode=mode).fit(X, y)  # true classes, which are ignored


@pytest.mark.parametrize("k", [2, 3])
def test_a_model_with_names_is_saved(k, tmp_path):
    X, blob = make_blobs(120, centers=3, random_state=0)
    given = np.full(120, None)
    given[:20] = np.array(["left", "right", "top"])[np.minimum(blob, k - 1)[:20]]
    model = SoftLabelMVC(k, random_state=0).fit(X, given)
    save_model(tmp_path / "m.volmar", model)
    loaded = load_model(tmp_path / "m.volmar").model
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_routing_knows_links_and_no_weights():
    model = SoftLabelMVC()
    with config_context(enable_metadata_routing=True):
        request = model.set_fit_request(must_link=True, cannot_link=False)
        assert request.get_metadata_routing().fit.requests == {
            "must_link": True,
            "cannot_link": False,
        }
        with pytest.raises(TypeError, match="sample_weight"):
            model.set_fit_request(sample_weight=True)


def digits(classes):
    X, y = load_digits(return_X_y=True)
    chosen = np.isin(y, classes)
    return X[chosen], y[chosen]


def draws_of(y, n_labels, *, shuffled=False):
    """Yield five draws of known labels, true or in random order, -1 elsewhere."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        rows = rng.choice(y.size, n_labels, replace=False)
        seeds = np.full(y.size, -1)
        seeds[rows] = rng.permutation(y[rows]) if shuffled else y[rows]
        yield seeds


@pytest.mark.parametrize(
    ("classes", "free", "guided"), [((1, 8, 9), 0.4, 0.7), ((1, 8), 0.1, 0.8)]
)
def test_labels_count_if_the_classes_are_not_the_smoothest_clusters(classes, free, guided):
    """The fits started from good labels and returned to the clusters without labels."""
    X, y = digits(classes)
    k = len(classes)
    assert adjusted_rand_score(y, SoftLabelMVC(k, random_state=0).fit(X).labels_) < free
    scores = []
    for seeds in draws_of(y, 30):
        labels = SoftLabelMVC(k, random_state=0).fit(X, seeds).labels_
        known = seeds >= 0
        np.testing.assert_array_equal(labels[known], seeds[known])
        scores.append(adjusted_rand_score(y[~known], labels[~known]))
    assert np.mean(scores) > guided


@pytest.mark.parametrize("classes", [(3, 5), (3, 5, 8)])
def test_random_labels_change_only_their_own_rows(classes):
    X, y = digits(classes)
    k = len(classes)
    free = SoftLabelMVC(k, random_state=0).fit(X).labels_
    agreement = []
    for seeds in draws_of(y, 30, shuffled=True):
        labels = SoftLabelMVC(k, random_state=0).fit(X, seeds).labels_
        known = seeds >= 0
        np.testing.assert_array_equal(labels[known], seeds[known])
        agreement.append(adjusted_rand_score(free[~known], labels[~known]))
    assert np.median(agreement) > 0.95


@pytest.mark.parametrize("as_matrix", [np.asarray, sparse.csr_array])
def test_anchored_rows_have_twice_their_diagonal(as_matrix):
    Q, guide = small_problem(0)
    anchored = as_operator(as_matrix(Q), shift=0.1).anchored(guide.seeds >= 0)
    expected = Q + 0.1 * np.eye(9)
    expected[[0, 1], [0, 1]] *= 2
    np.testing.assert_allclose(anchored.matvec(np.eye(9)), expected)
    low, high = anchored.bounds
    assert low <= np.linalg.eigvalsh(expected)[0] <= np.linalg.eigvalsh(expected)[-1] <= high
    x = anchored.solve(0.0, np.ones(9)).x
    np.testing.assert_allclose(expected @ x, np.ones(9), atol=1e-6)


def test_few_labels_do_not_undo_the_smaller_cut():
    """With labels that agree with the clusters, the fit ends at the clusters without labels."""
    X = scale(load_wine().data)
    free = SoftLabelMVC(3, random_state=0).fit(X)
    assert free.result_.history[-1] > free.objective_
    seeds = np.full(X.shape[0], -1)
    for c in range(3):
        seeds[np.flatnonzero(free.labels_ == c)[:3]] = c
    guided = SoftLabelMVC(3, random_state=0).fit(X, seeds)
    assert guided.objective_ <= free.objective_ + 1e-12
    np.testing.assert_array_equal(guided.labels_, free.labels_)
