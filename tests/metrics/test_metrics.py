"""Scores of a labelling: closed forms, brute force, invariances, bad input."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator
from sklearn.metrics import (
    adjusted_rand_score,
    calinski_harabasz_score,
    normalized_mutual_info_score,
    silhouette_score,
)

from volmar.metrics import (
    balanced_clustering_error,
    clustering_error,
    label_free_scores,
    matched_labels,
    normalized_cut,
    pair_f_measure,
    scores,
    separation_score,
)
from volmar.metrics.label_free import calinski_harabasz, imbalance, volume
from volmar.metrics.scores import agreement_scores

MATCHED = [clustering_error, balanced_clustering_error]
PAIRED = [pair_f_measure]


@st.composite
def labellings(draw, max_labels=4, max_points=14):
    """Two labellings of the same rows."""
    n = draw(st.integers(1, max_points))
    labels = st.lists(st.integers(0, max_labels - 1), min_size=n, max_size=n)
    return np.array(draw(labels)), np.array(draw(labels))


@st.composite
def weighted_labellings(draw):
    true, pred = draw(labellings())
    weights = st.lists(st.integers(0, 3), min_size=true.size, max_size=true.size)
    return true, pred, np.array(draw(weights.filter(any)))


@st.composite
def graphs(draw, max_points=9):
    """Symmetric similarities, many of them zero, and labels."""
    n = draw(st.integers(1, max_points))
    entries = draw(st.lists(st.integers(0, 3), min_size=n * n, max_size=n * n))
    half = np.triu(np.array(entries, dtype=float).reshape(n, n))
    labels = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    return half + np.triu(half, 1).T, np.array(labels)


def every_matching(true, pred):
    """Every one-to-one map of clusters to classes (None: to no class)."""
    clusters, classes = np.unique(pred), list(np.unique(true))
    places = classes + [None] * len(clusters)
    for images in set(itertools.permutations(places, len(clusters))):
        yield dict(zip(clusters, images, strict=True))


def brute_force_errors(true, pred):
    plain, balanced = [], []
    for matching in every_matching(true, pred):
        wrong = np.array([matching[p] != t for t, p in zip(true, pred, strict=True)])
        plain.append(wrong.mean())
        balanced.append(np.mean([wrong[true == c].mean() for c in np.unique(true)]))
    return min(plain), min(balanced)


def pair_counts(true, pred):
    """Count TP, FP, FN and TN over all pairs."""
    pairs = list(itertools.combinations(range(true.size), 2))
    same_class = np.array([true[i] == true[j] for i, j in pairs], dtype=bool)
    same_cluster = np.array([pred[i] == pred[j] for i, j in pairs], dtype=bool)
    return (
        int((same_class & same_cluster).sum()),
        int((~same_class & same_cluster).sum()),
        int((same_class & ~same_cluster).sum()),
        int((~same_class & ~same_cluster).sum()),
    )


@given(labellings(max_points=10))
def test_errors_are_the_smallest_over_all_matchings(pair):
    plain, balanced = brute_force_errors(*pair)
    assert clustering_error(*pair) == pytest.approx(plain, abs=1e-12)
    assert balanced_clustering_error(*pair) == pytest.approx(balanced, abs=1e-12)


@given(labellings(max_labels=2))
def test_two_clusters_give_the_formulas_of_the_papers(pair):
    true, pred = pair
    y, z = 2 * true - 1, 2 * pred - 1
    d_h = min(np.abs(z + y).sum(), np.abs(z - y).sum()) / 2
    assert clustering_error(true, pred) == pytest.approx(d_h / true.size)
    if len(np.unique(true)) == 2:
        wrong = z != y
        b_err = (wrong[y > 0].mean() + wrong[y < 0].mean()) / 2  # SKMMC eq. 31
        assert balanced_clustering_error(true, pred) == pytest.approx(min(b_err, 1 - b_err))


@given(labellings(), st.sampled_from([0.5, 1.0, 1.5]))
def test_pair_measures_count_pairs(pair, beta):
    tp, fp, fn, _ = pair_counts(*pair)
    if tp:
        precision, recall = tp / (tp + fp), tp / (tp + fn)
        expected = (beta**2 + 1) * precision * recall / (beta**2 * precision + recall)
    else:
        expected = float(fp + fn == 0)
    assert pair_f_measure(*pair, beta=beta) == pytest.approx(expected)


@pytest.mark.parametrize("metric", MATCHED + PAIRED)
@given(pair=labellings(), data=st.data())
def test_names_of_labels_and_order_of_points_do_not_matter(metric, pair, data):
    true, pred = pair
    names = np.array(data.draw(st.permutations(["a", "bb", "c", "d"])))
    order = np.array(data.draw(st.permutations(range(true.size))))
    value = metric(true, pred)
    assert metric(true, names[pred]) == pytest.approx(value, abs=1e-12)
    assert metric(names[true], pred) == pytest.approx(value, abs=1e-12)
    assert metric(true[order], pred[order]) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("metric", MATCHED + PAIRED)
@given(pair=labellings())
def test_values_are_in_the_unit_interval_and_best_for_the_same_partition(metric, pair):
    true, pred = pair
    best = 0.0 if metric in MATCHED else 1.0
    assert -1e-12 <= metric(true, pred) <= 1 + 1e-12
    assert metric(true, true) == pytest.approx(best, abs=1e-12)
    if metric in {clustering_error, pair_f_measure}:
        same = len(np.unique(true * 4 + pred)) == len(np.unique(true)) == len(np.unique(pred))
        assert (metric(true, pred) == pytest.approx(best, abs=1e-12)) == same


@given(labellings())
def test_plain_error_and_f_measure_are_symmetric(pair):
    true, pred = pair
    for metric in (clustering_error, pair_f_measure):
        assert metric(true, pred) == pytest.approx(metric(pred, true), abs=1e-12)
    # Swapping the arguments swaps precision and recall: beta becomes 1 / beta.
    swapped = pair_f_measure(pred, true, beta=1 / 1.5)
    assert pair_f_measure(true, pred, beta=1.5) == pytest.approx(swapped)


@pytest.mark.parametrize("metric", MATCHED)
@given(weighted=weighted_labellings())
def test_an_integer_weight_is_a_repeated_point(metric, weighted):
    true, pred, weight = weighted
    repeated = metric(np.repeat(true, weight), np.repeat(pred, weight))
    assert metric(true, pred, sample_weight=weight) == pytest.approx(repeated, abs=1e-12)


def test_known_values():
    # A rare class without a cluster: a small error, but half of the balanced error.
    true = np.repeat([0, 1], [98, 2])
    assert clustering_error(true, np.zeros(100, dtype=int)) == pytest.approx(0.02)
    assert balanced_clustering_error(true, np.zeros(100, dtype=int)) == pytest.approx(0.5)
    # More clusters than classes: the rows of the third cluster are errors.
    assert clustering_error([0, 0, 0, 1, 1], ["x", "x", "y", "z", "z"]) == pytest.approx(0.2)
    # Multivariate MMC eq. 19 with a = 3, b = 1, c = 1, d = 2: s = 4, ac + bd = 5 = ab + cd.
    true, pred = [0, 0, 0, 1, 0, 1, 1], [0, 0, 0, 0, 1, 1, 1]
    assert pair_f_measure(true, pred, beta=1.5) == pytest.approx(3.25 * 4 / (2.25 * 9 + 9))


@pytest.mark.parametrize("kind", ["dense", "csr", "coo"])
@given(graph=graphs())
def test_normalized_cut_is_the_sum_of_cut_over_volume(kind, graph):
    W, labels = graph
    expected = 0.0
    for k in np.unique(labels):
        inside = labels == k
        vol = W[inside].sum()
        # Isolated rows count as rows whose last edge nearly vanishes.
        expected += W[np.ix_(inside, ~inside)].sum() / vol if vol > 0 else 1.0
    given_as = {"dense": np.asarray, "csr": sparse.csr_array, "coo": sparse.coo_array}[kind](W)
    value = normalized_cut(given_as, labels)
    assert value == pytest.approx(expected, abs=1e-12)
    assert 0 <= value <= len(np.unique(labels)) + 1e-12


def test_normalized_cut_of_blocks_is_zero_and_single_precision_is_fine():
    W = np.kron(np.eye(3), np.ones((4, 4))).astype(np.float32)
    labels = np.repeat(["a", "b", "c"], 4)
    assert normalized_cut(W, labels) == 0.0
    # Each row is cut from its three peers, diagonal in the volume: 12 times 3 / 4.
    assert normalized_cut(sparse.csr_array(W), np.arange(12)) == pytest.approx(9.0)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-200, 1.0, -1.0, 1e200]))
def test_volume_is_the_rayleigh_quotient(seed, factor):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(6, 6))
    Q = root @ root.T
    h = rng.normal(size=6)
    values, vectors = np.linalg.eigh(Q)
    cosines = vectors.T @ h / np.linalg.norm(h)
    expected = values @ cosines**2
    for form in (Q, sparse.csr_array(Q), aslinearoperator(Q)):
        assert volume(factor * h, form) == pytest.approx(expected, rel=1e-9)
    assert volume(vectors[:, 0], Q) == pytest.approx(values[0], abs=1e-9 * values[-1])


def test_imbalance_has_the_papers_values():
    # SKMMC table I, per cent: haberman 225/81, ionosphere 225/126, german 700/300.
    for sizes, printed in (((225, 81), 47.06), ((225, 126), 28.21), ((700, 300), 40.00)):
        assert round(100 * imbalance(np.repeat(["+", "-"], sizes)), 2) == printed
    assert imbalance([0, 1, 2]) == 0.0
    assert imbalance(np.repeat([0, 1, 2], [6, 3, 2])) == pytest.approx(0.5)
    assert imbalance(["only", "only"]) == 1.0


@pytest.mark.parametrize("metric", MATCHED + PAIRED)
@pytest.mark.parametrize(
    ("true", "pred", "error", "message"),
    [
        ([0, 1], [0, 1, 1], ValueError, "same length, got 2 and 3"),
        ([], [], ValueError, r"^labels_true .*shape \(0,\)"),
        ([[0, 1]], [0, 1], ValueError, r"^labels_true .*shape \(1, 2\)"),
        ([0, 1], [[0], [1]], ValueError, r"^labels_pred .*shape \(2, 1\)"),
        ([0, 1], [0, np.nan], ValueError, "^labels_pred .*NaN"),
        (
            np.array([0, "a"], dtype=object),
            [0, 1],
            TypeError,
            "^labels_true .*Convert",
        ),
    ],
)
def test_bad_labels_are_named(metric, true, pred, error, message):
    with pytest.raises(error, match=message):
        metric(true, pred)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: clustering_error([0, 1], [0, 1], sample_weight=[1]),
            r"shape \(2,\), got shape \(1,\)",
        ),
        (lambda: clustering_error([0, 1], [0, 1], sample_weight=[1, -1]), "not negative"),
        (lambda: clustering_error([0, 1], [0, 1], sample_weight=[0, 0]), "positive entry"),
        (lambda: pair_f_measure([0, 1], [0, 1], beta=0), "beta must be .* got 0"),
        (lambda: normalized_cut(np.ones((2, 3)), [0, 1]), r"W must be of shape \(2, 2\)"),
        (lambda: normalized_cut(np.ones((2, 2)), [0, 1, 1]), r"shape \(3, 3\) for 3 labels"),
        (lambda: normalized_cut(-np.ones((2, 2)), [0, 1]), "^W .*got -1"),
        (lambda: normalized_cut([[0, 1], [0, 0]], [0, 1]), "W must be symmetric"),
        (lambda: normalized_cut([[0, np.nan], [0, 0]], [0, 1]), "NaN"),
        (lambda: volume([0, 0], np.eye(2)), "^h .*finite"),
        (lambda: volume([[1, 0]], np.eye(2)), "^h .*one-dimensional"),
        (lambda: volume([1, 0], np.eye(3)), r"^Q .*got \(3, 3\)"),
        (lambda: imbalance([]), "^labels .*label per"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@given(labellings())
def test_matched_labels_agree_in_as_many_points_as_possible(pair):
    true, pred = pair
    found = matched_labels(true, pred)
    codes = np.unique(true, return_inverse=True)[1]
    assert np.mean(found != codes) == pytest.approx(clustering_error(true, pred))
    # The partition is the same, and unmatched clusters have new numbers.
    assert clustering_error(pred, found) == 0
    n_free = np.unique(pred).size - np.unique(true).size
    assert np.sum(np.unique(found) >= np.unique(true).size) >= max(n_free, 0)


def test_calinski_harabasz_takes_sparse_rows():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((60, 5)) < 0.5, 0.0, rng.normal(size=(60, 5)))
    labels = rng.choice(["a", "b", "c"], 60)
    assert calinski_harabasz(sparse.csr_array(X), labels) == pytest.approx(
        calinski_harabasz_score(X, labels)
    )
    same = sparse.csr_array(np.eye(2)[[0, 0, 1, 1]])
    assert calinski_harabasz(same, [0, 0, 1, 1]) == calinski_harabasz(same.toarray(), [0, 0, 1, 1])


def test_label_free_scores_of_a_sample(monkeypatch):
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(80, 3)), 6 + rng.normal(size=(40, 3))])
    labels = np.repeat(["x", "y"], [80, 40])
    found = {one.name: one for one in label_free_scores(X, labels)}
    assert found["separation score"].value == separation_score(X, labels)
    assert found["silhouette"].value == pytest.approx(silhouette_score(X, labels))
    assert found["imbalance"].value == pytest.approx(1 / 3)
    assert "(of" not in found["silhouette"].meaning
    monkeypatch.setattr(scores, "MOST_SAMPLED", 50)
    monkeypatch.setattr(scores, "MOST_COMPARED", 1)
    found = {one.name: one for one in label_free_scores(X, labels)}
    assert "(of 50 rows)" in found["silhouette"].meaning
    assert found["MSP"].value is None
    assert "too many pairs" in found["MSP"].meaning


def test_agreement_scores_are_those_of_scikit_learn():
    true, pred = [0, 0, 0, 1, 1, 2], [1, 1, 0, 0, 0, 2]
    found = {one.name: one.value for one in agreement_scores(true, pred)}
    assert found["error"] == clustering_error(true, pred)
    assert found["ARI"] == pytest.approx(adjusted_rand_score(true, pred))
    expected = normalized_mutual_info_score(true, pred, average_method="geometric")
    assert found["NMI"] == pytest.approx(expected)
    assert found["F measure"] == pair_f_measure(true, pred)
